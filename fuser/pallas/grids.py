"""Which program of which grid a kernel is traced for: the current ids, one a dimension."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from fuser.ref.indices import from_the_front


class _Current(threading.local):
    ids: Sequence[Any] | None = None
    grid: Sequence[int] = ()


_current = _Current()


@contextlib.contextmanager
def inside(ids: Sequence[Any], grid: Sequence[int]) -> Iterator[None]:
    """Trace a kernel: `program_id` and `num_programs` are of this grid."""
    saved = _current.ids, _current.grid
    _current.ids, _current.grid = ids, grid
    try:
        with from_the_front():
            yield
    finally:
        _current.ids, _current.grid = saved


def program_id(axis: int) -> Any:
    """The number of this program along a dimension of the grid, an int32. ValueError for another axis, or outside of kernels."""
    return _of(axis, "program_id")[0]


def num_programs(axis: int) -> int:
    """How many programs there are along a dimension of the grid. ValueError for another axis, or outside of kernels."""
    return _of(axis, "num_programs")[1]


def _of(axis: int, name: str) -> tuple[Any, int]:
    if _current.ids is None:
        raise ValueError(f"{name} is only there inside of a kernel: in the function that pallas_call is given")
    if not 0 <= axis < len(_current.grid):
        raise ValueError(
            f"`axis` must be nonnegative and less than the rank of the grid, which is {len(_current.grid)}: {name}({axis})"
        )
    return _current.ids[axis], _current.grid[axis]
