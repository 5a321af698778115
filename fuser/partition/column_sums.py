"""Sums over the rows of a kernel that reduces each of them: its programs sum up the columns of their own rows, in the same pass.

As gradients of a scale and of a bias beside those of the rows that were normalised with them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuser.ir.graph import Eqn
from fuser.ir.primitive import Fusion
from fuser.ir.types import is_complex, is_inexact
from fuser.partition.group import FusionGroup, FusionLimits, Kind

if TYPE_CHECKING:
    from fuser.partition.candidate import Candidate

MANY_ROWS = 256  # fewer leave most of a GPU idle


def sums_columns(a: Candidate, b: Candidate, limits: FusionLimits) -> bool:
    """Whether `b`, which sums over the rows of `a`, may do so beside `a`: each program sums those of its own rows."""
    length, rows = (math.prod(x.extent for x in axes) for axes in (a.reduced, a.parallel))
    sums = all(
        eqn.primitive.rule("lower")(**eqn.params)[0] == "sum" and is_inexact(eqn.outvars[0].aval.dtype)
        for eqn in b.eqns
        if eqn.primitive.fusion is Fusion.REDUCE
    )
    plain = a.kind is b.kind is Kind.REDUCTION and b.sweeps == 1 and not (a.opaque or b.opaque)
    whole = length <= limits.column_sums and rows >= MANY_ROWS and bool(a.order) and a.order[-1] in a.reduced
    reduced = {v for eqn in b.eqns if eqn.primitive.fusion is Fusion.REDUCE for v in eqn.outvars}
    return plain and whole and sums and b.live_out <= reduced and not b.column_sums and not _complex(a, b)


def _complex(*candidates: Candidate) -> bool:
    return any(is_complex(v.aval.dtype) for c in candidates for eqn in c.eqns for v in eqn.outvars)


def column_sums(group: FusionGroup) -> frozenset[Eqn]:
    """The sums over a group's parallel axes, which its programs make for their rows, and which are added up after."""
    if group.kind is not Kind.REDUCTION:
        return frozenset()
    found = set[Eqn]()
    for eqn in group.graph.eqns:
        layout = group.layout.get(eqn.invars[0]) if eqn.primitive.fusion is Fusion.REDUCE else None  # type: ignore[arg-type]
        if layout is not None:
            axes = eqn.primitive.rule("lower")(**eqn.params)[1]
            if any(layout[d] in group.parallel for d in axes if layout[d] is not None):
                found.add(eqn)
    return frozenset(found)
