"""Movement: broadcast, reshape, transpose, slice, pad, concatenate, reverse, iota. Index arithmetic, never arithmetic.

A `lower` rule says which element of which operand stands at an index of the output; partition and lowering both read
it, so these operations cost no pass over memory inside a kernel.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir import scalar as S
from fuser.ir.index import ZERO, Affine, delinearise, linearise
from fuser.ir.primitive import REGISTRY, Fusion, Movement, Primitive, register
from fuser.ir.scalar import Scalar
from fuser.ir.types import ALL_DTYPES, ArrayType
from fuser.ops.bounds import within
from fuser.ops.dimension_numbers import broadcast_fault
from fuser.ops.family import linear_in, sample
from fuser.trace.batch import moved, size_of
from fuser.trace.core import type_of
from fuser.trace.tangent import all_zero, full, instantiate, zero_like

Read = Callable[..., Scalar]
Index = tuple[Affine, ...]


def movement(name: str, *, samples: Any, form: Movement, linear: bool = True, **rules: Any) -> Primitive:
    """A primitive that moves elements; see `Fusion.MOVEMENT` for the form of `lower`, and Primitive for the other rules."""

    def arrays() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        rng = np.random.default_rng(0)
        for number, (shapes, params) in enumerate(samples):
            dtype = ALL_DTYPES[number % len(ALL_DTYPES)]
            yield tuple(sample(rng, shape, dtype) for shape in shapes), params

    return register(Primitive(name, Fusion.MOVEMENT, form, linear=linear, samples=arrays, **rules))


def shifted(dimensions: Sequence[int], dim: int) -> tuple[int, ...]:
    """The dimensions of one element, counted in an array with its batch dimension at `dim`."""
    return tuple(d + (d >= dim) for d in dimensions)


def inserted(values: Sequence[Any], dim: int, value: Any) -> tuple[Any, ...]:
    """The params, one a dimension, with that of the batch dimension put in."""
    return (*values[:dim], value, *values[dim:])


def operand_type(operand: Any) -> ArrayType:
    """The type of an operand of a transpose rule, linear or not."""
    return operand.aval if linear_in(operand) else type_of(operand)


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` in another shape."""
    return x if x.shape == shape else reshape_p.bind(x, new_sizes=shape, dimensions=None)


def summed(x: Any, axes: tuple[int, ...]) -> Any:
    """The sum over `axes`, which may be none."""
    return REGISTRY["reduce_sum"].bind(x, axes=axes) if axes else x


# broadcast_in_dim
def _broadcast_type(x: ArrayType, shape: Any, broadcast_dimensions: Any) -> ArrayType:
    shape, dims = tuple(shape), tuple(broadcast_dimensions)
    why = broadcast_fault(x, shape, dims)
    if why:
        raise TypeRuleError(f"broadcast_in_dim {why}: got {dims} for {x} and the shape {shape}")
    return ArrayType(shape, x.dtype, x.weak_type)


def _broadcast_planned(x: Any, shape: Any, broadcast_dimensions: Any) -> Any:
    if math.prod(x.shape) == math.prod(shape):
        return lambda x: x.reshape(shape)
    aligned = [1] * len(shape)
    for extent, d in zip(x.shape, broadcast_dimensions):
        aligned[d] = extent

    def evaluate(x: np.ndarray) -> np.ndarray:
        out = np.empty(shape, x.dtype)
        out[...] = x.reshape(aligned)
        return out

    return evaluate


def _broadcast_lower(read: Read, index: Index, x: ArrayType, shape: Any, broadcast_dimensions: Any) -> Scalar:
    return read(0, tuple(ZERO if x.shape[k] == 1 else index[d] for k, d in enumerate(broadcast_dimensions)))


