"""Bits packed into bytes and unpacked from them, and the spacing of floating-point numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import dtypes
from fuser.ir.types import kind_of
from fuser.lax.values import as_value, axis_of
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy import reductions as R
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import arange
from fuser.numpy.series import pad

__all__ = ["packbits", "spacing", "unpackbits"]

_BYTE = np.dtype("uint8")


def _highest_first(bitorder: str) -> bool:
    if bitorder not in ("little", "big"):
        raise ValueError("'order' must be either 'little' or 'big'")
    return bitorder == "big"


def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Any:
    """Eight elements along `axis` (of the flattened array for None), 0 or not, as one byte: uint8. TypeError for floats."""
    x = as_value(a, "packbits")
    if kind_of(x.dtype) not in "biu":
        raise TypeError("Expected an input array of integer or boolean data type")
    weights = np.left_shift(1, np.arange(8)).astype(_BYTE)
    weights = weights[::-1] if _highest_first(bitorder) else weights
    bits = x != 0
    if axis is None:
        bits, axis = V.ravel(bits), 0
    axis = axis_of(axis, bits.ndim, "packbits")
    bits = V.moveaxis(bits, axis, -1)
    missing = -bits.shape[-1] % 8
    if missing:
        bits = pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, missing)])
    bits = V.reshape(bits, (*bits.shape[:-1], bits.shape[-1] // 8, 8))
    return V.moveaxis(R.sum(M.where(bits, weights, _BYTE.type(0)), -1, dtype=_BYTE), -1, axis)


def unpackbits(a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """The eight bits of each byte along `axis` as uint8; `count` of them, cut, or padded with 0; the last -count left out."""
    x = as_value(a, "unpackbits")
    if x.dtype != _BYTE:
        raise TypeError("Expected an input array of unsigned byte data type")
    positions = arange(8, dtype=_BYTE)  # whose range the shift knows
    positions = 7 - positions if _highest_first(bitorder) else positions
    if axis is None:
        x, axis = V.ravel(x), 0
    axis = axis_of(axis, x.ndim, "unpackbits")
    bits = (V.moveaxis(x, axis, -1)[..., None] >> positions) & 1
    bits = V.reshape(bits, (*bits.shape[:-2], bits.shape[-2] * 8))
    if count is not None:
        extent = bits.shape[-1]
        if count > extent:
            bits = pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, count - extent)])
        else:
            bits = bits[..., :count]
    return V.moveaxis(bits.astype(_BYTE), -1, axis)


def spacing(x: Any, /) -> Any:
    """The distance to the next number away from 0, with the sign of x; nan for infinities. Floats keep their dtype."""
    (value,) = (as_value(x, "spacing"),)
    if dtypes.issubdtype(value.dtype, np.complexfloating):
        raise ValueError("jnp.spacing is not defined for complex inputs.")
    value = U.inexact_operand("spacing", value)
    away = M.where(M.signbit(value), -np.inf, np.inf).astype(value.dtype)
    gap = U.nextafter(value, away) - value
    return M.where(M.isfinite(value), gap, np.nan).astype(value.dtype)
