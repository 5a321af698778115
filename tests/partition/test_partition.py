"""What fuses and what must not, with the reason; bytes planned against ideal bytes; and that the plan's results are right."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import nn
from fuser.backends import get
from fuser.config import config
from fuser.debug.bisect import bisect
from fuser.ir.graph import Graph
from fuser.ir.types import ArrayType
from fuser.legalise import legalise
from fuser.ops import elementwise as E
from fuser.ops import reduce as R
from fuser.partition.group import FusionLimits, Kind, Plan
from fuser.partition.partition import partition
from fuser.trace.stage import stage

F32 = np.float32
RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 256)).astype(F32)
SQUARE = RNG.standard_normal((48, 48)).astype(F32)
ROW = RNG.standard_normal(256).astype(F32)
LABELS = RNG.integers(0, 256, 64).astype(np.int32)
ELEMENTWISE, REDUCTION, SCAN = Kind.ELEMENTWISE, Kind.REDUCTION, Kind.SCAN


def planned(function: Callable[..., Any], *args: Any) -> Plan:
    """The plan, once its results have been found to be right."""
    assert bisect(function, *args) is None
    return fuser.jit(function).lower(*args).plan


def kinds(plan: Plan) -> list[Kind]:
    return [kernel.kind for kernel in plan.kernels]


def moved(plan: Plan) -> int:
    return sum(kernel.ideal_bytes for kernel in plan.kernels)


def ideal(plan: Plan) -> int:
    """Each input that is used, and each output, once."""
    used = {v for eqn in plan.graph.eqns for v in eqn.operands()}
    inputs = [v for v in (*plan.graph.invars, *plan.graph.constvars) if v in used]
    return sum(v.aval.nbytes for v in (*inputs, *dict.fromkeys(plan.outputs)))


def reasons(plan: Plan) -> list[str]:
    return [decision.reason for decision in plan.decisions]


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / fnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w + b


def cross_entropy(x: Any, labels: Any) -> Any:
    return -(nn.one_hot(labels, x.shape[-1]) * nn.log_softmax(x)).sum(-1)


ONE_KERNEL: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (lambda x: nn.softmax(x, axis=-1), (X,)),
    "softmax of columns": (lambda x: nn.softmax(x, axis=0), (X,)),
    "softmax of a square": (lambda x: nn.softmax(x, axis=0), (SQUARE,)),
    "softmax over everything": (lambda x: nn.softmax(x, axis=(0, 1)), (X,)),
    "log softmax": (lambda x: nn.log_softmax(x), (X,)),
    "places and what is read there": (
        lambda x, i: (fnp.take_along_axis(x, (i + 1)[:, None], axis=1)[:, 0] - x.max(1), i + 1),
        (X, LABELS - 1),
    ),
    "logits of labels with their gradient": (
        lambda x, i: fuser.value_and_grad(lambda x: -fnp.take_along_axis(nn.log_softmax(x), i[:, None], axis=1).sum())(
            x
        )[1],
        (X, LABELS),
    ),
    "layer norm": (layer_norm, (X, ROW, ROW + 1)),
    "layer norm by var": (lambda x: (x - x.mean(-1, keepdims=True)) / fnp.sqrt(x.var(-1, keepdims=True) + 1e-5), (X,)),
    "rms norm": (lambda x, w: x * w / fnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6), (X, ROW)),
    "cross entropy": (cross_entropy, (X, LABELS)),
    "mean off columns": (lambda x: x - x.mean(axis=0), (X,)),
    "standard score of columns": (lambda x: (x - x.mean(axis=0)) / x.std(axis=0), (X,)),
    "mean off everything": (lambda x: x - x.mean(), (X,)),
    "row sum along its own axis": (lambda x: x + x.sum(axis=1)[:, None], (SQUARE,)),
    "several reductions": (lambda x: (x.sum(-1), x.max(-1), (x * x).mean(-1), x.argmax(-1)), (X,)),
    "logsumexp": (lambda x: nn.logsumexp(x, axis=-1), (X,)),
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_reduction_kernel_that_moves_each_byte_once(name: str) -> None:
    function, args = ONE_KERNEL[name]
    plan = planned(function, *args)
    assert kinds(plan) == [REDUCTION], plan.explain()
    assert moved(plan) == ideal(plan)
    assert not plan.decisions


ELEMENTWISE_KERNELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "chain": (lambda x: fnp.tanh(fnp.exp(x) * 2 + 1), (X,)),
    "broadcast row": (lambda x, w: x * w + 1, (X, ROW)),
    "transposed input": (lambda x: fnp.exp(x) + x.T, (SQUARE,)),
    "padded": (lambda x: fnp.pad(fnp.exp(x), 1), (X,)),
    "iota": (lambda x: x * fnp.arange(256), (X,)),
    "joined inputs": (lambda x: fnp.concatenate([x, x * 2]) + 1, (X,)),
    "stencil of an input": (lambda x: x[2:] + x[1:-1] + x[:-2], (ROW,)),
    "stencil of a cheap value": (lambda x: (x * 2)[1:] + (x * 2)[:-1], (ROW,)),
    "reversed": (lambda x: fnp.flip(fnp.exp(x), 0) + 1, (X,)),
    "reshaped": (lambda x: fnp.exp(x).reshape(-1) + 1, (X,)),
    "where": (lambda x: fnp.where(x > 0, x, fnp.exp(x) - 1), (X,)),
    "siblings": (lambda x: (fnp.sin(x), fnp.cos(x)), (X,)),
    "a view and what it views": (lambda x: (fnp.exp(x), fnp.exp(x).reshape(-1)), (X,)),
}


@pytest.mark.parametrize("name", ELEMENTWISE_KERNELS)
def test_one_elementwise_kernel(name: str) -> None:
    function, args = ELEMENTWISE_KERNELS[name]
    plan = planned(function, *args)
    assert kinds(plan) == [ELEMENTWISE], plan.explain()


def stencil(x: Any) -> Any:
    y = fnp.tanh(x)
    return y[2:] + y[1:-1] + y[:-2]


def both_ways(x: Any) -> Any:
    return fnp.cumsum(x, 1) + fnp.flip(fnp.cumsum(fnp.flip(fnp.exp(x), 1), 1), 1)


APART: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[Kind], str]] = {
    "a row sum along the other axis of a square": (
        lambda x: x + x.sum(axis=1)[None, :],
        (SQUARE,),
        [REDUCTION, ELEMENTWISE],
        "it uses the reduction's result over 48 more elements, which the kernel does not run over",
    ),
    "a computed value and its transpose": (
        lambda x: fnp.exp(x) + fnp.exp(x).T,
        (SQUARE,),
        [ELEMENTWISE, ELEMENTWISE],
        "it reads a value of the other along other axes",
    ),
    "sums over different axes": (
        lambda x: (x.sum(axis=0), x.sum(axis=1)),
        (SQUARE,),
        [REDUCTION, REDUCTION],
        "they reduce over different axes",
    ),
    "a sum of row sums": (
        lambda x: fnp.exp(x).sum(axis=1).max(),
        (X,),
        [REDUCTION, REDUCTION],
        "it reduces over rows, and so needs every row of the other first",
    ),
    "a costly value at shifted indices": (
        stencil,
        (np.zeros(4000, F32),),
        [ELEMENTWISE, ELEMENTWISE],
        "it reads a value at 3 different indices; computing it again costs ",
    ),
    "a costly value broadcast": (
        lambda x, w: x * fnp.exp(w),
        (X, ROW),
        [ELEMENTWISE, ELEMENTWISE],
        "the other is broadcast here; computing it again costs ",
    ),
    "scans that run in opposite directions": (
        both_ways,
        (SQUARE,),
        [SCAN, SCAN],
        "it reads a reduction of the other at shifted or reshaped indices",
    ),
    "a matrix product between": (
        lambda x: fnp.tanh(fnp.exp(x) @ x) + 1,
        (SQUARE,),
        [ELEMENTWISE, Kind.CONTRACTION],
        "a product reads each element of its operands many times, so they are computed before it",
    ),
    "a product that is repeated": (
        lambda x: fnp.broadcast_to(x @ x, (2, 48, 48)) * 2,
        (SQUARE,),
        [Kind.CONTRACTION, ELEMENTWISE],
        "it uses the product's result over 2 more elements, which the kernel does not run over",
    ),
}


@pytest.mark.parametrize("name", APART)
def test_what_must_not_fuse_and_why(name: str) -> None:
    function, args, expected, reason = APART[name]
    plan = planned(function, *args)
    assert kinds(plan) == expected, plan.explain()
    assert any(found.startswith(reason) for found in reasons(plan))
    assert reason in plan.explain()


@pytest.mark.parametrize("k", [1, 5, 3000])
def test_inner_products_of_complex_numbers_join_what_reads_them(k: int) -> None:
    """They are sums of products; four products of real vectors, whose epilogue repeated a single element, were a KeyError."""
    z = (RNG.standard_normal(k) + 1j * RNG.standard_normal(k)).astype(np.complex64)
    plan = planned(lambda z: (fnp.broadcast_to(z @ z, (3, 2)), fnp.abs(fnp.vdot(z, z)) ** 2), z)
    assert set(kinds(plan)) <= {REDUCTION, ELEMENTWISE, Kind.HORIZONTAL}, plan.explain()


def test_a_small_value_is_computed_again_where_a_kernel_would_cost_more() -> None:
    assert kinds(planned(stencil, ROW)) == [ELEMENTWISE]


def test_results_that_lie_across_a_reduction_are_written_by_a_kernel_of_their_own() -> None:
    """The sums run along the columns; the result lies along the rows."""
    x = RNG.standard_normal((300, 400)).astype(F32)
    plan = planned(lambda x: x.T - x.T.sum(axis=1, keepdims=True), x)
    assert kinds(plan) == [REDUCTION, ELEMENTWISE]
    assert any("across memory, which costs" in reason for reason in reasons(plan))


def scans_of_both_directions(x: Any) -> Any:
    from fuser.ops.cumulative import cumsum_p

    return E.add_p.bind(cumsum_p.bind(x, axis=1, reverse=False), cumsum_p.bind(x, axis=1, reverse=True))


def test_a_scan_and_its_reverse() -> None:
    plan = planned(scans_of_both_directions, SQUARE)
    assert kinds(plan) == [SCAN, SCAN]
    assert "one scan runs forwards and the other backwards" in reasons(plan)


def test_a_kernel_that_must_run_between() -> None:
    """What makes `x` and the sum could share a kernel, but the sort between them cannot."""

    def function(a: Any) -> Any:
        x = fnp.exp(a)
        return x + fnp.sort(x, axis=0)

    plan = planned(function, SQUARE)
    assert kinds(plan) == [ELEMENTWISE, Kind.LIBRARY, ELEMENTWISE]
    assert "another kernel must run between them" in reasons(plan)


def test_independent_programs_stay_apart() -> None:
    plan = planned(lambda x, y: (fnp.sin(x), fnp.cos(y)), X, X + 1)
    assert kinds(plan) == [ELEMENTWISE, ELEMENTWISE] and moved(plan) == ideal(plan)


def test_siblings_read_their_input_once() -> None:
    plan = planned(lambda x: (fnp.sin(x), fnp.cos(x).sum(-1)), X)
    assert kinds(plan) == [REDUCTION] and moved(plan) == ideal(plan)


def test_limits_of_a_backend_hold() -> None:
    class Small:
        name = "small"
        limits = FusionLimits(max_ops=3)

        def supports(self, eqn: Any) -> None:
            return None

    softmax = fuser.jit(lambda x: nn.softmax(x)).lower(X).graph
    plan = partition(legalise(softmax, Small()), Small())
    assert len(plan.groups) > 1
    chain = fuser.jit(lambda x: fnp.sin(fnp.cos(fnp.sin(fnp.cos(x))))).lower(X).graph
    assert "together they have more than 3 operations" in reasons(partition(legalise(chain, Small()), Small()))


def test_fuel_limits_the_merges() -> None:
    def groups(fuel: int) -> int:
        with config.using(fuel=fuel):
            return len(fuser.jit(lambda x: fnp.sin(fnp.cos(fnp.sin(fnp.cos(x))))).lower(X).plan.groups)

    assert [groups(fuel) for fuel in (0, 1, 2, 3, -1)] == [4, 3, 2, 1, 1]


# Outputs.


def test_an_input_returned_is_copied() -> None:
    """A result is an array of its own: taking over the argument's memory later must not change it."""
    plan = planned(lambda x: (x, x, x + 1), X)
    assert kinds(plan) == [ELEMENTWISE]
    assert len(set(plan.outputs)) == 3  # an array of its own for each: one may be donated or deleted, and the other not


