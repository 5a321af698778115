"""Gradients through a row's maximum that cancel: exp(x − m) over its sum is the same for every m, and so its derivative by m is 0.

A graph says Σⱼ (gⱼ/s + c)·tⱼ with s = Σ t and c = −Σ t g / s², which is 0 in exact arithmetic and rounding error in floats. Sums
are compared as polynomials with exponents of either sign (Laurent) in elements, values of rows and sums of rows.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import isfinite
from typing import Any

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import MOVES
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import is_inexact
from fuser.ops.conversion import convert_element_type_p
from fuser.ops.elementwise import add_p, div_p, eq_p, mul_p, neg_p, sub_p
from fuser.ops.reduce import reduce_max_p, reduce_sum_p
from fuser.passes.dce import drop_dead

MOST_TERMS = 16
Monomial = frozenset[
    tuple[Any, int]
]  # atoms with exponents: (var, whether it differs along the row), or a sum of a monomial
Polynomial = dict[Monomial, Fraction]
ONE: Monomial = frozenset()


def without_gradients_of_maxima(graph: Graph) -> Graph:
    """The graph without what derivatives by a row's maximum add, where that is 0 in exact arithmetic."""
    if not any(eqn.primitive is reduce_max_p for eqn in graph.eqns):
        return graph
    rows, rewriter, found = _Rows(graph), Rewriter(graph), False
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        side = next((n for n, v in enumerate(eqn.invars) if eqn.primitive is add_p and rows.vanishes(v)), None)
        if side is None:
            rewriter.keep(eqn)
        else:
            rewriter.replace(eqn.outvars[0], eqn.invars[1 - side])
            found = True
    return drop_dead(rewriter.finish()) if found else graph


class _Rows:
    """Values of a graph as polynomials, where rows run along one axis."""

    def __init__(self, graph: Graph) -> None:
        self.maker = {v: eqn for eqn in graph.eqns for v in eqn.outvars}

    def vanishes(self, operand: Operand) -> bool:
        """Whether a value is a row's number, which is 0, given to the places of the row's maximum."""
        eqn = self.maker.get(operand)  # type: ignore[arg-type]
        if eqn is not None and eqn.primitive in (neg_p, convert_element_type_p):
            return self.vanishes(eqn.invars[0])
        if eqn is None or eqn.primitive is not mul_p:
            return False
        if any(isinstance(v, Literal) for v in eqn.invars):
            return any(self.vanishes(v) for v in eqn.invars)
        return any(self._at_maximum(eqn.invars[n], eqn.invars[1 - n]) for n in range(2))

    def _at_maximum(self, number: Operand, places: Operand) -> bool:
        test, shared = self._made(places, moved=False), self._made(number)
        if test is None or test.primitive is not eq_p or shared is None or shared.primitive is not div_p:
            return False
        largest = [self._made(v) for v in test.invars]
        maximum = next((e for e in largest if e is not None and e.primitive is reduce_max_p), None)
        count = self._made(shared.invars[1])
        if maximum is None or maximum.invars[0] not in test.invars or len(maximum.params["axes"]) != 1:
            return False
        (axis,) = maximum.params["axes"]
        counts = (
            count is not None and count.primitive is reduce_sum_p and self._made(count.invars[0], moved=False) is test
        )
        whole = maximum.invars[0].aval
        return counts and not _Expansion(self.maker, axis, whole.shape).of(shared.invars[0])

    def _made(self, operand: Operand, moved: bool = True) -> Eqn | None:
        """The equation that makes a value, but for conversions and, where it may be `moved`, movement."""
        while (eqn := self.maker.get(operand)) is not None:  # type: ignore[arg-type]
            if eqn.primitive is not convert_element_type_p and not (moved and eqn.primitive.movement in MOVES):
                return eqn
            operand = eqn.invars[0]
        return None


