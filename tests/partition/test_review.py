"""Kernels that estimates take apart: which ones, which not, and that results stay as they were."""

from __future__ import annotations

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser.partition.group import Kind, Plan

F32 = np.float32
RNG = np.random.default_rng(0)


def kinds(plan: Plan) -> list[Kind]:
    return [group.kind for group in plan.groups]


def refused(plan: Plan) -> list[str]:
    return [d.reason for d in plan.decisions if d.reason.startswith("in one kernel they take")]


def high(x):
    y = fnp.tanh(fnp.log1p(fnp.log1p(fnp.abs(x))))
    return y > fnp.max(y, axis=0, keepdims=True) * 0.5


def test_dear_functions_are_not_computed_again_for_each_run_over_the_rows() -> None:
    """A reduction across rows keeps values in a result of their type alone: without, storing them takes less than computing them twice."""
    x = RNG.standard_normal((1000, 1000)).astype(F32)
    plan = fuser.jit(high).lower(x).plan
    first, *others = plan.groups
    assert first.kind is Kind.REDUCTION and {group.kind for group in others} == {Kind.ELEMENTWISE}
    assert not {"log1p", "tanh"}.intersection(op for group in others for op in group.ops)
    assert refused(plan)
    y = np.tanh(np.log1p(np.log1p(np.abs(x.astype(np.float64)))))
    threshold = y.max(0, keepdims=True) * 0.5
    clear = np.abs(y - threshold) > 1e-5
    np.testing.assert_array_equal(np.asarray(fuser.jit(high)(x))[clear], (y > threshold)[clear])


def test_what_waits_in_a_result_is_computed_once() -> None:
    """Across rows, in the memory of the result that the last run writes."""

    def f(x):
        y = fnp.tanh(x)
        return y - fnp.max(y, axis=0, keepdims=True)

    plan = fuser.jit(f).lower(RNG.standard_normal((1000, 1000)).astype(F32)).plan
    assert kinds(plan) == [Kind.REDUCTION]
    assert not refused(plan)


def test_cheap_functions_are() -> None:
    """Computing a square again takes less than to store it."""

    def f(x):
        return x * x - fnp.max(x * x, axis=0, keepdims=True)

    plan = fuser.jit(f).lower(RNG.standard_normal((1000, 1000)).astype(F32)).plan
    assert kinds(plan) == [Kind.REDUCTION]


def test_rows_that_are_kept_stay_one_kernel() -> None:
    """Along memory, a row's values wait in the cache for the next run."""

    def f(x):
        e = fnp.exp(x - fnp.max(x, axis=1, keepdims=True))
        return e / fnp.sum(e, axis=1, keepdims=True)

    plan = fuser.jit(f).lower(RNG.standard_normal((512, 512)).astype(F32)).plan
    assert kinds(plan) == [Kind.REDUCTION]
    assert not refused(plan)


def test_a_scan_does_not_divide_for_the_position_of_each_element() -> None:
    """A transposed, reshaped operand is read in strips by elementwise loops, and by dividing inside of a scan."""

    def f(x):
        y = fnp.reshape(fnp.transpose(x, (1, 0, 2)), (5400, 30)).T
        return fnp.cumsum(fnp.where(y > 0, y * 0.5, y), axis=0)

    x = RNG.standard_normal((60, 90, 30)).astype(F32)
    plan = fuser.jit(f).lower(x).plan
    assert kinds(plan) == [Kind.ELEMENTWISE, Kind.SCAN]
    assert plan.groups[0].ops.count("select_n") == 1  # with its comparison, in the order of the program
    y = x.astype(np.float64).transpose(1, 0, 2).reshape(5400, 30).T
    expected = np.cumsum(np.where(y > 0, y * 0.5, y), axis=0)
    np.testing.assert_allclose(fuser.jit(f)(x), expected, rtol=1e-5, atol=1e-4)


