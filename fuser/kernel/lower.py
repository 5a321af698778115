"""FusionGroup → Kernel: demand-driven from the outputs, so that movement is free (`partition/values.py`).

The scalar graph is then cut into sweeps: a reduction belongs to the sweep after all reductions that it depends on, and reductions of
one sweep share one run over the reduced axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from fuser.config import config
from fuser.errors import UnsupportedError
from fuser.ir import scalar as S
from fuser.ir.graph import Eqn, Var
from fuser.ir.index import ZERO, Affine, Axis, linearise
from fuser.ir.primitive import Fusion
from fuser.ir.scalar import COSTS, Scalar
from fuser.ir.types import sum_dtype
from fuser.kernel.check import check
from fuser.kernel.kernel import Access, Kernel, Param, ReductionSpec, Store, Sweep
from fuser.kernel.operands import computed, in_order, index_axes, operands, own_axes
from fuser.ops.dynamic import starts_within
from fuser.ops.window_write import write_window_p
from fuser.partition.changed_operands import windows
from fuser.partition.column_sums import column_sums
from fuser.partition.group import FusionGroup
from fuser.partition.update_frames import Box, frame, place, update_of
from fuser.partition.values import Index, Values, deep_recursion

KEEP_COST = 10  # a value computed in one sweep and needed in a later one is kept if it costs more additions than this


def lower(group: FusionGroup) -> Kernel:
    """The loop program of an elementwise, reduction or scan group."""
    with deep_recursion():
        kernel = _lower(group)
    return check(kernel) if config.check else kernel


def _lower(group: FusionGroup) -> Kernel:
    demand = Demand(group)
    stores, frames = [], []
    for number, var in enumerate(results(group)):
        param, update = len(group.graph.invars) + number, update_of(group, var)
        if update is not None:
            stores.append(_into(demand, update, param))
            if update.primitive is not write_window_p:  # around which the result is there
                frames += [_frame(demand, update, param, box) for box in frame(var.aval.shape, place(update))]
            continue
        index = _index(group, var)
        value, total = demand.summed(var) or (demand.value(var, index, None), None)
        stores.append(Store(param, linearise(index, var.aval.shape), value, index, total))
    sweeps = Sweeping(group.reduced).cut(stores)
    return Kernel(
        group.name, params(group), group.parallel, group.reduced, sweeps, comments(group), frames=tuple(frames)
    )


def _index(group: FusionGroup, var: Var) -> tuple[Affine, ...]:
    """The element of a value that belongs to the running iteration."""
    return tuple(ZERO if axis is None else Affine.of(axis) for axis in group.layout[var])


def _into(demand: Demand, update: Eqn, param: int) -> Store:
    """The store of an update's value into its result."""
    value, result = update.invars[1], update.outvars[0]
    assert isinstance(value, Var)
    own = _index(demand.group, value)
    read: Callable[[int, Index], Scalar] = lambda n, at: demand.value(update.invars[n], at, None)
    starts = starts_within(read, 2, result.aval.shape, value.aval.shape)
    index = tuple(at + first for at, first in zip(own, starts, strict=True))
    over = next((array for array, eqn in windows(demand.group) if eqn is update), None)
    changed = None if over is None else demand.params[over]
    return Store(param, linearise(index, result.aval.shape), demand.value(value, own, None), index, over=changed)


def _frame(demand: Demand, update: Eqn, param: int, box: Box) -> Kernel:
    """The kernel that copies a box of the updated array, where the value does not lie."""
    group, shape = demand.group, update.outvars[0].aval.shape
    axes = [None if last - first == 1 else Axis(last - first) for first, last in box]
    index = tuple(
        Affine.of(first) if axis is None else Affine.of(axis) + first
        for axis, (first, _) in zip(axes, box, strict=True)
    )
    store = Store(param, linearise(index, shape), demand.value(update.invars[0], index, None), index)
    parallel = tuple(axis for axis in axes if axis is not None)
    return Kernel(group.name, params(group), parallel, (), Sweeping(()).cut([store]), comments(group))


def results(group: FusionGroup) -> list[Var]:
    """What the group's kernel writes, in the order of its parameters."""
    return [v for v in dict.fromkeys(group.graph.outvars) if isinstance(v, Var)]


def params(group: FusionGroup) -> tuple[Param, ...]:
    """The arrays of the group's kernel: what it reads, then what it writes."""
    found = [Param(f"in{i}", v.aval.dtype, v.aval.shape, False) for i, v in enumerate(group.graph.invars)]
    return (*found, *(Param(f"out{i}", v.aval.dtype, v.aval.shape, True) for i, v in enumerate(results(group))))


