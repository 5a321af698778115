"""Fourier transforms: groups that call a C function once a dimension.

In: a LIBRARY group, as in library_calls. Lengths without factors but 2, 3 and 5 have a transform in vectors (`fourier/` among the kernels). For others,
and where it is not faster, fft.c calls the inner loops of NumPy's ufuncs (pocketfft), which the native core finds in C's table of the ufunc.
"""

from __future__ import annotations

import functools
import importlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.ir.graph import Eqn
from fuser.ir.types import ArrayType
from fuser.ops.fft import FftType
from fuser.runtime.core import native

if TYPE_CHECKING:
    from fuser.backends.c.library.library_calls import Calls

_TYPES = {"complex64": "Ff->F", "complex128": "Dd->D"}  # as the ufuncs list them
# The vectorised transform: bytes of a vector, the fewest numbers, the most of rows that are transformed side by side, and those from
# which on a float64 row that is not alone is faster than with NumPy, whose loop then has vectors too; columns, likewise.
VECTOR, FEWEST, SHORT, LONG, TALL = 64, 64, 1024, 16384, 256
KINDS = {"fft": 0, "ifft": 1, "rfft": 2, "irfft": 3}  # as transform.c numbers them
_REAL = {
    "rfft": {"float32": "ff->F", "float64": "dd->D"},
    "irfft": {"complex64": "Ff->f", "complex128": "Dd->d"},
}


def fft_blocker(eqn: Eqn) -> str | None:
    """None, or why a transform is left to SciPy."""
    [operand], params = eqn.invars, eqn.params
    if not operand.aval.size or not math.prod(params["fft_lengths"]):
        return "it has no elements"
    if native is None or _ufunc("fft") is None:
        return "the inner loops of NumPy's transforms are not to be had"
    return None


@functools.cache
def _ufunc(name: str) -> Any:
    """NumPy's ufunc of a transform; None where this NumPy keeps none."""
    try:
        return getattr(importlib.import_module("numpy.fft._pocketfft_umath"), name, None)
    except ImportError:
        return None


@functools.cache
def loop(name: str, dtype: str) -> tuple[int, int]:
    """The addresses of the inner loop of NumPy's ufunc `name` for operands of a dtype, and of its data."""
    ufunc = _ufunc(name)
    types = _REAL.get(name.split("_")[0], _TYPES)[dtype]
    return native.ufunc_loop(ufunc, ufunc.types.index(types))  # type: ignore[no-any-return]


def transform(calls: Calls) -> None:
    """A real transform goes along the last dimension first, its inverse along it last; complex ones where the result lies."""
    [operand], [result] = calls.eqn.invars, calls.eqn.outvars
    kind, lengths = calls.eqn.params["fft_type"], calls.eqn.params["fft_lengths"]
    inverse = kind in (FftType.IFFT, FftType.IRFFT)
    last, others = result.aval.ndim - 1, range(result.aval.ndim - len(lengths), result.aval.ndim - 1)
    source, target, aval = calls.operand(operand), calls.result(0), result.aval
    steps: list[tuple[str, int]] = [("ifft" if inverse else "fft", axis) for axis in others]
    if kind is FftType.IRFFT:
        halves = calls.room(operand.aval.nbytes) if steps else source
        for name, axis in steps:
            _along(calls, name, axis, operand.aval, operand.aval, source, halves)
            source = halves
        _along(calls, "irfft", last, operand.aval, aval, source, target)
        return
    real = kind is FftType.RFFT
    first = f"rfft_n_{'odd' if lengths[-1] % 2 else 'even'}" if real else "ifft" if inverse else "fft"
    _along(calls, first, last, operand.aval, aval, source, target)
    for name, axis in steps:
        _along(calls, name, axis, aval, aval, target, target)


def _has_vectors(n: int, outer: int, inner: int, single: bool, lanes: int) -> bool:
    """Whether the vectorised transform of n complex numbers is faster than NumPy's."""
    rest = n
    for factor in (2, 3, 5):
        while rest % factor == 0:
            rest //= factor
    if rest != 1 or n < FEWEST:
        return False
    if inner > 1:
        return inner >= lanes and (single or n >= TALL)
    return single or outer == 1 or n >= LONG or (n <= SHORT and outer >= lanes)


def _along(calls: Calls, name: str, axis: int, given: ArrayType, found: ArrayType, source: str, target: str) -> None:
    scale = found.shape[axis] if name in ("ifft", "irfft") else 1
    kind, size = name.split("_")[0], np.zeros((), given.dtype).real.itemsize
    row = found.shape[axis] if kind == "irfft" else given.shape[axis]
    n, halves = (row // 2, row % 2 == 0) if kind in _REAL else (row, True)
    outer, inner, lanes = math.prod(given.shape[:axis]), math.prod(given.shape[axis + 1 :]), VECTOR // size
    if halves and _has_vectors(n, outer, inner, size == 4, lanes):
        # As transform.c lays it out: a row and two blocks of it at most; two blocks of columns, or of short rows.
        gaps, some = 8 * lanes, (n + 1) * lanes if n <= SHORT else 0
        room = size * (4 * (n * min(lanes, inner) + gaps) if inner > 1 else max(8 * n, 4 * some) + 4 * gaps)
        sizes: list[int | tuple[Any, ...]] = [KINDS[kind], outer, n, inner, scale, room, calls.threads]
        calls.call(("fourier", np.dtype(f"f{size}")), [source, target, calls.room(calls.threads * room)], sizes)
        return
    double = size == 8
    sizes = [("ufunc", name, given.dtype.name), ("ufunc data", name, given.dtype.name)]
    sizes += [math.prod(given.shape[:axis]), given.shape[axis], found.shape[axis], math.prod(given.shape[axis + 1 :])]
    sizes += [given.dtype.itemsize, found.dtype.itemsize, scale, double, calls.threads]
    calls.call(("fft",), [source, target], sizes)