def _broadcast_transpose(ct: Any, x: Any, shape: Any, broadcast_dimensions: Any) -> tuple[Any]:
    kept = [d for extent, d in zip(x.aval.shape, broadcast_dimensions) if extent == shape[d]]
    return (reshaped(summed(ct, tuple(d for d in range(len(shape)) if d not in kept)), x.aval.shape),)


def _broadcast_batch(operands: Any, dims: Any, shape: Any, broadcast_dimensions: Any) -> tuple[Any, int]:
    x = moved(operands[0], dims[0], 0)
    inner = (0, *(d + 1 for d in broadcast_dimensions))
    return broadcast_in_dim_p.bind(x, shape=(x.shape[0], *shape), broadcast_dimensions=inner), 0


broadcast_in_dim_p: Primitive = movement(
    "broadcast_in_dim",
    type=_broadcast_type,
    eval=lambda x, **params: _broadcast_planned(x, **params)(x),
    planned=_broadcast_planned,
    lower=_broadcast_lower,
    transpose=_broadcast_transpose,
    batch=_broadcast_batch,
    samples=[
        (((),), {"shape": (3, 4), "broadcast_dimensions": ()}),
        (((4,),), {"shape": (3, 4), "broadcast_dimensions": (1,)}),
        (((3,),), {"shape": (3, 4), "broadcast_dimensions": (0,)}),
        (((3, 1),), {"shape": (3, 4), "broadcast_dimensions": (0, 1)}),
        (((4, 4),), {"shape": (4, 2, 4), "broadcast_dimensions": (0, 2)}),
    ],
    form=Movement.SPREAD,
)


# reshape
def _reshape_type(x: ArrayType, new_sizes: Any, dimensions: None = None) -> ArrayType:
    shape = tuple(new_sizes)
    if math.prod(shape) != x.size:
        raise TypeRuleError(
            f"reshape from {x} ({x.size} elements) to {shape} ({math.prod(shape)} elements) changes the number of elements"
        )
    return ArrayType(shape, x.dtype, x.weak_type)


def _reshape_lower(read: Read, index: Index, x: ArrayType, new_sizes: Any, dimensions: None = None) -> Scalar:
    return read(0, reshape_index(index, tuple(new_sizes), x.shape))


def reshape_index(index: Index, shape: tuple[int, ...], old: tuple[int, ...]) -> Index:
    """The index in `old` for an index in `shape`; dimensions are matched in blocks of equal size, so most stay as they are."""
    if 0 in shape:
        return (ZERO,) * len(old)
    result: list[Affine] = []
    i = j = 0
    while i < len(shape) or j < len(old):
        new_block, old_block = [i], [j]
        new_size, old_size = (shape[i] if i < len(shape) else 1), (old[j] if j < len(old) else 1)
        i, j = i + 1, j + 1
        while new_size != old_size:
            if new_size < old_size:
                new_block.append(i)
                new_size *= shape[i]
                i += 1
            else:
                old_block.append(j)
                old_size *= old[j]
                j += 1
        new_dims = [d for d in new_block if d < len(shape)]
        old_dims = [d for d in old_block if d < len(old)]
        position = linearise(tuple(index[d] for d in new_dims), tuple(shape[d] for d in new_dims))
        result += delinearise(position, tuple(old[d] for d in old_dims))
    return tuple(result)


def _reshape_batch(operands: Any, dims: Any, new_sizes: Any, dimensions: None = None) -> tuple[Any, int]:
    x = moved(operands[0], dims[0], 0)
    return reshape_p.bind(x, new_sizes=(x.shape[0], *new_sizes), dimensions=None), 0


