"""Extents and strides as kernel arguments, so that one text serves every shape.

Each integer of a kernel's index arithmetic gets a slot by where it comes from (this axis, this array along this axis),
never by its value, so that equal numbers in one call do not shape the text. Only 0, 1 and −1 are written out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.ir.index import Affine, Axis, Computed, Div


class Sizes:
    """The size arguments of one kernel, in the order in which they are first asked for."""

    def __init__(self, spell: Callable[[int], str] = lambda slot: f"s{slot}") -> None:
        self.spell = spell
        self.slots: dict[Any, int] = {}
        self.values: list[int] = []

    def __call__(self, key: Any, value: int) -> str:
        """The text that stands for `value`; `key` says where it comes from."""
        if value in (0, 1, -1):
            return str(value)
        if key not in self.slots:
            self.slots[key] = len(self.values)
            self.values.append(value)
        return self.spell(self.slots[key])

    def extent(self, axis: Axis, value: int) -> str:
        """The number of iterations of an axis; always an argument."""
        key = ("extent", axis)
        if key not in self.slots:
            self.slots[key] = len(self.values)
            self.values.append(value)
        return self.spell(self.slots[key])


class IndexText:
    """Affine expressions as text. `names` spells axes; axes in `absorbed` run inside another one and are left out."""

    def __init__(self, sizes: Sizes, names: dict[Axis, str], absorbed: set[Axis], value: Callable[[Any], str]) -> None:
        self.sizes = sizes
        self.names = names
        self.absorbed = absorbed
        self.value = value

    def __call__(self, index: Affine, owner: Any, division: str = "({0} / {1})") -> str:
        """`index` as text; `owner` is what its integers belong to (a parameter's number, or a node)."""
        parts = []
        for atom, coefficient in index.terms:
            if atom in self.absorbed:
                continue
            factor = self.sizes(("factor", owner, self._key(atom), coefficient), coefficient)
            text = self._atom(atom, owner, division)
            parts.append(text if factor == "1" else f"-{text}" if factor == "-1" else f"{factor} * {text}")
        if index.offset:
            parts.append(self.sizes(("offset", owner, index.offset), index.offset))
        return " + ".join(parts) or "0"

    def _key(self, atom: Any) -> Any:
        return atom if isinstance(atom, Axis) else atom.order

    def _atom(self, atom: Any, owner: Any, division: str) -> str:
        if isinstance(atom, Axis):
            return self.names[atom]
        if isinstance(atom, Computed):
            return self.value(atom.value)
        assert isinstance(atom, Div)
        divisor = self.sizes(("divisor", owner, atom.order), atom.divisor)
        return division.format(f"({self(atom.base, owner, division)})", divisor)
