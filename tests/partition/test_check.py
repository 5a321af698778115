"""The checker of plans finds what a defect of the partition would leave: it is shown plans with one thing wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fuser.numpy as fnp
from fuser import jit
from fuser.errors import PlanError
from fuser.partition.check import check
from fuser.partition.group import Plan

X = np.ones((40, 40), np.float32)


def program(x: Any) -> Any:
    for _ in range(3):
        x = fnp.tanh(x @ x) + fnp.sort(x, 1)
    return x[0], x.sum()


PLAN: Plan = jit(program, backend="c").lower(X).plan


def test_what_the_partition_makes_is_right() -> None:
    assert check(PLAN) is PLAN
    assert len(PLAN.groups) > 4 and len(PLAN.offsets) > 2  # or the tests below would show nothing


def test_groups_out_of_order_are_found() -> None:
    with pytest.raises(PlanError, match="before any group has written it"):
        check(replace(PLAN, groups=PLAN.groups[::-1]))


def test_a_result_that_no_group_writes_is_found() -> None:
    written = [n for n, g in enumerate(PLAN.groups) if PLAN.outputs[1] in g.graph.outvars]
    with pytest.raises(PlanError, match="no group writes the result"):
        check(replace(PLAN, groups=tuple(g for n, g in enumerate(PLAN.groups) if n not in written)))


def test_a_slot_that_dies_before_it_is_read_is_found() -> None:
    slot = next(s for s in PLAN.slots if 0 <= s.start < s.end < len(PLAN.groups))
    slots = tuple(replace(s, end=s.start) if s is slot else s for s in PLAN.slots)
    with pytest.raises(PlanError, match=f"reads slot {slot.index}, which lives from {slot.start} to {slot.start}"):
        check(replace(PLAN, slots=slots))


def test_values_that_share_the_arena_while_both_live_are_found() -> None:
    with pytest.raises(PlanError, match="share bytes of the arena"):
        check(replace(PLAN, offsets=dict.fromkeys(PLAN.offsets, 0), reuse={}))


def test_a_value_past_the_end_of_the_arena_is_found() -> None:
    with pytest.raises(PlanError, match="of an arena of"):
        check(replace(PLAN, arena=PLAN.arena // 2))


def test_memory_taken_over_too_early_is_found() -> None:
    target = next(n for n in PLAN.offsets if PLAN.slots[n].start > 0)
    source = next(s.index for s in PLAN.slots if s.start < 0 and s.end > PLAN.slots[target].start - 1)
    early = replace(PLAN.slots[source], end=len(PLAN.groups))
    slots = tuple(early if s.index == source else s for s in PLAN.slots)
    with pytest.raises(PlanError, match="takes over slot"):
        check(replace(PLAN, slots=slots, reuse={target: source}))
