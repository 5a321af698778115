"""Indexing by values: the dimension numbers and modes of gather and scatter, and gather.

A gather is movement: the element that an output index reads is computed in the consumer's kernel. Its transpose is a
scatter-add, or where each row is read once a selection. Names, dimension numbers and modes are those of jax.lax.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir import scalar as S
from fuser.ir.index import ZERO, Affine, Computed
from fuser.ir.primitive import REGISTRY, Fusion, Movement, Primitive, register
from fuser.ir.scalar import Scalar
from fuser.ir.span import settled, span
from fuser.ir.text import param_type
from fuser.ir.types import ALL_DTYPES, BOOL, INTEGERS, ArrayType, is_inexact
from fuser.ops.elementwise import and_p, convert_element_type_p, eq_p, max_p, min_p, select_n_p
from fuser.ops.family import sample
from fuser.ops.movement import Index, Read, broadcast_in_dim_p, iota_p, reshaped, slice_p, transpose_p
from fuser.trace.batch import moved
from fuser.trace.core import type_of
from fuser.trace.tangent import full, zeros

_INT64 = np.dtype("int64")


@param_type
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


@param_type
class GatherDimensionNumbers(NamedTuple):
    """Which dimensions of the output are windows (`offset_dims`), and where each start index points in the operand."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


@param_type
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


def window_sizes(
    x: ArrayType | np.ndarray, updates: ArrayType | np.ndarray, numbers: ScatterDimensionNumbers
) -> list[int]:
    """The extents of the windows that a scatter of `updates` writes into `x`, one for each dimension of `x`."""
    windows = iter(numbers.update_window_dims)
    without = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    return [min(1, e) if d in without else updates.shape[next(windows)] for d, e in enumerate(x.shape)]


class _Layout(NamedTuple):
    """For each operand dimension: the output dimension of its window, its start component, its batching dimension."""

    batch: tuple[int, ...]
    window: tuple[int | None, ...]
    start: tuple[int | None, ...]
    batching: tuple[int | None, ...]


def layout_of(numbers: GatherDimensionNumbers, ndim: int, output_ndim: int) -> _Layout:
    """Which dimensions of operand, indices and output belong together."""
    batch = tuple(d for d in range(output_ndim) if d not in numbers.offset_dims)
    without = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    windows = iter(numbers.offset_dims)
    window = tuple(None if d in without else next(windows) for d in range(ndim))
    starts = {d: k for k, d in enumerate(numbers.start_index_map)}
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims))
    return _Layout(
        batch, window, tuple(starts.get(d) for d in range(ndim)), tuple(batching.get(d) for d in range(ndim))
    )


def check_numbers(name: str, x: ArrayType, indices: ArrayType, numbers: GatherDimensionNumbers) -> None:
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


def gather_type(
    x: ArrayType,
    indices: ArrayType,
    *more: ArrayType,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    **params: Any,
) -> ArrayType:
    """The type of the windows; `more` are the indices' other components, where each is an array of its own."""
    indices = ArrayType((*indices.shape[:-1], indices.shape[-1] + len(more)), indices.dtype) if more else indices
    check_numbers("gather", x, indices, dimension_numbers)
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


def positions_of(
    operand: np.ndarray,
    indices: np.ndarray,
    numbers: GatherDimensionNumbers,
    sizes: Sequence[int],
    shape: tuple[int, ...],
    clip: bool,
) -> tuple[list[np.ndarray], np.ndarray | None]:
    """Per operand dimension an array that broadcasts to `shape`: where each element lies; and which windows are inside."""
    layout = layout_of(numbers, operand.ndim, len(shape))
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
    *more: np.ndarray,
    dimension_numbers: Any,
    slice_sizes: Any,
    mode: Any = None,
    fill_value: Any = None,
    **params: Any,
) -> np.ndarray:
    indices = np.concatenate([indices, *more], -1) if more else indices
    fills = GatherScatterMode.from_any(mode) is GatherScatterMode.FILL_OR_DROP
    if operand.size and indices.size and (plain := _plain(operand, indices, dimension_numbers, slice_sizes)):
        return _taken(operand, indices[..., 0], *plain, (fill_value,) if fills else ())
    out = gather_type(
        ArrayType(operand.shape, operand.dtype),
        ArrayType(indices.shape, indices.dtype),
        dimension_numbers=dimension_numbers,
        slice_sizes=slice_sizes,
    )
    fill = np.asarray(fill_of(out.dtype, fill_value)).astype(out.dtype) if fills else np.zeros((), out.dtype)
    if operand.size == 0 or 0 in out.shape:
        return np.full(out.shape, fill, out.dtype)
    positions, inside = positions_of(operand, indices, dimension_numbers, slice_sizes, out.shape, not fills)
    result = np.broadcast_to(operand[tuple(positions)] if positions else operand, out.shape)
    return result if inside is None else np.where(inside, result, fill)


