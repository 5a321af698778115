"""Convolutions, transposed ones, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser import lax
from fuser.interop.dynamo.rules.table import Refused, operand, rule, wide
from fuser.transforms.linear import linear_transpose


def _convolve(
    x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int
) -> Any:
    space = len(x.shape) - 2
    every = lambda values: np.broadcast_to(values, (space,)).tolist()
    stride, padding, dilation = every(stride), every(padding), every(dilation)
    if not transposed:
        pads = [(p, p) for p in padding]
        return lax.conv_general_dilated(x, weight, stride, pads, rhs_dilation=dilation, feature_group_count=groups)
    reach = [d * (e - 1) for d, e in zip(dilation, weight.shape[2:])]
    pads = [(r - p, r - p + o) for r, p, o in zip(reach, padding, every(output_padding))]
    return lax.conv_general_dilated(
        x,
        _mirrored(weight, groups),
        [1] * space,
        pads,
        lhs_dilation=stride,
        rhs_dilation=dilation,
        feature_group_count=groups,
    )


def _mirrored(weight: Any, groups: int) -> Any:
    """The kernel (in, out / groups, ...) of a transposed convolution as that (out, in / groups, ...) of a convolution."""
    rows, columns, *window = weight.shape
    split = fnp.swapaxes(fnp.reshape(weight, (groups, rows // groups, columns, *window)), 1, 2)
    return fnp.flip(fnp.reshape(split, (groups * columns, rows // groups, *window)), tuple(range(2, len(weight.shape))))


def _batched(function: Callable[[Any], Any], x: Any, rank: int) -> Any:
    """The function of an array that may lack the dimension of its batch."""
    return function(x) if len(x.shape) == rank else fnp.squeeze(function(fnp.expand_dims(x, 0)), 0)


@rule("convolution")
def _convolution(dtype: np.dtype, x: Any, weight: Any, bias: Any, *geometry: Any) -> Any:
    if dtype.kind not in "fV":
        raise Refused(f"a convolution of {dtype.name}")
    rank = len(weight.shape)
    found = _batched(lambda v: _convolve(v, weight, *geometry), x, rank)
    return found if bias is None else fnp.add(found, fnp.reshape(bias, (-1, *(1,) * (rank - 2))))


@rule("convolution_backward")
def _convolution_backward(
    dtype: np.dtype, grad: Any, x: Any, weight: Any, bias_sizes: Any, *geometry_and_mask: Any
) -> Any:
    """The gradients of the input, the weight and the bias, each where the mask asks for it."""
    *geometry, mask = geometry_and_mask
    rank = len(weight.shape)
    found: list[Any] = [None, None, None]
    if mask[0]:
        [found[0]] = linear_transpose(lambda v: _batched(lambda u: _convolve(u, weight, *geometry), v, rank), x)(grad)
    if mask[1]:
        [found[1]] = linear_transpose(lambda v: _batched(lambda u: _convolve(u, v, *geometry), x, rank), weight)(grad)
    if mask[2]:
        channels = len(grad.shape) - rank + 1
        others = tuple(axis for axis in range(len(grad.shape)) if axis != channels)
        found[2] = fnp.sum(operand(grad, wide(grad.dtype)), axis=others)
    return found
