"""dot_general: contraction with batch dimensions, as in JAX; half-precision operands accumulate in float32."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.jaxpr_layout import SHOWN
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.scalar import convert
from fuser.ir.text import param_type
from fuser.ir.types import BOOL, COMPLEX, FLOATS, INTEGERS, ArrayType, sum_dtype
from fuser.ops.elementwise import convert_element_type_p
from fuser.ops.family import linear_in, not_both, sample
from fuser.ops.movement import operand_type, shifted, transpose_p

Dimensions = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


@param_type
class Precision(enum.Enum):
    """How exactly products of matrices are computed where a device has faster, less exact units; fuser's default is exact."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def __repr__(self) -> str:
        return f"Precision.{self.name}"

    def __str__(self) -> str:
        return self.name

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        names = {
            None: "DEFAULT",
            "fastest": "DEFAULT",
            "bfloat16": "DEFAULT",
            "tensorfloat32": "HIGH",
            "bfloat16_3x": "HIGH",
            "float32": "HIGHEST",
        }
        name = names.get(value, str(value).upper())  # type: ignore[call-overload]
        return cls.__members__.get(name)


_TENSOR_FLOAT = (
    "HIGH",
    "high",
    "tensorfloat32",
    "bfloat16_3x",
    "TF32_TF32_F32",
)  # JAX's names of one precision, and its preset


def tensor_float(precision: Any) -> bool:
    """Whether the user lets products round operands of float32 to TF32, which has 10 bits of fraction."""
    sides = precision if isinstance(precision, tuple) else (precision,)
    return all(getattr(side, "name", side) in _TENSOR_FLOAT for side in sides)


def algorithm(precision: Any) -> bool:
    """Whether a precision is neither a degree of it, for which an exact product will do, nor TF32, but prescribes another algorithm."""
    sides = precision if isinstance(precision, tuple) else (precision,)
    return not tensor_float(precision) and not all(side is None or isinstance(side, (str, Precision)) for side in sides)


def free_dimensions(ndim: int, contracted: Any, batch: Any) -> tuple[int, ...]:
    """The dimensions that are neither contracted nor batch, in order."""
    return tuple(d for d in range(ndim) if d not in contracted and d not in batch)


def _type(
    x: ArrayType, y: ArrayType, dimension_numbers: Dimensions, precision: Any = None, preferred_element_type: Any = None
) -> ArrayType:
    (xc, yc), (xb, yb) = dimension_numbers
    if x.dtype != y.dtype:
        raise TypeRuleError(f"dot_general needs equal dtypes, got {x} and {y}; convert one of them first")
    if len(xc) != len(yc) or len(xb) != len(yb):
        raise TypeRuleError(
            f"dot_general of {x} and {y} needs as many dimensions on each side, got {dimension_numbers}"
        )
    for a, b, word in (*((a, b, "contracted") for a, b in zip(xc, yc)), *((a, b, "batch") for a, b in zip(xb, yb))):
        if x.shape[a] != y.shape[b]:
            raise TypeRuleError(
                f"dot_general of {x} and {y}: {word} dimensions {a} and {b} need equal extents, got {x.shape[a]} and {y.shape[b]}"
            )
    shape = (
        *(x.shape[d] for d in xb),
        *(x.shape[d] for d in free_dimensions(x.ndim, xc, xb)),
        *(y.shape[d] for d in free_dimensions(y.ndim, yc, yb)),
    )
    dtype = x.dtype if preferred_element_type is None else np.dtype(preferred_element_type)
    return ArrayType(shape, dtype, x.weak_type and y.weak_type and preferred_element_type is None)


