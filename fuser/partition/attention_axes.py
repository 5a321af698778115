"""Along which axes the results of an `attention` equation run: results of one kernel share those of batches and rows.

A result is a product of rows (an *end*), moved or converted at most, or a reduction of rows, which has no axes of its own: it
is written where the products' rows are.
"""

from __future__ import annotations

from fuser.ir import scalar as S
from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.index import Affine, Axis
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.ops.dot import free_dimensions
from fuser.partition.group import Layout
from fuser.partition.values import Index, Refused, Values


def is_reduction(graph: Graph, result: Operand) -> bool:
    """Whether a result is a reduction of rows."""
    return any(result in eqn.outvars and eqn.primitive.fusion is Fusion.REDUCE for eqn in graph.eqns)


def weights_of(graph: Graph) -> dict[Eqn, int]:
    """Of each product of which an operand is made of another product: the number of this operand."""
    holding: set[Var] = set()  # what is made of a product
    found: dict[Eqn, int] = {}
    for eqn in graph.eqns:
        sides = [number for number, v in enumerate(eqn.invars) if v in holding]
        if eqn.primitive.fusion is Fusion.DOT and sides:
            found[eqn] = sides[0]
        if eqn.primitive.fusion is Fusion.DOT or sides:
            holding.update(eqn.outvars)
    return found


def layouts(graph: Graph) -> tuple[Layout | None, ...]:
    """The axes of each result, one a dimension; None for those that the first result's rows say, which reductions beside a reduction
    share. Raises Refused."""
    ends = weights_of(graph)
    shared: dict[tuple[str, int], Axis | None] = {}
    found: list[Layout | None] = []
    for number, result in enumerate(graph.outvars):
        if is_reduction(graph, result):
            alike = number > 0 and found[0] is not None and is_reduction(graph, graph.outvars[0])
            alike = alike and result.aval.shape == graph.outvars[0].aval.shape
            found.append(found[0] if alike else _fresh(result) if number == 0 else None)
            continue
        layout = _fresh(result)
        for role, axis in _roles(graph, ends, result, layout).items():
            mine = shared.setdefault(role, axis) if role[0] != "feature" else axis
            if mine is not axis:
                if mine is None or axis is None or mine.extent != axis.extent:
                    raise Refused("its products have rows of their own each")
                layout = tuple(mine if a is axis else a for a in layout)
        found.append(layout)
    return tuple(found)


def _fresh(result: Operand) -> Layout:
    return tuple(None if e == 1 else Axis(e) for e in result.aval.shape)


def _roles(graph: Graph, ends: dict[Eqn, int], result: Operand, layout: Layout) -> dict[tuple[str, int], Axis | None]:
    """What each dimension of the product that a result is stands for: ("batch" | "row" | "feature", number) and its axis."""
    reading = _Reading(graph, ends)
    reading.value(result, tuple(Affine() if a is None else Affine.of(a) for a in layout), None)
    if reading.at is None:
        raise Refused("a result is no product of its rows")
    end, index = reading.at
    _, (batch, _) = end.params["dimension_numbers"]
    free = [
        len(free_dimensions(v.aval.ndim, *(pair[n] for pair in end.params["dimension_numbers"])))
        for n, v in enumerate(end.invars)
    ]
    names = [("batch", n) for n in range(len(batch))]
    for side in range(2):
        names += [("row" if side == ends[end] else "feature", n) for n in range(free[side])]
    roles: dict[tuple[str, int], Axis | None] = {}
    for name, position in zip(names, index, strict=True):
        axis = position.axis()
        if axis is None and position.terms:
            raise Refused("a product of its rows is needed in another shape")
        roles[name] = axis
    return roles


class _Reading(Values):
    """At which index of which end a result is read."""

    def __init__(self, graph: Graph, ends: dict[Eqn, int]) -> None:
        super().__init__(graph)
        self.ends = ends
        self.at: tuple[Eqn, Index] | None = None

    def input(self, var: Var, index: Index, mask: Scalar | None) -> Scalar:
        return S.constant(0, var.aval.dtype)

    def other(self, eqn: Eqn, operand: Var, index: Index, mask: Scalar | None) -> Scalar:
        if eqn not in self.ends or (self.at is not None and self.at != (eqn, index)):
            raise Refused("a result is made of more than one product of its rows")
        self.at = eqn, index
        return S.constant(0, operand.aval.dtype)
