"""Factorisations of matrices: groups that call functions of lapack.c, which call LAPACK's own in native code.

In: a LIBRARY group, as in library_calls. LAPACK is SciPy's, imported when a program first needs it; `cython_lapack` and
`cython_blas` publish the addresses of its functions. Sizes of work space are LAPACK's own answers.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.ir.primitive import Primitive
from fuser.ir.types import ArrayType, is_complex
from fuser.ops.factorisations import geqrf_p, lu_p
from fuser.ops.linalg import cholesky_p, eigh_p, qr_p, svd_p
from fuser.runtime.blas_threads import imported, setter

if TYPE_CHECKING:
    from fuser.backends.c.library.library_calls import Calls

SET_THREADS = ("lapack", "cython_lapack", "threads")
MOST_SMALL = 16  # rows and columns of matrices that are lanes of vectors (small_factorisations.c)
FEWEST = 16  # of them
_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_C_TYPES = {"float32": "float", "float64": "double", "complex64": "float _Complex", "complex128": "double _Complex"}


@functools.cache
def address(module: str, name: str) -> int:
    """The address of a function of BLAS or LAPACK; `module` is cython_blas or cython_lapack. Of the function that sets the
    number of their threads `name` is "threads"; 0 where the library behind them has none that is known."""
    if name == "threads":
        limit = setter(f"scipy.linalg.{module}")
        return 0 if limit is None else int(ctypes.cast(limit, ctypes.c_void_p).value or 0)  # type: ignore[arg-type]
    capsule = imported(f"scipy.linalg.{module}").__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))


def definitions(dtype: np.dtype) -> dict[str, Any]:
    """The macros that lapack.c needs for elements of a dtype."""
    wide = is_complex(dtype)
    real = np.zeros((), dtype).real.dtype
    return {"T": _C_TYPES[dtype.name], "REAL": _C_TYPES[real.name], "COMPLEX": int(wide), "CONJ(x)": "(~(x))"}


def _lapack(dtype: np.dtype, real: str, unitary: str = "") -> tuple[str, str, str]:
    """LAPACK's function for a dtype: where complex numbers have another name for it, that is `unitary`."""
    return "lapack", "cython_lapack", _LETTERS[dtype.name] + (unitary if unitary and is_complex(dtype) else real)


@functools.cache
def _work(function: tuple[str, str, str], *arguments: Any) -> int:
    """The elements of work space that a function of LAPACK asks for when it is called with a length of -1.

    `arguments` are integers, characters, and None for arrays; the work space is "work", its length "length".
    """
    answer = np.zeros(2, np.complex128)
    arrays = [np.zeros(8, np.complex128) for _ in arguments]  # of one element each: nothing is computed

    def pointer(argument: Any, own: np.ndarray) -> Any:
        if isinstance(argument, int):
            return ctypes.byref(ctypes.c_int(argument))
        if argument == "length":
            return ctypes.byref(ctypes.c_int(-1))
        if argument == "work":
            return answer.ctypes.data_as(ctypes.c_void_p)
        return ctypes.c_char_p(argument.encode()) if argument else own.ctypes.data_as(ctypes.c_void_p)

    kind = np.dtype({"s": "float32", "d": "float64", "c": "complex64", "z": "complex128"}[function[2][0]])
    ctypes.CFUNCTYPE(None)(address(*function[1:]))(*map(pointer, arguments, arrays))
    found = answer.view(kind)[0].real
    return math.ceil(float(np.nextafter(found, kind.type(np.inf).real)))  # which float32 may have rounded down


