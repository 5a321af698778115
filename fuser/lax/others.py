"""Names of jax.lax that are compositions or settings: stacks, high products, approximate extremes, precision of products."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser import dtypes
from fuser.errors import TypeRuleError, UnsupportedError
from fuser.ir.dim import as_extent
from fuser.ir.types import is_float
from fuser.lax.control import switch
from fuser.lax.layouts import lays_out, with_sharding
from fuser.lax.movement import broadcast_in_dim, concatenate, expand_dims
from fuser.lax.reduction import top_k
from fuser.lax.slicing import index_in_dim, scatter_add
from fuser.lax.values import as_value, axis_of, broadcast_shapes, strict
from fuser.ops.dot import Precision
from fuser.ops.philox import rng_bit_generator_p
from fuser.ops.platform import platform_index_p
from fuser.trace import tree
from fuser.trace.core import bind, type_of

__all__ = [
    "AccuracyMode", "DotAlgorithm", "DotAlgorithmPreset",
    "DotDimensionNumbers", "Precision", "PrecisionLike", "RandomAlgorithm", "Tolerance", "approx_max_k", "approx_min_k",
    "broadcast_like", "composite", "mulhi", "padtype_to_pads", "platform_dependent", "rng_bit_generator", "scatter_sub", "shape_as_value", "stack", "stage", "unstack",
]  # fmt: skip


class RandomAlgorithm(enum.IntEnum):
    """Which generator `rng_bit_generator` uses: Philox-4x32, which is the default, or Threefry-2x32, which it has not."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


class AccuracyMode(enum.Enum):
    """How exact elementwise functions are asked to be; fuser's stay within a few ulps in any case."""

    HIGHEST = 1
    DEFAULT = 2


class Tolerance:
    """Bounds of an elementwise function's error: absolute, relative, and in ulps. ValueError for negative ones."""

    def __init__(self, atol: float = 0.0, rtol: float = 0.0, ulps: int = 0) -> None:
        if atol < 0.0 or rtol < 0.0 or ulps < 0.0:
            raise ValueError("Tolerances must be non-negative.")
        if atol == 0.0 and rtol == 0.0 and ulps == 0:
            raise ValueError("At least one of atol, rtol, or ulps must be set.")
        self.atol, self.rtol, self.ulps = atol, rtol, ulps


class DotAlgorithm(NamedTuple):
    """Dtypes that a product of matrices converts its operands to and accumulates in."""

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


DotAlgorithmPreset = enum.Enum(  # type: ignore[misc]
    "DotAlgorithmPreset",
    [
        "DEFAULT",
        "ANY_F8_ANY_F8_F32",
        "ANY_F8_ANY_F8_F32_FAST_ACCUM",
        "ANY_F8_ANY_F8_ANY",
        "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
        "F16_F16_F16",
        "F16_F16_F32",
        "BF16_BF16_BF16",
        "BF16_BF16_F32",
        "BF16_BF16_F32_X3",
        "BF16_BF16_F32_X6",
        "BF16_BF16_F32_X9",
        "TF32_TF32_F32",
        "TF32_TF32_F32_X3",
        "F32_F32_F32",
        "F64_F64_F64",
    ],
    module=__name__,
)


PrecisionLike = None | str | Precision | tuple[str, str] | tuple[Precision, Precision]
DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


# Random bits.


