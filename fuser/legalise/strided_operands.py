"""Products as kernels see them that read operands by strides: three extents, strides, and a batch of any dimensions.

`matrices` puts dimensions together that lie together in memory. What no strides describe (a view that they do not reach,
contracted dimensions that do not join) the partition copies first: `with_strided_operands`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.index import Axis
from fuser.ir.primitive import Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ops.dot import free_dimensions, window_product_p
from fuser.ops.elementwise import copy_p
from fuser.ops.movement import reshape_p, transpose_p
from fuser.partition.axes import View, Views, source_offset

Strides = tuple[int, ...]
SCATTERED, SHORT_ROWS = 1 << 14, 512  # elements of the second matrix from which, and rows below which, tables pay
SMALL = 256  # elements of a matrix up to which its product with a vector, one of a batch, is taken as one of matrices


@dataclass(frozen=True)
class Run:
    """Neighbouring dimensions of the result that are one loop: its extent, and its strides in A, B and the result."""

    dims: tuple[int, ...]
    extent: int
    a: int
    b: int
    c: int


@dataclass(frozen=True)
class Matrices:
    """C[m, n] = Σ A[m, k]·B[k, n] for each item of a batch; strides in elements. `swapped`: A is the second operand."""

    rows: Run
    columns: Run
    depth: int
    ca: int
    rb: int
    batch: tuple[Run, ...]
    swapped: bool
    tables: tuple[int, ...] = ()  # the dimensions of rows, columns and depth, as gemm's tables are made of them
    crosswise: bool = False  # by tables: the transposed product is computed, and its blocks are transposed

    def transposed(self) -> Matrices:
        """The product of the operands in the other order, whose rows are columns here; not of one by tables."""
        assert not self.tables
        other = lambda run: Run(run.dims, run.extent, run.b, run.a, run.c)
        rows, columns, batch = other(self.columns), other(self.rows), tuple(map(other, self.batch))
        return Matrices(rows, columns, self.depth, self.rb, self.ca, batch, not self.swapped)


@dataclass(frozen=True)
class Laid:
    """An operand of a product: its shape, and its strides in elements, 0 along extents of 1."""

    shape: tuple[int, ...]
    strides: Strides


def matrices(x: Laid, y: Laid, dimension_numbers: Any) -> Matrices | None:
    """The product of two operands as matrices; None where its contracted dimensions do not lie together."""
    (xc, yc), (xb, yb) = dimension_numbers
    depth = next((found for order in _orders(x, y, xc, yc) if (found := _joined(x, y, order)) is not None), None)
    if depth is None:
        return None
    xf, yf = (free_dimensions(len(o.shape), c, b) for o, c, b in ((x, xc, xb), (y, yc, yb)))
    extents = [*(x.shape[d] for d in (*xb, *xf)), *(y.shape[d] for d in yf)]
    a = [x.strides[d] for d in (*xb, *xf)] + [0] * len(yf)
    b = [y.strides[d] for d in yb] + [0] * len(xf) + [y.strides[d] for d in yf]
    c = [math.prod(extents[d + 1 :]) for d in range(len(extents))]
    single = [Run((d,), extents[d], a[d], b[d], c[d]) for d in range(len(extents))]
    cuts = (0, len(xb), len(xb) + len(xf), len(single))
    batch, rows, columns = (_runs(single[low:high]) for low, high in itertools.pairwise(cuts))
    extent, ca, rb = depth
    single_row = not columns and bool(rows)
    swapped = single_row and not (batch and rows[-1].extent * extent <= SMALL)
    if swapped:
        rows, columns, ca, rb = columns, rows, rb, ca
        batch, rows, columns = ([Run(r.dims, r.extent, r.b, r.a, r.c) for r in runs] for runs in (batch, rows, columns))
    one = Run((), 1, 0, 1, 0)
    inner = columns.pop() if columns else one
    tall = max(rows, key=lambda run: (run.extent, -abs(run.a)), default=one)
    others = [run for run in (*batch, *rows, *columns) if run is not tall]
    return Matrices(tall, inner, extent, ca, rb, tuple(others), swapped)


def form_of(x: Laid, y: Laid, dimension_numbers: Any) -> Matrices | None:
    """The product by tables where an operand's elements overlap in memory (windows), or where rows lie so far apart that
    strides would cut them into many products of few rows; else `matrices`."""
    form = matrices(x, y, dimension_numbers)
    if overlaps(x) or overlaps(y):
        return by_tables(x, y, dimension_numbers)
    if form is None or form.swapped or form.depth * form.columns.extent < SCATTERED:
        return form
    (_, _), (xb, _) = dimension_numbers
    cut = math.prod(run.extent for run in form.batch) // math.prod(x.shape[d] for d in xb)
    return by_tables(x, y, dimension_numbers) if cut >= 4 and form.rows.extent < SHORT_ROWS else form


def overlaps(operand: Laid) -> bool:
    """Whether elements of an operand share memory, a broadcast of whole ones excepted."""
    moving = [(abs(s), e) for s, e in zip(operand.strides, operand.shape) if s and e > 1]
    return math.prod(e for _, e in moving) > 1 + sum(s * (e - 1) for s, e in moving)


def by_tables(x: Laid, y: Laid, dimension_numbers: Any) -> Matrices:
    """The product with rows, columns and depth of any dimensions, whose offsets tables give."""
    (xc, yc), (xb, yb) = dimension_numbers
    xf, yf = (free_dimensions(len(o.shape), c, b) for o, c, b in ((x, xc, xb), (y, yc, yb)))
    extents = [*(x.shape[d] for d in (*xb, *xf)), *(y.shape[d] for d in yf)]
    c = [math.prod(extents[d + 1 :]) for d in range(len(extents))]
    batch = _runs([Run((n,), x.shape[d], x.strides[d], y.strides[e], c[n]) for n, (d, e) in enumerate(zip(xb, yb))])
    first, second = len(xb), len(xb) + len(xf)
    rows = [(x.shape[d], x.strides[d]) for d in xf]
    columns = [(y.shape[d], y.strides[d]) for d in yf]
    pairs = [(x.shape[d], x.strides[d], y.strides[e]) for d, e in zip(xc, yc)]
    depth = sorted(pairs, key=lambda pair: -abs(pair[1]) - abs(pair[2]))  # what lies nearest in memory is walked first
    tables = [number for dims in (rows, columns, depth) for number in (len(dims), *itertools.chain(*dims))]
    tall = Run(tuple(range(first, second)), math.prod(e for e, _ in rows), 0, 0, c[second - 1] if rows else 1)
    wide = Run(tuple(range(second, len(extents))), math.prod(e for e, _ in columns), 0, 0, 1)
    return Matrices(tall, wide, math.prod(e for e, *_ in depth), 0, 0, tuple(batch), False, tuple(tables))


def _runs(single: Sequence[Run]) -> list[Run]:
    """Neighbours whose strides allow it joined; extents of 1 left out."""
    runs: list[Run] = []
    for run in single:
        if run.extent == 1:
            continue
        last = runs[-1] if runs else None
        if last is not None and (last.a, last.b) == (run.a * run.extent, run.b * run.extent):
            runs[-1] = Run(last.dims + run.dims, last.extent * run.extent, run.a, run.b, run.c)
        else:
            runs.append(run)
    return runs


def _orders(x: Laid, y: Laid, xc: Sequence[int], yc: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Orders in which the contracted dimensions may be walked: as they lie in the one operand, or in the other."""
    pairs = list(zip(xc, yc))
    return [
        sorted(pairs, key=lambda p: -abs(x.strides[p[0]])),
        sorted(pairs, key=lambda p: -abs(y.strides[p[1]])),
        pairs,
    ]


