"""Images, with jax.image's names: resampling of any dimensions by weights that are products over dimensions."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.ir.dim import Dim, as_extent
from fuser.lax.ranks import install as _install_ranks
from fuser.lax.values import as_value, axis_of, literal, promote_inexact
from fuser.ops.dot import Precision

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """How elements between those of an image are found; `from_string` knows "bilinear", "bicubic" and so on."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of this name. ValueError for another one."""
        names = {
            "bilinear": "linear",
            "trilinear": "linear",
            "triangle": "linear",
            "bicubic": "cubic",
            "tricubic": "cubic",
        }
        names |= {"cubic-pytorch": "cubic_pytorch", "bicubic-pytorch": "cubic_pytorch"}
        name = names.get(s, s).upper()
        if name not in ResizeMethod.__members__:
            raise ValueError(f'Unknown resize method "{s}"')
        return ResizeMethod[name]


def _cubic(slope: float, m: Any = fnp) -> Callable[[Any], Any]:
    """Keys, "Cubic convolution interpolation for digital image processing" (1981), equation 8, with the slope at 1; `m` is the module of functions."""

    def kernel(x: Any) -> Any:
        near = ((slope + 2) * x - (slope + 3)) * x * x + 1
        far = ((slope * x - 5 * slope) * x + 8 * slope) * x - 4 * slope
        return m.where(x >= 2, 0.0, m.where(x >= 1, far, near))

    return kernel


def _lanczos(radius: float) -> Callable[[Any], Any]:
    """sinc(x)·sinc(x / radius): Duchon, "Lanczos filtering in one and two dimensions" (1979)."""

    def kernel(x: Any) -> Any:
        return fnp.where(x > radius, 0.0, fnp.sinc(x) * fnp.sinc(x / radius))

    return kernel


_KERNELS: dict[ResizeMethod, Callable[[Any], Any]] = {
    ResizeMethod.LINEAR: lambda x: fnp.maximum(0, 1 - x),
    ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0),
    ResizeMethod.CUBIC: _cubic(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _cubic(-0.5),
}


def _weights(extent: int, size: int, scale: Any, shift: Any, kernel: Callable[[Any], Any], antialias: bool) -> Any:
    """(extent, size): how much each element counts in each result; columns add up to 1, or are 0 outside the image."""
    inverse = 1.0 / scale
    width = fnp.maximum(inverse, 1.0) if antialias else 1.0
    at = (fnp.arange(size, dtype=inverse.dtype) + 0.5) * inverse - shift * inverse - 0.5
    found = kernel(fnp.abs(at[None, :] - fnp.arange(extent, dtype=inverse.dtype)[:, None]) / width)
    total = fnp.sum(found, 0, keepdims=True)
    sharp = 1000.0 * float(np.finfo(np.float32).eps)
    found = fnp.where(fnp.abs(total) > sharp, found / fnp.where(total != 0, total, 1), 0)
    inside = (at >= -0.5) & (at <= extent - 0.5)
    return fnp.where(inside[None, :], found, 0)


def _contracted(x: Any, weights: Any, axis: int, precision: Any) -> Any:
    return fnp.moveaxis(fnp.tensordot(x, weights.astype(x.dtype), axes=((axis,), (0,)), precision=precision), -1, axis)


def scale_and_translate(
    image: Any, shape: Sequence[int], spatial_dims: Sequence[int], scale: Any, translation: Any, method: Any, antialias: bool = True,
    precision: Any = Precision.HIGHEST,
) -> Any:  # fmt: skip
    """`image` resampled to `shape`: element x of a dimension stands at scale·x + translation; 0 outside. Floats keep their dtype.

    `scale` and `translation` have one number for each of `spatial_dims`. With `antialias` kernels are as wide as the step when
    shrinking. ValueError for shapes that do not fit and for methods "nearest" and "area".
    """
    (x,) = promote_inexact("scale_and_translate", as_value(image, "scale_and_translate"))
    if len(shape) != x.ndim:
        raise ValueError(f"shape must have length equal to the number of dimensions of x; {shape} vs {x.shape}")
    kind = ResizeMethod.from_string(method) if isinstance(method, str) else method
    if kind not in _KERNELS:
        names = {ResizeMethod.NEAREST: "Nearest neighbor resampling", ResizeMethod.AREA: "Area resampling"}
        raise ValueError(f"{names[kind]} is not currently supported for scale_and_translate.")
    scales, shifts = promote_inexact("scale_and_translate", scale, translation)
    for n, d in enumerate(spatial_dims):
        axis = axis_of(d, x.ndim, "scale_and_translate")
        weights = _weights(x.shape[axis], as_extent(shape[axis]), scales[n], shifts[n], _KERNELS[kind], antialias)
        x = _contracted(x, weights, axis, precision)
    return x


