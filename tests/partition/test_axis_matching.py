"""Axes of two candidates, matched by the values that connect them."""

from __future__ import annotations

import numpy as np

from fuser.ir.graph import Var
from fuser.ir.index import Axis
from fuser.ir.types import ArrayType
from fuser.partition.axis_matching import match
from fuser.partition.candidate import Candidate, Uses, within
from fuser.partition.group import Kind, Layout


def array(*shape: int) -> Var:
    return Var(ArrayType(shape, np.dtype("float32")))


def candidate(axes: list[Axis], layout: dict[Var, Layout], reads: dict[Var, set[Layout]]) -> Candidate:
    found = Candidate(Kind.ELEMENTWISE, [], set(), list(axes), [], layout, reads)
    found.order = list(axes)
    return found


def test_a_shared_input_read_in_another_way_says_nothing() -> None:
    """Where the second dimension disagrees, what the first one said does not stay behind."""
    i, j, p, q = Axis(4), Axis(4), Axis(4), Axis(4)
    made, shared = array(4, 4), array(4, 4)
    first = candidate([i, j], {made: (i, j)}, {shared: {(j, i)}})
    second = candidate([p, q], {}, {made: {(p, q)}, shared: {(p, q)}})
    assert match(first, second) == {p: i, q: j}


def test_a_layout_does_not_map_two_axes_to_one() -> None:
    i, p, q = Axis(4), Axis(4), Axis(4)
    made = array(4, 4)
    first = candidate([i], {made: (i, i)}, {})
    second = candidate([p, q], {}, {made: {(p, q)}})
    assert match(first, second) == "it reads a value of the other along other axes"


def test_values_are_within_two_candidates_that_hold_all_their_readers() -> None:
    value, unread = array(4), array(4)
    first, second = candidate([], {}, {}), candidate([], {}, {})
    first.numbers, second.numbers = {0, 1}, {2}
    holds = lambda *readers: within(value, first, second, Uses({value: frozenset(readers)}, {}))
    assert holds(1, 2) and holds(2) and not holds(1, 3) and not holds(0, 1, 2, 3) and not holds(-1)
    assert within(unread, first, second, Uses({}, {}))
