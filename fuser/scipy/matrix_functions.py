"""Functions of square matrices; reached through `fuser.scipy.linalg`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import lax
from fuser import numpy as fnp
from fuser.ir.types import is_complex
from fuser.lax.values import promote_inexact
from fuser.numpy import linalg as L
from fuser.numpy.vectorize import vectorize
from fuser.ops.matrices import adjoint
from fuser.transforms.linear import jvp

# Higham (2005), table 2.3: up to which 1-norm the Padé approximant of this degree is exact to 53 or 24 bits.
_DEGREES = {
    8: ((3, 1.495585217958292e-2), (5, 2.539398330063230e-1), (7, 9.504178996162932e-1), (9, 2.097847961257068), (13, 5.371920351148152)),
    4: ((3, 4.258730016922831e-1), (5, 1.880152677804762), (7, 3.925724783138660)),
}  # fmt: skip


def _square(function: str, a: Any) -> Any:
    (x,) = promote_inexact(function, a)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"Expected A to be a (batched) square matrix, got {x.shape=} ({function})")
    return x


def _pade(a: Any, degree: int) -> tuple[Any, Any]:
    """The numerator's odd and even parts of the diagonal Padé approximant of exp."""
    factor = math.factorial
    b = [
        factor(2 * degree - j) * factor(degree) / (factor(2 * degree) * factor(j) * factor(degree - j))
        for j in range(degree + 1)
    ]
    square = fnp.matmul(a, a)
    power = fnp.broadcast_to(fnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    odd, even = b[1] * power, b[0] * power
    for j in range(2, degree + 1, 2):
        power = fnp.matmul(power, square)
        even = even + b[j] * power
        if j + 1 <= degree:
            odd = odd + b[j + 1] * power
    return fnp.matmul(a, odd), even


def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Any:
    """exp of matrices (…, n, n): scaling, a Padé approximant, and squaring, `max_squarings` times at most (nan beyond).

    With `upper_triangular` the strictly lower triangle is not read. ValueError unless the matrices are square.
    Higham, "The scaling and squaring method for the matrix exponential revisited" (2005).
    """
    x = _square("expm", A)
    return vectorize(lambda a: _expm(a, upper_triangular, max_squarings), signature="(n,n)->(n,n)")(x)


def _expm(a: Any, upper_triangular: bool, max_squarings: int) -> Any:
    if not a.shape[-1]:
        return a
    a = fnp.triu(a) if upper_triangular else a
    degrees = _DEGREES[np.zeros((), a.dtype).real.dtype.itemsize] if a.dtype.itemsize >= 4 else _DEGREES[4]
    size = L.norm(lax.stop_gradient(a), 1)
    largest = degrees[-1][1]
    squarings = fnp.maximum(0, fnp.ceil(fnp.log2(fnp.where(size > 0, size, 1) / largest)))
    scaled = a / (2.0**squarings).astype(a.dtype)
    number = fnp.searchsorted(fnp.asarray(np.array([bound for _, bound in degrees[:-1]], size.dtype)), size)
    odd, even = lax.switch(number, [lambda x, m=m: _pade(x, m) for m, _ in degrees], scaled)
    if upper_triangular:
        found = lax.linalg.triangular_solve(even - odd, even + odd, left_side=True)
    else:
        found = L.solve(even - odd, even + odd)

    def square(_: Any, carry: Any) -> Any:
        n, value = carry
        return n + 1, fnp.where(n < squarings, fnp.matmul(value, value), value)

    _, found = lax.fori_loop(0, max_squarings, square, (fnp.zeros((), squarings.dtype), found))
    return fnp.where(squarings > max_squarings, np.nan, found).astype(found.dtype)


def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """(exp(A), its derivative along E), or the derivative alone; of matrices (…, n, n). ValueError for shapes that differ."""
    a, e = promote_inexact("expm_frechet", A, E)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"expected A to be a (batched) square matrix, got A.shape={a.shape}")
    if e.ndim < 2 or e.shape[-1] != e.shape[-2]:
        raise ValueError(f"expected E to be a (batched) square matrix, got E.shape={e.shape}")
    if a.shape != e.shape:
        raise ValueError(f"expected A and E to be the same shape, got A.shape={a.shape} E.shape={e.shape}")
    if method not in (None, "SPS"):
        raise ValueError(f"only method='SPS' is supported, got {method!r}")
    value, slope = jvp(expm, (a,), (e,))
    return (value, slope) if compute_expm else slope