def test_equal_results_are_computed_once() -> None:
    plan = planned(lambda x: (fnp.exp(x), fnp.exp(x)), X)
    assert plan.outputs[0] is plan.outputs[1] and moved(plan) == 2 * X.nbytes


def test_results_that_are_literals() -> None:
    first, second, third = fuser.jit(lambda x: (1.0, fnp.zeros((2, 0, 3)), fnp.full((3,), 7)))(X)
    assert (float(first), second.shape, third.tolist()) == (1.0, (2, 0, 3), [7, 7, 7])


def test_a_view_of_a_result_shares_its_memory() -> None:
    plan = planned(lambda x: fnp.exp(x).reshape(-1), X)
    assert list(plan.aliases) == [plan.outputs[0]] and moved(plan) == 2 * X.nbytes


def test_a_transposed_result_is_written_transposed() -> None:
    plan = planned(lambda x: fnp.exp(x).T, X)
    assert kinds(plan) == [ELEMENTWISE] and moved(plan) == 2 * X.nbytes


def test_an_input_that_nobody_reads() -> None:
    plan = planned(lambda x, y: x + 1, X, ROW)
    assert kinds(plan) == [ELEMENTWISE] and moved(plan) == 2 * X.nbytes


def test_no_outputs_no_groups() -> None:
    assert fuser.jit(lambda x: ())(X) == ()
    assert fuser.jit(lambda x: ()).lower(X).plan.groups == ()


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (2, 0, 3)])
def test_arrays_without_elements(shape: tuple[int, ...]) -> None:
    def function(x: Any) -> Any:
        return fnp.exp(x) + 1, x.sum(0), x.sum(), x.T, x.reshape(-1), fnp.concatenate([x, x]), fnp.cumsum(x, 0)

    assert bisect(function, np.zeros(shape, F32)) is None


