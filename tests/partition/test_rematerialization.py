"""Values that are computed in each kernel that reads them: which ones, which not, and that results stay as they were."""

from __future__ import annotations

from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser.config import config
from fuser.debug.bisect import bisect
from fuser.partition.group import Plan

F32 = np.float32
RNG = np.random.default_rng(0)


def stored(plan: Plan) -> set[tuple[int, ...]]:
    """The shapes of what kernels hand on through memory."""
    return {v.aval.shape for group in plan.groups for v in group.graph.outvars if v not in plan.outputs}


def written(plan: Plan) -> set[Any]:
    return {v for group in plan.groups for v in group.graph.outvars}


def distances(theta, x, y):
    """A likelihood whose kernel matrix is factorised between two kernels that need differences of all pairs of points."""
    z = x / fnp.exp(theta[:-1])
    k = fnp.exp(-0.5 * fnp.sum((z[:, None] - z[None]) ** 2, -1)) + fnp.exp(theta[-1]) * fnp.eye(len(x), dtype=F32)
    white = fuser.scipy.linalg.solve_triangular(fnp.linalg.cholesky(k), y, lower=True)
    return 0.5 * fnp.sum(white**2)


def test_differences_of_all_pairs_are_not_stored_for_the_gradient() -> None:
    n, d = 150, 6
    args = np.zeros(d + 1, F32), RNG.standard_normal((n, d)).astype(F32), RNG.standard_normal(n).astype(F32)
    f = fuser.value_and_grad(distances)
    first = fuser.jit(f).lower(*args).plan.groups[0]
    assert not any(v.aval.shape == (n, n, d) for v in first.graph.outvars)
    with config.using(fuel=10**6):
        before = fuser.jit(f).lower(*args).plan
    assert stored(before) >= {(n, n, d)}
    results = fuser.jit(f)(*args)
    with config.using(fuel=10**6):
        expected = fuser.jit(f)(*args)
    np.testing.assert_allclose(results[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(results[1], expected[1], rtol=1e-4, atol=1e-4)


def test_masks_are_made_of_positions_where_they_are_needed() -> None:
    """The identity's elements cost a comparison; a library's step between two readers is no reason to store them."""

    def f(x):
        eye = fnp.eye(200, dtype=F32)
        return fnp.sum(fnp.linalg.inv(x + 3 * eye) * (1 - eye), 0)

    x = RNG.standard_normal((200, 200)).astype(F32) * F32(0.1)
    plan = fuser.jit(f).lower(x).plan
    assert not [e for e in plan.graph.eqns if e.primitive.name == "eq" and set(e.outvars) & written(plan)]
    assert bisect(f, x) is None


def test_what_is_dear_or_compared_stays_in_memory() -> None:
    def dear(x):
        y = fnp.exp(fnp.sin(x) * fnp.cos(x))
        return fnp.sum(fnp.sort(y, 1) * y)

    def compared(x):
        y = x * 2 + 1
        top = fnp.sort(y, axis=1)[:, -1:]
        return fnp.sum(fnp.where(y == top, y, 0), 1)

    x = RNG.standard_normal((200, 200)).astype(F32)
    for f in (dear, compared):
        assert stored(fuser.jit(f).lower(x).plan) >= {(200, 200)}
        assert bisect(f, x) is None
    np.testing.assert_array_equal(fuser.jit(compared)(x), np.sort(x * 2 + 1, 1)[:, -1])
