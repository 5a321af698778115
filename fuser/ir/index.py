"""Index arithmetic: affine expressions over loop axes, the one language of movement, legality and lowering.

An `Affine` is `offset + Σ coefficient · atom`; an atom is a loop `Axis`, a floor division `Div`, or a `Computed` integer
(a value read from an array, as in a gather). `mod` is spelled through `Div`, so that splitting an index and joining it
again cancels by plain arithmetic and a reshape of a reshape costs nothing.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

_serial = itertools.count()


@dataclass(frozen=True, eq=False, slots=True)
class Axis:
    """One loop: `extent` iterations from 0. Identity matters, so two axes of equal extent stay apart."""

    extent: int
    name: str = ""
    order: tuple[int, ...] = field(default_factory=lambda: (0, next(_serial)))

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, max(self.extent - 1, 0)

    def __str__(self) -> str:
        return self.name or f"a{self.order[1]}"


@dataclass(frozen=True, slots=True)
class Div:
    """`base // divisor`, rounded down; `divisor` > 1."""

    base: Affine
    divisor: int

    @property
    def order(self) -> tuple[int, ...]:
        return (1, self.divisor, self.base.offset, *(n for atom, c in self.base.terms for n in (*atom.order, c)))

    @property
    def bounds(self) -> tuple[int, int]:
        low, high = self.base.bounds
        return low // self.divisor, high // self.divisor

    def __str__(self) -> str:
        return f"({self.base})//{self.divisor}"


@dataclass(frozen=True, eq=False, slots=True)
class Computed:
    """An integer that the kernel computes (`value` is a scalar expression), known to lie in `bounds`, both ends included."""

    value: Any
    bounds: tuple[int, int]
    order: tuple[int, ...] = field(default_factory=lambda: (2, next(_serial)))

    def __str__(self) -> str:
        return f"computed{self.order[1]}"


Atom = Axis | Div | Computed


@dataclass(frozen=True, slots=True)
class Affine:
    """`offset + Σ coefficient · atom`, with terms in a fixed order and no zero coefficient."""

    terms: tuple[tuple[Atom, int], ...] = ()
    offset: int = 0

    @staticmethod
    def of(value: Affine | Axis | Computed | int) -> Affine:
        """The expression for an axis, a computed integer or a constant."""
        if isinstance(value, Affine):
            return value
        if isinstance(value, Axis):
            return ZERO if value.extent == 1 else Affine(((value, 1),), 0)
        if isinstance(value, Computed):
            low, high = value.bounds
            return Affine((), low) if low == high else Affine(((value, 1),), 0)
        return Affine((), int(value))

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value that it can take."""
        low = high = self.offset
        for atom, coefficient in self.terms:
            ends = atom.bounds
            low += min(coefficient * ends[0], coefficient * ends[1])
            high += max(coefficient * ends[0], coefficient * ends[1])
        return low, high

    def outside(self, extent: int) -> bool:
        """Whether it is known that this never lies in 0 … extent − 1."""
        low, high = self.bounds
        return high < 0 or low >= extent

    @property
    def atoms(self) -> tuple[Atom, ...]:
        return tuple(atom for atom, _ in self.terms)

    @property
    def leaves(self) -> list[Axis | Computed]:
        """The axes and the computed integers that it is made of, those inside of divisions too."""
        found: list[Axis | Computed] = []
        for atom, _ in self.terms:
            if isinstance(atom, Div):
                found += atom.base.leaves
            else:
                found.append(atom)
        return found

    @property
    def divides_negative(self) -> bool:
        """Whether a floor division inside may be of a negative number, which C's `/` rounds up."""
        return any(isinstance(a, Div) and (a.base.bounds[0] < 0 or a.base.divides_negative) for a in self.atoms)

    def axis(self) -> Axis | None:
        """The axis that this expression is, where it is exactly one axis."""
        if self.offset == 0 and len(self.terms) == 1 and self.terms[0][1] == 1 and isinstance(self.terms[0][0], Axis):
            return self.terms[0][0]
        return None

    def coefficient(self, wanted: Atom) -> int:
        for atom, coefficient in self.terms:
            if atom is wanted or atom == wanted:
                return coefficient
        return 0

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return self if other == 0 else Affine(self.terms, self.offset + other)
        if not other.terms:
            return self if other.offset == 0 else Affine(self.terms, self.offset + other.offset)
        if not self.terms:
            return Affine(other.terms, self.offset + other.offset)
        sums = dict(self.terms)
        for atom, coefficient in other.terms:
            sums[atom] = sums.get(atom, 0) + coefficient
        terms = sorted(((a, c) for a, c in sums.items() if c), key=lambda term: term[0].order)
        return _join(Affine(tuple(terms), self.offset + other.offset))

    __radd__ = __add__

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        return Affine(tuple((atom, c * factor) for atom, c in self.terms), self.offset * factor)

    __rmul__ = __mul__

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-other)

    def __floordiv__(self, divisor: int) -> Affine:
        """Rounded down, for a positive divisor."""
        if divisor == 1:
            return self
        whole = tuple((atom, c // divisor) for atom, c in self.terms if c % divisor == 0)
        rest = Affine(tuple((atom, c) for atom, c in self.terms if c % divisor), self.offset % divisor)
        quotient = Affine(whole, self.offset // divisor)
        low, high = rest.bounds
        if low // divisor == high // divisor:
            return quotient + low // divisor
        return quotient + Affine(((Div(rest, divisor), 1),), 0)

    def __mod__(self, divisor: int) -> Affine:
        return self - (self // divisor) * divisor

    def __str__(self) -> str:
        parts = [f"{c}*{atom}" if c != 1 else str(atom) for atom, c in self.terms]
        if self.offset or not parts:
            parts.append(str(self.offset))
        return " + ".join(parts)

    def substitute(self, replacement: dict[Atom, Affine]) -> Affine:
        """This expression with atoms replaced, inside floor divisions too."""
        total = Affine((), self.offset)
        for atom, coefficient in self.terms:
            if atom in replacement:
                total = total + replacement[atom] * coefficient
            elif isinstance(atom, Div):
                total = total + (atom.base.substitute(replacement) // atom.divisor) * coefficient
            else:
                total = total + Affine(((atom, coefficient),), 0)
        return total


ZERO = Affine()


def _join(index: Affine) -> Affine:
    """Cancel `base·c − …`: replaces `k·c + Div(k, d)·(−d·c)…` pairs that other rules leave behind, where they meet."""
    for atom, coefficient in index.terms:
        if isinstance(atom, Div) and isinstance(atom.base, Affine):
            inner = atom.base
            if len(inner.terms) == 1 and inner.offset == 0 and isinstance(inner.terms[0][0], Div):
                nested = inner.terms[0][0]
                if inner.terms[0][1] == 1:  # (x // a) // b == x // (a·b)
                    rest = Affine(tuple(t for t in index.terms if t[0] is not atom), index.offset)
                    return rest + (nested.base // (nested.divisor * atom.divisor)) * coefficient
    return index


def linearise(index: tuple[Affine, ...], shape: tuple[int, ...]) -> Affine:
    """The position in a dense row-major array of `shape`, in elements."""
    position = ZERO
    for i, extent in zip(index, shape):
        position = position * extent + i
    return position


def delinearise(position: Affine, shape: tuple[int, ...]) -> tuple[Affine, ...]:
    """The index in a dense row-major array of `shape` of the element at `position`."""
    index: list[Affine] = []
    for extent in reversed(shape[1:]):
        quotient = position // extent if extent else ZERO
        index.append(position - quotient * extent if extent else ZERO)
        position = quotient
    if shape:
        index.append(position)
    return tuple(reversed(index))
