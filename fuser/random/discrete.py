"""Choices among things: categories, permutations, samples with and without replacement, and geometric counts."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import dtypes, lax
from fuser import numpy as fnp
from fuser.errors import UnsupportedError
from fuser.ir.dim import Dim
from fuser.ir.types import is_integer
from fuser.lax.values import VALUES, as_value, axis_of, broadcast_to, promote_inexact, python_scalar
from fuser.numpy.creation import asarray
from fuser.random.continuous import gumbel
from fuser.random.keys import check_shape, common_shape, shape_of, split_key, typed
from fuser.random.uniform import draw, randint, random_bits
from fuser.trace.core import Tracer


def _arraylike(name: str, x: Any) -> None:
    if not (python_scalar(x) or isinstance(x, (*VALUES, np.ndarray, np.generic)) or hasattr(x, "__jax_array__")):
        raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(x)}.")


def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    mode: str | None = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Positions along `axis`, drawn with probabilities softmax(logits, axis): the largest after adding Gumbel numbers.

    `shape` ends with the shape of logits without `axis`; what stands before it counts samples, which without
    replacement are different categories.
    """
    key, _ = typed("categorical", key)
    _arraylike("categorical", logits)
    logits = asarray(logits)
    axis = axis_of(axis, logits.ndim, "categorical")
    batch = (*logits.shape[:axis], *logits.shape[axis + 1 :])
    whole = batch if shape is None else shape_of(shape)
    check_shape("categorical", whole, batch)
    prefix = whole[: len(whole) - len(batch)]
    if not replace:
        return _without_replacement(key, logits, axis, whole, prefix, mode)
    drawn = list(whole[len(prefix) :])
    drawn.insert(axis, logits.shape[axis])
    noise = gumbel(key, (*prefix, *drawn), logits.dtype, mode)
    return fnp.argmax(noise + logits, axis=axis - logits.ndim)


def _without_replacement(
    key: Any, logits: Any, axis: int, shape: tuple[int, ...], prefix: tuple[int, ...], mode: str | None
) -> Any:
    k = math.prod(prefix)
    if k > logits.shape[axis]:
        raise ValueError(
            f"Number of samples without replacement ({k}) cannot exceed number of categories ({logits.shape[axis]})."
        )
    noisy = logits + gumbel(key, logits.shape, logits.dtype, mode)
    _, places = lax.top_k(fnp.moveaxis(noisy, axis, -1), k)
    return fnp.reshape(fnp.moveaxis(places, -1, 0), shape)


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None) -> Any:
    """The array with its slices along `axis` in random order, or arange(x) so; with `independent` each vector its own."""
    key, _ = typed("permutation", key)
    _arraylike("permutation", x)
    axis = axis_of(axis, np.ndim(x) or 1, "permutation")
    if not np.ndim(x):
        if not is_integer(dtypes.of(x)[0]):
            raise TypeError("x must be an integer or at least 1-dimensional")
        return shuffle(key, fnp.arange(_extent("permutation", x)), axis)
    x = asarray(x)
    if independent or x.ndim == 1:
        return shuffle(key, x, axis)
    return fnp.take(x, shuffle(key, fnp.arange(x.shape[axis]), 0), axis)


def _extent(name: str, x: Any) -> int:
    if isinstance(x, Tracer):
        raise x._refuse(f"fuser.random.{name}")
    number = np.asarray(x).item()
    return int(number) if isinstance(number, float) and name == "choice" else operator.index(number)


def shuffle(key: Any, x: Any, axis: int) -> Any:
    """`x` sorted along `axis` by random words, often enough that equal words hardly matter."""
    if type(x.size) is Dim:
        raise UnsupportedError(
            f"shape polymorphism for `permutation` or `shuffle` for arrays of non-constant size: {x.size}; how often an array is "
            "sorted depends on its size. Sort numbers of your own: x[argsort(fuser.random.uniform(key, x.shape[:1]))]"
        )
    rounds = math.ceil(3 * np.log(max(1, x.size)) / np.log(np.iinfo(np.uint32).max))
    for _ in range(rounds):
        pair = split_key(key)
        key, drawn = pair[0], random_bits(pair[1], 32, x.shape)
        _, x = lax.sort_key_val(drawn, x, axis)
    return x


def choice(
    key: Any,
    a: Any,
    shape: Any = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: str | None = None,
) -> Any:
    """Slices of `a` along `axis` (or of arange(a)), with the probabilities `p` or equal ones."""
    key, _ = typed("choice", key)
    if not isinstance(shape, Sequence):
        raise TypeError(f"shape argument of fuser.random.choice must be a sequence, got {shape}")
    _arraylike("choice", a)
    array = asarray(a)
    axis = axis_of(axis, array.ndim, "choice") if array.ndim else 0
    inputs = array.shape[axis] if array.ndim else _extent("choice", a)
    shape = shape_of(shape)
    draws = math.prod(shape)
    if draws == 0:
        return fnp.zeros(shape, array.dtype)
    if inputs <= 0:
        raise ValueError("a must be greater than 0 unless no samples are taken")
    if not replace and draws > inputs:
        raise ValueError(
            f"Cannot take a larger sample (size {draws}) than population (size {inputs}) when 'replace=False'"
        )
    if p is None and not replace:
        mixed = permutation(key, array if array.ndim else inputs, axis)
        result = mixed[(slice(None),) * axis + (slice(draws),)]
    else:
        places = randint(key, shape, 0, inputs) if p is None else _weighted(key, p, inputs, shape, replace, mode)
        result = fnp.take(array, places, axis) if array.ndim else places
    return fnp.reshape(result, (*array.shape[:axis], *shape, *array.shape[axis + 1 :]))


def _weighted(key: Any, p: Any, inputs: int, shape: tuple[int, ...], replace: bool, mode: str | None) -> Any:
    """Positions with probabilities: in the running sum, or the largest after adding Gumbel numbers to logarithms."""
    _arraylike("choice", p)
    (weights,) = promote_inexact("choice", p)
    if weights.shape != (inputs,):
        raise ValueError(
            "p must be None or a 1D vector with the same size as a.shape[axis]. "
            f"p has shape {weights.shape} and a.shape[axis] is {inputs}."
        )
    if replace:
        sums = fnp.cumsum(weights)
        r = sums[-1] * (1 - draw(key, shape, sums.dtype))
        return fnp.searchsorted(sums, r).astype(int)
    noisy = gumbel(key, (inputs,), weights.dtype, mode) + fnp.log(weights)
    return lax.top_k(noisy, math.prod(shape))[1].astype(int)


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """How many trials of probability `p` it takes to succeed once, int32 by default."""
    key, _ = typed("geometric", key)
    found = dtypes.requested(int if dtype is None else dtype, "geometric")
    if not is_integer(found):
        raise ValueError(f"dtype argument to `geometric` must be an int dtype, got {found.name}")
    whole = common_shape("geometric", shape, p)
    _arraylike("geometric", p)
    (p,) = promote_inexact("geometric", p)
    u = draw(key, whole, p.dtype)
    u = fnp.where(u == 0, 1, u)
    trials = lax.floor(lax.div(lax.log(u), broadcast_to(lax.log1p(lax.neg(as_value(p))), whole))) + 1
    return trials.astype(found)
