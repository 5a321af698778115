"""Floats of 8 bits with an exponent and digits, as arithmetic on their bits, which any target has.

In: an expression in float32, or of such a float; out: the float, rounded to nearest even as ml_dtypes rounds it, or its value in
float32, exactly. Formats are described in Micikevicius et al., "FP8 formats for deep learning" (2022), and by ml_dtypes.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import ml_dtypes
import numpy as np

from fuser.ir import scalar as S
from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOAT8, float8_e8m0fnu

FORMATS = frozenset(FLOAT8) - {float8_e8m0fnu}  # which has no digits
F32, BYTE, WORD = np.dtype("float32"), np.dtype("uint8"), np.dtype("uint32")
DIGITS, BIAS, INFINITY, QUIET = 23, 127, 0x7F800000, 0x7FC00000  # of float32
SIGN = 0x80


class Format(NamedTuple):
    """Digits behind the point; the exponent of the smallest normal number; the bytes of the largest number, of what is too large, and
    of nan; whether zero has a sign."""

    digits: int
    lowest: int
    largest: int
    overflow: int
    nan: int
    signed_zero: bool

    @property
    def bias(self) -> int:
        """What to add to an exponent of this format for float32's."""
        return BIAS - 1 + self.lowest


@functools.cache
def format_of(dtype: np.dtype) -> Format:
    """The format of a dtype in FORMATS."""
    limits = ml_dtypes.finfo(dtype)
    with np.errstate(all="ignore"):
        edges = np.array([limits.max, np.inf, np.nan, -0.0], np.float32).astype(dtype).view(np.uint8)
    largest, overflow, nan, zero = map(int, edges)
    return Format(limits.nmant, limits.minexp, largest, overflow, nan, zero != 0)


def encoded(x: Scalar, dtype: np.dtype) -> Scalar:
    """A float32 as a float of a dtype in FORMATS."""
    form = format_of(dtype)
    bits, spare = S.bitcast(x, WORD), DIGITS - form.digits
    size = bits & 0x7FFFFFFF
    even = (_right(size, spare) & 1) + ((1 << (spare - 1)) - 1)
    normal = _right(size + even, spare) - (form.bias << form.digits)
    # Beside a number whose last digit is a subnormal's, the processor's own rounding leaves as many digits as that has.
    aligned = np.float32(2.0 ** (DIGITS + form.lowest - form.digits))
    small = S.bitcast(S.bitcast(size, F32) + aligned, WORD) - int(aligned.view(np.uint32))
    rounded = S.where(size < _bits(2.0**form.lowest), small, normal)
    rounded = S.where(rounded > form.largest, form.overflow, rounded)
    rounded = S.where(size > INFINITY, form.nan, rounded)
    signed = rounded | (_right(bits, 24) & SIGN)
    if not form.signed_zero:
        signed = S.where(rounded.equals(0), 0, signed)
    return S.bitcast(S.cast(signed, BYTE), dtype)


def decoded(x: Scalar) -> Scalar:
    """The value of a float of a dtype in FORMATS, in float32."""
    form = format_of(x.dtype)
    byte = S.cast(S.bitcast(x, BYTE), WORD)
    size, spare = byte & 0x7F, DIGITS - form.digits
    normal = S.shift_left(size, S.constant(spare, WORD)) + (form.bias << DIGITS)
    small = S.bitcast(S.cast(size, F32) * np.float32(2.0 ** (form.lowest - form.digits)), WORD)
    bits = S.where(size < (1 << form.digits), small, normal)
    if form.nan != SIGN:
        bits = S.where(size > form.largest, QUIET, bits)
        if form.overflow != form.nan:
            bits = S.where(size.equals(form.overflow), INFINITY, bits)
    bits = bits | S.shift_left(byte & SIGN, S.constant(24, WORD))
    if form.nan == SIGN:
        bits = S.where(byte.equals(SIGN), QUIET, bits)
    return S.bitcast(bits, F32)


def _right(x: Scalar, count: int) -> Scalar:
    return S.shift_right_logical(x, S.constant(count, WORD))


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))
