"""Arithmetic of single elements in float64 through primitives: what expansions are written in.

A `Value` is an array with Python's operators, whose numbers take its dtype whatever the setting of 64-bit types is. The functions
have NumPy's names, so that a formula that takes a module of functions takes this one too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.ir.graph import Graph
from fuser.ir.primitive import Primitive
from fuser.ir.types import ArrayType, is_complex
from fuser.ops import elementwise as el
from fuser.ops.control.while_loop import while_p
from fuser.ops.family import common_shape
from fuser.ops.movement import broadcast_in_dim_p
from fuser.ops.special import digamma_p
from fuser.trace.core import type_of
from fuser.trace.stage import stage

F64 = np.dtype("float64")


class Value:
    """An array of float64, or of truth values."""

    __slots__ = ("array",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: Any) -> None:
        self.array = array

    def __neg__(self) -> Any:
        return Value(el.neg_p.bind(self.array))

    def __invert__(self) -> Any:
        return Value(el.not_p.bind(self.array))


def _operand(x: Any) -> Any:
    return x.array if isinstance(x, Value) else np.asarray(x, F64)


def _applied(primitive: Primitive, *operands: Any) -> Any:
    """The primitive on values and numbers; on numbers alone its eval rule's number."""
    if not any(isinstance(x, Value) for x in operands):
        return primitive.rule("eval")(*(np.asarray(x) for x in operands))
    return Value(primitive.bind(*map(_operand, operands)))


def _function(primitive: Primitive) -> Callable[..., Any]:
    return functools.partial(_applied, primitive)


for _name, _primitive in {
    **{"add": el.add_p, "sub": el.sub_p, "mul": el.mul_p, "truediv": el.div_p},
    **{"lt": el.lt_p, "le": el.le_p, "gt": el.gt_p, "ge": el.ge_p, "and": el.and_p, "or": el.or_p},
}.items():
    setattr(Value, f"__{_name}__", lambda x, y, p=_primitive: _applied(p, x, y))
    if _name in ("add", "sub", "mul", "truediv"):
        setattr(Value, f"__r{_name}__", lambda x, y, p=_primitive: _applied(p, y, x))

exp, expm1, log, log1p, sqrt = map(_function, (el.exp_p, el.expm1_p, el.log_p, el.log1p_p, el.sqrt_p))
sin, cos, tan, floor, abs = map(_function, (el.sin_p, el.cos_p, el.tan_p, el.floor_p, el.abs_p))
erf, erfc, lgamma, arctan2 = map(_function, (el.erf_p, el.erfc_p, el.lgamma_p, el.atan2_p))
digamma = _function(digamma_p)
maximum, minimum, equal, not_equal = map(_function, (el.max_p, el.min_p, el.eq_p, el.ne_p))


def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where the condition holds, elsewhere `y`."""
    shape = common_shape("where", [type_of(_operand(v)) for v in (condition, x, y)])
    return Value(el.select_n_p.bind(*(_spread(_operand(v), shape) for v in (condition, y, x))))


def isinf(x: Any) -> Any:
    return equal(abs(x), np.inf)


def isnan(x: Any) -> Any:
    return not_equal(x, x)


def choice(cases: Sequence[tuple[Any, Any]], otherwise: Any) -> Any:
    """The value of the first case whose condition holds."""
    result = otherwise
    for condition, value in reversed(cases):
        result = where(condition, value, result)
    return result


def _spread(array: Any, shape: tuple[int, ...]) -> Any:
    if type_of(array).shape == shape:
        return array
    return broadcast_in_dim_p.bind(array, shape=shape, broadcast_dimensions=())


def iterate(
    test: Callable[..., Any], step: Callable[..., Sequence[Any]], start: Sequence[Any], fixed: Sequence[Value]
) -> list[Any]:
    """The state from `start` by `state = step(*fixed, *state)` while `test(*fixed, *state)`, each element for itself.

    `fixed` does not change, and gives the shape. A test must be false of nan, so that every loop ends.
    """
    shape = type_of(fixed[0].array).shape
    carries = [_spread(_operand(x), shape) for x in start]
    held = [x.array for x in fixed]
    avals = tuple(ArrayType(shape, type_of(x).dtype) for x in (*held, *carries))
    graphs = [_staged(function, avals) for function in (lambda *state: [test(*state)], step)]
    results = while_p.bind(
        *held,
        *held,
        *carries,
        cond_nconsts=len(held),
        cond_jaxpr=graphs[0],
        body_nconsts=len(held),
        body_jaxpr=graphs[1],
    )
    return [Value(x) for x in results]


def _staged(function: Callable[..., Sequence[Any]], avals: tuple[ArrayType, ...]) -> Graph:
    shape = avals[0].shape
    return stage(lambda *xs: [_spread(_operand(r), shape) for r in function(*map(Value, xs))], list(avals))


def repeat(count: int, step: Callable[..., Sequence[Any]], start: Sequence[Any], fixed: Sequence[Value]) -> list[Any]:
    """The state after `count` steps; `step(*fixed, number, *state)` gets the number of the step, from 0."""
    test = lambda *values: values[len(fixed)] < float(count)
    further = lambda *values: [values[len(fixed)] + 1, *step(*values)]
    return iterate(test, further, [0.0, *start], fixed)[1:]


def expansion(function: Callable[..., Any]) -> Callable[..., Any]:
    """The expand rule of a primitive on single elements, by a function of Values of one shape in float64. Complex operands come as
    their real and their imaginary parts, and so goes a complex result."""

    def expand(*operands: Any, **params: Any) -> Any:
        avals = [type_of(o) for o in operands]
        dtype, shape = avals[0].dtype, common_shape("expansion", avals)
        parts = [p for o in operands for p in _parts(o, dtype)]
        result = function(*(Value(_spread(p, shape)) for p in parts), **params)
        if not is_complex(dtype):
            return _converted(result.array, dtype)
        real = np.dtype(f"float{dtype.itemsize * 4}")
        return el.complex_p.bind(*(_converted(part.array, real) for part in result))

    return expand


def _parts(operand: Any, dtype: np.dtype) -> list[Any]:
    whole = [el.real_p.bind(operand), el.imag_p.bind(operand)] if is_complex(dtype) else [operand]
    return [_converted(part, F64) for part in whole]


def _converted(array: Any, dtype: np.dtype) -> Any:
    if type_of(array).dtype == dtype:
        return array
    return el.convert_element_type_p.bind(array, new_dtype=dtype, weak_type=False)
