"""From symbolic to known: the sizes that arguments give to the variables, and a graph with its sizes put in."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fuser.ir.dim import Dim, Scope, evaluated, known_at_least, made, variables
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.types import ArrayType
from fuser.ops.dim import dimension_as_value_p

_MISMATCH = "Input shapes do not match the polymorphic shapes specification."
_SEE = "Please see https://docs.jax.dev/en/latest/export/shape_poly.html#{} for more details."
_ASSERTIONS = _SEE.format("shape-assertion-errors")


def solved(paths: Sequence[str], avals: Sequence[ArrayType], found: Sequence[ArrayType]) -> dict[str, Any]:
    """The variables' sizes, so that the symbolic shapes of `avals` are those `found`. ValueError, in JAX's words, where none are."""
    equations = [
        (f"{path}.shape[{n}]", dim, size)
        for path, aval, other in zip(paths, avals, found)
        for n, (dim, size) in enumerate(zip(aval.shape, other.shape))
        if isinstance(dim, Dim)
    ]
    sizes: dict[str, Any] = {}
    origins: dict[str, str] = {}
    said = _said(paths, avals)
    changed = True
    while changed:
        changed = False
        for place, dim, size in equations:
            if _solve(place, dim, size, sizes, origins, said):
                changed = True
    unknown = [v for v in variables(dim for _, dim, _ in equations) if v not in sizes]
    if unknown:
        left = ", ".join(
            f"'{d}' for dimension size {p}" for p, d, _ in equations if not {*unknown}.isdisjoint(variables([d]))
        )
        raise ValueError(
            f"Cannot solve for values of dimension variables {{{', '.join(map(repr, unknown))}}}. We can only solve linear uni-variate "
            f"constraints. {said} Unprocessed specifications: {left}. {_SEE.format('dimension-variables-must-be-solvable-from-the-input-shapes')}"
        )
    for place, dim, size in equations:
        if (value := evaluated(dim, sizes)) != size:
            raise ValueError(
                f"{_MISMATCH} Found inconsistency between dimension size {place} (= {size}) and the specification '{dim}' (= {value}). "
                f"{said}{_obtained(origins)} {_ASSERTIONS}"
            )
    for scope in {id(dim.scope): dim.scope for _, dim, _ in equations}.values():
        _check_constraints(scope, sizes, said + _obtained(origins))
    return sizes


def _said(paths: Sequence[str], avals: Sequence[ArrayType]) -> str:
    specs = [
        f"{path}.shape = ({', '.join(map(str, aval.shape))}{',' if len(aval.shape) == 1 else ''})"
        for path, aval in zip(paths, avals)
        if any(isinstance(d, Dim) for d in aval.shape)
    ]
    return f"Using the following polymorphic shapes specifications: {', '.join(specs)}."


def _obtained(origins: dict[str, str]) -> str:
    return f" Obtained dimension variables: {', '.join(origins.values())}, ." if origins else ""


def _solve(place: str, dim: Dim, size: Any, sizes: dict[str, Any], origins: dict[str, str], said: str) -> bool:
    """Find the one variable of an equation that is not known, if it is linear in it."""
    unknown = [v for v in variables([dim]) if v not in sizes]
    if len(unknown) != 1:
        return False
    [name] = unknown
    spec = dim
    if all(type(sizes[v]) is int for v in variables([dim]) if v != name):  # what is known may make it linear
        dim = evaluated(dim, {**sizes, name: dim.scope.variable(name)})
        if not isinstance(dim, Dim):
            return False
    own = ((("var", name), 1),)
    coefficient = dim.terms.get(own)
    rest = {m: c for m, c in dim.terms.items() if m != own}
    if coefficient is None or any(name in variables([_term(dim.scope, m)]) for m in rest):
        return False
    constant = sum((evaluated(_term(dim.scope, m), sizes) * c for m, c in rest.items()), 0)
    value, remainder = divmod(size - constant, coefficient)
    if isinstance(remainder, Dim) or remainder != 0:
        raise ValueError(
            f"{_MISMATCH} Division had remainder {remainder} when computing the value of '{name}'. {said}{_obtained(origins)} {_ASSERTIONS}"
        )
    sizes[name] = value
    origins[name] = f"'{name}' = {value} from specification '{spec}' for dimension {place} (= {size})"
    if not known_at_least(value, 1):
        raise ValueError(
            f"{_MISMATCH} Expected value >= 1 for dimension variable '{name}'. {said}{_obtained(origins)} {_ASSERTIONS}"
        )
    return True


def _term(scope: Scope, monomial: Any) -> Any:
    return made(scope, {monomial: 1})


def _check_constraints(scope: Scope, sizes: dict[str, Any], said: str) -> None:
    for text, known, kind in scope.constraints:
        if not set(variables([known])) <= set(sizes):
            continue
        value = evaluated(known, sizes)
        holds = known_at_least(value, 0) and (kind == "ge" or known_at_least(0, value))
        if not holds:
            wanted = "equal to 0" if kind == "eq" else "greater or equal to 0"
            raise ValueError(
                f"{_MISMATCH} Expected '{known}' to be {wanted}, but found {value} (of the constraint '{text}'). {said}"
            )


def with_sizes(graph: Graph, sizes: dict[str, Any]) -> Graph:
    """The graph with sizes for the variables of its extents, and of those of the graphs in it."""
    known: dict[Var, Var] = {}

    def aval_of(aval: ArrayType) -> ArrayType:
        return aval.update(shape=tuple(evaluated(d, sizes) for d in aval.shape))

    def var(old: Var) -> Var:
        if old not in known:
            known[old] = Var(aval_of(old.aval)) if any(isinstance(d, Dim) for d in old.aval.shape) else old
        return known[old]

    literals: dict[Var, Literal] = {}

    def operand(old: Operand) -> Operand:
        return old if isinstance(old, Literal) else literals.get(old) or var(old)

    def param(value: Any) -> Any:
        if isinstance(value, Dim):
            return evaluated(value, sizes)
        if isinstance(value, Graph):
            return with_sizes(value, sizes)
        if isinstance(value, ArrayType):
            return aval_of(value)
        if isinstance(value, tuple):
            parts = [param(v) for v in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value

    def eqn(old: Eqn) -> Iterator[Eqn]:
        if old.primitive is dimension_as_value_p and not isinstance(size := evaluated(old.params["dim"], sizes), Dim):
            literals[old.outvars[0]] = Literal(operator.index(size), old.outvars[0].aval)
            return
        params = {key: param(value) for key, value in old.params.items()}
        yield replace(old, invars=tuple(map(operand, old.invars)), params=params, outvars=tuple(map(var, old.outvars)))

    return replace(
        graph,
        invars=tuple(map(var, graph.invars)),
        constvars=tuple(map(var, graph.constvars)),
        eqns=tuple(new for old in graph.eqns for new in eqn(old)),
        outvars=tuple(map(operand, graph.outvars)),
    )