reshape_p: Primitive = movement(
    "reshape",
    type=_reshape_type,
    eval=lambda x, new_sizes, dimensions=None: np.reshape(x, new_sizes),
    lower=_reshape_lower,
    transpose=lambda ct, x, new_sizes, dimensions=None: (reshaped(ct, x.aval.shape),),
    batch=_reshape_batch,
    samples=[
        (((3, 4),), {"new_sizes": (12,)}),
        (((12,),), {"new_sizes": (3, 4)}),
        (((3, 4),), {"new_sizes": (4, 3)}),
        (((6, 4),), {"new_sizes": (2, 3, 4)}),
        (((1, 3, 1),), {"new_sizes": (3,)}),
        (((2, 3, 4),), {"new_sizes": (6, 2, 2)}),
        (((),), {"new_sizes": (1, 1)}),
        (((0, 3),), {"new_sizes": (3, 0)}),
    ],
    form=Movement.MOVE,
)


# transpose, squeeze, rev
def _transpose_type(x: ArrayType, permutation: Any) -> ArrayType:
    if sorted(permutation) != list(range(x.ndim)):
        raise TypeRuleError(f"transpose of {x} needs a permutation of {tuple(range(x.ndim))}, got {tuple(permutation)}")
    return ArrayType(tuple(x.shape[d] for d in permutation), x.dtype, x.weak_type)


def _transpose_lower(read: Read, index: Index, x: ArrayType, permutation: Any) -> Scalar:
    inner: list[Affine] = [ZERO] * x.ndim
    for position, d in enumerate(permutation):
        inner[d] = index[position]
    return read(0, tuple(inner))


transpose_p: Primitive = movement(
    "transpose",
    type=_transpose_type,
    eval=lambda x, permutation: np.transpose(x, permutation),
    lower=_transpose_lower,
    transpose=lambda ct, x, permutation: (
        transpose_p.bind(ct, permutation=tuple(permutation.index(d) for d in range(len(permutation)))),
    ),
    batch=lambda operands, dims, permutation: (
        (transpose_p.bind(*operands, permutation=(dims[0], *shifted(permutation, dims[0]))), 0)
    ),
    samples=[
        (((3, 4),), {"permutation": (1, 0)}),
        (((2, 3, 4),), {"permutation": (2, 0, 1)}),
        (((4, 4),), {"permutation": (1, 0)}),
    ],
    form=Movement.MOVE,
)


def _squeeze_type(x: ArrayType, dimensions: Any) -> ArrayType:
    for d in dimensions:
        if not 0 <= d < x.ndim or x.shape[d] != 1:
            raise TypeRuleError(f"squeeze of {x} along {tuple(dimensions)}: dimension {d} is not of extent 1")
    return ArrayType(tuple(e for d, e in enumerate(x.shape) if d not in dimensions), x.dtype, x.weak_type)


def _squeeze_lower(read: Read, index: Index, x: ArrayType, dimensions: Any) -> Scalar:
    rest = iter(index)
    return read(0, tuple(ZERO if d in dimensions else next(rest) for d in range(x.ndim)))


squeeze_p: Primitive = movement(
    "squeeze",
    type=_squeeze_type,
    eval=lambda x, dimensions: np.squeeze(x, tuple(dimensions)),
    lower=_squeeze_lower,
    transpose=lambda ct, x, dimensions: (reshaped(ct, x.aval.shape),),
    batch=lambda operands, dims, dimensions: (
        squeeze_p.bind(*operands, dimensions=shifted(dimensions, dims[0])),
        dims[0] - sum(d < dims[0] for d in dimensions),
    ),
    samples=[(((1, 3, 1),), {"dimensions": (0, 2)}), (((1, 3),), {"dimensions": (0,)})],
    form=Movement.MOVE,
)


def _rev_type(x: ArrayType, dimensions: Any) -> ArrayType:
    if any(not 0 <= d < x.ndim for d in dimensions) or len(set(dimensions)) != len(dimensions):
        raise TypeRuleError(f"rev of {x} needs distinct dimensions below {x.ndim}, got {tuple(dimensions)}")
    return x


