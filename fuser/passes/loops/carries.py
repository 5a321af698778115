"""Passes inside control flow: bodies are optimised as graphs of their own; dead carries and unread operands are removed.

A dead result of a scan or while goes with the carry that only it needs; unread constants and xs are no operands any more;
operands that are literals move into the bodies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var, graphs_in
from fuser.ir.primitive import Control
from fuser.ir.rewrite import Rewriter
from fuser.ops.control import cond_p, scan_p, while_p
from fuser.ops.remat import remat_p
from fuser.trace.body import pick, reads

Pass = Callable[[Graph], Graph]


def in_bodies(graph: Graph, step: Pass) -> Graph:
    """The graph with `step` done to every Graph among its equations' params."""
    if not any(any(True for _ in graphs_in(eqn.params)) for eqn in graph.eqns):
        return graph
    return replace(graph, eqns=tuple(_with_bodies(eqn, step) for eqn in graph.eqns))


def _with_bodies(eqn: Eqn, step: Pass) -> Eqn:
    changed: dict[str, Any] = {}
    for name, value in eqn.params.items():
        if isinstance(value, Graph):
            changed[name] = step(value)
        elif isinstance(value, tuple) and any(isinstance(v, Graph) for v in value):
            changed[name] = tuple(step(v) if isinstance(v, Graph) else v for v in value)
    return replace(eqn, params={**eqn.params, **changed}) if changed else eqn


def pruned(eqn: Eqn, used: Sequence[bool], drop_dead: Pass) -> Eqn:
    """The control equation with only those results that are `used`, and what those need; itself where that is all."""
    rule = _remat if eqn.primitive is remat_p else _RULES.get(eqn.primitive.control)
    smaller = eqn if rule is None else rule(eqn, used, drop_dead)
    same = smaller.invars == eqn.invars and smaller.outvars == eqn.outvars
    return eqn if same and list(graphs_in(smaller.params)) == list(graphs_in(eqn.params)) else smaller


def _needed(graph: Graph, outputs: Iterable[int], drop_dead: Pass) -> tuple[Graph, frozenset[int]]:
    """The graph with these outputs alone, and the positions of the inputs that they need."""
    return _kept(graph, tuple(sorted(outputs)), drop_dead)


# Bodies within bodies are asked for again at each level, and by carries that turn out to be needed.
@functools.lru_cache(maxsize=4096)
def _kept(graph: Graph, outputs: tuple[int, ...], drop_dead: Pass) -> tuple[Graph, frozenset[int]]:
    smaller = drop_dead(pick(graph, outputs=outputs))
    read = reads(smaller)
    return smaller, frozenset(n for n, v in enumerate(graph.invars) if v in read)


def _scan(eqn: Eqn, used: Sequence[bool], drop_dead: Pass) -> Eqn:
    params = eqn.params
    graph, consts, carries = params["jaxpr"], params["num_consts"], params["num_carry"]
    outputs = {n for n, use in enumerate(used) if use}
    while True:
        smaller, inputs = _needed(graph, outputs, drop_dead)
        more = {n - consts for n in inputs if consts <= n < consts + carries}
        if more <= outputs:
            break
        outputs |= more
    carried = sorted(n for n in outputs if n < carries)
    kept = sorted(inputs | {consts + n for n in carried})
    sunk = {n: v for n, v in enumerate(eqn.invars[:consts]) if isinstance(v, Literal)}
    kept = [n for n in kept if n not in sunk]
    body = _sink(pick(smaller, kept), {graph.invars[n]: v for n, v in sunk.items()})
    params = {
        **params,
        "jaxpr": body,
        "num_consts": sum(n < consts for n in kept),
        "num_carry": len(carried),
    }
    return Eqn(scan_p, tuple(eqn.invars[n] for n in kept), params, _chosen(eqn.outvars, outputs), eqn.source)


