"""odeint against JAX: solutions, and gradients by the initial state, the times and the parameters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.ode import odeint as theirs

import fuser
import fuser.numpy as fnp
from fuser.experimental.ode import odeint

START = {"x": np.float32(0.5), "v": np.array([0.0, 0.2], np.float32)}
TIMES = np.linspace(0, 2, 4, dtype=np.float32)


def pendulum(m: Any) -> Any:
    return lambda y, t, a, b: {"x": y["v"].sum(), "v": -m.sin(y["x"]) * a - b * y["v"] + 0.1 * m.cos(t)}


def test_solution_of_a_tree() -> None:
    found = odeint(pendulum(fnp), START, TIMES, 2.0, 0.3)
    expected = theirs(pendulum(jnp), jax.tree.map(jnp.asarray, START), jnp.asarray(TIMES), 2.0, 0.3)
    assert fuser.tree.structure(found) == fuser.tree.structure(START)
    for key in START:
        assert found[key].shape == (4, *np.shape(START[key])) and found[key].dtype == np.float32
        np.testing.assert_allclose(np.asarray(found[key]), np.asarray(expected[key]), rtol=1e-5, atol=1e-5)


def test_gradients() -> None:
    def total(solve: Any, library: Any, m: Any) -> Any:
        def loss(y: Any, t: Any, a: Any, b: Any) -> Any:
            leaves = library.tree.leaves(solve(pendulum(m), y, t, a, b, rtol=1e-6, atol=1e-6))
            return sum((leaf.T * m.arange(4.0)).sum() for leaf in leaves)

        return library.jit(library.grad(loss, (0, 1, 2, 3)))

    found = total(odeint, fuser, fnp)(START, TIMES, 2.0, 0.3)
    expected = total(theirs, jax, jnp)(jax.tree.map(jnp.asarray, START), jnp.asarray(TIMES), 2.0, 0.3)
    for f, e in zip(fuser.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(f), np.asarray(e), rtol=1e-3, atol=1e-3)


def test_arguments_must_be_arrays() -> None:
    with pytest.raises(TypeError, match=r"The contents of odeint \*args must be arrays or scalars"):
        odeint(lambda y, t, f: f(y), 1.0, TIMES, lambda y: y)


@pytest.mark.slow
def test_second_derivative() -> None:
    def twice(solve: Any, grad: Any, m: Any) -> Any:
        f = lambda y, t, a: y - m.sin(t) - m.cos(t) * a
        ends = lambda a: (
            solve(f, m.asarray(0.5), m.asarray(np.float32([0.1, 0.4])), a, rtol=1e-5, atol=1e-5) ** 2
        ).sum()
        return float(grad(grad(ends))(0.3))

    np.testing.assert_allclose(twice(odeint, fuser.grad, fnp), twice(theirs, jax.grad, jnp), rtol=1e-3)
