"""Elementwise operations, comparisons, conversions and choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import fuser.numpy as fnp
from fuser import lax
from fuser.interop.dynamo.rules.table import Refused, check_divisor, is_array, operand, rule, to_dtype, wide
from fuser.interop.torch.elementwise import BINARY, COMPARISONS, OWN_DTYPE, TRUTH, UNARY, clamp, gelu
from fuser.lax.values import broadcast_to, literal
from fuser.runtime.array import numpy_dtype, torch_dtype
from fuser.scipy import special


def _unary(name: str, function: Callable[[Any], Any]) -> None:
    rule(name)(lambda dtype, x: function(operand(x, wide(dtype))))


def _question(name: str, function: Callable[..., Any]) -> None:
    rule(name)(lambda dtype, *operands: function(*operands))


for _name, _function in UNARY.items():
    _unary(_name, _function)
_unary("round", fnp.round)
for _name, _function in {**OWN_DTYPE, **TRUTH}.items():
    _question(_name, _function)
rule("clone", "alias", "detach", "lift_fresh_copy")(lambda dtype, x, **more: x)


rule("_to_copy", "prims.convert_element_type.default")(lambda dtype, x, *unused, **more: to_dtype(x, dtype))


# Arithmetic. torch's result dtype is what both operands are converted to.


def _alpha(dtype: np.dtype, other: Any, alpha: Any) -> Any:
    return operand(other, dtype) if alpha == 1 else fnp.multiply(operand(other, dtype), operand(alpha, dtype))


@rule("add.Tensor", "add.Scalar")
def _add(dtype: np.dtype, x: Any, y: Any, alpha: Any = 1) -> Any:
    if dtype.kind == "b":
        return fnp.logical_or(operand(x, dtype), operand(y, dtype))
    return fnp.add(operand(x, wide(dtype)), _alpha(wide(dtype), y, alpha))


@rule("sub.Tensor", "sub.Scalar")
def _sub(dtype: np.dtype, x: Any, y: Any, alpha: Any = 1) -> Any:
    return fnp.subtract(operand(x, wide(dtype)), _alpha(wide(dtype), y, alpha))


@rule("rsub.Tensor", "rsub.Scalar")
def _rsub(dtype: np.dtype, x: Any, y: Any, alpha: Any = 1) -> Any:
    return fnp.subtract(operand(y, wide(dtype)), _alpha(wide(dtype), x, alpha))


def _binary(function: Callable[[Any, Any], Any], *names: str) -> None:
    rule(*names)(lambda dtype, x, y: function(operand(x, wide(dtype)), operand(y, wide(dtype))))


for _name, _function in BINARY.items():
    _binary(_function, _name, *(f"{_name}.{of}" for of in ("Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar")))


def _divisor(dtype: np.dtype, y: Any) -> Any:
    """What an operation divides by; torch raises for an integer zero."""
    divisor = operand(y, wide(dtype))
    if dtype.kind in "iu":
        if is_array(y):
            check_divisor(divisor)
        elif y == 0:
            raise Refused("integer division by zero, for which torch raises")
    return divisor


def _remainder(function: Callable[[Any, Any], Any], name: str) -> None:
    rule(f"{name}.Tensor", f"{name}.Scalar", f"{name}.Scalar_Tensor")(
        lambda dtype, x, y: function(operand(x, wide(dtype)), _divisor(dtype, y))
    )


_remainder(fnp.fmod, "fmod")
_remainder(fnp.remainder, "remainder")


@rule("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "true_divide.Tensor")
def _div(dtype: np.dtype, x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    x, y = operand(x, wide(dtype)), _divisor(dtype, y)
    if rounding_mode == "floor":
        return fnp.floor_divide(x, y)
    if dtype.kind in "iu":
        return lax.div(*fnp.broadcast_arrays(x, y))
    quotient = fnp.divide(x, y)
    return quotient if rounding_mode is None else fnp.trunc(quotient)


def _integer_power(base: Any, exponent: Any) -> Any:
    """Modulo the dtype's range; to negative exponents 0, but of 1 and -1, which are their own inverses."""
    if base.dtype.kind != "i":
        return fnp.power(base, exponent)
    inverse = fnp.where(fnp.less_equal(fnp.abs(base), 1), base, literal(0, base.dtype))
    negative = fnp.less(exponent, literal(0, exponent.dtype))
    return fnp.power(fnp.where(negative, inverse, base), fnp.abs(exponent))


