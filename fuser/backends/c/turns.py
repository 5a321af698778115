"""A run along a row whose test of position turns at a place that is computed: two loops, which both know the answer.

A window that starts at a computed place, and what lies beside it, are asked for element by element; a load behind such a
test keeps gcc from vectorising, and before and after the place where the answer turns there is nothing to ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.kernel import Stage, Store
from fuser.kernel.lower import computed, index_axes
from fuser.kernel.pieces import known

if TYPE_CHECKING:
    from fuser.backends.c.writer import Writer


@dataclass(frozen=True)
class Turn:
    """Tests that all turn at `place`, a position along the row, with their answers before it."""

    place: Affine
    answers: dict[Scalar, bool]

    def piece(self, stage: Stage, before: bool) -> tuple[tuple[Scalar, ...], tuple[Store, ...]]:
        """What the stage computes and stores before the place, or from there on."""
        answers = {node: answer == before for node, answer in self.answers.items()}
        return known(stage.body, stage.stores, {}, answers)


def turn(writer: Writer, stage: Stage) -> Turn | None:
    """The one place at which tests of the stage turn; None if there is none, or more than one, or more to the stage."""
    axis = writer.loops.vector
    if axis is None or writer.loops.cols != (axis,) or stage.folds or stage.kept or not stage.stores:
        return None
    if any(node.op == "scan" for node in stage.body):
        return None
    found = list(_turns(writer, stage, axis))
    if not found or any(place != found[0][0] for place, _, _ in found):
        return None
    return Turn(found[0][0], {node: answer for _, node, answer in found})


def _turns(writer: Writer, stage: Stage, axis: Axis) -> Iterator[tuple[Affine, Scalar, bool]]:
    """The place at which each test turns that compares a computed place, one step an element, with a number."""
    for node in stage.body:
        if node.op not in ("lt", "ge") or node.args[0].op != "index" or node.args[1].op != "const":
            continue
        index: Affine = node.args[0].attr
        step = index.coefficient(axis)
        rest = index - Affine.of(axis) * step
        moving = axis in index_axes(rest) or any(writer.follows(value, axis) for value in computed(rest))
        if abs(step) != 1 or moving or not computed(rest):
            continue
        number = int(node.args[1].attr)
        # i + rest < number before number - rest; rest - i < number from rest - number + 1 on
        place = Affine.of(number) - rest if step == 1 else rest + (1 - number)
        yield place, node, (node.op == "lt") == (step == 1)
