"""Lists of what the iterations of a loop made: each item is a row of one array, which `np.array` of the whole list is again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.interop.numpy.context import untraceable
from fuser.interop.numpy.indexing import _read, assign_basic
from fuser.interop.numpy.traced import TracedArray, View

FEWEST = 4  # rows that are taken for a part of their array


@dataclass(frozen=True, slots=True)
class Row:
    """That a view is this row of its base."""

    number: int


def rows(array: TracedArray, scalar: bool, weak: type | None, guard: str = "") -> list[TracedArray]:
    """The rows of an array that nobody else has, as arrays or numbers of their own."""
    found = []
    for number in range(len(array)):
        row = array.view_of(_view(array, number), array.contiguous, guard)
        row.scalar, row.weak = scalar, weak
        found.append(row)
    return found


def _view(array: TracedArray, number: int) -> View:
    return View(
        lambda value: _read(value, number),
        lambda value, new: assign_basic(array, value, (number,), new),
        Row(number),
    )


def packed(items: Any) -> TracedArray | None:
    """The array whose rows, one after the other, the items of a list or tuple are; None where they are anything else.

    The first few may be others of the same kind, as iterations are that were not staged.
    """
    if type(items) not in (list, tuple) or len(items) < FEWEST:
        return None
    if type(items[0]) in (list, tuple):
        return _packed_columns(items)
    number = next((n for n, item in enumerate(items[:FEWEST]) if _row_of(item) is not None), None)
    if number is None:
        return None
    first = items[number]
    base, start = first._base, first._view.index.number
    for position, item in enumerate(items[number:], start):
        if _row_of(item) != position or item._base is not base:
            return None
    if not number and len(items) == len(base):
        return base  # type: ignore[no-any-return]
    rest = TracedArray(base._context, _read(base.value, slice(start, start + len(items) - number)))
    return _behind(items[:number], rest) if number else rest


def are_rows(items: Any) -> bool:
    """Whether all items of a list or tuple are rows."""
    return len(items) >= FEWEST and all(_row_of(item) is not None for item in items)


def _packed_columns(items: Any) -> TracedArray | None:
    """The same for items that are lists or tuples: of the rows of rows, or of a few things each."""
    width = len(items[0])
    if not width or any(type(item) not in (list, tuple) or len(item) != width for item in items):
        return None
    if _row_of(items[-1][0]) is None:
        return None
    inner = [packed(item) for item in items] if packed(items[0]) is not None else []
    if inner and (whole := packed(inner)) is not None:
        return whole
    columns = [packed(column) for column in zip(*items)]
    if any(column is None for column in columns) or len({column.shape for column in columns}) > 1:  # type: ignore[union-attr]
        return None
    return np.stack(columns, axis=1)  # type: ignore[arg-type,return-value]


def _row_of(item: Any) -> int | None:
    """The number of the row that an item is."""
    view = item._view if type(item) is TracedArray else None
    return view.index.number if view is not None and type(view.index) is Row else None


def _behind(others: Any, rest: TracedArray) -> TracedArray | None:
    """`rest` with a few more rows before its first; None where they are of another shape or dtype."""
    for other in others:
        kind = type(other)
        if kind not in (TracedArray, int, float) and not isinstance(other, np.generic):
            return None
        if np.shape(other) != rest.shape[1:] or np.dtype(getattr(other, "dtype", kind)) != rest.dtype:
            return None
    whole = [np.reshape(other, (1, *rest.shape[1:])) for other in others]
    return np.concatenate([*whole, rest])  # type: ignore[return-value]


def joined(name: str, array: TracedArray, axis: int = 0) -> TracedArray | None:
    """`np.stack`, `concatenate`, ... of the rows of an array; None for what has no short form."""
    rank = array.ndim - 1
    if type(axis) is not int:
        return None
    if name == "stack" and -rank - 1 <= axis <= rank:
        return _moved(array, axis % (rank + 1))
    if name == "vstack" and rank < 2 and not axis:
        return array if rank else array[:, None]  # type: ignore[index,no-any-return]
    if name == "hstack" and rank < 2 and not axis:
        return array.reshape(-1)  # type: ignore[attr-defined,no-any-return]
    if name == "column_stack" and rank < 2 and not axis:
        return array.T if rank else array[None]  # type: ignore[attr-defined,index,no-any-return]
    axis = {"concatenate": axis, "vstack": 0, "hstack": 1, "column_stack": 1}.get(name, rank)
    if not 0 <= axis < rank:
        return None
    shape = array.shape
    long = (*shape[1 : axis + 1], shape[0] * shape[axis + 1], *shape[axis + 2 :])
    return _moved(array, axis).reshape(long)  # type: ignore[attr-defined,no-any-return]


def _moved(array: TracedArray, axis: int) -> TracedArray:
    return np.moveaxis(array, 0, axis) if axis else array  # type: ignore[type-var,no-any-return]


def extreme_of(items: TracedArray, weak: type | None, largest: bool) -> TracedArray:
    """`max` or `min` of the numbers in a list: a nan counts where it comes first, and is passed over elsewhere."""
    if items.ndim > 1:
        raise untraceable("max and min of a list of arrays cannot be traced", "use np.max and np.min with axis=0")
    reduce: Any = np.max if largest else np.min
    if items.dtype.kind == "f":
        numbers = np.where(np.isnan(items), -np.inf if largest else np.inf, items)
        first = items[0]  # type: ignore[index]
        found = np.where(np.isnan(first), first, reduce(numbers))
    else:
        found = reduce(items)
    return TracedArray(items._context, found.value, scalar=True, weak=weak)
