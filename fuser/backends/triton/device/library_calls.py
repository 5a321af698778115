"""Which groups cuFFT, cuSOLVER and cuBLAS take, called from C: their routine, and how its arrays follow from operands and results.

A routine that works in place gets a copy of its operand. cuFFT's and cuBLAS's calls may stand in a CUDA graph, by their documentation;
whether cuSOLVER's may is tried once for each call, on memory that nobody uses.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fuser.backends.triton.device.libraries import opened
from fuser.ir.graph import Eqn, Literal, Var
from fuser.ir.primitive import Primitive
from fuser.ir.types import short_dtype
from fuser.ops.column_major import (
    column_geqrf_p,
    column_gesvd_p,
    column_getrf_p,
    column_orgqr_p,
    column_potrf_p,
    column_syevd_p,
)
from fuser.ops.fft import FftType, dft_p
from fuser.ops.triangular import triangular_solve_p
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup
from fuser.runtime.core import native

SMALL = 512  # rows of matrices that are factored or solved all at once, where there are several
JACOBI = 32  # rows of matrices of a stack whose eigenvalues and singular values torch finds all at once
LOOPED = 32  # matrices of a stack up to which one call after another is enqueued for orthogonal factors
MOST = 1 << 31  # elements of a matrix, by which cuSOLVER counts
MOST_RANK = 3
_TYPES = {"f32": 0, "f64": 1, "c64": 2, "c128": 3}
_LOWER, _UPPER = 0, 1  # cublasFillMode_t


@dataclass(frozen=True)
class Array:
    """An array of a routine: a result, an operand, or one that nobody reads later; `copied` is the operand that it begins as."""

    result: int | None = None
    operand: int | None = None
    copied: int | None = None
    nbytes: int = 0


@dataclass(frozen=True)
class LibraryCall:
    """A call as the native core makes it, its arrays in the routine's order, and how many of the library's calls it is."""

    call: Any
    arrays: tuple[Array, ...]
    count: int
    graphless: bool


@dataclass(frozen=True)
class Routine:
    """What the native core is asked for; `tried`: that only an attempt tells whether a graph holds it; `waits`: that none does, as it reads the
    device's memory meanwhile."""

    library: str
    make: str
    arguments: tuple[Any, ...]
    arrays: tuple[Array, ...]
    count: int = 1
    tried: bool = False
    waits: bool = False


def library_call(group: FusionGroup) -> LibraryCall | None:
    """The group as one call; None where it is none, or no library takes it."""
    found = routine(group)
    if found is None or not opened(found.library):
        return None
    sizes = tuple(_bytes(array, group.graph.eqns[-1]) for array in found.arrays)
    attempt = (None,) if found.waits else (sizes,) if found.tried else ()
    made = _made(native.cuda_device(), found.make, found.arguments, attempt)
    return None if made is None else LibraryCall(made[0], found.arrays, found.count, made[1])


def routine(group: FusionGroup) -> Routine | None:
    """What a library that takes the group is asked for; None where none does."""
    eqn = group.graph.eqns[-1]
    found = ROUTINES[eqn.primitive](eqn) if eqn.primitive in ROUTINES else None
    return None if sources(group) is None or list(group.graph.outvars) != list(eqn.outvars) else found


def sources(group: FusionGroup) -> list[Var] | None:
    """The inputs that hold the operands, dense, in whatever shape; None where an operand is something else."""
    views, eqn = Views(group.graph.eqns), group.graph.eqns[-1]
    found = []
    for operand in eqn.invars:
        view = None if isinstance(operand, Literal) else views(operand)
        if view is None or view.source is None or not view.dense or view.source not in group.graph.invars:
            return None
        found.append(view.source)
    return found


def _bytes(array: Array, eqn: Eqn) -> int:
    if array.result is not None:
        return eqn.outvars[array.result].aval.nbytes
    return eqn.invars[array.operand].aval.nbytes if array.operand is not None else array.nbytes


@functools.lru_cache(maxsize=256)
def _made(device: int, make: str, arguments: tuple[Any, ...], attempt: tuple[Any, ...]) -> tuple[Any, bool] | None:
    """The native core's call on the thread's device, and whether no graph can hold it; None where the library has none. Equal groups
    share it."""
    try:
        call = getattr(native, make)(*arguments)
    except RuntimeError:
        return None
    return call, bool(attempt) and not native.library_captures(call, *attempt)


def forget() -> None:
    """Drop all calls: another driver is open."""
    _made.cache_clear()
    opened.cache_clear()


# Routines, by primitive.


def _transform(eqn: Eqn) -> Routine | None:
    kind, lengths = eqn.params["fft_type"], tuple(eqn.params["fft_lengths"])
    operand, result = eqn.invars[0].aval, eqn.outvars[0].aval
    if not operand.size or not result.size or len(lengths) > MOST_RANK or (kind is FftType.IRFFT and len(lengths) > 1):
        return None
    batch = math.prod(operand.shape[: operand.ndim - len(lengths)])
    wide = short_dtype(operand.dtype) in ("f64", "c128")
    first = Array(copied=0, nbytes=operand.nbytes) if kind is FftType.IRFFT else Array(operand=0)
    return Routine("libcufft", "fft_call", (int(kind), wide, lengths, batch), (first, Array(result=0)))