def comments(group: FusionGroup) -> tuple[str, ...]:
    """The user's lines that the group comes from."""
    return tuple(dict.fromkeys(str(source) for source in group.sources if source.file))


class Demand(Values):
    """Values of a group at indices, computed once each."""

    def __init__(self, group: FusionGroup) -> None:
        super().__init__(group.graph)
        self.group = group
        self.params = {var: number for number, var in enumerate(group.graph.invars)}

    def input(self, var: Var, index: Index, mask: Scalar | None) -> Scalar:
        if not any(i.terms for i in index) and all(0 <= i.offset < n for i, n in zip(index, var.aval.shape)):
            mask = None  # one element, which is there: read once for all, what a mask hides is not used
        access = Access(self.params[var], linearise(index, var.aval.shape), index)
        return Scalar("load", () if mask is None else (mask,), var.aval.dtype, access)

    def other(self, eqn: Eqn, operand: Var, index: Index, mask: Scalar | None) -> Scalar:
        if eqn.primitive.fusion is Fusion.REDUCE:
            return self._reduction(eqn, index)
        if eqn.primitive.fusion is Fusion.SCAN:
            return self._scan(eqn, index)
        raise UnsupportedError(f"{eqn.primitive.name} has no form inside a generated kernel")

    def summed(self, var: Var) -> tuple[Scalar, ReductionSpec] | None:
        """Of a sum over the group's parallel axes the element, and how it is summed; None of other values."""
        eqn = self.producers.get(var)
        if eqn is None or eqn not in column_sums(self.group):
            return None
        layout = self.group.layout[eqn.invars[0]]  # type: ignore[index]
        element = self.value(eqn.invars[0], tuple(ZERO if a is None else Affine.of(a) for a in layout), None)
        return element, ReductionSpec("sum", sum_dtype(element.dtype))

    def _reduction(self, eqn: Eqn, index: Index) -> Scalar:
        """A reduction stands for one value a row, so that its mask and its index are always the row's own."""
        return self.once((eqn, "reduction"), lambda: self._new_reduction(eqn, index))

    def _new_reduction(self, eqn: Eqn, index: Index) -> Scalar:
        reduction, axes = eqn.primitive.rule("lower")(**eqn.params)
        operand = eqn.invars[0]
        assert isinstance(operand, Var)
        layout = self.group.layout[operand]
        kept = iter(index)
        inner = tuple(
            next(kept) if d not in axes else ZERO if axis is None else Affine.of(axis) for d, axis in enumerate(layout)
        )
        element = self.value(operand, inner, None)
        if not any(isinstance(layout[d], Axis) for d in axes) or all(operand.aval.shape[d] == 1 for d in axes):
            return element if reduction not in ("argmax", "argmin") else S.constant(0, eqn.outvars[0].aval.dtype)
        spec = ReductionSpec(reduction, sum_dtype(element.dtype))
        return Scalar("reduction", (element,), eqn.outvars[0].aval.dtype, spec)

    def _scan(self, eqn: Eqn, index: Index) -> Scalar:
        reduction, _, reverse = eqn.primitive.rule("lower")(**eqn.params)
        element = self.value(eqn.invars[0], index, None)
        spec = ReductionSpec(reduction, sum_dtype(element.dtype), reverse)
        return self.once((eqn, "scan"), lambda: Scalar("scan", (element,), element.dtype, spec))


