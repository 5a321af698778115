"""Indexing by values: gather, scatter and its accumulating forms, dynamic_slice, dynamic_update_slice.

Gathers and dynamic slices are movement: the element that an output index reads is computed in the consumer's kernel.
Scatters run as library calls and apply updates in order. Names, dimension numbers and modes are those of jax.lax.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir import scalar as S
from fuser.ir.index import ZERO, Affine, Computed
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.scalar import Scalar
from fuser.ir.types import ALL_DTYPES, BOOL, FLOATS, INTEGERS, ArrayType, bfloat16, is_inexact
from fuser.ops.family import sample
from fuser.ops.movement import Index, Read, within

_INT64 = np.dtype("int64")


class GatherScatterMode(enum.Enum):
    """What an index out of bounds does: CLIP moves it inside; FILL_OR_DROP reads a fill value, or writes nothing.

    PROMISE_IN_BOUNDS says that there is none; should there be one, reads clip and writes drop.
    """

    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"

    @staticmethod
    def from_any(mode: Any) -> GatherScatterMode:
        """The mode named "clip", "fill", "drop" or "promise_in_bounds"; None is "fill"."""
        if isinstance(mode, GatherScatterMode):
            return mode
        names = {None: "fill", "drop": "fill"}
        try:
            return GatherScatterMode(names.get(mode, mode))
        except ValueError:
            raise ValueError(
                f"no indexing mode {mode!r}; the modes are clip, fill, drop and promise_in_bounds"
            ) from None

    def __str__(self) -> str:
        return self.name


class GatherDimensionNumbers(NamedTuple):
    """Which dimensions of the output are windows (`offset_dims`), and where each start index points in the operand."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """The same for a scatter, whose updates have the place of a gather's output."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


def as_gather(numbers: ScatterDimensionNumbers) -> GatherDimensionNumbers:
    """The dimension numbers of the gather that reads what the scatter writes."""
    return GatherDimensionNumbers(*numbers)


class _Layout(NamedTuple):
    """For each operand dimension: the output dimension of its window, its start component, its batching dimension."""

    batch: tuple[int, ...]
    window: tuple[int | None, ...]
    start: tuple[int | None, ...]
    batching: tuple[int | None, ...]


def _layout(numbers: GatherDimensionNumbers, ndim: int, output_ndim: int) -> _Layout:
    batch = tuple(d for d in range(output_ndim) if d not in numbers.offset_dims)
    without = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    windows = iter(numbers.offset_dims)
    window = tuple(None if d in without else next(windows) for d in range(ndim))
    starts = {d: k for k, d in enumerate(numbers.start_index_map)}
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims))
    return _Layout(
        batch, window, tuple(starts.get(d) for d in range(ndim)), tuple(batching.get(d) for d in range(ndim))
    )


