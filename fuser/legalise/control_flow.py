"""What partition does for control flow: its bodies as graphs to be planned, and its operands dense in memory.

A while becomes a test that gives one bool to go on by and a body; where its predicate has a shape, the test also gives
the lanes that still run, and the body, which takes them first, leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.ir.graph import Eqn, Graph, Literal, Operand
from fuser.ir.primitive import Control, Fusion
from fuser.legalise.copies import with_copies
from fuser.legalise.gemv_to_reduce import gemv_to_reduce
from fuser.ops.elementwise import select_n_p
from fuser.ops.movement import broadcast_in_dim_p
from fuser.ops.reduce import reduce_or_p
from fuser.partition.axes import Views
from fuser.partition.in_place_updates import updates_in_place
from fuser.trace.replay import replay
from fuser.trace.stage import stage


def bodies(eqn: Eqn, native: bool) -> dict[str, Graph]:
    """The graphs that a control equation runs, by what they are. Native loops update carries in place."""
    params = eqn.params
    if eqn.primitive.control is Control.SCAN:
        return {"body": gemv_to_reduce(updates_in_place(eqn).body) if native else params["jaxpr"]}
    if eqn.primitive.control is Control.COND:
        return {f"branch{n}": branch for n, branch in enumerate(params["branches"])}
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    if not test.out_avals[0].shape:
        return {"test": test, "body": gemv_to_reduce(updates_in_place(eqn).body) if native else body}
    return {"test": _going_on(test), "body": _by_lane(test, body, params["body_nconsts"])}


def changed_inputs(eqn: Eqn) -> list[range]:
    """Of each graph that a control equation runs, not natively, the inputs in whose memory its results may come to lie."""
    if eqn.primitive.control is Control.COND:
        return [range(len(eqn.invars) - 1)] * len(eqn.params["branches"])
    count = len(eqn.outvars)
    if eqn.primitive.control is Control.SCAN:
        first, count = eqn.params["num_consts"], eqn.params["num_carry"]
        return [range(first, first + count)]
    if eqn.params["cond_jaxpr"].out_avals[0].shape:
        return [range(0), range(0)]
    first = eqn.params["body_nconsts"]
    return [range(0), range(first, first + count)]


def _going_on(test: Graph) -> Graph:
    """The predicate with one bool in front: whether any lane still runs."""

    def function(*inputs: Any) -> list[Any]:
        [lanes] = replay(test, *inputs)
        return [reduce_or_p.bind(lanes, axes=tuple(range(lanes.ndim))), lanes]

    return stage(function, test.in_avals, test.name)


def _by_lane(test: Graph, body: Graph, consts: int) -> Graph:
    """The body behind the lanes that still run: the others keep their carry."""
    [predicate] = test.out_avals

    def function(lanes: Any, *inputs: Any) -> list[Any]:
        return [_chosen(lanes, new, old) for new, old in zip(replay(body, *inputs), inputs[consts:])]

    return stage(function, [predicate, *body.in_avals], body.name)


def _chosen(lanes: Any, new: Any, old: Any) -> Any:
    kept = tuple(range(lanes.ndim))
    if old.shape != lanes.shape:
        lanes = broadcast_in_dim_p.bind(lanes, shape=old.shape, broadcast_dimensions=kept)
    return select_n_p.bind(lanes, old, new)


def with_dense_operands(graph: Graph, general: Callable[[Eqn], bool]) -> Graph:
    """The graph with a copy of each operand of `general` control flow that is a view not dense in memory."""

    def dense(operand: Operand, views: Views) -> bool:
        return isinstance(operand, Literal) or (views(operand).dense and views(operand).source is not None)

    return with_copies(graph, lambda eqn: eqn.primitive.fusion is Fusion.CONTROL and general(eqn), dense)
