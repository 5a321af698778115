"""What torch's elementwise functions compute, by torch's names: of operands that have the dtype of the computation already.

One table serves the functions that `accelerate` traces (`functions.py`) and the operations of `torch.compile`'s graphs
(`fuser/interop/dynamo/rules/elementwise.py`), which differ in how they name, convert and refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fuser.numpy as fnp
from fuser import nn
from fuser.lax.values import literal
from fuser.ops import elementwise as E
from fuser.scipy import special
from fuser.trace.core import bind

Function = Callable[..., Any]


def _sign(x: Any) -> Any:
    """torch's, which is 0 of nan."""
    return (
        fnp.where(fnp.not_equal(x, x), literal(0, x.dtype), fnp.sign(x)) if x.dtype.kind not in "iub" else fnp.sign(x)
    )


_FLOAT = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")
_SAME = (*_FLOAT, "floor", "ceil", "trunc", "square", "reciprocal", "bitwise_not")
UNARY: dict[str, Function] = {
    **{name: getattr(fnp, name) for name in _SAME},
    **{name: getattr(fnp, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    **{name: getattr(special, name) for name in ("erf", "erfc", "erfinv", "digamma", "i0")},
    **{
        f"special_{name}": getattr(special, name) for name in ("i0e", "i1", "i1e", "erfcx", "ndtri", "log_ndtr", "entr")
    },
    "lgamma": special.gammaln,
    "neg": fnp.negative,
    "sign": _sign,
    "rsqrt": lambda x: bind(E.rsqrt_p, x),
    "sigmoid": nn.sigmoid,
    "relu": nn.relu,
    "silu": nn.silu,
}
"""Functions whose operand has the result's dtype."""

OWN_DTYPE: dict[str, Function] = {
    name: getattr(fnp, name) for name in ("isnan", "isinf", "logical_not", "abs", "signbit", "angle")
}
"""Functions whose operand keeps its dtype."""

BINARY: dict[str, Function] = {
    "mul": fnp.multiply,
    "maximum": fnp.maximum,
    "minimum": fnp.minimum,
    "atan2": fnp.arctan2,
    **{name: getattr(fnp, name) for name in ("hypot", "copysign", "nextafter", "fmax", "fmin", "gcd", "lcm")},
    **{name: getattr(special, of) for name, of in (("igamma", "gammainc"), ("igammac", "gammaincc"))},
    **dict.fromkeys(("bitwise_left_shift", "__lshift__"), fnp.left_shift),
    **dict.fromkeys(("bitwise_right_shift", "__rshift__"), fnp.right_shift),
    **{f"bitwise_{name}": getattr(fnp, f"bitwise_{name}") for name in ("and", "or", "xor")},
}
"""Functions whose operands have the result's dtype."""

TRUTH: dict[str, Function] = {f"logical_{name}": getattr(fnp, f"logical_{name}") for name in ("and", "or", "xor")}
"""Functions of two truth values, of any dtypes."""

COMPARISONS: dict[str, tuple[str, Function]] = {
    short: (long, getattr(fnp, long))
    for short, long in (
        ("eq", "equal"),
        ("ne", "not_equal"),
        ("lt", "less"),
        ("le", "less_equal"),
        ("gt", "greater"),
        ("ge", "greater_equal"),
    )
}
"""Comparisons, whose operands have the dtype of torch's promotion: each with its long name."""


def clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    """`x` between bounds of its dtype; the upper one wins."""
    x = x if low is None else fnp.maximum(x, low)
    return x if high is None else fnp.minimum(x, high)


def gelu(x: Any, approximate: str = "none") -> Any:
    """x Φ(x), or its approximation by a hyperbolic tangent. Hendrycks and Gimpel, "Gaussian error linear units" (2016)."""
    return nn.gelu(x, approximate=approximate == "tanh")
