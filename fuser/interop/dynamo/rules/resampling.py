"""Resampling (`interpolate`) and its gradients.

Along each axis resampling is a product with a matrix of few elements in each row; `Taps` are where and what they are. The
gradient is the transposed matrix, whose rows have few elements as well: it gathers too, and adds nothing to memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser.interop.dynamo.rules.table import Refused, operand, rule, wide

MAX_TAPS = 1 << 20  # elements of an axis' table
_KEYS_SHARPNESS = {False: -0.75, True: -0.5}  # of the cubic convolution kernel, without and with antialiasing


@dataclass(frozen=True)
class Taps:
    """The elements of a matrix (rows, columns) that are not zero, one after the other."""

    rows: np.ndarray
    columns: np.ndarray
    weights: np.ndarray

    def transposed(self) -> Taps:
        return Taps(self.columns, self.rows, self.weights)

    def padded(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Columns and weights by row, (count, taps): rows with fewer taps end in weights of 0."""
        order = np.argsort(self.rows, kind="stable")
        rows = self.rows[order]
        lengths = np.bincount(rows, minlength=count)
        most = int(lengths.max(initial=1))
        if count * most > MAX_TAPS:
            raise Refused(f"resampling with a table of {count} x {most} elements")
        place = np.arange(rows.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        columns, weights = np.zeros((count, most), np.int64), np.zeros((count, most))
        columns[rows, place], weights[rows, place] = self.columns[order], self.weights[order]
        return columns, weights


Axis = Callable[[int, int, float | None], Taps]  # of the extents before and after, and the scale that was asked for


def _ratio(before: int, after: int, scale: float | None) -> float:
    return 1 / scale if scale is not None and scale > 0 else before / after


def _nearest(exact: bool, before: int, after: int, scale: float | None) -> Taps:
    """Each element is that at the index rounded down, in float32 as in torch."""
    rows = np.arange(after)
    middle = np.float32(0.5 if exact else 0)
    where = np.floor((rows.astype(np.float32) + middle) * np.float32(_ratio(before, after, scale)))
    return Taps(rows, np.minimum(where.astype(np.int64), before - 1), np.ones(after))


def _positions(corners: bool, before: int, after: int, scale: float | None) -> tuple[np.ndarray, float]:
    """Where each element lies in the array before, in elements, and the distance from one to the next."""
    if corners:
        step = (before - 1) / (after - 1) if after > 1 else 0.0
        return np.arange(after) * step, step
    step = _ratio(before, after, scale)
    return (np.arange(after) + 0.5) * step - 0.5, step


def _linear(corners: bool, before: int, after: int, scale: float | None) -> Taps:
    where = np.maximum(_positions(corners, before, after, scale)[0], 0)
    low = np.minimum(where.astype(np.int64), before - 1)
    high = np.minimum(low + 1, before - 1)
    share = np.clip(where - low, 0, 1)
    return Taps(np.tile(np.arange(after), 2), np.concatenate([low, high]), np.concatenate([1 - share, share]))


def _cubic(corners: bool, before: int, after: int, scale: float | None) -> Taps:
    where = _positions(corners, before, after, scale)[0]
    low = np.floor(where).astype(np.int64)
    columns = [low + n for n in range(-1, 3)]
    weights = [_keys(where - column, antialias=False) for column in columns]
    inside = np.clip(np.concatenate(columns), 0, before - 1)
    return Taps(np.tile(np.arange(after), 4), inside, np.concatenate(weights))


def _keys(distance: np.ndarray, antialias: bool) -> np.ndarray:
    """Keys, "Cubic convolution interpolation for digital image processing" (1981), equation 15 for any sharpness."""
    a, x = _KEYS_SHARPNESS[antialias], np.abs(distance)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _triangle(distance: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(distance), 0)


def _antialiased(
    kernel: Callable[[np.ndarray], np.ndarray], radius: int, corners: bool, before: int, after: int, scale: float | None
) -> Taps:
    """The kernel as wide as an element after is, its weights scaled to a sum of 1."""
    step = (before - 1) / (after - 1) if corners and after > 1 else 0.0 if corners else _ratio(before, after, scale)
    spread = max(step, 1)
    centre = step * (np.arange(after) + 0.5)
    first = np.maximum((centre - radius * spread + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + radius * spread + 0.5).astype(np.int64), before)
    columns = first[:, None] + np.arange(int((last - first).max(initial=1)))
    inside = columns < last[:, None]
    weights = np.where(inside, kernel((columns - centre[:, None] + 0.5) / spread), 0)
    weights /= weights.sum(1, keepdims=True)
    rows = np.broadcast_to(np.arange(after)[:, None], columns.shape)
    return Taps(rows[inside], columns[inside], weights[inside])


def _along(x: Any, axis: int, taps: Taps, count: int) -> Any:
    """The product with the matrix of `taps`, which has `count` rows, along an axis."""
    columns, weights = taps.padded(count)
    if columns.shape[1] == 1:
        picked = fnp.take(x, fnp.asarray(columns[:, 0]), axis=axis, mode="clip")
        return picked if (weights == 1).all() else fnp.multiply(picked, _shaped(weights[:, 0], x, axis))
    if x.dtype.kind in "iu":
        raise Refused("weighted means of integers")
    picked = fnp.take(x, fnp.asarray(columns), axis=axis, mode="clip")
    return fnp.sum(fnp.multiply(picked, _shaped(weights, x, axis)), axis + 1)


def _shaped(weights: np.ndarray, x: Any, axis: int) -> Any:
    return fnp.reshape(fnp.asarray(weights, x.dtype), (*weights.shape, *(1,) * (len(x.shape) - axis - 1)))


def _resampled(x: Any, extents: Sequence[int], scales: Sequence[Any], taps: Axis, transposed: bool) -> Any:
    """The last dimensions resampled to these extents, or, transposed, the gradient of an array that had them."""
    first = len(x.shape) - len(extents)
    for axis, (extent, scale) in enumerate(zip(extents, scales), first):
        own = x.shape[axis]
        found = taps(extent, own, scale).transposed() if transposed else taps(own, extent, scale)
        x = _along(x, axis, found, extent)
    return x


def _scales(given: Sequence[Any], space: int) -> tuple[Any, ...]:
    return (*given, *(None,) * space)[:space]


def _forward(taps: Axis, dtype: np.dtype, x: Any, extents: Any, scales: Sequence[Any]) -> Any:
    return _resampled(operand(x, wide(dtype)), extents, _scales(scales, len(extents)), taps, False)


def _backward(taps: Axis, dtype: np.dtype, grad: Any, shape: Sequence[int], scales: Sequence[Any]) -> Any:
    space = len(shape) - 2
    return _resampled(operand(grad, wide(dtype)), shape[-space:], _scales(scales, space), taps, True)


def _rules(name: str, taps: Callable[[bool], Axis]) -> None:
    """Of an operator that is told whether the corners are aligned."""
    rule(name)(lambda dtype, x, extents, corners, *scales: _forward(taps(corners), dtype, x, extents, scales))
    rule(f"{name}_backward")(
        lambda dtype, grad, _, shape, corners, *scales: _backward(taps(corners), dtype, grad, shape, scales)
    )


def _rules_of_nearest(name: str, exact: bool) -> None:
    taps = functools.partial(_nearest, exact)
    rule(name)(lambda dtype, x, extents, *scales: _forward(taps, dtype, x, extents, scales))
    rule(f"{name}_backward")(lambda dtype, grad, _, shape, *scales: _backward(taps, dtype, grad, shape, scales))


def _with(function: Callable[..., Taps], *before: Any) -> Callable[[bool], Axis]:
    return lambda corners: functools.partial(function, *before, corners)


for _space in (1, 2, 3):
    _rules_of_nearest(f"upsample_nearest{_space}d", False)
    _rules_of_nearest(f"_upsample_nearest_exact{_space}d", True)
for _name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"):
    _rules(_name, _with(_linear))
_rules("upsample_bicubic2d", _with(_cubic))
_rules("_upsample_bilinear2d_aa", _with(_antialiased, _triangle, 1))
_rules("_upsample_bicubic2d_aa", _with(_antialiased, functools.partial(_keys, antialias=True), 2))
