"""Matrices of special structure; reached through `fuser.scipy.linalg`."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from fuser import dtypes
from fuser import numpy as fnp
from fuser.ir.dim import Dim
from fuser.ir.types import is_complex
from fuser.lax.values import promote, promote_inexact


def _size(function: str, n: Any, least: int = 0) -> int:
    found = operator.index(n)
    if found < least:
        raise ValueError(f"{function} takes a size of at least {least}, got {found}")
    return found


def _vector(function: str, x: Any) -> Any:
    value = fnp.atleast_1d(x if not isinstance(x, (list, tuple)) else fnp.asarray(x))
    return value


def _mapped(function: Any, *arrays: Any) -> Any:
    """`function` of vectors, over all dimensions before the last."""
    core = ",".join(f"(n{k})" for k in range(len(arrays)))
    return fnp.vectorize(function, signature=f"{core}->(r,c)")(*arrays)


def toeplitz(c: Any, r: Any = None) -> Any:
    """The matrices with first column c (…, m) and first row r (…, n), constant along diagonals; r is conj(c) unless told."""
    column = _vector("toeplitz", c)
    column, row = promote("toeplitz", column, fnp.conj(column) if r is None else _vector("toeplitz", r))

    def one(column: Any, row: Any) -> Any:
        m, n = column.shape[0], row.shape[0]
        if not m or not n:
            return fnp.zeros((m, n), column.dtype)
        line = fnp.concatenate([fnp.flip(column), row[1:]])
        count = fnp.arange if Dim in map(type, (m, n)) else np.arange
        return line[count(m - 1, -1, -1)[:, None] + count(n)]

    return _mapped(one, column, row)


def hankel(c: Any, r: Any = None) -> Any:
    """The matrices with first column c (…, m) and last row r (…, n), constant along antidiagonals; r is zeros unless told."""
    column = _vector("hankel", c)
    column, row = promote("hankel", column, fnp.zeros_like(column) if r is None else _vector("hankel", r))

    def one(column: Any, row: Any) -> Any:
        m, n = column.shape[0], row.shape[0]
        line = fnp.concatenate([column, row[1:]])
        return line[np.arange(m)[:, None] + np.arange(n)]

    return _mapped(one, column, row)


def circulant(c: Any) -> Any:
    """The matrices with first column c (…, n), each further column turned by one."""
    column = _vector("circulant", c)
    n = column.shape[-1]
    return column[..., (np.arange(n)[:, None] - np.arange(n)) % max(n, 1)]


def companion(a: Any) -> Any:
    """The (…, n - 1, n - 1) matrices whose eigenvalues are the roots of the polynomials a (…, n). ValueError for n < 2."""
    (x,) = promote_inexact("companion", _vector("companion", a))
    n = x.shape[-1]
    if n < 2:
        raise ValueError(f"The length of `a` along the last axis must be at least 2; got shape {x.shape}")
    first = -x[..., 1:] / x[..., :1]
    rest = fnp.broadcast_to(fnp.eye(n - 1, dtype=x.dtype)[: n - 2], (*x.shape[:-1], n - 2, n - 1))
    return fnp.concatenate([first[..., None, :], rest], -2)


def convolution_matrix(a: Any, n: int, mode: str = "full") -> Any:
    """The matrices that convolve vectors of n elements with a (…, m); mode "full", "same" or "valid". ValueError otherwise."""
    size = operator.index(n)
    if size <= 0:
        raise ValueError("n must be a positive integer.")
    x = _vector("convolution_matrix", a)
    if not x.shape[-1]:
        raise ValueError("len(a) must be at least 1.")
    if mode not in ("full", "valid", "same"):
        raise ValueError("'mode' argument must be one of ('full', 'valid', 'same')")
    m = x.shape[-1]
    lead = [(0, 0)] * (x.ndim - 1)
    column = fnp.pad(x, [*lead, (0, size - 1)])
    row = fnp.pad(x[..., :1], [*lead, (0, size - 1)])
    whole = toeplitz(column, row)
    if mode == "full":
        return whole
    short, long = min(m, size), max(m, size)
    if mode == "same":
        start = (short - 1) // 2
        return whole[..., start : start + long, :]
    return whole[..., short - 1 : long, :]


def leslie(f: Any, s: Any) -> Any:
    """Leslie's matrices of populations: fecundities f (…, n) in the first row, survival s (…, n - 1) below the diagonal."""
    births, survival = promote("leslie", _vector("leslie", f), _vector("leslie", s))
    n = births.shape[-1]
    if n != survival.shape[-1] + 1:
        raise ValueError(
            f"Incorrect lengths for f and s. The length of s along the last axis must be one less than the length of f; got {births.shape} and {survival.shape}"
        )
    if n < 2:
        raise ValueError("The length of s must be at least 1.")

    def one(f: Any, s: Any) -> Any:
        return fnp.concatenate([f[None, :], fnp.concatenate([fnp.diag(s), fnp.zeros((n - 1, 1), f.dtype)], 1)], 0)

    return _mapped(one, births, survival)


