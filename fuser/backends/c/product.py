"""A matrix product with elementwise work on its result: gemm.c calls the `tail` with each block that it has finished.

In: a CONTRACTION group. Out: the tail's text, which reads the product from the block, and a function that starts gemm. A
product alone has no tail, and gemm writes the result itself.
"""

from __future__ import annotations

from fuser.backends.base import KernelSource
from fuser.backends.c import library, spell
from fuser.backends.c.control import product_operands
from fuser.backends.c.writer import Writer
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import Scalar
from fuser.ir.types import FLOATS
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import Loops
from fuser.kernel.lower import lower
from fuser.partition.group import FusionGroup, Kind


def refusal(eqn: Eqn) -> str | None:
    """Why a contraction runs as a library call; None if it becomes a kernel."""
    (contracted, _), (batch, _) = eqn.params["dimension_numbers"]
    out = eqn.outvars[0].aval
    plain = len(contracted) == 1 and not batch and out.ndim == 2 and all(extent > 1 for extent in out.shape)
    same = eqn.invars[0].aval.dtype == out.dtype and out.dtype in FLOATS[2:]
    return None if plain and same and library.has_gemm(eqn) else "dot_general runs in a library"


def emit_product(group: FusionGroup) -> KernelSource:
    """The function `name(buffers, sizes)`; its first size argument is the address of gemm."""
    (dot,) = (eqn for eqn in group.graph.eqns if eqn.primitive.fusion is Fusion.DOT)
    (out,) = dot.outvars
    found = product_operands(_alone(group, dot))
    assert found is not None, "partition gives products strided operands"
    (x, a, a_offset), (y, b, b_offset) = found
    inputs = group.graph.invars
    results = list(dict.fromkeys(group.graph.outvars))
    bare = results == [out]
    tail, tail_sizes = ("", ()) if bare else _tail(group, out)
    sizes = (0, a_offset, b_offset, *library.gemm_sizes(a, b, tail=not bare), *tail_sizes)
    name, first, last = group.name, 3, len(sizes) - len(tail_sizes)
    operands = [f"(char *)buffers[{inputs.index(v)}] + sizes[{place}]" for v, place in ((x, 1), (y, 2))]
    ending = [f"buffers[{len(inputs)}]"] if bare else [f"(void *){name}_tail", "all", f"(void *)(sizes + {last})"]
    count = len(inputs) + len(results)
    places = [f"buffers[{n}]" for n in range(count)]
    places.insert(len(inputs), "0")
    comments = "".join(f"// {line}\n" for line in dict.fromkeys(str(s) for s in group.sources if s.file))
    lines = [
        f"void {name}(void **buffers, const int64_t *sizes) {{",
        *([] if bare else [f"  void *all[] = {{{', '.join(places)}}};"]),
        f"  ((function)sizes[0])((void *[]){{{', '.join(operands + ending)}}}, sizes + {first});",
        "}",
    ]
    text = tail + comments + "\n".join(lines)
    names = tuple(f"in{n}" for n in range(len(inputs))) + tuple(f"out{n}" for n in range(len(results)))
    return KernelSource(
        name, text, "c", names, {"sizes": sizes, "functions": ((0, ("gemm", out.aval.dtype, out.aval.dtype)),)}
    )


def _alone(group: FusionGroup, dot: Eqn) -> FusionGroup:
    """The product without what is done with it."""
    needed: set[Var] = {v for v in dot.invars if isinstance(v, Var)}
    eqns = [dot]
    for eqn in reversed(group.graph.eqns):
        if eqn is not dot and needed & set(eqn.outvars):
            eqns.append(eqn)
            needed |= {v for v in eqn.invars if isinstance(v, Var)}
    graph = group.graph.updated("product", eqns=tuple(reversed(eqns)), outvars=dot.outvars)
    return FusionGroup(group.kind, graph, group.rows, (), group.name, group.sources)


def _tail(group: FusionGroup, product: Var) -> tuple[str, tuple[int, ...]]:
    """The text of the tail, and its size arguments."""
    eqns = tuple(eqn for eqn in group.graph.eqns if product not in eqn.outvars)
    graph = Graph((*group.graph.invars, product), (), (), eqns, group.graph.outvars, group.name)
    kernel = lower(FusionGroup(Kind.ELEMENTWISE, graph, group.rows, (), group.name, group.sources, group.layout))
    m, n = group.layout[product]
    assert m is not None and n is not None
    extents = {axis: axis.extent for axis in (m, n)}
    writer = Tail(kernel, Loops((m, n), (), extents, frozenset(), n), len(graph.invars) - 1)
    return writer.text() + "\n\n", tuple(writer.sizes.values)


class Tail(Writer):
    """Elementwise over one block of the product, on the thread that computed it."""

    def __init__(self, kernel: Kernel, loops: Loops, product: int) -> None:
        super().__init__(kernel, loops)
        self.product = product  # the parameter that stands for the product

    def signature(self) -> str:
        kind = spell.storage(self.kernel.params[self.product].dtype)
        return (
            f"static void {self.kernel.name}_tail(void **buffers, const int64_t *sizes, const {kind} *restrict block, "
            "int64_t ld, int64_t r0, int64_t r1, int64_t c0, int64_t c1)"
        )

    def form(self) -> None:
        stage = self.kernel.stages[0]
        m, n = self.loops.rows
        self.loop(m, "r0", "r1")
        self.line("#pragma omp simd")
        self.loop(n, "c0", "c1")
        self._nodes(stage.row)
        for store in stage.row_stores:
            self.store(store)
        self.close()
        self.close()

    def _expression(self, node: Scalar) -> str:
        if node.op == "load" and node.attr.param == self.product:
            m, n = self.loops.rows
            return f"block[({self.axis_names[m]} - r0) * ld + {self.axis_names[n]} - c0]"
        return super()._expression(node)
