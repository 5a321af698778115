"""Values that a kernel computes to write them into an array, written there at once: their own array is not stored and read again.

In: the greedy pass when it is done. An update of an array (`u[1:-1] += …`) whose value another kernel has to compute, as a reduction
beside it or a value read at shifted indices needs a kernel of its own, is taken into that kernel, which stores the value where it
belongs in the result. Around it the result is a copy of the array: its frame (`Kernel.frames`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fuser.ir.graph import Eqn, Literal, Var
from fuser.ir.primitive import Movement
from fuser.ops.window_write import write_window_p
from fuser.partition.candidate import Candidate, within
from fuser.partition.group import FUSIBLE, FusionGroup, FusionLimits, Kind

if TYPE_CHECKING:
    from fuser.partition.partition import Grouping

Box = tuple[tuple[int, int], ...]  # of each dimension the first element, and the one after the last


def take_in_updates(grouping: Grouping) -> list[Candidate]:
    """The candidates, where those that compute values of updates write the updated arrays."""
    if grouping.limits.update_frames:
        for number in list(grouping.candidates):
            update = grouping.candidates[number]
            if (maker := _maker(grouping, update)) is not None:
                grouping.take_in(maker, number, *_written(update))
    return list(grouping.candidates.values())


def _maker(grouping: Grouping, update: Candidate) -> int | None:
    """The number of the candidate that may write the array which a candidate updates."""
    if update.kind is not Kind.ELEMENTWISE or len(update.eqns) != 1 or not is_update(update.eqns[0]):
        return None
    value, _ = _written(update)
    maker = grouping.maker(value)
    if maker is None or value.aval.nbytes <= grouping.limits.horizontal_bytes:
        return None
    first = grouping.candidates[maker]
    alone = within(value, first, update, grouping.uses)
    laid_out = first.kind in FUSIBLE and value in first.layout and value not in first.column_sums
    base = grouping.views(update.eqns[0].invars[0]).source
    if not alone or not laid_out or base in first.produced or not _fits(first, update, grouping.limits):
        return None
    if any(is_update(eqn) and eqn.outvars[0] in first.live_out for eqn in first.eqns):
        return None
    return None if grouping.waits_for(update, maker) else maker


def _fits(first: Candidate, update: Candidate, limits: FusionLimits) -> bool:
    return len(first.inputs | update.inputs) < limits.max_params


def _written(update: Candidate) -> tuple[Var, Var]:
    """The value that an update writes, and its result."""
    [eqn] = update.eqns
    value, result = eqn.invars[1], eqn.outvars[0]
    assert isinstance(value, Var)
    return value, result


def is_update(eqn: Eqn) -> bool:
    """Whether an equation writes a computed value into an array, at a place that is known."""
    known = all(isinstance(start, Literal) for start in eqn.invars[2:])
    return eqn.primitive.movement is Movement.UPDATE and known and isinstance(eqn.invars[1], Var)


def update_of(group: FusionGroup, result: Var) -> Eqn | None:
    """The update that gives a result which the group writes in part, beside its frame if it has one; None of other results."""
    if result in group.layout:
        return None
    written = next((eqn for eqn in group.graph.eqns if eqn.outvars[0] is result), None)
    if written is not None and written.primitive is write_window_p:
        return written
    return next((eqn for eqn in group.graph.eqns if eqn.outvars[0] is result and is_update(eqn)), None)


def place(eqn: Eqn) -> Box:
    """Where an update writes: moved inside where it does not fit."""
    extents, shape = eqn.invars[1].aval.shape, eqn.invars[0].aval.shape
    wanted = [int(start.val) for start in eqn.invars[2:] if isinstance(start, Literal)]
    starts = np.clip(wanted, 0, np.subtract(shape, extents)).tolist()
    return tuple((start, start + extent) for start, extent in zip(starts, extents, strict=True))


def frame(shape: tuple[int, ...], inner: Box) -> list[Box]:
    """What an array of this shape has around a box, as boxes: on both sides along each dimension in turn."""
    found: list[Box] = []
    for d, (first, last) in enumerate(inner):
        after = tuple((0, extent) for extent in shape[d + 1 :])
        sides = ((0, first), (last, shape[d]))
        found += [(*inner[:d], side, *after) for side in sides if side[0] < side[1]]
    return [box for box in found if all(first < last for first, last in box)]