def _while(eqn: Eqn, used: Sequence[bool], drop_dead: Pass) -> Eqn:
    params = eqn.params
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    test_consts, consts = params["cond_nconsts"], params["body_nconsts"]
    test, test_inputs = _needed(test, [0], drop_dead)
    outputs = {n for n, use in enumerate(used) if use} | {n - test_consts for n in test_inputs if n >= test_consts}
    while True:
        smaller, inputs = _needed(body, outputs, drop_dead)
        more = {n - consts for n in inputs if n >= consts}
        if more <= outputs:
            break
        outputs |= more
    carried = sorted(outputs)
    of_test, of_body = eqn.invars[:test_consts], eqn.invars[test_consts : test_consts + consts]
    init = eqn.invars[test_consts + consts :]
    test_kept = [n for n in sorted(test_inputs) if n < test_consts and not isinstance(of_test[n], Literal)]
    body_kept = [n for n in sorted(inputs) if n < consts and not isinstance(of_body[n], Literal)]
    test_graph = _sink(pick(test, [*test_kept, *(test_consts + n for n in carried)]), dict(zip(test.invars, of_test)))
    body_graph = _sink(pick(smaller, [*body_kept, *(consts + n for n in carried)]), dict(zip(body.invars, of_body)))
    operands = (*(of_test[n] for n in test_kept), *(of_body[n] for n in body_kept), *(init[n] for n in carried))
    params = {
        "cond_nconsts": len(test_kept),
        "cond_jaxpr": test_graph,
        "body_nconsts": len(body_kept),
        "body_jaxpr": body_graph,
    }
    return Eqn(while_p, operands, params, _chosen(eqn.outvars, outputs), eqn.source)


def _cond(eqn: Eqn, used: Sequence[bool], drop_dead: Pass) -> Eqn:
    outputs = {n for n, use in enumerate(used) if use}
    found = [_needed(branch, outputs, drop_dead) for branch in eqn.params["branches"]]
    operands = eqn.invars[1:]
    read = sorted(set().union(*(inputs for _, inputs in found)))
    kept = [n for n in read if not isinstance(operands[n], Literal)]
    branches = tuple(_sink(pick(branch, kept), dict(zip(branch.invars, operands))) for branch, _ in found)
    invars = (eqn.invars[0], *(operands[n] for n in kept))
    return Eqn(cond_p, invars, {**eqn.params, "branches": branches}, _chosen(eqn.outvars, outputs), eqn.source)


def _remat(eqn: Eqn, used: Sequence[bool], drop_dead: Pass) -> Eqn:
    outputs = [n for n, use in enumerate(used) if use]
    smaller, inputs = _needed(eqn.params["jaxpr"], outputs, drop_dead)
    kept, apart = sorted(inputs), eqn.params["prevent_cse"]
    apart = tuple(apart[n] for n in kept) if isinstance(apart, tuple) else apart
    params = {**eqn.params, "jaxpr": pick(smaller, kept), "prevent_cse": apart}
    return Eqn(remat_p, tuple(eqn.invars[n] for n in kept), params, _chosen(eqn.outvars, outputs), eqn.source)


_RULES: dict[Control | None, Any] = {Control.SCAN: _scan, Control.WHILE: _while, Control.COND: _cond}


def _chosen(outvars: tuple[Var, ...], positions: Iterable[int]) -> tuple[Var, ...]:
    return tuple(outvars[n] for n in sorted(positions))


def _sink(graph: Graph, known: dict[Var, Operand]) -> Graph:
    """The graph with the literals among `known` in the position of the inputs that they are given for."""
    literals = {var: value for var, value in known.items() if isinstance(value, Literal)}
    if not literals:
        return graph

    def current(operand: Operand) -> Operand:
        return literals.get(operand, operand) if isinstance(operand, Var) else operand

    def with_literals(eqn: Eqn) -> Eqn:
        if not any(v in literals for v in eqn.operands()):
            return eqn
        return replace(eqn, invars=tuple(current(v) for v in eqn.invars))

    return replace(
        graph, eqns=tuple(with_literals(e) for e in graph.eqns), outvars=tuple(current(v) for v in graph.outvars)
    )


# What the bodies only hand on.


