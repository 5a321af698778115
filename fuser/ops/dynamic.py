"""dynamic_slice and dynamic_update_slice: one window whose place is computed; it is moved inside the operand.

Both are movement. Batched with a place of its own for each element of the batch, a slice becomes a gather, and an update
a selection where it is one element wide, else a scatter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir import scalar as S
from fuser.ir.index import ZERO, Affine
from fuser.ir.primitive import Fusion, Movement, Primitive, register
from fuser.ir.scalar import Scalar
from fuser.ir.types import ALL_DTYPES, INTEGERS, ArrayType
from fuser.ops.bounds import within
from fuser.ops.elementwise import and_p, convert_element_type_p, eq_p, select_n_p
from fuser.ops.family import linear_in, sample
from fuser.ops.indexing import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    batch_gather,
    clamped,
    clipped,
    raised,
)
from fuser.ops.movement import (
    Index,
    Read,
    broadcast_in_dim_p,
    concatenate_p,
    inserted,
    iota_p,
    operand_type,
    reshaped,
)
from fuser.ops.scatter import scatter_p
from fuser.trace.batch import moved, size_of
from fuser.trace.tangent import all_zero, full, instantiate, zero_like, zeros


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
    return read(0, tuple(i + s for i, s in zip(index, starts_within(read, 1, x.shape, slice_sizes))))


def starts_within(read: Read, first: int, shape: Sequence[int], sizes: Sequence[int]) -> list[Affine]:
    """Where a window begins along each dimension, moved inside; `read` gives an operand, of which the starts are from `first` on."""
    return [
        ZERO if extent == size else clamped(read(first + d, ()), extent - size)
        for d, (extent, size) in enumerate(zip(shape, sizes))
    ]


def _dynamic_slice_samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    cases = (((7,), (3,), (2,)), ((5, 6), (2, 6), (9, 0)), ((5, 6), (2, 3), (-1, 2)), ((4, 4), (1, 4), (3, 0)))
    for number, (shape, sizes, starts) in enumerate(cases):
        dtype = ALL_DTYPES[number % len(ALL_DTYPES)]
        yield (sample(rng, shape, dtype), *(np.int32(s) for s in starts)), {"slice_sizes": sizes}


def _dynamic_slice_batch(operands: Any, dims: Any, slice_sizes: Any) -> tuple[Any, int | None]:
    x, dim = operands[0], dims[0]
    shape = tuple(e for d, e in enumerate(x.shape) if d != dim)
    free = tuple(d for d, size in enumerate(slice_sizes) if size < shape[d])
    starts = [(operands[d + 1], dims[d + 1]) for d in free]
    if all(d is None for _, d in starts):
        known = _unbatched(operands[1:], dims[1:])
        if dim is None:
            return dynamic_slice_p.bind(x, *known, slice_sizes=slice_sizes), None
        sizes = inserted(slice_sizes, dim, x.shape[dim])
        return dynamic_slice_p.bind(x, *inserted(known, dim, _start_of(known)), slice_sizes=sizes), dim
    single = tuple(d for d in free if slice_sizes[d] == 1)
    numbers = GatherDimensionNumbers(tuple(range(len(shape) - len(single))), single, free)
    out, _ = batch_gather(
        (x, _stacked(starts)),
        (dim, 0),
        dimension_numbers=numbers,
        slice_sizes=tuple(slice_sizes),
        indices_are_sorted=False,
        unique_indices=False,
        mode=GatherScatterMode.CLIP,
        fill_value=None,
    )
    return reshaped(out, (out.shape[0], *slice_sizes)), 0


def _unbatched(starts: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """The starts; one that is batched is of a dimension that is taken whole, so it does not matter and becomes 0."""
    return [s if d is None else _start_of(starts) for s, d in zip(starts, dims)]


def _start_of(starts: Sequence[Any]) -> Any:
    """A start of 0, of the dtype of the others."""
    return full(ArrayType((), starts[0].dtype if starts else np.dtype("int32")), 0)


def _stacked(starts: Sequence[tuple[Any, int | None]]) -> Any:
    """Start indices as one array of shape (batch, number of starts)."""
    size = next(s.shape[0] for s, d in starts if d is not None)
    widest = max((s.dtype for s, _ in starts), key=lambda d: d.itemsize)
    columns = []
    for start, dim in starts:
        if start.dtype != widest:
            start = convert_element_type_p.bind(start, new_dtype=widest, weak_type=False)
        kept = () if dim is None else (0,)
        columns.append(broadcast_in_dim_p.bind(start, shape=(size, 1), broadcast_dimensions=kept))
    return concatenate_p.bind(*columns, dimension=1) if len(columns) > 1 else columns[0]


dynamic_slice_p: Primitive = register(
    Primitive(
        "dynamic_slice",
        Fusion.MOVEMENT,
        type=_dynamic_slice_type,
        eval=lambda x, *starts, slice_sizes: x[_windows(x.shape, starts, slice_sizes)],
        lower=_dynamic_slice_lower,
        jvp=(lambda t, *rest, slice_sizes: dynamic_slice_p.bind(t, *rest[1:-1], slice_sizes=slice_sizes),),
        transpose=lambda ct, x, *starts, slice_sizes: (
            dynamic_update_slice_p.bind(zeros(x.aval.update(weak_type=False)), ct, *starts),
        ),
        batch=_dynamic_slice_batch,
        samples=_dynamic_slice_samples,
        movement=Movement.SLICE,
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
    for i, start, size, extent in zip(index, starts_within(read, 2, x.shape, update.shape), update.shape, x.shape):
        place = i - start
        if place.outside(size):
            return read(0, index)
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


def _dynamic_update_slice_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    out = dynamic_update_slice_p.bind(*primals)
    if all_zero(tangents):
        return out, zero_like(out)
    return out, dynamic_update_slice_p.bind(*map(instantiate, tangents[:2]), *primals[2:])


def _dynamic_update_slice_transpose(ct: Any, x: Any, update: Any, *starts: Any) -> tuple[Any, Any]:
    aval = operand_type(update)
    cleared = dynamic_update_slice_p.bind(ct, zeros(aval.update(weak_type=False)), *starts) if linear_in(x) else None
    return cleared, dynamic_slice_p.bind(ct, *starts, slice_sizes=aval.shape) if linear_in(update) else None


def _dynamic_update_slice_batch(operands: Any, dims: Any) -> tuple[Any, int]:
    size = size_of(operands, dims)
    x, update = (moved(v, d, 0, size) for v, d in zip(operands[:2], dims[:2]))
    free = tuple(d for d in range(x.ndim - 1) if update.shape[d + 1] < x.shape[d + 1])
    starts = [(operands[d + 2], dims[d + 2]) for d in free]
    if not free:
        return update, 0
    if all(d is None for _, d in starts):
        known = _unbatched(operands[2:], dims[2:])
        return dynamic_update_slice_p.bind(x, update, _start_of(known), *known), 0
    if all(update.shape[d + 1] == 1 for d in free):
        return _selected(x, update, free, starts), 0
    numbers = ScatterDimensionNumbers(raised(range(x.ndim - 1)), (), raised(free), (0,), (0,))
    out = scatter_p.bind(
        x,
        _stacked(starts),
        update,
        dimension_numbers=numbers,
        indices_are_sorted=False,
        unique_indices=True,
        mode=GatherScatterMode.CLIP,
        update_jaxpr=None,
        update_consts=(),
    )
    return out, 0


def _selected(x: Any, update: Any, free: tuple[int, ...], starts: Sequence[tuple[Any, int | None]]) -> Any:
    """`x` with the update of each element of the batch where the positions along the `free` dimensions are its starts."""
    mask: Any = None
    for d, (start, dim) in zip(free, starts):
        if start.dtype.itemsize < 4:
            start = convert_element_type_p.bind(start, new_dtype=np.dtype("int32"), weak_type=False)
        start = clipped(start, x.shape[d + 1] - 1)
        kept = () if dim is None else (0,)
        place = broadcast_in_dim_p.bind(start, shape=x.shape, broadcast_dimensions=kept)
        test = eq_p.bind(place, iota_p.bind(dtype=start.dtype, shape=x.shape, dimension=d + 1))
        mask = test if mask is None else and_p.bind(mask, test)
    wide = broadcast_in_dim_p.bind(update, shape=x.shape, broadcast_dimensions=tuple(range(x.ndim)))
    return select_n_p.bind(mask, x, wide)


dynamic_update_slice_p: Primitive = register(
    Primitive(
        "dynamic_update_slice",
        Fusion.MOVEMENT,
        type=_dynamic_update_slice_type,
        eval=_dynamic_update_slice_eval,
        lower=_dynamic_update_slice_lower,
        jvp=_dynamic_update_slice_jvp,
        transpose=_dynamic_update_slice_transpose,
        batch=_dynamic_update_slice_batch,
        samples=_dynamic_update_slice_samples,
        movement=Movement.UPDATE,
    )
)
