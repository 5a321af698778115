"""How much a step of a native loop does: plans of its bodies in, numbers of elements and operations out.

A loop looks at the clock now and then (`interrupt.py`), and times its steps with one and with all threads (`thread_tuning.py`). What
a step does at most says how seldom the first is enough, and where the second is in vain.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from fuser.backends.c.control_flow.interrupt import LONGEST_PACE
from fuser.ir.primitive import Fusion
from fuser.ops.control import cond_p, scan_p
from fuser.partition.group import FUSIBLE, FusionGroup, Kind, Plan

QUICK = 1 << 14  # operations, which take 0.1 ms at most: a loop may do so many without a look at the clock


def first_pace(bodies: Sequence[Plan]) -> int:
    """The steps of a loop before its first look at the clock: one, unless it is known how little each of them does. Loops of a few short
    steps inside others would look as often as they go round."""
    work = sum(map(_operations, bodies))
    return max(1, min(LONGEST_PACE, int(QUICK // max(work, 1)))) if math.isfinite(work) else 1


def _operations(plan: Plan) -> float:
    """Operations of a body's kernels and counted loops, at most; infinite where their number is not known."""
    total = 0.0
    for group in itertools.chain.from_iterable(group.parts or (group,) for group in plan.groups):
        if group.kind is Kind.CONTROL and not group.reason:
            total += _times(group) * sum(map(_operations, group.bodies))
        elif group.kind in FUSIBLE and not group.reason and type(size := elements(group)) is int:
            total += size * len(group.graph.eqns)
        else:
            return math.inf
    return total


def _times(group: FusionGroup) -> float:
    """How often a loop goes round, or a branch is taken."""
    eqn = group.graph.eqns[-1]
    times = eqn.params["length"] if eqn.primitive is scan_p else 1 if eqn.primitive is cond_p else math.inf
    return times if type(times) is int else math.inf


def elements(group: FusionGroup) -> int:
    """The most elements that a kernel goes through for one of its equations: of what is only moved, those that are wanted."""
    read = (v for eqn in group.graph.eqns if eqn.primitive.fusion is not Fusion.MOVEMENT for v in eqn.operands())
    made = (v for eqn in group.graph.eqns for v in eqn.outvars)
    return max((v.aval.size for v in itertools.chain(read, made)), default=0)