def test_what_keeps_rows_apart_stays_out_of_scans_along_rows_too_short_for_vectors() -> None:
    """Such a scan would run one number after the other, and so would what stands beside it in its loop: rows of an array made of every
    second number lie beside each other."""

    def f(x):
        return fnp.exp(fnp.minimum(fnp.cumsum(fnp.where(x > 0, x * 0.5, x), axis=1), 5))

    short, long = (RNG.standard_normal(shape).astype(F32) * F32(0.1) for shape in ((3000, 8), (300, 80)))
    steps = lambda x: f(x[:, ::2])
    plan = fuser.jit(steps).lower(np.repeat(short, 2, 1)).plan
    assert kinds(plan) == [Kind.ELEMENTWISE, Kind.SCAN] and "exp" in plan.groups[-1].ops
    assert refused(plan)
    assert kinds(fuser.jit(f).lower(long).plan) == kinds(fuser.jit(f).lower(short).plan) == [Kind.SCAN]
    for function, x, given in ((f, short, short), (steps, short, np.repeat(short, 2, 1)), (f, long, long)):
        y = x.astype(np.float64)
        expected = np.exp(np.minimum(np.cumsum(np.where(y > 0, y * 0.5, y), axis=1), 5))
        np.testing.assert_allclose(fuser.jit(function)(given), expected, rtol=1e-5)


def test_small_kernels_are_left_alone() -> None:
    """What could be lost is less than the estimates are worth."""
    plan = fuser.jit(high).lower(RNG.standard_normal((20, 20)).astype(F32)).plan
    assert kinds(plan) == [Kind.REDUCTION]


def test_elementwise_work_stays_out_of_sums_over_rows_of_few_columns() -> None:
    """Eight columns are half a vector: several rows are summed at once where nothing is stored beside, and one by one elsewhere."""
    x = np.ones((3000, 8), np.float32)
    rolled = lambda x: (fnp.roll(x, 2, 0), fnp.minimum(x, fnp.roll(x, 2, 0)), x.sum(0))
    assert len(fuser.jit(rolled, backend="c").lower(x).plan.groups) == 2
    wide = lambda x, y: fnp.minimum(x, y).sum(0)
    assert len(fuser.jit(wide, backend="c").lower(x, x).plan.groups) == 1


def test_rows_of_a_transposed_array_at_computed_indices_are_read_where_they_lie() -> None:
    """A gathered row of a transposed array is a column, which has no tiles: each number comes with a line of memory."""

    def f(x, rows):
        return (x.T * 2 + 1)[rows] * 3

    x = RNG.standard_normal((512, 512)).astype(F32)
    rows = RNG.integers(0, 512, 256).astype(np.int32)
    plan = fuser.jit(f).lower(x, rows).plan
    assert kinds(plan) == [Kind.ELEMENTWISE, Kind.ELEMENTWISE]
    assert refused(plan)
    np.testing.assert_array_equal(fuser.jit(f)(x, rows), f(x, rows))
    assert len(fuser.jit(lambda x, rows: (x * 2 + 1)[rows] * 3).lower(x, rows).plan.groups) == 1


def test_values_of_a_row_are_not_computed_for_each_element_where_that_shows() -> None:
    """A dear function of a vector that all rows share is a kernel of its own; what is cheap beside what moves stays."""

    def f(x, v, cheap):
        return x * x + (v * 2 if cheap else fnp.log1p(fnp.tanh(v) ** 2))

    x, v = RNG.standard_normal((2000, 50)).astype(F32), RNG.standard_normal(50).astype(F32)
    assert kinds(fuser.jit(lambda x, v: f(x, v, False)).lower(x, v).plan) == [Kind.ELEMENTWISE] * 2
    assert kinds(fuser.jit(lambda x, v: f(x, v, True)).lower(x, v).plan) == [Kind.ELEMENTWISE]
    wanted = x.astype(np.float64) ** 2 + np.log1p(np.tanh(v.astype(np.float64)) ** 2)
    np.testing.assert_allclose(fuser.jit(lambda x, v: f(x, v, False))(x, v), wanted, rtol=2e-6)


def test_parts_are_priced_in_the_memory_of_the_whole() -> None:
    """Each part's arrays fit the second cache, and all of them do not: between two calls none of them stays there."""

    def f(x, v, rows):
        y = x[rows]
        chosen = fnp.where(y > 0, y * 0.5, v)
        return y - y.mean(0) * 0.5, -chosen

    x, v = RNG.standard_normal((2000, 64)).astype(F32), RNG.standard_normal(64).astype(F32)
    rows = RNG.integers(0, 2000, 1000).astype(np.int32)
    assert kinds(fuser.jit(f).lower(x, v, rows).plan) == [Kind.REDUCTION]
    y = x.astype(np.float64)[rows]
    first, second = fuser.jit(f)(x, v, rows)
    np.testing.assert_allclose(first, y - y.mean(0) * 0.5, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, -np.where(y > 0, y * 0.5, v), rtol=1e-6)
