"""Elements of a graph's values at indices: demand-driven and memoised, so that movement is index arithmetic.

`Values` knows elementwise and movement equations; what else there is, inputs too, a subclass says. `Body` is the graph
of a loop's body, in which small axes may be reduced, multiplied and accumulated along, since each step is written out.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.ir import scalar as S
from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.index import Affine, Axis
from fuser.ir.primitive import Control, Fusion
from fuser.ir.scalar import Scalar
from fuser.ir.types import KEY, UNSIGNED, is_inexact, sum_dtype
from fuser.ops.dot import free_dimensions

Index = tuple[Affine, ...]
Leaf = Callable[[int, Index, Scalar | None], Scalar]  # the element of input `number` at an index, under a mask

MOST_STEPS = 64  # of a reduction or a loop that are written out
RUNNING_SUM = 8  # numbers from which NumPy sums in eight lines


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """A chain of equations is followed by Python calls, which need no C stack."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 100_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


class Refused(Exception):
    """Why a loop's body has no form inside a kernel."""


class Values:
    """Values at indices, computed once each."""

    def __init__(self, graph: Graph) -> None:
        self.producers = {var: eqn for eqn in graph.eqns for var in eqn.outvars}
        self.known: dict[Any, Scalar] = {}

    def value(self, operand: Operand, index: Index, mask: Scalar | None) -> Scalar:
        """The element of `operand` at `index`; with `mask`, only where it holds.

        A mask keeps reads inside their arrays. An index that is inside by itself needs none, and neither does what is
        read for it: values under the masks of many readers would be as many values.
        """
        if mask is not None and _inside(index, operand.aval.shape):
            mask = None
        key = (operand, index, id(mask) if mask is not None else None)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._compute(operand, index, mask)
        return found

    def input(self, var: Var, index: Index, mask: Scalar | None) -> Scalar:
        """The element of a value that no equation of the graph makes."""
        raise NotImplementedError

    def other(self, eqn: Eqn, operand: Var, index: Index, mask: Scalar | None) -> Scalar:
        """The element of a value that neither elementwise nor movement equations make."""
        raise NotImplementedError

    def once(self, key: Any, make: Callable[[], Scalar]) -> Scalar:
        """What `make` gives, made once a key."""
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def _compute(self, operand: Operand, index: Index, mask: Scalar | None) -> Scalar:
        if isinstance(operand, Literal) and operand.aval.dtype == KEY:
            return S.bitcast(S.constant(operand.val.view(np.uint64), UNSIGNED[3]), KEY)
        if isinstance(operand, Literal):
            return self.once(
                ("const", operand.val.dtype, operand.val.tobytes()), lambda: S.constant(operand.val, operand.aval.dtype)
            )
        eqn = self.producers.get(operand)
        if eqn is None:
            return self.input(operand, index, mask)
        fusion = eqn.primitive.fusion
        if fusion is Fusion.ELEMENTWISE:
            args = [self.value(v, index if v.aval.shape else (), mask) for v in eqn.invars]
            return eqn.primitive.rule("lower")(*args, **eqn.params)  # type: ignore[no-any-return]
        if fusion is Fusion.MOVEMENT:
            return self._movement(eqn, operand, index, mask)
        return self.other(eqn, operand, index, mask)

    def _movement(self, eqn: Eqn, operand: Var, index: Index, mask: Scalar | None) -> Scalar:
        def read(number: int, inner: Index, inside: Scalar | None = None) -> Scalar:
            both = mask if inside is None else inside if mask is None else self._conjunction(mask, inside)
            return self.value(eqn.invars[number], inner, both)

        params = dict(eqn.params)
        if eqn.primitive.multiple_results:
            params["output"] = eqn.outvars.index(operand)
        return eqn.primitive.rule("lower")(read, index, *(v.aval for v in eqn.invars), **params)  # type: ignore[no-any-return]

    def _conjunction(self, a: Scalar, b: Scalar) -> Scalar:
        return self.once(("and", id(a), id(b)), lambda: a & b)


def _inside(index: Index, shape: Sequence[int]) -> bool:
    """Whether an index is known to lie inside an array of `shape`."""
    for i, extent in zip(index, shape):
        low, high = i.bounds
        if low < 0 or high >= extent:
            return False
    return True


