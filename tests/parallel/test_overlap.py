"""Collectives between processes in two steps: where they start and end, and that the numbers stay (test_processes.py runs them)."""

from __future__ import annotations

from typing import Any

import numpy as np
from parallel_agreement import mesh_of

import fuser
import fuser.numpy as fnp
from fuser import NamedSharding, P
from fuser.ir.check import check
from fuser.parallel.network import LINKS
from fuser.parallel.overlap import overlap_collectives
from fuser.parallel.passes import fewer_collectives
from fuser.parallel.traffic import messages


def order_of(graph: Any) -> list[str]:
    """The products and the collectives' steps, in order."""
    short = {"collective_start": "start", "collective_done": "done", "dot_general": "dot"}
    return [
        short.get(e.primitive.name, e.primitive.name)
        for e in graph.eqns
        if e.primitive.name in (*short, "all_gather", "psum", "collective_group")
    ]


def test_weights_are_gathered_while_the_layer_before_computes() -> None:
    """Fully sharded layers: the second gather starts before the first product; no more than two are under way."""
    mesh = mesh_of(fuser, x=8)
    put = lambda value, *spec: fuser.device_put(value, NamedSharding(mesh, P(*spec)))
    layers = [put(np.ones((64, 64), np.float32), "x") for _ in range(5)]
    x = put(np.ones((16, 64), np.float32), "x")

    def forward(ws: Any, x: Any) -> Any:
        for w in ws:
            x = fnp.tanh(x @ fuser.lax.with_sharding_constraint(w, NamedSharding(mesh, P())))
        return x

    lowered = fuser.jit(forward).lower(layers, x)
    plain = fewer_collectives(lowered.spread.graph, mesh.shape)
    assert order_of(plain) == ["all_gather", "dot"] * 5
    split = overlap_collectives(plain)
    check(split)
    each = ["start", "dot", "done"]
    assert order_of(split) == ["start", "all_gather", *each, *each, *each, "dot", "done", "dot"]
    sent = lambda graph: sum(m.sent_bytes * m.times for m in messages(graph, dict(mesh.shape)))
    assert sent(split) == sent(plain)


def test_a_sum_that_is_needed_at_once_stays_one_step() -> None:
    mesh = mesh_of(fuser, x=8)
    f = fuser.jit(
        fuser.shard_map(lambda a: fuser.lax.psum(fnp.sin(a), "x") * 2, mesh=mesh, in_specs=P("x"), out_specs=P())
    )
    graph = f.lower(np.ones(8, np.float32)).spread.graph
    assert order_of(overlap_collectives(graph)) == order_of(graph)


def test_a_sum_overlaps_what_does_not_need_it_in_loops_too() -> None:
    mesh = mesh_of(fuser, x=8)

    def one(a: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            total = fuser.lax.pmax(c, "x")
            return fnp.tanh(c @ c) + total, None

        return fuser.lax.scan(body, a, None, length=3)[0]

    f = fuser.jit(fuser.shard_map(one, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    graph = overlap_collectives(f.lower(np.ones((64, 8), np.float32)).spread.graph)
    check(graph)
    (scan,) = [e for e in graph.eqns if e.primitive.name == "scan"]
    assert order_of(scan.params["jaxpr"]) == ["start", "dot", "done"]


def gradients(width: int) -> Any:
    """The graph of one of eight devices of a data-parallel step over six layers."""
    mesh = mesh_of(fuser, x=8)
    of = lambda spec, *shape: fuser.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, spec))

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = fnp.tanh(x @ w)
        return (x**2).mean()

    def step(ws: Any, x: Any) -> Any:
        return fuser.tree.map(lambda w, s: w - 0.1 * s, ws, fuser.grad(loss)(ws, x))

    layers = [of(P(), width, width) for _ in range(6)]
    return mesh, fuser.jit(step).lower(layers, of(P("x"), 64, width)).spread.graph


def test_sums_of_gradients_travel_in_buckets_while_other_layers_compute() -> None:
    mesh, graph = gradients(2048)  # 16 MB a layer
    assert order_of(fewer_collectives(graph, mesh.shape))[-1] == "collective_group"
    split = fewer_collectives(graph, mesh.shape, LINKS["ethernet"], in_steps=True)
    check(split)
    order = order_of(split)
    backward = order[order.index("start") :]
    assert backward == ["start", "dot", "dot", "start", *["dot", "dot", "done", "start"] * 4, "done", "done"]
    under_way = np.cumsum([{"start": 1, "done": -1}.get(o, 0) for o in order])
    assert under_way.max() == 2 and under_way[-1] == 0


def test_small_sums_wait_for_each_other() -> None:
    mesh, graph = gradients(64)
    order = order_of(fewer_collectives(graph, mesh.shape, LINKS["ethernet"], in_steps=True))
    assert order[-1] == "collective_group" and "start" not in order


def test_gathers_of_what_a_loop_does_not_change_move_out_of_it() -> None:
    mesh = mesh_of(fuser, x=8)
    put = lambda value, *spec: fuser.device_put(value, NamedSharding(mesh, P(*spec)))

    def layers(w: Any, x: Any) -> Any:
        whole = lambda: fuser.lax.with_sharding_constraint(w, NamedSharding(mesh, P()))
        return fuser.lax.scan(lambda c, _: (fnp.tanh(c @ whole()), None), x, None, length=4)[0]

    square = np.ones((64, 64), np.float32)
    graph = fuser.jit(layers).lower(put(square, "x"), put(square[:16], "x")).graph
    assert [e.primitive.name for e in graph.eqns] == ["all_gather", "scan"]
    assert next(messages(graph, dict(mesh.shape))).times == 1
