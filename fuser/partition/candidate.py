"""A Candidate: a fusion group while it grows; the two questions asked of a pair, `blocker` and `gain`; and `join`.

`parallel` and `reduced` are the candidate's loop axes; `layout` the axes along each value that it computes; `reads` how it reads
values from outside: with one axis (or None) a dimension, or opaquely. The questions only look; `join` alone changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fuser.ir.cost import cost, operations
from fuser.ir.graph import Eqn, Literal, Operand, Var
from fuser.ir.index import Axis
from fuser.ir.primitive import Fusion, Movement
from fuser.ir.target import Target, duration
from fuser.ops.attention import attention_p
from fuser.ops.dot import free_dimensions
from fuser.partition import recomputation_cost
from fuser.partition.attention_axes import layouts
from fuser.partition.axes import DimensionMap, Views, composed, dimension_maps, is_shift, shifts
from fuser.partition.axis_matching import match
from fuser.partition.column_sums import sums_columns
from fuser.partition.group import FUSIBLE, FusionLimits, Kind, Layout
from fuser.partition.loop import LoopForm
from fuser.partition.read_indices import Indices, indices, inlined, merged

MOST_SWEEPS = 8  # runs over the reduced axes, where each computes again what came before
KEPT = 1 << 14  # elements of a row that a kernel keeps from one run to the next
MOST_PIECES = 8  # loops that a kernel repeats what reads them in


@dataclass(eq=False)
class Candidate:
    """A group in the making."""

    kind: Kind
    eqns: list[Eqn]
    numbers: set[int]  # of the equations, as `Uses` counts them
    parallel: list[Axis]
    reduced: list[Axis]
    layout: dict[Var, Layout]
    reads: dict[Var, set[Layout]] = field(default_factory=dict)
    opaque: dict[Var, Indices] = field(default_factory=dict)  # value: at which indices it is read
    gathered: dict[Var, int] = field(
        default_factory=dict
    )  # value: how many elements are read alone at computed indices
    reshaped: set[Var] = field(default_factory=set)  # values read through reshapes that keep the order of elements
    uneven: set[Var] = field(default_factory=set)  # of the opaque ones those read in another order too, or in part
    cost: int = 0
    volume: int = 0  # operations, each times the bytes of its numbers
    expressions: int = 1  # of its kernel's text: equations, each as often as there are indices at which it is computed
    narrowest: int = 16  # bytes of the narrowest number, by which a vector's lanes are counted
    changed: set[Var] = field(
        default_factory=set
    )  # arrays that earlier writes have made those of `windows` of, in their memory
    sweeps: int = 0  # runs over the reduced axes, one after the other
    pieces: int = 1  # parts of its axes that compute different things, each in a loop of its own
    reverse: bool | None = None  # direction of the scans inside
    partial: bool = False  # some value covers only a part of the axes, and is computed again along the others
    reason: str = ""
    order: list[Axis] = field(default_factory=list)  # all axes as they lie in memory, outermost first
    innermost: set[Axis] = field(default_factory=set)  # axes that lie densest in some value of several axes, at least
    column_sums: set[Var] = field(default_factory=set)  # results that are sums over its parallel axes
    windows: dict[Var, Var] = field(
        default_factory=dict
    )  # results of which it writes a part, each by the array that it changes
    barriers: set[tuple[Var, int]] = field(default_factory=set)  # values read through a barrier, and its scope
    produced: set[Var] = field(default_factory=set)
    live_out: set[Var] = field(default_factory=set)  # what is produced here and needed outside too
    names: dict[str, None] = field(init=False)  # of the equations' primitives, in their order

    def __post_init__(self) -> None:
        self.names = dict.fromkeys(eqn.primitive.name for eqn in self.eqns)

    @property
    def axes(self) -> list[Axis]:
        return self.parallel + self.reduced

    @property
    def inputs(self) -> set[Var]:
        return self.reads.keys() | self.opaque.keys()


@dataclass(frozen=True)
class Uses:
    """Who reads each value, views seen through: the numbers of equations (−1: a result of the program)."""

    of: dict[Var, frozenset[int]]
    number: dict[Eqn, int]
    reducing: frozenset[int] = frozenset()  # the numbers of reductions


def standalone(number: int, eqn: Eqn, views: Views, kind: Kind, reason: str) -> Candidate:
    """The candidate of an equation that nothing joins by axes: a library call, a contraction, control flow."""
    sources = [view.source for view in map(views, eqn.invars) if view.source is not None]
    produced = set(eqn.outvars)
    return Candidate(
        kind,
        [eqn],
        {number},
        [],
        [],
        {},
        {},
        {source: {object(): 1.0} for source in sources},
        reason=reason,
        produced=produced,
        live_out=set(produced),
    )


def product(number: int, eqn: Eqn, views: Views, limits: FusionLimits) -> Candidate:
    """The candidate of a contraction that becomes a kernel: rows along the result, operands read wherever they are needed."""
    candidate = standalone(number, eqn, views, Kind.CONTRACTION, "")
    if all(limits.product_tile) and eqn.primitive is not attention_p:
        candidate.opaque = _reads_of_operands(eqn, views, limits.product_tile)
        candidate.uneven = set(candidate.opaque)
    if eqn.primitive is attention_p:
        found = layouts(eqn.params["graph"])
    else:
        found = (tuple(None if e == 1 else Axis(e) for e in eqn.outvars[0].aval.shape),)
    candidate.layout = {out: labels for out, labels in zip(eqn.outvars, found, strict=True) if labels is not None}
    candidate.parallel = list(dict.fromkeys(a for labels in candidate.layout.values() for a in labels if a is not None))
    candidate.order = candidate.parallel
    candidate.cost = 1 << 20  # never computed twice
    return candidate


def _reads_of_operands(eqn: Eqn, views: Views, tile: tuple[int, int]) -> dict[Var, Indices]:
    """How often each element of a product's operands is read where blocks of the result have so many rows and columns."""
    contracted, batch = eqn.params["dimension_numbers"]
    extents = []
    for operand, dims, batched in zip(eqn.invars, contracted, batch, strict=True):
        free = free_dimensions(operand.aval.ndim, dims, batched)
        extents.append(math.prod(operand.aval.shape[d] for d in free))
    found: dict[Var, Indices] = {}
    for operand, others, extent in zip(eqn.invars, reversed(extents), reversed(tile), strict=True):
        if (source := views(operand).source) is not None:
            found.setdefault(source, {})[object()] = max(1, math.ceil(others / extent))
    return found