def _room(*parts: tuple[int, int]) -> int:
    """Bytes of arrays of (elements, bytes of one), each of which begins at a multiple of 64."""
    return sum(-(-count * itemsize // 64) * 64 for count, itemsize in parts)


class _Matrices:
    """The operand of a factorisation: how many matrices, of which shape, and what its elements take."""

    def __init__(self, calls: Calls) -> None:
        [operand] = calls.eqn.invars
        self.dtype = operand.aval.dtype
        self.count = math.prod(operand.aval.shape[:-2])
        self.rows, self.columns = operand.aval.shape[-2:]
        self.least = min(self.rows, self.columns)
        self.size = self.dtype.itemsize
        self.real = self.size // 2 if is_complex(self.dtype) else self.size
        self.operand = calls.operand(operand)

    @property
    def small(self) -> bool:
        """Whether they are square, small, and enough to be lanes of vectors."""
        return self.rows == self.columns <= MOST_SMALL and self.count >= FEWEST and not is_complex(self.dtype)


def _lu(calls: Calls) -> None:
    m = _Matrices(calls)
    if m.small:
        pointers = [m.operand, *map(calls.result, range(3))]
        calls.call(("factorisation", "small_lu", m.dtype), pointers, [m.count, m.rows, m.columns, calls.threads])
        return
    room = _room((m.rows * m.columns, m.size), (m.least, 4))
    pointers = [m.operand, *map(calls.result, range(3)), calls.room(room * calls.threads)]
    sizes = [m.count, m.rows, m.columns, calls.threads, room, _lapack(m.dtype, "getrf"), SET_THREADS]
    calls.call(("factorisation", "lu", m.dtype), pointers, sizes)


def _qr(calls: Calls) -> None:
    m = _Matrices(calls)
    inner = m.rows if calls.eqn.params["full_matrices"] else m.least
    geqrf, orgqr = _lapack(m.dtype, "geqrf"), _lapack(m.dtype, "orgqr", "ungqr")
    work = max(
        _work(geqrf, m.rows, m.columns, None, m.rows, None, "work", "length", None),
        _work(orgqr, m.rows, inner, m.least, None, m.rows, None, "work", "length", None),
    )
    room = _room((m.rows * max(inner, m.columns), m.size), (m.least, m.size), (work, m.size))
    pointers = [m.operand, calls.result(0), calls.result(1), calls.room(room * calls.threads)]
    sizes = [m.count, m.rows, m.columns, calls.threads, room, geqrf, orgqr, inner, work, SET_THREADS]
    calls.call(("factorisation", "qr", m.dtype), pointers, sizes)


def _geqrf(calls: Calls) -> None:
    m = _Matrices(calls)
    geqrf = _lapack(m.dtype, "geqrf")
    work = _work(geqrf, m.rows, m.columns, None, m.rows, None, "work", "length", None)
    room = _room((m.rows * m.columns, m.size), (m.least, m.size), (work, m.size))
    pointers = [m.operand, calls.result(0), calls.result(1), calls.room(room * calls.threads)]
    sizes = [m.count, m.rows, m.columns, calls.threads, room, geqrf, work, SET_THREADS]
    calls.call(("factorisation", "reflections", m.dtype), pointers, sizes)


def _cholesky(calls: Calls) -> None:
    m = _Matrices(calls)
    pointers, sizes = [m.operand, calls.result(0)], [m.count, m.rows, calls.threads]
    if m.small:
        calls.call(("factorisation", "small_cholesky", m.dtype), pointers, sizes)
    else:
        calls.call(("factorisation", "cholesky", m.dtype), pointers, [*sizes, _lapack(m.dtype, "potrf"), SET_THREADS])


def _eigh(calls: Calls) -> None:
    m = _Matrices(calls)
    vectors = calls.result(0) != "0"
    evd = _lapack(m.dtype, "syevd", "heevd")
    job, wide, n = "V" if vectors else "N", is_complex(m.dtype), m.rows
    # LAPACK's own formulas for real and integer work space.
    reals = (1 + 5 * n + 2 * n * n if vectors else n) if wide else 0
    integers = 3 + 5 * n if vectors else 1
    middle = (None, -1) if wide else ()
    work = _work(evd, job, "U", n, None, n, None, "work", "length", *middle, None, -1, None)
    room = _room((n * n, m.size), (n, m.real), (work, m.size), (reals, m.real), (integers, 4))
    pointers = [m.operand, calls.result(0), calls.result(1), calls.room(room * calls.threads)]
    sizes = [
        m.count,
        n,
        calls.threads,
        room,
        evd,
        calls.eqn.params["lower"],
        vectors,
        work,
        reals,
        integers,
        SET_THREADS,
    ]
    calls.call(("factorisation", "eigh", m.dtype), pointers, sizes)


def _svd(calls: Calls) -> None:
    m = _Matrices(calls)
    vectors = calls.eqn.params["compute_uv"] and (calls.result(1) != "0" or calls.result(2) != "0")
    full = vectors and calls.eqn.params["full_matrices"]
    left, right = (0, 0) if not vectors else (m.rows, m.columns) if full else (m.least, m.least)
    gesdd = _lapack(m.dtype, "gesdd")
    job, wide, most = "A" if full else "S" if vectors else "N", is_complex(m.dtype), max(m.rows, m.columns)
    # LAPACK's own formulas for real and integer work space.
    each = max(5 * m.least + 7, 2 * most + 2 * m.least + 1) if vectors else 7
    reals, integers = m.least * each if wide else 0, 8 * m.least
    shapes = (m.rows, m.columns, None, m.rows, None, None, m.rows, None, max(right, 1))
    work = _work(gesdd, job, *shapes, "work", "length", *((None,) if wide else ()), None, None)
    parts = [(m.rows * m.columns, m.size), (m.least, m.real), (m.rows * left, m.size), (m.columns * right, m.size)]
    room = _room(*parts, (work, m.size), (reals, m.real), (integers, 4))
    results = [calls.result(n) if n < len(calls.eqn.outvars) else "0" for n in range(3)]
    pointers = [m.operand, *results, calls.room(room * calls.threads)]
    sizes = [m.count, m.rows, m.columns, calls.threads, room, gesdd, left, right, ord(job), work, reals, SET_THREADS]
    calls.call(("factorisation", "svd", m.dtype), pointers, sizes)


def small_systems(matrix: ArrayType, right: ArrayType) -> bool:
    """Whether triangular systems are small, and enough to be lanes of vectors."""
    many = math.prod(matrix.shape[:-2]) >= FEWEST
    return many and max(right.shape[-2:]) <= MOST_SMALL and not is_complex(matrix.dtype)


def trsm(calls: Calls) -> None:
    """Triangular systems by BLAS: `rows` here are columns there, so left is right and lower is upper."""
    eqn = calls.eqn
    matrix, right = (v.aval for v in eqn.invars)
    n, size = matrix.shape[-1], matrix.dtype.itemsize
    p, count, small = eqn.params, math.prod(matrix.shape[:-2]), small_systems(matrix, right)
    room = _room((n * n, size)) if p["conjugate_a"] and not p["transpose_a"] else 0
    pointers = [calls.operand(v) for v in eqn.invars] + [calls.result(0)]
    pointers.append(calls.room(room * calls.threads) if room else "0")
    sizes = [count, *right.shape[-2:], calls.threads]
    sizes.append(("lapack", "cython_blas", _LETTERS[matrix.dtype.name] + "trsm"))  # type: ignore[arg-type]
    sizes += [p["left_side"], p["lower"], p["transpose_a"], p["conjugate_a"], p["unit_diagonal"], room, SET_THREADS]  # type: ignore[list-item]
    calls.call(("factorisation", "small_trsm" if small else "trsm", matrix.dtype), pointers, sizes)


FORMS: dict[Primitive, Callable[[Calls], None]] = {
    lu_p: _lu,
    qr_p: _qr,
    geqrf_p: _geqrf,
    cholesky_p: _cholesky,
    eigh_p: _eigh,
    svd_p: _svd,
}
