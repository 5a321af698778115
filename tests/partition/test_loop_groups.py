"""Which loops become one kernel, which do not and for what reason, and what joins a loop's kernel; results are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.backends import get
from fuser.config import config
from fuser.debug.bisect import bisect
from fuser.ir.types import ArrayType
from fuser.legalise import legalise
from fuser.ops.control import scan_p
from fuser.partition import loop
from fuser.partition.group import Kind, Plan
from fuser.partition.partition import partition
from fuser.trace.core import bind
from fuser.trace.stage import stage
from tests.backends.loop_cases import F32, ONE_KERNEL, PLANE, RNG, X


def planned(function: Callable[..., Any], *args: Any) -> Plan:
    """The plan, once its results have been found to be right."""
    assert bisect(function, *args) is None
    return fuser.jit(function).lower(*args).plan


def kinds(plan: Plan) -> list[Kind]:
    return [group.kind for group in plan.groups]


# Their iterations need nothing of each other, and so are no loop (passes/loops/parallelise.py).
SIDE_BY_SIDE = (
    "iterations that need nothing of each other",
    "a reduction in each iteration of a map",
    "a map backwards",
    "no lanes but results",
)


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel_with_its_loop_inside(name: str) -> None:
    function, args = ONE_KERNEL[name]
    plan = planned(function, *args)
    if name in SIDE_BY_SIDE:
        assert len(plan.groups) == 1 and Kind.LOOP not in [kernel.kind for kernel in plan.kernels], plan.explain()
    else:
        assert kinds(plan) == [Kind.LOOP], plan.explain()
        assert "one kernel with its loop inside" in plan.explain()


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "a stencil": (
        lambda x: lax.fori_loop(0, 3, lambda i, v: v + fnp.roll(v, 1), x),
        (X,),
        "its body reads the carry at shifted or reshaped indices along an axis of 300, and at most 64 numbers of it "
        "stay in registers",
    ),
    "a transposed square": (
        lambda x: lax.fori_loop(0, 3, lambda i, v: v + v.T, x),
        (RNG.standard_normal((70, 70)).astype(F32),),
        "its body reads the carry along another axis of 70, and at most 64 numbers of it stay in registers",
    ),
    "a long reduction": (
        lambda x: lax.fori_loop(0, 3, lambda i, v: v / v.sum(), x),
        (X,),
        "its body reduces over 300 elements in each iteration, and at most 64 are unrolled",
    ),
    "a long product": (
        lambda x, w: lax.fori_loop(0, 3, lambda i, v: v @ w, x),
        (PLANE, RNG.standard_normal((50, 50)).astype(F32)),
        "unrolled, one iteration has more than 3000 operations",
    ),
    "different axes": (
        lambda x, y: lax.fori_loop(0, 3, lambda i, s: (s[0] * 2, s[1] + 1), (x, y)),
        (X, PLANE),
        "its carries run along different axes",
    ),
    "computed places": (
        lambda x: lax.fori_loop(0, 3, lambda i, v: v + v[i], x),
        (X,),
        "its body reads the carry at computed indices",
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

    return partition(legalise(passes.run(fuser.jit(function).trace(*args).graph), get("c")), get("c"))


def test_what_joins_and_what_does_not() -> None:
    """A reduction of the result, a shifted read of it and a second loop are kernels of their own, for these reasons."""

    def loop(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, v: v * 0.5 + i, x)

    total = planned(lambda x: loop(x).sum(), X)
    assert kinds(total) == [Kind.LOOP, Kind.REDUCTION]
    assert [d.reason for d in total.decisions] == [
        "a reduction needs the results of many lanes, and each lane runs the loop by itself"
    ]
    shifted = planned(lambda x: fnp.sin(fnp.flip(loop(x))), X)
    assert [d.reason for d in shifted.decisions] == ["it reads the loop's result at shifted or reshaped indices"]
    twice = planned(lambda x: loop(fnp.sin(loop(x))), X)
    assert kinds(twice) == [Kind.LOOP, Kind.LOOP]
    assert [d.reason for d in twice.decisions] == ["a kernel holds one loop"]
    steps = planned(lambda x: fnp.sin(lax.scan(lambda c, _: (c * 0.5, c), x, None, length=4)[1]), X)
    assert [d.reason for d in steps.decisions] == [
        "it reads elements of the loop's result that one lane holds together or that iterations leave behind"
    ]


def test_explain_and_the_costs_of_a_loop() -> None:
    """Iterations are told where they are known; arithmetic and bytes count them all."""
    x = X
    plan = planned(lambda x: lax.fori_loop(0, 7, lambda i, v: v * 0.5 + 1, x), x)
    assert "one kernel with its loop inside, 7 iterations: scan, " in plan.explain()
    assert plan.groups[0].flops in (2 * 300 * 7, (2 * 300 + 1) * 7)  # the counter may be dropped
    assert plan.groups[0].ideal_bytes == 2 * x.nbytes
    plan = planned(lambda x: lax.while_loop(lambda s: s[1] < 5, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0)), x)
    assert "as many iterations as each lane needs, arithmetic counted for one" in plan.explain()
    assert "mul" in plan.groups[0].ops and "lt" in plan.groups[0].ops


def test_lines_of_the_body_are_told() -> None:
    """Explanations and kernels name the lines of the body, not that of the loop alone."""

    def step(i: Any, v: Any) -> Any:
        return fnp.sin(v)

    plan = planned(lambda x: lax.fori_loop(0, 3, step, x), X)
    assert any(source.function == "step" for source in plan.groups[0].sources)
    assert "(step)" in plan.explain()


def test_fuel_takes_loops_apart() -> None:
    """Without fuel a loop is control flow, so that a wrong loop kernel can be told from the rest."""
    function, args = ONE_KERNEL["mandelbrot"]
    with config.using(fuel=0):
        assert Kind.LOOP not in kinds(partition_of(function, args))


def test_one_iteration_and_a_consumer_of_its_result() -> None:
    """Even a single iteration's result is not the carry after the loop."""
    scanned = stage(lambda c, x: [c * 0.5 + x, c - x], [ArrayType((5,), np.dtype("float32"))] * 2)
    params = {"jaxpr": scanned, "num_consts": 0, "num_carry": 1, "length": 1, "reverse": False, "unroll": 1}
    x = X[:5]
    with config.using(fuel=-1):
        graph = stage(lambda c, xs: [fnp.sin(bind(scan_p, c, xs, **params)[1])], [x_type(x), x_type(x[None])])
        plan = partition(legalise(graph, get("c")), get("c"))
    assert kinds(plan) == [Kind.LOOP, Kind.ELEMENTWISE]