def _solver(
    eqn: Eqn, name: str, arrays: tuple[Array, ...], k: int = 0, flags: tuple[int, ...] = (), batched: bool = False
) -> Routine | None:
    """A factorisation of a stack of matrices in columns; `batched` where a routine takes several small ones at once."""
    *lead, n, m = eqn.invars[0].aval.shape
    count = math.prod(lead)
    if not count * n * m or n * m >= MOST or short_dtype(eqn.invars[0].aval.dtype) not in _TYPES:
        return None
    at_once = batched and count > 1 and n <= SMALL
    library = "libcublas" if at_once and name == "getrf" else "libcusolver"
    arguments = (
        f"{name}_batched" if at_once else name,
        _TYPES[short_dtype(eqn.invars[0].aval.dtype)],
        count,
        m,
        n,
        k,
        (*flags, 0, 0, 0, 0)[:4],
    )
    calls = 3 if at_once else count
    waits = name in ("syevd", "gesvd")  # iterations, whose end the host looks for
    return Routine(library, "solver_call", arguments, arrays, calls, library == "libcusolver" and not waits, waits)


_IN_PLACE = Array(result=0, copied=0)


def _info(eqn: Eqn) -> Array:
    """What a routine says of each matrix, which nobody reads."""
    return Array(nbytes=4 * math.prod(eqn.invars[0].aval.shape[:-2]))


def _potrf(eqn: Eqn) -> Routine | None:
    return _solver(eqn, "potrf", (_IN_PLACE, Array(result=1)), flags=(_UPPER,), batched=True)


def _getrf(eqn: Eqn) -> Routine | None:
    n, m = eqn.invars[0].aval.shape[-2:]
    return _solver(eqn, "getrf", (_IN_PLACE, Array(result=1), Array(result=2)), batched=n == m)


def _geqrf(eqn: Eqn) -> Routine | None:
    return _few(eqn, "geqrf", (_IN_PLACE, Array(result=1), _info(eqn)))


def _orgqr(eqn: Eqn) -> Routine | None:
    return _few(eqn, "orgqr", (_IN_PLACE, Array(operand=1), _info(eqn)), eqn.invars[1].aval.shape[-1])


def _few(eqn: Eqn, name: str, arrays: tuple[Array, ...], k: int = 0) -> Routine | None:
    return _solver(eqn, name, arrays, k) if math.prod(eqn.invars[0].aval.shape[:-2]) <= LOOPED else None


def _alone(eqn: Eqn) -> bool:
    """Whether matrices are large enough, or alone, so that one call after another is how they are taken."""
    return math.prod(eqn.invars[0].aval.shape[:-2]) <= 1 or eqn.invars[0].aval.shape[-1] > JACOBI


def _syevd(eqn: Eqn) -> Routine | None:
    triangle = _UPPER if eqn.params["lower"] else _LOWER
    arrays = (_IN_PLACE, Array(result=1), Array(result=2))
    return _solver(eqn, "syevd", arrays, flags=(triangle,)) if _alone(eqn) else None


def _gesvd(eqn: Eqn) -> Routine | None:
    n, m = eqn.invars[0].aval.shape[-2:]
    if m < n or not _alone(eqn):
        return None
    vectors = eqn.params["vectors"]
    job = ord("N" if not vectors else "A" if eqn.params["full"] else "S")
    found = (Array(result=1), Array(result=2), Array(result=3)) if vectors else (Array(), Array(), Array(result=1))
    matrix = Array(copied=0, nbytes=eqn.invars[0].aval.nbytes)
    return _solver(eqn, "gesvd", (matrix, Array(result=0), *found), flags=(job,))


def _triangular(eqn: Eqn) -> Routine | None:
    """Rows are columns there: left is right, and lower is upper; transposition stays as it is."""
    a, b = (v.aval for v in eqn.invars)
    asked = {"left_side": False, "lower": False, "transpose_a": False, "conjugate_a": False, "unit_diagonal": False}
    asked |= eqn.params
    if not a.size or not b.size or max(a.size, b.size) >= MOST or (asked["conjugate_a"] and not asked["transpose_a"]):
        return None
    count, order = math.prod(a.shape[:-2]), a.shape[-1]
    at_once = count > 1 and order <= SMALL
    transposition = 2 if asked["conjugate_a"] else 1 if asked["transpose_a"] else 0
    flags = (
        int(asked["left_side"]),
        _UPPER if asked["lower"] else _LOWER,
        transposition,
        int(asked["unit_diagonal"]),
    )
    name, sizes = "trsm_batched" if at_once else "trsm", (b.shape[-1], b.shape[-2])
    arguments = (name, _TYPES[short_dtype(a.dtype)], count, *sizes, 0, flags)
    arrays = (Array(operand=0), Array(result=0, copied=1))
    return Routine("libcublas", "solver_call", arguments, arrays, 3 if at_once else count)


ROUTINES: dict[Primitive, Callable[[Eqn], Routine | None]] = {
    dft_p: _transform,
    column_potrf_p: _potrf,
    column_getrf_p: _getrf,
    column_geqrf_p: _geqrf,
    column_orgqr_p: _orgqr,
    column_syevd_p: _syevd,
    column_gesvd_p: _gesvd,
    triangular_solve_p: _triangular,
}
