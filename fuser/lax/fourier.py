"""`fft`: discrete Fourier transforms of the last dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.ir.dim import as_extent
from fuser.ir.types import COMPLEX, FLOATS, is_complex
from fuser.lax.values import as_value, convert
from fuser.ops.fft import FftType, fft_p
from fuser.trace.core import bind

__all__ = ["FftType", "fft"]


def fft(x: Any, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Any:
    """The transform over the last len(fft_lengths) dimensions, whose extents must be these lengths (IRFFT: n//2 + 1 at last).

    FFT and IFFT take complex numbers (others are converted), RFFT float32 and float64 (ValueError for others) and gives
    n//2 + 1 at last, IRFFT the inverse. Results are complex64 or complex128, or the real dtype for IRFFT. TypeRuleError for other extents, ValueError for a kind
    that there is not or for complex numbers to RFFT.
    """
    kind = _kind(fft_type)
    value = as_value(x, "fft")
    lengths = tuple(map(as_extent, fft_lengths))
    if kind is FftType.RFFT:
        if is_complex(value.dtype):
            raise ValueError(f"only real valued inputs supported for rfft, got {value.dtype.name}; use FFT")
        if value.dtype not in FLOATS[2:]:
            raise ValueError(f"RFFT input must be float32 or float64, got {value.dtype.name}; convert it with astype")
    elif not is_complex(value.dtype):
        value = convert(value, COMPLEX[value.dtype == np.dtype("float64")])
    return bind(fft_p, value, fft_type=kind, fft_lengths=lengths) if lengths else value


def _kind(given: FftType | str) -> FftType:
    name: Any = given.upper() if isinstance(given, str) else getattr(given, "name", None)
    if name not in FftType.__members__:
        raise (ValueError if isinstance(given, str) else TypeError)(
            f"Unknown FFT type value '{given}'; the types are FFT, IFFT, RFFT and IRFFT"
        )
    return FftType[name]
