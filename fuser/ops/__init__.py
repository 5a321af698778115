"""Every primitive with all its rules beside it, one file per family.

jax.ops' reductions by segment are reached here too; they are made of operations, and stand in fuser/numpy/segments.py.
"""

from __future__ import annotations

import importlib
from typing import Any

from fuser.ops import (
    bessel,
    callback,
    calls,
    cephes,
    check,
    collective,
    control,
    convolution,
    cumulative,
    custom_partitioning,
    custom_vmap,
    dim,
    dot,
    dynamic,
    elementwise,
    factorisations,
    ffi,
    fft,
    fma,
    incomplete,
    indexing,
    jit,
    linalg,
    linear_call,
    logarithms,
    matrices,
    movement,
    order,
    philox,
    platform,
    random,
    reduce,
    reduce_window,
    remat,
    scatter,
    scatter_rows,
    selection,
    shard_map,
    sharding,
    solves,
    sorting,
    special,
    triangular,
    triton_call,
    unreduced,
    window_write,
    windows,
)

__all__ = [
    "bessel",
    "callback",
    "calls",
    "cephes",
    "check",
    "collective",
    "control",
    "convolution",
    "cumulative",
    "custom_partitioning",
    "custom_vmap",
    "dim",
    "dot",
    "dynamic",
    "elementwise",
    "factorisations",
    "ffi",
    "fft",
    "fma",
    "incomplete",
    "indexing",
    "jit",
    "linalg",
    "linear_call",
    "logarithms",
    "matrices",
    "movement",
    "order",
    "philox",
    "platform",
    "random",
    "reduce",
    "reduce_window",
    "remat",
    "scatter",
    "scatter_rows",
    "selection",
    "shard_map",
    "sharding",
    "solves",
    "sorting",
    "special",
    "triangular",
    "triton_call",
    "unreduced",
    "window_write",
    "windows",
]

_SEGMENTS = ("segment_max", "segment_min", "segment_prod", "segment_sum")


def __getattr__(name: str) -> Any:
    if name not in _SEGMENTS:
        raise AttributeError(f"module 'fuser.ops' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module("fuser.numpy.segments"), name)
    return value
