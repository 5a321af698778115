"""A matrix product with elementwise work on its result: gemm calls the `tail` with each block that it has finished.

In: a CONTRACTION group. Out: the tail's text, which reads the product from the block, and a function that starts gemm. A
product alone has no tail, and gemm writes the result itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fuser.backends.base import KernelSource
from fuser.backends.c import library, small, spell
from fuser.backends.c.writer import Writer
from fuser.ir.graph import Eqn, Graph
from fuser.ir.index import Axis
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops
from fuser.kernel.lower import lower
from fuser.partition.axes import Views, is_view
from fuser.partition.group import FusionGroup, Kind, Layout
from fuser.partition.patches import patches
from fuser.partition.products import Matrices, Run, laid, matrices

NEAR = 96 << 10  # bytes of a second matrix that gemm reads again and again where it lies, as NEAR in gemm/direct.c


def refusal(eqn: Eqn) -> str | None:
    """Why a contraction runs as a library call; None if it becomes a kernel."""
    return None if library.has_gemm(eqn) else "dot_general runs in a library"


def emit_product(group: FusionGroup) -> KernelSource:
    """The function `name(buffers, sizes)`; its first size argument is the address of gemm."""
    (dot,) = (eqn for eqn in group.graph.eqns if eqn.primitive.fusion is Fusion.DOT)
    (out,) = dot.outvars
    views = Views(group.graph.eqns)
    maker = next((e for e in group.graph.eqns if dot.invars[0] in e.outvars and not is_view(e)), None)
    pieces = None if maker is None else patches(maker, views)
    left, right = (laid(views(v), v) for v in dot.invars)
    if pieces is not None:
        left = pieces.laid, pieces.first
    assert left and right, "partition gives products strided operands"
    (x, x_first), (y, y_first) = left, right
    form = matrices(x, y, dot.params["dimension_numbers"])
    assert form is not None, "partition lays contracted dimensions together"
    inputs = group.graph.invars
    results = list(dict.fromkeys(group.graph.outvars))
    bare = results == [out]
    tail, tail_sizes = ("", ()) if bare else _tail(group, dot, form)
    types = dot.invars[0].aval.dtype, out.aval.dtype
    items = None if pieces else small.items_of(form, *types)
    places = pieces.places if pieces else ()
    sizes = (0, x_first, y_first, *gemm_sizes(form, tail=not bare), *places, *tail_sizes)
    name, first, last = group.name, 3, len(sizes) - len(tail_sizes)
    origins = [pieces.source if pieces else views(dot.invars[0]).source, views(dot.invars[1]).source]
    operands = [f"(char *)buffers[{inputs.index(v)}] + sizes[{n}]" for n, v in enumerate(origins, 1)]
    ending = [f"buffers[{len(inputs)}]"] if bare else [f"(void *){name}_tail", "all", f"(void *)(sizes + {last})"]
    places_of = [f"buffers[{n}]" for n in range(len(inputs) + len(results))]
    places_of.insert(len(inputs), "0")
    comments = "".join(f"// {line}\n" for line in dict.fromkeys(str(s) for s in group.sources if s.file))
    operands = operands[::-1] if form.swapped else operands
    lines = [f"void {name}(void **buffers, const int64_t *sizes) {{"]
    if not bare:
        lines.append(f"  void *all[] = {{{', '.join(places_of)}}};")
    functions: tuple[Any, ...] = ()
    if items is not None:
        tail += small.items_text(name, items, out.aval.dtype, tail=not bare) + "\n\n"
        given = ["0", "0"] if bare else ["all", f"sizes + {last}"]
        given += [f"(void *)({operand})" for operand in operands] + [ending[0] if bare else "0"]
        lines += ["  const int64_t count = sizes[0];", *small.items_calls(name, items, ", ".join(given))]
        sizes = (items.run.extent, *sizes[1:])
    else:
        given = operands + ending
        lines.append(f"  ((function)sizes[0])((void *[]){{{', '.join(given)}}}, sizes + {first});")
        functions = ((0, ("patches" if pieces else "gemm", *types)),)
    lines.append("}")
    names = tuple(f"in{n}" for n in range(len(inputs))) + tuple(f"out{n}" for n in range(len(results)))
    launch = {"sizes": sizes, "functions": functions}
    return KernelSource(name, tail + comments + "\n".join(lines), "c", names, launch)


def gemm_sizes(form: Matrices, tail: bool) -> tuple[int, ...]:
    """The size arguments of gemm."""
    rows, columns = form.rows, form.columns
    plain = (rows.extent, columns.extent, form.depth, rows.a, form.ca, form.rb, columns.b, rows.c)
    batch = [number for run in form.batch for number in (run.extent, run.a, run.b, run.c)]
    return (*plain, int(tail), len(form.batch), *batch)


def _tail(group: FusionGroup, dot: Eqn, form: Matrices) -> tuple[str, tuple[int, ...]]:
    """The text of the tail, and its size arguments."""
    (product,) = dot.outvars
    eqns = tuple(eqn for eqn in group.graph.eqns if eqn is not dot)
    graph = Graph((*group.graph.invars, product), (), (), eqns, group.graph.outvars, group.name)
    kernel = lower(FusionGroup(Kind.ELEMENTWISE, graph, group.rows, (), group.name, group.sources, group.layout))
    writer = Tail(kernel, len(graph.invars) - 1, Walk(group.layout[product], form))
    return writer.text() + "\n\n", tuple(writer.sizes.values)


class Walk:
    """The loop axes of the product's result, by what gemm counts: items of the batch, rows and columns."""

    def __init__(self, layout: Layout, form: Matrices) -> None:
        def axes(runs: Sequence[Run]) -> list[Axis]:
            return [axis for run in runs for d in run.dims if (axis := layout[d]) is not None]

        self.items, self.rows, self.columns = axes(form.batch), axes([form.rows]), axes([form.columns])

    def loops(self) -> Loops:
        axes = (*self.items, *self.rows, *self.columns)
        inner = self.columns[-1] if self.columns else None
        return Loops(axes, (), {axis: axis.extent for axis in axes}, frozenset(), inner)


