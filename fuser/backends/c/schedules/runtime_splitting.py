"""Runtime splitting: a row's loop is cut at the computed bound where a predicate of the position changes value, so that both loops are free of it.

A slice that starts at a computed index is selected element by element; gcc vectorises no loop with a load behind such a
predicate, which is constant on either side of the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuser.ir.index import Affine, Axis
from fuser.ir.scalar import Scalar
from fuser.kernel.index_set_splitting import known
from fuser.kernel.kernel import Store, Sweep
from fuser.kernel.operands import computed, index_axes

if TYPE_CHECKING:
    from fuser.backends.c.emitter import Emitter


@dataclass(frozen=True)
class SplitPoint:
    """Tests that all turn at `place`, a position along the row, with their answers before it."""

    place: Affine
    answers: dict[Scalar, bool]

    def piece(self, sweep: Sweep, before: bool) -> tuple[tuple[Scalar, ...], tuple[Store, ...]]:
        """What the sweep computes and stores before the place, or from there on."""
        answers = {node: answer == before for node, answer in self.answers.items()}
        return known(sweep.body, sweep.stores, {}, answers)


def split_point(writer: Emitter, sweep: Sweep) -> SplitPoint | None:
    """The one place at which tests of the sweep turn; None if there is none, or more than one, or more to the sweep."""
    axis = writer.loops.vector
    if axis is None or writer.loops.reduced != (axis,) or sweep.reductions or sweep.kept or not sweep.stores:
        return None
    if any(node.op == "scan" for node in sweep.body):
        return None
    found = list(_split_points(writer, sweep, axis))
    if not found or any(place != found[0][0] for place, _, _ in found):
        return None
    return SplitPoint(found[0][0], {node: answer for _, node, answer in found})


def write(writer: Emitter, sweep: Sweep, found: SplitPoint) -> None:
    """A run along the row in two loops: before and after the place where a test turns."""
    [axis] = writer.loops.reduced
    total, name = writer.extents[axis], f"{writer.kernel.params[sweep.stores[0].param].name}_split"
    at = writer.let("int64_t", f"{name}_at", writer._offset(("turn", axis), found.place))
    place = writer.let("int64_t", name, "{0} < 0 ? 0 : {0} > {1} ? {1} : {0}", at, total)
    for before, span in ((True, ("0", place)), (False, (place, total))):
        nodes, stores = found.piece(sweep, before)
        with writer.scope():
            writer.pragma("omp simd")
            writer.loop(axis, *span)
            writer.define_all(nodes)
            for store in stores:
                writer.store(store)
            writer.close()


def _split_points(writer: Emitter, sweep: Sweep, axis: Axis) -> Iterator[tuple[Affine, Scalar, bool]]:
    """The place at which each test turns that compares a computed place, one step an element, with a number."""
    for node in sweep.body:
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
