"""Donated arguments: results lie in those that are dead before, and what is given in vain has its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax, nn
from fuser.backends import get
from fuser.config import config
from fuser.partition.donation import unused
from fuser.runtime import executable as executables
from fuser.runtime.core import native
from fuser.scipy import special


def planned(function: Callable[..., Any], *args: Any, fuel: int = -1, donate: tuple[int, ...] = ()) -> Any:
    with config.using(fuel=fuel):
        return fuser.jit(function, donate_argnums=donate, backend="c").lower(*args).compile()


DEAD = {
    "a running sum": lambda x, y: (x.sum(), fnp.cumsum(fnp.cumsum(y, axis=0), axis=1)),
    "a product": lambda x, y: (fnp.cumsum(x, axis=0)[-1].sum(), y @ y),
    "two": lambda x, y: (fnp.cumsum(fnp.cumsum(x @ y, axis=0), axis=1), fnp.sort(fnp.cumsum(y @ x, axis=1), axis=0)),
    "transposed": lambda x, y: (fnp.cumsum(x.T, axis=0) + y, fnp.sort(y, axis=0) * x.sum()),
    "rows": lambda x, y: (nn.softmax(fnp.cumsum(x, axis=0)), fnp.sort(x, axis=1)[:, 0], y - y.mean(axis=0)),
    "a loop": lambda x, y: (lax.fori_loop(0, 3, lambda n, c: fnp.sort(c, axis=0) + n, x), x * y.sum()),
}


@pytest.mark.parametrize("core", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("fuel", [0, -1])
@pytest.mark.parametrize("name", DEAD)
def test_results_lie_in_donated_arguments_that_are_dead_before(
    name: str, fuel: int, core: bool, monkeypatch: Any
) -> None:
    if core and native is None:
        pytest.skip("there is no native core")
    if not core:
        monkeypatch.setattr(executables, "native", None)
    square = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
    arrays = [square, square[::-1].copy()]
    wanted = planned(DEAD[name], *arrays, fuel=fuel)(*map(fnp.asarray, arrays))
    given = planned(DEAD[name], *arrays, fuel=fuel, donate=(0, 1))
    plan = given.plan
    sources = [source for source in plan.reuse.values() if plan.slots[source].start < 0]
    assert len(sources) == len(set(sources))
    for target, source in plan.reuse.items():
        assert plan.slots[source].end <= plan.slots[target].start, plan
    for _ in range(2):
        for a, b in zip(given(*map(fnp.asarray, arrays)), wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=str(plan))
    if name in ("a running sum", "a product") and fuel == 0:
        result = plan.slot_of[plan.outputs[1]]
        assert plan.slots[plan.reuse[result]].start < 0, plan
        assert given.memory_analysis().alias_size_in_bytes == square.nbytes


REASONS = [
    (lambda x, y: (fnp.cumsum(fnp.sort(x, axis=0), axis=1), y.T + 1), 1, "reads it in another order"),
    (lambda x, y: (fnp.cumsum(x * 1j, axis=0) + (y + 1), y * 2), 1, ""),
    (lambda x, y: (special.owens_t(x + 1, y), y * 2), 1, "runs in NumPy and may return a view of it"),
    (lambda x, y: (y + 1, fnp.sort(x, axis=0), (y * x).sum(axis=0)), 0, "still reads it after the result is written"),
    (lambda x, y: (x[:2], y.sum()), 1, "no result is f32[300,300]"),
    (lambda x, y: x + y, 1, "other arguments gave their memory"),
]


@pytest.mark.parametrize(("function", "position", "reason"), REASONS)
def test_reasons(function: Callable[..., Any], position: int, reason: str) -> None:
    x = np.ones((300, 300), np.float32)
    plan = planned(function, x, x, donate=(0, 1), fuel=0).plan
    found = {one.position: one.reason for one in unused(plan, (0, 1), get("c").limits)}
    taken = {plan.slots[s].index for s in plan.reuse.values() if plan.slots[s].start < 0}
    assert (position in found) == (plan.slot_of[plan.graph.invars[position]] not in taken) == bool(reason), plan
    assert reason in found.get(position, ""), found