def _power(dtype: np.dtype, x: Any, y: Any) -> Any:
    base = operand(x, wide(dtype))
    if not is_array(y) and dtype.kind not in "iub":
        if y == 0.5:
            return fnp.sqrt(base)
        if float(y).is_integer() and abs(y) <= 4:
            return lax.integer_pow(base, int(y))
    if dtype.kind in "iub":
        if is_array(y):
            return _integer_power(base, operand(y, dtype))
        if float(y).is_integer() and y >= 0:
            return lax.integer_pow(base, int(y))
        raise Refused("integer powers raise where the exponent is negative")
    return fnp.power(base, operand(y, wide(dtype)))


rule("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")(_power)


def common(x: Any, y: Any) -> np.dtype:
    """The dtype in which torch compares: that of its promotion."""
    own = [
        torch.empty((1,) * len(v.shape), dtype=torch_dtype(v.dtype), device="meta") if is_array(v) else v
        for v in (x, y)
    ]
    return numpy_dtype(torch.result_type(*own))


def _comparison(name: str, function: Callable[[Any, Any], Any]) -> None:
    def compared(dtype: np.dtype, x: Any, y: Any) -> Any:
        both = common(x, y)
        return function(operand(x, both), operand(y, both))

    rule(f"{name}.Tensor", f"{name}.Scalar")(compared)


for _name, (_, _function) in COMPARISONS.items():
    _comparison(_name, _function)


# Choices.

rule("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")(
    lambda dtype, c, x, y: fnp.where(c, operand(x, dtype), operand(y, dtype))
)
rule("masked_fill.Scalar", "masked_fill.Tensor")(
    lambda dtype, x, mask, value: fnp.where(mask, operand(value, dtype), operand(x, dtype))
)


@rule("clamp", "clamp.Tensor")
def _clamp(dtype: np.dtype, x: Any, low: Any = None, high: Any = None) -> Any:
    return clamp(operand(x, dtype), *[None if bound is None else operand(bound, dtype) for bound in (low, high)])


rule("clamp_min", "clamp_min.Tensor")(lambda dtype, x, low: _clamp(dtype, x, low))
rule("clamp_max", "clamp_max.Tensor")(lambda dtype, x, high: _clamp(dtype, x, None, high))
rule("hardtanh")(lambda dtype, x, low=-1.0, high=1.0: _clamp(dtype, x, low, high))


# Activations, computed in float32 at least.


rule("gelu")(lambda dtype, x, approximate="none": gelu(operand(x, wide(dtype)), approximate))


@rule("leaky_relu")
def _leaky_relu(dtype: np.dtype, x: Any, slope: float = 0.01) -> Any:
    x = operand(x, wide(dtype))
    return fnp.where(fnp.greater(x, 0), x, fnp.multiply(x, operand(slope, x.dtype)))


@rule("elu")
def _elu(dtype: np.dtype, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    x = operand(x, wide(dtype))
    low = fnp.multiply(fnp.expm1(fnp.multiply(x, float(input_scale))), float(alpha * scale))
    return fnp.where(fnp.greater(x, 0), fnp.multiply(x, float(scale)), low)


rule("polygamma")(
    lambda dtype, order, x: special.polygamma(literal(order, np.dtype(np.int32)), operand(x, wide(dtype)))
)
rule("special_zeta")(lambda dtype, x, q: special.zeta(operand(x, wide(dtype)), operand(q, wide(dtype))))
rule("fill.Scalar", "fill.Tensor")(lambda dtype, x, value: broadcast_to(operand(value, dtype), tuple(x.shape)))


@rule("prims.fma.default")
def _fma(dtype: np.dtype, x: Any, y: Any, z: Any) -> Any:
    own = wide(dtype)
    return fnp.add(fnp.multiply(operand(x, own), operand(y, own)), operand(z, own))


@rule("addcmul")
def _addcmul(dtype: np.dtype, x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    own = wide(dtype)
    return fnp.add(operand(x, own), fnp.multiply(fnp.multiply(operand(value, own), operand(a, own)), operand(b, own)))