def test_scalars_all_the_way() -> None:
    plan = planned(lambda x: (fnp.exp(x) + 1, x.sum(), x.reshape(1, 1)), np.float32(2))
    assert set(kinds(plan)) == {ELEMENTWISE}


def test_slots_end_with_their_last_reader() -> None:
    plan = planned(lambda x: fnp.tanh(fnp.exp(x) @ x), SQUARE)
    slots = {slot.index: slot for slot in plan.slots}
    between = plan.slot_of[plan.groups[0].graph.outvars[0]]  # type: ignore[index]
    assert (slots[between].start, slots[between].end) == (0, 1)
    assert slots[plan.slot_of[plan.outputs[0]]].end == len(plan.groups)  # type: ignore[index]


def test_a_donated_input_is_reused_only_where_it_is_safe() -> None:
    assert planned(lambda x: fnp.exp(x) + 1, X).reuse
    assert not planned(lambda x: fnp.exp(x) + x.T, SQUARE).reuse  # read elsewhere while it would be written
    assert not planned(lambda x: x > 0, X).reuse  # another size
    assert not planned(lambda x: x.sum(-1), X).reuse


def test_constants_are_inputs_of_kernels() -> None:
    table = fnp.asarray(ROW)
    plan = fuser.jit(lambda x: x * table).lower(X).plan
    assert len(plan.graph.constvars) == 1 and moved(plan) == 2 * X.nbytes + ROW.nbytes


