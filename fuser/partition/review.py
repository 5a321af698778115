"""Kernels that would take longer than their parts: each is partitioned again by itself, where estimates of whole kernels decide.

In: a candidate, and what the cost model says of a group. Out: candidates that compute the same and take less together, or None.
Merges are decided by what is known of candidates, in time that grows with the program; what happens to a kernel as a whole (that it
repeats in each run what it does not keep, divides for every element, or has rows too short for vectors) is in the estimate alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable

from fuser.ir.cost import element_seconds
from fuser.ir.primitive import Fusion, Movement
from fuser.ir.target import Target, duration
from fuser.partition.candidate import Candidate
from fuser.partition.group import FUSIBLE

Price = Callable[[Candidate], float | None]  # seconds of the candidate's kernel; None where they are not known
MOST_EQNS = 48  # of a candidate, beyond which pricing its merges one by one takes long


def worth_it(candidate: Candidate, target: Target) -> bool:
    """Whether a candidate's kernel has a form that could lose what a launch is worth many times, and enough to do for that: it reduces,
    reads what it computes at computed indices, computes values of a row or column for each element anew, or has tiles."""
    if candidate.kind not in FUSIBLE or not 2 <= len(candidate.eqns) <= MOST_EQNS:
        return False
    gathers = any(eqn.primitive.movement is Movement.GATHER for eqn in candidate.eqns)
    if not (candidate.reduced or gathers or len(candidate.innermost) > 1 or _repeats(candidate)):
        return False
    return target.scalar * alone(candidate, target) > target.alone


def _repeats(candidate: Candidate) -> bool:
    """Whether values have fewer elements than the candidate runs over."""
    domain = math.prod(axis.extent for axis in candidate.axes)
    return any(1 < v.aval.size < domain for eqn in candidate.eqns for v in eqn.outvars)


def alone(candidate: Candidate, target: Target) -> float:
    """Seconds of a candidate's equations if each ran in vectors once, or of its arrays if each passed once."""
    computing = sum(
        element_seconds(eqn, target) * max(v.aval.size for v in (*eqn.invars, *eqn.outvars))
        for eqn in candidate.eqns
        if eqn.primitive.fusion is not Fusion.MOVEMENT
    )
    return max(computing, target.move(sum(v.aval.nbytes for v in (*candidate.inputs, *candidate.live_out))))


def suspicious(candidate: Candidate, seconds: float, target: Target) -> bool:
    """Whether the seconds of a candidate's kernel are more than its equations take by themselves."""
    return seconds > target.apart * alone(candidate, target) + target.launch


def refusal(a: Candidate, b: Candidate, both: Candidate, price: Price, target: Target) -> str | None:
    """Why one kernel of `a` and `b` takes longer than two, by their estimates and by more than these are worth."""
    whole, first, second = price(both), price(a), price(b)
    if whole is None or first is None or second is None or whole <= target.apart * (first + second):
        return None
    return f"in one kernel they take {duration(whole)}, in two {duration(first + second)}"


def copied(candidate: Candidate) -> Candidate:
    """A candidate that `join` may change."""
    found = copy.copy(candidate)
    for name, value in vars(candidate).items():
        if isinstance(value, list | set | dict):
            setattr(found, name, copy.copy(value))
    found.reads = {var: set(several) for var, several in candidate.reads.items()}
    return found


def total(candidates: Iterable[Candidate], price: Price) -> float | None:
    """Seconds of kernels one after the other."""
    seconds = [price(candidate) for candidate in candidates]
    known = [s for s in seconds if s is not None]
    return sum(known) if len(known) == len(seconds) else None
