"""Reductions, prefix scans, products and sorting of `fuser.lax`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.config import config
from fuser.errors import TypeRuleError
from fuser.ir.primitive import Primitive
from fuser.ir.types import BOOL, SMALL_FLOATS, ArrayType, is_complex, is_inexact
from fuser.lax.movement import concatenate, reshape, transpose
from fuser.lax.slicing import slice_in_dim
from fuser.lax.small_dtypes import bind_wide, widened
from fuser.lax.values import as_value, axes_of, axis_of, broadcast_to, convert
from fuser.ops import cumulative as C
from fuser.ops import elementwise as E
from fuser.ops import reduce as R
from fuser.ops.dot import dot_general_p
from fuser.ops.sorting import sort_p, top_k_p
from fuser.trace import tree
from fuser.trace.core import Tracer, bind, type_of
from fuser.trace.stage import is_array, stage


def _reduction(primitive: Primitive, text: str) -> Callable[..., Any]:
    def function(operand: Any, axes: Sequence[int], *, out_sharding: None = None) -> Any:
        x = as_value(operand, primitive.name)
        axes = axes_of(tuple(axes), x.ndim, primitive.name)
        if primitive is R.reduce_sum_p and not config.allow_f16_reductions:
            _refuse_halves(x, axes)
        return bind_wide(primitive, x, axes=axes)

    function.__name__ = function.__qualname__ = primitive.name
    function.__doc__ = text
    return function


def _refuse_halves(x: Any, axes: tuple[int, ...]) -> None:
    if x.dtype in (np.float16, dtypes.bfloat16) and any(x.shape[axis] != 1 for axis in axes):
        raise ValueError(
            f"reduce_sum on operand {type_of(x)} is not allowed when allow_f16_reductions=False; "
            "convert it to float32 first, or use fuser.numpy.sum, which sums in float32"
        )


reduce_sum = _reduction(R.reduce_sum_p, "The sum over these dimensions.")
reduce_prod = _reduction(R.reduce_prod_p, "The product over these dimensions.")
reduce_max = _reduction(R.reduce_max_p, "The greatest over these dimensions.")
reduce_min = _reduction(R.reduce_min_p, "The least over these dimensions.")
reduce_and = _reduction(R.reduce_and_p, "The bitwise and over these dimensions.")
reduce_or = _reduction(R.reduce_or_p, "The bitwise or over these dimensions.")
reduce_xor = _reduction(R.reduce_xor_p, "The bitwise exclusive or over these dimensions.")

# A binary primitive, the reduction by it, and the value that changes nothing.
_MONOIDS: dict[Primitive, tuple[Primitive, Callable[[np.dtype], Any]]] = {
    E.add_p: (R.reduce_sum_p, lambda dtype: 0),
    E.mul_p: (R.reduce_prod_p, lambda dtype: 1),
    E.max_p: (R.reduce_max_p, lambda dtype: R.extreme(dtype, "max")),
    E.min_p: (R.reduce_min_p, lambda dtype: R.extreme(dtype, "min")),
    E.and_p: (R.reduce_and_p, lambda dtype: True if dtype.kind == "b" else -1),
    E.or_p: (R.reduce_or_p, lambda dtype: 0),
    E.xor_p: (R.reduce_xor_p, lambda dtype: 0),
}


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding: None = None,
) -> Any:
    """A reduction of a tree of arrays of one shape over dimensions; `computation` takes two trees of scalars and gives one.

    It is to be associative, with the scalars of `init_values` changing nothing: add, mul, max, min, and, or, xor of one array
    are reductions, others combine halves until one element is left. TypeError for trees or types that differ.
    """
    leaves, structure = tree.flatten(operands)
    starts, start_structure = tree.flatten(init_values)
    if structure != start_structure:
        raise ValueError(
            f"Operands must have the same tree structure as init_values: {structure} vs. {start_structure}; "
            "give one initial value for each array"
        )
    xs, inits = [as_value(x, "reduce") for x in leaves], [as_value(v, "reduce") for v in starts]
    if any(v.shape for v in inits):
        raise ValueError(
            f"reduce found non-scalar initial value: {[tuple(v.shape) for v in inits]}; each is one number"
        )
    if any(x.shape != xs[0].shape for x in xs):
        raise TypeRuleError(f"reduce takes arrays of one shape, got {' and '.join(str(type_of(x)) for x in xs)}")
    inits = [v if v.dtype == x.dtype else convert(v, x.dtype) for v, x in zip(inits, xs)]
    axes = axes_of(tuple(dimensions), xs[0].ndim, "reduce")
    flat = lambda a, b: tree.leaves(computation(structure.unflatten(a), structure.unflatten(b)))
    primitive = _monoid(lambda a, b: flat([a], [b])[0], xs[0].dtype) if len(xs) == 1 else None
    if primitive is None or (is_complex(xs[0].dtype) and primitive in (E.max_p, E.min_p)):
        return structure.unflatten(_folded(xs, inits, flat, axes))
    reduction, neutral = _MONOIDS[primitive]
    (x,), (start,) = xs, inits
    result = bind(reduction, x, axes=axes)
    known = not isinstance(start, Tracer) and np.asarray(start) == np.asarray(neutral(x.dtype)).astype(x.dtype)
    return structure.unflatten([result if known else bind(primitive, result, start)])


def _folded(
    xs: list[Any], inits: list[Any], combine: Callable[[Any, Any], list[Any]], axes: tuple[int, ...]
) -> list[Any]:
    """The fold by halves: the first half of the elements with the second, until one is left."""
    from fuser.transforms.vmap import vmap

    kept = tuple(d for d in range(xs[0].ndim) if d not in axes)
    shape, count = tuple(xs[0].shape[d] for d in kept), math.prod(xs[0].shape[d] for d in axes)
    size = math.prod(shape)
    xs = [reshape(transpose(x, (*axes, *kept)), (count, size)) for x in xs]
    each = vmap(lambda a, b: tuple(combine(list(a), list(b))))
    together = lambda a, b: list(each(tuple(a), tuple(b)))
    while count > 1:
        half = count // 2
        low, high, rest = (
            [slice_in_dim(x, a, b) for x in xs] for a, b in ((0, half), (half, 2 * half), (2 * half, count))
        )
        line = lambda parts, half=half: [reshape(p, (half * size,)) for p in parts]
        joined = [reshape(v, (half, size)) for v in together(line(low), line(high))]
        xs = [concatenate([v, r], 0) if count % 2 else v for v, r in zip(joined, rest)]
        count -= half
    starts = [broadcast_to(v, (size,)) for v in inits]
    found = together(starts, [reshape(x, (size,)) for x in xs]) if count else starts
    return [reshape(v, shape) for v in found]


def _monoid(computation: Callable[[Any, Any], Any], dtype: np.dtype) -> Primitive | None:
    aval = ArrayType((), dtype)

    def single(a: Any, b: Any) -> list[Any]:
        result = computation(a, b)
        return [result] if is_array(result) else []

    graph = stage(single, [aval, aval], "reduce")
    if len(graph.eqns) != 1 or graph.eqns[0].outvars != graph.outvars:
        return None
    (eqn,) = graph.eqns
    whole = {*map(id, eqn.invars)} == {*map(id, graph.invars)}
    return eqn.primitive if whole and eqn.primitive in _MONOIDS else None


def argmax(operand: Any, axis: int, index_dtype: Any) -> Any:
    """The first position of the greatest element along `axis`."""
    x = as_value(operand, "argmax")
    return bind(R.argmax_p, widened(x), axes=(operator.index(axis),), index_dtype=dtypes.canonical(index_dtype))


def argmin(operand: Any, axis: int, index_dtype: Any) -> Any:
    """The first position of the least element along `axis`."""
    x = as_value(operand, "argmin")
    return bind(R.argmin_p, widened(x), axes=(operator.index(axis),), index_dtype=dtypes.canonical(index_dtype))


def _running(primitive: Primitive, text: str) -> Callable[..., Any]:
    def function(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
        x = as_value(operand, primitive.name)
        axis = axis_of(axis, x.ndim, primitive.name)
        if is_complex(x.dtype) and primitive in (C.cummax_p, C.cummin_p, C.cumlogsumexp_p):
            return _running_complex(primitive, x, axis, bool(reverse))
        return bind_wide(primitive, x, axis=axis, reverse=bool(reverse))

    function.__name__ = function.__qualname__ = primitive.name
    function.__doc__ = text
    return function


def _running_complex(primitive: Primitive, x: Any, axis: int, reverse: bool) -> Any:
    """The prefix scans that kernels have for real numbers only, as associative scans."""
    from fuser.numpy.maths import logaddexp, principal

    if primitive is C.cumlogsumexp_p:
        step: Callable[..., Any] = logaddexp
        x = principal(x)
    else:
        step = E.max_p.bind if primitive is C.cummax_p else E.min_p.bind
    combine = lambda first, second: [step(*first, *second)]
    return C.directed(lambda values: C.associative(combine, values, axis), (x,), axis, reverse)[0]


cumsum = _running(C.cumsum_p, "The running sum along `axis`, from the end if `reverse`.")
cumprod = _running(C.cumprod_p, "The running product along `axis`, from the end if `reverse`.")
cummax = _running(C.cummax_p, "The running maximum along `axis`, from the end if `reverse`.")
cummin = _running(C.cummin_p, "The running minimum along `axis`, from the end if `reverse`.")
cumlogsumexp = _running(C.cumlogsumexp_p, "The running log(Σ exp) along `axis`, from the end if `reverse`.")


# Products.


def _width(dtype: np.dtype) -> tuple[Any, ...]:
    """What the dtypes of a product are ordered by: complex, exponent range, mantissa, bits, signed."""
    part = np.dtype(f"float{dtype.itemsize * 4}") if is_complex(dtype) else dtype
    info = dtypes.finfo(part) if is_inexact(part) else None
    bits = part.itemsize * 8
    return is_complex(dtype), info.maxexp if info else -1, info.nmant if info else -1, bits, dtype.kind != "u"


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: None = None,
) -> Any:
    """The contraction ((lhs, rhs contracted), (lhs, rhs batch)); batch dimensions come first in the result."""
    x, y = as_value(lhs, "dot_general"), as_value(rhs, "dot_general")
    (xc, yc), (xb, yb) = dimension_numbers
    numbers = (
        (axes_of(tuple(xc), x.ndim, "dot_general"), axes_of(tuple(yc), y.ndim, "dot_general")),
        (axes_of(tuple(xb), x.ndim, "dot_general"), axes_of(tuple(yb), y.ndim, "dot_general")),
    )
    element = None if preferred_element_type is None else dtypes.requested(preferred_element_type, "dot_general")
    if x.dtype != y.dtype:  # one dtype that holds both, and results in the wider of the two
        element = element or max(x.dtype, y.dtype, key=_width)
        small = x.dtype in SMALL_FLOATS and y.dtype in SMALL_FLOATS
        computed = np.dtype("float32") if small else dtypes.least_upper_bound(config.enable_x64, x.dtype, y.dtype)
        x, y = convert(x, computed), convert(y, computed)
        element = None if element == computed else element
    precision = (config.default_matmul_precision or None) if precision is None else precision
    return bind(dot_general_p, x, y, dimension_numbers=numbers, precision=precision, preferred_element_type=element)


def dot(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: None = None,
) -> Any:
    """The product of vectors and matrices, or the contraction of `dimension_numbers`."""
    x, y = as_value(lhs, "dot"), as_value(rhs, "dot")
    if dimension_numbers is None:
        if not (1 <= x.ndim <= 2 and 1 <= y.ndim <= 2 and x.shape[-1] == y.shape[0]):
            raise TypeRuleError(
                f"dot takes vectors and matrices with equal inner extents, got {type_of(x)} and {type_of(y)}"
            )
        dimension_numbers = (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Any:
    """The matrix products over equal leading dimensions."""
    x, y = as_value(lhs, "batch_matmul"), as_value(rhs, "batch_matmul")
    if x.ndim < 2 or x.ndim != y.ndim:
        raise TypeRuleError(f"batch_matmul needs equal ranks of at least 2, got {type_of(x)} and {type_of(y)}")
    batch = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch)), precision)


# Sorting.


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """The operand in ascending order along a dimension; of several operands the first `num_keys` are keys."""
    several = isinstance(operand, (tuple, list))
    values = [as_value(o, "sort") for o in (operand if several else (operand,))]
    if not values:
        raise TypeRuleError("sort needs at least one operand")
    axis = axis_of(dimension, values[0].ndim, "sort")
    results = bind_wide(sort_p, *values, dimension=axis, is_stable=is_stable, num_keys=num_keys)
    return tuple(results) if several else results[0]


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple[Any, Any]:
    """Keys in ascending order, and values moved with them."""
    first, second = sort((keys, values), dimension, is_stable, 1)
    return first, second


def top_k(operand: Any, k: int, *, axis: int = -1) -> tuple[Any, Any]:
    """The k greatest elements along `axis`, greatest first, and their positions (int32; ValueError where those do not fit)."""
    x = as_value(operand, "top_k")
    if x.ndim and x.shape[axis_of(axis, x.ndim, "top_k")] > np.iinfo(np.int32).max:
        raise ValueError(
            "top_k returns int32 indices, which will overflow for array dimensions larger than the maximum int32."
        )
    numbers = convert(x, np.dtype("uint8")) if x.dtype == BOOL else x
    values, positions = bind_wide(top_k_p, numbers, k=operator.index(k), axis=axis_of(axis, x.ndim, "top_k"))
    return convert(values, x.dtype), positions