def _gather_planned(
    operand: ArrayType,
    indices: ArrayType,
    *more: ArrayType,
    dimension_numbers: Any,
    slice_sizes: Any,
    mode: Any = None,
    fill_value: Any = None,
    **params: Any,
) -> Any:
    if more or 0 in operand.shape or 0 in indices.shape:
        return None
    plain = _plain(operand, indices, dimension_numbers, slice_sizes)
    fill = (fill_value,) if GatherScatterMode.from_any(mode) is GatherScatterMode.FILL_OR_DROP else ()
    return plain and (lambda operand, indices: _taken(operand, indices[..., 0], *plain, fill))


def _plain(operand: Any, indices: Any, numbers: Any, sizes: Any) -> tuple[int, tuple[int, ...] | None] | None:
    try:
        return _as_take(numbers, tuple(sizes), operand.shape, indices.ndim)
    except TypeError:  # numbers in lists
        return _as_take(GatherDimensionNumbers(*map(tuple, numbers)), tuple(sizes), operand.shape, indices.ndim)


@functools.lru_cache(1024)
def _as_take(
    numbers: GatherDimensionNumbers, sizes: tuple[int, ...], shape: tuple[int, ...], indices_ndim: int
) -> tuple[int, tuple[int, ...] | None] | None:
    """The one axis along which a gather takes whole slices, and the order of the dimensions of NumPy's take in its result
    (None: the same); None for a gather that does other things."""
    axes = numbers.start_index_map
    if len(axes) != 1 or numbers.collapsed_slice_dims != axes or numbers.operand_batching_dims:
        return None
    axis, batch_ndim, ndim = axes[0], indices_ndim - 1, len(shape) + indices_ndim - 2
    if any(size != extent for d, (size, extent) in enumerate(zip(sizes, shape)) if d != axis) or sizes[axis] != 1:
        return None
    batch = iter(range(axis, axis + batch_ndim))
    windows = iter(d for d in range(ndim) if not axis <= d < axis + batch_ndim)
    order = tuple(next(windows) if d in numbers.offset_dims else next(batch) for d in range(ndim))
    return axis, None if order == tuple(range(ndim)) else order


def _taken(
    operand: np.ndarray, positions: np.ndarray, axis: int, order: tuple[int, ...] | None, fill: tuple[Any, ...]
) -> np.ndarray:
    """The slices at `positions`; those out of bounds are the nearest, or filled where a fill value is given."""
    extent = operand.shape[axis]
    positions = positions.astype(np.int64)
    if np.maximum.reduce(positions.view(np.uint64), None) < extent:
        result = operand.take(positions, axis)
    else:
        place = np.minimum(np.maximum(positions, 0), extent - 1)
        result = np.asarray(operand.take(place, axis))  # a single element is no array
        if fill:
            filling = np.asarray(fill_of(operand.dtype, fill[0])).astype(operand.dtype)
            result[(*(slice(None),) * axis, place != positions)] = filling
    return result if order is None else result.transpose(order)


def _gather_lower(
    read: Read,
    index: Index,
    x: ArrayType,
    *indices: ArrayType,
    dimension_numbers: Any,
    slice_sizes: Any,
    mode: Any = None,
    fill_value: Any = None,
    **params: Any,
) -> Scalar:
    layout = layout_of(dimension_numbers, x.ndim, len(index))
    fills = GatherScatterMode.from_any(mode) is GatherScatterMode.FILL_OR_DROP
    batch = tuple(index[d] for d in layout.batch)
    inside: Scalar | None = None
    position: list[Affine] = []
    for d, extent in enumerate(x.shape):
        place = ZERO
        if (component := layout.start[d]) is not None:
            number, at = (1 + component, ZERO) if len(indices) > 1 else (1, Affine.of(component))
            start = settled(read(number, (*batch, at)))
            high = max(extent - slice_sizes[d], 0)
            if fills and (valid := _valid(start, high)) is not None:
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


