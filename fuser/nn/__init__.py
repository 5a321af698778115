"""Neural network functions, with jax.nn's names: activations, softmax and its relatives, normalisation, one_hot.

Each is made of `fuser.numpy`, so a softmax or a normalisation is one kernel, alone and with its gradient. The maximum
that softmax subtracts cancels, and carries no gradient.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fuser import dtypes
from fuser import numpy as fnp
from fuser.gaps import absent
from fuser.ir.types import is_complex, is_inexact
from fuser.lax.layouts import install as _install_layouts
from fuser.lax.marks import stop_gradient
from fuser.lax.ranks import install as _install_ranks
from fuser.lax.replayed import install as _install_replays
from fuser.lax.scaled import scaled_dot
from fuser.lax.values import as_value, axes_of, axis_of, convert, literal
from fuser.numpy.ufuncs import inexact_operand
from fuser.ops import elementwise as E
from fuser.ops import logarithms as L
from fuser.scipy.special import expit, logsumexp
from fuser.trace.core import bind
from fuser.transforms.custom_jvp import custom_jvp

sigmoid = expit
tanh = fnp.tanh


def scaled_matmul(
    lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, preferred_element_type: Any = np.float32
) -> Any:
    """The products (B, M, N) of lhs (B, M, K) and rhs (B, N, K), blocks of whose last dimensions have a scale each.

    lhs_scales is (B, M, K/b) and rhs_scales (B, N, K/b). ValueError for other ranks, TypeRuleError for shapes that do not fit.
    """
    if not all(x.ndim == 3 for x in (lhs, rhs, lhs_scales, rhs_scales)):
        raise ValueError("scaled_matmul requires all inputs to be 3-dimensional arrays")
    if lhs.shape[0] != rhs.shape[0] or lhs.shape[2] != rhs.shape[2]:
        raise ValueError(
            "scaled_matmul requires inputs a and b to have matching batch (B) and contract (K) dimensions, but got shapes "
            f"{lhs.shape} and {rhs.shape}"
        )
    numbers = (((2,), (2,)), ((0,), (0,)))
    scales = {"lhs_scale": lhs_scales, "rhs_scale": rhs_scales}
    return scaled_dot(lhs, rhs, **scales, dimension_numbers=numbers, preferred_element_type=preferred_element_type)


def relu(x: Any) -> Any:
    """max(x, 0), with derivative 0 at 0."""
    x = as_value(x, "relu")
    return fnp.where(x <= 0, 0, x)


def _weakly(function: str, x: Any) -> Any:
    """The operand; integers as weak floats, whose dtype gives way to that of what they meet."""
    value = as_value(x, function)
    return value if is_inexact(value.dtype) else convert(value, dtypes.canonical(float), True)


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6), with derivative 0 at 0 and at 6."""
    x = _weakly("relu6", x)
    return fnp.where(x <= 0, 0.0, fnp.where(x >= 6, 6.0, x))


def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    return fnp.logaddexp(x, 0)


def sparse_plus(x: Any) -> Any:
    """0 up to -1, (x + 1)²/4 up to 1, x above."""
    x = _weakly("sparse_plus", x)
    return fnp.where(x <= -1.0, 0.0, fnp.where(x >= 1.0, x, (x + 1.0) ** 2 / 4))


def sparse_sigmoid(x: Any) -> Any:
    """(x + 1)/2 cut to [0, 1]."""
    return 0.5 * fnp.clip(fnp.asarray(x) + 1.0, 0.0, 2.0)


def soft_sign(x: Any) -> Any:
    """x / (1 + |x|)."""
    x = as_value(x, "soft_sign")
    return x / (fnp.abs(x) + 1)


def silu(x: Any) -> Any:
    """x·sigmoid(x)."""
    x = inexact_operand("silu", x)
    return x * sigmoid(x)


swish = silu


def mish(x: Any) -> Any:
    """x·tanh(softplus(x))."""
    x = as_value(x, "mish")
    return x * fnp.tanh(softplus(x))


def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x))."""
    return -softplus(-inexact_operand("log_sigmoid", x))


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """x above 0, alpha·(exp(x) - 1) below."""
    x = _weakly("elu", x)
    return fnp.where(x > 0, x, alpha * fnp.expm1(fnp.where(x > 0, 0.0, x)))


def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Any:
    """x from 0 on, negative_slope·x below."""
    x = _weakly("leaky_relu", x)
    return fnp.where(x >= 0, x, negative_slope * x)


def hard_tanh(x: Any) -> Any:
    """x cut to [-1, 1]."""
    x = as_value(x, "hard_tanh")
    return fnp.where(x > 1, 1, fnp.where(x < -1, -1, x))


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """max(x, 0) + alpha·(exp(min(x, 0)/alpha) - 1)."""
    return fnp.maximum(x, 0.0) + alpha * fnp.expm1(fnp.minimum(x, 0.0) / alpha)


def selu(x: Any) -> Any:
    """The self-normalising elu of Klambauer et al., 2017."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


def gelu(x: Any, approximate: bool = True) -> Any:
    """x·Φ(x), by tanh or (with approximate=False) by erf."""
    x = inexact_operand("gelu", x)
    if not approximate:
        return 0.5 * x * bind(E.erfc_p, -x * literal(np.sqrt(0.5), x.dtype))
    inner = literal(np.sqrt(2 / np.pi), x.dtype) * (x + 0.044715 * (x**3))
    return x * (0.5 * (1.0 + fnp.tanh(inner)))