@dataclass(frozen=True, eq=False)
class Subgroup:
    """Lanes along one axis that run together, and may read each other's values of the `inputs` and what depends on them,
    as the invocations of a subgroup do on GPUs (SPIR-V)."""

    axis: Axis
    inputs: frozenset[Var]


class Body(Values):
    """A closed graph that is computed anew in each iteration; `leaf` gives the elements of its inputs.

    With a `subgroup`, an element at a known index of a vector along the subgroup's axis is the value of that lane.
    """

    def __init__(self, graph: Graph, leaf: Leaf, subgroup: Subgroup | None = None) -> None:
        super().__init__(graph)
        self.subgroup = subgroup
        self.shared = _dependent(graph, subgroup.inputs) if subgroup else set()
        self.numbers = {var: number for number, var in enumerate(graph.invars)}
        self.graph = graph
        self.leaf = leaf
        self.inner: dict[Any, Body] = {}

    def input(self, var: Var, index: Index, mask: Scalar | None) -> Scalar:
        return self.leaf(self.numbers[var], index, mask)

    def value(self, operand: Operand, index: Index, mask: Scalar | None) -> Scalar:
        if operand in self.shared:
            wide = [d for d, extent in enumerate(operand.aval.shape) if extent != 1]
            if len(wide) == 1 and operand.aval.shape[wide[0]] == self.subgroup.axis.extent:  # type: ignore[union-attr]
                return self._shared(operand, index, wide[0], mask)
        return super().value(operand, index, mask)

    def _shared(self, operand: Operand, index: Index, along: int, mask: Scalar | None) -> Scalar:
        assert self.subgroup is not None
        own, position = Affine.of(self.subgroup.axis), index[along]
        if position == own:
            return super().value(operand, index, mask)
        if position.terms:
            if operand in self.subgroup.inputs:
                raise Refused("its body reads the carry at shifted indices")
            return super().value(operand, index, mask)  # made of shared numbers and of what is no carry
        if not 0 <= position.offset < self.subgroup.axis.extent:  # under a mask that never holds
            return S.constant(0, operand.aval.dtype)
        element = super().value(operand, (*index[:along], own, *index[along + 1 :]), None)
        key = ("lane", element, position.offset)
        return self.once(key, lambda: Scalar("lane", (element,), element.dtype, position.offset))

    def inside(self, graph: Graph, leaf: Leaf, shared: Iterable[int] = ()) -> Body:
        """The values of a graph within this one; those of its inputs number `shared` lanes of the subgroup share."""
        inputs = frozenset(graph.invars[n] for n in shared)
        return type(self)(graph, leaf, Subgroup(self.subgroup.axis, inputs) if self.subgroup and inputs else None)

    def indices(self, extents: Sequence[int]) -> Iterator[Index]:
        """All indices along small axes, in order."""
        return (tuple(map(Affine.of, index)) for index in itertools.product(*map(range, extents)))

    def other(self, eqn: Eqn, operand: Var, index: Index, mask: Scalar | None) -> Scalar:
        fusion, control = eqn.primitive.fusion, eqn.primitive.control
        if fusion is Fusion.REDUCE:
            return self._reduce(eqn, index, mask)
        if fusion is Fusion.DOT:
            return self._product(eqn, index, mask)
        if fusion is Fusion.SCAN:
            return self.running(eqn, index, mask)
        if control is Control.COND:
            return self._choice(eqn, eqn.outvars.index(operand), index, mask)
        if control is Control.SCAN:
            return self._steps(eqn, eqn.outvars.index(operand), index, mask)
        if fusion is Fusion.CONTROL:
            raise Refused(f"its body has a {eqn.primitive} of its own")
        raise Refused(f"{eqn.primitive} in its body is a library call")

    # Reductions over small axes.

    def _reduce(self, eqn: Eqn, index: Index, mask: Scalar | None) -> Scalar:
        reduction, axes = eqn.primitive.rule("lower")(**eqn.params)
        shape = eqn.invars[0].aval.shape
        extents = [shape[d] for d in axes]
        few(extents)
        terms = []
        for at in self.indices(extents):
            kept, along = iter(index), dict(zip(axes, at))
            inner = tuple(along[d] if d in along else next(kept) for d in range(len(shape)))
            terms.append(self.value(eqn.invars[0], inner, mask))
        if reduction in ("argmax", "argmin"):
            return extreme_index(reduction, terms, eqn.outvars[0].aval.dtype)
        return reduce_terms(reduction, terms)

    def _product(self, eqn: Eqn, index: Index, mask: Scalar | None) -> Scalar:
        (xc, yc), (xb, yb) = eqn.params["dimension_numbers"]
        x, y = eqn.invars
        batch, rest = index[: len(xb)], index[len(xb) :]
        x_free, y_free = free_dimensions(x.aval.ndim, xc, xb), free_dimensions(y.aval.ndim, yc, yb)
        extents = [x.aval.shape[d] for d in xc]
        few(extents)
        out = eqn.outvars[0].aval.dtype
        wide = sum_dtype(out)
        terms = []
        for at in self.indices(extents):
            x_at = dict(zip((*xb, *x_free, *xc), (*batch, *rest[: len(x_free)], *at)))
            y_at = dict(zip((*yb, *y_free, *yc), (*batch, *rest[len(x_free) :], *at)))
            a = S.cast(self.value(x, tuple(x_at[d] for d in range(x.aval.ndim)), mask), wide)
            b = S.cast(self.value(y, tuple(y_at[d] for d in range(y.aval.ndim)), mask), wide)
            terms.append(a & b if wide == np.bool_ else a * b)
        return S.cast(reduce_terms("or" if wide == np.bool_ else "sum", terms), out)

    def running(self, eqn: Eqn, index: Index, mask: Scalar | None) -> Scalar:
        """The element of a prefix scan: the reduction of all elements up to it."""
        reduction, axis, reverse = eqn.primitive.rule("lower")(**eqn.params)
        extent = eqn.outvars[0].aval.shape[axis]
        few([extent])
        if index[axis].terms:
            raise Refused("its body has a prefix scan along its lanes")
        at = index[axis].offset
        span = range(extent - 1, at - 1, -1) if reverse else range(at + 1)
        terms = [
            self.value(eqn.invars[0], (*index[:axis], Affine.of(k), *index[axis + 1 :]), mask)
            for k in span
            if 0 <= k < extent
        ]
        return reduce_terms(reduction, terms, in_order=True) if terms else S.constant(0, eqn.outvars[0].aval.dtype)

    # Graphs within the body.

    def _choice(self, eqn: Eqn, output: int, index: Index, mask: Scalar | None) -> Scalar:
        """The chosen branch's value; all branches are computed."""
        chosen = self.value(eqn.invars[0], (), mask)
        values = []
        shared = [n for n, v in enumerate(eqn.invars[1:]) if v in self.shared]
        for number, branch in enumerate(eqn.params["branches"]):
            graph = self._within(
                (eqn, number), branch, lambda n, inner, under: self.value(eqn.invars[n + 1], inner, under), shared
            )
            values.append(graph.value(branch.outvars[output], index, mask))
        result = values[-1]
        for number in reversed(range(len(values) - 1)):
            result = S.where(chosen <= number, values[number], result)
        return result

    def _steps(self, eqn: Eqn, output: int, index: Index, mask: Scalar | None) -> Scalar:
        """A short scan inside the body, written out: the value after its last step, or of one step."""
        carries, length = eqn.params["num_carry"], eqn.params["length"]
        if length > MOST_STEPS:
            raise Refused(f"its body has a scan of {length} steps of its own")
        if output < carries:
            return self._carried(eqn, output, length, index, mask)
        step = index[0].offset
        if index[0].terms or not 0 <= step < length:
            raise Refused("its body has a scan of its own whose steps' results are used")
        number = length - 1 - step if eqn.params["reverse"] else step
        return self._step(eqn, number).value(eqn.params["jaxpr"].outvars[output], index[1:], mask)

    def _carried(self, eqn: Eqn, output: int, steps: int, index: Index, mask: Scalar | None) -> Scalar:
        """A carry of an inner scan after so many steps."""
        consts = eqn.params["num_consts"]
        if steps == 0:
            return self.value(eqn.invars[consts + output], index, mask)
        return self._step(eqn, steps - 1).value(eqn.params["jaxpr"].outvars[output], index, mask)

    def _step(self, eqn: Eqn, number: int) -> Body:
        """The body of an inner scan in its step `number`, counted in the order in which they run."""
        params = eqn.params
        first = params["num_consts"] + params["num_carry"]
        row = params["length"] - 1 - number if params["reverse"] else number

        def leaf(n: int, index: Index, mask: Scalar | None) -> Scalar:
            if n < params["num_consts"]:
                return self.value(eqn.invars[n], index, mask)
            if n < first:
                return self._carried(eqn, n - params["num_consts"], number, index, mask)
            return self.value(eqn.invars[n], (Affine.of(row), *index), mask)

        shared = [n for n, v in enumerate(eqn.invars) if v in self.shared]
        if shared:  # what steps hand on may come to depend on them
            shared = [*shared, *range(params["num_consts"], first)]
        return self._within((eqn, number), params["jaxpr"], leaf, shared)

    def _within(self, key: Any, graph: Graph, leaf: Leaf, shared: Iterable[int]) -> Body:
        if key not in self.inner:
            self.inner[key] = self.inside(graph, leaf, shared)
        return self.inner[key]


