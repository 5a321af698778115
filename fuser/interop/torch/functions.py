"""How the functions and methods of torch that can be traced are computed: a table from torch's names to fuser.numpy.

A handler gets the dtype of torch's result, then torch's own arguments; `lift` brings operands to a dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser import lax, nn
from fuser.interop.torch.elementwise import BINARY, COMPARISONS, OWN_DTYPE, TRUTH, UNARY, clamp, gelu
from fuser.interop.torch.tensors import common, lift, refused
from fuser.lax.values import broadcast_to, literal

Handler = Callable[..., Any]
TABLE: dict[str, Handler] = {}


def register(handler: Handler, *names: str) -> None:
    for name in names:
        TABLE[name] = handler


# Elementwise.


def _unary(function: Handler) -> Handler:
    return lambda dtype, input, inplace=False, **more: function(lift(_fresh(input, inplace), dtype), **more)


def _fresh(x: Any, inplace: bool) -> Any:
    if inplace:
        raise refused("inplace=True changes a tensor in place and cannot be traced", "leave it out")
    return x


def _own_dtype(function: Handler) -> Handler:
    return lambda dtype, input: function(lift(input))


for _name, _function in UNARY.items():
    register(_unary(_function), _name)
for _name, _function in OWN_DTYPE.items():
    register(_own_dtype(_function), _name)
for _name in ("asin", "acos", "atan", "asinh", "acosh", "atanh"):
    register(_unary(UNARY[_name]), _name.replace("a", "arc", 1))
register(_own_dtype(fnp.isfinite), "isfinite")
register(_own_dtype(fnp.abs), "absolute")
register(_unary(fnp.negative), "negative")
register(_unary(fnp.bitwise_not), "invert")
register(lambda dtype, input, decimals=0: fnp.round(lift(input, dtype), decimals), "round")
register(lambda dtype, input: fnp.subtract(lift(input, dtype), fnp.trunc(lift(input, dtype))), "frac")
register(_unary(nn.relu6), "relu6")
register(_unary(nn.log_sigmoid), "log_sigmoid")
register(_unary(nn.mish), "mish")
register(_unary(nn.hard_sigmoid), "hardsigmoid")
register(_unary(nn.hard_silu), "hardswish")
register(lambda dtype, input, approximate="none": gelu(lift(input, dtype), approximate), "gelu")
register(lambda dtype, input, alpha=1.0, inplace=False: nn.elu(lift(_fresh(input, inplace), dtype), alpha), "elu")
register(
    lambda dtype, input, negative_slope=0.01, inplace=False: nn.leaky_relu(
        lift(_fresh(input, inplace), dtype), negative_slope
    ),
    "leaky_relu",
)


def _softplus(dtype: np.dtype, input: Any, beta: float = 1, threshold: float = 20) -> Any:
    x = lift(input, dtype)
    scaled = fnp.multiply(x, literal(beta, dtype))
    return fnp.where(fnp.greater(scaled, threshold), x, fnp.divide(nn.softplus(scaled), literal(beta, dtype)))


register(_softplus, "softplus")


def _binary(function: Handler) -> Handler:
    return lambda dtype, input, other: function(lift(input, dtype), lift(other, dtype))


def swapped(function: Handler) -> Handler:
    return lambda dtype, input, other: function(lift(other, dtype), lift(input, dtype))


def _compared(function: Handler) -> Handler:
    def handler(dtype: np.dtype, input: Any, other: Any) -> Any:
        both = common(input, other)
        return function(lift(input, both), lift(other, both))

    return handler


def _truth(function: Handler) -> Handler:
    return lambda dtype, input, other: function(lift(input), lift(other))


def _scaled(function: Handler) -> Handler:
    def handler(dtype: np.dtype, input: Any, other: Any, *, alpha: Any = 1) -> Any:
        second = lift(other, dtype)
        return function(lift(input, dtype), second if alpha == 1 else fnp.multiply(second, lift(alpha, dtype)))

    return handler


register(_scaled(fnp.add), "add", "radd")
register(_scaled(fnp.subtract), "sub", "subtract")
register(swapped(fnp.subtract), "rsub")
register(swapped(fnp.divide), "rtruediv", "rdiv")
for _name, _function in BINARY.items():
    register(_binary(_function), _name)
for _name, _function in TRUTH.items():
    register(_truth(_function), _name)
register(_binary(fnp.multiply), "multiply", "rmul")
register(_binary(fnp.arctan2), "arctan2")
for _name in ("fmod", "remainder", "floor_divide", "logaddexp"):
    register(_binary(getattr(fnp, _name)), _name)
for _name in ("and", "or", "xor"):
    register(_binary(BINARY[f"bitwise_{_name}"]), _name, f"r{_name}")
register(_binary(fnp.remainder), "mod")
register(_binary(fnp.floor_divide), "floordiv")
register(swapped(fnp.floor_divide), "rfloordiv")
for _short, (_long, _function) in COMPARISONS.items():
    register(_compared(_function), _short, _long)


def _divide(dtype: np.dtype, input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    x, y = lift(input, dtype), lift(other, dtype)
    if rounding_mode == "floor":
        return fnp.floor_divide(x, y)
    return fnp.trunc(fnp.divide(x, y)) if rounding_mode == "trunc" else fnp.divide(x, y)


register(_divide, "div", "divide", "true_divide", "truediv")


def _power(dtype: np.dtype, input: Any, exponent: Any) -> Any:
    if type(exponent) is int or (type(exponent) is float and exponent in (2.0, 3.0, 0.5, -1.0)):
        x = lift(input, dtype)
        return fnp.sqrt(x) if exponent == 0.5 else fnp.power(x, int(exponent))
    return fnp.power(lift(input, dtype), lift(exponent, dtype))


register(_power, "pow")
register(lambda dtype, input, other: _power(dtype, other, input), "rpow")


def _where(dtype: np.dtype, condition: Any, input: Any = None, other: Any = None) -> Any:
    if input is None:
        raise refused("torch.where(condition) gives as many positions as the values have, so it cannot be traced")
    return fnp.where(lift(condition), lift(input, dtype), lift(other, dtype))


register(_where, "where")
register(lambda dtype, input, mask, value: fnp.where(lift(mask), lift(value, dtype), lift(input, dtype)), "masked_fill")


def _clamp(dtype: np.dtype, input: Any, min: Any = None, max: Any = None) -> Any:
    return clamp(lift(input, dtype), *[None if bound is None else lift(bound, dtype) for bound in (min, max)])


register(_clamp, "clamp", "clip")
register(lambda dtype, input, min: _clamp(dtype, input, min), "clamp_min")
register(lambda dtype, input, max: _clamp(dtype, input, None, max), "clamp_max")
register(
    lambda dtype, input, min_val=-1.0, max_val=1.0, inplace=False: _clamp(
        dtype, _fresh(input, inplace), min_val, max_val
    ),
    "hardtanh",
)
register(
    lambda dtype, input, end, weight: (lambda x, y, w: fnp.add(x, fnp.multiply(w, fnp.subtract(y, x))))(
        lift(input, dtype), lift(end, dtype), lift(weight, dtype)
    ),
    "lerp",
)
register(
    lambda dtype, input, a, b, *, value=1: fnp.add(
        lift(input, dtype), fnp.multiply(lift(value, dtype), fnp.multiply(lift(a, dtype), lift(b, dtype)))
    ),
    "addcmul",
)
register(
    lambda dtype, input, a, b, *, value=1: fnp.add(
        lift(input, dtype), fnp.multiply(lift(value, dtype), fnp.divide(lift(a, dtype), lift(b, dtype)))
    ),
    "addcdiv",
)

# Conversion and copies.


def _same(dtype: np.dtype, input: Any, *args: Any, **kwargs: Any) -> Any:
    return lift(input, dtype)


register(
    _same,
    "to",
    "type",
    "float",
    "double",
    "half",
    "bfloat16",
    "int",
    "long",
    "short",
    "bool",
    "type_as",
    "pos",
    "positive",
)
register(_same, "clone", "contiguous")
register(lambda dtype, input: lax.stop_gradient(lift(input)), "detach")


def _filled(value: Any) -> Handler:
    return lambda dtype, input, **more: broadcast_to(literal(value, dtype), tuple(input.shape))


register(_filled(0), "zeros_like", "empty_like")
register(_filled(1), "ones_like")
register(
    lambda dtype, input, fill_value, **more: broadcast_to(lift(fill_value, dtype), tuple(input.shape)), "full_like"
)
