"""Products and normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser.interop.dynamo.rules.table import operand, rule, wide
from fuser.ops import elementwise as E
from fuser.trace.core import bind

rule("mm", "bmm", "mv", "dot")(lambda dtype, x, y: fnp.matmul(x, y))
rule("mm.dtype", "bmm.dtype")(lambda dtype, x, y, *unused: fnp.matmul(x, y, preferred_element_type=dtype))


@rule("addmm", "baddbmm", "addmv")
def _addmm(dtype: np.dtype, start: Any, x: Any, y: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    own = wide(dtype)
    product = operand(fnp.matmul(x, y), own)
    product = product if alpha == 1 else fnp.multiply(product, operand(alpha, own))
    if beta == 0:
        return product
    first = operand(start, own) if beta == 1 else fnp.multiply(operand(start, own), operand(beta, own))
    return fnp.add(product, first)


@rule("addbmm")
def _addbmm(dtype: np.dtype, start: Any, x: Any, y: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    along = lambda v, axis: fnp.reshape(fnp.moveaxis(v, 0, axis), (-1, v.shape[2]) if axis == 0 else (v.shape[1], -1))
    return _addmm(dtype, start, along(x, 1), along(y, 0), beta, alpha)


# Normalisation. Sums are taken in float32 at least.


def _shaped(x: Any, rank: int, dtype: np.dtype) -> Any:
    return fnp.reshape(operand(x, dtype), (-1, *(1,) * (rank - 2)))


def _scaled(x: Any, weight: Any, bias: Any, own: np.dtype) -> Any:
    rank = len(x.shape)
    x = x if weight is None else fnp.multiply(x, _shaped(weight, rank, own))
    return x if bias is None else fnp.add(x, _shaped(bias, rank, own))


def _moments(x: Any, axes: Sequence[int]) -> tuple[Any, Any]:
    mean = fnp.mean(x, axis=tuple(axes), keepdims=True)
    return mean, fnp.mean(fnp.square(fnp.subtract(x, mean)), axis=tuple(axes), keepdims=True)


@rule("_native_batch_norm_legit_no_training")
def _batch_norm_inference(
    dtype: np.dtype, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    own, rank = wide(dtype), len(x.shape)
    inverse = bind(E.rsqrt_p, fnp.add(_shaped(variance, rank, own), operand(eps, own)))
    found = fnp.multiply(fnp.subtract(operand(x, own), _shaped(mean, rank, own)), inverse)
    empty = fnp.zeros((0,), own)
    return _scaled(found, weight, bias, own), empty, empty


@rule("_native_batch_norm_legit_functional")
def _batch_norm(
    dtype: np.dtype,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if not training:
        return (*_batch_norm_inference(dtype, x, weight, bias, mean, variance, momentum, eps), mean, variance)
    own, rank = wide(dtype), len(x.shape)
    wider = operand(x, own)
    axes = (0, *range(2, rank))
    found, spread = _moments(wider, axes)
    inverse = bind(E.rsqrt_p, fnp.add(spread, operand(eps, own)))
    result = _scaled(fnp.multiply(fnp.subtract(wider, found), inverse), weight, bias, own)
    count = x.size // x.shape[1]
    flat = lambda v: fnp.reshape(v, (x.shape[1],))
    unbiased = fnp.multiply(flat(spread), operand(count / max(count - 1, 1), own))
    keep = lambda old, new: fnp.add(fnp.multiply(old, 1 - momentum), fnp.multiply(new, momentum))
    return result, flat(found), flat(inverse), keep(mean, flat(found)), keep(variance, unbiased)


@rule("_native_batch_norm_legit.no_stats")
def _batch_norm_without_statistics(
    dtype: np.dtype, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    unused = fnp.zeros((x.shape[1],), wide(dtype))
    return _batch_norm(dtype, x, weight, bias, unused, unused, True, momentum, eps)[:3]


@rule("native_layer_norm")
def _layer_norm(dtype: np.dtype, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    own = wide(dtype)
    wider = operand(x, own)
    mean, spread = _moments(wider, range(len(x.shape) - len(shape), len(x.shape)))
    inverse = bind(E.rsqrt_p, fnp.add(spread, operand(eps, own)))
    found = fnp.multiply(fnp.subtract(wider, mean), inverse)
    found = found if weight is None else fnp.multiply(found, operand(weight, own))
    return found if bias is None else fnp.add(found, operand(bias, own)), mean, inverse


@rule("native_group_norm")
def _group_norm(
    dtype: np.dtype, x: Any, weight: Any, bias: Any, n: int, channels: int, size: int, groups: int, eps: float
) -> Any:
    own = wide(dtype)
    split = fnp.reshape(operand(x, own), (n, groups, channels // groups * size))
    mean, spread = _moments(split, (2,))
    inverse = bind(E.rsqrt_p, fnp.add(spread, operand(eps, own)))
    found = fnp.reshape(fnp.multiply(fnp.subtract(split, mean), inverse), x.shape)
    return _scaled(found, weight, bias, own), fnp.reshape(mean, (n, groups)), fnp.reshape(inverse, (n, groups))
