"""Positions and grids: indices of triangles and diagonals, open and dense meshes, and the objects that index to make them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.config import config
from fuser.errors import ConcretizationTypeError
from fuser.lax.values import as_value, convert, promote
from fuser.numpy import movement as V
from fuser.numpy.creation import arange, asarray, linspace, meshgrid, ones
from fuser.numpy.sets import nonzero
from fuser.trace.core import Tracer

__all__ = [
    "c_", "diag_indices", "diag_indices_from", "index_exp", "ix_", "mask_indices", "mgrid", "ogrid", "r_", "s_",
    "tril_indices", "tril_indices_from", "triu_indices", "triu_indices_from",
]  # fmt: skip

index_exp, s_ = np.index_exp, np.s_


def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """The positions of the main diagonal of an array of `ndim` dimensions of extent n: `ndim` vectors of integers (n,)."""
    n, ndim = operator.index(n), operator.index(ndim)
    if n < 0:
        raise ValueError(f"n argument to diag_indices must be nonnegative, got {n}")
    if ndim < 0:
        raise ValueError(f"ndim argument to diag_indices must be nonnegative, got {ndim}")
    return (arange(n),) * ndim


def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """`diag_indices` of an array, whose dimensions must have one extent (ValueError) and be two at least."""
    x = as_value(arr, "diag_indices_from")
    if x.ndim < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(x.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    return diag_indices(x.shape[0], x.ndim)


def _known(indices: tuple[np.ndarray, ...]) -> tuple[Any, Any]:
    """Positions that follow from extents alone, so that they are constants also in a traced function."""
    rows, columns = (asarray(i.astype(dtypes.canonical(int))) for i in indices)
    return rows, columns


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """The rows and columns of the elements of an (n, m) matrix on and below its k-th diagonal."""
    return _known(np.tril_indices(operator.index(n), operator.index(k), m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """The rows and columns of the elements of an (n, m) matrix on and above its k-th diagonal."""
    return _known(np.triu_indices(operator.index(n), operator.index(k), m))


def _shape_of(name: str, arr: Any) -> tuple[int, int]:
    shape = np.shape(arr) if not hasattr(arr, "shape") else arr.shape
    if len(shape) != 2:
        raise ValueError("Only 2-D inputs are accepted")
    return shape[0], shape[1]


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """`tril_indices` of a matrix. ValueError for other ranks."""
    rows, columns = _shape_of("tril_indices_from", arr)
    return tril_indices(rows, k, columns)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """`triu_indices` of a matrix. ValueError for other ranks."""
    rows, columns = _shape_of("triu_indices_from", arr)
    return triu_indices(rows, k, columns)


def mask_indices(
    n: int, mask_func: Callable[[Any, int], Any], k: int = 0, *, size: int | None = None
) -> tuple[Any, Any]:
    """The rows and columns that `mask_func(ones((n, n)), k)` does not make 0, padded with 0 to `size` where that is given."""
    rows, columns = nonzero(mask_func(ones((n, n)), k), size=size)
    return rows, columns


def ix_(*args: Any) -> tuple[Any, ...]:
    """Vectors turned each into its own dimension of an open mesh; bool ones into their positions. ValueError for other ranks."""
    found = []
    for n, arg in enumerate(args):
        x = as_value(arg, "ix_") if not isinstance(arg, (list, tuple)) else asarray(arg)
        if x.ndim != 1:
            raise ValueError(f"Arguments to jax.numpy.ix_ must be 1-dimensional, got shape {x.shape}")
        if x.dtype == np.dtype("bool"):
            raise NotImplementedError("Boolean arguments to jax.numpy.ix_ are not implemented")
        if not x.size:
            x = x.astype(dtypes.canonical(int))
        found.append(V.reshape(x, (1,) * n + (x.shape[0],) + (1,) * (len(args) - n - 1)))
    return tuple(found)


# Objects that are indexed with slices.


def _range(part: slice, name: str) -> Any:
    """The numbers start:stop:step; an imaginary step is how many there are, the last included."""
    start, stop, step = part.start, part.stop, part.step
    for which, value in (("start", start), ("stop", stop), ("step", step)):
        if isinstance(value, Tracer):
            raise ConcretizationTypeError(
                f"slice {which} of jnp.{name} must be known, got a traced {value.aval}; use arange or linspace"
            )
    start = 0 if start is None else start
    step = 1 if step is None else step
    if isinstance(step, complex):
        return linspace(start, stop, int(abs(step)))
    return arange(start, stop, step)


class _Grid:
    """`mgrid[a:b, c:d]` stacks dense grids; `ogrid` gives open ones."""

    def __init__(self, name: str, dense: bool) -> None:
        self._name, self._dense = name, dense

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _range(key, self._name)
        ranges = [_range(part, self._name) for part in key]
        dtype = dtypes.least_upper_bound(config.enable_x64, *(r.dtype for r in ranges)) if ranges else None
        parts = [convert(r, dtype) for r in ranges] if dtype is not None else []
        grids = meshgrid(*parts, indexing="ij", sparse=not self._dense)
        if not self._dense:
            return list(grids)
        return V.stack(grids) if grids else asarray([], int)


mgrid, ogrid = _Grid("mgrid", True), _Grid("ogrid", False)


class _Concatenation:
    """`r_[...]` joins its parts, slices being ranges, along the first axis; `c_[...]` puts vectors side by side as columns.

    A string "axis,ndim,place" in front says along which axis, of at least how many dimensions, and where vectors go; "r" and
    "c" make a row or a column of what is a vector.
    """

    def __init__(self, name: str, axis: int, ndim: int, place: int) -> None:
        self._name, self._default = name, (axis, ndim, place)

    def __getitem__(self, key: Any) -> Any:
        parts = list(key) if isinstance(key, tuple) else [key]
        axis, ndim, position = self._default
        if isinstance(parts[0], str):
            directive = parts.pop(0)
            if directive in ("r", "c"):
                found = self[tuple(parts)]
                return found if found.ndim > 1 else found[None] if directive == "r" else found[:, None]
            words = directive.split(",")
            try:
                numbers = [int(word) for word in words]
            except ValueError:
                raise ValueError(f"could not understand directive {directive}") from None
            if not numbers or len(numbers) > 3:
                raise ValueError(f"could not understand directive {directive}")
            axis, ndim, position = (*numbers, *self._default[len(numbers) :])
        values = []
        for part in parts:
            if isinstance(part, str):
                raise ValueError("string directive must be placed at the beginning")
            values.append(
                self._widened(_range(part, self._name) if isinstance(part, slice) else asarray(part), ndim, position)
            )
        return V.concatenate([v if v.ndim else v[None] for v in promote(self._name, *values)], axis)

    @staticmethod
    def _widened(x: Any, ndim: int, place: int) -> Any:
        """`x` with `ndim` dimensions at least: its own start at `place` among them."""
        x = V.atleast_1d(x)
        missing = ndim - x.ndim
        if missing <= 0:
            return x
        own = missing if place == -1 else place if place >= 0 else missing + 1 + place
        return V.reshape(x, (1,) * own + x.shape + (1,) * (missing - own))


r_, c_ = _Concatenation("r_", 0, 1, -1), _Concatenation("c_", -1, 2, 0)
