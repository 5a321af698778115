"""The cost model: figures by hand for a machine whose every figure is round, and what it must rank on a real one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import backends
from fuser.backends.c.target import TARGET
from fuser.ir.target import Level, Target
from fuser.kernel.cost import Estimate, estimate, shared
from fuser.kernel.lower import lower
from fuser.partition.group import FUSIBLE, kernel_groups
from fuser.report.estimate import estimated

# A nanosecond an addition; a byte a nanosecond from memory, nothing from 1,024 bytes near by; a microsecond a launch.
ROUND = Target(
    (Level(1024, math.inf), Level(1 << 20, 1e9), Level(math.inf, 1e9)),
    operations=1e9,
    strided=0,
    launch=1e-6,
    costs={"exp": 10.0},
    vector=16,
)


def kernels(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    plan = fuser.jit(function).lower(*arguments).plan
    return [lower(group) for group in plan.kernels if group.kind in FUSIBLE]


def only(function: Callable[..., Any], *arguments: Any) -> Estimate:
    (kernel,) = kernels(function, *arguments)
    found = estimate(kernel, ROUND)
    assert found is not None
    return found


def test_bytes_and_operations_by_hand() -> None:
    x = np.ones(4000, np.float32)
    found = only(lambda x: fnp.exp(x) + 1, x)
    assert found.memory == pytest.approx(2 * 16_000 * 1e-9)
    assert found.arithmetic == pytest.approx(
        4000 * (10 + 1 + 0.5 + 0.5) * 1e-9
    )  # a load and a store are half an addition
    assert found.launch == 1e-6
    assert found.seconds == pytest.approx(1e-6 + found.arithmetic) and found.limiter == "arithmetic"


def test_short_rows_side_by_side_are_padded_each() -> None:
    """Rows of 50, which a value of a column keeps apart, take as long as rows of 64; of the same numbers in one run none is padded."""
    target = replace(TARGET, launch=0.0, loop=0.0)

    def seconds(function: Callable[..., Any], columns: int) -> float:
        found = estimate(kernels(function, np.ones((30, 40, columns), np.float32))[0], target)
        assert found is not None
        return found.arithmetic

    with fuser.config.using(fuel=9):  # the price keeps the product out of the kernel
        apart = [seconds(lambda x: fnp.min(x, axis=0) * fnp.arange(float(x.shape[2])), n) for n in (50, 64)]
    run = [seconds(lambda x: fnp.min(x, axis=0), n) for n in (50, 64)]
    assert apart[0] == pytest.approx(apart[1])
    assert run[0] == pytest.approx(run[1] * 50 / 64)


def test_wide_numbers_take_as_long_as_several() -> None:
    with fuser.config.using(enable_x64=True):
        wide = only(lambda x: fnp.exp(x), np.ones(4000))
    narrow = only(lambda x: fnp.exp(x), np.ones(4000, np.float32))
    assert wide.arithmetic == pytest.approx(2 * narrow.arithmetic) and wide.memory == pytest.approx(2 * narrow.memory)


def test_what_a_row_shares_is_computed_once_a_row() -> None:
    x, rows = np.ones((100, 400), np.float32), np.ones(100, np.float32)
    alone = only(lambda x, rows: x * rows[:, None], x, rows)
    dear = only(lambda x, rows: x * fnp.floor(rows)[:, None], x, rows)
    assert dear.arithmetic - alone.arithmetic == pytest.approx(100 * 1e-9)


def test_arrays_near_by_cost_nothing() -> None:
    (kernel,) = kernels(lambda x: x + 1, np.ones(4000, np.float32))
    assert only(lambda x: x + 1, np.ones(100, np.float32)).memory == 0
    far = estimate(kernel, ROUND, since=[1e9, 1e9])
    assert far is not None and far.memory == pytest.approx(3 * 16_000 * 1e-9)  # what is written far away is read before


def test_loops_that_depend_on_values_have_no_estimate() -> None:
    compiled = (
        fuser.jit(lambda x: fuser.lax.while_loop(lambda c: c < 100, lambda c: c * 2, x)).lower(fnp.float32(1)).compile()
    )
    backend = backends.get("c")
    sources = dict(zip(kernel_groups(compiled.plan, backend.limits), compiled.sources))
    assert estimated(compiled.plan, backend.limits.target, sources) == [None]


def test_iterations_wait_for_each_other() -> None:
    def program(x: Any) -> Any:
        return fuser.lax.fori_loop(0, 1000, lambda i, c: fnp.sin(c) * 1.01, x)

    backend = backends.get("c")
    found = {}
    for lanes in (1, 64, 4096):
        compiled = fuser.jit(program).lower(fnp.ones(lanes)).compile()
        sources = dict(zip(kernel_groups(compiled.plan, backend.limits), compiled.sources))
        (found[lanes],) = estimated(compiled.plan, backend.limits.target, sources)
    assert found[1].limiter == "waiting" and found[1].seconds > 1000 * TARGET.latency
    assert found[64].seconds < 4 * found[1].seconds < found[4096].seconds


def test_several_workers_share_what_is_worth_it() -> None:
    long, short = Estimate(1e-6, 1e-3, 2e-4), Estimate(1e-6, 2e-6, 0)
    assert shared(long, TARGET, 2).seconds == pytest.approx(1e-6 + TARGET.fork + 5e-4)
    assert shared(short, TARGET, 2) is short and shared(long, TARGET, 1) is long


PROGRAMS = (  # from the shortest to the longest by far, whatever the machine
    (lambda x: x + 1, (1000,)),
    (lambda x: x + 1, (100_000,)),
    (lambda x: fnp.tanh(x), (100_000,)),
    (lambda x: fnp.tanh(x) ** 1.3, (400_000,)),
    (lambda x: fnp.cumsum(fnp.tanh(fnp.exp(x)), -1), (1_000, 4_000)),
)


def test_the_target_ranks_programs_of_very_different_length() -> None:
    times = []
    for function, shape in PROGRAMS:
        plan_kernels = kernels(function, np.ones(shape, np.float32))
        times.append(sum(e.seconds for e in (estimate(k, TARGET) for k in plan_kernels) if e is not None))
    assert times == sorted(times) and times[-1] > 1000 * times[0]


@pytest.mark.parametrize("count", [2, 12])
def test_pieces_of_one_column_are_computed_for_each_row(count: int) -> None:
    """A function of a row's position alone, in a piece of one column, runs once a row, in vectors along the rows."""
    x = np.ones((count, 1000), np.float32)
    (beside,) = kernels(lambda x: fnp.stack([fnp.exp(x[i]) for i in range(count)], 1), x)
    (whole,) = kernels(lambda x: fnp.exp(x), x)
    found, least = estimate(beside, TARGET), estimate(whole, TARGET)
    assert found is not None and least is not None
    assert least.arithmetic <= found.arithmetic < 2 * least.arithmetic