@lays_out
def rng_bit_generator(
    key: Any,
    shape: Sequence[int],
    dtype: Any = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> tuple[Any, Any]:
    """The next key, and random bits of a shape and an unsigned dtype, by Philox-4x32 from a key u32[4] or u64[2].

    TypeError for other dtypes; UnsupportedError for Threefry, which `fuser.random` has.
    """
    found = dtypes.requested(dtype, "rng_bit_generator")
    if algorithm == RandomAlgorithm.RNG_THREE_FRY:
        raise UnsupportedError(
            "rng_bit_generator draws by Philox; fuser.random.bits(key) with a key of threefry2x32 draws by Threefry"
        )
    params = {"shape": tuple(map(as_extent, shape)), "dtype": found, "algorithm": int(algorithm)}
    new, bits = bind(rng_bit_generator_p, as_value(key, "rng_bit_generator"), **params)
    return new, with_sharding(bits, out_sharding)


# Elementwise.


def mulhi(x: Any, y: Any, /) -> Any:
    """The upper half of the product's bits, of integers of one dtype; TypeRuleError for others.

    From the halves of both numbers, exactly: Warren, "Hacker's delight", section 8-2.
    """
    a, b = strict("mulhi", x, y)
    for value in (a, b):
        if value.dtype.kind not in "iu":
            raise TypeRuleError(f"mulhi does not accept dtype {value.dtype.name}; it takes integers")
    if a.dtype != b.dtype:
        raise TypeRuleError(f"mulhi needs equal dtypes, got {type_of(a)} and {type_of(b)}; convert one of them first")
    from fuser import numpy as fnp

    bits = a.dtype.itemsize * 8
    half, mask = bits // 2, (1 << (bits // 2)) - 1
    low = lambda v: fnp.bitwise_and(v, np.asarray(mask, v.dtype))
    high = lambda v: fnp.right_shift(v, np.asarray(half, v.dtype))
    unsigned = np.dtype(f"uint{bits}")
    least = high((low(a).astype(unsigned)) * (low(b).astype(unsigned))).astype(a.dtype)
    middle = high(a) * low(b) + least
    cross = low(a) * high(b) + low(middle)
    return high(a) * high(b) + high(middle) + high(cross)


def stage(x: Any, /) -> Any:
    """`x` as an array: a tracer of the current trace, or an Array."""
    return as_value(x, "stage")


# Movement.


def stack(operands: Sequence[Any], axis: int = 0) -> Any:
    """Arrays of one shape along a new dimension. ValueError for none or for different shapes."""
    if not len(operands):
        raise ValueError("Need at least one array to stack.")
    values = [as_value(o, "stack") for o in operands]
    if any(v.shape != values[0].shape for v in values):
        shapes = ", ".join(str(v.shape) for v in values)
        raise ValueError(f"All input arrays must have the same shape. Got {shapes}.")
    position = axis_of(axis, values[0].ndim + 1, "stack")
    return concatenate([expand_dims(v, (position,)) for v in values], position)


def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The slices along a dimension, without it. ValueError for arrays of rank 0."""
    value = as_value(x, "unstack")
    if not value.ndim:
        raise ValueError("unstack requires arrays with rank > 0, however a scalar array was passed.")
    position = axis_of(axis, value.ndim, "unstack")
    return tuple(index_in_dim(value, n, position, keepdims=False) for n in range(value.shape[position]))


def broadcast_like(arr: Any, like_arr: Any) -> Any:
    """`arr` broadcast, as in NumPy, to the shape of `like_arr`. ValueError where that does not go."""
    x, like = as_value(arr, "broadcast_like"), as_value(like_arr, "broadcast_like")
    if broadcast_shapes(x.shape, like.shape, function="broadcast_like") != like.shape:
        raise ValueError(
            f"Incompatible types for broadcasting: input type={type_of(x)} and requested type={type_of(like)}"
        )
    lying, first = type_of(like).explicit, like.ndim - x.ndim
    own = type_of(x).explicit
    if own is not None and lying is not None and own.spec.partitions != lying.spec.partitions[first:]:
        raise ValueError(
            f"Incompatible types for broadcasting: input type={type_of(x)} as {own.spec} and requested type={type_of(like)} as {lying.spec}"
        )
    result = broadcast_in_dim(x, like.shape, tuple(range(first, like.ndim)))
    return with_sharding(result, getattr(like, "sharding", lying) if lying is not None else None)


def shape_as_value(shape: Sequence[int]) -> Any:
    """A shape as a vector of int32."""
    return np.asarray([as_extent(e) for e in shape], np.int32)


def scatter_sub(
    operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: Any, *, indices_are_sorted: bool = False,
    unique_indices: bool = False, mode: Any = None,
) -> Any:  # fmt: skip
    """The operand with updates subtracted."""
    return scatter_add(
        operand,
        scatter_indices,
        -as_value(updates, "scatter_sub"),
        dimension_numbers,
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
        mode=mode,
    )


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: Any
) -> list[tuple[int, int]]:
    """How much is put before and behind each dimension for "SAME", "SAME_LOWER" or "VALID" windows. RuntimeError for other words."""
    name = str(getattr(padding, "name", padding)).upper()
    if name not in ("SAME", "SAME_LOWER", "VALID"):
        raise RuntimeError(f"Unrecognized padding type: expected 'VALID', 'SAME', or 'SAME_LOWER', got {padding}.")
    pads = []
    for extent, window, stride in zip(
        *(map(as_extent, numbers) for numbers in (in_shape, window_shape, window_strides))
    ):
        count = -(-extent // stride) if extent else 0
        total = max((count - 1) * stride + window - extent, 0) if name != "VALID" else 0
        less, more = total // 2, total - total // 2
        pads.append((more, less) if name == "SAME_LOWER" else (less, more))
    return pads


# Selection and products.


def _extremes(name: str, sign: int, operand: Any, k: int, dimension: int, aggregate: bool) -> tuple[Any, Any]:
    x = as_value(operand, name)
    if not is_float(x.dtype):
        raise ValueError(f"operand must be a floating type, got {x.dtype.name}")
    if not aggregate:
        raise UnsupportedError(f"{name} gives the k best in order; leave aggregate_to_topk as it is")
    position = axis_of(dimension, x.ndim, name)
    values, indices = top_k(-x if sign < 0 else x, k, axis=position)
    return (-values if sign < 0 else values), indices


def approx_max_k(
    operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95, reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """(values, positions) of the k greatest along a dimension, in descending order: exactly, whatever recall is asked for."""
    return _extremes("approx_max_k", 1, operand, k, reduction_dimension, aggregate_to_topk)


def approx_min_k(
    operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95, reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """(values, positions) of the k least along a dimension, in ascending order: exactly, whatever recall is asked for."""
    return _extremes("approx_min_k", -1, operand, k, reduction_dimension, aggregate_to_topk)


# Choices of code.


def platform_dependent(
    *args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any]
) -> Any:
    """The function that is given for the platform that the program runs on (cpu, cuda, rocm, tpu), else `default`, applied to `args`.

    All of them are traced, and give the same types. NotImplementedError where there is neither once the program is compiled.
    """
    platforms = tuple(per_platform)
    index = bind(platform_index_p, platforms=platforms, default=default is not None)
    return switch(index, [*per_platform.values(), *([] if default is None else [default])], *args)


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """`decomposition` itself: fuser fuses what it is made of, and needs no name for the whole."""

    def decorated(*args: Any, **kwargs: Any) -> Any:
        return tree.map(lambda leaf: as_value(leaf, name), decomposition(*args, **kwargs))

    return decorated
