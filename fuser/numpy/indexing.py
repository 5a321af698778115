"""`x[index]` as NumPy understands it: a plan of slices, windows and index arrays, then the fewest primitives for it.

Static integers, slices and newaxis become slice, rev, squeeze and broadcast_in_dim; integers that are traced become a
dynamic_slice; index arrays become one gather. Reading out of bounds clamps, as in JAX, unless a mode says otherwise.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuser.config import config
from fuser.errors import NonConcreteBooleanIndexError
from fuser.ir.dim import Dim, as_extent, known_at_least, minimum
from fuser.ir.extents import common_shape, slice_bounds
from fuser.ir.source import current_source
from fuser.ir.types import BOOL, ArrayType
from fuser.lax.values import VALUES, as_value, broadcast_to, convert, literal, wrapped_index
from fuser.ops import elementwise as E
from fuser.ops import movement as V
from fuser.ops.dynamic import dynamic_slice_p
from fuser.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather_p
from fuser.runtime.array import Array
from fuser.trace.core import Tracer, bind

_INT32 = np.dtype("int32")
_FULL = slice(None)


@dataclass(frozen=True, slots=True)
class Entry:
    """One part of an index: "new", "slice" (start, size, step), "scalar" or "array" (positions), and its dimension."""

    kind: str
    dimension: int = -1
    value: Any = None


@dataclass(slots=True)
class Plan:
    """An index as a gather: its numbers, start indices and sizes; then dimensions to reverse, and where new ones go."""

    numbers: GatherDimensionNumbers
    indices: Any
    slice_sizes: tuple[int, ...]
    shape: tuple[int, ...]  # of what the gather gives
    reversed: tuple[int, ...] = ()
    new: tuple[int, ...] = ()  # positions of new dimensions in the result
    fresh: tuple[int, ...] = field(default=())  # leading dimensions given to the operand for scalar bools
    unique: bool = False

    @property
    def result_shape(self) -> tuple[int, ...]:
        extents = iter(self.shape)
        return tuple(1 if d in self.new else next(extents) for d in range(len(self.shape) + len(self.new)))


# From Python's index to entries.


def parse(index: Any, shape: tuple[int, ...], wrap: bool = True) -> list[Entry]:
    """The entries of an index into an array of `shape`, ellipsis and trailing dimensions spelled out.

    Negative positions count from the end; without `wrap` they are out of bounds (the bounds of slices excepted).
    """
    if isinstance(index, list):
        _refuse_list(index)
    parts = _expand_masks(list(index) if isinstance(index, tuple) else [index])
    consumed = sum(1 for p in parts if p is not None and p is not Ellipsis and not _scalar_bool(p))
    ellipses = sum(1 for p in parts if p is Ellipsis)
    if ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if consumed > len(shape):
        raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, but {consumed} were indexed")
    if not ellipses:
        parts.append(Ellipsis)
    entries: list[Entry] = []
    dimension = 0
    for part in parts:
        if part is Ellipsis:
            for _ in range(len(shape) - consumed):
                entries.append(Entry("slice", dimension, (0, shape[dimension], 1)))
                dimension += 1
        elif part is None:
            entries.append(Entry("new"))
        elif _scalar_bool(part):
            entries.append(Entry("bool", -1, bool(part)))
        else:
            if isinstance(part, _Mask) and part.extent not in (0, shape[dimension]):
                raise IndexError(
                    f"boolean index did not match shape of indexed array: got extent {part.extent} for dimension {dimension} of {shape}"
                )
            entries.append(_entry(part, dimension, shape[dimension], wrap))
            dimension += 1
    return entries


class _Mask:
    """The positions along one dimension where a mask holds, and the mask's extent there."""

    def __init__(self, positions: np.ndarray, extent: int) -> None:
        self.positions, self.extent = positions, extent


def _scalar_bool(part: Any) -> bool:
    return isinstance(part, (bool, np.bool_))


