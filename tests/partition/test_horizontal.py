"""Small kernels that share one launch: which do, which do not, what stays inside, and that results are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser import lax, passes
from fuser.backends.c.backend import C
from fuser.config import config
from fuser.debug.bisect import bisect, bisect_graph
from fuser.legalise import legalise
from fuser.partition.group import Kind, Plan
from fuser.partition.horizontal import levels, scopes
from fuser.partition.partition import partition
from fuser.trace import tree

F32 = np.float32
RNG = np.random.default_rng(0)
BUNDLE, ELEMENTWISE, REDUCTION, CONTRACTION = Kind.HORIZONTAL, Kind.ELEMENTWISE, Kind.REDUCTION, Kind.CONTRACTION


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F32)


def planned(function: Callable[..., Any], *args: Any) -> Plan:
    """The plan, once its results have been found to be right."""
    assert bisect(function, *args) is None
    return fuser.jit(function).lower(*args).plan


def kinds(plan: Plan) -> list[Kind]:
    return [group.kind for group in plan.groups]


LEAVES = {f"leaf{n}": floats(64, 32) if n % 2 else floats(33) for n in range(20)}


def adam(params: Any, grads: Any, m: Any, v: Any, t: Any) -> Any:
    m = {k: 0.9 * m[k] + 0.1 * grads[k] for k in m}
    v = {k: 0.999 * v[k] + 0.001 * grads[k] * grads[k] for k in v}
    first, second = 1 - 0.9**t, 1 - 0.999**t
    return {k: params[k] - 1e-3 * (m[k] / first) / (fnp.sqrt(v[k] / second) + 1e-8) for k in params}, m, v


def test_all_updates_of_an_optimizer_are_one_launch() -> None:
    squares = {k: leaf * leaf for k, leaf in LEAVES.items()}
    plan = planned(adam, LEAVES, LEAVES, LEAVES, squares, F32(3))
    assert kinds(plan) == [BUNDLE]
    assert len(plan.kernels) == 22  # two of them for the numbers that depend on the step
    assert plan.groups[0].ideal_bytes == 7 * sum(leaf.nbytes for leaf in LEAVES.values()) + 4


def test_equal_kernels_of_a_bundle_are_written_once() -> None:
    [source] = fuser.jit(lambda tree: {k: 2 * v for k, v in tree.items()}).lower(LEAVES).sources
    assert source.text.count("static void") == 1  # with the lengths as arguments
    assert source.text.count("(void *[])") == 20


def test_reductions_and_what_waits_for_them_share_a_launch() -> None:
    def clipped(tree: Any) -> Any:
        norm = fnp.sqrt(sum((v * v).sum() for v in tree.values()))
        return {k: v * fnp.minimum(1, 1 / norm) for k, v in tree.items()}, norm

    plan = planned(clipped, {k: LEAVES[k] for k in ("leaf0", "leaf1", "leaf2")})
    assert kinds(plan) == [BUNDLE]
    inside = {v for part in plan.groups[0].parts for v in part.graph.outvars} - set(plan.groups[0].graph.outvars)
    assert inside and not any(v in plan.slot_of for v in inside)


def test_a_temporary_too_large_for_the_stack_stays_inside() -> None:
    x = floats(4000)
    plan = planned(lambda x: (fnp.exp(x), fnp.exp(x)[::-1].cumsum(), fnp.cumsum(fnp.sin(x))[::-1] * 2), x)
    assert kinds(plan) == [BUNDLE]
    assert "block_at" in fuser.jit(lambda x: fnp.cumsum(fnp.sin(x))[::-1] * 2).lower(x).sources[0].text


def test_a_large_kernel_keeps_its_own_launch() -> None:
    large = floats(300, 400)
    plan = planned(lambda x, y, z: (fnp.exp(x), y + 1, fnp.sin(z)), large, floats(10), floats(20))
    assert sorted(k.value for k in kinds(plan)) == ["elementwise", "horizontal"]


def test_much_arithmetic_on_few_bytes_is_not_small() -> None:
    x, y = floats(2000), floats(2000)
    plan = planned(lambda x, y, z: ((x[:, None] * y).sum(1), z + 1), x, y, floats(10))
    assert kinds(plan) == [REDUCTION, ELEMENTWISE]


def test_what_a_large_kernel_stands_between_does_not_share_a_launch() -> None:
    def function(x: Any, w: Any) -> Any:
        scale = 1 / (x[0] * x[0]).sum()
        y = fnp.exp(w * scale)
        return y.sum(1).max() * 2, fnp.cumsum(x, 1)

    plan = planned(function, floats(4, 50), floats(300, 400))
    order = [kernel.ops for kernel in plan.kernels]
    assert all(len(group.parts) < 3 for group in plan.groups) and len(order) > 2


def test_chains_of_independent_steps_around_a_large_one() -> None:
    """The first half of the small work must run before the product, the other half after it."""

    def function(tree: Any, w: Any) -> Any:
        sums = sum(v.sum() for v in tree.values())
        product = (w * sums) @ w
        scaled = {k: v * product[0, 0] for k, v in tree.items()}
        return scaled, product

    w = floats(256, 256)
    plan = planned(function, {k: LEAVES[k] for k in ("leaf0", "leaf1", "leaf2", "leaf3")}, w)
    large = [n for n, kind in enumerate(kinds(plan)) if kind is not BUNDLE]
    bundles = [n for n, kind in enumerate(kinds(plan)) if kind is BUNDLE]
    assert len(bundles) == 2 and bundles[0] < min(large) < bundles[1]


class Independent(C):
    limits = replace(C.limits, horizontal_chains=False)


class Apart(C):
    limits = replace(C.limits, horizontal_parts=0)


class Pairs(C):
    limits = replace(C.limits, horizontal_parts=2)


def on(backend: C, function: Callable[..., Any], *args: Any) -> Plan:
    """The plan of a backend with other limits; its results are checked."""
    graph = fuser.jit(function).trace(*args).graph
    arrays = [np.ascontiguousarray(leaf).reshape(np.shape(leaf)) for leaf in tree.leaves(args)]
    assert bisect_graph(graph, arrays, backend) is None
    return partition(legalise(passes.run(graph), backend), backend)


def chain(tree: Any) -> Any:
    return {k: v / fnp.cumsum(v.reshape(-1))[-1] for k, v in tree.items()}


def test_a_backend_may_refuse_kernels_that_read_each_other() -> None:
    leaves = {k: LEAVES[k] for k in ("leaf0", "leaf1", "leaf2")}
    assert kinds(on(C(), chain, leaves)) == [BUNDLE]
    plan = on(Independent(), chain, leaves)
    assert kinds(plan) == [BUNDLE, BUNDLE]
    assert all(len(levels(group.parts)) == 1 for group in plan.groups)


def test_a_backend_without_bundles_has_none_and_one_with_pairs_has_pairs() -> None:
    assert BUNDLE not in kinds(on(Apart(), chain, LEAVES))
    plan = on(Pairs(), lambda tree: {k: v * 2 for k, v in tree.items()}, LEAVES)
    assert kinds(plan) == [BUNDLE] * 10


def test_bodies_of_native_loops_need_no_bundles() -> None:
    def function(x: Any) -> Any:
        return lax.fori_loop(0, 5, lambda i, c: (c[0] + c[0][::-1] * 0.5, c[1] + c[1][::-1]), (x, x[:70] * 2))

    plan = planned(function, floats(300))
    [group] = [group for group in plan.groups if group.kind is Kind.CONTROL]
    assert all(inner.kind is not BUNDLE for body in group.bodies for inner in body.groups)


def test_fuel_counts_the_parts_of_bundles() -> None:
    x, y = floats(100), floats(50)

    def steps(fuel: int) -> int:
        with config.using(fuel=fuel):
            plan = fuser.jit(lambda x, y: (fnp.sin(x), fnp.cos(y), fnp.exp(x[:9]))).lower(x, y).plan
        return len(plan.groups)

    assert [steps(n) for n in (0, 1, 2, -1)] == [3, 2, 1, 1]


def test_donated_leaves_give_their_memory_to_the_update() -> None:
    update = fuser.jit(lambda tree, by: {k: v - 0.1 * by[k] for k, v in tree.items()}, donate_argnums=0)
    leaves = {k: fnp.asarray(v) for k, v in LEAVES.items()}
    plan = update.lower(leaves, LEAVES).plan
    assert kinds(plan) == [BUNDLE] and len(plan.reuse) == len(LEAVES)
    result = update(leaves, LEAVES)
    for name, leaf in LEAVES.items():
        np.testing.assert_allclose(np.asarray(result[name]), leaf - F32(0.1) * leaf, rtol=1e-6)


def test_a_donated_leaf_that_another_part_reads_keeps_its_memory() -> None:
    x, y = floats(40), floats(30)
    function = fuser.jit(lambda x, y: (x * 2, y + x[:30], x[::-1].cumsum()), donate_argnums=0)
    plan = function.lower(x, y).plan
    assert kinds(plan) == [BUNDLE] and not plan.reuse
    np.testing.assert_allclose(np.asarray(function(fnp.asarray(x), y)[2]), x[::-1].cumsum(), rtol=1e-5)


def test_a_bundle_says_what_it_holds() -> None:
    plan = fuser.jit(lambda tree: {k: v * 2 for k, v in tree.items()}).lower(LEAVES).plan
    assert "20 small kernels in one launch" in plan.explain()
    found = fuser.explain(lambda tree: {k: v * 2 for k, v in tree.items()})(LEAVES)
    assert len(found.steps) == 1 and len(found.steps[0].inner) == 20


def test_parts_shared_out_to_threads_give_the_same_bits() -> None:
    leaves = {f"leaf{n}": floats(3000 + n) for n in range(24)}
    function = lambda tree: {k: fnp.tanh(fnp.exp(fnp.sin(v))) + v.sum() for k, v in tree.items()}
    [source] = fuser.jit(function).lower(leaves).sources
    assert "omp parallel for schedule(dynamic)" in source.text
    found = fuser.jit(function)(leaves)
    for name, leaf in leaves.items():
        alone = fuser.jit(lambda v: fnp.tanh(fnp.exp(fnp.sin(v))) + v.sum())(leaf)
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(alone))


def test_what_is_computed_again_waits_for_its_time() -> None:
    """Else the small kernels of all layers' backward passes run before the first of them, and keep their results until the last."""

    def layer(w: Any, x: Any) -> Any:
        for _ in range(3):
            x = fnp.tanh(x @ w)
        return x

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = again(w, x)
        return (x * x).sum()

    again = fuser.checkpoint(layer, policy=fuser.checkpoint_policies.dots_saveable)
    plan = planned(fuser.grad(loss), [floats(8, 8) for _ in range(4)], floats(16, 8))
    bundles = [group for group in plan.groups if group.kind is BUNDLE]
    assert len(bundles) == 4 and all(scopes(part) for bundle in bundles for part in bundle.parts)
    assert all(len({scopes(part) for part in bundle.parts}) == 1 for bundle in bundles)