def _joined(x: Laid, y: Laid, pairs: Sequence[tuple[int, int]]) -> tuple[int, int, int] | None:
    """The contracted dimensions as one: extent and strides."""
    runs = _runs([Run((), x.shape[a], x.strides[a], y.strides[b], 0) for a, b in pairs])
    if not runs:
        return 1, 1, 1
    return (runs[0].extent, runs[0].a, runs[0].b) if len(runs) == 1 else None


def laid(view: View, operand: Operand) -> tuple[Laid, int] | None:
    """How an operand lies in the source of its view, and its first element's offset in bytes; None if strides do not say."""
    if view.source is None or isinstance(operand, Literal):
        return None
    axes = [Axis(extent) for extent in operand.aval.shape]
    offset = source_offset(view, operand, axes)
    if offset is None or not all(atom in axes for atom, _ in offset.terms):
        return None
    stride = dict(offset.terms)
    return (
        Laid(operand.aval.shape, tuple(stride.get(axis, 0) for axis in axes)),
        offset.offset * operand.aval.dtype.itemsize,
    )


def with_strided_operands(graph: Graph, generated: Callable[[Eqn], bool]) -> Graph:
    """The graph with a copy of each operand of a `generated` product that the kernel could not read by strides."""
    wanted = [eqn.primitive.fusion is Fusion.DOT and generated(eqn) for eqn in graph.eqns]
    if not any(wanted):
        return graph
    copying = Copying(graph)
    for eqn, use in zip(graph.eqns, wanted):
        copying.eqns.append(copying.readable(eqn) if use else eqn)
    return graph.updated("operands", eqns=tuple(copying.eqns))


def with_joined_windows(graph: Graph) -> Graph:
    """The graph with the contracted dimensions of each product of sliding windows as one, for kernels that read operands
    through any movement but contract one dimension."""
    views = Views(graph.eqns)
    windowed = {eqn for eqn in graph.eqns if eqn.primitive.fusion is Fusion.DOT and any(map(views.windows, eqn.invars))}
    if not windowed:
        return graph
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn, joining = rewriter.resolve(eqn), eqn in windowed
        if joining:
            rewriter.replace(eqn.outvars[0], _with_one_contracted(rewriter, eqn))
        else:
            rewriter.keep(eqn)
    return rewriter.finish()


