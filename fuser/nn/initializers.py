"""Initializers of neural networks, with jax.nn.initializers' names: each gives a function `(key, shape, dtype) -> array`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from fuser import dtypes, random
from fuser import numpy as fnp
from fuser.ir.types import is_complex
from fuser.lax.layouts import sharded
from fuser.numpy import linalg

__all__ = [
    "Initializer",
    "constant",
    "delta_orthogonal",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "variance_scaling",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]

Axes = int | Sequence[int]
# The standard deviation of a standard normal distribution cut to (-2, 2).
_CUT_DEVIATION = 0.87962566103423978


class Initializer(Protocol):
    """What initializers are: an array of `shape` from a random key."""

    def __call__(self, key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Any: ...


def _dtype(given: Any, default: Any) -> np.dtype:
    wanted = default if given is None else given
    return dtypes.canonical(float if wanted is None else wanted)


@sharded
def zeros(key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Any:
    """Zeros, of the default float unless told; the key is not used."""
    return fnp.zeros(shape, _dtype(dtype, None))


@sharded
def ones(key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Any:
    """Ones, of the default float unless told; the key is not used."""
    return fnp.ones(shape, _dtype(dtype, None))


def _initializer(own: Any, draw: Callable[[Any, tuple[int, ...], np.dtype], Any]) -> Initializer:
    """An initializer from `draw(key, shape, dtype)`, with its own default dtype."""

    @sharded
    def init(key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Any:
        return draw(key, tuple(shape), _dtype(dtype, own))

    return init


def constant(value: Any, dtype: Any = None) -> Initializer:
    """Arrays filled with `value`."""
    return _initializer(dtype, lambda key, shape, found: fnp.full(shape, value, found))


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Uniform numbers from [0, scale)."""
    return _initializer(dtype, lambda key, shape, found: random.uniform(key, shape, found) * fnp.array(scale, found))


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Normal numbers with mean 0 and standard deviation `stddev`."""
    return _initializer(dtype, lambda key, shape, found: random.normal(key, shape, found) * fnp.array(stddev, found))


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0) -> Initializer:
    """Standard normal numbers cut to (lower, upper), times `stddev`; that is not the deviation of what is left."""
    return _initializer(
        dtype,
        lambda key, shape, found: random.truncated_normal(key, lower, upper, shape, found) * fnp.array(stddev, found),
    )


def _axes(axes: Axes) -> tuple[int, ...]:
    return (axes,) if isinstance(axes, int) else tuple(axes)


def _fans(shape: Sequence[int], in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    """How many inputs and outputs one unit has: extents of these axes, times those of a convolution's window."""
    if len(shape) <= 1 and in_axis == -2:
        raise ValueError(
            f"Can't compute input and output sizes of a {len(shape)}-dimensional weights tensor with default in_axis. "
            "Must be at least 2D or specify in_axis explicitly."
        )
    extent = lambda axes: math.prod(shape[a] for a in _axes(axes))
    inputs, outputs, batch = extent(in_axis), extent(out_axis), extent(batch_axis)
    window = math.prod(shape) / inputs / outputs / batch
    return inputs * window, outputs * window


