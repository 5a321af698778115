"""Iterative solvers of linear systems of trees of arrays: conjugate gradients, BiCGStab and GMRES.

`A` is a function, or a matrix; `b`, `x0` and the solution are trees of one structure; `M` approximates A's inverse. The results
are (x, None). Iteration ends where ‖b - A x‖ ≤ max(tol·‖b‖, atol), or after `maxiter` steps. Derivatives solve the same
system once more (`lax.custom_linear_solve`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import lax
from fuser import numpy as fnp
from fuser.lax.values import as_value, promote_inexact
from fuser.trace import tree

__all__ = ["bicgstab", "cg", "gmres"]

Operator = Callable[[Any], Any]


def _dot(x: Any, y: Any) -> Any:
    """Σ conj(x)·y over all leaves."""
    return sum(fnp.vdot(a, b) for a, b in zip(tree.leaves(x), tree.leaves(y)))


def _real_dot(x: Any, y: Any) -> Any:
    return fnp.real(_dot(x, y))


def _add(x: Any, scale: Any, y: Any) -> Any:
    return tree.map(lambda a, b: a + (scale * b).astype(b.dtype), x, y)


def _operator(A: Any) -> Operator:
    if callable(A):
        return A
    matrix = as_value(A, "a solver")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"linear operator must be a square matrix, but has shape: {matrix.shape}")
    return lambda x: fnp.matmul(matrix, x)


def _solved(
    name: str,
    solver: Callable[..., Any],
    A: Any,
    b: Any,
    x0: Any,
    tol: Any,
    atol: Any,
    maxiter: int | None,
    M: Any,
    symmetric: bool,
) -> tuple[Any, None]:
    apply = _operator(A)
    precondition = (lambda x: x) if M is None else _operator(M)
    b = tree.map(lambda leaf: promote_inexact(name, leaf)[0], b)
    x0 = tree.map(fnp.zeros_like, b) if x0 is None else tree.map(lambda leaf: promote_inexact(name, leaf)[0], x0)
    if maxiter is None:
        maxiter = 10 * sum(leaf.size for leaf in tree.leaves(b))
    if tree.structure(x0) != tree.structure(b):
        raise ValueError(f"x0 and b must have matching tree structure: {tree.structure(x0)} vs {tree.structure(b)}")
    shapes = [[leaf.shape for leaf in tree.leaves(t)] for t in (x0, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"arrays in x0 and b must have matching shapes: {shapes[0]} vs {shapes[1]}")

    def solve(matvec: Operator, right: Any) -> Any:
        return solver(matvec, right, x0, tol, atol, maxiter, precondition)

    transposed = (
        solve
        if symmetric
        else (
            lambda matvec, right: solver(
                matvec, right, tree.map(fnp.zeros_like, right), tol, atol, maxiter, lambda x: x
            )
        )
    )
    return lax.custom_linear_solve(apply, b, solve=solve, transpose_solve=transposed, symmetric=symmetric), None


def _bound(b: Any, tol: Any, atol: Any) -> Any:
    """The square of the residual that is small enough."""
    return fnp.maximum(fnp.square(tol) * _real_dot(b, b), fnp.square(atol))


def cg(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """(x, None) with A x = b for a Hermitian positive definite A. Saad, "Iterative methods for sparse linear systems", 9.1."""
    return _solved("cg", _cg, A, b, x0, tol, atol, maxiter, M, _is_real(b))


def _is_real(b: Any) -> bool:
    return all(np.dtype(getattr(leaf, "dtype", type(leaf))).kind != "c" for leaf in tree.leaves(b))


def _cg(apply: Operator, b: Any, x0: Any, tol: Any, atol: Any, maxiter: int, precondition: Operator) -> Any:
    bound = _bound(b, tol, atol)
    r = _add(b, -1, apply(x0))
    z = precondition(r)
    gamma = _dot(r, z)

    def unfinished(state: Any) -> Any:
        _, r, _, _, k = state
        return (_real_dot(r, r) > bound) & (k < maxiter)

    def step(state: Any) -> Any:
        x, r, gamma, p, k = state
        ap = apply(p)
        alpha = gamma / _dot(p, ap)
        x, r = _add(x, alpha, p), _add(r, -alpha, ap)
        z = precondition(r)
        following = _dot(r, z)
        return x, r, following, _add(z, following / gamma, p), k + 1

    return lax.while_loop(unfinished, step, (x0, r, gamma, z, 0))[0]


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """(x, None) with A x = b. Van der Vorst, "Bi-CGSTAB" (1992), preconditioned from the right."""
    return _solved("bicgstab", _bicgstab, A, b, x0, tol, atol, maxiter, M, False)


def _bicgstab(apply: Operator, b: Any, x0: Any, tol: Any, atol: Any, maxiter: int, precondition: Operator) -> Any:
    bound = _bound(b, tol, atol)
    first = _add(b, -1, apply(x0))
    one = fnp.ones((), np.result_type(*(leaf.dtype for leaf in tree.leaves(b))))

    def unfinished(state: Any) -> Any:
        _, r, _, _, _, _, _, k = state
        return (_real_dot(r, r) > bound) & (k < maxiter) & (k >= 0)

    def step(state: Any) -> Any:
        x, r, alpha, omega, rho, p, q, k = state
        following = _dot(first, r)
        beta = following / rho * alpha / omega
        p = _add(r, beta, _add(p, -omega, q))
        near = precondition(p)
        q = apply(near)
        alpha = following / _dot(first, q)
        s = _add(r, -alpha, q)
        done = _real_dot(s, s) < bound
        close = precondition(s)
        t = apply(close)
        omega = _dot(t, s) / _dot(t, t)
        half = _add(x, alpha, near)
        x = tree.map(lambda a, c: fnp.where(done, a, c), half, _add(half, omega, close))
        r = tree.map(lambda a, c: fnp.where(done, a, c), s, _add(s, -omega, t))
        k = fnp.where((omega == 0) | (alpha == 0) | (following == 0), -11, k + 1)
        return x, r, alpha, omega, following, p, q, k

    return lax.while_loop(unfinished, step, (x0, first, one, one, one, first, first, fnp.asarray(0)))[0]


def gmres(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, restart: int = 20, maxiter: int | None = None, M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, Any]:  # fmt: skip
    """(x, info) with A x = b, the residual least over Krylov spaces of `restart` dimensions, preconditioned from the left.

    `info` is -1 where x holds a nan, else 0.

    Saad and Schultz, "GMRES" (1986). Both values of `solve_method`, "batched" and "incremental", are one method here; ValueError
    for another one.
    """
    if solve_method not in ("batched", "incremental"):
        raise ValueError(f"invalid solve_method {solve_method}, must be either 'incremental' or 'batched'")
    size = sum(np.size(leaf) for leaf in tree.leaves(b))
    steps = min(restart, size)

    def solver(apply: Operator, b: Any, x0: Any, tol: Any, atol: Any, maxiter: int, precondition: Operator) -> Any:
        return _gmres(apply, b, x0, tol, atol, maxiter, precondition, steps)

    x, _ = _solved("gmres", solver, A, b, x0, tol, atol, maxiter, M, False)
    return x, fnp.where(fnp.isnan(_real_dot(x, x)), -1, 0)


def _gmres(
    apply: Operator, b: Any, x0: Any, tol: Any, atol: Any, maxiter: int, precondition: Operator, steps: int
) -> Any:
    bound = fnp.sqrt(_bound(b, tol, atol))
    whole = precondition(b)
    bound = bound * fnp.where(
        _real_dot(b, b) > 0, fnp.sqrt(_real_dot(whole, whole) / fnp.where(_real_dot(b, b) > 0, _real_dot(b, b), 1)), 1
    )

    def residual(x: Any) -> tuple[Any, Any]:
        r = precondition(_add(b, -1, apply(x)))
        return r, fnp.sqrt(_real_dot(r, r))

    def unfinished(state: Any) -> Any:
        _, _, size, k = state
        return (size > bound) & (k < maxiter)

    def cycle(state: Any) -> Any:
        x, r, size, k = state
        x = _cycle(apply, precondition, x, r, size, steps)
        return x, *residual(x), k + 1

    return lax.while_loop(unfinished, cycle, (x0, *residual(x0), 0))[0]


def _cycle(apply: Operator, precondition: Operator, x: Any, r: Any, size: Any, steps: int) -> Any:
    """`steps` of Arnoldi's process from the residual, and the combination of its vectors with the least residual."""
    dtype = np.result_type(*(leaf.dtype for leaf in tree.leaves(r)))
    safe = fnp.where(size > 0, size, 1)
    start = tree.map(
        lambda leaf: fnp.zeros((steps + 1, *leaf.shape), leaf.dtype).at[0].set((leaf / safe).astype(leaf.dtype)), r
    )

    def project(basis: Any, v: Any) -> Any:
        return sum(
            fnp.tensordot(fnp.conj(q), leaf, axes=leaf.ndim) for q, leaf in zip(tree.leaves(basis), tree.leaves(v))
        )

    def remove(basis: Any, v: Any, h: Any) -> Any:
        return tree.map(lambda q, leaf: leaf - fnp.tensordot(h, q, axes=1).astype(leaf.dtype), basis, v)

    def arnoldi(k: Any, state: Any) -> Any:
        basis, h = state
        v = precondition(apply(tree.map(lambda q: q[k], basis)))
        before = _real_dot(v, v)
        first = project(basis, v)
        v = remove(basis, v, first)
        second = project(basis, v)  # once more, against rounding: Kahan and Parlett's "twice is enough"
        v = remove(basis, v, second)
        length = fnp.sqrt(_real_dot(v, v))
        kept = length > np.finfo(np.zeros((), dtype).real.dtype).eps * fnp.sqrt(before)
        divisor = fnp.where(kept, length, 1)
        column = (first + second).at[k + 1].set(fnp.where(kept, length, 0).astype(dtype))
        basis = tree.map(lambda q, leaf: q.at[k + 1].set(fnp.where(kept, leaf / divisor, 0).astype(q.dtype)), basis, v)
        return basis, h.at[:, k].set(column)

    basis, h = lax.fori_loop(0, steps, arnoldi, (start, fnp.zeros((steps + 1, steps), dtype)))
    right = fnp.zeros(steps + 1, dtype).at[0].set(size.astype(dtype))
    y = fnp.linalg.lstsq(h, right)[0]
    return tree.map(lambda leaf, q: leaf + fnp.tensordot(y, q[:steps], axes=1).astype(leaf.dtype), x, basis)
