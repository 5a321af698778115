"""How seldom native loops look at the clock: by what a step is known to do at most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.backends.c.control_flow.interrupt import LONGEST_PACE
from fuser.backends.c.control_flow.step_work import QUICK, first_pace
from fuser.partition.group import FusionGroup, Kind

X = np.arange(QUICK, dtype=np.float32)


def shifted(x: Any) -> Any:
    """An insertion into a sorted array: a loop of a few elements a step."""
    move = lambda c: (c[0].at[c[1]].set(c[0][c[1] - 1]), c[1] - 1)
    return lax.while_loop(lambda c: (c[1] > 0) & (c[0][c[1] - 1] > c[0][c[1]]), move, (x, x.shape[0] - 1))[0]


def loops_of(function: Any) -> list[FusionGroup]:
    plan = fuser.jit(function, backend="c").lower(X).plan
    return [group for group in plan.groups if group.kind is Kind.CONTROL]


@pytest.mark.parametrize(
    ("function", "pace"),
    (
        (shifted, LONGEST_PACE),
        (lambda x: lax.fori_loop(0, 90, lambda i, x: x.at[i].add(fnp.sin(x).sum() * 1e-6), x), 1),
        (lambda x: lax.fori_loop(0, 90, lambda i, x: shifted(x.at[i].set(i)), x), 1),
        (lambda x: lax.fori_loop(0, 90, lambda i, x: lax.fori_loop(0, 9, lambda j, x: x.at[j * i].add(1.0), x), x), 64),
    ),
    ids=("elements", "all of the array", "loops of unknown length", "counted loops"),
)
def test_the_first_look_at_the_clock_comes_after_little_work(function: Any, pace: int) -> None:
    [loop] = loops_of(function)
    found = first_pace(loop.bodies)
    assert found == 1 if pace == 1 else found >= pace
    np.testing.assert_allclose(
        fuser.jit(function, backend="c")(X), fuser.jit(function, backend="reference")(X), rtol=1e-5
    )


def test_a_loop_inside_begins_with_its_own_pace() -> None:
    [loop] = loops_of(lambda x: lax.fori_loop(0, 90, lambda i, x: shifted(x.at[i].set(fnp.float32(i))), x))
    [inner] = [g for plan in loop.bodies for g in plan.groups if g.kind is Kind.CONTROL and g.bodies[0].groups]
    assert first_pace(inner.bodies) == LONGEST_PACE