class Sweeping:
    """Cuts a scalar graph into sweeps; knows of each node its sweep and whether it varies along the reduced axes."""

    def __init__(self, cols: tuple[Axis, ...]) -> None:
        self.reduced = set(cols)
        self.order: list[Scalar] = []  # every node, operands first
        self.position: dict[Scalar, int] = {}  # in the order
        self.level: dict[Scalar, int] = {}  # the first sweep in which the node's value can be had
        self.varies: dict[Scalar, bool] = {}
        self.varying: dict[Scalar, tuple[Scalar, ...]] = {}  # of what a node needs, that which varies

    def cut(self, stores: list[Store]) -> tuple[Sweep, ...]:
        """The sweeps that perform `stores`."""
        for store in stores:
            self._visit(store.value)
            for node in computed(store.offset):
                self._visit(node)
        reductions = [n for n in self.order if n.op == "reduction"]
        sweep_of = {reduction: self.level[reduction] - 1 for reduction in reductions}
        reads = [(sweep_of[f], f.args[0]) for f in reductions] + [(self.level[s.value], s.value) for s in stores]
        sweep_at = {s: max([self.level[s.value], *self._reading(s.over, reads)]) for s in stores}
        last = max([*sweep_at.values(), 0])
        sweeps = []
        row_done: set[Scalar] = set()
        for number in range(last + 1):
            here = [f for f in reductions if sweep_of[f] == number]
            written = [s for s in stores if sweep_at[s] == number]
            column_stores = [s for s in written if self._by_column(s)]
            row_stores = [s for s in written if not self._by_column(s)]
            body = self._needed([f.args[0] for f in here] + [s.value for s in column_stores])
            row = self._row_nodes(body, here, column_stores, row_stores, row_done)
            sweeps.append(Sweep(row, tuple(row_stores), body, tuple(here), tuple(column_stores)))
        return self._keep(sweeps)

    def _reading(self, param: int | None, roots: list[tuple[int, Scalar]]) -> Iterator[int]:
        """Of the roots, each with its sweep, the sweeps of those that read a parameter."""
        for number, root in roots if param is not None else ():
            if any(node.op == "load" and node.attr.param == param for node in self._needed([root])):
                yield number

    def _by_column(self, store: Store) -> bool:
        return self.varies[store.value] or bool(index_axes(store.offset) & self.reduced)

    def _visit(self, root: Scalar) -> None:
        for node in in_order([root], known=self.level):
            needs = operands(node)
            self.level[node] = max([self.level[n] for n in needs], default=0) + (node.op == "reduction")
            varying = self.varying[node] = tuple([n for n in needs if self.varies[n]])
            varies = bool(varying) or bool(own_axes(node) & self.reduced)
            self.varies[node] = (varies or node.op in ("scan", "score")) and node.op != "reduction"
            self.position[node] = len(self.order)
            self.order.append(node)

    def _sorted(self, nodes: set[Scalar]) -> tuple[Scalar, ...]:
        return tuple(sorted(nodes, key=self.position.__getitem__))

    def _needed(self, roots: list[Scalar]) -> tuple[Scalar, ...]:
        """The nodes that vary along the reduced axes and that `roots` need, in order."""
        found: set[Scalar] = set()
        stack = [r for r in roots if self.varies[r]]
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack.extend(self.varying[node])
        return self._sorted(found)

    def _row_nodes(
        self,
        body: tuple[Scalar, ...],
        reductions: list[Scalar],
        stores: list[Store],
        row_stores: list[Store],
        done: set[Scalar],
    ) -> tuple[Scalar, ...]:
        """The row-level nodes that this sweep is the first to need."""
        stack = [s.value for s in (*stores, *row_stores)] + [f.args[0] for f in reductions]
        stack += [n for s in (*stores, *row_stores) for n in computed(s.offset)]
        stack += [n for node in body for n in operands(node)]
        found: set[Scalar] = set()
        while stack:
            node = stack.pop()
            if self.varies[node] or node in done or node in found or node.op == "reduction":
                continue
            found.add(node)
            stack.extend(operands(node))
        done |= found
        return self._sorted(found)

    def _keep(self, sweeps: list[Sweep]) -> tuple[Sweep, ...]:
        """Mark, in the sweep that computes it first, what is dear and needed again by a later sweep."""
        price = self._prices()
        first: dict[Scalar, int] = {}
        kept: dict[int, dict[Scalar, None]] = {number: {} for number in range(len(sweeps))}
        for number, sweep in enumerate(sweeps):
            roots = [f.args[0] for f in sweep.reductions] + [s.value for s in sweep.stores]
            stack = [node for node in roots if self.varies[node]]
            seen: set[Scalar] = set()
            while stack:
                node = stack.pop()
                if node in seen:
                    continue
                seen.add(node)
                if node in first and node.op != "load" and price[node] > KEEP_COST:
                    kept[first[node]][node] = None
                else:
                    stack.extend(self.varying[node])
            for node in sweep.body:
                first.setdefault(node, number)
        return tuple(replace(sweep, kept=tuple(kept[number])) for number, sweep in enumerate(sweeps))

    def _prices(self) -> dict[Scalar, int]:
        """About how many additions computing each node again would take, from the arrays up; large ones are cut off."""
        price: dict[Scalar, int] = {}
        for node in self.order:
            own = COSTS.get(node.op, 1) if node.args and node.op != "load" else 0
            price[node] = min(own + sum([price[n] for n in self.varying[node]]), 1000)
        return price
