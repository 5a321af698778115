"""Collectives among devices of one process: each device's result, and the tasks that fill it from the operands of all.

Every task writes elements of its own, always in the order of the group, so it does not matter which device's thread does it,
nor when: whoever waits takes the next one. Blocks of a reduction stay in a core's cache while all values are added.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.runtime.memory import empty

Task = Callable[[], None]
Combined = tuple[list[Any], list[Task]]
BLOCK_BYTES = 1 << 17  # of a reduction in one task: its sum stays in the second-level cache


def reduced(step: Callable[..., Any], wide_dtype: Callable[[np.dtype], np.dtype]) -> Callable[..., Combined]:
    """All get the reduction by `step`, computed in `wide_dtype(dtype)`."""

    def prepare(values: Sequence[np.ndarray]) -> Combined:
        result = empty(values[0].shape, values[0].dtype)
        flat, target = [v.reshape(-1) for v in values], result.reshape(-1)
        wide, count = wide_dtype(result.dtype), max(BLOCK_BYTES // result.itemsize, 1)
        tasks: list[Task] = [
            functools.partial(_reduce, step, [v[n : n + count] for v in flat], target[n : n + count], wide)
            for n in range(0, target.size, count)
        ]
        return [result] * len(values), tasks

    return prepare


def _reduce(step: Callable[..., Any], values: Sequence[np.ndarray], out: np.ndarray, wide: np.dtype) -> None:
    total = out if wide == out.dtype else empty(out.shape, wide)
    first, *others = values
    if total is not out or not others:
        np.copyto(total, first)
        first = total
    with np.errstate(all="ignore"):
        for value in others:
            first = step(first, value, out=total, casting="unsafe")
    if total is not out:
        np.copyto(out, total, casting="unsafe")


def scattered(step: Callable[..., Any], wide_dtype: Callable[[np.dtype], np.dtype]) -> Callable[..., Combined]:
    """The n-th gets the n-th part of the reduction along `axis`."""

    def prepare(values: Sequence[np.ndarray], axis: int, **params: Any) -> Combined:
        shape = (*values[0].shape[:axis], *values[0].shape[axis + 1 :])
        results = [empty(tuple(shape), values[0].dtype) for _ in values]
        wide = wide_dtype(values[0].dtype)
        parts = [[v[_at(axis, n)] for v in values] for n in range(len(values))]
        return results, [functools.partial(_reduce, step, p, r, wide) for p, r in zip(parts, results)]

    return prepare


def gathered(values: Sequence[np.ndarray], axis: int, **params: Any) -> Combined:
    """All get the values along a new dimension."""
    shape = values[0].shape
    result = empty((*shape[:axis], len(values), *shape[axis:]), values[0].dtype)
    tasks: list[Task] = [functools.partial(np.copyto, result[_at(axis, n)], v) for n, v in enumerate(values)]
    return [result] * len(values), tasks


def exchanged(values: Sequence[np.ndarray], split_axis: int, concat_axis: int, **params: Any) -> Combined:
    """The n-th gets the n-th part along `split_axis` of each value, along a new dimension."""
    shape = list(values[0].shape)
    del shape[split_axis]
    shape.insert(concat_axis, len(values))
    results = [empty(tuple(shape), values[0].dtype) for _ in values]

    def take(number: int) -> None:
        for place, value in enumerate(values):
            np.copyto(results[number][_at(concat_axis, place)], value[_at(split_axis, number)])

    return results, [functools.partial(take, n) for n in range(len(values))]


def _at(axis: int, number: int) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, number, ...)  # an array, of no elements' dimensions too


def permuted(values: Sequence[np.ndarray], perm: Sequence[tuple[int, int]]) -> Combined:
    """Each destination gets its source's value, all others zeros."""
    results = [np.zeros_like(values[0])] * len(values)
    for source, destination in perm:
        results[destination] = values[source].copy()
    return results, []


def broadcast(values: Sequence[np.ndarray], source: int) -> Combined:
    """All get the value of one."""
    return [values[source].copy()] * len(values), []