def sqrtm(A: Any, blocksize: int = 1) -> Any:
    """The principal square root (…, n, n), complex: by the Schur form, Björck and Hammarling, "A Schur method" (1983).

    NotImplementedError for `blocksize` above 1. It has no derivative.
    """
    if blocksize > 1:
        raise NotImplementedError("Blocked version is not implemented yet.")
    x = _square("sqrtm", A)
    x = x.astype(np.result_type(x.dtype, np.complex64))
    t, z = lax.linalg.schur(x)
    return vectorize(_sqrtm, signature="(n,n),(n,n)->(n,n)")(t, z)


def _sqrtm(t: Any, z: Any) -> Any:
    n = t.shape[0]
    root = fnp.diag(fnp.sqrt(fnp.diag(t)))

    def column(j: Any, root: Any) -> Any:
        def entry(k: Any, root: Any) -> Any:
            i = j - 1 - k
            inner = fnp.where((fnp.arange(n) > i) & (fnp.arange(n) < j), root[i] * root[:, j], 0).sum()
            below = root[i, i] + root[j, j]
            above = t[i, j] - inner
            value = fnp.where((above == 0) & (below == 0), 0, above / fnp.where(below == 0, 1, below))
            value = fnp.where((below == 0) & (above != 0), above / below, value)
            return fnp.where(k < j, root.at[i, j].set(value), root)

        return lax.fori_loop(0, n, entry, root)

    root = lax.fori_loop(0, n, column, root)
    return fnp.matmul(fnp.matmul(z, root), adjoint(z))


def funm(A: Any, func: Callable[[Any], Any], disp: bool = True) -> Any:
    """`func`, elementwise on scalars, of a matrix (n, n), by Parlett's recurrence on its Schur form; complex unless that is real.

    With disp=False also an estimate of the relative error. Golub and Van Loan, "Matrix computations", algorithm 11.1.1.
    """
    (a,) = promote_inexact("funm", A)
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError("expected square array_like input")
    t, z = rsf2csf(*lax.linalg.schur(a)) if not is_complex(a.dtype) else lax.linalg.schur(a)
    n = t.shape[0]
    values = fnp.diag(func(fnp.diag(t))).astype(t.dtype)
    least = fnp.abs(t[0, 0]) if n else fnp.zeros(())
    for p in range(1, n):
        for i in range(n - p):
            j = i + p
            total = t[i, j] * (values[j, j] - values[i, i])
            inner = slice(i + 1, j)
            total = total + fnp.dot(t[i, inner], values[inner, j]) - fnp.dot(values[i, inner], t[inner, j])
            gap = t[j, j] - t[i, i]
            values = values.at[i, j].set(fnp.where(gap != 0, total / fnp.where(gap != 0, gap, 1), total))
            least = fnp.minimum(least, fnp.abs(gap))
    found = fnp.matmul(fnp.matmul(z, values), adjoint(z))
    if disp:
        return found
    least = fnp.where(least == 0, np.finfo(least.dtype).eps, least)
    error = fnp.minimum(
        1, fnp.maximum(np.finfo(least.dtype).eps, np.finfo(least.dtype).eps / least * L.norm(fnp.triu(t, 1), 1))
    )
    return found, error


def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """The complex Schur form (T, Z) from the real one: 2×2 blocks are made triangular by rotations. ValueError for other shapes."""
    t, z = promote_inexact("rsf2csf", T, Z)
    for name, x in (("T", t), ("Z", z)):
        if x.ndim != 2 or x.shape[0] != x.shape[1]:
            raise ValueError(f"Input '{name}' must be square.")
    if t.shape[0] != z.shape[0]:
        raise ValueError(f"Input array shapes must match: Z: {z.shape} vs. T: {t.shape}")
    wide = np.result_type(t.dtype, np.complex64)
    t, z = t.astype(wide), z.astype(wide)
    n = t.shape[0]
    eps = np.finfo(wide).eps
    for m in range(n - 1, 0, -1):
        small = eps * (fnp.abs(t[m - 1, m - 1]) + fnp.abs(t[m, m]))
        a, b, c, d = t[m - 1, m - 1], t[m - 1, m], t[m, m - 1], t[m, m]
        root = fnp.sqrt((a - d) * (a - d) / 4 + b * c)
        mu = (a + d) / 2 + root - d
        length = fnp.sqrt(fnp.abs(mu) ** 2 + fnp.abs(c) ** 2).astype(wide)
        turned = fnp.abs(c) > small
        safe = fnp.where(turned, length, 1)
        cosine, sine = fnp.where(turned, mu / safe, 1), fnp.where(turned, c / safe, 0)
        g = fnp.stack([fnp.stack([fnp.conj(cosine), sine]), fnp.stack([-sine, cosine])])
        t = t.at[m - 1 : m + 1].set(fnp.matmul(g, t[m - 1 : m + 1]))
        t = t.at[:, m - 1 : m + 1].set(fnp.matmul(t[:, m - 1 : m + 1], adjoint(g)))
        z = z.at[:, m - 1 : m + 1].set(fnp.matmul(z[:, m - 1 : m + 1], adjoint(g)))
        t = t.at[m, m - 1].set(0)
    return t, z


