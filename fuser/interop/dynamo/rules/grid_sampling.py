"""`grid_sample` in two and three dimensions, and its gradients.

A sample is a sum over few elements of the image, along each axis 1 (nearest), 2 (linear) or 4 (cubic) of them. All channels of an
image read the same places, so that an image is one row of elements for each channel.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser.interop.dynamo.rules.table import operand, rule, wide
from fuser.lax.values import convert, literal

_NEAREST, _CUBIC = 1, 2  # interpolation modes; 0 is linear
_BORDER, _REFLECTION = 1, 2  # padding modes; 0 is zeros
_SHARPNESS = -0.75  # of the cubic convolution kernel
_I64 = np.dtype(np.int64)


def _clipped(where: Any, extent: int) -> Any:
    """Positions inside an axis; a position on its border or beyond has no derivative."""
    last = literal(extent - 1, where.dtype)
    low = fnp.where(fnp.greater(where, 0), where, literal(0, where.dtype))
    return fnp.where(fnp.less(low, last), low, last)


def _reflected(where: Any, low: float, high: float) -> Any:
    """Positions mirrored at `low` and `high` until they lie between."""
    if low == high:
        return fnp.zeros_like(where)
    own, span = where.dtype, literal(high - low, where.dtype)
    beyond = fnp.subtract(where, literal(low, own))
    beyond = fnp.where(fnp.less_equal(beyond, 0), fnp.negative(beyond), beyond)
    turns = fnp.floor(fnp.divide(beyond, span))
    rest = fnp.fmod(beyond, span)
    even = fnp.equal(fnp.fmod(turns, literal(2, own)), 0)
    return fnp.add(fnp.where(even, rest, fnp.subtract(span, rest)), literal(low, own))


def _padded(where: Any, extent: int, padding: int, corners: bool) -> Any:
    if padding == _REFLECTION:
        where = _reflected(where, 0 if corners else -0.5, extent - 1 if corners else extent - 0.5)
    return _clipped(where, extent) if padding in (_BORDER, _REFLECTION) else where


def _cubic_weights(share: Any) -> list[Any]:
    """Keys, "Cubic convolution interpolation for digital image processing" (1981), of the two elements on each side."""
    a, number = _SHARPNESS, lambda v: literal(v, share.dtype)

    def near(x: Any) -> Any:
        inner = fnp.subtract(fnp.multiply(number(a + 2), x), number(a + 3))
        return fnp.add(fnp.multiply(fnp.multiply(inner, x), x), number(1))

    def far(x: Any) -> Any:
        inner = fnp.add(fnp.multiply(fnp.subtract(fnp.multiply(number(a), x), number(5 * a)), x), number(8 * a))
        return fnp.subtract(fnp.multiply(inner, x), number(4 * a))

    other = fnp.subtract(number(1), share)
    return [far(fnp.add(share, number(1))), near(share), near(other), far(fnp.add(other, number(1)))]


def _taps(coordinate: Any, extent: int, mode: int, padding: int, corners: bool) -> list[tuple[Any, Any]]:
    """The positions along an axis, whole numbers as floats that may lie outside, and their weights (None is 1)."""
    own = coordinate.dtype
    factor = (extent - 1) / 2 if corners else extent / 2
    where = fnp.add(fnp.multiply(coordinate, literal(factor, own)), literal((extent - 1) / 2, own))
    if mode == _CUBIC:
        first = fnp.floor(where)
        weights = _cubic_weights(fnp.subtract(where, first))
        places = [fnp.add(first, literal(n - 1, own)) for n in range(4)]
        return [(_padded(place, extent, padding, corners), weight) for place, weight in zip(places, weights)]
    where = _padded(where, extent, padding, corners)
    if mode == _NEAREST:
        return [(fnp.round(where), None)]
    first = fnp.floor(where)
    share = fnp.subtract(where, first)
    return [(first, fnp.subtract(literal(1, own), share)), (fnp.add(first, literal(1, own)), share)]


def _sampled(x: Any, grid: Any, mode: int, padding: int, corners: bool) -> Any:
    """(channels, *extents) at a grid (*samples, axes), whose last coordinate is the first axis: (channels, *samples)."""
    extents, points = x.shape[1:], grid.shape[:-1]
    flat = fnp.reshape(x, (x.shape[0], -1))
    axes = [
        _taps(grid[..., len(extents) - 1 - axis], extent, mode, padding, corners) for axis, extent in enumerate(extents)
    ]
    total = None
    for chosen in itertools.product(*axes):
        place, weight, inside = fnp.zeros(points, _I64), None, None
        for extent, (where, share) in zip(extents, chosen):
            within = fnp.logical_and(fnp.greater_equal(where, 0), fnp.less(where, extent))
            own = convert(fnp.where(within, where, literal(0, where.dtype)), _I64)
            place = fnp.add(fnp.multiply(place, extent), own)
            inside = within if inside is None else fnp.logical_and(inside, within)
            weight = share if weight is None else fnp.multiply(weight, share)
        read = fnp.take(flat, place, axis=1, mode="clip")
        weight = fnp.where(inside, literal(1, x.dtype) if weight is None else weight, literal(0, x.dtype))
        term = fnp.multiply(read, weight)
        total = term if total is None else fnp.add(total, term)
    return total


def _forward(x: Any, grid: Any, mode: int, padding: int, corners: bool) -> Any:
    sample = functools.partial(_sampled, mode=mode, padding=padding, corners=corners)
    return fuser.vmap(sample)(x, grid)


@rule("grid_sampler_2d", "grid_sampler_3d")
def _grid_sampler(dtype: np.dtype, x: Any, grid: Any, mode: int, padding: int, corners: bool) -> Any:
    own = wide(dtype)
    return _forward(operand(x, own), operand(grid, own), mode, padding, corners)


@rule("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def _grid_sampler_backward(
    dtype: np.dtype, grad: Any, x: Any, grid: Any, mode: int, padding: int, corners: bool, mask: Sequence[bool]
) -> Any:
    """The gradients of the image, where the mask asks for it, and of the grid."""
    own = wide(dtype)
    function = functools.partial(_forward, mode=mode, padding=padding, corners=corners)
    _, pullback = fuser.vjp(function, operand(x, own), operand(grid, own))
    of_image, of_grid = pullback(operand(grad, own))
    return of_image if mask[0] else None, of_grid
