"""Control flow on parts: the bodies of scan, while and cond made bodies of one device.

A carry lies as the body says by a constraint, or else as it starts; one that starts whole is split where the body splits it. Predicates and indices are the same on
every device, so all take the same branches and as many turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ops.control import cond_p, scan_p, while_p
from fuser.ops.shard_map import Layout, Spec, whole
from fuser.ops.sharding import sharding_constraint_p
from fuser.parallel.custom_partitioning import DIVIDED
from fuser.parallel.propagate import Layouts, propagate
from fuser.parallel.uneven import even
from fuser.passes.inline import inline_calls
from fuser.trace.body import close
from fuser.trace.stage import stage

Results = list[tuple[Any, Spec]]


class Body:
    """The graph of one device for a body without calls whose inputs lie so: `graph` takes `consts` first; its results lie as `specs` say.

    Results whose layout is not `wanted` may be `preferred` to lie in some way, and do where each device has its part of them.
    """

    def __init__(
        self,
        parent: Any,
        graph: Graph,
        given: Sequence[Spec],
        wanted: Sequence[Spec | None],
        preferred: Sequence[Spec | None] = (),
    ) -> None:
        mesh = parent.mesh
        preferred = preferred or [None] * len(wanted)
        asked = [w if p is None else p for w, p in zip(wanted, preferred)]
        layouts = propagate(graph, mesh, dict(zip(graph.invars, given)), asked)
        parts = type(parent)(mesh, layouts)
        self.specs: list[Spec] = []

        def function(*inputs: Any) -> list[Any]:
            return parts.run(graph, inputs, given, wanted, self.specs, preferred=preferred)

        layout = Layout(mesh, mesh.axis_names, False)
        avals = [layout.local(v.aval, s) for v, s in zip(graph.invars, given)]
        self.graph, self.consts = close(stage(function, avals, graph.name))
        parent.placed += parts.placed


def _planned(mesh: Any, graph: Graph, given: Sequence[Spec | None]) -> Layouts:
    """How a body's values come to lie where some inputs are free."""
    known = {v: s for v, s in zip(graph.invars, given) if s is not None}
    return propagate(graph, mesh, known, [None] * len(graph.outvars))


def _carry_specs(parent: Any, graph: Graph, before: list[Spec], carry: list[Spec], after: list[Spec]) -> list[Spec]:
    """How a carry is to lie: as the body says, as it starts, or as the body leaves it where it starts whole."""
    free: list[Spec | None] = [s if any(s) else None for s in carry]
    layouts = _planned(parent.mesh, graph, [*before, *free, *after])
    ends = graph.outvars[: len(carry)]
    said = _said(graph)
    return [layouts.of(v) if s is None or v in said else s for v, s in zip(ends, free)]


def _said(graph: Graph) -> set[Var]:
    """The values that constraints of the program lay out."""
    return {
        e.outvars[0] for e in graph.eqns if e.primitive is sharding_constraint_p and e.params["sharding"] is not None
    }


def _scan(parent: Any, eqn: Eqn) -> Results:
    params = dict(eqn.params)
    consts, carries, graph = params["num_consts"], params["num_carry"], inline_calls(params["jaxpr"], DIVIDED)
    values = [parent.get(v) for v in eqn.invars]
    before = [s for _, s in values[:consts]]
    rows = [s[1:] for _, s in values[consts + carries :]]
    carry = _carry_specs(parent, graph, before, [s for _, s in values[consts : consts + carries]], rows)
    stacked = graph.outvars[carries:]
    wanted = [*carry, *[None] * len(stacked)]
    preferred = [None] * carries + [_of_one(parent, v, row) for v, row in zip(eqn.outvars[carries:], stacked)]
    body = Body(parent, graph, [*before, *carry, *rows], wanted, preferred)
    targets = [*before, *carry, *(((), *s) for s in rows)]
    operands = [parent.taken(v, t, "a loop takes it so") for v, t in zip(eqn.invars, targets)]
    params |= {"jaxpr": body.graph, "num_consts": consts + len(body.consts)}
    results = scan_p.bind(*body.consts, *operands, **params)
    return list(zip(results, [*carry, *(((), *s) for s in body.specs[carries:])]))


def _of_one(parent: Any, stacked: Var, row: Operand) -> Spec | None:
    """How the parent's plan splits what one iteration gives of a stacked result: a sum of which devices keep parts is scattered there."""
    spec = even(parent.mesh, parent.layouts.of(stacked)[1:], row.aval.shape)
    return spec if any(spec) else None


def _while(parent: Any, eqn: Eqn) -> Results:
    params = dict(eqn.params)
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    values = [parent.get(v) for v in eqn.invars]
    tested, fixed, start = ([s for _, s in part] for part in (values[:first], values[first:second], values[second:]))
    test_graph, body_graph = (inline_calls(params[name], DIVIDED) for name in ("cond_jaxpr", "body_jaxpr"))
    if test_graph.out_avals[0].shape:  # lanes that end at different times
        carry = [whole(len(s)) for s in start]
    else:
        carry = _carry_specs(parent, body_graph, fixed, start, [])
    test = Body(parent, test_graph, [*tested, *carry], [whole(test_graph.out_avals[0].ndim)])
    body = Body(parent, body_graph, [*fixed, *carry], carry)
    targets = [*tested, *fixed, *carry]
    operands = [parent.taken(v, t, "a loop takes it so") for v, t in zip(eqn.invars, targets)]
    params |= {"cond_jaxpr": test.graph, "cond_nconsts": first + len(test.consts)}
    params |= {"body_jaxpr": body.graph, "body_nconsts": second - first + len(body.consts)}
    results = while_p.bind(*test.consts, *operands[:first], *body.consts, *operands[first:], **params)
    return list(zip(results, carry))


def _cond(parent: Any, eqn: Eqn) -> Results:
    (_, own), *values = [parent.get(v) for v in eqn.invars]
    branches = [inline_calls(branch, DIVIDED) for branch in eqn.params["branches"]]
    given = [s for _, s in values]
    planned = [_planned(parent.mesh, branch, given) for branch in branches]
    ends = [[(v in _said(b), p.of(v)) for v in b.outvars] for p, b in zip(planned, branches)]
    wanted = [max(found, key=lambda one: (one[0], any(one[1])))[1] for found in zip(*ends)]
    bodies = [Body(parent, branch, given, wanted) for branch in branches]
    consts = [c for body in bodies for c in body.consts]
    avals = [v.aval for body in bodies for v in body.graph.invars[: len(body.consts)]]
    graphs, at = [], 0
    for body in bodies:
        graphs.append(_taking_all(body.graph, len(body.consts), at, avals))
        at += len(body.consts)
    index = parent.taken(eqn.invars[0], whole(len(own)), "an index")
    results = cond_p.bind(index, *consts, *(v for v, _ in values), **{**eqn.params, "branches": tuple(graphs)})
    return list(zip(results, wanted))


def _taking_all(graph: Graph, count: int, at: int, avals: Sequence[Any]) -> Graph:
    """A branch that takes the constants of all branches; its own stand from `at` on."""
    own = graph.invars[:count]
    shared = [own[n - at] if at <= n < at + count else Var(a) for n, a in enumerate(avals)]
    return replace(graph, invars=(*shared, *graph.invars[count:]))


RULES: dict[Any, Callable[[Any, Eqn], Results]] = {scan_p: _scan, while_p: _while, cond_p: _cond}
