"""Which loop axis of one candidate is which of another, by the values that connect them.

In: two candidates, the second of which reads values of the first or shares inputs with it. Out: the axes of the first by those
of the second, or why the two disagree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuser.ir.index import Axis
from fuser.partition.group import Layout

if TYPE_CHECKING:
    from fuser.partition.candidate import Candidate


def match(a: Candidate, b: Candidate) -> dict[Axis, Axis] | str:
    """Which axis of `a` each axis of `b` is, by the values that connect them; a reason where they disagree."""
    mapping: dict[Axis, Axis] = {}
    taken: set[Axis] = set()

    def unify(theirs: Layout, ours: Layout) -> bool:
        """Whether two layouts agree with what is known; if so, what they say more is known too."""
        added: dict[Axis, Axis] = {}
        for x, y in zip(theirs, ours):
            if x is None or y is None:
                if x is not y:
                    return False
            elif (known := mapping.get(x) or added.get(x)) is not None:
                if known is not y:
                    return False
            elif y in taken or y in added.values():
                return False
            else:
                added[x] = y
        if added:
            mapping.update(added)
            taken.update(added.values())
        return True

    for var, several in b.reads.items():
        if var in a.layout and var not in a.reads:
            for read in several:
                if not unify(read, a.layout[var]):
                    return "it reads a value of the other along other axes"
    # Hints only: shared inputs, where they agree; in the order of the program, so that plans are the same in each process.
    for var in b.reads:
        if var in a.reads and len(b.reads[var]) == len(a.reads[var]) == 1:
            unify(next(iter(b.reads[var])), next(iter(a.reads[var])))
    for x in b.axes:  # what is left runs along a free axis of the same extent that lies alike in memory
        if x not in mapping:
            free = [
                y
                for y in a.reduced + a.parallel
                if y not in taken and y.extent == x.extent and _alike(a, b, mapping, x, y)
            ]
            if free:
                mapping[x] = free[0]
                taken.add(free[0])
    return mapping


def _alike(a: Candidate, b: Candidate, mapping: dict[Axis, Axis], x: Axis, y: Axis) -> bool:
    """Whether `x` lies inside and outside of the same axes in `b` as `y` does in `a`."""
    order_a = {axis: n for n, axis in enumerate(a.order)}
    order_b = {axis: n for n, axis in enumerate(b.order)}
    pairs = [(p, q) for p, q in mapping.items() if p in order_b and q in order_a]
    return all((order_b[p] < order_b[x]) == (order_a[q] < order_a[y]) for p, q in pairs)
