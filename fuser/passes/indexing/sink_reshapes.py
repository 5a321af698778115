"""Reshapes behind elementwise work: `f(reshape(x.T))` as `reshape(f(x.T))`.

Through a reshape of elements in another order a kernel finds its operand's indices by division, for each element. The
reshape of a result that lies dense costs nothing, so the work is done in the shape before it.
"""

from __future__ import annotations

from fuser.ir.graph import Eqn, Graph, Operand
from fuser.ir.primitive import Fusion, Movement
from fuser.ir.rewrite import Rewriter
from fuser.ops.movement import reshape_p, squeeze_p


def sink_reshapes(graph: Graph) -> Graph:
    """The graph with such reshapes after the elementwise equations that read them."""
    rewriter = Rewriter(graph)
    reordered: set[Operand] = set()  # views whose elements lie in another order, and what is computed of them
    for original in graph.eqns:
        eqn = rewriter.resolve(original)
        operands = _before(eqn, rewriter, reordered) if eqn.primitive.fusion is Fusion.ELEMENTWISE else None
        if operands is not None:
            made = rewriter.add(eqn.primitive, *operands, **eqn.params)
            reordered.add(made)
            shaped = rewriter.make(reshape_p, made, new_sizes=eqn.outvars[0].aval.shape, dimensions=None)
            eqn = Eqn(shaped.primitive, shaped.invars, shaped.params, eqn.outvars, eqn.source)
        elif _reorders(eqn) or (eqn.primitive.fusion is Fusion.ELEMENTWISE and not reordered.isdisjoint(eqn.invars)):
            reordered.update(eqn.outvars)
        rewriter.keep(eqn)
    return rewriter.finish()


def _reorders(eqn: Eqn) -> bool:
    return eqn.primitive.movement is Movement.MOVE and eqn.primitive not in (reshape_p, squeeze_p)


def _before(eqn: Eqn, rewriter: Rewriter, reordered: set[Operand]) -> list[Operand] | None:
    """The operands in the one shape that all arrays among them had before a reshape; None where there is no such shape,
    or all of them lie dense."""
    found: list[Operand] = []
    for operand in eqn.invars:
        reshape = rewriter.producer(operand, reshape_p) if operand.aval.shape else None
        if operand.aval.shape and reshape is None:
            return None
        found.append(operand if reshape is None else reshape.invars[0])
    shapes = {v.aval.shape for v in found if v.aval.shape}
    return found if len(shapes) == 1 and not reordered.isdisjoint(found) else None
