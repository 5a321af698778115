"""Discrete cosine transforms, with jax.scipy.fft's names: of type 2, and their inverses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.ir.types import is_complex
from fuser.lax.values import as_value, axes_of, axis_of, promote_inexact

__all__ = ["dct", "dctn", "idct", "idctn"]


def _checked(function: str, x: Any, type: int, norm: str | None) -> Any:
    if type != 2:
        raise NotImplementedError("Only DCT type 2 is implemented.")
    if norm not in (None, "backward", "ortho"):
        raise ValueError(f"jax.scipy.fft.{function}: {norm!r} is not implemented")
    (value,) = promote_inexact(function, as_value(x, function))
    if is_complex(value.dtype):
        raise ValueError(f"{function} takes real numbers, got {value.dtype.name}; transform both parts")
    return value


def _fitted(x: Any, n: int | None, axis: int) -> Any:
    """`x` cut or padded with zeros to n elements along an axis."""
    if n is None:
        return x
    x = x[tuple(slice(0, n) if d == axis else slice(None) for d in range(x.ndim))]
    missing = n - x.shape[axis]
    return fnp.pad(x, [(0, missing if d == axis else 0) for d in range(x.ndim)]) if missing else x


def _along(values: np.ndarray, ndim: int, axis: int) -> np.ndarray:
    return values.reshape([-1 if d == axis else 1 for d in range(ndim)])


def _scales(n: int, dtype: np.dtype, axis: int, ndim: int) -> Any:
    """The factors that make the transform orthogonal."""
    scale = np.full(n, np.sqrt(1 / (2 * n)))
    scale[:1] = np.sqrt(1 / (4 * n))
    return fnp.asarray(_along(scale, ndim, axis).astype(dtype))


def _shifts(n: int, dtype: np.dtype, axis: int, ndim: int, sign: int) -> Any:
    wide = np.result_type(dtype, np.complex64)
    return fnp.asarray(_along(np.exp(sign * 1j * np.pi * np.arange(n) / (2 * n)), ndim, axis).astype(wide))


def dct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """2·Σ x_j cos(πk(2j + 1)/(2n)) along `axis`, cut or padded to n elements; orthogonal with norm="ortho".

    One transform of n elements: Makhoul, "A fast cosine transform in one and two dimensions" (1980).
    """
    value = _checked("dct", x, type, norm)
    axis = axis_of(axis, value.ndim, "dct")
    value = _fitted(value, n, axis)
    count = value.shape[axis]
    part = lambda s: value[tuple(s if d == axis else slice(None) for d in range(value.ndim))]
    ordered = fnp.concatenate([part(slice(0, None, 2)), fnp.flip(part(slice(1, None, 2)), axis)], axis)
    spectrum = fnp.fft.fft(ordered, axis=axis)
    result = 2 * fnp.real(spectrum * _shifts(count, value.dtype, axis, value.ndim, -1))
    return result * _scales(count, value.dtype, axis, value.ndim) if norm == "ortho" else result


def idct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The inverse of `dct`, along `axis`, cut or padded to n elements."""
    value = _checked("idct", x, type, norm)
    axis = axis_of(axis, value.ndim, "idct")
    value = _fitted(value, n, axis)
    count, dtype = value.shape[axis], value.dtype
    if norm == "ortho":
        value = value / _scales(count, dtype, axis, value.ndim)
    part = lambda s: value[tuple(s if d == axis else slice(None) for d in range(value.ndim))]
    reversed_ = fnp.concatenate([fnp.zeros_like(part(slice(0, 1))), fnp.flip(part(slice(1, None)), axis)], axis)
    spectrum = (value - 1j * reversed_) / 2 * _shifts(count, dtype, axis, value.ndim, 1)
    ordered = fnp.real(fnp.fft.ifft(spectrum, axis=axis))
    middle = (count + 1) // 2
    index = np.empty(count, np.int32)
    index[0::2], index[1::2] = np.arange(middle), np.arange(count - 1, middle - 1, -1)
    return fnp.take(ordered, fnp.asarray(index), axis=axis).astype(dtype)


def _several(function: Any, name: str, x: Any, type: int, s: Sequence[int] | None, axes: Any, norm: str | None) -> Any:
    value = _checked(name, x, type, norm)
    axes = (axes,) if isinstance(axes, (int, np.integer)) else axes
    if axes is not None and s is not None and len(s) != len(axes):
        raise ValueError("`s` and `axes` must have the same length")
    if axes is None:
        axes = range(value.ndim) if s is None else range(value.ndim - len(s), value.ndim)
    chosen = axes_of(tuple(axes), value.ndim, name)
    for position, axis in enumerate(chosen):
        value = function(value, type, None if s is None else s[position], axis, norm)
    return value


def dctn(x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Any = None, norm: str | None = None) -> Any:
    """`dct` over `axes` (all unless told), cut or padded to the extents `s`."""
    return _several(dct, "dctn", x, type, s, axes, norm)


def idctn(x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Any = None, norm: str | None = None) -> Any:
    """The inverse of `dctn`."""
    return _several(idct, "idctn", x, type, s, axes, norm)