def _complex_uniform(key: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Uniform in the unit disk."""
    part = np.dtype(f"float{dtype.itemsize * 4}")
    first, second = random.split(key)
    radius = fnp.sqrt(random.uniform(first, shape, part))
    angle = (2 * np.pi * random.uniform(second, shape, part)).astype(dtype)
    return radius.astype(dtype) * fnp.exp(1j * angle)


def _complex_truncated(key: Any, upper: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Standard normal in the complex plane, cut to the disk of radius `upper`, by the inverse of the radius' distribution."""
    part = np.dtype(f"float{dtype.itemsize * 4}")
    first, second = random.split(key)
    bound = fnp.array(upper, part)
    mass = (1 - fnp.exp(-(bound**2))) * random.uniform(first, shape, part)
    radius = fnp.sqrt(-fnp.log(1 - mass))
    angle = (2 * np.pi * random.uniform(second, shape, part)).astype(dtype)
    return radius.astype(dtype) * fnp.exp(1j * angle)


def variance_scaling(
    scale: Any,
    mode: Literal["fan_in", "fan_out", "fan_avg", "fan_geo_avg"],
    distribution: Literal["truncated_normal", "normal", "uniform"],
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: Any = None,
) -> Initializer:
    """Random numbers of variance `scale` over the number of inputs, outputs, or their arithmetic or geometric mean.

    A unit's inputs and outputs are the extents of `in_axis` and `out_axis` times those of the other axes, `batch_axis` left out.
    ValueError for another mode or distribution and for shapes of rank below 2. He et al., "Delving deep into rectifiers" (2015).
    """

    def draw(key: Any, shape: tuple[int, ...], found: np.dtype) -> Any:
        inputs, outputs = _fans(shape, in_axis, out_axis, batch_axis)
        means = {
            "fan_in": inputs,
            "fan_out": outputs,
            "fan_avg": (inputs + outputs) / 2,
            "fan_geo_avg": (inputs * outputs) ** 0.5,
        }
        if mode not in means:
            raise ValueError(f"invalid mode for variance scaling initializer: {mode}")
        variance = fnp.array(scale / means[mode], found)
        if distribution == "truncated_normal":
            if is_complex(found):  # .95… is the deviation of a complex normal number cut to radius 2
                return _complex_truncated(key, 2, shape, found) * (
                    fnp.sqrt(variance) / fnp.array(0.95311164380491208, found)
                )
            return random.truncated_normal(key, -2, 2, shape, found) * (
                fnp.sqrt(variance) / fnp.array(_CUT_DEVIATION, found)
            )
        if distribution == "normal":
            return random.normal(key, shape, found) * fnp.sqrt(variance)
        if distribution == "uniform":
            if is_complex(found):
                return _complex_uniform(key, shape, found) * fnp.sqrt(fnp.array(2, found) * variance)
            return random.uniform(key, shape, found, -1) * fnp.sqrt(3 * variance)
        raise ValueError(f"invalid distribution for variance scaling initializer: {distribution}")

    return _initializer(dtype, draw)


def _scaled(name: str, scale: float, mode: Any, distribution: Any, text: str) -> Callable[..., Initializer]:
    def initializer(in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    initializer.__name__ = initializer.__qualname__ = name
    initializer.__doc__ = f"{text}: `variance_scaling({scale}, {mode!r}, {distribution!r})`."
    return initializer


_GLOROT = 'Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks" (2010)'
_HE = 'He et al., "Delving deep into rectifiers" (2015)'
_LECUN = 'LeCun et al., "Efficient BackProp" (1998)'
glorot_uniform = xavier_uniform = _scaled("glorot_uniform", 1.0, "fan_avg", "uniform", _GLOROT)
glorot_normal = xavier_normal = _scaled("glorot_normal", 1.0, "fan_avg", "truncated_normal", _GLOROT)
lecun_uniform = _scaled("lecun_uniform", 1.0, "fan_in", "uniform", _LECUN)
lecun_normal = _scaled("lecun_normal", 1.0, "fan_in", "truncated_normal", _LECUN)
he_uniform = kaiming_uniform = _scaled("he_uniform", 2.0, "fan_in", "uniform", _HE)
he_normal = kaiming_normal = _scaled("he_normal", 2.0, "fan_in", "truncated_normal", _HE)


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Uniformly random matrices with orthonormal rows or columns, whichever are fewer, times `scale`.

    `column_axis` is the columns; the other axes together are the rows. ValueError for rank below 2. The signs of R's diagonal
    make Q uniform: Mezzadri, "How to generate random matrices from the classical compact groups" (2007).
    """

    def draw(key: Any, shape: tuple[int, ...], found: np.dtype) -> Any:
        if len(shape) < 2:
            raise ValueError("orthogonal initializer requires at least a 2D shape")
        columns = shape[column_axis]
        rows = math.prod(shape) // columns
        tall = (columns, rows) if columns > rows else (rows, columns)
        q, r = linalg.qr(random.normal(key, tall, found))
        q = q * fnp.sign(fnp.diag(r))[None]
        q = q.T if columns <= rows else q
        rest = list(shape)
        del rest[column_axis]
        return scale * fnp.moveaxis(fnp.reshape(q, (columns, *rest)), 0, column_axis)

    return _initializer(dtype, draw)


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """Kernels of convolutions that are 0 but for an orthogonal matrix at the centre of the window; rank 3, 4 or 5.

    Needs no more inputs than outputs: ValueError. Xiao et al., "Dynamical isometry and a mean field theory of CNNs" (2018).
    """

    def draw(key: Any, shape: tuple[int, ...], found: np.dtype) -> Any:
        if len(shape) not in (3, 4, 5):
            raise ValueError("Delta orthogonal initializer requires a 3D, 4D or 5D shape.")
        if shape[-1] < shape[-2]:
            raise ValueError("`fan_in` must be less or equal than `fan_out`. ")
        matrix = orthogonal(scale, column_axis, found)(key, shape[-2:])
        centre = tuple((extent - 1) // 2 for extent in shape[:-2])
        return fnp.zeros(shape, found).at[(*centre, ...)].set(matrix)

    return _initializer(dtype, draw)