def _check_numbers(name: str, x: ArrayType, indices: ArrayType, numbers: GatherDimensionNumbers) -> None:
    if indices.dtype not in INTEGERS or not indices.shape:
        raise TypeRuleError(f"{name} needs integer indices of rank >= 1, got {indices}")
    if indices.shape[-1] != len(numbers.start_index_map):
        raise TypeRuleError(
            f"{name} needs indices with a last dimension of {len(numbers.start_index_map)}, got {indices}"
        )
    if len(numbers.offset_dims) + len(numbers.collapsed_slice_dims) + len(numbers.operand_batching_dims) != x.ndim:
        raise TypeRuleError(
            f"{name} of {x}: offset, collapsed and batching dimensions must be {x.ndim} together, got {numbers}"
        )
    if any(
        not 0 <= d < x.ndim
        for d in (*numbers.start_index_map, *numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    ):
        raise TypeRuleError(f"{name} of {x}: a dimension of {numbers} does not exist")


def _gather_type(
    x: ArrayType, indices: ArrayType, dimension_numbers: Any, slice_sizes: Sequence[int], **params: Any
) -> ArrayType:
    _check_numbers("gather", x, indices, dimension_numbers)
    if len(slice_sizes) != x.ndim or any(not 0 <= size <= extent for size, extent in zip(slice_sizes, x.shape)):
        raise TypeRuleError(f"gather of {x} needs slice sizes within its shape, got {tuple(slice_sizes)}")
    without = (*dimension_numbers.collapsed_slice_dims, *dimension_numbers.operand_batching_dims)
    if any(slice_sizes[d] > 1 for d in without):
        raise TypeRuleError(
            f"gather of {x} needs slice sizes of 1 along collapsed dimensions {without}, got {tuple(slice_sizes)}"
        )
    windows = [size for d, size in enumerate(slice_sizes) if d not in without]
    output_ndim = len(windows) + indices.ndim - 1
    batch, offset = iter(indices.shape[:-1]), iter(windows)
    shape = tuple(next(offset) if d in dimension_numbers.offset_dims else next(batch) for d in range(output_ndim))
    return ArrayType(shape, x.dtype, x.weak_type)


def fill_of(dtype: np.dtype, fill_value: Any) -> Any:
    """What a gather reads out of bounds: `fill_value`, else nan, the least signed or greatest unsigned integer, True."""
    if fill_value is not None:
        return fill_value
    if dtype == BOOL:
        return True
    if is_inexact(dtype):
        return float("nan")
    return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max


def _positions(
    operand: np.ndarray,
    indices: np.ndarray,
    numbers: GatherDimensionNumbers,
    sizes: Sequence[int],
    shape: tuple[int, ...],
    clip: bool,
) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Per operand dimension an array that broadcasts to `shape`: where each element lies; and which windows are inside."""
    layout = _layout(numbers, operand.ndim, len(shape))
    inside: np.ndarray | None = None

    def along_batch(values: np.ndarray) -> np.ndarray:
        return values.reshape([shape[d] if d in layout.batch else 1 for d in range(len(shape))])

    positions = []
    for d, extent in enumerate(operand.shape):
        position = np.zeros((1,) * len(shape), np.int64)
        if (component := layout.start[d]) is not None:
            start = along_batch(indices[..., component].astype(np.int64))
            high = extent - sizes[d]
            if not clip:
                valid = (start >= 0) & (start <= high)
                inside = valid if inside is None else inside & valid
            position = np.clip(start, 0, max(high, 0))
        if (batching := layout.batching[d]) is not None:
            line = np.arange(indices.shape[batching])
            position = position + along_batch(
                np.broadcast_to(_along(line, batching, indices.ndim - 1), indices.shape[:-1])
            )
        if (window := layout.window[d]) is not None:
            position = position + _along(np.arange(sizes[d]), window, len(shape))
        positions.append(position)
    return positions, inside


def _along(line: np.ndarray, dimension: int, ndim: int) -> np.ndarray:
    return line.reshape([-1 if d == dimension else 1 for d in range(ndim)])


def _gather_eval(
    operand: np.ndarray,
    indices: np.ndarray,
    dimension_numbers: Any,
    slice_sizes: Any,
    mode: Any = None,
    fill_value: Any = None,
    **params: Any,
) -> np.ndarray:
    out = _gather_type(
        ArrayType(operand.shape, operand.dtype), ArrayType(indices.shape, indices.dtype), dimension_numbers, slice_sizes
    )
    fills = GatherScatterMode.from_any(mode) is GatherScatterMode.FILL_OR_DROP
    fill = np.asarray(fill_of(out.dtype, fill_value)).astype(out.dtype) if fills else np.zeros((), out.dtype)
    if operand.size == 0 or 0 in out.shape:
        return np.full(out.shape, fill, out.dtype)
    positions, inside = _positions(operand, indices, dimension_numbers, slice_sizes, out.shape, not fills)
    result = np.broadcast_to(operand[tuple(positions)] if positions else operand, out.shape)
    return result if inside is None else np.where(inside, result, fill)


def _gather_lower(
    read: Read,
    index: Index,
    x: ArrayType,
    indices: ArrayType,
    dimension_numbers: Any,
    slice_sizes: Any,
    mode: Any = None,
    fill_value: Any = None,
    **params: Any,
) -> Scalar:
    layout = _layout(dimension_numbers, x.ndim, len(index))
    fills = GatherScatterMode.from_any(mode) is GatherScatterMode.FILL_OR_DROP
    batch = tuple(index[d] for d in layout.batch)
    inside: Scalar | None = None
    position: list[Affine] = []
    for d, extent in enumerate(x.shape):
        place = ZERO
        if (component := layout.start[d]) is not None:
            start = S.cast(read(1, (*batch, Affine.of(component))), _INT64)
            high = max(extent - slice_sizes[d], 0)
            if fills:
                valid = (start >= 0) & (start <= high)
                inside = valid if inside is None else inside & valid
            place = clamped(start, high)
        if (batching := layout.batching[d]) is not None:
            place = place + batch[batching]
        if (window := layout.window[d]) is not None:
            place = place + index[window]
        position.append(place)
    if inside is None:
        return read(0, tuple(position))
    return S.where(inside, read(0, tuple(position), inside), S.constant(fill_of(x.dtype, fill_value), x.dtype))


def clamped(value: Scalar, high: int) -> Affine:
    """A computed integer as an index in 0 … high; a number that is known becomes plain index arithmetic."""
    if value.op == "const":
        return Affine.of(max(min(int(value.attr), high), 0))
    return Affine.of(Computed(S.maximum(S.minimum(value, high), 0), (0, high)))


# (operand shape, indices shape, dimension numbers, slice sizes)
_CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], GatherDimensionNumbers, tuple[int, ...]], ...] = (
    ((7,), (4, 1), GatherDimensionNumbers((), (0,), (0,)), (1,)),
    ((5, 3), (4, 1), GatherDimensionNumbers((1,), (0,), (0,)), (1, 3)),
    ((5, 6), (2, 3, 2), GatherDimensionNumbers((), (0, 1), (0, 1)), (1, 1)),
    ((5, 6), (4, 1), GatherDimensionNumbers((0,), (1,), (1,)), (5, 1)),
    ((5, 6), (4, 2), GatherDimensionNumbers((1, 2), (), (1, 0)), (2, 3)),
    ((3, 6), (3, 2, 1), GatherDimensionNumbers((), (1,), (1,), (0,), (0,)), (1, 1)),
    ((6, 3, 2), (3, 4, 1), GatherDimensionNumbers((2,), (0,), (0,), (1,), (0,)), (1, 1, 2)),
)


def _gather_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    for number, (shape, indices, numbers, sizes) in enumerate(_CASES * 3):
        dtype = ALL_DTYPES[number % len(ALL_DTYPES)]
        mode = list(GatherScatterMode)[number % 3]
        yield (
            (sample(rng, shape, dtype), rng.integers(-2, 9, indices).astype(np.int32)),
            {
                "dimension_numbers": numbers,
                "slice_sizes": sizes,
                "indices_are_sorted": False,
                "unique_indices": False,
                "mode": mode,
                "fill_value": None,
            },
        )


gather_p = register(
    Primitive(
        "gather", Fusion.MOVEMENT, type=_gather_type, eval=_gather_eval, lower=_gather_lower, samples=_gather_samples
    )
)


# Scatter.


def _window_sizes(
    x: ArrayType | np.ndarray, updates: ArrayType | np.ndarray, numbers: ScatterDimensionNumbers
) -> list[int]:
    windows = iter(numbers.update_window_dims)
    without = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    return [1 if d in without else updates.shape[next(windows)] for d in range(len(x.shape))]


def _scatter_type(name: str, x: ArrayType, indices: ArrayType, updates: ArrayType, dimension_numbers: Any) -> ArrayType:
    _check_numbers(name, x, indices, as_gather(dimension_numbers))
    if x.dtype != updates.dtype:
        raise TypeRuleError(
            f"{name} needs an operand and updates of one dtype, got {x} and {updates}; convert one of them first"
        )
    if updates.ndim != indices.ndim - 1 + len(dimension_numbers.update_window_dims):
        raise TypeRuleError(
            f"{name} of {updates} into {x} by {indices}: the updates' rank does not fit {dimension_numbers}"
        )
    batch = tuple(e for d, e in enumerate(updates.shape) if d not in dimension_numbers.update_window_dims)
    if batch != indices.shape[:-1]:
        raise TypeRuleError(f"{name} needs updates with batch dimensions {indices.shape[:-1]}, got {updates}")
    if any(size > extent for size, extent in zip(_window_sizes(x, updates, dimension_numbers), x.shape)):
        raise TypeRuleError(f"{name}: the windows of {updates} are larger than {x}")
    return ArrayType(x.shape, x.dtype, x.weak_type and updates.weak_type)


def _scatter_eval(
    accumulate: np.ufunc | None, operand: np.ndarray, indices: np.ndarray, updates: np.ndarray, numbers: Any, mode: Any
) -> np.ndarray:
    narrow = operand.dtype in (FLOATS[0], bfloat16) and accumulate is not None
    out = np.array(operand, np.float32 if narrow else operand.dtype)
    if updates.size == 0 or operand.size == 0:
        return out.astype(operand.dtype)
    clip = GatherScatterMode.from_any(mode) is GatherScatterMode.CLIP
    sizes = _window_sizes(operand, updates, numbers)
    positions, inside = _positions(operand, indices, as_gather(numbers), sizes, updates.shape, clip)
    flat = np.zeros((1,) * updates.ndim, np.int64)
    for position, extent in zip(positions, operand.shape):
        flat = flat * extent + position
    flat = np.broadcast_to(flat, updates.shape)
    if inside is not None and not inside.all():
        chosen = np.broadcast_to(inside, updates.shape)
        flat, updates = flat[chosen], updates[chosen]
    values = updates.reshape(-1).astype(out.dtype)
    if accumulate is None:
        out.reshape(-1)[flat.reshape(-1)] = values  # the last of several updates of one element stays
    else:
        accumulate.at(out.reshape(-1), flat.reshape(-1), values)
    return S.convert(out, operand.dtype)


def _scatter(name: str, accumulate: np.ufunc | None, dtypes: Sequence[np.dtype]) -> Primitive:
    """A primitive that writes (or folds in, by a ufunc) windows of updates at computed places, in the order given."""

    def infer(x: ArrayType, indices: ArrayType, updates: ArrayType, dimension_numbers: Any, **params: Any) -> ArrayType:
        return _scatter_type(name, x, indices, updates, dimension_numbers)

    def evaluate(
        operand: np.ndarray,
        indices: np.ndarray,
        updates: np.ndarray,
        dimension_numbers: Any,
        mode: Any = None,
        **params: Any,
    ) -> np.ndarray:
        return _scatter_eval(accumulate, operand, indices, updates, dimension_numbers, mode)

    def samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for number, (shape, indices, numbers, sizes) in enumerate(_CASES * 2):
            dtype = dtypes[number % len(dtypes)]
            aval = _gather_type(ArrayType(shape, dtype), ArrayType(indices, np.dtype("int32")), numbers, sizes)
            params = {
                "dimension_numbers": ScatterDimensionNumbers(*numbers),
                "indices_are_sorted": False,
                "unique_indices": False,
                "mode": list(GatherScatterMode)[number % 3],
                "update_jaxpr": None,
                "update_consts": (),
            }
            places = rng.integers(-2, 9, indices).astype(np.int32)
            yield (sample(rng, shape, dtype), places, sample(rng, aval.shape, dtype)), params

    return register(Primitive(name, Fusion.LIBRARY, type=infer, eval=evaluate, samples=samples))


_NUMBERS = (*INTEGERS, *FLOATS)
scatter_p = _scatter("scatter", None, ALL_DTYPES)
scatter_add_p = _scatter("scatter-add", np.add, (*_NUMBERS, np.dtype("complex64"), np.dtype("complex128")))
scatter_mul_p = _scatter("scatter-mul", np.multiply, (*_NUMBERS, np.dtype("complex64"), np.dtype("complex128")))
scatter_min_p = _scatter("scatter-min", np.minimum, _NUMBERS)
scatter_max_p = _scatter("scatter-max", np.maximum, _NUMBERS)


# Dynamic slices.


def _check_starts(name: str, x: ArrayType, sizes: Sequence[int], starts: Sequence[ArrayType]) -> None:
    if len(starts) != x.ndim or len(sizes) != x.ndim:
        raise TypeRuleError(f"{name} of {x} needs {x.ndim} start indices and sizes, got {len(starts)} and {len(sizes)}")
    if any(s.shape or s.dtype not in INTEGERS for s in starts):
        raise TypeRuleError(f"{name} needs integer start indices of rank 0, got {', '.join(map(str, starts))}")
    if any(not 0 <= size <= extent for size, extent in zip(sizes, x.shape)):
        raise TypeRuleError(f"{name} of {x} needs slice sizes within its shape, got {tuple(sizes)}")


def _dynamic_slice_type(x: ArrayType, *starts: ArrayType, slice_sizes: Sequence[int]) -> ArrayType:
    _check_starts("dynamic_slice", x, slice_sizes, starts)
    return ArrayType(tuple(slice_sizes), x.dtype, x.weak_type)


def _windows(shape: Sequence[int], starts: Sequence[np.ndarray], sizes: Sequence[int]) -> tuple[slice, ...]:
    places = [min(max(int(s), 0), extent - size) for s, extent, size in zip(starts, shape, sizes)]
    return tuple(slice(p, p + size) for p, size in zip(places, sizes))


def _dynamic_slice_lower(
    read: Read, index: Index, x: ArrayType, *starts: ArrayType, slice_sizes: Sequence[int]
) -> Scalar:
    return read(0, tuple(i + s for i, s in zip(index, _starts(read, 1, x.shape, slice_sizes))))


def _starts(read: Read, first: int, shape: Sequence[int], sizes: Sequence[int]) -> list[Affine]:
    return [
        ZERO if extent == size else clamped(S.cast(read(first + d, ()), _INT64), extent - size)
        for d, (extent, size) in enumerate(zip(shape, sizes))
    ]


def _dynamic_slice_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    cases = (((7,), (3,), (2,)), ((5, 6), (2, 6), (9, 0)), ((5, 6), (2, 3), (-1, 2)), ((4, 4), (1, 4), (3, 0)))
    for number, (shape, sizes, starts) in enumerate(cases):
        dtype = ALL_DTYPES[number % len(ALL_DTYPES)]
        yield (sample(rng, shape, dtype), *(np.int32(s) for s in starts)), {"slice_sizes": sizes}


dynamic_slice_p = register(
    Primitive(
        "dynamic_slice",
        Fusion.MOVEMENT,
        type=_dynamic_slice_type,
        eval=lambda x, *starts, slice_sizes: x[_windows(x.shape, starts, slice_sizes)],
        lower=_dynamic_slice_lower,
        samples=_dynamic_slice_samples,
    )
)


def _dynamic_update_slice_type(x: ArrayType, update: ArrayType, *starts: ArrayType) -> ArrayType:
    if x.dtype != update.dtype or x.ndim != update.ndim:
        raise TypeRuleError(
            f"dynamic_update_slice needs an update of the operand's dtype and rank, got {x} and {update}"
        )
    _check_starts("dynamic_update_slice", x, update.shape, starts)
    return ArrayType(x.shape, x.dtype, x.weak_type and update.weak_type)


def _dynamic_update_slice_eval(x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    out = np.array(x)
    out[_windows(x.shape, starts, update.shape)] = update
    return out


def _dynamic_update_slice_lower(
    read: Read, index: Index, x: ArrayType, update: ArrayType, *starts: ArrayType
) -> Scalar:
    if update.size == 0:
        return read(0, index)
    inside: Scalar | None = None
    position = []
    for i, start, size, extent in zip(index, _starts(read, 2, x.shape, update.shape), update.shape, x.shape):
        place = i - start
        for test in within(place, size) if size < extent else ():
            inside = test if inside is None else inside & test
        position.append(place)
    if inside is None:
        return read(1, tuple(position))
    return S.where(inside, read(1, tuple(position), inside), read(0, index))


def _dynamic_update_slice_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    cases = (((7,), (3,), (2,)), ((5, 6), (2, 6), (9, 0)), ((5, 6), (2, 3), (-1, 2)), ((4, 4), (4, 4), (3, 0)))
    for number, (shape, sizes, starts) in enumerate(cases):
        dtype = ALL_DTYPES[number % len(ALL_DTYPES)]
        yield (sample(rng, shape, dtype), sample(rng, sizes, dtype), *(np.int32(s) for s in starts)), {}


dynamic_update_slice_p = register(
    Primitive(
        "dynamic_update_slice",
        Fusion.MOVEMENT,
        type=_dynamic_update_slice_type,
        eval=_dynamic_update_slice_eval,
        lower=_dynamic_update_slice_lower,
        samples=_dynamic_update_slice_samples,
    )
)
