"""Merges that would cost more than they save: what each does to the machine, and which plan comes of it."""

from __future__ import annotations

import math

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser.ops.movement import pad_p
from fuser.partition.group import Kind

RNG = np.random.default_rng(0)


def test_what_lies_in_another_order_stands_beside_one_array_and_no_more() -> None:
    """In tiles, each further array would be read and written a tile's row at a time."""

    def three(x):
        y = fnp.tanh(x)
        return y, fnp.minimum(y, x), y.T

    plan = fuser.jit(three).lower(np.zeros((1000, 900), np.float32)).plan
    assert len(plan.groups) == 2
    assert any("in tiles beside what lies in another order" in decision.reason for decision in plan.decisions)
    assert len(fuser.jit(lambda x: fnp.tanh(x).T).lower(np.zeros((1000, 900), np.float32)).plan.groups) == 1


def test_reshapes_that_keep_the_order_divide_nothing() -> None:
    """However many stand between element by element operations: offsets are then the same in all of them."""
    x, y, b = (RNG.standard_normal(shape).astype(np.float32) for shape in (1 << 16, (512, 128), (128,)))
    chain = lambda x, y: (
        fnp.tanh((fnp.exp((x * 2).reshape(-1, 128)) + y).reshape(-1)).reshape(64, -1) * x.reshape(64, -1)
    )
    summed = lambda x, y: fnp.abs(fnp.exp((x + 1).reshape(256, 256)).reshape(512, 128) - y).reshape(-1, 8, 32).sum(-1)
    over_columns = lambda x, b: fnp.tanh((fnp.exp((x * 2).reshape(-1, 128)) + b).reshape(-1)) * 3
    assert len(fuser.jit(chain).lower(x, y).plan.groups) == len(fuser.jit(summed).lower(x, y).plan.groups) == 1
    assert any("dividing" in decision.reason for decision in fuser.jit(over_columns).lower(x, b).plan.decisions)
    wide = x.astype(np.float64)
    wanted = np.tanh((np.exp((wide * 2).reshape(-1, 128)) + y).reshape(-1)).reshape(64, -1) * wide.reshape(64, -1)
    np.testing.assert_allclose(np.asarray(fuser.jit(chain)(x, y)), wanted, rtol=0, atol=1e-5)
    wanted = np.abs(np.exp((wide + 1).reshape(256, 256)).reshape(512, 128) - y).reshape(-1, 8, 32).sum(-1)
    np.testing.assert_allclose(np.asarray(fuser.jit(summed)(x, y)), wanted, rtol=1e-5)
    wanted = np.tanh((np.exp((wide * 2).reshape(-1, 128)) + b).reshape(-1)) * 3
    np.testing.assert_allclose(np.asarray(fuser.jit(over_columns)(x, b)), wanted, rtol=0, atol=1e-5)


def test_offsets_of_elements_are_not_divided() -> None:
    """A value in another shape that is made of rows and of matrices is stored rather than found by division."""

    def numbered(x, w):
        flat = (x - w).reshape(-1)
        return fnp.sin(flat) * fnp.arange(1_000_000, dtype=fnp.float32)

    plan = fuser.jit(numbered).lower(np.zeros((1000, 1000), np.float32), np.zeros(1000, np.float32)).plan
    assert any("dividing for each element's offset costs" in decision.reason for decision in plan.decisions)
    plain = fuser.jit(lambda x: (x + 1).reshape(-1) - (x + 1).reshape(-1).mean()).lower(
        np.zeros((1000, 1000), np.float32)
    )
    assert not any("dividing" in decision.reason for decision in plain.plan.decisions)


def test_an_array_that_many_gathered_elements_share_is_computed_before() -> None:
    """Two gathers and a quotient for each of many edges, or one gather of a quotient for each node."""
    nodes, edges = 390, 7800
    types = (np.ones(nodes, np.float32), np.ones(nodes, np.float32), np.ones(edges, np.int32))
    apart = fuser.jit(lambda rank, degree, at: (rank / degree)[at]).lower(*types)
    assert any("at 20 different indices; computing it again costs" in d.reason for d in apart.plan.decisions)
    once = fuser.jit(lambda rank, at: (rank * 2)[at]).lower(types[0], types[2])
    assert not once.plan.decisions


def test_numbers_of_one_lane_are_worth_vectors_from_a_size_on() -> None:
    """A loop over matrices of 3 by 3 holds them in registers; one over 8 by 8 runs products and functions as kernels."""

    def loop(a, s):
        return fuser.lax.fori_loop(0, 300, lambda i, s: fnp.tanh(a @ s) + 0.1 * s @ a, s + 0.1)

    for n, kind in ((3, "loop"), (8, "control")):
        x = np.random.default_rng(n).normal(size=(n, n)).astype(np.float32) * np.float32(n**-0.5)
        lowered = fuser.jit(loop).lower(x, x)
        assert kind in {group.kind.value for group in lowered.plan.groups}, lowered.plan.groups
        np.testing.assert_allclose(fuser.jit(loop)(x, x), fuser.jit(loop, backend="reference")(x, x), 1e-4, 1e-5)
    assert any("written out for one lane, an iteration takes" in d.reason for d in lowered.plan.decisions)


