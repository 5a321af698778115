"""Triangular systems in C: every case against NumPy's substitution in float64, and what runs natively."""

from __future__ import annotations

import numpy as np
import pytest

import fuser
from fuser.ops.triangular import _eval, triangular_solve_p

NAMES = ("left_side", "lower", "transpose_a", "unit_diagonal")


def solver(bits: int) -> tuple[object, dict[str, bool]]:
    params = {name: bool(bits >> n & 1) for n, name in enumerate(NAMES)} | {"conjugate_a": False}
    return fuser.jit(lambda a, b: triangular_solve_p.bind(a, b, **params)), params


def system(lead: tuple[int, ...], n: int, sides: int, left: bool, dtype=np.float32) -> tuple[np.ndarray, np.ndarray]:
    """A full matrix: what lies on the other side of the diagonal is wrong to read."""
    random = np.random.default_rng(0)
    a = random.standard_normal((*lead, n, n)) / n + np.eye(n)
    return a.astype(dtype), random.standard_normal((*lead, n, sides) if left else (*lead, sides, n)).astype(dtype)


@pytest.mark.parametrize("bits", range(16))
@pytest.mark.parametrize(
    ("lead", "n", "sides"), [((), 1, 1), ((), 5, 3), ((3,), 33, 17), ((), 130, 70), ((2, 2), 64, 200), ((), 7, 64)]
)
def test_every_case(bits, lead, n, sides) -> None:
    run, params = solver(bits)
    a, b = system(lead, n, sides, params["left_side"])
    expected = _eval(a.astype(np.float64), b.astype(np.float64), **params)
    np.testing.assert_allclose(run(a, b), expected, rtol=2e-4, atol=2e-5 * np.abs(expected).max())


def test_a_zero_on_the_diagonal() -> None:
    run, params = solver(0b0011)
    a, b = system((), 12, 5, True)
    a[4, 4], b[4, 0] = 0.0, 0.0
    with np.errstate(all="ignore"):
        expected = _eval(a, b, **params)
    result = np.asarray(run(a, b))
    np.testing.assert_array_equal(np.isfinite(result), np.isfinite(expected))
    np.testing.assert_allclose(result[:4], expected[:4], rtol=1e-5)


def test_sides_are_solved_for_apart() -> None:
    """So that one thread and many give the same bits."""
    run, _ = solver(0b0011)
    a, b = system((), 200, 300, True)
    whole = np.asarray(run(a, b))
    parts = [np.asarray(solver(0b0011)[0](a, b[:, n : n + 64])) for n in range(0, 300, 64)]
    np.testing.assert_array_equal(whole, np.concatenate(parts, 1))


def test_what_runs_natively() -> None:
    run, _ = solver(0b0011)
    a, b = system((), 40, 5, True)
    assert len(run.lower(a, b).sources) == 1
    assert len(run.lower(a.astype(np.complex64), b.astype(np.complex64)).sources) == 1


def test_with_gradients() -> None:
    import jax

    a, b = system((), 40, 5, True)
    ours = fuser.grad(lambda a, b: fuser.lax.linalg.triangular_solve(a, b, left_side=True, lower=True).sum())(a, b)
    theirs = jax.grad(lambda a, b: jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=True).sum())(a, b)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
