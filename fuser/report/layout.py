"""Where the boxes of a graph picture go: a layered layout of fusion groups, and inside each of its nodes.

In: a picture. Out: a box for every node and group. Each group is laid out alone, layer by layer; then the groups and
the nodes outside of any are laid out the same way, as boxes of the sizes found. No two boxes of one level overlap.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from fuser.report.data import GraphNode, GraphPicture

LINE = 46.0  # height of a node
GAP = 14.0  # between boxes side by side
RANK_GAP = 20.0  # between the layers inside of a group
GROUP_GAP = 44.0  # between the layers of groups
PADDING, HEADER = 14.0, 30.0  # around the nodes of a group, and the extra room of its title
WIDE = 700.0  # a layer of groups wider than this breaks
RANKS, COLUMNS = 24, 5  # a group deeper than RANKS layers goes on in the next column
GROUPS_ONLY = 300  # with more nodes than this the picture shows groups without their nodes

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; x and y of its upper left corner, in pixels."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> float:
        return self.x + self.width / 2

    def moved(self, x: float, y: float) -> Box:
        """The same box, `x` to the right and `y` down."""
        return Box(self.x + x, self.y + y, self.width, self.height)


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes by node id and by group, and the size of the whole; `detailed` is False when grouped nodes are left out."""

    nodes: dict[int, Box]
    groups: dict[int, Box]
    width: float
    height: float
    detailed: bool


def lay_out(picture: GraphPicture, titles: dict[int, str]) -> Layout:
    """Boxes for a picture whose groups carry `titles`."""
    detailed = len(picture.nodes) <= GROUPS_ONLY
    members: dict[int, list[GraphNode]] = {}
    for node in picture.nodes:
        if node.group >= 0:
            members.setdefault(node.group, []).append(node)
    inner = {group: _inside(nodes, picture.edges, detailed) for group, nodes in members.items()}
    sizes = {("group", group): _group_size(boxes, titles.get(group, "")) for group, boxes in inner.items()}
    sizes |= {("node", node.id): node_size(node) for node in picture.nodes if node.group < 0}
    placed = _stack(sizes, _between(picture), WIDE, GROUP_GAP)
    nodes: dict[int, Box] = {}
    groups: dict[int, Box] = {}
    for (what, key), box in placed.items():
        if what == "node":
            nodes[key] = box
        else:
            groups[key] = box
            spare = (box.width - 2 * PADDING - _extent(inner[key])[0]) / 2
            nodes |= {
                id: node.moved(box.x + PADDING + spare, box.y + HEADER + PADDING) for id, node in inner[key].items()
            }
    width, height = _extent(placed)
    return Layout(nodes, groups, width, height, detailed)


def node_size(node: GraphNode) -> tuple[float, float]:
    """Width and height of a node's box: room for its label over its type."""
    return max(58.0, 7.4 * len(clipped(node.label)) + 22, 6.3 * len(clipped(node.type)) + 22), LINE


def clipped(label: str, length: int = 26) -> str:
    """A label short enough for a box."""
    return label if len(label) <= length else label[: length - 1] + "…"


def _group_size(boxes: dict[int, Box], title: str) -> tuple[float, float]:
    width, height = _extent(boxes)
    title_width = 7.6 * len(clipped(title, 40)) + 8
    return max(width, title_width) + 2 * PADDING, (height + PADDING if boxes else 0) + HEADER + PADDING


def _extent(boxes: dict[Key, Box]) -> tuple[float, float]:
    right = max((box.x + box.width for box in boxes.values()), default=0.0)
    return right, max((box.y + box.height for box in boxes.values()), default=0.0)


def _between(picture: GraphPicture) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """The edges between groups and nodes outside of groups, each once."""
    home = {node.id: ("group", node.group) if node.group >= 0 else ("node", node.id) for node in picture.nodes}
    edges = ((home[first], home[second]) for first, second in picture.edges)
    return list(dict.fromkeys(edge for edge in edges if edge[0] != edge[1]))


