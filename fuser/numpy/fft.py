"""Discrete Fourier transforms, with jax.numpy.fft's names: of any dimensions, cut or padded to lengths, and scaled by `norm`.

`norm` divides the forward transform by n ("forward"), the inverse one ("backward", the default), or both by √n ("ortho").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.ir.dim import as_extent
from fuser.ir.types import is_complex, is_inexact
from fuser.lax.fourier import FftType
from fuser.lax.fourier import fft as transform
from fuser.lax.ranks import install as _install_ranks
from fuser.lax.replayed import install as _install_replays
from fuser.lax.values import as_value, axes_of, promote_inexact, where_told
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy.creation import arange, asarray, full
from fuser.numpy.series import pad

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

_SWAPPED = {"backward": "forward", None: "forward", "forward": "backward", "ortho": "ortho"}


def _scale(norm: str | None, lengths: Sequence[int], inverse: bool, function: str) -> float:
    """What the transform without division is multiplied by, where that is not the default."""
    size = math.prod(lengths)
    if norm == "ortho":
        return 1.0 / math.sqrt(size)
    if norm == "forward":
        return 1.0 if inverse else 1.0 / size
    raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward" ({function}).')


def _of_nothing(x: Any, kind: FftType, axes: tuple[int, ...], lengths: Sequence[int]) -> Any:
    """The transform where one of the lengths is zero: an array without elements."""
    shape = list(x.shape)
    for d, n in zip(axes, lengths):
        shape[d] = n
    if kind is FftType.RFFT:
        shape[axes[-1]] = lengths[-1] // 2 + 1
    wide = np.result_type(x.dtype, np.complex64)
    return full(tuple(shape), 0, np.zeros((), wide).real.dtype if kind is FftType.IRFFT else wide)


def _transformed(function: str, kind: FftType, a: Any, s: Any, axes: Any, norm: str | None) -> Any:
    x = as_value(a, function)
    (x,) = promote_inexact(function, x)
    if kind is FftType.RFFT and is_complex(x.dtype):
        raise ValueError(f"{function} takes real numbers, got {x.dtype.name}; use fft for complex ones")
    if s is not None and axes is not None and len(s) != len(axes):
        raise ValueError(f"{function}: shape and axes have different lengths, {tuple(s)} and {tuple(axes)}")
    if axes is None:
        axes = tuple(range(x.ndim)) if s is None else tuple(range(x.ndim - len(s), x.ndim))
    if len({d % max(x.ndim, 1) for d in axes}) != len(axes):
        raise ValueError(f"jax.numpy.fft.{function} does not support repeated axes. Got axes {list(axes)}.")
    axes = axes_of(tuple(axes), x.ndim, function)
    if not axes:
        return x if kind is FftType.RFFT else x.astype(np.result_type(x.dtype, np.complex64))
    inverse_real = kind is FftType.IRFFT
    if s is None:
        lengths = [x.shape[d] for d in axes]
        if inverse_real:
            lengths[-1] = max(2 * (lengths[-1] - 1), 0)
    else:
        lengths = [as_extent(n) for n in s]
    if any(n < 1 for n in lengths):
        if s is None and not (kind is FftType.RFFT and lengths[-1] < 1):
            return _of_nothing(x, kind, axes, lengths)
        raise ValueError(f"Invalid number of FFT data points ({lengths}) specified.")
    wanted = [*lengths[:-1], lengths[-1] // 2 + 1] if inverse_real else lengths
    x = _fitted(V.moveaxis(x, axes, tuple(range(x.ndim - len(axes), x.ndim))), wanted)
    inverse = kind in (FftType.IFFT, FftType.IRFFT)
    scale = None if norm in (None, "backward") else _scale(norm, lengths, inverse, function)
    result = transform(x, kind, lengths)
    if scale is not None and scale != (divided := 1.0 / math.prod(lengths) if inverse else 1.0):
        result = result * np.asarray(scale / divided, result.dtype)
    return V.moveaxis(result, tuple(range(x.ndim - len(axes), x.ndim)), axes)


def _fitted(x: Any, lengths: Sequence[int]) -> Any:
    """`x` with its last dimensions cut or padded with zeros to these extents."""
    lead = x.ndim - len(lengths)
    x = x[(Ellipsis, *(slice(0, n) for n in lengths))]
    widths = [(0, 0)] * lead + [(0, n - e) for n, e in zip(lengths, x.shape[lead:])]
    return pad(x, widths) if any(w != (0, 0) for w in widths) else x


def _one(name: str, kind: FftType, text: str) -> Callable[..., Any]:
    def function(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
        if not isinstance(axis, (int, np.integer)) and axis is not None:
            raise ValueError(f"{name} does not support multiple axes. Please use {name}n. Got axis = {axis!r}.")
        return _transformed(name, kind, a, None if n is None else (n,), None if axis is None else (axis,), norm)

    return _documented(function, name, f"{text} along `axis`, cut or padded to `n` elements.")


def _two(name: str, kind: FftType, text: str) -> Callable[..., Any]:
    def function(a: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
        if len(axes) != 2:
            raise ValueError(f"{name} only supports 2 axes. Got axes = {axes!r}.")
        return _transformed(name, kind, a, s, axes, norm)

    return _documented(function, name, f"{text} over two dimensions, cut or padded to the extents `s`.")


def _many(name: str, kind: FftType, text: str) -> Callable[..., Any]:
    def function(a: Any, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
        return _transformed(name, kind, a, s, axes, norm)

    return _documented(function, name, f"{text} over `axes` (all unless told), cut or padded to the extents `s`.")


def _documented(function: Callable[..., Any], name: str, text: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text} Complex or real results of the width of the operand. ValueError for extents below 1."
    return function


fft = _one("fft", FftType.FFT, "The transform")
ifft = _one("ifft", FftType.IFFT, "The inverse transform")
rfft = _one("rfft", FftType.RFFT, "The first n//2 + 1 values of the transform of real numbers")
irfft = _one("irfft", FftType.IRFFT, "Real numbers from the first n//2 + 1 values of their transform,")
fft2 = _two("fft2", FftType.FFT, "The transform")
ifft2 = _two("ifft2", FftType.IFFT, "The inverse transform")
rfft2 = _two("rfft2", FftType.RFFT, "The transform of real numbers, half of it,")
irfft2 = _two("irfft2", FftType.IRFFT, "The inverse of rfft2")
fftn = _many("fftn", FftType.FFT, "The transform")
ifftn = _many("ifftn", FftType.IFFT, "The inverse transform")
rfftn = _many("rfftn", FftType.RFFT, "The transform of real numbers, half of it at last,")
irfftn = _many("irfftn", FftType.IRFFT, "The inverse of rfftn")


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The transform of a signal that is Hermitian, given by its first half: real numbers."""
    x = as_value(a, "hfft")
    (x,) = promote_inexact("hfft", x)
    return irfft(M.conj(x), n, axis, _swapped(norm))


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `hfft`: the first half of a Hermitian signal from its real transform."""
    return M.conj(rfft(asarray(a), n, axis, _swapped(norm)))


def _swapped(norm: str | None) -> str:
    if norm not in _SWAPPED:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    return _SWAPPED[norm]


def _frequencies(function: str, n: int, d: Any, dtype: Any) -> tuple[int, np.dtype, Any]:
    if isinstance(n, (list, tuple)):
        raise ValueError(f"The n argument of {function} only takes an int. Got n = {list(n)}.")
    if isinstance(d, (list, tuple)):
        raise ValueError(f"The d argument of {function} only takes a single value. Got d = {list(d)}.")
    found = dtypes.canonical(float if dtype is None else dtype)
    return n, found, asarray(n * d, found if is_inexact(found) else None)


@where_told
def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `fft`'s values for samples `d` apart: shape (n,), the default float unless told."""
    n, found, span = _frequencies("jnp.fft.fftfreq", n, d, dtype)
    positions = arange(n)
    return ((positions - n * (positions >= (n + 1) // 2)).astype(span.dtype) / span).astype(found)


@where_told
def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of `rfft`'s values for samples `d` apart: shape (n//2 + 1,), the default float unless told."""
    n, found, span = _frequencies("jnp.fft.rfftfreq", n, d, dtype)
    return arange(n // 2 + 1, dtype=found) / span.astype(found)


def _shifted(function: str, x: Any, axes: Any, sign: int) -> Any:
    value = as_value(x, function)
    dims = axes_of(axes if axes is None or isinstance(axes, (int, np.integer)) else tuple(axes), value.ndim, function)
    shifts = tuple(value.shape[d] // 2 if sign > 0 else -(value.shape[d] // 2) for d in dims)
    return V.roll(value, shifts, dims)


def fftshift(x: Any, axes: Any = None) -> Any:
    """The frequency 0 in the middle of `axes` (of all unless told)."""
    return _shifted("fftshift", x, axes, 1)


def ifftshift(x: Any, axes: Any = None) -> Any:
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", x, axes, -1)


_install_ranks(globals(), "fuser.numpy")
_install_replays(globals(), "fuser.numpy")
