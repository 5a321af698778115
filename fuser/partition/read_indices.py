"""The indices at which a candidate reads values that do not run along its axes.

Each is a distance from the running element along every dimension, or something of its own. Values that a kernel reads at one
distance are one value, so that what is computed for them is computed once for each index, and what neighbours share can be kept.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, KeysView
from typing import TYPE_CHECKING

from fuser.ir.graph import Var
from fuser.partition.axes import composed, is_shift
from fuser.partition.group import Kind

if TYPE_CHECKING:
    from fuser.partition.candidate import Candidate

# By index: how often each element of the value is read at it, about. An index is a `Shift`, or anything else that is equal to itself.
Indices = dict[Hashable, float]


def near(candidate: Candidate) -> KeysView[Var]:
    """What a kernel without reductions reads at constant distances alone, beside what it reads at its own indices."""
    if candidate.kind is not Kind.ELEMENTWISE:
        return dict[Var, None]().keys()
    return {v: None for v, found in candidate.opaque.items() if all(map(is_shift, found))}.keys()


def indices(a: Candidate, b: Candidate) -> Indices:
    """The indices at which `b`, which reads values of `a` at others than its own, computes `a`; a single number is one of a kernel."""
    if not a.parallel:
        return {(): 1.0}
    found: Indices = {}
    for var in [v for v in b.opaque if v in a.produced]:
        found = merged(found, merged(b.opaque[var], dict.fromkeys(_own(b, var), 1.0)))
    return found


def merged(first: Indices, second: Indices) -> Indices:
    """The indices of both; what is read twice at one is read once."""
    return first | {index: max(first.get(index, 0.0), times) for index, times in second.items()}


def inlined(a: Candidate, var: Var, found: Indices) -> Indices:
    """The indices at which `a` reads a value once `a` itself is computed at those of `found`."""
    share = math.prod(axis.extent for axis in a.axes) / max(var.aval.size, 1)
    inner = a.opaque.get(var, {}) | dict.fromkeys(_own(a, var), share)
    return {_moved(index, i): times * each for index, times in found.items() for i, each in inner.items()}


def _own(candidate: Candidate, var: Var) -> Iterator[Hashable]:
    """The indices of a value that is read along the candidate's axes."""
    for axes in candidate.reads.get(var, ()):
        yield (0,) * len(axes) if axes == tuple(candidate.order) else axes


def _moved(index: Hashable, inner: Hashable) -> Hashable:
    """The index at which something is read from `index` on."""
    shift = composed(index, inner) if is_shift(index) and is_shift(inner) else None
    return (index, inner) if shift is None else shift
