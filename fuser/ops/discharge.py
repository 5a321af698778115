"""Control flow over Refs by control flow over values: Refs that a body writes are carried along, others are constants.

`discharged(graph)` makes values of the Refs that a graph takes; the rules here do it to the bodies of `cond`, `scan` and
`while`, and to graphs that are called. Refs stand among the operands of a body that are constants, or that a scan walks along.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

from fuser.ir.graph import Eqn, Graph, graphs_in
from fuser.ir.references import AbstractRef
from fuser.ir.source import current_source
from fuser.ops.calls import custom_jvp_call_p, custom_vjp_call_p
from fuser.ops.control.cond import cond_p
from fuser.ops.control.scan import scan_p
from fuser.ops.control.while_loop import while_p
from fuser.ops.custom_vmap import custom_vmap_call_p
from fuser.ops.hi_primitive import call_hi_primitive_p
from fuser.ops.jit import jit_p
from fuser.ops.remat import kept_apart, remat_p
from fuser.ops.shard_map import on_devices, shard_map_p, whole
from fuser.ops.state import new_ref_p
from fuser.trace.body import close, pick, with_consts
from fuser.trace.cells import Cell, Outside, array_type
from fuser.trace.core import type_of
from fuser.trace.jvp import rule_over_ref
from fuser.trace.replay import bound, replay
from fuser.trace.stage import stage

CALLS = (custom_jvp_call_p, custom_vjp_call_p, custom_vmap_call_p, call_hi_primitive_p)


class Discharged(NamedTuple):
    """A graph without Refs: it takes `consts` first, then its inputs, for Refs what they hold; behind its results it gives what
    the `written` inputs hold at last."""

    graph: Graph
    consts: tuple[Any, ...]
    written: tuple[int, ...]


def has_state(graph: Graph) -> bool:
    """Whether there is a Ref among the graph's values, or inside of a graph that it holds."""
    return any(type(v.aval) is AbstractRef for v in (*graph.invars, *graph.constvars)) or any(
        eqn.primitive is new_ref_p or any(map(has_state, graphs_in(eqn.params))) for eqn in graph.eqns
    )


# The backend that a program is made for, whose own forms of primitives on Refs are taken; None is for any.
target: ContextVar[Any] = ContextVar("target", default=None)


@contextlib.contextmanager
def made_for(backend: Any) -> Iterator[None]:
    """Within the block, graphs are discharged for a backend."""
    token = target.set(backend)
    try:
        yield
    finally:
        target.reset(token)


def discharged(graph: Graph) -> Discharged:
    """The graph (without constants that are Refs) on what its Refs hold."""
    return _discharged(graph, getattr(target.get(), "name", None))


@functools.lru_cache(maxsize=512)
def _discharged(graph: Graph, backend: str | None) -> Discharged:
    cells: list[Any] = []

    def function(*inputs: Any) -> list[Any]:
        cells[:] = [
            Cell(value, v.aval) if type(v.aval) is AbstractRef else value for v, value in zip(graph.invars, inputs)
        ]
        return [*run(graph, cells), *(c.held for c in cells if isinstance(c, Cell) and c.written)]

    made = stage(function, [array_type(a) for a in graph.in_avals], graph.name)
    made, consts = close(replace(made, history=(*graph.history, "discharged")))
    return Discharged(made, consts, tuple(n for n, c in enumerate(cells) if isinstance(c, Cell) and c.written))


def without_refs(graph: Graph) -> Graph:
    """The graph, whose inputs are no Refs, without those that it makes."""
    if not has_state(graph):
        return graph
    made = discharged(graph)
    count = len(made.consts)
    invars = made.graph.invars
    return replace(made.graph, invars=invars[count:], constvars=invars[:count], consts=made.consts)


def run(graph: Graph, args: Sequence[Any]) -> list[Any]:
    """Bind every equation again, with cells in the place of Refs."""
    return replay(graph, *args, binding=_discharging)