def _eval(
    x: np.ndarray,
    y: np.ndarray,
    dimension_numbers: Dimensions,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> np.ndarray:
    (xc, yc), (xb, yb) = dimension_numbers
    numbers = (tuple(xc), tuple(yc)), (tuple(xb), tuple(yb))
    (x_order, x_shape), (y_order, y_shape), shape = _layout(x.shape, y.shape, numbers)
    out = x.dtype if preferred_element_type is None else np.dtype(preferred_element_type)
    wide = sum_dtype(out)
    left = x.astype(wide, copy=False).transpose(x_order).reshape(x_shape)
    right = y.astype(wide, copy=False).transpose(y_order).reshape(y_shape)
    return convert(np.matmul(left, right).reshape(shape), out)


@functools.lru_cache(1024)
def _layout(x: tuple[int, ...], y: tuple[int, ...], dimension_numbers: Dimensions) -> tuple[Any, Any, tuple[int, ...]]:
    """The order of dimensions and the shape that make (batch, m, k) and (batch, k, n) of operands; and the result's shape."""
    (xc, yc), (xb, yb) = dimension_numbers
    xf, yf = free_dimensions(len(x), xc, xb), free_dimensions(len(y), yc, yb)
    batch, k = tuple(x[d] for d in xb), math.prod(x[d] for d in xc)
    m, n = tuple(x[d] for d in xf), tuple(y[d] for d in yf)
    left = (*xb, *xf, *xc), (math.prod(batch), math.prod(m), k)
    right = (*yb, *yc, *yf), (math.prod(batch), k, math.prod(n))
    return left, right, (*batch, *m, *n)


def as_matrices(x: np.ndarray, y: np.ndarray, dimension_numbers: Dimensions) -> tuple[np.ndarray, np.ndarray]:
    """The operands as (batch, m, k) and (batch, k, n); views where their layout allows."""
    (xc, yc), (xb, yb) = dimension_numbers
    xf, yf = free_dimensions(x.ndim, xc, xb), free_dimensions(y.ndim, yc, yb)
    batch = tuple(x.shape[d] for d in xb)
    k = int(np.prod([x.shape[d] for d in xc], dtype=np.int64))
    m = int(np.prod([x.shape[d] for d in xf], dtype=np.int64))
    n = int(np.prod([y.shape[d] for d in yf], dtype=np.int64))
    b = int(np.prod(batch, dtype=np.int64))
    return x.transpose(*xb, *xf, *xc).reshape(b, m, k), y.transpose(*yb, *yc, *yf).reshape(b, k, n)


def _samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    cases: tuple[tuple[tuple[int, ...], tuple[int, ...], Dimensions], ...] = (
        ((3, 4), (4, 5), (((1,), (0,)), ((), ()))),
        ((4, 3), (4, 5), (((0,), (0,)), ((), ()))),
        ((2, 3, 4), (2, 4, 5), (((2,), (1,)), ((0,), (0,)))),
        ((3, 2, 4), (4, 5, 2), (((2,), (0,)), ((1,), (2,)))),
        ((4,), (4,), (((0,), (0,)), ((), ()))),
        ((3,), (4,), (((), ()), ((), ()))),
    )
    for dtype in (*INTEGERS, *FLOATS, *COMPLEX, BOOL):
        for a, b, numbers in cases:
            yield (
                (sample(rng, a, dtype), sample(rng, b, dtype)),
                {"dimension_numbers": numbers, "precision": None, "preferred_element_type": None},
            )


def _transpose(
    ct: Any, x: Any, y: Any, dimension_numbers: Dimensions, precision: Any = None, preferred_element_type: Any = None
) -> tuple[Any, Any]:
    """The cotangent of one operand contracts the result's with the other operand, over the other's free dimensions."""
    not_both("dot_general", x, y)
    (xc, yc), (xb, yb) = dimension_numbers
    batch, x_free = len(xb), len(free_dimensions(operand_type(x).ndim, xc, xb))
    if linear_in(x):
        places = range(batch + x_free, ct.ndim)
        return _cotangent(ct, places, x.aval, (xc, xb), y, (yc, yb), precision), None
    return None, _cotangent(ct, range(batch, batch + x_free), y.aval, (yc, yb), x, (xc, xb), precision)


def _cotangent(ct: Any, places: range, aval: ArrayType, own: Any, other: Any, others: Any, precision: Any) -> Any:
    """The cotangent of the operand of type `aval`; `places` are the other operand's free dimensions in `ct`."""
    (contracted, batch), (other_contracted, other_batch) = own, others
    free = free_dimensions(other.ndim, other_contracted, other_batch)
    wide = max(ct.dtype, other.dtype, key=lambda d: d.itemsize)
    # The product has the batch dimensions, then the operand's own free ones, and its contracted ones as `other` orders them.
    own_free = free_dimensions(aval.ndim, contracted, batch)
    by_other = [c for _, c in sorted(zip(other_contracted, contracted))]
    order, swapped = [*batch, *own_free, *by_other], [*batch, *by_other, *own_free]
    sides = [(ct, tuple(places), tuple(range(len(batch)))), (other, free, tuple(other_batch))]
    if swapped == list(range(aval.ndim)):  # then nothing is left to transpose
        sides, order = sides[::-1], swapped
    (a, a_contracted, a_batch), (b, b_contracted, b_batch) = sides
    product = dot_general_p.bind(
        *(x if x.dtype == wide else convert_element_type_p.bind(x, new_dtype=wide, weak_type=False) for x in (a, b)),
        dimension_numbers=((a_contracted, b_contracted), (a_batch, b_batch)),
        precision=precision,
        preferred_element_type=None,
    )
    permutation = tuple(order.index(d) for d in range(aval.ndim))
    if permutation != tuple(range(aval.ndim)):
        product = transpose_p.bind(product, permutation=permutation)
    return (
        product if wide == aval.dtype else convert_element_type_p.bind(product, new_dtype=aval.dtype, weak_type=False)
    )


def _batch(operands: Any, dims: Any, dimension_numbers: Dimensions, **params: Any) -> tuple[Any, int]:
    """Two batched operands share a batch dimension; one alone gives a free dimension, so the product stays one matrix."""
    (x, y), (xd, yd) = operands, dims
    (xc, yc), (xb, yb) = dimension_numbers
    if xd is not None:
        xc, xb = shifted(xc, xd), shifted(xb, xd)
    if yd is not None:
        yc, yb = shifted(yc, yd), shifted(yb, yd)
    if xd is not None and yd is not None:
        xb, yb = (xd, *xb), (yd, *yb)
        place = 0
    elif xd is not None:
        place = len(xb) + free_dimensions(x.ndim, xc, xb).index(xd)
    else:
        place = x.ndim - len(xc) + free_dimensions(y.ndim, yc, yb).index(yd)
    return dot_general_p.bind(x, y, dimension_numbers=((xc, yc), (xb, yb)), **params), place


def _product(name: str) -> Primitive:
    return register(
        Primitive(
            name,
            Fusion.DOT,
            type=_type,
            eval=_eval,
            jvp=(
                lambda t, x, y, out, **params: dot_general_p.bind(t, y, **params),
                lambda t, x, y, out, **params: dot_general_p.bind(x, t, **params),
            ),
            transpose=_transpose,
            batch=_batch,
            samples=_samples,
        )
    )


dot_general_p: Primitive = _product("dot_general")


def _shown(params: dict[str, Any]) -> dict[str, Any]:
    """As jaxprs have them: dimensions as lists, and what is not asked for left out."""
    contracted, batch = (tuple(map(list, pair)) for pair in params["dimension_numbers"])
    return {k: v for k, v in params.items() if v is not None} | {"dimension_numbers": (contracted, batch)}


SHOWN[dot_general_p] = _shown
# The same product where an operand is windows of an array, which a library would have to copy: partition makes it.
window_product_p: Primitive = _product("window_product")
