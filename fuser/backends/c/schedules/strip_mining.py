"""Strip-mining of elementwise loops at a divisor: elements whose position is divided by it run in strips of one quotient.

What was reshaped or put together in another order is found by dividing the position, which no vector instruction does. From one
multiple of the divisor to the next the quotient stays as it is, and there the loop has none.

Allen and Kennedy, "Optimizing Compilers for Modern Architectures" (2001), chapter 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuser.backends.c.function import Part, Symbol, code
from fuser.ir.index import Affine, Computed, Div
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Store
from fuser.kernel.loops import SHORTEST_STRIP, Loops, of_vector
from fuser.kernel.operands import index_of

if TYPE_CHECKING:
    from fuser.backends.c.schedules.elementwise import Elementwise, Span


@dataclass(frozen=True)
class Strips:
    """Strips of `length` elements, which begin where the position and `offset` are a multiple of it."""

    length: int
    offset: int


def strips(
    nodes: Sequence[Scalar], stores: Sequence[Store], loops: Loops, shortest: int = SHORTEST_STRIP
) -> Strips | None:
    """The strips that most divisions of the position along the vector ask for, by their length or a multiple of it, the shortest among
    them; None where they do not pay, or there are none of at least the `shortest` length."""
    indices = [index_of(n) for n in nodes]
    divisions = [div for index in (*indices, *(s.offset for s in stores)) for div in _divisions(index)]
    found = Counter(Strips(div.divisor, div.base.offset) for div in divisions if of_vector(div, loops))
    if loops.vector is None:
        return None
    worth = {
        s: sum(n for other, n in found.items() if other.offset == s.offset and other.length % s.length == 0)
        for s in found
        if shortest <= s.length < loops.extents[loops.vector]
    }
    return max(worth, key=lambda s: (worth[s], -s.length, -s.offset), default=None)


def open_strips(writer: Elementwise, span: Span, strips: Strips, share: bool) -> tuple[Part, Part]:
    """Open the loop over the strips of a span, which threads may share; gives where one begins and ends."""
    length = writer.sizes(("strip", span.axis, strips.length), strips.length)
    offset = writer.sizes(("strip from", span.axis, strips.offset), strips.offset)
    if share:
        writer.shared()
    floor = Symbol("floor_div")
    first = code("{}({} + {}, {})", floor, span.begin, offset, length)
    strip = writer.count("strip", first, code("{}({} + {} - 1, {}) + 1", floor, span.end, offset, length))
    writer.index.quotients = {(strips.length, strips.offset): code(strip)}
    form = "{0} * {1} - {3} > {2} ? {0} * {1} - {3} : {2}"
    begin = writer.let("int64_t", "strip_from", form, strip, length, span.begin, offset)
    form = "({0} + 1) * {1} - {3} < {2} ? ({0} + 1) * {1} - {3} : {2}"
    return begin, writer.let("int64_t", "strip_to", form, strip, length, span.end, offset)


def close_strips(writer: Elementwise) -> None:
    writer.index.quotients = {}
    writer.close()


def _divisions(index: Affine) -> Iterator[Div]:
    for atom, _ in index.terms:
        if isinstance(atom, Div):
            yield atom
            yield from _divisions(atom.base)
        elif isinstance(atom, Computed) and atom.value.op == "index":
            yield from _divisions(atom.value.attr)
