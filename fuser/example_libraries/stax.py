"""jax.example_libraries.stax's names: layers of networks as pairs of functions, and ways to put them together.

A layer is (init, apply): `init(key, input shape) -> (output shape, parameters)`, `apply(parameters, inputs, rng=key)`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from fuser import lax, random
from fuser import numpy as fnp
from fuser.nn import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    selu,
    sigmoid,
    softmax,
    softplus,
    standardize,
)
from fuser.nn.initializers import glorot_normal, normal, ones, zeros

__all__ = [
    "AvgPool", "BatchNorm", "Conv", "Conv1DTranspose", "ConvTranspose", "Dense", "Dropout", "Elu", "Exp", "FanInConcat",
    "FanInSum", "FanOut", "Flatten", "Gelu", "GeneralConv", "GeneralConvTranspose", "Identity", "LeakyRelu", "LogSoftmax",
    "MaxPool", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "SumPool", "Tanh", "elementwise", "elu", "gelu", "glorot",
    "glorot_normal", "leaky_relu", "log_softmax", "logsoftmax", "normal", "ones", "parallel", "randn", "relu", "selu",
    "serial", "shape_dependent", "sigmoid", "softmax", "softplus", "standardize", "zeros",
]  # fmt: skip

Layer = tuple[Callable[..., Any], Callable[..., Any]]
glorot, randn, logsoftmax = glorot_normal, normal, log_softmax
_WEIGHTS, _BIASES, _SMALL_BIASES = glorot_normal(), normal(), normal(1e-6)


# Layers with parameters.


def Dense(out_dim: int, W_init: Any = _WEIGHTS, b_init: Any = _BIASES) -> Layer:
    """inputs · W + b, with W (inputs, out_dim)."""

    def init(rng: Any, input_shape: Any) -> Any:
        first, second = random.split(rng)
        return (*input_shape[:-1], out_dim), (W_init(first, (input_shape[-1], out_dim)), b_init(second, (out_dim,)))

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        return fnp.dot(inputs, W) + b

    return init, apply


def _convolution(
    shape_of: Callable[..., Any], convolve: Callable[..., Any], dimension_numbers: Any, out_chan: int,
    filter_shape: Sequence[int], strides: Any, padding: Any, W_init: Any, b_init: Any,
) -> Layer:  # fmt: skip
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    steps = strides or (1,) * len(filter_shape)
    weights = W_init or glorot_normal(rhs_spec.index("I"), rhs_spec.index("O"))

    def init(rng: Any, input_shape: Any) -> Any:
        window = iter(filter_shape)
        extents = {"O": out_chan, "I": input_shape[lhs_spec.index("C")]}
        kernel = [extents[c] if c in extents else next(window) for c in rhs_spec]
        output = shape_of(input_shape, kernel, steps, padding, dimension_numbers)
        first, second = random.split(rng)
        return output, (weights(first, kernel), b_init(second, [out_chan if c == "C" else 1 for c in out_spec]))

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        return convolve(inputs, W, steps, padding, dimension_numbers=dimension_numbers) + b

    return init, apply


def GeneralConv(
    dimension_numbers: Any, out_chan: int, filter_shape: Sequence[int], strides: Any = None, padding: Any = "VALID",
    W_init: Any = None, b_init: Any = _SMALL_BIASES,
) -> Layer:  # fmt: skip
    """A convolution with a bias."""
    forms = lax.conv_general_shape_tuple, lax.conv_general_dilated
    return _convolution(*forms, dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init)


def GeneralConvTranspose(
    dimension_numbers: Any, out_chan: int, filter_shape: Sequence[int], strides: Any = None, padding: Any = "VALID",
    W_init: Any = None, b_init: Any = _SMALL_BIASES,
) -> Layer:  # fmt: skip
    """A transposed convolution with a bias."""
    forms = lax.conv_transpose_shape_tuple, lax.conv_transpose
    return _convolution(*forms, dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init)


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(
    axis: Any = (0, 1, 2), epsilon: float = 1e-5, center: bool = True, scale: bool = True, beta_init: Any = zeros,
    gamma_init: Any = ones,
) -> Layer:  # fmt: skip
    """Mean 0 and variance 1 along `axis`, then times γ and plus β of the other axes."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    def init(rng: Any, input_shape: Any) -> Any:
        shape = tuple(e for d, e in enumerate(input_shape) if d not in axes)
        first, second = random.split(rng)
        return input_shape, (beta_init(first, shape) if center else (), gamma_init(second, shape) if scale else ())

    def apply(params: Any, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        spread = tuple(None if d in axes else slice(None) for d in range(x.ndim))
        x = standardize(x, axes, epsilon=epsilon)
        x = gamma[spread] * x if scale else x
        return x + beta[spread] if center else x

    return init, apply


# Layers without.


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """A function of arrays as a layer."""
    return (lambda rng, input_shape: (input_shape, ())), (lambda params, inputs, **kwargs: fun(inputs, **fun_kwargs))


Tanh = elementwise(fnp.tanh)
Relu = elementwise(relu)
Exp = elementwise(fnp.exp)
LogSoftmax = elementwise(log_softmax, axis=-1)
Softmax = elementwise(softmax, axis=-1)
Softplus = elementwise(softplus)
Sigmoid = elementwise(sigmoid)
Elu = elementwise(elu)
LeakyRelu = elementwise(leaky_relu)
Selu = elementwise(selu)
Gelu = elementwise(gelu)


def _others(spec: str | None, ndim: int) -> list[int]:
    """The batch and feature dimensions, in order."""
    return sorted((0, ndim - 1) if spec is None else (spec.index("N"), spec.index("C")))


def _pooling(combine: Callable[..., Any], start: float, average: bool = False) -> Callable[..., Layer]:
    def pooling(
        window_shape: Sequence[int], strides: Any = None, padding: Any = "VALID", spec: str | None = None
    ) -> Layer:
        """Reductions of windows over the dimensions of space."""
        window, steps = tuple(window_shape), tuple(strides or (1,) * len(window_shape))
        space = window, steps
        for d in _others(spec, len(window) + 2):
            window, steps = (*window[:d], 1, *window[d:]), (*steps[:d], 1, *steps[d:])

        def init(rng: Any, input_shape: Any) -> Any:
            pads = lax.padtype_to_pads(input_shape, window, steps, padding)
            return lax.reduce_window_shape_tuple(input_shape, window, steps, pads), ()

        def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
            found = lax.reduce_window(inputs, start, combine, window, steps, padding)
            if not average:
                return found
            others = _others(spec, inputs.ndim)
            one = fnp.ones([e for d, e in enumerate(inputs.shape) if d not in others], inputs.dtype)
            sizes = lax.reduce_window(one, 0.0, lax.add, *space, padding)
            for d in others:
                sizes = fnp.expand_dims(sizes, d)
            return found / sizes

        return init, apply

    return pooling


MaxPool = _pooling(lax.max, -math.inf)
SumPool = _pooling(lax.add, 0.0)
AvgPool = _pooling(lax.add, 0.0, average=True)

Flatten: Layer = (
    lambda rng, input_shape: ((input_shape[0], math.prod(input_shape[1:])), ()),
    lambda params, inputs, **kwargs: fnp.reshape(inputs, (inputs.shape[0], -1)),
)
Identity: Layer = (lambda rng, input_shape: (input_shape, ())), (lambda params, inputs, **kwargs: inputs)


def FanOut(num: int) -> Layer:
    """The inputs, `num` times."""
    return (lambda rng, shape: ([shape] * num, ())), (lambda params, inputs, **kwargs: [inputs] * num)


FanInSum: Layer = (lambda rng, input_shape: (input_shape[0], ())), (lambda params, inputs, **kwargs: sum(inputs))


def FanInConcat(axis: int = -1) -> Layer:
    """The inputs side by side."""

    def init(rng: Any, input_shape: Any) -> Any:
        d = axis % len(input_shape[0])
        first = input_shape[0]
        return (*first[:d], sum(shape[d] for shape in input_shape), *first[d + 1 :]), ()

    return init, lambda params, inputs, **kwargs: fnp.concatenate(inputs, axis)


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Inputs kept with probability `rate`, and then divided by it; all of them in other modes than "train"."""

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rng = kwargs.get("rng")
        if rng is None:
            raise ValueError(
                "Dropout layer requires apply_fun to be called with a PRNG key argument: apply_fun(params, inputs, rng=key)"
            )
        return fnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0) if mode == "train" else inputs

    return (lambda rng, input_shape: (input_shape, ())), apply


# Layers of layers.


def _keys(rng: Any, count: int) -> Any:
    return random.split(rng, count) if rng is not None else (None,) * count


def serial(*layers: Layer) -> Layer:
    """One layer after the other."""

    def init(rng: Any, input_shape: Any) -> Any:
        params = []
        for make, _ in layers:
            rng, own = random.split(rng)
            input_shape, param = make(own, input_shape)
            params.append(param)
        return input_shape, params

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        keys = _keys(kwargs.pop("rng", None), len(layers))
        for (_, run), param, key in zip(layers, params, keys):
            inputs = run(param, inputs, rng=key, **kwargs)
        return inputs

    return init, apply


def parallel(*layers: Layer) -> Layer:
    """Each layer on its own input, as after FanOut."""

    def init(rng: Any, input_shape: Any) -> Any:
        keys = random.split(rng, len(layers))
        return zip(*[make(key, shape) for (make, _), key, shape in zip(layers, keys, input_shape)])

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        keys = _keys(kwargs.pop("rng", None), len(layers))
        return [run(p, x, rng=key, **kwargs) for (_, run), p, x, key in zip(layers, params, inputs, keys)]

    return init, apply


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """A layer that is made once its input's shape is known."""
    return (
        lambda rng, input_shape: make_layer(input_shape)[0](rng, input_shape),
        lambda params, inputs, **kwargs: make_layer(inputs.shape)[1](params, inputs, **kwargs),
    )