def looped(number: int, eqn: Eqn, views: Views, form: LoopForm, uses: Uses) -> Candidate:
    """The candidate of a loop that becomes one kernel: its lanes are the rows, and each result has its axes."""
    layout = dict(zip(eqn.outvars, form.layouts))
    needed = {v for v in eqn.outvars if uses.of.get(v)}
    candidate = Candidate(
        Kind.LOOP, [eqn], {number}, list(form.lanes), [], layout, produced=set(eqn.outvars), live_out=needed
    )
    candidate.order = list(form.lanes)
    candidate.cost = 1 << 20  # never computed twice
    for operand, places in form.reads.items():
        view = views(operand)
        if view.source is None:
            continue
        for index in places:
            labels = tuple(None if not i.terms and not i.offset else i.axis() for i in index)
            aligned = all((a is not None and a in form.lanes) or e == 1 for a, e in zip(labels, operand.aval.shape))
            if aligned and operand not in form.repeated and view.dimensions is not None:
                read = tuple(None if d is None else labels[d] for d in view.dimensions)
                candidate.reads.setdefault(view.source, set()).add(read)
            else:
                times = form.times(operand, index, view.source.aval.size)
                candidate.opaque.setdefault(view.source, {})[object()] = times
                candidate.uneven.add(view.source)
    return candidate