def _expand_masks(parts: list[Any]) -> list[Any]:
    result: list[Any] = []
    for part in parts:
        if isinstance(part, (list, tuple)):
            part = _sequence_array(part)
        if isinstance(part, (*VALUES, np.ndarray)) and part.dtype == BOOL:
            if isinstance(part, Tracer):
                raise NonConcreteBooleanIndexError(
                    f"a traced mask {part.aval} indexes an array ({current_source().short}), so the shape of the result would depend on "
                    "values; use fuser.numpy.where(mask, x, y), or nonzero(mask, size=n)"
                )
            mask = np.asarray(part)
            result += [bool(mask)] if not mask.ndim else [_Mask(p, e) for p, e in zip(np.nonzero(mask), mask.shape)]
        else:
            result.append(part)
    return result


def _refuse_list(index: list[Any]) -> None:
    raise TypeError(
        "Using a non-tuple sequence for multidimensional indexing is not allowed: a list cannot index an array; "
        f"use arr[array(seq)], or arr[tuple(seq)] for several dimensions, got {index!r} ({current_source().short})"
    )


def _entry(part: Any, dimension: int, extent: int, wrap: bool) -> Entry:
    if isinstance(part, slice):
        return _slice_entry(part, dimension, extent)
    if isinstance(part, _Mask):
        return Entry("array", dimension, part.positions.astype(np.int32))
    if isinstance(part, (int, np.integer)):
        return Entry("scalar", dimension, _static(operator.index(part), dimension, extent, wrap))
    if isinstance(part, (*VALUES, np.ndarray)) or hasattr(part, "__jax_array__"):
        return _array_entry(part if not hasattr(part, "__jax_array__") else as_value(part), dimension, extent, wrap)
    if isinstance(part, str):
        raise TypeError(f"JAX does not support string indexing, and no array does here; got {part!r}")
    if isinstance(part, (float, complex, np.generic)):
        raise TypeError(
            "Indexer must have integer or boolean type, got indexer with type "
            f"{getattr(part, 'dtype', type(part).__name__)} at position {dimension}, indexer value {part!r}"
        )
    raise IndexError(
        f"only integers, slices, ellipsis, None and integer or boolean arrays index an array, got {part!r}"
    )


def _sequence_array(part: Sequence[Any]) -> Any:
    from fuser.numpy.creation import asarray

    return asarray(part) if part else np.zeros(0, np.int32)


def _static(position: int, dimension: int, extent: int, wrap: bool) -> int:
    if extent == 0:
        raise IndexError(f"index {position} is out of bounds for axis {dimension} with size 0")
    if config.check_static_indices and not -extent <= position < extent:
        raise IndexError(f"index {position} out of bounds for axis {dimension} with size {extent}")
    return position + extent if position < 0 and wrap else position


def _slice_entry(part: slice, dimension: int, extent: int) -> Entry:
    try:
        bounds = [None if b is None else as_extent(b) for b in (part.start, part.stop, part.step)]
    except TypeError as error:
        kind = IndexError if any(isinstance(b, VALUES) for b in (part.start, part.stop, part.step)) else TypeError
        raise kind(
            f"slice bounds must be static integers, got {part}; use fuser.lax.dynamic_slice for traced ones"
        ) from error
    if type(extent) is Dim or Dim in map(type, bounds):
        step = 1 if bounds[2] is None else bounds[2]
        return Entry("slice", dimension, (*slice_bounds(bounds[0], bounds[1], step, extent), step))
    start, stop, step = slice(*bounds).indices(extent)
    return Entry("slice", dimension, (start, len(range(start, stop, step)), step))


def _array_entry(part: Any, dimension: int, extent: int, wrap: bool) -> Entry:
    if part.dtype.kind not in "iu":
        found = ArrayType(tuple(part.shape), part.dtype)
        raise TypeError(
            f"Indexer must have integer or boolean type, got indexer with type {part.dtype.name} at position {dimension}: {found}"
        )
    value = wrapped_index(part, extent, wrap)
    return Entry("array" if value.ndim else "scalar", dimension, value)


