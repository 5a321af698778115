"""Interval analysis: the smallest and the largest value that an integer expression can take.

In: a scalar node, and what is known of the loop axes. Out: both ends included, or the ends of its type. They
make clamps and predicates needless: an index masked by 255 lies inside a table of 256.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from fuser.ir.index import Affine, Axis, Div
from fuser.ir.scalar import Scalar

Span = tuple[int, int]
Spans = Mapping[Axis, Span]  # first and last position along an axis, where it is not the whole axis

DEEP = 64  # nodes one in the other that are looked at


def span(node: Scalar, spans: Spans | None = None) -> Span | None:
    """The least and the greatest value of a node; None if it is no integer and no bool."""
    if node.dtype.kind not in "iub":
        return None
    return _span(node, spans or {}, DEEP, {})


def settled(node: Scalar) -> Scalar:
    """The branch of a select that is always taken, as the ends of what it compares tell; else the node itself."""
    if node.op == "cast":
        inner = settled(node.args[0])
        return node if inner is node.args[0] else replace(node, args=(inner,))
    if node.op != "select" or node.args[0].op not in ("lt", "ge"):
        return node
    test, chosen, other = node.args
    a, b = (span(arg) for arg in test.args)
    if a is None or b is None or not (a[0] >= b[1] or a[1] < b[0]):
        return node
    return settled(chosen if (a[1] < b[0]) == (test.op == "lt") else other)


def within(index: Affine, spans: Spans) -> Span:
    """The least and the greatest value of an index where the axes run along `spans` only."""
    low = high = index.offset
    for atom, step in index.terms:
        ends = spans.get(atom, atom.bounds) if isinstance(atom, Axis) else atom.bounds
        if isinstance(atom, Div):
            inner = within(atom.base, spans)
            ends = inner[0] // atom.divisor, inner[1] // atom.divisor
        low += min(step * ends[0], step * ends[1])
        high += max(step * ends[0], step * ends[1])
    return low, high


def ends(dtype: object) -> Span:
    """The least and the greatest value of an integer type."""
    kind, bits = dtype.kind, dtype.itemsize * 8  # type: ignore[attr-defined]
    if kind == "b":
        return 0, 1
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind == "i" else (0, (1 << bits) - 1)


def _span(node: Scalar, spans: Spans, depth: int, known: dict[Scalar, Span]) -> Span:
    if (found := known.get(node)) is None:
        found = known[node] = _looked_up(node, spans, depth, known)
    return found


def _looked_up(node: Scalar, spans: Spans, depth: int, known: dict[Scalar, Span]) -> Span:
    whole = ends(node.dtype)
    found: Span | None = None
    if node.op == "const":
        found = (int(node.attr), int(node.attr))
    elif node.op == "index":
        found = within(node.attr, spans)
    elif node.op in _RULES and depth and all(a.dtype.kind in "iub" for a in node.args):
        found = _RULES[node.op](*(_span(a, spans, depth - 1, known) for a in node.args))
    if found is None or found[0] < whole[0] or found[1] > whole[1]:  # it may have wrapped around
        return whole
    return found


def _product(a: Span, b: Span) -> Span:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _and(a: Span, b: Span) -> Span | None:
    """What a number without a sign lets through is no larger than the number."""
    if a[0] >= 0 and b[0] >= 0:
        return 0, min(a[1], b[1])
    positive = a if a[0] >= 0 else b
    return (0, positive[1]) if positive[0] >= 0 else None


def _or(a: Span, b: Span) -> Span | None:
    """Numbers without a sign set no bit above those of the larger one."""
    if a[0] < 0 or b[0] < 0:
        return None
    return 0, (1 << max(a[1].bit_length(), b[1].bit_length())) - 1


def _remainder(a: Span, b: Span) -> Span | None:
    if b[0] <= 0:
        return None
    most = b[1] - 1
    return (0 if a[0] >= 0 else -min(most, -a[0])), (0 if a[1] <= 0 else min(most, a[1]))


def _shifted(a: Span, b: Span) -> Span | None:
    return (a[0] >> b[1], a[1] >> b[0]) if a[0] >= 0 and b[0] >= 0 and b[1] < 64 else None


_RULES: dict[str, Callable[..., Span | None]] = {
    "cast": lambda a: a,
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "neg": lambda a: (-a[1], -a[0]),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "and": _and,
    "or": _or,
    "xor": _or,
    "rem": _remainder,
    "shr": _shifted,
    "select": lambda c, a, b: (min(a[0], b[0]), max(a[1], b[1])),
}