def single(number: int, eqn: Eqn, views: Views, limits: FusionLimits) -> Candidate:
    """The candidate of one equation, with axes of its own."""
    fusion = eqn.primitive.fusion
    out = eqn.outvars[0]
    if fusion is Fusion.REDUCE:
        _, reduced = eqn.primitive.rule("lower")(**eqn.params)
        domain = eqn.invars[0].aval.shape
    elif fusion is Fusion.SCAN:
        _, axis, reverse = eqn.primitive.rule("lower")(**eqn.params)
        reduced, domain = (axis,), out.aval.shape
    else:
        reduced, domain = (), out.aval.shape
    labels: Layout = tuple(None if e == 1 else Axis(e) for e in domain)
    rows = [a for d, a in enumerate(labels) if a is not None and d not in reduced]
    cols = [a for d, a in enumerate(labels) if a is not None and d in reduced]
    kind = (
        Kind.SCAN if fusion is Fusion.SCAN else Kind.REDUCTION if cols and fusion is Fusion.REDUCE else Kind.ELEMENTWISE
    )
    layout = labels if fusion is not Fusion.REDUCE else tuple(a for d, a in enumerate(labels) if d not in reduced)
    candidate = Candidate(
        kind, [eqn], {number}, rows, cols, {out: layout}, cost=cost(eqn, limits.target), produced={out}, live_out={out}
    )
    candidate.order = [a for a in labels if a is not None]
    sizes = [v.aval.dtype.itemsize for v in (*eqn.invars, out) if v.aval.shape and v.aval.dtype != np.bool_]
    candidate.volume, candidate.narrowest = operations(eqn) * max(sizes, default=1), min(sizes, default=16)
    if fusion is Fusion.SCAN:
        candidate.reverse = reverse
    candidate.sweeps = int(bool(cols))
    if limits.pieces and eqn.primitive.movement is Movement.JOIN:
        candidate.pieces = len(eqn.invars)
    moved = shifts(eqn) if fusion is Fusion.MOVEMENT else ((0,) * len(domain),) * len(eqn.invars)
    for operand, at, shift in zip(eqn.invars, _dimensions_read(eqn, domain), moved):
        view = views(operand)
        if view.source is None:
            continue
        candidate.barriers |= view.barriers
        if at is not None and view.dimensions is not None:
            along = [None if d is None else at[d] for d in view.dimensions]
            read = tuple(None if d is None else labels[d] for d in along)
            candidate.reads.setdefault(view.source, set()).add(read)
        else:
            size = math.prod(domain) if fusion is not Fusion.MOVEMENT else _elements_read(eqn, operand, limits)
            times = size / max(view.source.aval.size, 1)
            index = composed(view.shift, shift)
            candidate.opaque.setdefault(view.source, {})[object() if index is None else index] = times
            if eqn.primitive.movement is Movement.GATHER and operand is eqn.invars[0]:
                candidate.gathered[view.source] = (
                    0 if (1, *eqn.params["slice_sizes"])[-1] >= limits.target.lanes // 2 else size
                )
            if view.dense and fusion is not Fusion.MOVEMENT:
                candidate.reshaped.add(view.source)
            if not view.dense or fusion is Fusion.MOVEMENT or view.source.aval.size != math.prod(domain):
                candidate.uneven.add(view.source)
    if fusion is Fusion.REDUCE and isinstance(eqn.invars[0], Var):
        candidate.layout[eqn.invars[0]] = labels
    accesses = [layout, *(read for several in candidate.reads.values() for read in several)]
    candidate.innermost = {axes[-1] for access in accesses if (axes := vector_axes(access, limits.target))}
    return candidate


def vector_axes(layout: Layout, target: Target) -> list[Axis]:
    """The axes along a value whose innermost one is worth half a vector, where it has others; none where it is not."""
    along = [x for x in layout if x is not None]
    return along if len(along) > 1 and along[-1].extent >= target.lanes // 2 else []


def _dimensions_read(eqn: Eqn, domain: tuple[int, ...]) -> tuple[DimensionMap | None, ...]:
    """By operand: which dimension of the domain each of its dimensions runs along; None where it is read at other indices."""
    if eqn.primitive.fusion is Fusion.MOVEMENT:
        return dimension_maps(eqn)
    own = tuple(range(len(domain)))
    return tuple(own if v.aval.shape == domain else None if v.aval.shape else () for v in eqn.invars)


def _elements_read(eqn: Eqn, operand: Operand, limits: FusionLimits) -> int:
    """How many elements of an operand a movement equation reads, about: what is put at a known index is read once where
    a kernel has a loop for each piece; where it has not, every element of the result looks at all of them."""
    movement = eqn.primitive.movement
    known = movement in (Movement.JOIN, Movement.PAD) or (
        movement is Movement.UPDATE
        and operand is eqn.invars[1]
        and all(isinstance(start, Literal) for start in eqn.invars[2:])
    )
    return operand.aval.size if limits.pieces and known else eqn.outvars[0].aval.size


