"""custom_root and custom_linear_solve against JAX: values and derivatives of every order, in every mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.transforms.both import agree, both_raise

A = np.array([[4, 1, 0], [1, 3, 1], [0, 1, 5]], np.float32)
B = np.array([1, -2, 3], np.float32)


def square_root(m: Any, a: Any) -> Any:
    """The root of x² = a by Newton's method in a while loop, which reverse mode could not go through."""

    def solve(f: Any, x: Any) -> Any:
        step = lambda x: x - f(x) / (2 * x)
        return m.lax.while_loop(lambda x: m.numpy.abs(f(x)) > 1e-5, step, x)

    return m.lax.custom_root(lambda x: x * x - a, 2.0, solve, lambda g, y: y / g(1.0))


ROOTS = {
    "value": lambda m: square_root(m, 3.0),
    "grad": lambda m: m.grad(lambda a: square_root(m, a))(3.0),
    "jit of grad": lambda m: m.jit(m.grad(lambda a: square_root(m, a)))(3.0),
    "grad of jit": lambda m: m.grad(m.jit(lambda a: square_root(m, a)))(3.0),
    "grad of grad": lambda m: m.grad(m.grad(lambda a: square_root(m, a)))(3.0),
    "jvp": lambda m: m.jvp(lambda a: square_root(m, a), (3.0,), (2.0,)),
    "vmap of grad": lambda m: m.vmap(m.grad(lambda a: square_root(m, a)))(np.array([1, 2, 3], np.float32)),
}


@pytest.mark.parametrize("name", ROOTS)
def test_root(name: str) -> None:
    agree(ROOTS[name], 1e-4, weak=False)


def test_root_with_auxiliary_results_and_trees() -> None:
    def program(m: Any) -> Any:
        def f(a: Any) -> Any:
            solve = lambda f, p: ({"x": m.numpy.sqrt(a)}, 7.0)
            tangent = lambda g, y: {"x": y["x"] / g({"x": 1.0})["x"]}
            return m.lax.custom_root(lambda p: {"x": p["x"] ** 2 - a}, {"x": 1.0}, solve, tangent, has_aux=True)

        return f(4.0), m.grad(lambda a: f(a)[0]["x"])(4.0)

    agree(program, weak=False)


def solved(m: Any, symmetric: bool = False) -> Any:
    """x with a x = b, by Gauss-Jordan elimination of the user's."""

    def eliminate(a: Any, b: Any) -> Any:
        for n in range(3):
            row, right = a[n] / a[n, n], b[n] / a[n, n]
            others = m.numpy.where(m.numpy.arange(3) == n, 0, a[:, n])
            a = (a - others[:, None] * row[None]).at[n].set(row)
            b = (b - others * right).at[n].set(right)
        return b

    def f(a: Any, b: Any) -> Any:
        back = None if symmetric else lambda vecmat, c: eliminate(a.T, c)
        return m.lax.custom_linear_solve(
            lambda x: a @ x, b, lambda matvec, c: eliminate(a, c), back, symmetric=symmetric
        )

    return f


SOLVES = {
    "value": lambda m, f: f(A, B),
    "jit": lambda m, f: m.jit(f)(A, B),
    "grad": lambda m, f: m.grad(lambda a, b: m.numpy.sin(f(a, b)).sum(), (0, 1))(A, B),
    "jit of grad": lambda m, f: m.jit(m.grad(lambda a, b: m.numpy.sin(f(a, b)).sum(), (0, 1)))(A, B),
    "grad of jit": lambda m, f: m.grad(lambda a: m.numpy.sin(m.jit(f)(a, B)).sum())(A),
    "jvp": lambda m, f: m.jvp(f, (A, B), (A + 1, B)),
    "jacrev": lambda m, f: m.jacrev(f, 1)(A, B),
    "hessian": lambda m, f: m.hessian(lambda b: m.numpy.sin(f(A, b)).sum())(B),
    "vmap": lambda m, f: m.vmap(f, (0, None))(np.stack([A, A + 1]), B),
    "vmap of grad": lambda m, f: m.vmap(m.grad(lambda a, b: f(a, b).sum()), (None, 1))(A, np.stack([B, 2 * B], 1)),
}


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", SOLVES)
def test_linear_solve(name: str, symmetric: bool) -> None:
    agree(lambda m: SOLVES[name](m, solved(m, symmetric)), 1e-4, weak=False)


def test_refusals() -> None:
    identity = lambda x: x
    solve = lambda matvec, b: b
    assert "needs transpose_solve" in both_raise(
        lambda m: m.grad(lambda b: m.lax.custom_linear_solve(identity, b, solve).sum())(B), TypeError
    )
    assert "matvec must return the tree of b" in both_raise(
        lambda m: m.lax.custom_linear_solve(lambda x: (x, x), B, solve), ValueError
    )
    assert "matvec must return the types of b" in both_raise(
        lambda m: m.lax.custom_linear_solve(lambda x: x[:2], B, solve), ValueError
    )
    assert "solve must return the tree of initial_guess" in both_raise(
        lambda m: m.lax.custom_root(identity, B, lambda f, x: (x, x), solve), TypeError
    )
