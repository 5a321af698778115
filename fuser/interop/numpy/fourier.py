"""NumPy's Fourier transforms of the last dimensions on traced arrays: operations of the program, in native code on every backend.

In: floats and complex numbers of 4 and 8 bytes a part. What else NumPy takes (other dimensions, integers, `out=`) it answers itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser.interop.numpy.context import Context
from fuser.interop.numpy.dispatch import FUNCTIONS
from fuser.interop.numpy.library import call_numpy
from fuser.interop.numpy.numeric import wrapped
from fuser.interop.numpy.traced import TracedArray

_REAL, _COMPLEX = "fd", "FD"
_TAKEN = {"fft": _REAL + _COMPLEX, "ifft": _REAL + _COMPLEX, "rfft": _REAL, "irfft": _REAL + _COMPLEX}


def _is_last(axes: Any, count: int, rank: int) -> bool:
    """Whether `axes` are the last `count` dimensions in order."""
    inside = rank >= count and all(-rank <= d < rank for d in axes)
    return inside and [d % rank for d in axes] == list(range(rank - count, rank))


def _has_points(name: str, a: TracedArray, n: int | None) -> bool:
    """Whether there is something to transform: of one complex number come 2 (1 - 1) real ones unless `n` says more."""
    return a.size > 0 and (n is not None or not name.startswith("irfft") or a.shape[-1] > 1)


def _one(name: str) -> Callable[..., Any]:
    """The handler of a transform of one dimension."""
    function = getattr(np.fft, name)

    def handler(
        context: Context, a: Any, n: Any = None, axis: Any = -1, norm: str | None = None, out: Any = None
    ) -> Any:
        plain = type(a) is TracedArray and a.dtype.char in _TAKEN[name] and out is None and a.ndim > 0
        fits = (
            plain and type(axis) is int and _is_last((axis,), 1, a.ndim) and (n is None or (type(n) is int and n > 0))
        )
        if not fits or not _has_points(name, a, n):
            return call_numpy(context, function, (a,), {"n": n, "axis": axis, "norm": norm, "out": out})
        return wrapped(context, getattr(fnp.fft, name)(a.lifted(), n, -1, norm))

    return handler


def _several(name: str, axes_unless_told: tuple[int, ...] | None) -> Callable[..., Any]:
    """The handler of a transform of several dimensions."""
    function = getattr(np.fft, name)

    def handler(
        context: Context,
        a: Any,
        s: Any = None,
        axes: Any = axes_unless_told,
        norm: str | None = None,
        out: Any = None,
    ) -> Any:
        plain = type(a) is TracedArray and a.dtype.char in _TAKEN[name.rstrip("2n")] and out is None and s is None
        last = tuple(range(a.ndim)) if plain and axes is None else axes
        known = plain and isinstance(last, tuple) and all(type(d) is int for d in last) and len(last) > 0
        if not known or not _has_points(name, a, None) or not _is_last(last, len(last), a.ndim):
            return call_numpy(context, function, (a,), {"s": s, "axes": axes, "norm": norm, "out": out})
        return wrapped(context, getattr(fnp.fft, name)(a.lifted(), None, last, norm))

    return handler


for _name in _TAKEN:
    FUNCTIONS[getattr(np.fft, _name)] = _one(_name)
    FUNCTIONS[getattr(np.fft, f"{_name}2")] = _several(f"{_name}2", (-2, -1))
    FUNCTIONS[getattr(np.fft, f"{_name}n")] = _several(f"{_name}n", None)