def gain(a: Candidate, b: Candidate) -> int:
    """Bytes of device memory no longer read or written once `a` and `b` share a kernel."""
    inside = [v for v in b.inputs if v in a.produced] + [v for v in a.inputs if v in b.produced]
    shared = a.inputs & b.inputs
    return 2 * sum(v.aval.nbytes for v in inside) + sum(v.aval.nbytes for v in shared)


def blocker(a: Candidate, b: Candidate, uses: Uses, limits: FusionLimits) -> str | None:
    """Why `a` and `b`, which reads values of `a` or shares inputs with it, may not share a kernel; None if they may."""
    for candidate in (a, b):
        if candidate.kind not in (*FUSIBLE, Kind.LOOP) and (candidate.kind is not Kind.CONTRACTION or candidate.reason):
            return candidate.reason or f"{candidate.eqns[0].primitive.name} runs as a {candidate.kind.value} step"
    if len(a.eqns) + len(b.eqns) > limits.max_ops:
        return f"together they have more than {limits.max_ops} operations"
    if (a.volume + b.volume) // min(a.narrowest, b.narrowest) > limits.max_vectors:
        return f"together they have more than {limits.max_vectors} operations on vectors of their narrowest numbers"
    if len(a.live_out) + len(b.live_out) > limits.max_results and _results(a, b, uses) > limits.max_results:
        return f"together they write more than {limits.max_results} arrays"
    if len(a.reads) + len(a.opaque) + len(b.reads) + len(b.opaque) > limits.max_params:
        most = max(
            limits.max_params, len(a.inputs), len(b.inputs)
        )  # one that puts many pieces together has more itself
        if len((a.inputs | b.inputs) - a.produced) > most:
            return f"together they read more than {limits.max_params} arrays"
    if max(a.pieces, b.pieces) > 1:
        reason = _pieces_blocker(a, b, limits)
        if reason is not None:
            return reason
    if a.column_sums and a.column_sums & b.inputs:
        return "it reads sums over all rows, which are there when the kernel has ended"
    if any(v in a.produced for v, _ in b.barriers):
        return "an optimization barrier stands between them"
    opaque = b.opaque.keys() & a.produced
    if Kind.CONTRACTION in (a.kind, b.kind):
        reason = _product_blocker(a, b, bool(opaque), uses, limits)
        if reason is not None:
            return reason
    if Kind.LOOP in (a.kind, b.kind):
        reason = _loop_blocker(a, b, bool(opaque))
        if reason is not None:
            return reason
    if opaque and b.kind is Kind.CONTRACTION:
        return "others need the operand in memory too" if escaping(a, b, uses) else None
    if opaque:
        return _inline_blocker(a, b, opaque, uses, limits)
    if (
        limits.pieces
        and b.reduced
        and not a.reduced
        and (priced := recomputation_cost.dilation(a, b, limits.target)) is not None
    ):
        return priced
    matched = match(a, b)
    if isinstance(matched, str):
        return matched
    return _domain_blocker(a, b, matched, uses, limits)


def _pieces_blocker(a: Candidate, b: Candidate, limits: FusionLimits) -> str | None:
    """What reads an array that is put together from pieces joins where it is done again for each piece cheaply."""
    if not b.inputs & a.produced:
        return "one of them is put together from pieces" if max(a.pieces, b.pieces) > MOST_PIECES else None
    if a.pieces > MOST_PIECES:
        return f"the other is put together from {a.pieces} pieces, each in a loop of its own"
    plain = b.kind is Kind.ELEMENTWISE and all(map(is_shift, indices(a, b)))  # each piece at its distances
    if a.pieces > 1 and b.reduced:  # no loop for each piece there: every element asks which piece it is of
        asked = a.pieces * math.prod(x.extent for x in b.axes) * limits.target.compute("piece", 4)
        values = b.inputs & a.produced
        stored = limits.target.launch + limits.target.move(2 * sum(v.aval.nbytes for v in values))
        if asked > stored:
            return f"the other is put together from pieces, and finding each element's costs {duration(asked)}, storing them {duration(stored)}"
    if (
        a.pieces > 1
        and not plain
        and (priced := recomputation_cost.again(a, b, {object(): a.pieces}, b.inputs & a.produced, limits.target))
    ):
        return f"the other is put together from pieces, all of which it would compute for each element: {priced}"
    return None


