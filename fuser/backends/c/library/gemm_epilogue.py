"""A matrix product with elementwise work on its result: gemm calls the `epilogue` with each block that it has finished.

In: a CONTRACTION group. Out: the epilogue, which reads the product from the block, and a function that starts gemm. A
product alone has no epilogue, and gemm writes the result itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.backends.base import KernelSource
from fuser.backends.c import spell
from fuser.backends.c.builder import Builder
from fuser.backends.c.emitter import Emitter
from fuser.backends.c.function import (
    ARGUMENTS,
    FUNCTION,
    Code,
    Definition,
    Element,
    Function,
    Module,
    Own,
    Part,
    Sum,
    Variable,
    code,
    joined,
)
from fuser.backends.c.library import on_demand, small_gemm
from fuser.backends.c.schedules import masking
from fuser.backends.c.target import TARGET
from fuser.ir.graph import Eqn, Graph
from fuser.ir.index import Affine, Axis
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.kernel.complex_parts import split_complex
from fuser.kernel.decompose import decompose
from fuser.kernel.kernel import Kernel, Sweep
from fuser.kernel.loops import Loops
from fuser.kernel.lower import lower
from fuser.kernel.operands import computed, index_axes, operands
from fuser.legalise.implicit_gemm import patches
from fuser.legalise.strided_operands import Laid, Matrices, Run, form_of, laid, overlaps
from fuser.partition.axes import Views, is_view
from fuser.partition.group import FusionGroup, Kind, Layout

PACKED_ACROSS, TRANSPOSED = 1.5, 1.0  # a row's element packed, a result's transposed, beside a column's element packed

PAIR = 2  # numbers apart at most that lie along an axis: parts of complex ones
BLOCK_AT = ("ld", "item", "r0", "r1", "c0", "c1")  # of a block of the product


def refusal(eqn: Eqn) -> str | None:
    """Why a contraction runs as a library call; None if it becomes a kernel."""
    return None if on_demand.has_gemm(eqn) else "dot_general runs in a library"


def emit_product(group: FusionGroup, inside: bool) -> KernelSource:
    """The function `name(buffers, sizes)`; its first size argument is the address of gemm. `inside`: a loop calls it."""
    (dot,) = (eqn for eqn in group.graph.eqns if eqn.primitive.fusion is Fusion.DOT)
    (out,) = dot.outvars
    views = Views(group.graph.eqns)
    maker = next((e for e in group.graph.eqns if dot.invars[0] in e.outvars and not is_view(e)), None)
    pieces = None if maker is None else patches(maker, views)
    left, right = (laid(views(v), v) for v in dot.invars)
    if pieces is not None:
        left = pieces.piece, pieces.first
    assert left and right, "partition gives products strided operands"
    (x, x_first), (y, y_first) = left, right
    types = dot.invars[0].aval.dtype, out.aval.dtype
    numbers = dot.params["dimension_numbers"]
    form = pieces.product(y, numbers) if pieces else form_of(x, y, numbers)
    assert form is not None, "partition lays contracted dimensions together"
    if form.tables and not pieces:
        form = replace(form, crosswise=_pays_crosswise(form, x, y, *types))
    inputs = group.graph.invars
    results = list(dict.fromkeys(group.graph.outvars))
    bare = results == [out]
    epilogue = None if bare else _epilogue(group, dot, form, False)
    if epilogue is not None and not (pieces or form.tables) and epilogue.along_rows():
        form = form.transposed()
        epilogue = _epilogue(group, dot, form, False)
    if epilogue is not None and (placed := epilogue.placed(form)) is not None:
        form, epilogue, bare = placed, None, True
    items = None if form.tables else small_gemm.items_of(form, *types, inside, bare)
    if epilogue is not None and items is not None and not items.tall:
        epilogue = _epilogue(group, dot, form, True)
    sizes = (0, x_first, y_first, *gemm_sizes(form, epilogue=not bare), *form.tables)
    name, first, last = group.name, 3, len(sizes)
    origins = [pieces.source if pieces else views(dot.invars[0]).source, views(dot.invars[1]).source]
    operands = [f"(char *)buffers[{inputs.index(v)}] + sizes[{n}]" for n, v in enumerate(origins, 1)]
    operands = operands[::-1] if form.swapped else operands
    parts: list[Definition | Function] = []
    builder = Builder()
    if epilogue is not None:
        parts.append(epilogue.function_from(last))
        sizes += tuple(epilogue.sizes.values)
        pointers_of = [f"buffers[{n}]" for n in range(len(inputs) + len(results))]
        builder.do(
            f"void *all[] = {{{{{', '.join([*pointers_of[: len(inputs)], '0', *pointers_of[len(inputs) :]])}}}}};"
        )
    functions: tuple[Any, ...] = ()
    if items is not None:
        parts += small_gemm.items_functions(items, out.aval.dtype, not bare, epilogue is not None and epilogue.one_row)
        given = ["0", "0"] if bare else ["all", f"sizes + {last}"]
        given += [f"(void *)({operand})" for operand in operands] + [f"buffers[{len(inputs)}]" if bare else "0"]
        builder.let("int64_t", "count", "sizes[0]")
        small_gemm.share_out(builder, items, joined(given, ", "))
        sizes = (items.run.extent, *sizes[1:])
    else:
        ending = [code(f"buffers[{len(inputs)}]")]
        if not bare:
            ending = [code("(void *){}", Own("_epilogue")), code("all"), code(f"(void *)(sizes + {last})")]
        pointers = joined([*operands, *ending], ", ")
        builder.do(f"(({{}})sizes[0])((void *[]){{{{{{}}}}}}, sizes + {first});", FUNCTION, pointers)
        functions = ((0, (_reading(form) if form.tables else "gemm", *types)),)
    comments = tuple(dict.fromkeys(str(s) for s in group.sources if s.file))
    parts.append(Function(Own(), tuple(builder.statements), comments=comments, first_size=0))
    names = tuple(f"in{n}" for n in range(len(inputs))) + tuple(f"out{n}" for n in range(len(results)))
    launch = {"sizes": sizes, "functions": functions}
    return KernelSource(name, Module(name, tuple(parts)), "c", names, launch)


def gemm_sizes(form: Matrices, epilogue: bool) -> tuple[int, ...]:
    """The size arguments of gemm."""
    rows, columns = form.rows, form.columns
    plain = (rows.extent, columns.extent, form.depth, rows.a, form.ca, form.rb, columns.b, rows.c)
    batch = [number for run in form.batch for number in (run.extent, run.a, run.b, run.c)]
    return (*plain, int(epilogue) + 2 * form.crosswise, len(form.batch), *batch)


def _reading(form: Matrices) -> str:
    """The product by tables whose tiles leave fewer rows idle, or of those that leave as many the one for many columns."""
    rows = form.columns.extent if form.crosswise else form.rows.extent
    idle = {name: -rows % tile for name, tile in on_demand.TILE_ROWS.items()}
    most_columns = form.crosswise or form.columns.extent < form.rows.extent
    return min(idle, key=lambda name: (idle[name], (name == "tables") != most_columns))


def _pays_crosswise(form: Matrices, x: Laid, y: Laid, operand: np.dtype, out: np.dtype) -> bool:
    """Whether the transposed product takes less: it packs the kernels of a convolution, reads the windows (of channels that lie
    apart) where they lie, and transposes the result."""
    rows, columns, depth = form.rows.extent, form.columns.extent, form.depth
    if on_demand.accumulator(out) != operand or overlaps(x) or not overlaps(y):
        return False
    return depth * columns > PACKED_ACROSS * depth * rows + TRANSPOSED * rows * columns


def _epilogue(group: FusionGroup, dot: Eqn, form: Matrices, items: bool) -> Epilogue:
    """What writes the epilogue; the product is of small `items`, each of which is a block as a whole, or one of many blocks."""
    (product,) = dot.outvars
    eqns = tuple(eqn for eqn in group.graph.eqns if eqn is not dot)
    graph = Graph((*group.graph.invars, product), (), (), eqns, group.graph.outvars, group.name)
    kernel = lower(FusionGroup(Kind.ELEMENTWISE, graph, group.parallel, (), group.name, group.sources, group.layout))
    kernel = decompose(split_complex(kernel), spell.TABLE.has)  # the product itself is of real numbers
    return Epilogue(kernel, len(graph.invars) - 1, Walk(group.layout[product], form), items)


class Walk:
    """The loop axes of the product's result, by what gemm counts: items of the batch, rows and columns."""

    def __init__(self, layout: Layout, form: Matrices) -> None:
        def axes(runs: Sequence[Run]) -> list[Axis]:
            return [axis for run in runs for d in run.dims if (axis := layout[d]) is not None]

        self.batch = [axes([run]) for run in form.batch]
        self.items, self.rows, self.columns = axes(form.batch), axes([form.rows]), axes([form.columns])

    def loops(self) -> Loops:
        axes = (*self.items, *self.rows, *self.columns)
        inner = self.columns[-1] if self.columns else None
        return Loops(axes, (), {axis: axis.extent for axis in axes}, frozenset(), inner)


