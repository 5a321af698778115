"""Which loops become one kernel, which do not and for what reason, and what joins a loop's kernel; results are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.backends import get
from fuser.debug.bisect import bisect
from fuser.partition.group import Kind, Plan
from fuser.partition.partition import partition
from tests.backends.loop_cases import F32, ONE_KERNEL, PLANE, RNG, X


def planned(function: Callable[..., Any], *args: Any) -> Plan:
    """The plan, once its results have been found to be right."""
    assert bisect(function, *args) is None
    return fuser.jit(function).lower(*args).plan


def kinds(plan: Plan) -> list[Kind]:
    return [group.kind for group in plan.groups]


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel_with_its_loop_inside(name: str) -> None:
    function, args = ONE_KERNEL[name]
    plan = planned(function, *args)
    assert kinds(plan) == [Kind.LOOP], plan.explain()
    assert "one kernel with its loop inside" in plan.explain()


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "a stencil": (
        lambda x: lax.fori_loop(0, 3, lambda i, v: v + fnp.roll(v, 1), x),
        (X,),
        "its body reads the carry at shifted or reshaped places along an axis of 300, and at most 64 numbers of it "
        "stay in registers",
    ),
    "a transposed square": (
        lambda x: lax.fori_loop(0, 3, lambda i, v: v + v.T, x),
        (RNG.standard_normal((70, 70)).astype(F32),),
        "its body reads the carry along another axis of 70, and at most 64 numbers of it stay in registers",
    ),
    "a long fold": (
        lambda x: lax.fori_loop(0, 3, lambda i, v: v / v.sum(), x),
        (X,),
        "its body folds over 300 elements in each iteration, and at most 64 are written out",
    ),
    "a long product": (
        lambda x, w: lax.fori_loop(0, 3, lambda i, v: v @ w, x),
        (PLANE, RNG.standard_normal((50, 50)).astype(F32)),
        "written out, one iteration has more than 3000 operations",
    ),
    "different axes": (
        lambda x, y: lax.fori_loop(0, 3, lambda i, s: (s[0] * 2, s[1] + 1), (x, y)),
        (X, PLANE),
        "its carries run along different axes",
    ),
    "computed places": (
        lambda x: lax.fori_loop(0, 3, lambda i, v: v + v[i], x),
        (X,),
        "its body reads the carry at computed places",
    ),
    "a sort": (
        lambda x: lax.fori_loop(0, 3, lambda i, v: fnp.sort(v + 1), x),
        (X,),
        "in its body sort runs in a library",
    ),
    "a while of its own": (
        lambda x: lax.fori_loop(0, 3, lambda i, v: lax.while_loop(lambda u: u[0] < 9, lambda u: u + 1, v), x),
        (X,),
        "its body has a while of its own",
    ),
    "no elements": (lambda x: lax.fori_loop(0, 3, lambda i, v: v + 1, x), (X[:0],), "its carry has no elements"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_single_kernel_says_why(name: str) -> None:
    function, args, reason = REFUSED[name]
    plan = partition_of(function, args)
    control = [group for group in plan.groups if group.kind is Kind.CONTROL]
    assert [group.refusal for group in control] == [reason]
    assert reason in plan.explain()
    assert Kind.LOOP not in kinds(plan)


def partition_of(function: Callable[..., Any], args: tuple[Any, ...]) -> Plan:
    from fuser import passes

    return partition(passes.run(fuser.jit(function).trace(*args).graph), get("c"))