def _with_one_contracted(rewriter: Rewriter, eqn: Eqn) -> Var:
    contracted, batch = eqn.params["dimension_numbers"]
    sides = []
    for operand, dims, over in zip(eqn.invars, contracted, batch):
        kept = [d for d in range(operand.aval.ndim) if d not in dims]
        order = (*kept, *dims)
        moved = operand if order == tuple(range(len(order))) else rewriter.add(transpose_p, operand, permutation=order)
        length = math.prod(operand.aval.shape[d] for d in dims)
        shape = (*(operand.aval.shape[d] for d in kept), length)
        joined = rewriter.add(reshape_p, moved, new_sizes=shape, dimensions=None)
        sides.append((joined, len(kept), tuple(kept.index(d) for d in over)))
    (x, xc, xb), (y, yc, yb) = sides
    params = {**eqn.params, "dimension_numbers": (((xc,), (yc,)), (xb, yb))}
    return rewriter.add(window_product_p, x, y, **params)


class Copying:
    """Equations with copies among them; one copy serves all products that read it."""

    def __init__(self, graph: Graph) -> None:
        self.views = Views(graph.eqns)
        self.eqns: list[Eqn] = []
        self.copies: dict[tuple[Operand, tuple[int, ...]], Var] = {}

    def readable(self, eqn: Eqn) -> Eqn:
        """The product with operands that its kernel can read."""
        operands = tuple(self._windowed(v, eqn) for v in eqn.invars)
        layouts = [laid(self.views(v), v) for v in operands]
        invars = [v if p else self.copy(v, tuple(range(v.aval.ndim)), eqn) for v, p in zip(operands, layouts)]
        x, y = (p[0] if p else _dense(v.aval.shape) for v, p in zip(operands, layouts))
        numbers = eqn.params["dimension_numbers"]
        if form_of(x, y, numbers) is None:
            invars, numbers = self._put_together(eqn, invars, x, y)
        params = {**eqn.params, "dimension_numbers": numbers}
        return Eqn(eqn.primitive, tuple(invars), params, eqn.outvars, eqn.source)

    def _windowed(self, operand: Operand, eqn: Eqn) -> Operand:
        """Windows of something that no strides describe as windows of a copy of it, which is smaller than they are."""
        maker = self.views.windows(operand)
        if maker is None or laid(self.views(operand), operand):
            return operand
        whole = self.copy(maker.invars[0], tuple(range(maker.invars[0].aval.ndim)), eqn)
        key = operand, ()
        if key not in self.copies:
            self.copies[key] = made = Var(operand.aval)
            again = Eqn(maker.primitive, (whole,), maker.params, (made,), maker.source)
            self.eqns.append(again)
            self.views.eqn_of[made] = again
        return self.copies[key]

    def _put_together(self, eqn: Eqn, invars: list[Operand], x: Laid, y: Laid) -> tuple[list[Operand], Any]:
        """Copies of the operands whose contracted dimensions do not lie together, in which they do."""
        (xc, yc), (xb, yb) = eqn.params["dimension_numbers"]
        pairs = min(_orders(x, y, xc, yc), key=lambda order: sum(_apart(order, x, y)))
        contracted = [[a for a, _ in pairs], [b for _, b in pairs]]
        sides = []
        for side, (operand, batch, apart) in enumerate(zip(invars, (xb, yb), _apart(pairs, x, y))):
            own = contracted[side]
            if not apart:
                sides.append((operand, tuple(own), tuple(batch)))
                continue
            free = free_dimensions(operand.aval.ndim, own, batch)
            order = (*batch, *free, *own)
            made = self.copy(operand, order, eqn)
            sides.append((made, tuple(range(len(order) - len(own), len(order))), tuple(range(len(batch)))))
        (a, a_contracted, a_batch), (b, b_contracted, b_batch) = sides
        return [a, b], ((a_contracted, b_contracted), (a_batch, b_batch))

    def copy(self, operand: Operand, order: tuple[int, ...], eqn: Eqn) -> Var:
        """The operand's elements dense in memory, its dimensions in this order."""
        key = operand, order
        if key not in self.copies:
            aval = operand.aval.update(shape=tuple(operand.aval.shape[d] for d in order))
            turned: Operand = operand
            if order != tuple(range(len(order))):
                turned = Var(aval)
                self.eqns.append(Eqn(transpose_p, (operand,), {"permutation": order}, (turned,), eqn.source))
            self.copies[key] = Var(aval)
            self.eqns.append(Eqn(copy_p, (turned,), {}, (self.copies[key],), eqn.source))
        return self.copies[key]


def _apart(pairs: Sequence[tuple[int, int]], x: Laid, y: Laid) -> tuple[bool, bool]:
    """Of each operand, whether its contracted dimensions in this order do not lie together."""
    xs = _runs([Run((), x.shape[a], x.strides[a], 0, 0) for a, _ in pairs])
    ys = _runs([Run((), y.shape[b], y.strides[b], 0, 0) for _, b in pairs])
    return len(xs) > 1, len(ys) > 1


def _dense(shape: tuple[int, ...]) -> Laid:
    return Laid(shape, tuple(math.prod(shape[d + 1 :]) for d in range(len(shape))))
