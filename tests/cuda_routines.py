"""What the routines of cuSOLVER, cuBLAS and cuFFT compute, on the host's memory: LAPACK's and NumPy's, for the driver's stand-in."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import fft
from scipy.linalg import blas, lapack

Routine = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_uint64))
DTYPES = (np.dtype("f4"), np.dtype("f8"), np.dtype("c8"), np.dtype("c16"))


def memory(address: int, dtype: Any, *shape: int) -> np.ndarray:
    """The array at an address."""
    dtype = np.dtype(dtype)
    count = math.prod(shape)
    block = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(block, dtype, count).reshape(shape)


def columns(address: int, dtype: Any, m: int, n: int) -> np.ndarray:
    """The m by n matrix whose columns lie one after another."""
    return memory(address, dtype, n, m).T


def _call(name: str, dtype: np.dtype) -> Any:
    return lapack.get_lapack_funcs(name, (np.zeros((1, 1), dtype),))


def _real(dtype: np.dtype) -> np.dtype:
    return np.zeros(0, dtype).real.dtype


def potrf(dtype: np.dtype, numbers: Any, at: Any) -> None:
    triangle, n = numbers[2:4]
    a = columns(at[0], dtype, n, n)
    a[...], memory(at[1], "i4", 1)[...] = _call("potrf", dtype)(a, lower=not triangle, clean=0)


def potrf_batched(dtype: np.dtype, numbers: Any, at: Any) -> None:
    for k, address in enumerate(memory(at[0], "u8", numbers[1])):
        potrf(dtype, numbers, (int(address), at[1] + 4 * k))


def getrf(dtype: np.dtype, numbers: Any, at: Any) -> None:
    m, n = numbers[2:4]
    a = columns(at[0], dtype, m, n)
    a[...], pivots, memory(at[2], "i4", 1)[...] = _call("getrf", dtype)(a)
    memory(at[1], "i4", min(m, n))[...] = pivots + 1


def getrf_batched(dtype: np.dtype, numbers: Any, at: Any) -> None:
    for k, address in enumerate(memory(at[0], "u8", numbers[1])):
        getrf(dtype, numbers, (int(address), at[1] + 4 * k * numbers[3], at[2] + 4 * k))


def geqrf(dtype: np.dtype, numbers: Any, at: Any) -> None:
    m, n = numbers[2:4]
    a = columns(at[0], dtype, m, n)
    a[...], memory(at[1], dtype, min(m, n))[...] = _call("geqrf", dtype)(a)[:2]


def orgqr(dtype: np.dtype, numbers: Any, at: Any) -> None:
    m, n, k = numbers[2:5]
    a = columns(at[1], dtype, m, n)
    name = "ungqr" if dtype.kind == "c" else "orgqr"
    a[...] = _call(name, dtype)(a, memory(at[0], dtype, k))[0]


def syevd(dtype: np.dtype, numbers: Any, at: Any) -> None:
    triangle, n = numbers[2:4]
    a = columns(at[0], dtype, n, n)
    name = "heevd" if dtype.kind == "c" else "syevd"
    values, vectors, info = _call(name, dtype)(a, lower=not triangle)
    a[...], memory(at[1], _real(dtype), n)[...], memory(at[2], "i4", 1)[...] = vectors, values, info


def gesvd(dtype: np.dtype, numbers: Any, at: Any) -> None:
    job, m, n = chr(numbers[2]), *numbers[3:5]
    a = columns(at[0], dtype, m, n)
    u, values, v, info = _call("gesvd", dtype)(a, compute_uv=job != "N", full_matrices=job == "A")
    memory(at[1], _real(dtype), n)[...], memory(at[4], "i4", 1)[...] = values, info
    if job != "N":
        columns(at[2], dtype, m, u.shape[1])[...], columns(at[3], dtype, n, n)[...] = u, v
    a[...] = np.nan  # it is destroyed


def trsm(dtype: np.dtype, numbers: Any, at: Any) -> None:
    side, triangle, transposition, unit, m, n = numbers[2:8]
    order = n if side else m
    a, b = columns(at[0], dtype, order, order), columns(at[1], dtype, m, n)
    solve = blas.get_blas_funcs("trsm", (a,))
    b[...] = solve(1, a, b, side=side, lower=not triangle, trans_a=transposition, diag=unit)


def trsm_batched(dtype: np.dtype, numbers: Any, at: Any) -> None:
    for a, b in zip(memory(at[0], "u8", numbers[1]), memory(at[1], "u8", numbers[1])):
        trsm(dtype, numbers, (int(a), int(b)))


def transform(numbers: Any, at: Any) -> None:
    kind, batch, rank = numbers[:3]
    lengths, wide = tuple(numbers[3 : 3 + rank]), kind >= 0x69
    axes = tuple(range(1, rank + 1))
    half = (*lengths[:-1], lengths[-1] // 2 + 1)
    real, complex_ = ("f8", "c16") if wide else ("f4", "c8")
    if kind % 0x40 == 0x2A:
        memory(at[1], complex_, batch, *half)[...] = fft.rfftn(memory(at[0], real, batch, *lengths), lengths, axes)
    elif kind % 0x40 == 0x2C:
        spectrum = memory(at[0], complex_, batch, *half)
        memory(at[1], real, batch, *lengths)[...] = fft.irfftn(spectrum, lengths, axes, norm="forward")
        spectrum[...] = np.nan  # it is destroyed
    else:
        x, found = (memory(address, complex_, batch, *lengths) for address in at[:2])
        found[...] = fft.fftn(x, lengths, axes) if numbers[6] < 0 else fft.ifftn(x, lengths, axes, norm="forward")


ROUTINES: dict[str, Callable[..., None]] = {
    f.__name__: f for f in (potrf, potrf_batched, getrf, getrf_batched, geqrf, orgqr, syevd, gesvd, trsm, trsm_batched)
}


def run(name: bytes, numbers: Any, at: Any) -> None:
    """A routine, as the stand-in asks for it."""
    if name == b"fft":
        transform(list(numbers[:12]), list(at[:6]))
    else:
        ROUTINES[name.decode()](DTYPES[numbers[0]], list(numbers[:12]), list(at[:6]))


CALLBACK = Routine(run)
