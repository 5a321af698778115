"""The checker: a graph in, the same graph out, or a GraphError that names the equation.

Every variable is defined once and before its use, and every equation's outputs have the types that its rule gives.
"""

from __future__ import annotations

from fuser.errors import GraphError
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var, graphs_in
from fuser.ir.primitive import REGISTRY
from fuser.ir.text import Names, show_eqn


def check(graph: Graph) -> Graph:
    """`graph` itself; GraphError where it breaks a rule of the IR."""
    defined: set[Var] = set()
    if len(graph.constvars) != len(graph.consts):
        raise GraphError(f"{graph.name}: {len(graph.constvars)} constvars but {len(graph.consts)} consts")
    for var in (*graph.constvars, *graph.invars):
        _define(var, defined, graph.name)
    for eqn in graph.eqns:
        where = show_eqn(eqn, Names())
        for operand in eqn.invars:
            _known(operand, defined, where)
        _check_types(eqn, where)
        for var in eqn.outvars:
            _define(var, defined, where)
    for operand in graph.outvars:
        _known(operand, defined, f"the outputs of {graph.name}")
    return graph


def _define(var: Var, defined: set[Var], where: str) -> None:
    if var in defined:
        raise GraphError(f"a variable of type {var.aval} is defined twice: {where}")
    defined.add(var)


def _known(operand: Operand, defined: set[Var], where: str) -> None:
    if isinstance(operand, Literal):
        if operand.aval.shape:
            raise GraphError(f"a literal of shape {operand.aval.shape} in {where}; literals are scalars")
    elif operand not in defined:
        raise GraphError(f"a variable of type {operand.aval} is used before it is defined: {where}")


def _check_types(eqn: Eqn, where: str) -> None:
    own = REGISTRY.get(eqn.primitive.name) is eqn.primitive  # what a library's primitives hold is their affair
    for inner in graphs_in(eqn.params) if own else ():
        if inner.constvars:
            raise GraphError(f"{where}: a graph among its params has constants; they belong among the operands")
        check(inner)
    result = eqn.primitive.rule("type")(*(v.aval for v in eqn.invars), **eqn.params)
    expected = tuple(result) if eqn.primitive.multiple_results else (result,)
    found = tuple(v.aval for v in eqn.outvars)
    if [(a.shape, a.dtype) for a in expected] != [(a.shape, a.dtype) for a in found]:
        raise GraphError(
            f"{where}: its type rule gives {', '.join(map(str, expected))}, the graph says {', '.join(map(str, found))}"
        )