# From entries to a plan.


def plan_of(entries: list[Entry], shape: tuple[int, ...]) -> Plan:
    """The gather that these entries describe: arrays together, at their place or (when apart) in front."""
    fresh = sum(1 for e in entries if e.kind == "bool")
    entries = _with_fresh_dimensions(entries, fresh)
    shape = (1,) * fresh + shape
    arrays = [k for k, e in enumerate(entries) if e.kind == "array"]
    advanced = [k for k, e in enumerate(entries) if e.kind == "array" or (arrays and e.kind == "scalar")]
    common = common_shape(*(np.shape(entries[k].value) for k in advanced)) if advanced else ()
    together = not advanced or advanced == list(range(advanced[0], advanced[-1] + 1))
    position = advanced[0] if advanced and together else 0
    builder = _Builder(shape, common)
    for k, entry in enumerate(entries):
        if advanced and k == position:
            builder.add_common()
        builder.add(entry, k in advanced)
    return builder.plan(fresh)


def _with_fresh_dimensions(entries: list[Entry], fresh: int) -> list[Entry]:
    result, number = [], 0
    for entry in entries:
        if entry.kind == "bool":
            result.append(Entry("array", number, np.arange(int(entry.value), dtype=np.int32)))
            number += 1
        else:
            result.append(entry if entry.kind == "new" else Entry(entry.kind, entry.dimension + fresh, entry.value))
    return result


class _Builder:
    """Collects the dimensions of a gather's output, in order, and the start index of each operand dimension."""

    def __init__(self, shape: tuple[int, ...], common: tuple[int, ...]) -> None:
        self.shape, self.common = shape, common
        self.outputs: list[tuple[str, int]] = []  # ("window" | "batch", extent)
        self.sizes = list(shape)
        self.collapsed: list[int] = []
        self.components: dict[
            int, tuple[Any, int | None]
        ] = {}  # dimension: (positions, batch dimension or None for common)
        self.reversed: list[int] = []
        self.new: list[int] = []
        self.common_at = 0

    def _batch_rank(self) -> int:
        return sum(1 for kind, _ in self.outputs if kind == "batch")

    def add_common(self) -> None:
        self.common_at = self._batch_rank()
        self.outputs += [("batch", e) for e in self.common]

    def add(self, entry: Entry, advanced: bool) -> None:
        d = entry.dimension
        if entry.kind == "new":
            self.new.append(len(self.outputs) + len(self.new))
        elif entry.kind == "slice":
            self._add_slice(d, *entry.value)
        else:
            self.collapsed.append(d)
            self.sizes[d] = 1
            self.components[d] = (entry.value, None)

    def _add_slice(self, d: int, start: int, size: int, step: int) -> None:
        if step < 0:
            start, step = (start + (size - 1) * step, -step) if size else (0, 1)
            self.reversed.append(len(self.outputs))
        if step == 1 or (type(size) is not Dim and size <= 1):
            self.sizes[d] = size
            if (type(start) is Dim or start) and (type(size) is Dim or size):
                self.components[d] = (start, None)
            self.outputs.append(("window", size))
            return
        self.collapsed.append(d)
        self.sizes[d] = 1
        if Dim in map(type, (start, size)):
            count = bind(V.iota_p, dtype=_INT32, shape=(size,), dimension=0)
            first = broadcast_to(literal(start, _INT32), (size,))
            positions: Any = bind(E.add_p, bind(E.mul_p, count, literal(step, _INT32)), first)
        else:
            positions = np.arange(start, start + size * step, step, dtype=np.int32)
        self.components[d] = (positions, self._batch_rank())
        self.outputs.append(("batch", size))

    def plan(self, fresh: int) -> Plan:
        batch = tuple(e for kind, e in self.outputs if kind == "batch")
        dimensions = sorted(self.components)
        columns = [self._column(*self.components[d], len(batch)) for d in dimensions]
        offset = tuple(k for k, (kind, _) in enumerate(self.outputs) if kind == "window")
        numbers = GatherDimensionNumbers(offset, tuple(sorted(self.collapsed)), tuple(dimensions))
        static = all(isinstance(c, np.ndarray) for c in columns)
        indices = _static_indices(columns, batch) if static else _traced_indices(columns, batch)
        # Positions of `new` were counted before common dimensions could be put in front, and stand for the final order.
        shape = tuple(e for _, e in self.outputs)
        unique = all(not np.shape(v) or b is not None for v, b in self.components.values())
        return Plan(
            numbers,
            indices,
            tuple(self.sizes),
            shape,
            tuple(self.reversed),
            tuple(self.new),
            tuple(range(fresh)),
            unique,
        )

    def _column(self, value: Any, batch_dimension: int | None, rank: int) -> Any:
        """A start index shaped to broadcast over the batch dimensions."""
        if batch_dimension is not None:
            return value.reshape([-1 if k == batch_dimension else 1 for k in range(rank)])
        value = as_value(value) if type(value) is Dim else value
        shape = np.shape(value)
        after = rank - self.common_at - len(self.common)
        aligned = (*(1,) * (rank - after - len(shape)), *shape, *(1,) * after) if shape else ()
        if not isinstance(value, VALUES):
            return np.asarray(value, np.int32).reshape(aligned)
        return value if value.shape == aligned else bind(V.reshape_p, value, new_sizes=aligned, dimensions=None)


