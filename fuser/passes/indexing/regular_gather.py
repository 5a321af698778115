"""Gathers at affine indices as movement: `x[i + arange(20)]` for all i as sliding windows, `x[::2][arange(9)]` as strided slices.

Windows and slices are index arithmetic, so that what reads them needs no indices in memory and can run along them in vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph
from fuser.ops import movement as M
from fuser.ops.indexing import GatherDimensionNumbers
from fuser.ops.windows import sliding_windows_p
from fuser.passes.analysis.affine import Even
from fuser.trace.stage import stage

_Term = tuple[int, int, int]  # dimension of the result, stride along the operand's, extent


def as_windows(eqn: Eqn, starts: Sequence[Even]) -> Graph | None:
    """The gather as slices and windows, `starts` being its components; None where it leaves the operand, or two components
    count along one dimension (a diagonal)."""
    x, out = eqn.invars[0].aval, eqn.outvars[0].aval
    numbers = GatherDimensionNumbers(*eqn.params["dimension_numbers"])
    if not out.size or not x.size:
        return None
    lines = _lines(x.shape, out.ndim, tuple(eqn.params["slice_sizes"]), numbers, starts)
    counted = [dimension for _, terms in lines for dimension, *_ in terms]
    if len(set(counted)) != len(counted):
        return None
    for (first, terms), extent in zip(lines, x.shape):
        reach = [stride * (n - 1) for _, stride, n in terms]
        if first + sum(min(0, r) for r in reach) < 0 or first + sum(max(0, r) for r in reach) >= extent:
            return None

    def read(operand: Any, _: Any) -> list[Any]:
        return [_read(operand, lines, out.shape)]

    return stage(read, [v.aval for v in eqn.invars], "regular_gather")


def _lines(
    shape: tuple[int, ...], ndim: int, sizes: tuple[int, ...], numbers: GatherDimensionNumbers, starts: Sequence[Even]
) -> list[tuple[int, list[_Term]]]:
    """For each dimension of the operand the first place that is read, and what counts from there."""
    batch = [d for d in range(ndim) if d not in numbers.offset_dims]
    component = {d: k for k, d in enumerate(numbers.start_index_map)}
    rows = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims))
    offsets = iter(numbers.offset_dims)
    lines: list[tuple[int, list[_Term]]] = []
    for d, (extent, size) in enumerate(zip(shape, sizes)):
        first, terms = 0, []
        if d in component:
            form = starts[component[d]]
            first = form.start
            terms = [(batch[k], s, n) for k, (s, n) in enumerate(zip(form.strides, form.shape)) if s]
        if d in rows and extent > 1:
            terms.append((batch[rows[d]], 1, extent))
        if d not in rows and d not in numbers.collapsed_slice_dims:
            offset = next(offsets)
            if size > 1:
                terms.append((offset, 1, size))
        lines.append((first, terms))
    return lines


def _read(x: Any, lines: Sequence[tuple[int, list[_Term]]], shape: tuple[int, ...]) -> Any:
    """The elements at first + Σ stride·position along each dimension, in a result of this shape."""
    x = _sliced(x, lines)
    labels: list[int | None] = []  # for each dimension of x, that of the result
    more: list[tuple[int, list[_Term]]] = []
    for d, (_, terms) in enumerate(lines):
        outer_first = sorted(terms, key=lambda term: (-abs(term[1]), -term[2]))
        labels.append(outer_first[0][0] if terms else None)
        if len(terms) > 1:
            more.append((d, outer_first))
    for d, terms in reversed(more):  # from behind, as a dimension may come right behind its own
        x, labels = _in_windows(x, d, terms, labels)
    kept = [label for label in labels if label is not None]
    x = M.reshaped(x, tuple(n for n, label in zip(x.shape, labels) if label is not None))
    order = tuple(int(d) for d in np.argsort(kept))
    if order != tuple(range(len(kept))):
        x = M.transpose_p.bind(x, permutation=order)
    turned = tuple(n for n, d in enumerate(sorted(kept)) if _is_negative(lines, d))
    if turned:
        x = M.rev_p.bind(x, dimensions=turned)
    if x.shape == shape:
        return x
    return M.broadcast_in_dim_p.bind(x, shape=shape, broadcast_dimensions=tuple(sorted(kept)))


def _is_negative(lines: Sequence[tuple[int, list[_Term]]], dimension: int) -> bool:
    return any(stride < 0 for _, terms in lines for d, stride, _ in terms if d == dimension)


def _sliced(x: Any, lines: Sequence[tuple[int, list[_Term]]]) -> Any:
    """What lies between the first and the last element that is read; in steps where one thing counts alone."""
    low, high, steps = [], [], []
    for first, terms in lines:
        reach = [stride * (n - 1) for _, stride, n in terms]
        low.append(first + sum(min(0, r) for r in reach))
        high.append(first + sum(max(0, r) for r in reach) + 1)
        steps.append(abs(terms[0][1]) if len(terms) == 1 else 1)
    if (*low, *high, *steps) == (*[0] * x.ndim, *x.shape, *[1] * x.ndim):
        return x
    strides = None if set(steps) <= {1} else tuple(steps)
    return M.slice_p.bind(x, start_indices=tuple(low), limit_indices=tuple(high), strides=strides)


def _in_windows(x: Any, d: int, terms: list[_Term], labels: list[int | None]) -> tuple[Any, list[int | None]]:
    """Dimension d, along which all `terms` count, as one dimension for each of them."""
    (_, stride, n), *others = terms
    stride = abs(stride)
    wide = 1 + sum(abs(s) * (extent - 1) for _, s, extent in others)
    label, last = others[0][0], len(others) == 1
    if wide == stride and not (last and abs(others[0][1]) > 1):  # side by side
        x = M.reshaped(x, (*x.shape[:d], n, stride, *x.shape[d + 1 :]))
        at = d + 1
    else:
        apart = abs(others[0][1]) if last else 1
        window = others[0][2] if last else wide
        x = sliding_windows_p.bind(x, dimensions=(d,), window=(window,), strides=(stride,), dilation=(apart,))
        at = x.ndim - 1
    labels = [*labels[:at], label, *labels[at:]]
    return (x, labels) if last else _in_windows(x, at, others, labels)
