"""Extents and strides as kernel arguments, so that one text serves every shape.

Each integer of a kernel's index arithmetic gets a slot by where it comes from (this axis, this array along this axis),
never by its value, so that equal numbers in one call do not shape the text. Only 0, 1 and −1 are written out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from fuser.ir.index import Affine, Axis, Computed, Div

MOST_SIZES = 48  # arguments of one kernel
INTERLEAVED = (
    2,
    3,
    4,
    8,
    16,
)  # elements of a step along the vector, whose neighbours compilers load and shuffle together
MOST_INTERLEAVED = 16
MOST_DIVIDED = 8  # divisors that are structure (strides, dilations, repeats), by which a compiler knows to divide


class Sizes:
    """The size arguments of one kernel, in the order in which they are first asked for.

    From `most` of them on integers stand in the text, extents excepted: a kernel that is put together from so many parts
    serves one size, and a compiler that must keep each of them in a register takes longer than another compilation.
    """

    def __init__(self, spell: Callable[[int], str] = lambda slot: f"s{slot}", most: int = MOST_SIZES) -> None:
        self.spell = spell
        self.most = most
        self.slots: dict[Any, int] = {}
        self.values: list[int] = []

    def __call__(self, key: Any, value: int) -> str:
        """The text that stands for `value`; `key` says where it comes from."""
        if value in (0, 1, -1):
            return str(value)
        if not self.takes(key) and abs(value) < 1 << 31:
            return str(value) if value >= 0 else f"({value})"
        return self._argument(key, value)

    def takes(self, key: Any) -> bool:
        """Whether the integer from there is an argument; else it stands in the text, unless it needs 64 bits."""
        return key in self.slots or not self.full

    @property
    def full(self) -> bool:
        """Whether a further integer stands in the text."""
        return len(self.values) >= self.most

    def extent(self, axis: Axis, value: int) -> str:
        """The number of iterations of an axis; always an argument."""
        return self._argument(("extent", axis), value)

    def opaque(self, value: int) -> str:
        """An argument that is `value` in every call, which a compiler is not to know."""
        return self._argument(("opaque", value), value)

    def _argument(self, key: Any, value: int) -> str:
        if key not in self.slots:
            self.slots[key] = len(self.values)
            self.values.append(value)
        return self.spell(self.slots[key])


class IndexText:
    """Affine expressions as text. `names` spells axes; axes in `absorbed` run inside another one and are left out.

    Short steps along the axis `vector` are structure, not size: the text shows which elements lie between two of them. Steps backwards
    are not: compilers that know one give up, and read element by element where they do not. So are short
    divisors: a processor takes ten times as long to divide by a number that the compiler does not know.
    """

    def __init__(
        self,
        sizes: Sizes,
        names: dict[Axis, str],
        absorbed: set[Axis],
        value: Callable[[Any], str],
        vector: Axis | None = None,
    ) -> None:
        self.sizes = sizes
        self.vector = vector
        self.names = names
        self.absorbed = absorbed
        self.value = value

    def __call__(self, index: Affine, owner: Any, division: str = "({0} / {1})") -> str:
        """`index` as text; `owner` is what its integers belong to (a parameter's number, or a node)."""
        parts = []
        rest = 0  # of the offset, within one step along the vector
        for atom, coefficient in index.terms:
            if atom in self.absorbed:
                continue
            if atom is self.vector and 1 < coefficient <= MOST_INTERLEAVED:
                # Known, another one makes a group of neighbours that compilers have no shuffles for, nor vectors at all.
                known = coefficient in INTERLEAVED
                factor = self.literal(coefficient) if known else self.sizes.opaque(coefficient)
                rest = index.offset % coefficient
            elif isinstance(atom, Div) and atom.divisor <= MOST_DIVIDED and abs(coefficient) == atom.divisor:
                factor = self.literal(coefficient)  # what is left of a division, or the place where its period begins
            elif atom is self.vector and self.sizes.full and coefficient not in (0, 1, -1):
                factor = self.sizes.opaque(coefficient)  # known, it makes one group of neighbours that are far apart
            else:
                factor = self.sizes(("factor", owner, self._key(atom), coefficient), coefficient)
            parts.append(self.product(coefficient, factor, self._atom(atom, owner, division)))
        if index.offset - rest:
            parts.append(self.sizes(("offset", owner, index.offset - rest), index.offset - rest))
        if rest:
            parts.append(self.literal(rest))
        return self.total(parts)

    @contextlib.contextmanager
    def along(self, axis: Axis) -> Iterator[None]:
        """Another axis along the vector, in a loop of its own."""
        before, self.vector = self.vector, axis
        try:
            yield
        finally:
            self.vector = before

    # What a backend that keeps expressions as data does in its own way.

    def literal(self, value: int) -> Any:
        return str(value)

    def product(self, coefficient: int, factor: Any, atom: Any) -> Any:
        return atom if coefficient == 1 else f"-{atom}" if coefficient == -1 else f"{factor} * {atom}"

    def total(self, parts: list[Any]) -> Any:
        return " + ".join(parts) or "0"

    def quotient(self, division: str, base: Any, divisor: Any) -> Any:
        return division.format(f"({base})", divisor)

    def _key(self, atom: Any) -> Any:
        return atom if isinstance(atom, Axis) else atom.order

    def _atom(self, atom: Any, owner: Any, division: str) -> str:
        if isinstance(atom, Axis):
            return self.names[atom]
        if isinstance(atom, Computed):
            return self.value(atom.value)
        assert isinstance(atom, Div)
        short = atom.divisor <= MOST_DIVIDED
        divisor = self.literal(atom.divisor) if short else self.sizes(("divisor", atom), atom.divisor)
        return self.quotient(division, self(atom.base, owner, division), divisor)