def fiedler(a: Any) -> Any:
    """|aᵢ - aⱼ| of vectors a (…, n)."""
    x = _vector("fiedler", a)
    return fnp.abs(x[..., :, None] - x[..., None, :])


def fiedler_companion(a: Any) -> Any:
    """The pentadiagonal (…, n - 1, n - 1) matrices whose eigenvalues are the roots of the polynomials a (…, n).

    Fiedler, "A note on companion matrices" (2003).
    """
    (x,) = promote_inexact("fiedler_companion", _vector("fiedler_companion", a))
    if not x.shape[-1]:
        raise ValueError(f"fiedler_companion needs a nonzero number of coefficients, got shape {x.shape}")
    if x.shape[-1] <= 1:
        return fnp.zeros((*x.shape[:-1], 0, 0), x.dtype) if x.ndim > 1 else fnp.zeros((0, 0), x.dtype)
    x = x / x[..., :1]
    n = x.shape[-1] - 1

    def one(a: Any) -> Any:
        if n == 1:
            return -a[1:, None]
        c = fnp.zeros((n, n), a.dtype)
        rows = np.arange
        c = c.at[rows(3, n, 2), rows(1, n - 2, 2)].set(1)
        c = c.at[rows(2, n, 2), rows(1, n - 1, 2)].set(-a[3::2])
        c = c.at[rows(0, n - 2, 2), rows(2, n, 2)].set(1)
        c = c.at[rows(0, n - 1, 2), rows(1, n, 2)].set(-a[2::2])
        return c.at[0, 0].set(-a[1]).at[1, 0].set(1)

    return fnp.vectorize(one, signature="(k)->(n,n)")(x)


def hadamard(n: int, dtype: Any = int) -> Any:
    """Sylvester's (n, n) Hadamard matrix of ±1. ValueError unless n is a power of 2."""
    size = operator.index(n)
    if size < 1 or size & (size - 1):
        raise ValueError("n must be a positive integer, and a power of 2")
    found = dtypes.canonical(dtype)
    block = np.array([[1, 1], [1, -1]])
    whole = np.ones((1, 1), np.int64)
    while whole.shape[0] < size:
        whole = np.kron(block, whole)
    return fnp.asarray(whole.astype(found))


def helmert(n: int, full: bool = False) -> Any:
    """Helmert's (n - 1, n) matrix of orthonormal contrasts; with `full` (n, n), the first row being 1/√n. ValueError for n < 1."""
    size = _size("helmert", n, 1)
    dtype = dtypes.canonical(float)
    whole = np.tril(np.ones((size, size)), -1) - np.diag(np.arange(size))
    whole[0] = 1
    scale = np.arange(size) * np.arange(1, size + 1.0)
    scale[0] = size
    whole = whole / np.sqrt(scale)[:, None]
    return fnp.asarray((whole if full else whole[1:]).astype(dtype))


def hilbert(n: int) -> Any:
    """1 / (i + j + 1), (n, n)."""
    size = _size("hilbert", n)
    line = 1.0 / (1 + np.arange(size)[:, None] + np.arange(size))
    return fnp.asarray(line.astype(dtypes.canonical(float)))


