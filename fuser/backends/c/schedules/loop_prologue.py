"""Loop fission of what a loop kernel computes once for each lane before its iterations.

Values that share no dear node are computed in vector loops of their own: one loop over hundreds of nodes is what gcc's
allocator of registers takes longest over, and spills what it gathers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuser.ir.scalar import COSTS, Scalar
from fuser.kernel.operands import operands

MOST_NODES = 128  # of a vector loop, unless one value needs more
CHEAP_OPS = 3  # additions that each loop rather computes anew


def runs(nodes: Sequence[Scalar], ends: Sequence[Scalar]) -> list[list[Scalar]]:
    """`nodes`, in program order, as the nodes of one vector loop after the other; `ends` are the values that are wanted.

    Cheap nodes stand in every run that needs them. A value of `ends` is in the run that computes it.
    """
    if len(nodes) <= MOST_NODES:
        return [list(nodes)]
    place = {node: number for number, node in enumerate(nodes)}
    cheap = _cheap(nodes)
    root = _components(nodes, cheap)
    parts: dict[Scalar, set[Scalar]] = {}
    for node in nodes:
        if node not in cheap:
            parts.setdefault(root(node), set()).add(node)
    for end in ends:
        if end in cheap:
            parts[end] = {end}
    found: list[set[Scalar]] = []
    for part in parts.values():
        whole = _with_operands(part, cheap)
        if found and len(found[-1] | whole) <= MOST_NODES:
            found[-1] |= whole
        else:
            found.append(whole)
    return [sorted(run, key=place.__getitem__) for run in found]


def _cheap(nodes: Sequence[Scalar]) -> set[Scalar]:
    """Nodes that read nothing and cost few operations with all that they need, as a test of a position does."""
    total: dict[Scalar, float] = {}
    for node in nodes:
        inner = sum(total.get(n, 0.0) for n in operands(node))
        total[node] = CHEAP_OPS + 1 if node.op == "load" else inner + COSTS.get(node.op, 1)
    return {node for node, cost in total.items() if cost <= CHEAP_OPS}


def _components(nodes: Sequence[Scalar], cheap: set[Scalar]) -> Callable[[Scalar], Scalar]:
    """The representative of a dear node: one for all that dear nodes connect."""
    parent: dict[Scalar, Scalar] = {}

    def root(node: Scalar) -> Scalar:
        while (above := parent.setdefault(node, node)) is not node:
            parent[node] = node = parent.setdefault(above, above)
        return node

    known = set(nodes) - cheap
    for node in nodes:
        if node in known:
            for operand in operands(node):
                if operand in known:
                    parent[root(operand)] = root(node)
    return root


def _with_operands(part: set[Scalar], cheap: set[Scalar]) -> set[Scalar]:
    """`part` and the cheap nodes that it needs."""
    found, waiting = set(part), list(part)
    while waiting:
        for operand in operands(waiting.pop()):
            if operand in cheap and operand not in found:
                found.add(operand)
                waiting.append(operand)
    return found