def _valid(start: Scalar, high: int) -> Scalar | None:
    """Whether an integer is in 0 … high; None where it always is."""
    least, most = _span(start)
    below = None if most <= high else start <= high
    if least >= 0:
        return below
    return start >= 0 if below is None else (start >= 0) & below


@functools.lru_cache(64)  # arrays that are read at the same places share them
def clamped(value: Scalar, high: int) -> Affine:
    """A computed integer as an index in 0 … high; a number that is known becomes plain index arithmetic."""
    if value.op == "const":
        return Affine.of(max(min(int(value.attr), high), 0))
    least, most = _span(value)
    value = value if most <= high else S.minimum(value, high)
    value = value if least >= 0 else S.maximum(value, 0)
    return Affine.of(Computed(S.cast(value, _INT64), (min(max(least, 0), high), max(min(most, high), 0))))


def _span(value: Scalar) -> tuple[int, int]:
    found = span(value)
    assert found is not None, "an index is an integer"
    return found


# (operand shape, indices shape, dimension numbers, slice sizes)
CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], GatherDimensionNumbers, tuple[int, ...]], ...] = (
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
    for number, (shape, indices, numbers, sizes) in enumerate(CASES * 3):
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


def one_window_a_row(numbers: GatherDimensionNumbers, indices_shape: Sequence[int]) -> bool:
    """Whether no two windows can touch one element: there is one for each position of the batching dimensions."""
    return all(e == 1 or d in numbers.start_indices_batching_dims for d, e in enumerate(indices_shape[:-1]))


def _gather_transpose(
    ct: Any, x: Any, indices: Any, dimension_numbers: Any, slice_sizes: Any, mode: Any = None, **params: Any
) -> tuple[Any]:
    aval = x.aval.update(weak_type=False)
    mode = GatherScatterMode.from_any(mode)
    if selectable(aval, indices.shape, dimension_numbers, slice_sizes):
        mask, value = placed(ct, aval, indices, dimension_numbers, slice_sizes, mode)
        return (value if mask is None else select_n_p.bind(mask, full(aval.update(shape=()), 0), value),)
    added = REGISTRY["scatter-add"].bind(
        zeros(aval),
        indices,
        ct,
        dimension_numbers=ScatterDimensionNumbers(*dimension_numbers),
        indices_are_sorted=params.get("indices_are_sorted", False),
        unique_indices=params.get("unique_indices", False),
        mode=mode,
        update_jaxpr=None,
        update_consts=(),
    )
    return (added,)


def selectable(aval: ArrayType, indices_shape: Sequence[int], numbers: Any, sizes: Sequence[int]) -> bool:
    """Whether what a scatter writes is a selection: each row has one window, of one element or all along a dimension."""
    found = {*numbers.start_index_map, *numbers.operand_batching_dims}
    ends = enumerate(zip(sizes, aval.shape))
    whole = all(size == extent or (size == 1 and d in found) for d, (size, extent) in ends)
    return whole and aval.size > 0 and one_window_a_row(numbers, indices_shape)


def placed(
    windows: Any, aval: ArrayType, indices: Any, numbers: Any, sizes: Sequence[int], mode: GatherScatterMode
) -> tuple[Any, Any]:
    """Where a scatter that is `selectable` writes (None: everywhere), and the windows broadcast to the operand's type."""
    layout = layout_of(numbers, aval.ndim, windows.ndim)
    own = [layout.batch[b] if b is not None else w for w, b in zip(layout.window, layout.batching)]
    value = _aligned(windows, own, aval)
    mask: Any = None
    for d, component in enumerate(layout.start):
        if component is None or (sizes[d] == aval.shape[d] and mode is GatherScatterMode.CLIP):
            continue
        line = d if sizes[d] < aval.shape[d] else None
        test = _hits(_component(indices, component), layout.batching, aval, line, mode)
        mask = test if mask is None else and_p.bind(mask, test)
    return mask, value


def _hits(start: Any, batching: Sequence[int | None], aval: ArrayType, d: int | None, mode: GatherScatterMode) -> Any:
    """Where along dimension `d` a row's start lies, or where it is 0 if a window has the whole dimension."""
    if start.dtype.itemsize < 4:
        start = convert_element_type_p.bind(start, new_dtype=np.dtype("int32"), weak_type=False)
    if d is not None and mode is GatherScatterMode.CLIP:
        start = clipped(start, aval.shape[d] - 1)
    places = _aligned(start, batching, aval.update(dtype=start.dtype))
    if d is None:
        return eq_p.bind(places, full(ArrayType((), start.dtype), 0))
    return eq_p.bind(places, iota_p.bind(dtype=start.dtype, shape=aval.shape, dimension=d))


def _component(indices: Any, component: int) -> Any:
    """indices[..., component]."""
    starts = (*(0 for _ in indices.shape[:-1]), component)
    limits = (*indices.shape[:-1], component + 1)
    part = slice_p.bind(indices, start_indices=starts, limit_indices=limits, strides=None)
    return reshaped(part, indices.shape[:-1])


def _aligned(x: Any, own: Sequence[int | None], aval: ArrayType) -> Any:
    """`x` broadcast to a type whose dimensions are its `own` ones or new; dimensions of extent 1 may be left out."""
    order = [d for d in own if d is not None]
    order += [d for d in range(x.ndim) if d not in order]
    if order != sorted(order):
        x = transpose_p.bind(x, permutation=tuple(order))
    extents = iter(x.shape)
    x = reshaped(x, tuple(1 if d is None else next(extents) for d in own))
    return broadcast_in_dim_p.bind(x, shape=aval.shape, broadcast_dimensions=tuple(range(aval.ndim)))


def clipped(start: Any, high: int) -> Any:
    """Integers moved into 0 … high."""
    aval = type_of(start).update(shape=(), weak_type=False)
    return max_p.bind(min_p.bind(start, full(aval, min(high, np.iinfo(aval.dtype).max))), full(aval, 0))


def raised(dimensions: Sequence[int]) -> tuple[int, ...]:
    """The dimensions, counted with a batch dimension in front."""
    return tuple(d + 1 for d in dimensions)


def batched_numbers(numbers: Any, operand: bool, indices: bool) -> Any:
    """Dimension numbers of a gather (or scatter) whose operand, indices or both have a batch dimension in front.

    The operand's alone becomes part of the windows, the indices' alone one more index dimension, and both together one
    more batching dimension.
    """
    windows, collapsed, starts, own, others = numbers
    both, front = operand and indices, (0,)
    return type(numbers)(
        raised(windows) if indices else (*front, *raised(windows)),
        raised(collapsed) if operand else collapsed,
        raised(starts) if operand else starts,
        (*(front if both else ()), *(raised(own) if operand else own)),
        (*(front if both else ()), *(raised(others) if indices else others)),
    )


def batch_gather(operands: Any, dims: Any, dimension_numbers: Any, slice_sizes: Any, **params: Any) -> tuple[Any, int]:
    """The batch rule of gather."""
    (x, indices), (dim, indices_dim) = operands, dims
    x, indices = moved(x, dim, 0), moved(indices, indices_dim, 0)
    if dim is not None:
        size = x.shape[0] if indices_dim is None else min(1, x.shape[0])
        slice_sizes = (size, *slice_sizes)
    if indices_dim is not None:
        params = {**params, "indices_are_sorted": False, "unique_indices": False}
    numbers = batched_numbers(dimension_numbers, dim is not None, indices_dim is not None)
    return gather_p.bind(x, indices, dimension_numbers=numbers, slice_sizes=slice_sizes, **params), 0


def take_along(x: Any, positions: Any, axis: int) -> Any:
    """The elements of `x` at distinct `positions`, which are in bounds, along one axis; other dimensions go together."""
    others = tuple(d for d in range(positions.ndim) if d != axis)
    return gather_p.bind(
        x,
        reshaped(positions, (*positions.shape, 1)),
        dimension_numbers=GatherDimensionNumbers((), (axis,), (axis,), others, others),
        slice_sizes=tuple(min(1, e) for e in x.shape),
        indices_are_sorted=False,
        unique_indices=True,
        mode=GatherScatterMode.PROMISE_IN_BOUNDS,
        fill_value=None,
    )


gather_p: Primitive = register(
    Primitive(
        "gather",
        Fusion.MOVEMENT,
        type=gather_type,
        eval=_gather_eval,
        planned=_gather_planned,
        lower=_gather_lower,
        jvp=(lambda t, x, indices, out, **params: gather_p.bind(t, indices, **{**params, "fill_value": 0}),),
        transpose=_gather_transpose,
        batch=batch_gather,
        samples=_gather_samples,
        movement=Movement.GATHER,
    )
)
