"""Interpolation in arrays, with jax.scipy.ndimage's names."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser import numpy as fnp
from fuser.lax.elementwise import round
from fuser.lax.ranks import install as _install_ranks
from fuser.lax.values import as_value

__all__ = ["map_coordinates"]


def _mirrored(index: Any, size: int) -> Any:
    """Reflected about the centres of the edge elements."""
    turn = max(size - 1, 1)
    return fnp.abs((index + turn) % (2 * turn) - turn)


def _reflected(index: Any, size: int) -> Any:
    """Reflected about the edges."""
    return _mirrored(2 * index + 1, 2 * size + 1) // 2


_INSIDE: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: fnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirrored,
    "reflect": _reflected,
}


def map_coordinates(input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: Any = 0.0) -> Any:
    """`input` at `coordinates`, one array for each dimension, of one shape, which the result has; the dtype is that of `input`.

    Nearest elements for order 0, linear interpolation for 1 (NotImplementedError above). Outside, elements are `cval`
    ("constant") or found by "nearest", "wrap", "mirror" or "reflect" (NotImplementedError otherwise). ValueError unless there
    are as many coordinates as dimensions. Halves are rounded away from zero, of coordinates and of results that are integers.
    """
    x = as_value(input, "map_coordinates")
    places = [fnp.asarray(c) for c in coordinates]
    value = fnp.asarray(cval, x.dtype)
    if len(places) != x.ndim:
        raise ValueError(f"coordinates must be a sequence of length input.ndim, but {len(places)} != {x.ndim}")
    if mode not in _INSIDE:
        raise NotImplementedError(
            f"jax.scipy.ndimage.map_coordinates does not yet support mode {mode}. Currently supported modes are {set(_INSIDE)}."
        )
    if order not in (0, 1):
        raise NotImplementedError("jax.scipy.ndimage.map_coordinates currently requires order<=1")
    axes = [_neighbours(place, order) for place in places]
    parts = []
    for corner in itertools.product(*axes):
        indices, weights = zip(*corner) if corner else ((), ())
        found = x[tuple(_INSIDE[mode](i, size) for i, size in zip(indices, x.shape))]
        if mode == "constant":
            inside = [(i >= 0) & (i < size) for i, size in zip(indices, x.shape)]
            found = fnp.where(functools.reduce(operator.and_, inside), found, value) if inside else found
        parts.append(functools.reduce(operator.mul, weights) * found if weights else found)
    result = functools.reduce(operator.add, parts)
    if dtypes.issubdtype(x.dtype, np.integer):
        result = _rounded(result)
    return result.astype(x.dtype)


def _rounded(x: Any) -> Any:
    return round(x) if dtypes.issubdtype(x.dtype, np.inexact) else x


def _neighbours(place: Any, order: int) -> list[tuple[Any, Any]]:
    """Positions of elements beside a coordinate, and their weights."""
    if order == 0:
        return [(_rounded(place).astype(np.int32), fnp.asarray(1, place.dtype))]
    low = fnp.floor(place) if dtypes.issubdtype(place.dtype, np.inexact) else place
    upper = place - low
    first = low.astype(np.int32)
    return [(first, 1 - upper), (first + 1, upper)]


_install_ranks(globals(), "fuser.scipy")