def _results(a: Candidate, b: Candidate, uses: Uses) -> int:
    """Arrays that a kernel of both writes: those of each, but for what only the other reads."""
    inside = 0
    for one, other in ((a, b), (b, a)):
        for var in one.live_out:
            read = var in other.reads or var in other.opaque or var not in uses.of
            inside += read and within(var, a, b, uses)
    return len(a.live_out) + len(b.live_out) - inside


def _product_blocker(a: Candidate, b: Candidate, opaque: bool, uses: Uses, limits: FusionLimits) -> str | None:
    """Elementwise work on a product's result joins it, nothing else, and not what is reduced next beside a result in memory; what is
    done with its operands' elements joins it where doing it for each block that reads them takes less than storing them."""
    if b.kind is Kind.CONTRACTION:
        alone = a.kind is Kind.ELEMENTWISE and a.pieces == 1 and not any(e.primitive is attention_p for e in b.eqns)
        if not alone or not opaque or not all(limits.product_tile):
            return "a product reads each element of its operands many times, so they are computed before it"
        return recomputation_cost.of_operands(a, b, sum(indices(a, b).values()), limits.target)
    if b.kind is not Kind.ELEMENTWISE:
        return f"a {b.kind.value} needs whole rows of the product, which are spread over several blocks"
    if any(v not in a.layout for v in b.inputs & a.produced):
        return "it reads what rows of a product are reduced to, which have another shape"
    if all(uses.of.get(v, uses.reducing) <= uses.reducing for v in b.live_out) and escaping(a, b, uses):
        return "it is reduced next, by a kernel that can read the product, which is needed in memory"
    return "it reads the product at shifted or reshaped indices" if opaque else None


def _loop_blocker(a: Candidate, b: Candidate, opaque: bool) -> str | None:
    """Elementwise work before and after a loop joins its kernel, where each lane can do its own part."""
    if a.kind is b.kind:
        return "a kernel holds one loop"
    other = b if a.kind is Kind.LOOP else a
    if other.kind is not Kind.ELEMENTWISE:
        return f"a {other.kind.value} needs the results of many lanes, and each lane runs the loop by itself"
    if a.kind is Kind.LOOP:
        if opaque:
            return "it reads the loop's result at shifted or reshaped indices"
        lanes = set(a.parallel)
        if any(axis is not None and axis not in lanes for v in b.reads.keys() & a.produced for axis in a.layout[v]):
            return "it reads elements of the loop's result that one lane holds together or that iterations leave behind"
    return None


def _inline_blocker(a: Candidate, b: Candidate, opaque: set[Var], uses: Uses, limits: FusionLimits) -> str | None:
    """`b` reads values of `a` at other indices than its own: `a` can only be computed anew at each of them."""
    if a.reduced:
        return "it reads a reduction of the other at shifted or reshaped indices"
    if escaping(a, b, uses):
        return "it reads a value at shifted or reshaped indices that others need in memory too"
    found = indices(a, b)
    copies, places = sum(found.values()), len(found)
    if b.expressions + a.expressions * places > limits.max_expressions:
        return f"it reads a value at {places} different indices; together they are more than {limits.max_expressions} expressions"
    if (priced := recomputation_cost.again(a, b, found, opaque, limits.target)) is not None:
        return f"it reads a value at {math.ceil(copies)} different indices; {priced}"
    if (
        limits.pieces
        and b.reduced
        and (priced := recomputation_cost.padding(a, copies, opaque, limits.target)) is not None
    ):
        return priced
    return recomputation_cost.division(a, b, opaque, limits.target)


def escaping(a: Candidate, b: Candidate, uses: Uses) -> bool:
    """Whether anything outside `a` and `b` needs a value of `a`."""
    return any(not within(v, a, b, uses) for v in a.live_out)


def within(var: Var, a: Candidate, b: Candidate, uses: Uses) -> bool:
    """Whether all that reads a value is in `a` or `b`."""
    readers = uses.of.get(var)
    if not readers:
        return True
    return len(readers) <= len(a.numbers) + len(b.numbers) and not (readers - a.numbers - b.numbers)


