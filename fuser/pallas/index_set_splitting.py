"""Splits a loop over program ids where a branch of the body changes sides, so that each part runs without the branch.

`when(program_id(2) == 0)` and `when(program_id(2) == last)` make three parts: the first program, the last, and those between.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand
from fuser.ir.primitive import Control, Fusion
from fuser.trace.body import close
from fuser.trace.replay import bound, replay
from fuser.trace.stage import stage

MOST_PARTS = 4
MOST_PROGRAMS = 1 << 14  # that are looked at one by one


def parts(body: Graph, place: int, count: int) -> list[tuple[int, int]]:
    """The runs (start, end) of values of the scalar input number `place`, from 0 to `count`, in which no branch changes sides."""
    if count > MOST_PROGRAMS:
        return [(0, count)]
    chosen = list(_choices(body, place, 0, count).values())
    if not chosen:
        return [(0, count)]
    changes = np.any([np.diff(c) != 0 for c in chosen], axis=0)
    borders = [0, *(int(n) + 1 for n in np.flatnonzero(changes)), count]
    found = list(itertools.pairwise(borders))
    return found if len(found) <= MOST_PARTS else [(0, count)]


@functools.lru_cache(maxsize=256)
def specialised(body: Graph, place: int, start: int, end: int) -> Graph:
    """The body for values of the input from `start` to `end`, with branches that are the same for all of them in their place."""
    chosen = {eqn: int(c[0]) for eqn, c in _choices(body, place, start, end).items() if (c == c[0]).all()}
    if not chosen:
        return body

    def taken(eqn: Eqn, operands: list[Any]) -> Any:
        if eqn in chosen:
            return replay(eqn.params["branches"][chosen[eqn]], *operands[1:])
        return bound(eqn, operands)

    made, consts = close(stage(lambda *inputs: replay(body, *inputs, binding=taken), body.in_avals, body.name))
    return made if not consts else body


def _choices(body: Graph, place: int, start: int, end: int) -> dict[Eqn, np.ndarray]:
    """Which branch each value of the input takes, for the branches that it alone decides."""
    numbers = np.arange(start, end, dtype=np.int32)
    known: dict[Operand, np.ndarray] = {body.invars[place]: numbers}
    chosen: dict[Eqn, np.ndarray] = {}
    for eqn in body.eqns:
        if eqn.primitive.control is Control.COND and eqn.invars[0] in known:
            chosen[eqn] = np.clip(known[eqn.invars[0]], 0, len(eqn.params["branches"]) - 1)
        elif eqn.primitive.fusion is Fusion.ELEMENTWISE and all(
            isinstance(v, Literal) or v in known for v in eqn.invars
        ):
            operands = [
                np.broadcast_to(v.val if isinstance(v, Literal) else known[v], numbers.shape) for v in eqn.invars
            ]
            with np.errstate(all="ignore"):
                known[eqn.outvars[0]] = np.asarray(eqn.primitive.rule("eval")(*operands, **eqn.params))
    return chosen