def _inside(nodes: list[GraphNode], edges: Iterable[tuple[int, int]], detailed: bool) -> dict[int, Box]:
    """Boxes of one group's nodes from (0, 0); deep groups go on in columns to the right."""
    if not detailed:
        return {}
    sizes = {node.id: node_size(node) for node in nodes}
    own = [(first, second) for first, second in edges if first in sizes and second in sizes]
    rank = ranks(sizes, own)
    depth = max(rank.values()) + 1
    rows = max(RANKS, -(-depth // COLUMNS))
    boxes: dict[int, Box] = {}
    left = 0.0
    for column in range(-(-depth // rows)):
        chosen = {id: sizes[id] for id in sizes if rank[id] // rows == column}
        placed = _stack(chosen, [edge for edge in own if edge[0] in chosen and edge[1] in chosen], WIDE / 2, RANK_GAP)
        boxes |= {id: box.moved(left, 0) for id, box in placed.items()}
        left += _extent(placed)[0] + 3 * GAP
    return boxes


def ranks(keys: Iterable[Key], edges: Iterable[tuple[Key, Key]]) -> dict[Key, int]:
    """The layer of each key: one below its lowest producer, and a source just above its first consumer.

    An edge that closes a cycle is left out of account.
    """
    before: dict[Key, list[Key]] = {key: [] for key in keys}
    after: dict[Key, list[Key]] = {key: [] for key in before}
    for first, second in edges:
        before[second].append(first)
        after[first].append(second)
    rank: dict[Key, int] = {}
    waiting = {key: len(producers) for key, producers in before.items()}
    ready = [key for key, number in waiting.items() if number == 0]
    while len(rank) < len(before):
        if not ready:
            ready = [next(key for key in before if key not in rank)]
        key = ready.pop(0)
        if key in rank:
            continue
        rank[key] = max((rank[producer] + 1 for producer in before[key] if producer in rank), default=0)
        for consumer in after[key]:
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                ready.append(consumer)
    for key in before:
        if not before[key] and after[key]:
            rank[key] = max(0, min(rank[consumer] for consumer in after[key]) - 1)
    return rank


def _stack(
    sizes: dict[Key, tuple[float, float]], edges: list[tuple[Key, Key]], wide: float, gap: float
) -> dict[Key, Box]:
    """Boxes in layers from the top, each layer near its producers, shifted so that the leftmost edge is 0."""
    rank = ranks(sizes, edges)
    producers: dict[Key, list[Key]] = {key: [] for key in sizes}
    for first, second in edges:
        if rank[first] < rank[second]:
            producers[second].append(first)
    boxes: dict[Key, Box] = {}
    top = 0.0
    for level in range(max(rank.values(), default=-1) + 1):
        for row in _rows([key for key in sizes if rank[key] == level], sizes, wide):
            boxes |= _place(row, sizes, producers, boxes, top)
            top += max(sizes[key][1] for key in row) + gap
    left = min((box.x for box in boxes.values()), default=0.0)
    return {key: box.moved(-left, 0) for key, box in boxes.items()}


def _rows(keys: list[Key], sizes: dict[Key, tuple[float, float]], wide: float) -> list[list[Key]]:
    """A layer broken into rows of at most `wide` pixels."""
    rows: list[list[Key]] = []
    used = wide
    for key in keys:
        if used + sizes[key][0] > wide:
            rows.append([])
            used = 0.0
        rows[-1].append(key)
        used += sizes[key][0] + GAP
    return rows


def _place(
    row: list[Key],
    sizes: dict[Key, tuple[float, float]],
    producers: dict[Key, list[Key]],
    placed: dict[Key, Box],
    top: float,
) -> dict[Key, Box]:
    """One row: each box under the mean of its producers, pushed apart where they would overlap."""
    wished: dict[Key, float] = {}
    for key in row:
        centres = [placed[producer].centre for producer in producers[key] if producer in placed]
        wished[key] = sum(centres) / len(centres) if centres else 0.0
    order = sorted(row, key=lambda key: wished[key])
    lefts: list[float] = []
    for key in order:
        free = lefts[-1] + sizes[order[len(lefts) - 1]][0] + GAP if lefts else float("-inf")
        lefts.append(max(wished[key] - sizes[key][0] / 2, free))
    drift = sum(left + sizes[key][0] / 2 - wished[key] for left, key in zip(lefts, order)) / len(order)
    return {key: Box(left - drift, top, *sizes[key]) for left, key in zip(lefts, order)}
