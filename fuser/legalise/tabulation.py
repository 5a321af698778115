"""Functions of 8-bit numbers as tables: `(image / 255) ** gamma` has 256 values, however many pixels there are.

An elementwise cone over one array of bytes, beside scalars, is computed once for each byte and then gathered, where that takes less
time on the target than to compute it for each element. The values are those that the elements would have.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.cost import element_seconds
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ir.target import Target
from fuser.ops.elementwise import bitcast_convert_type_p, convert_element_type_p
from fuser.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather_p
from fuser.ops.movement import broadcast_in_dim_p, iota_p

VALUES = 256
FEWEST_ELEMENTS = 64 * VALUES  # below which a table's own kernel costs too much of what it saves


def with_tables(graph: Graph, target: Target) -> Graph:
    """The graph with what is expensive to compute of bytes read from tables."""
    if not target.gathered:  # it is not known what a gather takes
        return graph
    cones = _Cones(graph)
    roots = cones.expensive(graph, target)
    if not roots:
        return graph
    rewriter = Rewriter(graph)
    tables = _Tables(cones, rewriter)
    for original in graph.eqns:
        eqn = rewriter.resolve(original)
        if len(original.outvars) == 1 and original.outvars[0] in roots:
            rewriter.replace(original.outvars[0], tables.gathered(original.outvars[0]))
        else:
            rewriter.keep(eqn)
    return rewriter.finish()


class _Cones:
    """Which variables are elementwise functions of one array of bytes and of scalars, and which array that is."""

    def __init__(self, graph: Graph) -> None:
        self.producers = {eqn.outvars[0]: eqn for eqn in graph.eqns if len(eqn.outvars) == 1}
        self.bytes_of: dict[Var, Var] = {}
        for eqn in graph.eqns:
            source = self._source(eqn)
            if source is not None:
                self.bytes_of[eqn.outvars[0]] = source

    def _source(self, eqn: Eqn) -> Var | None:
        if eqn.primitive.fusion is not Fusion.ELEMENTWISE or len(eqn.outvars) != 1:
            return None
        sources = {self.source_of(v) for v in eqn.invars if not self.is_uniform(v)}
        out = eqn.outvars[0].aval
        same = all(v.aval.shape in ((), out.shape) for v in eqn.invars)
        return next(iter(sources)) if len(sources) == 1 and same and out.size >= FEWEST_ELEMENTS else None

    def source_of(self, operand: Operand) -> Var | None:
        """The array of bytes that the operand is a function of, itself if it is one."""
        if isinstance(operand, Literal):
            return None
        found = self.bytes_of.get(operand)
        return (
            operand if found is None and operand.aval.dtype.kind in "iu" and operand.aval.dtype.itemsize == 1 else found
        )

    def is_uniform(self, operand: Operand) -> bool:
        """Whether all elements are one scalar."""
        if not operand.aval.shape:
            return True
        if isinstance(operand, Literal):
            return False
        eqn = self.producers.get(operand)
        return eqn is not None and eqn.primitive is broadcast_in_dim_p and eqn.invars[0].aval.size == 1

    def expensive(self, graph: Graph, target: Target) -> set[Var]:
        """The variables that others than functions of the same bytes use, and that take longer to compute than to gather."""
        if not self.bytes_of:
            return set()
        used = {v for v in graph.outvars if v in self.bytes_of}
        for eqn in graph.eqns:
            inside = self.bytes_of.get(eqn.outvars[0]) if len(eqn.outvars) == 1 else None
            used |= {v for v in eqn.invars if isinstance(v, Var) and self.bytes_of.get(v, inside) is not inside}
        return {v for v in used if self._takes(v, target.margin * target.gathered, target)}

    def _takes(self, var: Var, most: float, target: Target) -> bool:
        """Whether an element of a variable takes more seconds to compute from its byte; no further than it takes to know."""
        found: set[Eqn] = set()
        waiting, seconds = [var], 0.0
        while waiting and seconds <= most:
            node = waiting.pop()
            eqn = self.producers.get(node)
            if eqn is not None and eqn not in found and node in self.bytes_of:
                found.add(eqn)
                seconds += element_seconds(eqn, target)
                waiting.extend(v for v in eqn.invars if isinstance(v, Var))
        return seconds > most


class _Tables:
    """The tables of a graph that is being rewritten."""

    def __init__(self, cones: _Cones, rewriter: Rewriter) -> None:
        self.cones, self.rewriter = cones, rewriter
        self.made: dict[tuple[Var, Operand], Operand] = {}
        self.indices: dict[Var, Operand] = {}

    def gathered(self, root: Var) -> Operand:
        """The values of a variable, out of its table."""
        source = self.cones.bytes_of[root]
        table = self._table(root, source)
        return self.rewriter.add(
            gather_p,
            table,
            self._indices(source),
            dimension_numbers=GatherDimensionNumbers((), (0,), (0,)),
            slice_sizes=(1,),
            indices_are_sorted=False,
            unique_indices=False,
            mode=GatherScatterMode.PROMISE_IN_BOUNDS,
            fill_value=None,
        )

    def _table(self, operand: Operand, source: Var) -> Operand:
        """The operand for each byte."""
        if isinstance(operand, Literal) or not operand.aval.shape:
            return self.rewriter.current(operand)
        known = self.made.get((source, operand))
        if known is None:
            known = self.made[source, operand] = self._made(operand, source)
        return known

    def _made(self, var: Var, source: Var) -> Operand:
        add = self.rewriter.add
        if var is source:
            values = add(iota_p, dtype=np.dtype("uint8"), shape=(VALUES,), dimension=0)
            dtype = source.aval.dtype
            return values if dtype == np.uint8 else add(bitcast_convert_type_p, values, new_dtype=dtype)
        eqn = self.cones.producers[var]
        if self.cones.is_uniform(var):
            scalar = self.rewriter.current(eqn.invars[0])
            return add(broadcast_in_dim_p, scalar, shape=(VALUES,), broadcast_dimensions=(0,) * scalar.aval.ndim)
        return add(eqn.primitive, *(self._table(v, source) for v in eqn.invars), **eqn.params)

    def _indices(self, source: Var) -> Operand:
        if source not in self.indices:
            add, number = self.rewriter.add, self.rewriter.current(source)
            if number.aval.dtype != np.uint8:
                number = add(bitcast_convert_type_p, number, new_dtype=np.dtype("uint8"))
            wide = add(convert_element_type_p, number, new_dtype=np.dtype("int32"), weak_type=False)
            shape = wide.aval.shape
            self.indices[source] = add(
                broadcast_in_dim_p, wide, shape=(*shape, 1), broadcast_dimensions=tuple(range(len(shape)))
            )
        return self.indices[source]