def x_type(x: np.ndarray) -> ArrayType:
    return ArrayType(x.shape, x.dtype)


@pytest.mark.slow
def test_a_long_body() -> None:
    """A chain of a thousand equations is followed to its end; one too long for a kernel is told so."""

    def chain(x: Any, steps: int) -> Any:
        def step(i: Any, v: Any) -> Any:
            for k in range(steps):
                v = v * 0.5 + k
            return v

        return lax.fori_loop(0, 3, step, x)

    assert kinds(partition_of(lambda x: chain(x, 500), (X,))) == [Kind.LOOP]
    plan = partition_of(lambda x: chain(x, 2000), (X,))
    assert "unrolled, one iteration has more than 3000 operations" in plan.explain()


def nest(depth: int) -> Callable[[Any], Any]:
    """Loops of two steps within each other, each of which adds up a vector of eight."""
    if depth == 0:
        return lambda x: fnp.sin(x) * 0.5
    inner = nest(depth - 1)

    def step(carry: Any, _: Any) -> Any:
        carry = inner(carry + 1.0)
        return carry, carry.sum()

    def run(x: Any) -> Any:
        out, sums = lax.scan(step, x, None, length=2)
        return out * 0.5 + sums[0]

    return run


def nested(depth: int, x: np.ndarray) -> np.ndarray:
    """What `nest` computes, in double precision."""
    if depth == 0:
        return np.sin(x) * 0.5
    sums = []
    for _ in range(2):
        x = nested(depth - 1, x + 1)
        sums.append(x.sum())
    return x * 0.5 + sums[0]


def test_elements_of_a_vector_that_a_loop_in_the_body_folds_are_computed_once() -> None:
    x = np.linspace(-1, 1, 8, dtype=F32)
    lowered = fuser.jit(nest(3)).lower(x)
    assert kinds(lowered.plan)[:1] == [Kind.LOOP], lowered.plan.explain()
    assert lowered.sources[0].text.count("sin_f32(") == 4  # not once more for each element
    np.testing.assert_allclose(fuser.jit(nest(3))(x), nested(3, x.astype(np.float64)), rtol=1e-5)


def test_a_long_nest_calls_its_inner_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(-1, 1, 8, dtype=F32)
    plan = fuser.jit(nest(6)).lower(x).plan
    assert "unrolled, one iteration of its nest has more than 300 operations" in plan.explain()
    monkeypatch.setattr(loop, "MOST_OF_NESTS", 30)
    assert kinds(planned(nest(3), x))[:1] == [Kind.CONTROL]
    np.testing.assert_allclose(fuser.jit(nest(3))(x), nested(3, x.astype(np.float64)), rtol=1e-5)


def rotations(turns: Any) -> tuple[Any, Any]:
    """A unit quaternion turned in each iteration: a state of four numbers, written out whole, and its square's matrix."""

    def step(q: Any, turn: Any) -> tuple[Any, Any]:
        angle = fnp.linalg.norm(turn) + 1e-6
        w, (x, y, z) = fnp.cos(angle), fnp.sin(angle) * turn / angle
        left = fnp.stack(
            [fnp.stack([w, -x, -y, -z]), fnp.stack([x, w, z, -y]), fnp.stack([y, -z, w, x]), fnp.stack([z, y, -x, w])]
        )
        q = left @ q
        q = q / fnp.linalg.norm(q)
        return q, (q, fnp.outer(q, q))

    return lax.scan(step, fnp.array([1.0, 0, 0, 0], F32), turns)[1]


@pytest.mark.parametrize("count", [20, 37])
def test_lanes_are_those_of_the_state_where_what_is_written_has_more_axes(count: int) -> None:
    """Not one lane for each number that is written, which would follow the whole state again."""
    turns = RNG.standard_normal((count, 30, 3)).astype(F32)
    plan = planned(fuser.vmap(rotations), turns)
    loops = [group for group in plan.groups if group.kind is Kind.LOOP]
    assert [[axis.extent for axis in group.parallel] for group in loops] == [[count]], plan.explain()
    squares = lambda turns: sum((y**3).sum() for y in fuser.vmap(rotations)(turns))
    gradient = fuser.jit(fuser.grad(squares))
    assert all(
        axis.extent in (count, 30)
        for g in gradient.lower(turns).plan.groups
        if g.kind is Kind.LOOP
        for axis in g.parallel
    )
    exact = fuser.jit(fuser.grad(squares), backend="reference")(turns)
    np.testing.assert_allclose(gradient(turns), exact, 1e-3, 1e-4)