def resize(
    image: Any, shape: Sequence[int], method: Any, antialias: bool = True, precision: Any = Precision.HIGHEST
) -> Any:
    """`image` resampled to `shape` by "nearest", "linear", "cubic", "lanczos3", "lanczos5", "cubic-pytorch" or "area".

    Floats keep their dtype; integers become the default float, but for "nearest". With `antialias` kernels are as wide as the step
    when shrinking. ValueError for another rank or method, TypeError for a shape that is not of integers.
    """
    shape = tuple(map(as_extent, shape))
    kind = ResizeMethod.from_string(method) if isinstance(method, str) else method
    x = as_value(image, "resize")
    if len(shape) != x.ndim:
        raise ValueError(f"shape must have length equal to the number of dimensions of x; {shape} vs {x.shape}")
    if kind is ResizeMethod.NEAREST:
        for d, (extent, size) in enumerate(zip(x.shape, shape)):
            if extent != size:
                x = fnp.take(x, _nearest(extent, size), axis=d, mode="clip")
        return x
    (x,) = promote_inexact("resize", x)
    for d, (extent, size) in enumerate(zip(x.shape, shape)):
        if extent == size:
            continue
        if kind is ResizeMethod.AREA:
            x = _contracted(x, fnp.asarray(_overlaps(extent, size)), d, precision)
            continue
        if kind is ResizeMethod.CUBIC_PYTORCH and not antialias:
            x = _contracted(x, fnp.asarray(_torch_cubic(extent, size)), d, precision)
            continue
        one = fnp.asarray(size / extent, np.float32)
        weights = _weights(extent, size, one, fnp.zeros((), np.float32), _KERNELS[kind], antialias)
        x = _contracted(x, weights, d, precision)
    return x


def _nearest(extent: int, size: int) -> Any:
    """Where each of `size` elements is taken from, of `extent`."""
    if Dim in map(type, (extent, size)):
        of, to = (literal(number, np.dtype("float32")) for number in (extent, size))
        return fnp.floor((fnp.arange(size, dtype=np.float32) + np.float32(0.5)) * of / to).astype(np.int32)
    places = np.floor((np.arange(size, dtype=np.float32) + 0.5) * np.float32(extent) / np.float32(size))
    return fnp.asarray(places.astype(np.int32))


def _overlaps(extent: int, size: int) -> np.ndarray:
    """(extent, size): which part of each result's interval each element's takes."""
    step = extent / size
    starts = np.arange(size) * step
    below = np.maximum(starts[None, :], np.arange(extent)[:, None])
    above = np.minimum(starts[None, :] + step, np.arange(1, extent + 1)[:, None])
    return (np.maximum(above - below, 0) / step).astype(np.float32)


def _torch_cubic(extent: int, size: int) -> np.ndarray:
    """(extent, size): the weights of PyTorch's bicubic interpolation: Keys' kernel with slope -3/4, edge elements repeated."""
    at = (np.arange(size) + 0.5) * extent / size - 0.5
    found = np.zeros((extent, size))
    for step in range(-1, 3):
        place = np.floor(at) + step
        weight = _cubic(-0.75, np)(np.abs(at - place))
        np.add.at(found, (np.clip(place, 0, extent - 1).astype(int), np.arange(size)), weight)
    return found.astype(np.float32)


_install_ranks(globals(), "fuser.image")