def invhilbert(n: int) -> Any:
    """The inverse of `hilbert`, integers rounded to floats, (n, n). Choi, "Tricks or treats with the Hilbert matrix" (1983)."""
    size = _size("invhilbert", n)
    whole = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            chosen = math.comb(size + i, size - j - 1) * math.comb(size + j, size - i - 1) * math.comb(i + j, i) ** 2
            whole[i, j] = float((-1) ** (i + j) * (i + j + 1) * chosen)
    with np.errstate(over="ignore"):
        return fnp.asarray(whole.astype(dtypes.canonical(float)))


_KINDS = ("symmetric", "lower", "upper")


def pascal(n: int, kind: str | None = None) -> Any:
    """Binomial coefficients: (i + j over i) for "symmetric" (or None), (i over j) for "lower", its transpose for "upper"."""
    size = _size("pascal", n)
    if kind is None:
        kind = "symmetric"
    if kind not in _KINDS:
        raise ValueError(f"Expected kind to be one of: {_KINDS}; got {kind!r}")
    rows = range(size)
    if kind == "symmetric":
        whole = [[float(math.comb(i + j, i)) for j in rows] for i in rows]
    else:
        whole = [[float(math.comb(i, j) if kind == "lower" else math.comb(j, i)) for j in rows] for i in rows]
    return fnp.asarray(np.array(whole, np.float64).reshape(size, size).astype(dtypes.canonical(float)))


def invpascal(n: int, kind: str | None = None) -> Any:
    """The inverse of `pascal`."""
    size = _size("invpascal", n)
    kind = kind or "symmetric"
    if kind not in _KINDS:
        raise ValueError(f"Expected kind to be one of: {_KINDS}; got {kind!r}")
    lower = [[(-1) ** (i + j) * math.comb(i, j) for j in range(size)] for i in range(size)]
    if kind == "symmetric":  # (L Lᵀ)⁻¹ = L⁻ᵀ L⁻¹, in whole numbers
        whole = [[float(sum(lower[k][i] * lower[k][j] for k in range(size))) for j in range(size)] for i in range(size)]
    else:
        whole = [[float(lower[i][j] if kind == "lower" else lower[j][i]) for j in range(size)] for i in range(size)]
    return fnp.asarray(np.array(whole, np.float64).reshape(size, size).astype(dtypes.canonical(float)))


def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Any:
    """The (n, n) matrix of the discrete Fourier transform, divided by √n for scale="sqrtn" and by n for "n"."""
    size = operator.index(n)
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; {scale!r} is not valid.")
    found = dtypes.canonical(complex if dtype is None else dtype)
    if not is_complex(found):
        raise ValueError(f"dtype must be complex64 or complex128, got {found.name}")
    positions = np.arange(size)
    whole = np.exp(-2j * np.pi * (np.outer(positions, positions) % max(size, 1)) / max(size, 1))
    divisor = {None: 1.0, "sqrtn": math.sqrt(max(size, 1)), "n": float(max(size, 1))}[scale]
    return fnp.asarray((whole / divisor).astype(found))


def block_diag(*arrs: Any) -> Any:
    """One matrix with these on its diagonal and zeros beside them; numbers and vectors count as rows. ValueError above rank 2."""
    if not arrs:
        arrs = (fnp.zeros((1, 0)),)
    blocks = promote("block_diag", *(fnp.atleast_2d(a) for a in arrs))
    wrong = [n for n, b in enumerate(blocks) if b.ndim > 2]
    if wrong:
        raise ValueError(
            f"Arguments to jax.scipy.linalg.block_diag must have at most 2 dimensions, got {arrs} at argument {wrong[0]}."
        )
    columns = sum(b.shape[1] for b in blocks)
    rows, start = [], 0
    for b in blocks:
        rows.append(fnp.pad(b, ((0, 0), (start, columns - start - b.shape[1]))))
        start += b.shape[1]
    return fnp.concatenate(rows, 0)
