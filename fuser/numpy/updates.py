"""Functions that NumPy writes in place with, giving new arrays, blocks of arrays, and mapping along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.lax.values import as_value, axis_of
from fuser.numpy import movement as V
from fuser.numpy.creation import arange, asarray
from fuser.numpy.selection import unravel_index
from fuser.transforms.vmap import vmap

__all__ = ["apply_along_axis", "block", "fill_diagonal", "place", "put"]


def _not_in_place(function: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(
            f"jax.numpy.{function}: arrays are immutable, so they cannot be modified in place; "
            "pass inplace=False and use the result"
        )


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Any:
    """A new array with `v` (repeated or cut) at the positions `ind` of the flattened `a`; `inplace` must be False.

    Positions outside are dropped, or moved by mode "clip" or "wrap". ValueError for another mode.
    """
    _not_in_place("put", inplace)
    x, positions, values = as_value(a, "put"), V.ravel(asarray(ind)), V.ravel(asarray(v))
    if not x.size or not positions.size or not values.size:
        return x
    values = V.tile(values, -(-positions.size // values.size))[: positions.size]
    if mode is None:
        how = "drop"
    elif mode == "clip":
        positions = positions.clip(0, x.size - 1)
        how = "clip"
    elif mode == "wrap":
        positions, how = positions % x.size, "drop"
    else:
        raise ValueError(f"mode should be one of 'wrap' or 'clip'; got {mode=}")
    return x.at[unravel_index(positions, x.shape)].set(values, mode=how)


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Any:
    """A new array whose elements under `mask` are those of `vals` in turn; `inplace` must be False. ValueError for sizes."""
    _not_in_place("place", inplace)
    x, chosen, values = as_value(arr, "place"), V.ravel(asarray(mask)), V.ravel(asarray(vals))
    if x.size != chosen.size:
        raise ValueError("place: arr and mask must be the same size")
    if not values.size:
        raise ValueError("place: vals must be nonempty")
    if not x.size:
        return x
    from fuser.numpy.maths import where
    from fuser.numpy.reductions import cumsum

    marked = chosen if chosen.dtype == np.dtype("bool") else chosen != 0
    turn = (cumsum(marked, dtype=np.int32) - 1) % values.size
    return V.reshape(where(marked, values[turn].astype(x.dtype), V.ravel(x)), x.shape)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Any:
    """A new array with `val` (repeated or cut) on the main diagonal; `inplace` must be False. ValueError for rank below 2.

    All extents must be equal for rank above 2. With `wrap` the diagonal of a tall matrix starts again after one row.
    """
    _not_in_place("fill_diagonal", inplace)
    if wrap:
        raise NotImplementedError("wrap=True is not implemented, only wrap=False")
    x, values = as_value(a, "fill_diagonal"), V.ravel(asarray(val))
    if x.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if x.ndim > 2 and len(set(x.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    n = min(x.shape)
    positions = arange(n)
    if values.size != 1 and n:
        values = V.tile(values, -(-n // values.size))[:n]
    return x.at[(positions,) * x.ndim].set(values if values.size != 1 else values[0])


def block(arrays: Any) -> Any:
    """Arrays put together from nested lists of blocks: the innermost lists along the last dimension, and so outwards.

    ValueError for tuples, and for lists of different depths or empty ones.
    """
    depth = _depth(arrays)
    if not depth:
        return asarray(arrays)
    leaves: list[Any] = []
    _collect(arrays, leaves)
    ndim = max(depth, *(x.ndim for x in leaves))
    return _joined(arrays, depth, ndim)


def _depth(arrays: Any) -> int:
    if isinstance(arrays, tuple):
        raise ValueError(f"jax.numpy.block does not allow tuples, got {arrays}; put the blocks in lists")
    if not isinstance(arrays, list):
        return 0
    if not arrays:
        raise ValueError("block takes no empty lists")
    depths = {_depth(a) for a in arrays}
    if len(depths) > 1:
        raise ValueError("block takes lists of one depth, got some that are deeper than others")
    return 1 + depths.pop()


def _collect(arrays: Any, leaves: list[Any]) -> None:
    if isinstance(arrays, list):
        for a in arrays:
            _collect(a, leaves)
    else:
        leaves.append(asarray(arrays))


def _joined(arrays: Any, depth: int, ndim: int) -> Any:
    if not depth:
        x = asarray(arrays)
        return V.reshape(x, (1,) * (ndim - x.ndim) + x.shape)
    return V.concatenate([_joined(a, depth - 1, ndim) for a in arrays], ndim - depth)


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """`func1d(vector, *args, **kwargs)` of all vectors along `axis`; dimensions of its results stand where the axis was."""
    x = as_value(arr, "apply_along_axis")
    axis = axis_of(axis, x.ndim, "apply_along_axis")
    mapped: Callable[[Any], Any] = lambda vector: func1d(vector, *args, **kwargs)
    for d in range(1, x.ndim - axis):  # the dimensions behind it, each result's being put behind it again
        mapped = vmap(mapped, in_axes=d, out_axes=-1)
    for _ in range(axis):
        mapped = vmap(mapped, in_axes=0, out_axes=0)
    return mapped(x)