def _discharging(eqn: Eqn, operands: list[Any]) -> Any:
    if eqn.primitive is new_ref_p:
        return Cell(operands[0], eqn.outvars[0].aval)  # type: ignore[arg-type]
    stateful = any(map(has_state, graphs_in(eqn.params)))
    takes = any(map(is_cell, operands))
    if (takes or stateful) and eqn.primitive in CALLS:
        if any(is_cell(o) and type(o) is not Cell for o in operands):  # under a transform, which asks for its rule
            return bound(eqn, [o.ref if type(o) is Outside else o for o in operands])
        return run(eqn.params["call_jaxpr"], operands)
    if takes or (stateful and eqn.primitive.discharge is not None):
        return eqn.primitive.rule("discharge")(*operands, **eqn.params)
    return bound(eqn, operands)


def is_cell(operand: Any) -> bool:
    """Whether the operand of a discharge rule stands for a Ref."""
    return hasattr(type(operand), "close")


def _values(operands: Sequence[Any]) -> list[Any]:
    return [o.value if is_cell(o) else o for o in operands]


def _shard_map(*operands: Any, jaxpr: Graph, in_specs: Any, out_specs: Any, **params: Any) -> list[Any]:
    """What devices write into their parts of a Ref is put together as they were taken."""
    made, count = on_devices(discharged, {**params, "jaxpr": jaxpr}), len(out_specs)
    results = shard_map_p.bind(
        *made.consts,
        *_values(operands),
        jaxpr=made.graph,
        in_specs=(*(whole(type_of(c).ndim) for c in made.consts), *in_specs),
        out_specs=(*out_specs, *(in_specs[n] for n in made.written)),
        **params,
    )
    for n, value in zip(made.written, results[count:]):
        operands[n].value = value
    return list(results[:count])


def _refused(operands: Sequence[Any], where: str) -> None:
    if any(map(is_cell, operands)):
        raise ValueError(
            f"a Ref cannot be {where} ({current_source().short}); close over it, or pass it as an argument"
        )


def _cond(index: Any, *operands: Any, branches: tuple[Graph, ...], **params: Any) -> list[Any]:
    made = [discharged(branch) for branch in branches]
    written = sorted({n for each in made for n in each.written})
    count = len(branches[0].outvars)
    graphs, consts = with_consts([(_giving(each, count, tuple(written)), each.consts) for each in made])
    out = cond_p.bind(index, *consts, *_values(operands), branches=tuple(graphs), **params)
    for n, value in zip(written, out[count:]):
        operands[n].value = value
    return list(out[:count])


def _giving(made: Discharged, count: int, written: tuple[int, ...]) -> Graph:
    """A branch that gives what all of these Refs hold at last, of those too that it does not write."""
    last = dict(zip(made.written, made.graph.outvars[count:]))
    ends = (last.get(n, made.graph.invars[len(made.consts) + n]) for n in written)
    return replace(made.graph, outvars=(*made.graph.outvars[:count], *ends))


def _scan(*operands: Any, jaxpr: Graph, num_consts: int, num_carry: int, **params: Any) -> list[Any]:
    """Written constants are carried; a Ref that is walked along gives its rows as they are in the end."""
    made, count = discharged(jaxpr), len(jaxpr.outvars)
    first = num_consts + num_carry
    _refused(operands[num_consts:first], "carried by a scan")
    carried = [n for n in made.written if n < num_consts]
    still = [n for n in range(num_consts) if n not in carried]
    rows = [n for n in made.written if n >= first]
    place = {n: count + k for k, n in enumerate(made.written)}
    extra = len(made.consts)
    body = pick(
        made.graph,
        [*range(extra), *(extra + n for n in (*still, *carried, *range(num_consts, len(operands))))],
        [*(place[n] for n in carried), *range(count), *(place[n] for n in rows)],
    )
    values = _values(operands)
    out = scan_p.bind(
        *made.consts, *(values[n] for n in (*still, *carried)), *values[num_consts:],
        jaxpr=body, num_consts=extra + len(still), num_carry=len(carried) + num_carry, **params,
    )  # fmt: skip
    for n, value in zip((*carried, *rows), (*out[: len(carried)], *out[len(carried) + count :])):
        operands[n].value = value
    return list(out[len(carried) : len(carried) + count])


