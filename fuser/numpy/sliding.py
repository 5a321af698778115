"""Products of a vector with every window of a longer one, which convolution and correlation are made of.

Few products are one expression of shifted slices; more are taken in a loop, some shifts an iteration, which holds the sums of a
block in registers and reads the windows where they lie.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fuser.ir.types import FLOATS, bfloat16
from fuser.lax.control import scan
from fuser.lax.values import convert
from fuser.numpy import movement as V
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import iota, zeros
from fuser.ops.dynamic import dynamic_slice_p
from fuser.ops.movement import slice_p
from fuser.trace.core import bind

WRITTEN_OUT = 24  # products of a sum that is one expression
TOGETHER = 8  # shifts in an iteration


def sliding_products(x: Any, y: Any) -> Any:
    """out[i] = Σ x[i + k]·y[k] for vectors of one dtype, y the shorter: len(x) - len(y) + 1 sums. Half precision is summed in
    float32."""
    dtype = x.dtype
    if dtype in (FLOATS[0], bfloat16):
        x, y = convert(x, np.dtype("float32")), convert(y, np.dtype("float32"))
    count = y.shape[0]
    looped = count // TOGETHER * TOGETHER if count > WRITTEN_OUT else 0
    length = x.shape[0] - count + 1
    terms = [U.multiply(_slice(x, k, k + length), _slice(y, k, k + 1)) for k in range(looped, count)]
    if looped:
        terms.insert(0, _looped(x, _slice(y, 0, looped), length))
    return convert(functools.reduce(U.add, terms), dtype)


def _looped(x: Any, y: Any, length: int) -> Any:
    """The sums of products with `y`, whose length is a multiple of TOGETHER."""

    def step(total: Any, row: tuple[Any, Any]) -> tuple[Any, None]:
        number, factors = row
        start = U.multiply(number, TOGETHER)
        windows = (bind(dynamic_slice_p, x, U.add(start, k), slice_sizes=(length,)) for k in range(TOGETHER))
        products = [U.multiply(window, factors[k]) for k, window in enumerate(windows)]
        return U.add(total, functools.reduce(U.add, products)), None

    count = y.shape[0] // TOGETHER
    rows = iota((count,), 0, np.dtype("int32")), V.reshape(y, (count, TOGETHER))
    return scan(step, zeros((length,), x.dtype), rows)[0]


def _slice(x: Any, start: int, stop: int) -> Any:
    return bind(slice_p, x, start_indices=(start,), limit_indices=(stop,), strides=None)
