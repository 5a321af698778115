"""Elements of 8 bits and fewer on the device: values by a table of all their bits, and bits by the thresholds between values.

Both tables are what ml_dtypes says, computed once a dtype: conversion is a step function of the value, so a search among its
thresholds, with what holds on a threshold itself (ties, overflow), converts exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from fuser.ir.graph import Eqn
from fuser.ir.types import SMALL, SMALL_INTEGERS, UINT1_4, ArrayType
from fuser.runtime.array import torch_dtype


@functools.cache
def _values(dtype: np.dtype) -> np.ndarray:
    """The value of each byte, float32."""
    with np.errstate(all="ignore"):
        return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)


@functools.cache
def _steps(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of sizes, for either sign: the thresholds between representable values, the byte below each (and above the last), the byte
    on each, and that of nan."""
    values = _values(dtype).astype(np.float64)
    sizes = np.unique(np.abs(values[np.isfinite(values)]))
    sizes = sizes[sizes > 0]
    powers = sizes[-1] == 2 * sizes[-2]  # a format without a mantissa
    beyond = sizes[-1] * 2 if powers else 2 * sizes[-1] - sizes[-2]  # where the next one would be
    between = (np.append(0.0, sizes) + np.append(sizes, beyond)) / 2
    thresholds = np.concatenate([[0.0], between, [np.inf]])
    inner = np.concatenate([[0.0, between[0] / 2], sizes, [np.finfo(np.float64).max]])
    signs = np.array([[1.0], [-1.0]])
    bytes_of = lambda x: x.astype(np.float64).astype(dtype).view(np.uint8)
    with np.errstate(all="ignore"):
        below = bytes_of(signs * np.append(inner, np.inf))
        return thresholds, below, bytes_of(signs * thresholds), bytes_of(signs[:, 0] * np.nan)


def decoded(x: Any, dtype: np.dtype) -> Any:
    """A tensor of bytes as the values that they are of `dtype`: int64 of integers, float32 of the others."""
    import torch

    table = torch.from_numpy(_values(dtype)).to(x.device)
    values = table[x.contiguous().view(torch.uint8).long()]
    return values.long() if dtype in SMALL_INTEGERS else values


def encoded(x: Any, dtype: np.dtype) -> Any:
    """A tensor of numbers as elements of `dtype`, or as what carries them: floats rounded to nearest, integers wrapped."""
    import torch

    if dtype not in SMALL:
        from fuser.backends.triton.library.scalars import converted

        return converted(x, dtype)
    if dtype in SMALL_INTEGERS:
        return _wrapped(x, dtype)
    thresholds, below, on, nan = (torch.from_numpy(part).to(x.device) for part in _steps(dtype))
    x = (x.real if x.is_complex() else x).float().double()  # ml_dtypes, too, rounds to float32 first
    negative, size = torch.signbit(x).long(), x.abs()
    step = torch.searchsorted(thresholds, size.contiguous()).clamp(max=len(thresholds) - 1)
    found = torch.where(thresholds[step] == size, on[negative, step], below[negative, step])
    return torch.where(torch.isnan(x), nan[negative], found).view(torch_dtype(dtype))


def _wrapped(x: Any, dtype: np.dtype) -> Any:
    """Integers modulo 2^bits, floats held to the dtype's limits, as the bytes that ml_dtypes keeps."""
    import torch

    info = ml_dtypes.iinfo(dtype)
    if x.is_floating_point() or x.is_complex():
        x = x.real if x.is_complex() else x
        x = torch.nan_to_num(x.double(), nan=0.0).trunc().clamp(info.min, info.max)
    bytes_of = (x.long() & ((1 << info.bits) - 1)) + 0
    if dtype not in UINT1_4:
        bytes_of = bytes_of - ((bytes_of >> (info.bits - 1)) << info.bits)
    return (bytes_of & 255).to(torch.uint8)


def convert(eqn: Eqn, x: Any) -> Any:
    """A conversion from or to a small dtype, whose own expression works on bits, in unsigned integers that torch does not compute with."""
    values, dtype = eqn.invars[0].aval.dtype, eqn.outvars[0].aval.dtype
    return encoded(decoded(x, values) if values in SMALL else x, dtype)


def around(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule on values where operands are small, and its result rounded to them; arithmetic is float32's, or int64's."""

    def converted(eqn: Eqn, *operands: Any) -> Any:
        from fuser.backends.triton.library.scalars import converted as plain

        small = [v.aval.dtype if v.aval.dtype in SMALL else None for v in eqn.invars]
        if not any(small) and eqn.outvars[0].aval.dtype not in SMALL:
            return rule(eqn, *operands)
        wide = _widened(eqn)
        values = [plain(decoded(x, d), v.aval.dtype) if d else x for x, d, v in zip(operands, small, wide.invars)]
        return encoded(rule(wide, *values), eqn.outvars[0].aval.dtype)

    return converted


def _widened(eqn: Eqn) -> Eqn:
    """The equation between what small elements are computed as."""
    from dataclasses import replace

    from fuser.ir.graph import Var

    def wider(v: Any) -> Any:
        aval = v.aval
        if aval.dtype not in SMALL:
            return v
        kind = np.dtype("int64") if aval.dtype in SMALL_INTEGERS else np.dtype("float32")
        return Var(ArrayType(aval.shape, kind, aval.weak_type))

    return replace(eqn, invars=tuple(map(wider, eqn.invars)), outvars=tuple(map(wider, eqn.outvars)))