class _Expansion:
    """Values of one shape, and of its rows along `axis`, as polynomials; what is not understood is an atom."""

    def __init__(self, maker: dict[Var, Eqn], axis: int, shape: tuple[int, ...]) -> None:
        self.maker, self.axis, self.shape = maker, axis, shape
        self.row = tuple(e for d, e in enumerate(shape) if d != axis and e != 1)
        self.known: dict[Operand, Polynomial] = {}

    def of(self, operand: Operand) -> Polynomial:
        if operand not in self.known:
            found = self._expanded(operand)
            self.known[operand] = self._atom(operand) if found is None or len(found) > MOST_TERMS else found
        return self.known[operand]

    def _atom(self, operand: Operand) -> Polynomial:
        return {frozenset({((operand, operand.aval.shape == self.shape), 1)}): Fraction(1)}

    def _expanded(self, operand: Operand) -> Polynomial | None:
        if isinstance(operand, Literal):
            number = float(operand.val) if is_inexact(operand.aval.dtype) else float("nan")
            return {ONE: Fraction(number)} if isfinite(number) and number else None
        eqn = self.maker.get(operand)
        if eqn is None:
            return None
        primitive, args = eqn.primitive, eqn.invars
        if primitive is convert_element_type_p:
            return self.of(args[0]) if is_inexact(args[0].aval.dtype) else None
        if primitive is neg_p:
            return _times(self.of(args[0]), {ONE: Fraction(-1)})
        if primitive in (add_p, sub_p):
            return _plus(self.of(args[0]), self.of(args[1]), 1 if primitive is add_p else -1)
        if primitive is mul_p:
            return _times(self.of(args[0]), self.of(args[1]))
        if primitive is div_p:
            under = _inverse(self.of(args[1]))
            return None if under is None else _times(self.of(args[0]), under)
        if primitive is reduce_sum_p and args[0].aval.shape == self.shape and eqn.params["axes"] == (self.axis,):
            return self._sum(self.of(args[0]))
        return self.of(args[0]) if self._is_of_row(eqn) else None

    def _is_of_row(self, eqn: Eqn) -> bool:
        """Whether an equation makes a row's value of the same one in another shape."""
        operand, out = eqn.invars[0].aval.shape if eqn.invars else (), eqn.outvars[0].aval.shape
        if eqn.primitive.movement not in MOVES or tuple(e for e in operand if e != 1) != self.row:
            return False
        if "permutation" in eqn.params:
            return False
        if out != self.shape:
            return tuple(e for e in out if e != 1) == self.row
        dims = eqn.params.get("broadcast_dimensions")
        return dims is not None and (self.axis not in dims or operand[dims.index(self.axis)] == 1)

    def _sum(self, polynomial: Polynomial) -> Polynomial:
        """Σ along the row: what is the same along it is a factor."""
        total: Polynomial = {}
        for monomial, number in polynomial.items():
            inside = frozenset((atom, n) for atom, n in monomial if _differs(atom))
            along = frozenset({(inside, 1)}) if inside else ONE
            times = number if inside else number * self.shape[self.axis]
            total = _plus(total, _times({monomial - inside: times}, {along: Fraction(1)}), 1)
        return total


def _differs(atom: Any) -> bool:
    return isinstance(atom, tuple) and bool(atom[1])


def _plus(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    found = dict(a)
    for monomial, number in b.items():
        found[monomial] = found.get(monomial, Fraction(0)) + sign * number
    return {monomial: number for monomial, number in found.items() if number}


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    found: Polynomial = {}
    for x, m in a.items():
        for y, n in b.items():
            exponents = Counter(dict(x))
            for atom, power in y:
                exponents[atom] += power
            product = frozenset((atom, power) for atom, power in exponents.items() if power)
            found = _plus(found, {product: m * n}, 1)
    return found


def _inverse(polynomial: Polynomial) -> Polynomial | None:
    """1 over a single term; None of a sum."""
    if len(polynomial) != 1:
        return None
    ((monomial, number),) = polynomial.items()
    return {frozenset((atom, -power) for atom, power in monomial): 1 / number}
