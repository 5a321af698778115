"""Products of ragged arrays as grouped ones, for backends with kernels for these: every group's rows meet its own matrix alone.

As traced, an operand has a dimension of groups, with zeros where a row is of another group, so that each row is multiplied by all
matrices. Three forms come from a product and its two gradients: the spread operand is contracted along its groups, or along its rows;
or a product with all matrices is masked, and summed over the groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.rewrite import Rewriter
from fuser.ops.cumulative import cumsum_p
from fuser.ops.dot import dot_general_p, free_dimensions
from fuser.ops.elementwise import and_p, le_p, lt_p, select_n_p, sub_p
from fuser.ops.grouped import DTYPES, SIZES, grouped_matmul_p, grouped_sums_p
from fuser.ops.movement import broadcast_in_dim_p, iota_p, transpose_p
from fuser.ops.reduce import reduce_sum_p
from fuser.passes.dce import drop_dead

Refused = Callable[[Eqn], str | None]


@dataclass(frozen=True)
class Spread:
    """An array with a dimension of groups, 0 where a row is of another one: what is masked, which dimension numbers groups and
    which one rows, and the sizes of the groups."""

    value: Operand
    groups: int
    rows: int
    sizes: Var


def with_grouped_products(graph: Graph, refused: Refused) -> Graph:
    """The graph with its masked products as grouped ones, where `refused` says nothing of these."""
    if not any(eqn.primitive is dot_general_p for eqn in graph.eqns):
        return graph
    made_by = {v: eqn for eqn in graph.eqns for v in eqn.outvars if isinstance(v, Var)}
    finder = _Finder(made_by)
    found = {eqn: form for eqn in graph.eqns if (form := finder.form(eqn)) is not None and form.taken(refused)}
    if not found:
        return graph
    rewriter = Rewriter(graph)
    turned: dict[Operand, tuple[Var, tuple[int, ...]]] = {}
    for eqn in graph.eqns:
        form, eqn = found.get(eqn), rewriter.resolve(eqn)
        if form is None:
            inner, order = turned.get(eqn.invars[0], (None, ())) if eqn.primitive is transpose_p else (None, ())
            if inner is not None and [order[d] for d in eqn.params["permutation"]] == sorted(order):
                rewriter.replace(eqn.outvars[0], inner)  # as the gradient turns it back
            else:
                rewriter.keep(eqn)
            continue
        operands = [rewriter.current(v) for v in form.eqn.invars]
        result = rewriter.add(form.eqn.primitive, *operands, **form.eqn.params)
        if form.order is not None:
            inner, result = result, rewriter.add(transpose_p, result, permutation=form.order)
            turned[result] = inner, form.order
        rewriter.replace(eqn.outvars[0], result)
    return drop_dead(rewriter.finish())


@dataclass(frozen=True)
class Form:
    """A grouped product in the place of an equation, and the order of its dimensions there."""

    eqn: Eqn
    order: tuple[int, ...] | None

    def taken(self, refused: Refused) -> bool:
        return refused(self.eqn) is None


class _Finder:
    """Follows values to the equations that make them."""

    def __init__(self, made_by: dict[Var, Eqn]) -> None:
        self.made_by = made_by

    def by(self, operand: Operand, primitive: object) -> Eqn | None:
        eqn = self.made_by.get(operand) if isinstance(operand, Var) else None
        return eqn if eqn is not None and eqn.primitive is primitive else None

    def form(self, eqn: Eqn) -> Form | None:
        """The grouped product that an equation is; None where it is none."""
        if eqn.primitive is dot_general_p and _is_plain(eqn):
            return self._of_spread(eqn)
        return self._of_masked(eqn) if eqn.primitive is reduce_sum_p else None

    def _of_spread(self, eqn: Eqn) -> Form | None:
        """A product one of whose operands is spread."""
        contracted, _ = eqn.params["dimension_numbers"]
        for side in (0, 1):
            spread, other = self._spread(eqn.invars[side]), eqn.invars[1 - side]
            if spread is None:
                continue
            x = self._broadcast(spread)
            own, others = tuple(contracted[side]), tuple(contracted[1 - side])
            if x is None:
                continue
            if own == (spread.rows,) and other.aval.ndim == 2 and others == (0,):
                return _sums_of(eqn, x, other, spread, side)
            (features,) = {0, 1, 2} - {spread.rows, spread.groups}
            if sorted(own) == sorted((features, spread.groups)) and other.aval.ndim == 3:
                partner = dict(zip(own, others))
                if partner[spread.groups] == 0:
                    transposed = partner[features] == 2
                    return _matmul_of(eqn, x, other, spread, transposed, None if side == 0 else (1, 0))
        return None

    def _of_masked(self, eqn: Eqn) -> Form | None:
        """A sum over the groups of a masked product with all matrices."""
        spread = self._spread(eqn.invars[0])
        if spread is None or tuple(eqn.params["axes"]) != (spread.groups,):
            return None
        value, order = spread.value, (0, 1, 2)
        if (moved := self.by(value, transpose_p)) is not None:
            value, order = moved.invars[0], tuple(moved.params["permutation"])
        product = self.by(value, dot_general_p)
        if product is None or not _is_plain(product):
            return None
        groups, rows = order[spread.groups], order[spread.rows]  # dimensions of the product's result
        for side in (0, 1):
            rows_of, matrices = product.invars[side], product.invars[1 - side]
            own, others = (tuple(product.params["dimension_numbers"][0][n]) for n in (side, 1 - side))
            if rows_of.aval.ndim != 2 or matrices.aval.ndim != 3 or own != (1,) or len(others) != 1:
                continue
            free = free_dimensions(3, others, ())
            places = (
                [n + 1 for n in range(2)] if side == 0 else [0, 1]
            )  # of the matrices' free dimensions in the result
            if (0 if side == 0 else 2) != rows or free[0] != 0 or places[0] != groups:
                continue
            turned = None if spread.rows < ({0, 1, 2} - {spread.rows, spread.groups}).pop() else (1, 0)
            return _matmul_of(eqn, rows_of, matrices, spread, others[0] == 2, turned)
        return None

    def _spread(self, operand: Operand) -> Spread | None:
        """A value that is 0 for rows of other groups."""
        chosen = self.by(operand, select_n_p)
        if chosen is None or operand.aval.ndim != 3 or len(chosen.invars) != 3:
            return None
        mask, zero, value = chosen.invars
        both = self.by(mask, and_p)
        if both is None or not (isinstance(zero, Literal) and zero.val == 0):
            return None
        low, high = self.by(both.invars[0], le_p), self.by(both.invars[1], lt_p)
        if low is None or high is None or low.invars[1] is not high.invars[0]:
            return None
        position = self.by(low.invars[1], iota_p)
        starts, ends = self.by(low.invars[0], broadcast_in_dim_p), self.by(high.invars[1], broadcast_in_dim_p)
        if position is None or starts is None or ends is None:
            return None
        groups = starts.params["broadcast_dimensions"]
        sizes = self._sizes(starts.invars[0], ends.invars[0])
        if sizes is None or len(groups) != 1 or tuple(ends.params["broadcast_dimensions"]) != tuple(groups):
            return None
        rows = position.params["dimension"]
        return Spread(value, groups[0], rows, sizes) if rows != groups[0] else None

    def _sizes(self, starts: Operand, ends: Operand) -> Var | None:
        """The sizes of groups that begin and end there."""
        difference, total = self.by(starts, sub_p), self.by(ends, cumsum_p)
        if difference is None or total is None or difference.invars[0] is not ends:
            return None
        sizes = total.invars[0]
        fits = isinstance(sizes, Var) and sizes.aval.ndim == 1 and sizes.aval.dtype == SIZES
        return sizes if fits and difference.invars[1] is sizes and not total.params["reverse"] else None  # type: ignore[return-value]

    def _broadcast(self, spread: Spread) -> Operand | None:
        """The rows (m, k) that are spread."""
        eqn = self.by(spread.value, broadcast_in_dim_p)
        if eqn is None or eqn.invars[0].aval.ndim != 2 or isinstance(eqn.invars[0], Literal):
            return None
        features = ({0, 1, 2} - {spread.rows, spread.groups}).pop()
        return eqn.invars[0] if tuple(eqn.params["broadcast_dimensions"]) == (spread.rows, features) else None


def _is_plain(eqn: Eqn) -> bool:
    """Whether a product is of numbers that grouped ones take, without a batch, and as exact as these."""
    dtypes = {v.aval.dtype for v in eqn.invars}
    _, (batch, _) = eqn.params["dimension_numbers"]
    narrow = eqn.invars[0].aval.dtype.itemsize == 2
    exact = narrow or str(eqn.params.get("precision")) in ("None", "HIGHEST", "highest", "float32")
    out = eqn.outvars[0].aval.dtype
    return len(dtypes) == 1 and dtypes <= set(DTYPES) and out in DTYPES and not batch and exact


def _matmul_of(
    eqn: Eqn, x: Operand, y: Operand, spread: Spread, transposed: bool, order: tuple[int, ...] | None
) -> Form | None:
    dtype = eqn.outvars[0].aval.dtype
    out = eqn.outvars[0].aval.shape
    made = Var(eqn.outvars[0].aval.update(shape=out if order is None else out[::-1]))
    if isinstance(y, Literal) or x.aval.dtype != y.aval.dtype or dtype not in DTYPES:
        return None
    params = {"transposed": transposed, "dtype": dtype}
    return Form(Eqn(grouped_matmul_p, (x, y, spread.sizes), params, (made,), eqn.source), order)


def _sums_of(eqn: Eqn, x: Operand, y: Operand, spread: Spread, side: int) -> Form | None:
    """Of the spread rows `x` with `y`, whose result has the dimensions of both operands that are left, in their order."""
    features = ({0, 1, 2} - {spread.rows, spread.groups}).pop()
    left = sorted((features, spread.groups))
    names = [{features: 1, spread.groups: 0}[d] for d in left]  # dimensions of (g, k, n)
    order = (*names, 2) if side == 0 else (2, *names)
    shape = (spread.sizes.aval.shape[0], x.aval.shape[1], y.aval.shape[1])
    made = Var(eqn.outvars[0].aval.update(shape=shape))
    if isinstance(y, Literal) or x.aval.dtype != y.aval.dtype:
        return None
    params = {"dtype": eqn.outvars[0].aval.dtype}
    return Form(
        Eqn(grouped_sums_p, (x, y, spread.sizes), params, (made,), eqn.source),
        order if order != (0, 1, 2) else None,
    )
