"""What users write between the brackets of a Ref, as the static index and the operands of `get` and `swap`; and back."""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.ir.references import At, Index, Window
from fuser.lax.values import VALUES, as_value, wrapped_index
from fuser.trace.core import type_of


class _Counting(threading.local):
    from_the_end = True


_counting = _Counting()


@contextlib.contextmanager
def from_the_front() -> Iterator[None]:
    """Positions that are traced are not counted from the end where they are negative: in kernels they are never negative."""
    saved, _counting.from_the_end = _counting.from_the_end, False
    try:
        yield
    finally:
        _counting.from_the_end = saved


def _counted(position: Any, extent: int) -> Any:
    return wrapped_index(position, extent) if _counting.from_the_end else position


@dataclass(frozen=True)
class Slice:
    """`size` elements from `start` on, which may be traced, `stride` apart; made by `ds`."""

    start: Any
    size: int
    stride: int = 1

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ValueError(f"stride must be at least 1, got {self.stride}")


def ds(start: Any, size: int | None = None, stride: int | None = None) -> Slice | slice:
    """A slice for an index of a Ref: `size` elements from `start` on, which may be traced; with one argument, the first so many."""
    if size is None:
        start, size = 0, start
    return Slice(start, operator.index(size), 1 if stride is None else stride)


def parsed(index: Any, shape: Sequence[int], masked: bool = False) -> tuple[Index, list[Any]]:
    """The static index, and the operands for what it leaves open. IndexError where parts do not fit the shape.

    Under a mask, windows may lie outside: those that do have their start among the operands.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = [np.asarray(p) if isinstance(p, list) else p for p in parts]
    places = [n for n, p in enumerate(parts) if p is Ellipsis]
    used = sum(p is not None and p is not Ellipsis for p in parts)
    if len(places) > 1:
        raise ValueError("Only one ellipsis is supported: an index of a Ref has several")
    if used > len(shape):
        raise ValueError(f"Too many indices for shape {tuple(shape)}: {used} in {index}")
    at = places[0] if places else len(parts)
    parts[at : at + bool(places)] = [slice(None)] * (len(shape) - used)
    extents = iter(shape)
    operands: list[Any] = []
    found = tuple(None if p is None else _part(p, next(extents), operands, masked) for p in parts)
    return found, operands


def _part(part: Any, extent: int, operands: list[Any], masked: bool) -> Window | At:
    if isinstance(part, slice):
        if all(b is None or not isinstance(b, VALUES) for b in (part.start, part.stop, part.step)):
            start, stop, step = part.indices(extent)
            if step < 1:
                raise ValueError(f"an index of a Ref needs a step of at least 1, got {part}")
            return Window(start, len(range(start, stop, step)), step)
        raise TypeError(
            f"the bounds of a slice of a Ref are Python integers, got {part}; use ds(start, size) for a start that is traced"
        )
    if isinstance(part, Slice):
        return _window(part, extent, operands, masked)
    if isinstance(part, (bool, np.bool_)) or getattr(part, "dtype", None) == np.bool_:
        raise TypeError(f"an index of a Ref has no bools, got {part}; select with where")
    if isinstance(part, (int, np.integer)):
        if not -extent <= part < extent:
            raise IndexError(f"Out of bound indexer: index {part} is out of bounds for a dimension of {extent}")
        return At(int(part) % extent)
    value = as_value(part, "an index of a Ref")
    if type_of(value).dtype.kind not in "iu":
        raise TypeError(f"an index of a Ref has integers, got {type_of(value)}")
    operands.append(_counted(value, extent))
    return At(None)


def _window(part: Slice, extent: int, operands: list[Any], masked: bool) -> Window:
    if isinstance(part.start, (int, np.integer)):
        last = int(part.start) + (part.size - 1) * part.stride
        outside = part.start < 0 or (part.size > 0 and last >= extent)
        if outside and not masked:
            raise IndexError(
                f"Out of bound slice: start={part.start}, size={part.size}, stride={part.stride} in a dimension of {extent}"
            )
        if not outside:
            return Window(int(part.start), part.size, part.stride)
    elif not masked and (part.size - 1) * part.stride >= extent:
        raise IndexError(f"Out of bound slice: size={part.size}, stride={part.stride} in a dimension of {extent}")
    start = np.int32(part.start) if isinstance(part.start, int) else part.start
    operands.append(_counted(as_value(start, "the start of a slice"), extent))
    return Window(None, part.size, part.stride)