def forward_carries(graph: Graph) -> Graph:
    """The graph with carries that a loop never changes as constants, and results that are operands replaced by those."""
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        rule = _FORWARD.get(eqn.primitive.control)
        if rule is None:
            rewriter.keep(eqn)
            continue
        smaller, replaced = rule(eqn)
        for var, operand in replaced.items():
            rewriter.replace(var, operand)
        if smaller.outvars:
            rewriter.keep(smaller)
    return rewriter.finish()


def _forwarded(graph: Graph) -> list[int | None]:
    """For each output, the input that it is; else None."""
    position = {v: n for n, v in enumerate(graph.invars)}
    return [position.get(v) if isinstance(v, Var) else None for v in graph.outvars]


Forwarded = tuple[Eqn, dict[Var, Operand]]


def _forward_scan(eqn: Eqn) -> Forwarded:
    params = eqn.params
    graph, consts, carries = params["jaxpr"], params["num_consts"], params["num_carry"]
    ways = _forwarded(graph)
    passed = {n: way for n, way in enumerate(ways) if way is not None and way == consts + n and n < carries}
    fixed = list(passed)
    passed |= {n: way for n, way in enumerate(ways) if n >= carries and way is not None and way >= consts + carries}
    if not passed:
        return eqn, {}
    moving = [consts + n for n in range(carries) if n not in passed]
    order = [*range(consts), *(consts + n for n in fixed), *moving, *range(consts + carries, len(graph.invars))]
    kept = [n for n in range(len(eqn.outvars)) if n not in passed]
    params = {**params, "jaxpr": pick(graph, order, kept), "num_consts": consts + len(fixed), "num_carry": len(moving)}
    smaller = Eqn(scan_p, tuple(eqn.invars[n] for n in order), params, _chosen(eqn.outvars, kept), eqn.source)
    return smaller, {eqn.outvars[n]: eqn.invars[way] for n, way in passed.items()}


def _forward_while(eqn: Eqn) -> Forwarded:
    params = eqn.params
    test, body, test_consts, consts = (
        params[name] for name in ("cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts")
    )
    fixed = [n for n, way in enumerate(_forwarded(body)) if way == consts + n]
    moving = [n for n in range(len(body.outvars)) if n not in fixed]
    if not fixed or not moving:
        return eqn, {}
    init = eqn.invars[test_consts + consts :]
    last = lambda first: [*range(first), *(first + n for n in fixed), *(first + n for n in moving)]
    still = [init[n] for n in fixed]
    operands = (
        *eqn.invars[:test_consts],
        *still,
        *eqn.invars[test_consts : test_consts + consts],
        *still,
        *(init[n] for n in moving),
    )
    params = {
        "cond_nconsts": test_consts + len(fixed),
        "cond_jaxpr": pick(test, last(test_consts)),
        "body_nconsts": consts + len(fixed),
        "body_jaxpr": pick(body, last(consts), moving),
    }
    smaller = Eqn(while_p, operands, params, _chosen(eqn.outvars, moving), eqn.source)
    return smaller, {eqn.outvars[n]: init[n] for n in fixed}


def _forward_cond(eqn: Eqn) -> Forwarded:
    ways = [_forwarded(branch) for branch in eqn.params["branches"]]
    passed = {n: way[0] for n, way in enumerate(zip(*ways)) if way[0] is not None and len(set(way)) == 1}
    if not passed:
        return eqn, {}
    kept = [n for n in range(len(eqn.outvars)) if n not in passed]
    branches = tuple(pick(branch, outputs=kept) for branch in eqn.params["branches"])
    smaller = Eqn(cond_p, eqn.invars, {**eqn.params, "branches": branches}, _chosen(eqn.outvars, kept), eqn.source)
    return smaller, {eqn.outvars[n]: eqn.invars[1 + way] for n, way in passed.items()}


_FORWARD: dict[Control | None, Any] = {
    Control.SCAN: _forward_scan,
    Control.WHILE: _forward_while,
    Control.COND: _forward_cond,
}