def _dependent(graph: Graph, inputs: frozenset[Var]) -> set[Operand]:
    """The inputs among a graph's own, and all that is computed from them."""
    found: set[Operand] = {v for v in graph.invars if v in inputs}
    for eqn in graph.eqns:
        if any(v in found for v in eqn.invars):
            found.update(eqn.outvars)
    return found


def few(extents: Sequence[int]) -> None:
    """Refused where there are more steps than are written out."""
    total = int(np.prod(extents, dtype=np.int64))
    if total > MOST_STEPS:
        raise Refused(
            f"its body reduces over {total} elements in each iteration, and at most {MOST_STEPS} are unrolled"
        )


_COMBINE: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "sum": lambda a, b: a | b if a.dtype == np.bool_ else a + b,
    "prod": lambda a, b: a & b if a.dtype == np.bool_ else a * b,
    "max": lambda a, b: a | b if a.dtype == np.bool_ else S.maximum(a, b),
    "min": lambda a, b: a & b if a.dtype == np.bool_ else S.minimum(a, b),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def reduces_terms(reduction: str) -> bool:
    """Whether a reduction over a few numbers can be written out: those that combine two, and positions of extremes."""
    return reduction in _COMBINE or reduction in ("argmax", "argmin")


def reduce_terms(reduction: str, terms: Sequence[Scalar], in_order: bool = False) -> Scalar:
    """The reduction of at least one number, added up in the order that NumPy takes along rows; half precision in float32."""
    dtype = terms[0].dtype
    if sum_dtype(dtype) != dtype:
        wide = [S.cast(term, sum_dtype(dtype)) for term in terms]
        return S.cast(reduce_terms(reduction, wide, in_order), dtype)
    if reduction not in _COMBINE:
        raise Refused(f"its body has a prefix scan by {reduction}")
    combine = _COMBINE[reduction]
    lines = list(terms)
    if reduction == "sum" and not in_order and len(terms) >= RUNNING_SUM:
        whole = len(terms) // RUNNING_SUM * RUNNING_SUM
        eight = [_chain(combine, terms[k:whole:RUNNING_SUM]) for k in range(RUNNING_SUM)]
        while len(eight) > 1:
            eight = [combine(a, b) for a, b in zip(eight[::2], eight[1::2])]
        lines = [*eight, *terms[whole:]]
    return _chain(combine, lines)


def _chain(combine: Callable[[Scalar, Scalar], Scalar], terms: Sequence[Scalar]) -> Scalar:
    result = terms[0]
    for term in terms[1:]:
        result = combine(result, term)
    return result


def extreme_index(reduction: str, terms: Sequence[Scalar], dtype: np.dtype) -> Scalar:
    """The first index of the extreme; nan is more extreme than any number, and of truth values the first that is (not) true."""
    if (
        terms[0].dtype == np.bool_
    ):  # a chain of the best so far reads each twice, and compilers then take exponential time
        index = S.constant(0, dtype)
        for number, term in reversed(list(enumerate(terms))):
            index = S.where(term if reduction == "argmax" else ~term, S.constant(number, dtype), index)
        return index
    best, index = terms[0], S.constant(0, dtype)
    for number, term in enumerate(terms[1:], 1):
        takes = term > best if reduction == "argmax" else term < best
        if is_inexact(term.dtype):
            takes = takes | (S.not_equal(term, term) & S.equal(best, best))
        index = S.where(takes, S.constant(number, dtype), index)
        best = S.where(takes, term, best)
    return index
