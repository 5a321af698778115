"""Affine analysis: which integer arrays are start + Σ stride·position, as indices made of `arange` are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fuser.ir.graph import Eqn, Operand, Var
from fuser.ir.primitive import Primitive
from fuser.ir.rewrite import Rewriter
from fuser.ops import elementwise as E
from fuser.ops.conversion import convert_element_type_p
from fuser.ops.movement import (
    broadcast_in_dim_p,
    concatenate_p,
    iota_p,
    reshape_p,
    rev_p,
    slice_p,
    squeeze_p,
    transpose_p,
)

DEEPEST = 24  # equations that are looked through
MOST_VALUES = 1 << 20  # numbers of a constant that are looked at


@dataclass(frozen=True)
class Even:
    """start + Σ strides[d]·position[d] over an array of this shape; the stride of a dimension of extent 1 is 0."""

    start: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def least(self) -> int:
        return self.start + sum(min(0, s * (n - 1)) for s, n in zip(self.strides, self.shape))

    @property
    def most(self) -> int:
        return self.start + sum(max(0, s * (n - 1)) for s, n in zip(self.strides, self.shape))


class _Finder:
    """What operands are, each found once: an index may be added to itself many times."""

    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self._known: dict[Var, Even | None] = {}
        self._depth = 0

    def __call__(self, operand: Operand) -> Even | None:
        """What an operand of integers is, if it is known to change evenly."""
        aval = operand.aval
        if aval.dtype.kind not in "iu" or not aval.size:
            return None
        number = self.rewriter.number(operand)
        if number is not None:
            return Even(int(number), (0,) * aval.ndim, aval.shape)
        assert isinstance(operand, Var)
        if operand not in self._known:
            self._depth += 1
            self._known[operand] = self._find(operand) if self._depth <= DEEPEST else None
            self._depth -= 1
        return self._known[operand]

    def _find(self, operand: Var) -> Even | None:
        eqn = self.rewriter.producers.get(operand)
        if eqn is None:
            return of_values(self.rewriter.constant(operand))
        rule = _RULES.get(eqn.primitive)
        found = rule(eqn, self) if rule is not None else None
        if found is None:
            return None
        limits = np.iinfo(operand.aval.dtype)
        return found if limits.min <= found.least and found.most <= limits.max else None

    def producer(self, operand: Operand) -> Eqn | None:
        """The equation that makes an operand."""
        return self.rewriter.producers.get(operand) if isinstance(operand, Var) else None


def components(operand: Operand, rewriter: Rewriter) -> list[Even] | None:
    """The parts of an operand along its last dimension, each of which changes evenly."""
    joined = rewriter.producer(operand, concatenate_p)
    last, even = operand.aval.ndim - 1, _Finder(rewriter)
    found: list[Even] = []
    if joined is not None and joined.params["dimension"] == last:
        parts = [(v, even(v)) for v in joined.invars]
    else:
        parts = [(operand, even(operand))]
    for part, form in parts:
        if form is None:
            values = rewriter.constant(part)
            if values is None or values.size > MOST_VALUES or not values.size:
                return None
            each = [of_values(values[..., n]) for n in range(values.shape[-1])]
            if any(one is None for one in each):
                return None
            found += each  # type: ignore[arg-type]
        else:
            for n in range(part.aval.shape[-1]):
                found.append(Even(form.start + n * form.strides[-1], form.strides[:-1], form.shape[:-1]))
    return found


def of_values(values: np.ndarray | None) -> Even | None:
    """What a constant is, if it changes evenly."""
    if values is None or values.dtype.kind not in "iu" or not 0 < values.size <= MOST_VALUES:
        return None
    start = int(values.flat[0])
    strides = []
    expected = np.full((1,) * values.ndim, start, object if values.dtype == np.uint64 else np.int64)
    for d, extent in enumerate(values.shape):
        second = tuple(int(k == d) for k in range(values.ndim))
        strides.append(int(values[second]) - start if extent > 1 else 0)
        line = strides[d] * np.arange(extent)
        expected = expected + line.reshape([-1 if k == d else 1 for k in range(values.ndim)])
    return Even(start, tuple(strides), values.shape) if (values == expected).all() else None


# What each primitive makes of even operands.

_Rule = Callable[[Eqn, _Finder], "Even | None"]


def _operands(eqn: Eqn, even: _Finder) -> list[Even] | None:
    found = []
    shape = eqn.outvars[0].aval.shape
    for v in eqn.invars:
        form = even(v)
        if form is None:
            return None
        found.append(
            form if form.shape == shape else Even(form.start, (0,) * len(shape), shape)
        )  # a number beside an array
    return found


def _iota(eqn: Eqn, even: _Finder) -> Even:
    shape, dimension = eqn.params["shape"], eqn.params["dimension"]
    return Even(0, tuple(int(d == dimension and n > 1) for d, n in enumerate(shape)), tuple(shape))


def _sum(eqn: Eqn, even: _Finder, sign: int = 1) -> Even | None:
    operands = _operands(eqn, even)
    if operands is None:
        return None
    x, y = operands
    return Even(x.start + sign * y.start, tuple(a + sign * b for a, b in zip(x.strides, y.strides)), x.shape)


def _difference(eqn: Eqn, even: _Finder) -> Even | None:
    return _sum(eqn, even, -1)


def _product(eqn: Eqn, even: _Finder) -> Even | None:
    operands = _operands(eqn, even)
    if operands is None:
        return None
    x, y = operands if not any(operands[1].strides) else operands[::-1]
    if any(y.strides):
        return None
    return Even(x.start * y.start, tuple(s * y.start for s in x.strides), x.shape)


def _negative(eqn: Eqn, even: _Finder) -> Even | None:
    x = even(eqn.invars[0])
    return None if x is None else Even(-x.start, tuple(-s for s in x.strides), x.shape)


def _same(eqn: Eqn, even: _Finder) -> Even | None:
    return even(eqn.invars[0])


def _spread(eqn: Eqn, even: _Finder) -> Even | None:
    x = even(eqn.invars[0])
    if x is None:
        return None
    shape = eqn.params["shape"]
    strides = [0] * len(shape)
    for stride, d in zip(x.strides, eqn.params["broadcast_dimensions"]):
        strides[d] = stride
    return Even(x.start, tuple(strides), tuple(shape))


def _reshaped(eqn: Eqn, even: _Finder) -> Even | None:
    """Where only dimensions of extent 1 come or go."""
    x = even(eqn.invars[0])
    shape = eqn.outvars[0].aval.shape
    if x is None or [n for n in x.shape if n != 1] != [n for n in shape if n != 1]:
        return None
    strides = iter([s for s, n in zip(x.strides, x.shape) if n != 1])
    return Even(x.start, tuple(0 if n == 1 else next(strides) for n in shape), shape)


def _transposed(eqn: Eqn, even: _Finder) -> Even | None:
    x = even(eqn.invars[0])
    order = eqn.params["permutation"]
    return None if x is None else Even(x.start, tuple(x.strides[d] for d in order), eqn.outvars[0].aval.shape)


def _sliced(eqn: Eqn, even: _Finder) -> Even | None:
    x = even(eqn.invars[0])
    if x is None:
        return None
    shape, steps = eqn.outvars[0].aval.shape, eqn.params["strides"] or (1,) * len(x.shape)
    start = x.start + sum(s * low for s, low in zip(x.strides, eqn.params["start_indices"]))
    return Even(start, tuple(s * step if n > 1 else 0 for s, step, n in zip(x.strides, steps, shape)), shape)


def _reversed(eqn: Eqn, even: _Finder) -> Even | None:
    x = even(eqn.invars[0])
    if x is None:
        return None
    turned = eqn.params["dimensions"]
    start = x.start + sum(x.strides[d] * (x.shape[d] - 1) for d in turned)
    return Even(start, tuple(-s if d in turned else s for d, s in enumerate(x.strides)), x.shape)


def _selected(eqn: Eqn, even: _Finder) -> Even | None:
    """`where(i < 0, i + n, i)` where one comparison holds for all i or for none."""
    if len(eqn.invars) != 3:
        return None
    holds = _holds(even.producer(eqn.invars[0]), even)
    chosen = None if holds is None else even(eqn.invars[2 if holds else 1])
    return chosen


def _holds(eqn: Eqn | None, even: _Finder) -> bool | None:
    """Whether a comparison holds everywhere (True) or nowhere (False); None where that is not known."""
    if eqn is not None and eqn.primitive is broadcast_in_dim_p:
        eqn = even.producer(eqn.invars[0])
    if eqn is None or eqn.primitive not in (E.lt_p, E.ge_p):
        return None
    x, y = (even(v) for v in eqn.invars)
    if x is None or y is None:
        return None
    below = True if x.most < y.least else False if x.least >= y.most else None
    return below if below is None or eqn.primitive is E.lt_p else not below


_RULES: dict[Primitive, _Rule] = {
    iota_p: _iota,
    E.add_p: _sum,
    E.sub_p: _difference,
    E.mul_p: _product,
    E.neg_p: _negative,
    E.select_n_p: _selected,
    convert_element_type_p: _same,
    broadcast_in_dim_p: _spread,
    reshape_p: _reshaped,
    squeeze_p: _reshaped,
    transpose_p: _transposed,
    slice_p: _sliced,
    rev_p: _reversed,
}