# Words.


def test_explain_names_lines_and_reasons() -> None:
    text = fuser.jit(lambda x: fnp.exp(x) + fnp.exp(x).T).lower(SQUARE).plan.explain()
    assert "test_partition.py:" in text
    assert "Not fused:" in text and "it reads a value of the other along other axes" in text
    one = fuser.jit(lambda x: nn.softmax(x)).lower(X).plan.explain()
    assert "operations became 1 step on c" in one and "Not fused" not in one


# Growth.


def chain(length: int) -> Graph:
    """A program that has all kinds of groups: chains, reductions, siblings, broadcasts of results."""

    def function(x: Any, y: Any) -> list[Any]:
        kept = []
        for n in range(length // 8):
            x = E.add_p.bind(E.sin_p.bind(x), y)
            y = E.mul_p.bind(E.cos_p.bind(y), np.float32(n))
            total = R.reduce_sum_p.bind(E.mul_p.bind(x, y), axes=(1,))
            kept.append(E.exp_p.bind(total))
            if n % 7 == 6:
                x = E.max_p.bind(y, x)
        return [x, y, *kept[-5:]]

    return stage(function, [ArrayType((32, 32), np.dtype(F32))] * 2)


def processor_seconds(graphs: list[Graph], rounds: int = 6) -> list[float]:
    """The least processor time that each graph's partition took, in turns so that other work on the machine hits all."""
    backend = get("c")
    best = [float("inf")] * len(graphs)
    for _ in range(rounds):
        for number, graph in enumerate(graphs):
            start = time.process_time()
            partition(legalise(graph, backend), backend)
            best[number] = min(best[number], time.process_time() - start)
    return best


def test_partition_time_grows_in_proportion() -> None:
    """100, 400 and 1,600 equations: four times the work may take little more than four times as long."""
    small, middle, large = processor_seconds([chain(n) for n in (100, 400, 1600)])
    assert middle < 4 * 2.5 * small and large < 4 * 2.5 * middle


def test_cross_entropy_with_its_gradient_is_one_kernel() -> None:
    """Losses of rows and gradients come from one kernel; the mean over all rows is one number of a second."""

    def losses(logits: Any, labels: Any) -> Any:
        return -fnp.take_along_axis(nn.log_softmax(logits), labels[:, None], axis=1)[:, 0]

    rows = planned(lambda x, y: (losses(x, y), fuser.grad(lambda x: losses(x, y).sum())(x)), X, LABELS)
    assert kinds(rows) == [REDUCTION] and moved(rows) == ideal(rows)
    mean = planned(lambda x, y: fuser.value_and_grad(lambda x: losses(x, y).mean())(x), X, LABELS)
    assert kinds(mean) == [REDUCTION, REDUCTION]
    assert mean.groups[1].ideal_bytes == LABELS.size * 4 + 4