def _domain_blocker(
    a: Candidate, b: Candidate, mapping: dict[Axis, Axis], uses: Uses, limits: FusionLimits
) -> str | None:
    rows_a, cols_a = set(a.parallel), set(a.reduced)
    mapped = {mapping[x] for x in b.axes if x in mapping}
    fresh = [x for x in b.axes if x not in mapping]
    b_cols = {mapping.get(x, x) for x in b.reduced}
    b_rows = {mapping.get(x, x) for x in b.parallel}
    if a.reverse is not None and b.reverse is not None and a.reverse != b.reverse:
        return "one scan runs forwards and the other backwards"
    if cols_a:
        if b_cols:
            if b_cols != cols_a or b_rows != rows_a:
                if b_cols == rows_a and b_rows == cols_a and sums_columns(a, b, limits):
                    return None
                if b_cols & rows_a and b.inputs & a.produced:
                    return "it reduces over rows, and so needs every row of the other first"
                return "they reduce over different axes"
            return _sync_blocker(a, b, limits.target)
        if fresh:
            return _growth_blocker(a, b, fresh, uses, limits)
        if mapped == rows_a | cols_a:
            return _sync_blocker(a, b, limits.target)
        return None if mapped == rows_a else "it runs over only a part of the other's axes"
    if fresh:
        return _growth_blocker(a, b, fresh, uses, limits)
    if mapped != rows_a:
        return "it runs over only a part of the other's axes"
    return None


def _sync_blocker(a: Candidate, b: Candidate, target: Target) -> str | None:
    """A further run over the reduced axes, which may compute again what it needs of the runs before it."""
    if a.kind is b.kind is Kind.SCAN and b.inputs & a.produced and a.order[-1] in a.reduced:
        alone = (target.scalar - 1) * (a.cost + b.cost) * math.prod(x.extent for x in a.axes) / target.operations
        stored = target.launch + target.move(2 * sum(v.aval.nbytes for v in b.inputs & a.produced))
        if alone > stored:
            return (
                "its prefix scan waits for the other's, element after element, and all work with it, which costs "
                f"{duration(alone)}, storing what it reads {duration(stored)}"
            )
    sweeps = a.sweeps + b.sweeps
    if sweeps > MOST_SWEEPS and b.inputs & a.produced and not _keeps(a):
        return f"together they run {sweeps} times over the reduced axes, and each run computes again what it needs"
    return None


def _keeps(candidate: Candidate) -> bool:
    """Whether a kernel keeps what one run over a row computes for the next: short rows that lie dense."""
    dense = bool(candidate.order) and candidate.order[-1] in candidate.reduced
    return dense and math.prod(axis.extent for axis in candidate.reduced) <= KEPT


def _growth_blocker(a: Candidate, b: Candidate, fresh: list[Axis], uses: Uses, limits: FusionLimits) -> str | None:
    """`b` runs over more axes than `a`: `a` would be computed again for each step of the new ones."""
    if a.kind is Kind.LOOP:
        return "the other is a loop, which each element here would run again"
    if a.reduced or a.kind is Kind.CONTRACTION:
        extents = "×".join(str(x.extent) for x in fresh)
        what = "reduction" if a.reduced else "product"
        return f"it uses the {what}'s result over {extents} more elements, which the kernel does not run over"
    if row_level(b, fresh):
        return None
    if escaping(a, b, uses):
        return "the other is broadcast here and needed in memory by others too"
    priced = recomputation_cost.again(
        a, b, {object(): math.prod(x.extent for x in fresh)}, b.inputs & a.produced, limits.target
    )
    if a.parallel and priced is not None:
        return f"the other is broadcast here; {priced}"
    return None


def row_level(b: Candidate, fresh: list[Axis]) -> bool:
    """Whether only the reduced axes of `b` are new to the other candidate, whose values then stand once a row."""
    return bool(b.reduced) and not any(x in fresh for x in b.parallel)