class Tail(Writer):
    """Elementwise over one block of the product, on the thread that computed it."""

    def __init__(self, kernel: Kernel, product: int, walk: Walk) -> None:
        super().__init__(kernel, walk.loops())
        self.product = product  # the parameter that stands for the product
        self.walk = walk

    def signature(self) -> str:
        kind = spell.local(library.accumulator(self.kernel.params[self.product].dtype))
        return (
            f"static void {self.kernel.name}_tail(void **buffers, const int64_t *sizes, const {kind} *restrict block, "
            "int64_t ld, int64_t item, int64_t r0, int64_t r1, int64_t c0, int64_t c1)"
        )

    def form(self) -> None:
        stage = self.kernel.stages[0]
        self._split("item", self.walk.items)
        self.open("for (int64_t row = r0; row < r1; ++row)")
        self._split("row", self.walk.rows)
        self._columns()
        self._nodes(stage.row)
        for store in stage.row_stores:
            self.store(store)
        while self.depth > 1:
            self.close()

    def _split(self, number: str, axes: Sequence[Axis]) -> None:
        """The place along each axis that a running number stands for."""
        for n, axis in enumerate(axes):
            inner = " * ".join(self.extents[a] for a in axes[n + 1 :])
            place = f"{number} / ({inner})" if inner else number
            turn = f" % {self.extents[axis]}" if n else ""
            self.line(f"const int64_t {self.axis_names[axis]} = {place}{turn};")

    def _columns(self) -> None:
        """The loops over columns, the innermost along one axis."""
        if not self.walk.columns:
            self.line("const int64_t column = c0;")
            return
        *outer, inner = self.walk.columns
        name, extent = self.axis_names[inner], self.extents[inner]
        low, high = "c0", "c1"
        if outer:
            self.open(f"for (int64_t line = c0 / {extent}; line * {extent} < c1; ++line)")
            self._split("line", outer)
            self.line(f"const int64_t start = line * {extent};")
            low = "(start < c0 ? c0 - start : 0)"
            high = f"(start + {extent} > c1 ? c1 - start : {extent})"
        self.line("#pragma omp simd")
        self.loop(inner, low, high)
        self.line(f"const int64_t column = {'start + ' if outer else ''}{name};")

    def _expression(self, node: Scalar) -> str:
        if node.op == "load" and node.attr.param == self.product:
            dtype = self.kernel.params[self.product].dtype
            element = "block[(row - r0) * ld + column - c0]"
            if library.accumulator(dtype) != dtype:  # in a kernel of its own the product would have been rounded
                element = spell.load(dtype, f"({spell.storage(dtype)})({spell.store(dtype, element)})")
            return element
        return super()._expression(node)