def _static_indices(columns: list[np.ndarray], batch: tuple[int, ...]) -> Any:
    stacked = [np.broadcast_to(c, batch) for c in columns]
    return Array(np.stack(stacked, -1).astype(np.int32) if stacked else np.zeros((*batch, 0), np.int32))


def _traced_indices(columns: list[Any], batch: tuple[int, ...]) -> Any:
    wide = any(c.dtype == np.dtype("int64") for c in columns)
    dtype = np.dtype("int64") if wide else _INT32
    parts = []
    for column in columns:
        value = convert(column if isinstance(column, VALUES) else Array(column), dtype)
        offset = len(batch) - value.ndim
        dims = tuple(range(offset, len(batch)))
        parts.append(bind(V.broadcast_in_dim_p, value, shape=(*batch, 1), broadcast_dimensions=dims))
    return parts[0] if len(parts) == 1 else bind(V.concatenate_p, *parts, dimension=len(batch))


# From plans to primitives.


def getitem(x: Any, index: Any) -> Any:
    """`x[index]`."""
    return take_index(x, index)


def take_index(x: Any, index: Any, mode: Any = None, fill_value: Any = None, wrap: bool = True) -> Any:
    """`x[index]`, with out-of-bounds `mode` (None clamps) and what "fill" reads; see `parse` for `wrap`."""
    entries = parse(index, x.shape, wrap)
    chosen = GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else GatherScatterMode.from_any(mode)
    fills = chosen is GatherScatterMode.FILL_OR_DROP
    kinds = {e.kind for e in entries}
    if "array" not in kinds and "bool" not in kinds and not fills:
        return _basic(x, entries)
    return gathered(*_sliced_first(x, entries), chosen, fill_value)


def _sliced_first(x: Any, entries: list[Entry]) -> tuple[Any, list[Entry]]:
    """Slices applied to the operand, so that the gather's windows are whole dimensions."""
    partial = [e for e in entries if e.kind == "slice" and e.value != (0, x.shape[e.dimension], 1)]
    if not partial:
        return x, entries
    bounds = {e.dimension: e.value for e in partial}
    sliced = _slice(x, [bounds.get(d, (0, extent, 1)) for d, extent in enumerate(x.shape)])
    whole = [
        Entry("slice", e.dimension, (0, sliced.shape[e.dimension], 1)) if e.kind == "slice" else e for e in entries
    ]
    return sliced, whole


