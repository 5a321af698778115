"""Calls become the equations of their Graphs, so that kernels never see them; rules for derivatives end here.

A graph without calls comes back as it is. What stands in bodies of control flow is inlined when those are optimised.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Primitive
from fuser.ir.source import replayed
from fuser.ops.calls import custom_jvp_call_p, custom_lin_p, custom_vjp_call_p, refuse_forward
from fuser.ops.collective import pvary_p
from fuser.ops.conversion import stop_gradient_p
from fuser.ops.custom_partitioning import custom_partitioning_p
from fuser.ops.custom_vmap import custom_vmap_call_p
from fuser.ops.hi_primitive import call_hi_primitive_p
from fuser.ops.jit import jit_p
from fuser.ops.remat import kept_apart, name_p, optimization_barrier_p, remat_p, scopes
from fuser.ops.solves import linear_solve_p, solver
from fuser.trace.stage import stage
from fuser.trace.tangent import as_array

# The primitives that hold one Graph and do what it does, and the param that holds it.
CALLS = {
    custom_jvp_call_p: "call_jaxpr",
    custom_vjp_call_p: "call_jaxpr",
    custom_vmap_call_p: "call_jaxpr",
    call_hi_primitive_p: "call_jaxpr",
    custom_partitioning_p: "call",
    remat_p: "jaxpr",
    jit_p: "jaxpr",
}
# The primitives that only transforms and policies look at: their operand takes their place.
MARKS = (name_p, stop_gradient_p, pvary_p)
_ENDING = {*CALLS, *MARKS, custom_lin_p, linear_solve_p}


def inline_calls(graph: Graph, keep: Set[Primitive] = frozenset()) -> Graph:
    """The graph with the equations of every called graph in the place of the call, but for the calls to `keep`."""
    ending = _ENDING - keep
    if not any(eqn.primitive in ending or eqn.primitive.inline is not None for eqn in graph.eqns):
        return graph
    inlined = _Inlined(keep)
    outvars = inlined.take(graph, {}, fresh=False)
    constants = (*zip(graph.constvars, graph.consts), *inlined.constants)
    return replace(
        graph,
        eqns=tuple(inlined.eqns),
        outvars=tuple(outvars),
        constvars=tuple(v for v, _ in constants),
        consts=tuple(c for _, c in constants),
    )


class _Inlined:
    """The equations so far, and the constants of called graphs."""

    def __init__(self, keep: Set[Primitive]) -> None:
        self.keep = keep
        self.eqns: list[Eqn] = []
        self.constants: list[tuple[Var, Any]] = []

    def take(self, graph: Graph, known: dict[Var, Operand], fresh: bool) -> list[Operand]:
        """Add the graph's equations, with the operands that are `known` in the place of its variables; its results.

        With `fresh` its variables are made anew: one graph may be called twice.
        """

        def read(operand: Operand) -> Operand:
            return operand if isinstance(operand, Literal) else known.get(operand, operand)

        for eqn in graph.eqns:
            invars = tuple(read(v) for v in eqn.invars)
            if eqn.primitive is custom_lin_p:
                refuse_forward(**eqn.params)
            if eqn.primitive in MARKS:
                known[eqn.outvars[0]] = invars[0]
                continue
            if eqn.primitive is remat_p and eqn.params["differentiated"]:
                invars = self.kept_apart(eqn, invars)
            if eqn.primitive is linear_solve_p:
                known.update(zip(eqn.outvars, self.call(*solver(invars, **eqn.params))))
                continue
            if eqn.primitive in CALLS and eqn.primitive not in self.keep:
                inner = eqn.params[CALLS[eqn.primitive]]
                known.update(zip(eqn.outvars, self.call(inner, invars)))
                continue
            if eqn.primitive.inline is not None:
                known.update(zip(eqn.outvars, self.call(_inside(eqn), invars)))
                continue
            outvars = tuple(Var(v.aval) for v in eqn.outvars) if fresh else eqn.outvars
            known.update(zip(eqn.outvars, outvars))
            self.eqns.append(replace(eqn, invars=invars, outvars=outvars))
        return [read(v) for v in graph.outvars]

    def kept_apart(self, eqn: Eqn, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """The operands of a remat behind barriers, so that what it computes again is not merged with the first time."""
        scope = next(scopes)
        behind: dict[Operand, Operand] = {}
        for operand, apart in zip(operands, kept_apart(eqn.params["prevent_cse"], len(operands))):
            if apart and isinstance(operand, Var) and operand not in behind:
                result = behind[operand] = Var(operand.aval)
                self.eqns.append(Eqn(optimization_barrier_p, (operand,), {"scope": scope}, (result,), eqn.source))
        return tuple(behind.get(o, o) if isinstance(o, Var) else o for o in operands)

    def call(self, graph: Graph, operands: tuple[Operand, ...]) -> list[Operand]:
        """Add a called graph's equations on these operands; its results."""
        known: dict[Var, Operand] = dict(zip(graph.invars, operands))
        for var, value in zip(graph.constvars, graph.consts):
            constant = known[var] = Var(var.aval)
            self.constants.append((constant, value))
        return self.take(graph, known, fresh=True)


def _inside(eqn: Eqn) -> Graph:
    """The graph of a primitive that is compiled as a function."""
    rule, params, several = eqn.primitive.rule("inline"), eqn.params, eqn.primitive.multiple_results

    def function(*operands: Any) -> list[Any]:
        results = rule(*operands, **params)
        return [as_array(r) for r in (results if several else [results])]

    with replayed(eqn.source):
        return stage(function, [v.aval for v in eqn.invars], eqn.primitive.name)