def _one_row(kernel: Kernel, product: int, walk: Walk) -> bool:
    """Whether the columns of each row are followed by those of the next, in all that the epilogue reads and writes of them."""
    if len(walk.rows) != 1 or len(walk.columns) != 1:
        return False
    [row], [column] = walk.rows, walk.columns
    loads = [node for node in kernel.nodes if node.op == "load" and node.attr.param != product]
    indices = [node.attr.offset for node in loads] + [store.offset for store in kernel.stores]
    indices += [node.attr for node in kernel.nodes if node.op == "index"]
    if any(node.args for node in loads) or any(computed(index) for index in indices):
        return False
    return all(
        isinstance(atom, Axis) for index in indices if index_axes(index) & {row, column} for atom in index.atoms
    ) and all(index.coefficient(row) == index.coefficient(column) * column.extent for index in indices)


class Epilogue(Emitter):
    """Elementwise over one block of the product, on the thread that computed it."""

    short_loops = True

    def __init__(self, kernel: Kernel, product: int, walk: Walk, items: bool) -> None:
        loops = walk.loops()
        # Where rows lie one after the other in all arrays, those of one small product are written as one.
        self.one_row = items and _one_row(kernel, product, walk)
        if self.one_row:
            [row], [column] = walk.rows, walk.columns
            loops = replace(loops, extents={**loops.extents, row: 1, column: row.extent * column.extent})
        super().__init__(kernel, loops)
        self.product = product  # the parameter that stands for the product
        self.walk = walk
        block = spell.local(on_demand.accumulator(kernel.params[product].dtype))
        self.block_arguments = [(f"const {block} *restrict", self._declared("block", block, pointer=True))]
        self.block_arguments += [("int64_t", self._declared(name, "int64_t")) for name in BLOCK_AT]

    def function_from(self, first_size: int) -> Function:
        """The epilogue, whose size arguments begin at this one of the kernel's."""
        (written,) = self.module().functions
        parameters = (*ARGUMENTS, *self.block_arguments)
        return replace(written, name=Own("_epilogue"), parameters=parameters, static=True, first_size=first_size)

    def along_rows(self) -> bool:
        """Whether more of what it writes and reads lies in memory along rows of the product than along columns, which its vectors
        run along: the product is then better computed transposed."""
        if not self.walk.rows or self.walk.rows[-1].extent < TARGET.lanes:
            return False
        [sweep] = self.kernel.sweeps
        loads = [node for node in sweep.row if node.op == "load" and node.attr.param != self.product]
        accesses = [(node.attr.offset, node.dtype.itemsize) for node in loads]
        accesses += [(store.offset, 2 * self.kernel.params[store.param].dtype.itemsize) for store in sweep.row_stores]
        along = [(axes[-1] if axes else None) for axes in (self.walk.rows, self.walk.columns)]
        rows, columns = (
            sum(size for offset, size in accesses if axis is not None and 0 < offset.coefficient(axis) <= PAIR)
            for axis in along
        )
        return rows > columns

    def placed(self, form: Matrices) -> Matrices | None:
        """The product with the strides at which it is written, where all that is done with it is to put it elsewhere: then gemm
        does so itself. None where more is done, or columns do not lie dense."""
        (sweep,) = self.kernel.sweeps
        stores = sweep.row_stores
        if len(stores) != 1 or stores[0].value.op != "load" or stores[0].value.attr.param != self.product:
            return None
        (store,) = stores
        if self.kernel.params[store.param].dtype != self.kernel.params[self.product].dtype:
            return None
        walk, offset = self.walk, store.offset
        runs = [(form.rows, walk.rows), (form.columns, walk.columns), *zip(form.batch, walk.batch)]
        steps = [_step(offset, axes) for _, axes in runs]
        around = {axis for _, axes in runs for axis in axes}
        if offset.offset or steps[1] not in (0, 1) or not around.issuperset(offset.atoms):
            return None
        found = [replace(run, c=step) for (run, _), step in zip(runs, steps) if step is not None]
        if len(found) < len(runs):
            return None
        rows, columns, *batch = found
        return replace(form, rows=rows, columns=columns, batch=tuple(batch))

    def invariants(self) -> list[Scalar]:
        """Nothing of the product, though one of a single element has no axis: its block is there in the loop."""
        found, late = super().invariants(), set[Scalar]()
        for node in found:
            if (node.op == "load" and node.attr.param == self.product) or any(n in late for n in operands(node)):
                late.add(node)
        return [node for node in found if node not in late]

    def form(self) -> None:
        sweep = self.kernel.sweeps[0]
        self._split(self.named("item"), self.walk.items)
        row = self.count("row", self.named("r0"), self.named("r1"))
        self._split(row, self.walk.rows)
        self._columns(sweep)
        while self.depth:
            self.close()

    def _element(self, sweep: Sweep, column: Part) -> None:
        self.let("int64_t", "column", "{}", column)
        self.define_all(sweep.row)
        for store in sweep.row_stores:
            self.store(store)

    def _split(self, number: Variable, axes: Sequence[Axis]) -> None:
        """The index along each axis that a running number stands for."""
        for n, axis in enumerate(axes):
            inner = axes[n + 1 :]
            index = code("{} / ({})", number, self.total(inner)) if inner else code(number)
            turn = code(" % {}", self.extents[axis]) if n else ""
            self.let("int64_t", self.axis_names[axis], "{}{}", index, turn)

    def _columns(self, sweep: Sweep) -> None:
        """The loops over columns, the innermost along one axis, and what is done there."""
        if not self.walk.columns:
            self._element(sweep, self.named("c0"))
            return
        *outer, inner = self.walk.columns
        extent = self.extents[inner]
        low, high = code(self.named("c0")), code(self.named("c1"))
        if outer:
            line = Variable("line", "int64_t")
            self.start(line, code("{} / {}", low, extent), code("{} * {} < {}", line, extent, high), code("++{}", line))
            self._split(line, outer)
            start = self.let("int64_t", "start", "{} * {}", line, extent)
            low, high = (
                code("({0} < {1} ? {1} - {0} : 0)", start, low),
                code("({0} + {1} > {2} ? {2} - {0} : {1})", start, extent, high),
            )
        here = self.axes[inner]
        element = lambda: self._element(sweep, self.code("{start} + {}", here) if outer else here)
        short = masking.lanes(self, sweep.row, sweep.row_stores, self.loops.extents[inner])
        longer = masking.remainder(self, sweep.row, sweep.row_stores, self.loops.extents[inner])
        own = [node for node in sweep.row if node.op != "load" or node.attr.param != self.product]
        with self.standing_loads(own if short or longer else ()):
            if longer and not short:
                self.in_whole_vectors(inner, longer, element, low, high)
                return
            self.pragma("omp simd")
            if short:
                self.open_masked(self.axis_names[inner], high, short, low)
            else:
                self.loop(inner, low, high)
            element()
            for _ in range(1 + bool(short)):
                self.close()

    def expression(self, node: Scalar) -> Code:
        if node.op == "load" and node.attr.param == self.product:
            dtype = self.kernel.params[self.product].dtype
            row = self.code("({row} - {r0}) * {ld}")
            terms = (("+", row), ("+", self.code("{column}")), ("-", self.code("{c0}")))
            element: Part = Element(self.named("block"), Sum(terms))
            if on_demand.accumulator(dtype) != dtype:  # in a kernel of its own the product would have been rounded
                rounded = code(f"({spell.storage(dtype)})({{}})", spell.store(dtype, element))
                element = spell.load(dtype, rounded)
            return code(element)
        return super().expression(node)


def _step(offset: Affine, axes: Sequence[Axis]) -> int | None:
    """How far neighbours of a running number over axes lie apart; 0 where there is one, None where they lie unevenly."""
    step, count = 0, 1
    for axis in reversed(axes):
        found = offset.coefficient(axis)
        if axis.extent == 1:
            continue
        if count > 1 and found != step * count:
            return None
        step, count = (found if count == 1 else step), count * axis.extent
    return step