def _while(*operands: Any, cond_nconsts: int, cond_jaxpr: Graph, body_nconsts: int, body_jaxpr: Graph) -> list[Any]:
    """Written constants of the body are carried; the predicate reads there those that it shares."""
    first = cond_nconsts + body_nconsts
    _refused(operands[first:], "carried by a while loop")
    test, body = discharged(cond_jaxpr), discharged(body_jaxpr)
    if test.written:
        raise ValueError(f"the predicate of a while loop writes a Ref ({current_source().short}); write it in the body")
    carried = [cond_nconsts + n for n in body.written]
    still = [n for n in range(cond_nconsts, first) if n not in carried]
    shared = {
        n: k
        for n in range(cond_nconsts)
        for k, m in enumerate(carried)
        if is_cell(operands[n]) and operands[n] is operands[m]
    }
    kept = [n for n in range(cond_nconsts) if n not in shared]
    values, count, extra = _values(operands), len(body_jaxpr.outvars), len(body.consts)
    out = while_p.bind(
        *test.consts, *(values[n] for n in kept), *body.consts, *(values[n] for n in (*still, *carried)), *values[first:],
        cond_nconsts=len(test.consts) + len(kept), cond_jaxpr=_predicate(test, tuple(kept), tuple(shared.items()), body, count),
        body_nconsts=extra + len(still), body_jaxpr=pick(
            body.graph,
            [
                *range(extra),
                *(extra + n - cond_nconsts for n in (*still, *carried)),
                *range(extra + body_nconsts, len(body.graph.invars)),
            ],
            [*range(count, len(body.graph.outvars)), *range(count)],
        ),
    )  # fmt: skip
    for n, value in zip(carried, out):
        operands[n].value = value
    return list(out[len(carried) :])


def _predicate(
    test: Discharged, kept: tuple[int, ...], shared: tuple[tuple[int, int], ...], body: Discharged, count: int
) -> Graph:
    """The predicate on its own constants, what the body's written Refs hold, and the carry."""
    carried = tuple(body.graph.out_avals[count:])
    extra, consts, places = len(test.consts), len(kept) + len(shared), dict(shared)
    own = extra + len(kept)

    def function(*inputs: Any) -> list[Any]:
        given, refs, carry = iter(inputs[extra:own]), inputs[own : own + len(carried)], inputs[own + len(carried) :]
        found = (refs[places[n]] if n in places else next(given) for n in range(consts))
        return replay(test.graph, *inputs[:extra], *found, *carry)

    avals = test.graph.in_avals
    taken = [*avals[:extra], *(avals[extra + n] for n in kept), *carried, *avals[extra + consts :]]
    return stage(function, taken, test.graph.name)


def _remat(*operands: Any, jaxpr: Graph, prevent_cse: Any, **params: Any) -> list[Any]:
    """The body on what its Refs hold at first, which is saved: what is computed again writes nothing.

    One in which a function has rules of its own over a Ref stands in the place of the call: those rules are to write it.
    """
    if rule_over_ref({"jaxpr": jaxpr}) is not None:
        return run(jaxpr, operands)
    made, count = discharged(jaxpr), len(jaxpr.outvars)
    apart = (*(False for _ in made.consts), *kept_apart(prevent_cse, len(operands)))
    out = remat_p.bind(*made.consts, *_values(operands), jaxpr=made.graph, prevent_cse=apart, **params)
    for n, value in zip(made.written, out[count:]):
        operands[n].value = value
    return list(out[:count])


def _called(*operands: Any, jaxpr: Graph, **params: Any) -> list[Any]:
    """What the graph does, in the place of the call."""
    return run(jaxpr, operands)


cond_p.discharge, scan_p.discharge, while_p.discharge = _cond, _scan, _while
shard_map_p.discharge = _shard_map
jit_p.discharge, remat_p.discharge = _called, _remat
