"""Matrices of one element: no library call is left, and values are LAPACK's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.partition.group import Kind

RNG = np.random.default_rng(0)
PROGRAMS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "inv": lambda lib, xp, a, b: xp.linalg.inv(a),
    "solve": lambda lib, xp, a, b: xp.linalg.solve(a, b),
    "det": lambda lib, xp, a, b: xp.linalg.det(a),
    "cholesky": lambda lib, xp, a, b: xp.linalg.cholesky(a),
    "triangular": lambda lib, xp, a, b: lib.lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
    "from the right": lambda lib, xp, a, b: lib.lax.linalg.triangular_solve(a, xp.swapaxes(b, -1, -2)),
}


@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_jax(name: str, lead: tuple[int, ...]) -> None:
    a, b = RNG.standard_normal((*lead, 1, 1)).astype(np.float32), RNG.standard_normal((*lead, 1, 4)).astype(np.float32)
    program = fuser.jit(lambda a, b: PROGRAMS[name](fuser, fnp, a, b))
    expected = jax.jit(lambda a, b: PROGRAMS[name](jax, jnp, a, b))(a, b)
    np.testing.assert_allclose(program(a, b), expected, rtol=1e-6)
    assert Kind.LIBRARY not in [group.kind for group in program.lower(a, b).plan.groups]


def test_no_root_of_what_is_not_positive() -> None:
    a = np.array([-1.0, 0.0, -0.0, np.nan, 4.0, np.inf], np.float32).reshape(6, 1, 1)
    expected = jax.jit(jnp.linalg.cholesky)(a)
    np.testing.assert_array_equal(fuser.jit(fnp.linalg.cholesky)(a)[:5], expected[:5])


def test_a_filter_with_one_observation_is_one_kernel() -> None:
    def run(lib: Any, xp: Any) -> Callable[..., Any]:
        def filtered(ys: Any, f: Any, h: Any) -> Any:
            def step(carry: Any, y: Any) -> Any:
                x, p = carry
                x, p = f @ x, f @ p @ f.T + 0.1 * xp.eye(2)
                gain = p @ h.T @ xp.linalg.inv(h @ p @ h.T + 0.5)
                x, p = x + gain @ (y - h @ x), p - gain @ h @ p
                return (x, p), x

            return lib.lax.scan(step, (xp.zeros(2), xp.eye(2)), ys)[1]

        return filtered

    ys = RNG.standard_normal((30, 1)).astype(np.float32)
    f, h = np.array([[1, 0.1], [0, 0.9]], np.float32), np.array([[1, 0.5]], np.float32)
    program = fuser.jit(run(fuser, fnp))
    np.testing.assert_allclose(program(ys, f, h), jax.jit(run(jax, jnp))(ys, f, h), rtol=2e-5, atol=1e-5)
    kinds = [group.kind for group in program.lower(ys, f, h).plan.groups]
    assert Kind.LOOP in kinds and Kind.CONTROL not in kinds
