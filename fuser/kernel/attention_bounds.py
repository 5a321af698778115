"""Which positions along a walked axis a row may see, by tests of positions in what its products are made of.

In: a weight or a score, an axis. Out: `Bounds` between which alone it is not 0; None where no test says so. Tests that bounds
decide need not be made where all positions lie between them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.ir.types import is_inexact
from fuser.kernel.operands import index_axes

VANISHES = 128.0  # exp(−x) is 0 in float32 for such a distance from the maximum


@dataclass(frozen=True, eq=False)
class Bounds:
    """The positions of `axis` that are not hidden: `lower` ≤ position ≤ `upper` for each.

    Hidden weights are 0; where they are exp(`fill` − `shift`), only in rows whose `shift` is above `settled`. `decided` are the
    tests that say nothing more than these bounds, each with its result between them.
    """

    axis: Axis
    lower: tuple[Affine, ...]
    upper: tuple[Affine, ...]
    fill: float = 0.0
    shift: Scalar | None = None
    decided: tuple[tuple[Scalar, bool], ...] = ()

    @property
    def settled(self) -> float:
        """The maximum of a row above which the weights of scores `fill` are 0."""
        return self.fill + max(VANISHES, abs(self.fill) * 1e-6) if math.isfinite(self.fill) else self.fill


def visible_scores(score: Scalar, axis: Axis) -> Bounds | None:
    """The bounds outside of which scores are one negative number, `fill`."""
    found = _chosen(score)
    if found is None or found[1] >= 0:
        return None
    bounds = _bounds(found[0], found[2], axis)
    return None if bounds is None else replace(bounds, fill=found[1])


def visible_weights(weight: Scalar, axis: Axis) -> Bounds | None:
    """The bounds outside of which weights are 0."""
    if weight.op == "exp" and weight.args[0].op == "sub":
        score, shift = weight.args[0].args
        found = visible_scores(score, axis)
        return None if found is None else replace(found, shift=shift)
    chosen = _chosen(weight)
    if chosen is not None and chosen[1] == 0:
        bounds = _bounds(chosen[0], chosen[2], axis)
        if bounds is not None:
            return bounds
    factors = weight.args if weight.op == "mul" else weight.args[:1] if weight.op in ("div", "neg", "cast") else ()
    each = (visible_weights(factor, axis) for factor in factors if is_inexact(factor.dtype))
    return next((found for found in each if found is not None), None)


def common(found: list[Bounds | None]) -> Bounds | None:
    """What holds for all of several weights; None where they have different bounds."""
    if not found or any(b is None for b in found):
        return None
    first = next((b for b in found if b is not None and b.shift is not None), found[0])
    assert first is not None
    for other in found:
        assert other is not None
        if (other.lower, other.upper) != (first.lower, first.upper) or other.axis is not first.axis:
            return None
        if other.shift is not None and (other.shift, other.fill) != (first.shift, first.fill):
            return None
    return replace(first, decided=tuple(dict.fromkeys(test for each in found if each for test in each.decided)))


def _chosen(node: Scalar) -> tuple[Scalar, float, bool] | None:
    """Of a choice between a number and something else: the test, the number, and what the test is where it is not taken."""
    while node.op == "cast" and is_inexact(node.args[0].dtype):
        node = node.args[0]
    if node.op != "select":
        return None
    for number, seen in ((2, True), (1, False)):
        fill = node.args[number]
        if fill.op == "const" and is_inexact(fill.dtype):
            return node.args[0], float(fill.attr), seen
    return None


def _bounds(test: Scalar, seen: bool, axis: Axis) -> Bounds | None:
    slacks = [_slack(part) for part in _conjuncts(test, seen)]
    known = [slack for slack in slacks if slack is not None]
    lower = tuple(-rest for rest in _rests(known, axis, 1))
    upper = tuple(_rests(known, axis, -1))
    if not lower and not upper:
        return None
    whole = len(lower) + len(upper) == len(slacks)
    return Bounds(axis, lower, upper, decided=((test, seen),) if whole else ())


def _rests(slacks: list[Affine], axis: Axis, sign: int) -> list[Affine]:
    """What stands beside the position where that has this sign, and nothing else depends on it."""
    found = [slack - Affine.of(axis) * sign for slack in slacks if slack.coefficient(axis) == sign]
    return [rest for rest in found if axis not in index_axes(rest)]


_OPPOSITE = {"le": "gt", "lt": "ge", "ge": "lt", "gt": "le"}


def _conjuncts(test: Scalar, holds: bool) -> list[Scalar]:
    """Tests that hold all together where, and only where, a test holds, or does not."""
    if test.op == "not":
        return _conjuncts(test.args[0], not holds)
    if test.op == ("and" if holds else "or"):
        return [c for arg in test.args for c in _conjuncts(arg, holds)]
    if test.op == "select" and all(a.op == "const" for a in test.args[1:]):
        yes, no = (bool(a.attr) for a in test.args[1:])
        return [test] if yes == no else _conjuncts(test.args[0], holds == yes)
    if test.op in _OPPOSITE and not holds:
        return [Scalar(_OPPOSITE[test.op], test.args, test.dtype)]
    return [test]


def _slack(test: Scalar) -> Affine | None:
    """What is not negative where, and only where, a comparison of positions holds; None where it compares something else."""
    if test.op not in _OPPOSITE:
        return None
    a, b = (_position(arg) for arg in test.args)
    if a is None or b is None:
        return None
    difference = b - a if test.op in ("le", "lt") else a - b
    return difference - 1 if test.op in ("lt", "gt") else difference


def _position(node: Scalar) -> Affine | None:
    """An integer as index arithmetic; None where it is none."""
    if node.dtype.kind != "i" or node.dtype.itemsize < 4:
        return None
    if node.op == "const":
        return Affine((), int(node.attr))
    if node.op == "index":
        return node.attr  # type: ignore[no-any-return]
    if node.op == "cast":
        return _position(node.args[0])
    if node.op in ("add", "sub"):
        a, b = (_position(arg) for arg in node.args)
        return None if a is None or b is None else a + b if node.op == "add" else a - b
    return None