def glu(x: Any, axis: int = -1) -> Any:
    """The first half along `axis` times the sigmoid of the second."""
    x = inexact_operand("glu", x)
    extent = x.shape[axis]
    if extent % 2:
        raise ValueError(f"glu needs an even extent along its axis, got {extent}")
    first, second = fnp.split(x, 2, axis)
    return first * sigmoid(second)


def squareplus(x: Any, b: Any = 4) -> Any:
    """(x + √(x² + b)) / 2."""
    x = inexact_operand("squareplus", x)
    return (x + fnp.sqrt(fnp.square(x) + b)) / 2


def hard_sigmoid(x: Any) -> Any:
    """relu6(x + 3) / 6."""
    return relu6(_weakly("hard_sigmoid", x) + 3.0) / 6.0


def hard_silu(x: Any) -> Any:
    """x·hard_sigmoid(x)."""
    x = _weakly("hard_silu", x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


def identity(x: Any) -> Any:
    """The values of x, as an array."""
    return fnp.positive(x)


# Over an axis.


def softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """exp(x) over its sum along `axis`; elements outside `where` get 0."""
    return _softmax(inexact_operand("softmax", x), where, axis)


@functools.partial(custom_jvp, nondiff_argnums=(2,))
def _softmax(x: Any, where: Any, axis: Any) -> Any:
    exponents = fnp.exp(_chosen(x, where) - _greatest(x, axis, where))
    result = exponents / fnp.sum(exponents, axis, where=where, keepdims=True)
    return result if where is None else fnp.where(where, result, 0)


@_softmax.defjvp
def _(axis: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Of the result alone, so that exponentials need not be kept for a gradient."""
    y, t = _softmax(*primals, axis), tangents[0]
    return y, y * (t - fnp.sum(y * t, axis, where=primals[1], keepdims=True))


def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """The logarithm of `softmax`; elements outside `where` get -inf."""
    x = inexact_operand("log_softmax", x)
    shifted = _chosen(x, where) - _greatest(x, axis, where)
    logarithm = fnp.log(fnp.sum(fnp.exp(shifted), axis, where=where, keepdims=True))
    result = shifted - logarithm
    return result if where is None else fnp.where(where, result, -np.inf)


def _chosen(x: Any, where: Any) -> Any:
    """`x` with -inf outside `where`: what stands there may be infinite or nan, and must not reach a derivative."""
    return x if where is None else fnp.where(where, x, -np.inf)


def _greatest(x: Any, axis: Any, where: Any) -> Any:
    start = -np.inf if where is not None or 0 in x.shape else None
    return stop_gradient(fnp.max(x, axis, keepdims=True, where=where, initial=start))


def logmeanexp(x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Any:
    """The logarithm of the mean of exp(x)."""
    x = as_value(x, "logmeanexp")
    total = logsumexp(x, axis=axis, where=where, keepdims=keepdims)
    if where is None:
        count: Any = float(np.prod([x.shape[d] for d in axes_of(axis, x.ndim)]))
        return total - float(np.log(count))
    return total - fnp.log(fnp.sum(fnp.broadcast_to(where, x.shape), axis, keepdims=keepdims))


def standardize(
    x: Any,
    axis: Any = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: Any = 1e-5,
    where: Any = None,
    *,
    algorithm: str = "fast",
) -> Any:
    """`x` with mean 0 and variance 1 along `axis`; `epsilon` is added to the variance.

    The variance is the mean of squares less the square of the mean, 0 at least, with the algorithm "fast"; with "stable" the mean
    of the squares of what is left without the mean, which does not cancel. ValueError for other algorithms.
    """
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"Unknown algorithm {algorithm!r}. Expected 'fast' or 'stable'.")
    x = inexact_operand("standardize", x)
    if mean is None:
        mean = fnp.mean(x, axis, keepdims=True, where=where)
    if variance is None and algorithm == "stable":
        variance = fnp.mean(fnp.square(x - mean), axis, keepdims=True, where=where)
    elif variance is None:
        variance = fnp.mean(fnp.square(x), axis, keepdims=True, where=where) - fnp.square(mean)
        variance = fnp.clip(variance, 0)
    return (x - mean) * bind(E.rsqrt_p, fnp.asarray(variance + epsilon))


def one_hot(x: Any, num_classes: int, *, dtype: Any = None, axis: Any = -1, out_sharding: Any = None) -> Any:
    """Each integer as a vector with a 1 at that place; zeros for integers outside."""
    x = fnp.asarray(x)
    found = dtypes.canonical(float if dtype is None else dtype)
    axis = axis_of(axis, x.ndim + 1, "one_hot")
    wide = fnp.expand_dims(x, axis)
    shape = tuple(num_classes if d == axis else 1 for d in range(x.ndim + 1))
    positions = fnp.reshape(fnp.arange(num_classes, dtype=x.dtype if x.dtype.kind in "iuf" else None), shape)
    return convert(wide == positions, found)


def log1mexp(x: Any) -> Any:
    """log(1 - exp(-x)) for x > 0, exact at both ends."""
    x = inexact_operand("log1mexp", x)
    if is_complex(x.dtype):
        raise TypeError("log1mexp takes real numbers")
    return bind(L.log1mexp_p, x)


# Reached through this module.
from fuser.nn import initializers  # noqa: E402, F401
from fuser.nn.attention import dot_product_attention  # noqa: E402, F401

_install_ranks(globals(), "fuser.nn")
_install_layouts(globals(), "fuser.nn")
_COMPILED = "celu elu gelu glu hard_silu log_sigmoid log_softmax mish selu silu softmax squareplus standardize"
_install_replays(globals(), "fuser.nn", compiled=_COMPILED.split())

__getattr__ = absent(__name__)
