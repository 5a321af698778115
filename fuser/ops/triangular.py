"""triangular_solve: linear systems whose matrix is triangular, by substitution; operands and params are those of JAX."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType, is_complex
from fuser.ops.family import linear_in, sample
from fuser.ops.matrices import DTYPES, check_matrices, lower_part, product, transposed, upper_part
from fuser.ops.movement import reshape_p
from fuser.trace.batch import moved, size_of

# Up to this many unknowns and right sides, of at least as many systems, are substituted for all systems at once.
BLOCK = MANY = 16


def _type(a: ArrayType, b: ArrayType, left_side: bool = False, **params: Any) -> ArrayType:
    check_matrices("triangular_solve", a, square=True)
    check_matrices("triangular_solve", b)
    if a.dtype != b.dtype:
        raise TypeRuleError(f"triangular_solve needs equal dtypes, got {a} and {b}; convert one of them first")
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2 if left_side else -1]:
        what = "rows" if left_side else "columns"
        raise TypeRuleError(
            f"triangular_solve needs equal leading dimensions, and as many {what} on the right side as unknowns, "
            f"got {a} and {b}"
        )
    return ArrayType(b.shape, b.dtype)


def _eval(
    a: np.ndarray,
    b: np.ndarray,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> np.ndarray:
    """By BLAS, or small ones of a stack all at once; only the triangle that is meant is read."""
    if math.prod(a.shape[:-2]) < MANY or max(b.shape[-2:]) > BLOCK:
        return _by_blas(a, b, left_side, lower, transpose_a, conjugate_a, unit_diagonal)
    return _by_substitution(a, b, left_side, lower, transpose_a, conjugate_a, unit_diagonal)


def _by_blas(
    a: np.ndarray,
    b: np.ndarray,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
) -> np.ndarray:
    """Rows here are columns there: left is right, and lower is upper."""
    from scipy.linalg import blas

    out = np.empty(b.shape, b.dtype)
    if not out.size:
        return out
    trsm = blas.get_blas_funcs("trsm", (a,))
    a = np.conj(a) if conjugate_a and not transpose_a else a
    params = {"side": left_side, "lower": not lower, "diag": unit_diagonal, "trans_a": transpose_a * (1 + conjugate_a)}
    each = (x.reshape(-1, *x.shape[-2:]) for x in (a, b, out))
    for matrix, right, found in zip(*each):
        found[...] = trsm(1, matrix.T, right.T, **params).T
    return out


def _by_substitution(
    a: np.ndarray,
    b: np.ndarray,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
) -> np.ndarray:
    """Every case is turned into a lower triangle on the left."""
    a = np.conj(a) if conjugate_a else a
    if transpose_a == left_side:
        a, lower = a.swapaxes(-1, -2), not lower
    b = b if left_side else b.swapaxes(-1, -2)
    with np.errstate(all="ignore"):  # a zero on the diagonal gives inf and nan
        if lower:
            x = _substitute(a, b, unit_diagonal)
        else:
            x = _substitute(a[..., ::-1, ::-1], b[..., ::-1, :], unit_diagonal)[..., ::-1, :]
    return x if left_side else x.swapaxes(-1, -2)


def _substitute(a: np.ndarray, b: np.ndarray, unit_diagonal: bool) -> np.ndarray:
    """x with a·x = b for a lower triangular `a`, row by row."""
    x = np.array(b)
    for row in range(a.shape[-1]):
        x[..., row, :] -= (a[..., row : row + 1, :row] @ x[..., :row, :])[..., 0, :]
        if not unit_diagonal:
            x[..., row, :] /= a[..., row, row, None]
    return x


def _jvp_of_matrix(t: Any, a: Any, b: Any, out: Any, **params: Any) -> Any:
    """-A⁻¹ ∂A X, or -X ∂A A⁻¹ on the right side: first the product of the two that is the smaller."""
    off = 1 if params["unit_diagonal"] else 0
    moving = -(lower_part(t, -off) if params["lower"] else upper_part(t, off))
    moving = transposed(moving) if params["transpose_a"] else moving
    moving = moving.conj() if params["conjugate_a"] else moving
    rows, columns = b.shape[-2:]
    solve = lambda right: triangular_solve_p.bind(a, right, **params)
    if params["left_side"]:
        return solve(product(moving, out)) if rows > columns else product(solve(moving), out)
    return solve(product(out, moving)) if columns > rows else product(out, solve(moving))


def _transpose(ct: Any, a: Any, b: Any, **params: Any) -> tuple[None, Any]:
    if linear_in(a):
        raise TypeRuleError("triangular_solve is not linear in its matrix, so it has no transpose; use vjp")
    return None, triangular_solve_p.bind(a, ct, **{**params, "transpose_a": not params["transpose_a"]})


def _batch(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
    """With one matrix for all the right sides are put side by side, so that it is solved for once."""
    (a, b), (a_dim, b_dim) = operands, dims
    if a_dim is not None:
        size = size_of(operands, dims)
        return triangular_solve_p.bind(moved(a, a_dim, 0), moved(b, b_dim, 0, size), **params), 0
    place = b.ndim - 1 if params["left_side"] else b.ndim - 2
    b = moved(b, b_dim, place)
    *lead, first, second, third = b.shape
    sides = (first, second * third) if params["left_side"] else (first * second, third)
    flat = reshape_p.bind(b, new_sizes=(*lead, *sides), dimensions=None)
    out = triangular_solve_p.bind(a, flat, **params)
    return reshape_p.bind(out, new_sizes=b.shape, dimensions=None), place


def _samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Both triangles are full: what is not meant must not be read."""
    rng = np.random.default_rng(0)
    for dtype in DTYPES:
        for lead, unknowns, sides, bits in (((), 4, 3, 0b10000), ((2,), 3, 4, 0b01100), ((), 3, 4, 0b11110),
                                            ((), 3, 2, 0b00111), ((), 2 * BLOCK + 3, 2, 0b11000)):  # fmt: skip
            names = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
            params = {name: bool(bits >> (4 - n) & 1) for n, name in enumerate(names)}
            params["conjugate_a"] &= is_complex(dtype)
            a = sample(rng, (*lead, unknowns, unknowns), dtype, (-0.3, 0.3)) + 2 * np.eye(unknowns, dtype=dtype)
            shape = (unknowns, sides) if params["left_side"] else (sides, unknowns)
            yield (a.astype(dtype), sample(rng, (*lead, *shape), dtype)), params


triangular_solve_p: Primitive = register(
    Primitive(
        "triangular_solve",
        Fusion.LIBRARY,
        type=_type,
        eval=_eval,
        jvp=(_jvp_of_matrix, lambda t, a, b, out, **params: triangular_solve_p.bind(a, t, **params)),
        transpose=_transpose,
        batch=_batch,
        samples=_samples,
    )
)


def solve(a: Any, b: Any, left_side: bool = True, lower: bool = False, adjoint: bool = False) -> Any:
    """x with op(a)·x = b, or x·op(a) = b; `op` is the conjugate transpose if `adjoint`."""
    return triangular_solve_p.bind(
        a,
        b,
        left_side=left_side,
        lower=lower,
        transpose_a=adjoint,
        conjugate_a=adjoint and is_complex(a.dtype),
        unit_diagonal=False,
    )