def join(a: Candidate, b: Candidate, uses: Uses, target: Target) -> Candidate:
    """The candidate of both, made out of the larger one; `blocker` has said that it is legal."""
    aligned = not b.opaque.keys() & a.produced
    if not aligned:
        found = indices(a, b)
        a.cost += math.ceil(recomputation_cost.repetition(a, b, found, b.opaque.keys() & a.produced, target))
        a.expressions *= len(found)
        elements = sum(b.gathered.pop(v, 0) for v in b.opaque.keys() & a.produced)
        a.gathered |= {v: a.gathered.get(v, 0) + elements for v in a.inputs if elements and v.aval.size > 1}
        _forget_axes(a, found, b.uneven & a.produced)
        big, small, rename = (b, a, {}) if len(b.eqns) >= len(a.eqns) else (a, b, {})
        rows, cols, kind, partial, order = b.parallel, b.reduced, b.kind, b.partial, b.order
    else:
        mapping = match(a, b)
        assert isinstance(mapping, dict)
        across = bool(a.reduced and b.reduced) and {mapping.get(x, x) for x in b.reduced} == set(a.parallel)
        a.column_sums |= b.live_out if across else set()
        cols = a.reduced if across else list(dict.fromkeys([*a.reduced, *(mapping.get(x, x) for x in b.reduced)]))
        rows = list(dict.fromkeys([*a.parallel, *(mapping.get(x, x) for x in b.parallel)]))
        rows = [x for x in rows if x not in cols]
        kind = Kind.SCAN if Kind.SCAN in (a.kind, b.kind) else Kind.REDUCTION if cols else Kind.ELEMENTWISE
        kind = Kind.CONTRACTION if a.kind is Kind.CONTRACTION else kind
        kind = Kind.LOOP if Kind.LOOP in (a.kind, b.kind) else kind
        fresh = [x for x in b.axes if x not in mapping]
        partial = a.partial or b.partial or bool(fresh and not row_level(b, fresh))
        order = a.order if len(a.order) >= len(b.order) else [mapping.get(x, x) for x in b.order]
        big, small, rename = a, b, mapping
        if len(a.eqns) < len(b.eqns):
            big, small, rename = b, a, {y: x for x, y in mapping.items()}
            rows, cols, order = ([rename.get(x, x) for x in axes] for axes in (rows, cols, order))
    _absorb(big, small, rename, uses, aligned)
    big.parallel, big.reduced, big.kind, big.partial, big.order = rows, cols, kind, partial, order
    return big


def _forget_axes(candidate: Candidate, found: Indices, uneven: set[Var]) -> None:
    """The candidate's values will be computed wherever they are read, at these indices, along no axes of their own; `uneven` are those
    that are not read in order."""
    whole = {tuple(candidate.order)}
    for var in candidate.inputs:
        if uneven or sum(found.values()) > 1 or (var in candidate.reads and candidate.reads[var] != whole):
            candidate.uneven.add(var)
        candidate.opaque[var] = inlined(candidate, var, found)
    candidate.reads, candidate.layout, candidate.parallel, candidate.reduced, candidate.order = {}, {}, [], [], []
    candidate.innermost = set()


def _absorb(big: Candidate, small: Candidate, rename: dict[Axis, Axis], uses: Uses, aligned: bool) -> None:
    """Put all of `small` into `big`, its axes renamed; `aligned`: both run over the same ones."""
    layout = lambda dims: tuple([None if x is None else rename.get(x, x) for x in dims])
    inside = (big.inputs & small.produced) | (small.inputs & big.produced)  # read by one from the other
    needed = [v for v in (inside & big.live_out) | small.live_out if not within(v, big, small, uses)]
    big.live_out = (big.live_out - inside).union(needed)
    big.eqns += small.eqns
    big.names |= small.names
    big.numbers |= small.numbers
    big.produced |= small.produced
    big.barriers |= small.barriers
    big.innermost |= {rename.get(x, x) for x in small.innermost}
    big.column_sums |= small.column_sums
    big.windows |= small.windows
    big.changed |= small.changed
    big.reshaped |= small.reshaped
    big.uneven |= small.uneven
    for var, dims in small.layout.items():
        big.layout.setdefault(var, layout(dims))
    for var, several in small.reads.items():
        big.reads.setdefault(var, set()).update(layout(dims) for dims in several)
    for var, several_indices in small.opaque.items():
        big.opaque[var] = merged(big.opaque.get(var, {}), several_indices)
    for var, elements in small.gathered.items():
        big.gathered[var] = big.gathered.get(var, 0) + elements
    for var in inside:
        big.reads.pop(var, None)
        big.opaque.pop(var, None)
    big.cost += small.cost
    big.sweeps = big.sweeps + small.sweeps if inside else max(big.sweeps, small.sweeps)
    big.volume += small.volume
    big.expressions += small.expressions
    if Kind.CONTRACTION in (big.kind, small.kind):
        big.pieces = 1  # a product reads an operand's pieces in place, and its result has none
    else:
        big.pieces = big.pieces * small.pieces if aligned else big.pieces + small.pieces - 1
    big.narrowest = min(big.narrowest, small.narrowest)
    big.reverse = big.reverse if big.reverse is not None else small.reverse