def gathered(operand: Any, entries: list[Entry], mode: GatherScatterMode, fill_value: Any) -> Any:
    """The gather of entries, its dimensions reversed and new ones put in."""
    plan = plan_of(entries, operand.shape)
    if 0 in plan.result_shape:  # nothing is read, of an operand that may itself be empty
        return broadcast_to(literal(0, operand.dtype, operand.weak_type), plan.result_shape)
    if plan.fresh:
        operand = bind(V.reshape_p, operand, new_sizes=(1,) * len(plan.fresh) + operand.shape, dimensions=None)
    result = bind(
        gather_p,
        operand,
        plan.indices,
        dimension_numbers=plan.numbers,
        slice_sizes=plan.slice_sizes,
        indices_are_sorted=False,
        unique_indices=plan.unique,
        mode=mode,
        fill_value=fill_value,
    )
    if plan.reversed:
        result = bind(V.rev_p, result, dimensions=plan.reversed)
    return _with_new(result, plan.new)


def _with_new(result: Any, new: tuple[int, ...]) -> Any:
    if not new:
        return result
    extents = iter(result.shape)
    rank = result.ndim + len(new)
    shape = tuple(1 if d in new else next(extents) for d in range(rank))
    return bind(
        V.broadcast_in_dim_p, result, shape=shape, broadcast_dimensions=tuple(d for d in range(rank) if d not in new)
    )


def _slice(x: Any, bounds: Sequence[tuple[int, int, int]]) -> Any:
    starts, limits, strides, backwards = [], [], [], []
    for d, (start, size, step) in enumerate(bounds):
        if step < 0:
            several = type(size) is Dim
            start, step = (start + (size - 1) * step, -step) if several or size else (0, 1)
            if several or size > 1:
                backwards.append(d)
        start = minimum(start, x.shape[d])
        starts.append(start)
        limits.append(start + (size - 1) * step + 1 if type(size) is Dim or size else start)
        strides.append(step)
    if tuple(limits) != x.shape or any(type(s) is Dim or s for s in starts) or any(s != 1 for s in strides):
        steps = tuple(strides) if any(s != 1 for s in strides) else None
        x = bind(V.slice_p, x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=steps)
    return bind(V.rev_p, x, dimensions=tuple(backwards)) if backwards else x


def _basic(x: Any, entries: list[Entry]) -> Any:
    bounds: list[tuple[int, int, int]] = []
    removed: list[int] = []
    new: list[int] = []
    traced: dict[int, Any] = {}
    kept = 0
    for entry in entries:
        if entry.kind == "new":
            new.append(kept + len(new))
            continue
        d = entry.dimension
        if entry.kind == "slice":
            bounds.append(entry.value)
            kept += 1
            continue
        removed.append(d)
        if isinstance(entry.value, Tracer):
            if x.shape[d] == 0:
                raise IndexError(f"a traced index is out of bounds for axis {d} with size 0")
            traced[d] = entry.value
            bounds.append((0, x.shape[d], 1))
        else:
            position = as_extent(entry.value)
            if not (
                known_at_least(position, 0) and known_at_least(x.shape[d] - 1, position)
            ):  # it clamps where it is read, so that checkify sees it
                traced[d] = literal(position, np.dtype("int64") if abs(position) >> 31 else _INT32)
                bounds.append((0, x.shape[d], 1))
                continue
            bounds.append((position, 1, 1))
    x = _slice(x, bounds)
    if traced:
        x = _dynamic(x, traced)
    if removed:
        x = bind(V.squeeze_p, x, dimensions=tuple(removed))
    return _with_new(x, tuple(new))


def _dynamic(x: Any, traced: dict[int, Any]) -> Any:
    dtype = np.dtype("int64") if any(v.dtype.itemsize == 8 for v in traced.values()) else _INT32
    starts = [convert(traced[d], dtype) if d in traced else literal(0, dtype) for d in range(x.ndim)]
    sizes = tuple(1 if d in traced else e for d, e in enumerate(x.shape))
    return bind(dynamic_slice_p, x, *starts, slice_sizes=sizes)