rev_p: Primitive = movement(
    "rev",
    type=_rev_type,
    eval=lambda x, dimensions: np.flip(x, tuple(dimensions)),
    transpose=lambda ct, x, dimensions: (rev_p.bind(ct, dimensions=dimensions),),
    batch=lambda operands, dims, dimensions: (
        (rev_p.bind(*operands, dimensions=shifted(dimensions, dims[0])), dims[0])
    ),
    lower=lambda read, index, x, dimensions: read(
        0, tuple(-i + (x.shape[d] - 1) if d in dimensions and x.shape[d] > 0 else i for d, i in enumerate(index))
    ),
    samples=[(((5,),), {"dimensions": (0,)}), (((3, 4),), {"dimensions": (1,)}), (((3, 4),), {"dimensions": (0, 1)})],
    form=Movement.MOVE,
)


# slice
def _slice_type(x: ArrayType, start_indices: Any, limit_indices: Any, strides: Any = None) -> ArrayType:
    strides = strides or (1,) * x.ndim
    if not len(start_indices) == len(limit_indices) == len(strides) == x.ndim:
        raise TypeRuleError(f"slice of {x} needs {x.ndim} starts, limits and strides")
    for d, (low, high, step) in enumerate(zip(start_indices, limit_indices, strides)):
        if not (0 <= low <= high <= x.shape[d] and step > 0):
            raise TypeRuleError(f"slice of {x} along dimension {d}: {low}:{high}:{step} lies outside 0:{x.shape[d]}")
    shape = tuple(-(-(high - low) // step) for low, high, step in zip(start_indices, limit_indices, strides))
    return ArrayType(shape, x.dtype, x.weak_type)


def _slice_transpose(ct: Any, x: Any, start_indices: Any, limit_indices: Any, strides: Any = None) -> tuple[Any]:
    config = []
    for start, step, taken, extent in zip(start_indices, strides or (1,) * ct.ndim, ct.shape, x.aval.shape):
        end = start + (taken - 1) * step + 1 if taken else start
        config.append((start, extent - end, step - 1))
    zero = full(x.aval.update(shape=(), weak_type=False), 0)
    return (pad_p.bind(ct, zero, padding_config=tuple(config)),)


def _slice_batch(
    operands: Any, dims: Any, start_indices: Any, limit_indices: Any, strides: Any = None
) -> tuple[Any, int]:
    (x,), (dim,) = operands, dims
    out = slice_p.bind(
        x,
        start_indices=inserted(start_indices, dim, 0),
        limit_indices=inserted(limit_indices, dim, x.shape[dim]),
        strides=None if strides is None else inserted(strides, dim, 1),
    )
    return out, dim


slice_p: Primitive = movement(
    "slice",
    type=_slice_type,
    transpose=_slice_transpose,
    batch=_slice_batch,
    eval=lambda x, start_indices, limit_indices, strides=None: x[
        tuple(slice(a, b, c) for a, b, c in zip(start_indices, limit_indices, strides or (1,) * x.ndim))
    ],
    lower=lambda read, index, x, start_indices, limit_indices, strides=None: read(
        0, tuple(i * step + low for i, low, step in zip(index, start_indices, strides or (1,) * x.ndim))
    ),
    samples=[
        (((9,),), {"start_indices": (2,), "limit_indices": (7,), "strides": None}),
        (((9,),), {"start_indices": (1,), "limit_indices": (9,), "strides": (3,)}),
        (((5, 6),), {"start_indices": (1, 0), "limit_indices": (4, 6), "strides": (1, 2)}),
        (((5,),), {"start_indices": (2,), "limit_indices": (2,), "strides": None}),
    ],
    form=Movement.MOVE,
)


# pad
def _pad_type(x: ArrayType, value: ArrayType, padding_config: Any) -> ArrayType:
    if value.shape or value.dtype != x.dtype:
        raise TypeRuleError(f"pad of {x} needs a padding value of type {ArrayType((), x.dtype)}, got {value}")
    if len(padding_config) != x.ndim or any(inner < 0 for _, _, inner in padding_config):
        raise TypeRuleError(f"pad of {x} needs {x.ndim} triples (low, high, interior ≥ 0), got {tuple(padding_config)}")
    shape = tuple(low + high + e + max(e - 1, 0) * inner for e, (low, high, inner) in zip(x.shape, padding_config))
    if any(e < 0 for e in shape):
        raise TypeRuleError(f"pad of {x} by {tuple(padding_config)} gives a negative shape {shape}")
    return ArrayType(shape, x.dtype, x.weak_type and value.weak_type)


def _pad_eval(x: np.ndarray, value: np.ndarray, padding_config: Any) -> np.ndarray:
    if not x.ndim:
        return x
    wide = tuple(e + max(e - 1, 0) * inner for e, (_, _, inner) in zip(x.shape, padding_config))
    spread = np.full(wide, value, x.dtype)
    spread[tuple(slice(None, None, inner + 1) for _, _, inner in padding_config)] = x
    around = [(max(low, 0), max(high, 0)) for low, high, _ in padding_config]
    padded = np.pad(spread, around, constant_values=value)
    return padded[tuple(slice(max(-a, 0), e - max(-b, 0)) for e, (a, b, _) in zip(padded.shape, padding_config))]


def _pad_lower(read: Read, index: Index, x: ArrayType, value: ArrayType, padding_config: Any) -> Scalar:
    if x.size == 0:
        return read(1, ())
    inside: Scalar | None = None
    inner_index: list[Affine] = []
    for i, extent, (low, _, interior) in zip(index, x.shape, padding_config):
        position = i - low
        tests = []
        if interior:
            tests.append(S.equal(S.as_scalar(position % (interior + 1)), 0))
            position = position // (interior + 1)
        if position.outside(extent):
            return read(1, ())
        tests += within(position, extent)
        for test in tests:
            inside = test if inside is None else inside & test
        inner_index.append(position)
    if inside is None:
        return read(0, tuple(inner_index))
    return S.where(inside, read(0, tuple(inner_index), inside), read(1, ()))


def _pad_jvp(primals: Any, tangents: Any, padding_config: Any) -> tuple[Any, Any]:
    out = pad_p.bind(*primals, padding_config=padding_config)
    if all_zero(tangents):
        return out, zero_like(out)
    return out, pad_p.bind(*map(instantiate, tangents), padding_config=padding_config)


def _pad_transpose(ct: Any, x: Any, value: Any, padding_config: Any) -> tuple[Any, Any]:
    """The places of the operand's elements are cut out; the padding value has been put everywhere else."""
    cut = tuple((-low, -high, 0) for low, high, _ in padding_config)
    spread = pad_p.bind(ct, full(type_of(ct).update(shape=()), 0), padding_config=cut)
    strides = tuple(inner + 1 for _, _, inner in padding_config)
    inside = slice_p.bind(spread, start_indices=(0,) * ct.ndim, limit_indices=spread.shape, strides=strides)
    if not linear_in(value):
        return inside, None
    everywhere = tuple(range(ct.ndim))
    rest = summed(ct, everywhere) - summed(inside, everywhere)
    return inside if linear_in(x) else None, rest


def _pad_batch(operands: Any, dims: Any, padding_config: Any) -> tuple[Any, int]:
    (x, value), (dim, value_dim) = operands, dims
    if dim is None:
        x, dim = moved(x, None, 0, size_of(operands, dims)), 0
    config = inserted(padding_config, dim, (0, 0, 0))
    if value_dim is None:
        return pad_p.bind(x, value, padding_config=config), dim
    zero, outside = full(type_of(x).update(shape=()), 0), full(ArrayType((), np.dtype(bool)), False)
    padded = pad_p.bind(x, zero, padding_config=config)
    mask = pad_p.bind(full(ArrayType(x.shape, outside.dtype), True), outside, padding_config=config)
    around = broadcast_in_dim_p.bind(value, shape=padded.shape, broadcast_dimensions=(dim,))
    return REGISTRY["select_n"].bind(mask, around, padded), dim


pad_p: Primitive = movement(
    "pad",
    type=_pad_type,
    eval=_pad_eval,
    lower=_pad_lower,
    jvp=_pad_jvp,
    transpose=_pad_transpose,
    batch=_pad_batch,
    samples=[
        (((4,), ()), {"padding_config": ((1, 2, 0),)}),
        (((), ()), {"padding_config": ()}),
        (((4,), ()), {"padding_config": ((-1, 2, 0),)}),
        (((4,), ()), {"padding_config": ((1, 0, 2),)}),
        (((3, 4), ()), {"padding_config": ((1, 1, 0), (0, 2, 1))}),
        (((3, 4), ()), {"padding_config": ((0, -1, 0), (-1, 0, 1))}),
    ],
    form=Movement.PAD,
)


# concatenate
def _concatenate_type(*operands: ArrayType, dimension: int) -> ArrayType:
    first = operands[0]
    for operand in operands:
        rest = [(d, e) for d, e in enumerate(operand.shape) if d != dimension]
        if operand.ndim != first.ndim or rest != [(d, e) for d, e in enumerate(first.shape) if d != dimension]:
            raise TypeRuleError(
                f"concatenate along dimension {dimension} needs equal other dimensions, got {' and '.join(map(str, operands))}"
            )
        if operand.dtype != first.dtype:
            raise TypeRuleError(
                f"concatenate needs equal dtypes, got {' and '.join(map(str, operands))}; convert one of them first"
            )
    if not 0 <= dimension < first.ndim:
        raise TypeRuleError(f"concatenate of {first} has no dimension {dimension}")
    total = sum(o.shape[dimension] for o in operands)
    shape = (*first.shape[:dimension], total, *first.shape[dimension + 1 :])
    return ArrayType(shape, first.dtype, all(o.weak_type for o in operands))


def _concatenate_lower(read: Read, index: Index, *operands: ArrayType, dimension: int) -> Scalar:
    """A tree of selections: a piece is found after as many tests as the number of pieces has digits."""
    ends, (least, most) = list(itertools.accumulate(o.shape[dimension] for o in operands)), index[dimension].bounds
    numbers = [n for n, o in enumerate(operands) if o.shape[dimension] and ends[n] - o.shape[dimension] <= most]
    numbers = [n for n in numbers if least < ends[n]] or numbers[:1]  # an index that no test lets through reads any

    def element(number: int) -> Scalar:
        extent = operands[number].shape[dimension]
        position = index[dimension] - (ends[number] - extent)
        mask = functools.reduce(operator.and_, tests) if (tests := within(position, extent)) else None
        return read(number, (*index[:dimension], position, *index[dimension + 1 :]), mask)

    def among(few: Sequence[int]) -> Scalar:
        if not (half := len(few) // 2):
            return element(few[0])
        return S.where(S.as_scalar(index[dimension] - ends[few[half - 1]]) < 0, among(few[:half]), among(few[half:]))

    return among(numbers)


def _concatenate_jvp(primals: Any, tangents: Any, dimension: int) -> tuple[Any, Any]:
    out = concatenate_p.bind(*primals, dimension=dimension)
    if all_zero(tangents):
        return out, zero_like(out)
    return out, concatenate_p.bind(*map(instantiate, tangents), dimension=dimension)


def _concatenate_transpose(ct: Any, *operands: Any, dimension: int) -> list[Any]:
    cotangents = []
    start = 0
    for operand in operands:
        end = start + operand_type(operand).shape[dimension]
        cotangents.append(_piece(ct, dimension, start, end) if linear_in(operand) else None)
        start = end
    return cotangents


def _piece(x: Any, dimension: int, start: int, end: int) -> Any:
    """x[start:end] along one dimension."""
    starts, limits = [0] * x.ndim, list(x.shape)
    starts[dimension], limits[dimension] = start, end
    return slice_p.bind(x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=None)


def _concatenate_batch(operands: Any, dims: Any, dimension: int) -> tuple[Any, int]:
    to, size = next(d for d in dims if d is not None), size_of(operands, dims)
    values = [moved(x, d, to, size) for x, d in zip(operands, dims)]
    return concatenate_p.bind(*values, dimension=dimension + (to <= dimension)), to


concatenate_p: Primitive = movement(
    "concatenate",
    type=_concatenate_type,
    jvp=_concatenate_jvp,
    transpose=_concatenate_transpose,
    batch=_concatenate_batch,
    eval=lambda *operands, dimension: np.concatenate(operands, axis=dimension),
    lower=_concatenate_lower,
    samples=[
        (((3,), (4,)), {"dimension": 0}),
        (((2, 3), (2, 1), (2, 4)), {"dimension": 1}),
        (((2, 3), (0, 3), (1, 3)), {"dimension": 0}),
    ],
    form=Movement.JOIN,
)


# split
def _split_type(x: ArrayType, sizes: Any, axis: int) -> tuple[ArrayType, ...]:
    if any(size < 0 for size in sizes):
        raise TypeRuleError(f"Sizes passed to split must be nonnegative, got {tuple(sizes)}")
    if sum(sizes) != x.shape[axis]:
        raise TypeRuleError(
            f"Sum of sizes {sum(sizes)} must be equal to dimension {axis} of the operand shape {x.shape}: split into {tuple(sizes)}"
        )
    return tuple(ArrayType((*x.shape[:axis], e, *x.shape[axis + 1 :]), x.dtype, x.weak_type) for e in sizes)


def _split_lower(read: Read, index: Index, x: ArrayType, sizes: Any, axis: int, output: int) -> Scalar:
    start = sum(sizes[:output])
    return read(0, (*index[:axis], index[axis] + start, *index[axis + 1 :]))


def _split_batch(operands: Any, dims: Any, sizes: Any, axis: int) -> tuple[list[Any], list[int]]:
    pieces = split_p.bind(*operands, sizes=sizes, axis=axis + (dims[0] <= axis))
    return pieces, [dims[0]] * len(pieces)


split_p: Primitive = movement(
    "split",
    type=_split_type,
    jvp=lambda primals, tangents, **params: (split_p.bind(*primals, **params), split_p.bind(*tangents, **params)),
    transpose=lambda cts, x, sizes, axis: (concatenate_p.bind(*map(instantiate, cts), dimension=axis),),
    batch=_split_batch,
    eval=lambda x, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis),
    lower=_split_lower,
    multiple_results=True,
    samples=[(((7,),), {"sizes": (2, 5), "axis": 0}), (((3, 6),), {"sizes": (1, 2, 3), "axis": 1})],
    form=Movement.MOVE,
)


# iota
def _iota_eval(dtype: Any, shape: Any, dimension: int) -> np.ndarray:
    line = S.convert(np.arange(shape[dimension]), np.dtype(dtype))
    return np.broadcast_to(line.reshape([-1 if d == dimension else 1 for d in range(len(shape))]), shape)


iota_p: Primitive = movement(
    "iota",
    linear=False,
    type=lambda dtype, shape, dimension: ArrayType(tuple(shape), np.dtype(dtype)),
    eval=_iota_eval,
    lower=lambda read, index, dtype, shape, dimension: S.cast(S.as_scalar(index[dimension]), np.dtype(dtype)),
    batch=lambda operands, dims, **params: (iota_p.bind(**params), None),
    samples=[
        ((), {"dtype": np.dtype("int32"), "shape": (5,), "dimension": 0}),
        ((), {"dtype": np.dtype("float32"), "shape": (3, 4), "dimension": 1}),
        ((), {"dtype": np.dtype("uint8"), "shape": (3, 300), "dimension": 1}),
    ],
    form=Movement.MAKE,
)
