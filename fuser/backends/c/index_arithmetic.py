"""Size arguments as variables, and index arithmetic as sums of terms: `kernel.sizes` with expressions as data."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fuser.backends.c.function import Code, Sum, Symbol, Variable, code
from fuser.ir.index import Axis, Computed, Div
from fuser.kernel.sizes import MOST_SIZES, IndexText, Sizes

FLOOR = "{2}({0}, {1})"  # the form of a division that rounds down; the other rounds to zero
TRUNCATED = "({0} / {1})"
_FLOOR_DIV = Symbol("floor_div")


class Arguments:
    """The size arguments of one kernel, in the order in which they are first asked for."""

    def __init__(self, most: int = MOST_SIZES) -> None:
        self._sizes = Sizes(most=most)

    def __call__(self, key: Any, value: int) -> Code:
        """What stands for `value`; `key` says where it comes from."""
        return _argument(self._sizes(key, value))

    def extent(self, axis: Axis, value: int) -> Code:
        """The number of iterations of an axis; always an argument."""
        return _argument(self._sizes.extent(axis, value))

    def opaque(self, value: int) -> Code:
        """An argument that is `value` in every call, which gcc is not to know."""
        return _argument(self._sizes.opaque(value))

    @property
    def full(self) -> bool:
        """Whether a further integer stands in the text."""
        return self._sizes.full

    @property
    def values(self) -> list[int]:
        return self._sizes.values

    @staticmethod
    def variable(slot: int) -> Variable:
        return Variable(f"s{slot}", "int64_t")


def _argument(text: str) -> Code:
    return Code((Variable(text, "int64_t") if text.startswith("s") else text,))


class Offsets(IndexText):
    """Affine expressions as sums. `names` holds what stands for an axis where the function now is.

    A computed 0 or 1 passes through a mask of all bits: gcc 12 vectorises `x[c ? 1 : 0]`, and whatever else it can tell to be
    a truth value, with the truth value's own -1, and reads before the array.
    """

    # Of the position along the vector and an offset, where they stand still; by the divisor and the offset.
    quotients: Mapping[tuple[int, int], Code] = MappingProxyType({})
    standing: Mapping[Div, Code] = MappingProxyType({})  # quotients that were computed before the loop

    def literal(self, value: int) -> Code:
        return Code((str(value),))

    def product(self, coefficient: int, factor: Any, atom: Any) -> Code:
        return code(
            atom if coefficient == 1 else code("-{}", atom) if coefficient == -1 else code("{} * {}", factor, atom)
        )

    def total(self, parts: list[Any]) -> Sum:
        return Sum(tuple(("+", part if type(part) is Code else code(part)) for part in parts) or (("+", Code(("0",))),))

    def _atom(self, atom: Any, owner: Any, division: str) -> Any:
        if isinstance(atom, Div) and (known := self._quotient(atom, owner)) is not None:
            return known
        found: Any = super()._atom(atom, owner, division)
        if isinstance(atom, Computed) and atom.bounds[1] == 1:
            return code("({} & {})", found, self.sizes.opaque(-1))  # type: ignore[attr-defined]
        return found

    def _quotient(self, atom: Div, owner: Any) -> Code | None:
        """A quotient that does not change here: of the divisor itself, or of a multiple."""
        if atom in self.standing:
            return self.standing[atom]
        terms = [(a, factor) for a, factor in atom.base.terms if a not in self.absorbed]
        if terms != [(self.vector, 1)]:
            return None
        for (divisor, offset), quotient in self.quotients.items():
            if atom.base.offset != offset:
                continue
            if atom.divisor == divisor:
                return quotient
            if atom.divisor % divisor == 0:
                times = atom.divisor // divisor
                factor = self.sizes(("times", owner, times), times)  # type: ignore[arg-type]
                return code("{}({}, {})", _FLOOR_DIV, quotient, factor)
        return None

    def quotient(self, division: str, base: Any, divisor: Any) -> Code:
        return code(division, code("({})", base), divisor, _FLOOR_DIV)
