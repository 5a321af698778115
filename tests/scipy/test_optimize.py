"""scipy.optimize.minimize beside JAX's: minima, counts and ends, under jit too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.scipy import optimize as joptimize

import fuser
from fuser.scipy import optimize

LBFGS = "l-bfgs-experimental-do-not-rely-on-this"


def himmelblau(p: Any) -> Any:
    return (p[0] ** 2 + p[1] - 11) ** 2 + (p[0] + p[1] ** 2 - 7) ** 2


def rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def matyas(p: Any) -> Any:
    return 0.26 * (p[0] ** 2 + p[1] ** 2) - 0.48 * p[0] * p[1]


@pytest.mark.parametrize("method", ["BFGS", LBFGS])
@pytest.mark.parametrize(
    "function, start",
    [(himmelblau, (1, 1)), (himmelblau, (100, 3)), (matyas, (1, 2))],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_minimum(function: Callable[..., Any], start: Any, method: str) -> None:
    x0 = np.array(start, np.float32)
    found = optimize.minimize(function, x0, method=method)
    wanted = joptimize.minimize(function, jax.numpy.asarray(x0), method=method)
    np.testing.assert_allclose(found.x, wanted.x, atol=2e-3)
    assert (bool(found.success), int(found.status)) == (bool(wanted.success), int(wanted.status))
    assert abs(int(found.nit) - int(wanted.nit)) <= 2
    assert (found.hess_inv is None) == (wanted.hess_inv is None)


def test_a_line_search_inside_a_loop_reads_shifted_elements() -> None:
    """The function reads neighbours of what the loop moves by a step, lane by lane."""
    run = fuser.jit(lambda x: optimize.minimize(rosenbrock, x, method="BFGS", options={"gtol": 1e-3}))
    found = run(np.zeros(5, np.float32))
    np.testing.assert_allclose(found.x, np.ones(5), atol=1e-2)


def test_ends_and_errors() -> None:
    few = [
        m.minimize(himmelblau, x, method="BFGS", options={"maxiter": 2})
        for m, x in ((optimize, np.ones(2, np.float32)), (joptimize, jax.numpy.ones(2)))
    ]
    assert [int(r.status) for r in few] == [1, 1] and not few[0].success
    with pytest.raises(TypeError, match="must be a tuple"):
        optimize.minimize(himmelblau, np.ones(2, np.float32), args=45, method="BFGS")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not recognized"):
        optimize.minimize(himmelblau, np.ones(2, np.float32), method="other")
