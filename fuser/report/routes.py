"""The curves of a graph picture: from the bottom of one box to the top of another, around the boxes between.

In: the laid-out boxes and the pairs to connect. Out: one SVG path each. A curve that would run behind a box takes a
lane beside it, in the gap that the layout leaves.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuser.report.layout import GAP, Box

PORTS = 13.0  # pixels between the ends of two curves on one box
TURN = 14.0  # how far a curve that goes up again runs on before it turns
MARGIN = 3.0  # a curve nearer to a box than this counts as behind it


def routes(pairs: Iterable[tuple[Box, Box]], boxes: Iterable[Box]) -> list[str]:
    """SVG path data for each pair, in order; `boxes` are what the curves should keep clear of."""
    pairs, boxes = list(pairs), list(boxes)
    ends = _ports(pairs)
    return [_route(first, second, end, boxes) for (first, second), end in zip(pairs, ends)]


def _ports(pairs: list[tuple[Box, Box]]) -> list[float]:
    """Where each pair's curve ends, so that the curves into one box stand apart, in the order they come from."""
    arriving: dict[Box, list[int]] = {}
    for index, (_, second) in enumerate(pairs):
        arriving.setdefault(second, []).append(index)
    ends = [0.0] * len(pairs)
    for box, indices in arriving.items():
        step = min(PORTS, 0.7 * box.width / len(indices))
        for place, index in enumerate(sorted(indices, key=lambda index: pairs[index][0].centre)):
            ends[index] = box.centre + (place - (len(indices) - 1) / 2) * step
    return ends


def _route(first: Box, second: Box, end: float, boxes: list[Box]) -> str:
    x1, y1, x2, y2 = first.centre, first.y + first.height, end, second.y
    start = f"M{x1:.1f} {y1:.1f}"
    if y2 <= y1:
        return start + _upward(first, second, end)
    hit = [box for box in boxes if box not in (first, second) and _behind(box, x1, y1, x2, y2)]
    if not hit:
        return start + _bend(x1, y1, x2, y2)
    top, bottom = min(box.y for box in hit), max(box.y + box.height for box in hit)
    lane = _lane(hit, boxes, top, bottom, (x1 + x2) / 2)
    return start + _bend(x1, y1, lane, top) + f"L{lane:.1f} {bottom:.1f}" + _bend(lane, bottom, x2, y2)


def _upward(first: Box, second: Box, end: float) -> str:
    """From the foot of one column to the head of the next, through the gap between them."""
    right = second.x > first.x
    lane = second.x - GAP if right else second.x + second.width + GAP
    x1, y1, y2 = first.centre, first.y + first.height, second.y
    turn = f"C{x1:.1f} {y1 + TURN:.1f} {lane:.1f} {y1 + TURN:.1f} {lane:.1f} {y1:.1f}L{lane:.1f} {y2:.1f}"
    return turn + f"C{lane:.1f} {y2 - TURN:.1f} {end:.1f} {y2 - TURN:.1f} {end:.1f} {y2:.1f}"


def _behind(box: Box, x1: float, y1: float, x2: float, y2: float) -> bool:
    """Whether the line from (x1, y1) down to (x2, y2) runs behind the box."""
    above, below = max(y1, box.y), min(y2, box.y + box.height)
    if below - above < MARGIN:
        return False
    at = [x1 + (x2 - x1) * (y - y1) / (y2 - y1) for y in (above, below)]
    return min(at) < box.x + box.width + MARGIN and max(at) > box.x - MARGIN


def _lane(hit: list[Box], boxes: list[Box], top: float, bottom: float, wished: float) -> float:
    """The upright line beside the boxes hit that is behind the fewest others, then the nearest."""
    beside = (min(box.x for box in hit) - GAP / 2, max(box.x + box.width for box in hit) + GAP / 2)

    def cost(lane: float) -> tuple[int, float]:
        return sum(_behind(box, lane, top, lane, bottom) for box in boxes), abs(lane - wished)

    return min(beside, key=cost)


def _bend(x1: float, y1: float, x2: float, y2: float) -> str:
    """An upright-ended curve between two points."""
    bend = max(8.0, min(46.0, abs(y2 - y1) / 2))
    return f"C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
