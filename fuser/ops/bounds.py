"""Whether an index lies inside a dimension: known from its bounds, or tested in the kernel."""

from __future__ import annotations

from fuser.ir import scalar as S
from fuser.ir.index import Affine
from fuser.ir.scalar import Scalar


def within(position: Affine, extent: int) -> list[Scalar]:
    """The tests, none where it is known, that `0 <= position < extent`."""
    low, high = position.bounds
    tests = []
    if low < 0:
        tests.append(S.as_scalar(position) >= 0)
    if high >= extent:
        tests.append(S.as_scalar(position) < S.as_scalar(Affine.of(extent)))
    return tests