def test_elements_with_spaces_between_are_not_looked_for_in_reductions() -> None:
    """A pooling's gradient is stored before it is summed: the sums' loops would divide for each row's place."""

    def gradient(x):
        pooled = lambda x: fuser.lax.reduce_window(x, -np.inf, fuser.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
        back = fuser.grad(lambda x: (pooled(x) ** 2).sum())(x)
        return back.sum((0, 1, 2)), (back * x).sum((0, 1, 2))

    x = np.random.default_rng(0).normal(size=(8, 24, 24, 8)).astype(np.float32)
    plan = fuser.jit(gradient).lower(x).plan
    assert any("dividing for their places costs" in decision.reason for decision in plan.decisions)
    reduced = [group for group in plan.groups if group.kind is Kind.REDUCTION]
    assert reduced and not any(eqn.primitive is pad_p for group in reduced for eqn in group.graph.eqns)
    for a, b in zip(fuser.jit(gradient)(x), fuser.jit(gradient, backend="reference")(x)):
        np.testing.assert_allclose(a, b, 1e-4, 1e-4)


def test_what_is_reduced_beside_a_scan_along_memory_is_a_kernel_of_its_own() -> None:
    """Together both are done one number after the other; across memory, and before a scan, they are not."""
    x = np.zeros((400, 600), np.float32)
    plan = fuser.jit(lambda x: fnp.cumsum(x, 1).max(1)).lower(x).plan
    assert [group.kind for group in plan.groups] == [Kind.SCAN, Kind.REDUCTION]
    assert any("is done one number after the other, which costs" in decision.reason for decision in plan.decisions)
    for together in (lambda x: fnp.cumsum(x, 0).max(0), lambda x: fnp.cumsum(x - x.max(1, keepdims=True), 1)):
        assert len(fuser.jit(together).lower(x).plan.groups) == 1
    assert len(fuser.jit(lambda x: fnp.cumsum(x, 1).max(1)).lower(x[:1, :40]).plan.groups) == 1


def test_lanes_do_not_repeat_a_state_that_kernels_compute_once() -> None:
    """The best paths into each of twelve states, of which each lane would hold and follow all twelve."""

    def paths(steps, weights):
        def step(best, scores):
            through = best[:, :, None] + weights
            return through.max(1) + scores, through.argmax(1)

        return fuser.lax.scan(step, steps[0], steps[1:])

    random = np.random.default_rng(0)
    steps, weights = random.integers(0, 99, (9, 64, 12)), random.integers(0, 99, (12, 12))
    lowered = fuser.jit(paths).lower(steps.astype(np.float32), weights.astype(np.float32))
    assert Kind.LOOP not in {group.kind for group in lowered.plan.groups}
    assert any("written out for each of 64 lanes, an iteration takes" in d.reason for d in lowered.plan.decisions)
    best, places = steps[0], []
    for scores in steps[1:]:
        through = best[:, :, None] + weights
        best = through.max(1) + scores
        places.append(through.argmax(1))
    found = fuser.jit(paths)(steps.astype(np.float32), weights.astype(np.float32))
    np.testing.assert_array_equal(found[0], best)
    np.testing.assert_array_equal(found[1], places)


def test_lanes_that_repeat_functions_are_priced_however_few_they_are() -> None:
    """A partition function over 7 labels: each of 7 lanes would take all 49 exponentials of an iteration, and its logarithms."""

    def partition_function(scores, weights):
        step = lambda a, s: (fuser.nn.logsumexp(a[:, None] + weights, 0) + s, None)
        return fuser.nn.logsumexp(fuser.lax.scan(step, scores[0], scores[1:])[0])

    def loss(scores, weights):
        return fuser.vmap(partition_function, (0, None))(scores, weights).mean()

    gradient = fuser.value_and_grad(loss, (0, 1))
    scores, weights = (
        RNG.standard_normal((16, 20, 7)).astype(np.float32),
        RNG.standard_normal((7, 7)).astype(np.float32),
    )
    plan = fuser.jit(gradient).lower(scores, weights).plan
    exponentials = [group for group in plan.groups if group.kind is Kind.LOOP and "exp" in str(group.graph)]
    assert all(math.prod(a.extent for a in group.parallel) <= 16 for group in exponentials)
    found = fuser.tree_util.tree_leaves(fuser.jit(gradient)(scores, weights))
    for a, b in zip(found, fuser.tree_util.tree_leaves(fuser.jit(gradient, backend="reference")(scores, weights))):
        np.testing.assert_allclose(a, b, 1e-4, 1e-6)