def polar(
    a: Any, side: str = "right", *, method: str = "qdwh", eps: float | None = None, max_iterations: int | None = None
) -> tuple[Any, Any]:
    """(u, p) with a = u p ("right") or p u ("left"): u with orthonormal columns or rows, p positive semidefinite.

    ValueError for another side or method, and where a has more columns than rows with method "qdwh". Both methods are one here:
    Higham, "Computing the polar decomposition" (1986), equation 2.2.
    """
    (x,) = promote_inexact("polar", a)
    if x.ndim < 2:
        raise ValueError("The input `a` must be a 2-D array.")
    if side not in ("right", "left"):
        raise ValueError(f"The argument `side` must be either 'right' or 'left', got {side!r}")
    if method not in ("qdwh", "svd"):
        raise ValueError(f"Unknown polar decomposition method {method}.")
    m, n = x.shape[-2:]
    if method == "qdwh" and ((m < n and side == "right") or (m > n and side == "left")):
        raise NotImplementedError(
            f"method='qdwh' takes at least as many rows as columns for side='right', got {m} and {n}; use method='svd'"
        )
    u, s, vh = lax.linalg.svd(x, full_matrices=False)
    unitary = fnp.matmul(u, vh)
    s = s.astype(x.dtype)[..., None, :]
    positive = fnp.matmul(adjoint(vh) * s, vh) if side == "right" else fnp.matmul(u * s, adjoint(u))
    return unitary, positive


def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Any:
    """X (m, n) with A X + X B = C: A (m, m), B (n, n); real where all are, nan where A and -B share an eigenvalue.

    method "schur" solves triangular systems: Bartels and Stewart, "Solution of the matrix equation AX + XB = C" (1972); "eigen"
    divides by sums of eigenvalues. ValueError for shapes that do not fit or another method.
    """
    a, b, c = promote_inexact("solve_sylvester", A, B, C)
    m, n = c.shape
    if a.shape != (m, m) or b.shape != (n, n):
        raise ValueError(f"Incompatible shapes for Sylvester equation:\nA: {a.shape}\nB: {b.shape}\nC: {c.shape}")
    if method not in ("schur", "eigen"):
        raise ValueError(f"Unrecognized method {method}. The two valid methods are either 'schur' or 'eigen'.")
    wide = np.result_type(a.dtype, np.complex64)
    if method == "eigen":
        u, left = L.eig(a)
        v, right = L.eig(b)
        inner = L.solve(left, fnp.matmul(c.astype(wide), right))
        sums = u[:, None] + v[None, :]
        found = fnp.matmul(fnp.matmul(left, inner / sums), L.inv(right))
    else:
        r, q = lax.linalg.schur(a.astype(wide))
        s, p = lax.linalg.schur(b.astype(wide))
        sums = fnp.diag(r)[:, None] + fnp.diag(s)[None, :]
        inner = fnp.matmul(fnp.matmul(adjoint(q), c.astype(wide)), p)
        found = fnp.matmul(fnp.matmul(q, _triangular_sylvester(r, s, inner)), adjoint(p))
    singular = fnp.any(fnp.abs(sums) < tol)
    found = fnp.where(singular, np.nan, found)
    return found if is_complex(a.dtype) else fnp.real(found)


def _triangular_sylvester(r: Any, s: Any, c: Any) -> Any:
    """X with r X + X s = c for upper triangular r and s: column by column."""
    n = c.shape[1]

    def column(k: Any, x: Any) -> Any:
        done = fnp.where(fnp.arange(n) < k, s[:, k], 0)
        side = c[:, k] - fnp.matmul(x, done)
        shifted = r + s[k, k] * fnp.eye(r.shape[0], dtype=r.dtype)
        return x.at[:, k].set(lax.linalg.triangular_solve(shifted, side[:, None], left_side=True)[:, 0])

    return lax.fori_loop(0, n, column, fnp.zeros_like(c))