def test_rows_at_computed_indices_without_an_axis_side_by_side_come_with_lines_of_memory() -> None:
    """A column of a matrix larger than the nearest cache, at a computed place, has no tiles: a line for each number."""
    x, rows = np.ones((64, 64), np.float32), np.arange(64, dtype=np.int32)
    machine = replace(ROUND, tiled=1e-9)
    (flat,), (crossing,) = (kernels(f, x, rows) for f in (lambda x, r: x[r] * 2, lambda x, r: x.T[r] * 2))
    lines = 64 * 64 * machine.line * 1e-9
    assert estimate(crossing, machine).arithmetic > lines > 5 * estimate(flat, machine).arithmetic  # type: ignore[union-attr]
    (small,) = kernels(lambda x, r: x.T[r] * 2, x[:10, :10], rows[:10])  # in the nearest cache
    assert estimate(small, machine).arithmetic < 10 * 10 * machine.line * 1e-9  # type: ignore[union-attr]


@pytest.mark.parametrize("extent", (30, 64))
def test_short_rows_become_numbers_together(extent: int) -> None:
    """Many rows' vectors are halved side by side, which takes a part of making a number of each; dear values between cost as before."""
    x = np.ones((4000, extent), np.float32)
    (kernel,) = kernels(lambda x: fnp.prod(x, axis=1), x)
    found, elements = estimate(kernel, TARGET), x.size * 2 * TARGET.compute("reduce_prod", 4)
    assert found is not None and found.arithmetic < elements + 4000 * TARGET.combine / 2
    (few,) = kernels(lambda x: fnp.prod(x, axis=1), x[:32])
    slow = estimate(few, TARGET)
    assert slow is not None and slow.arithmetic > 32 * TARGET.combine


def test_elements_at_computed_indices_come_with_lines_of_memory() -> None:
    """Out of an array that the nearest cache does not hold; of a few rows, only those are touched."""
    x, rows = np.ones(128_000, np.float32), np.zeros(64_000, np.int32)
    (far,) = kernels(lambda x, rows: x[rows], x, rows)
    (near,) = kernels(lambda x, rows: x[rows], x[:1000], rows)
    both = [estimate(kernel, TARGET) for kernel in (far, near)]
    assert both[0] and both[1]
    lines = rows.size * TARGET.stream(TARGET.line, x.nbytes)
    assert both[0].arithmetic - both[1].arithmetic == pytest.approx(lines)
    matrix, few = np.ones((1000, 1000), np.float32), np.zeros(32, np.int32)
    found = estimate(kernels(lambda x, rows: x[rows], matrix, few)[0], TARGET)
    assert found is not None and found.memory < TARGET.stream(4 * 32 * 4000, 4 * 32 * 4000)


def test_divisions_of_computed_indices_are_counted() -> None:
    """An element of a transposed array, flat, is found by dividing what is computed."""
    x, rows = np.ones((2000, 64), np.float32), np.zeros(64_000, np.int32)
    found = [
        estimate(kernel, TARGET)
        for function in (lambda x, rows: x.T.reshape(-1)[rows], lambda x, rows: x.reshape(-1)[rows])
        for kernel in kernels(function, x, rows)
    ]
    assert found[0] and found[1]
    assert found[0].arithmetic - found[1].arithmetic >= rows.size * TARGET.compute("index_div", 4) * 0.99
