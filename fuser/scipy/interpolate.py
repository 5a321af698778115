"""Interpolation on grids, with jax.scipy.interpolate's names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser import numpy as fnp
from fuser.lax.ranks import install as _install_ranks
from fuser.lax.values import promote_inexact
from fuser.trace import tree
from fuser.trace.core import Tracer

__all__ = ["RegularGridInterpolator"]


class RegularGridInterpolator:
    """Values on a grid of any spacing, interpolated: `points` are the d coordinate vectors, `values` (n1, …, nd, …).

    method "linear" or "nearest". Points outside give `fill_value`, or with None are extrapolated. ValueError for another
    method, shapes that do not fit, coordinates that neither ascend nor descend; NotImplementedError for `bounds_error`. A pytree.
    """

    def __init__(
        self,
        points: Sequence[Any],
        values: Any,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: Any = np.nan,
    ) -> None:
        if method not in ("linear", "nearest"):
            raise ValueError(f"method {method!r} is not defined")
        if bounds_error:
            raise NotImplementedError("`bounds_error` takes no effect under JIT")
        (found,) = promote_inexact("RegularGridInterpolator", values)
        if len(points) > found.ndim:
            raise ValueError(f"there are {len(points)} point arrays, but values has {found.ndim} dimensions")
        if fill_value is not None:
            given = fnp.asarray(fill_value)
            if not dtypes.issubdtype(given.dtype, np.number) or not np.can_cast(given.dtype, found.dtype, "same_kind"):
                raise ValueError("fill_value must be either 'None' or of a type compatible with values")
            fill_value = given
        self.grid = tuple(map(fnp.asarray, points))
        for n, line in enumerate(self.grid):
            if line.ndim != 1:
                raise ValueError(f"the points in dimension {n} must be 1-dimensional")
            if found.shape[n] != line.shape[0]:
                raise ValueError(f"there are {line.shape[0]} points and {found.shape[n]} values in dimension {n}")
            if not isinstance(line, Tracer):
                steps = np.diff(np.asarray(line))
                if len(steps) and (steps < 0).all():
                    self.grid = (*self.grid[:n], fnp.flip(line), *self.grid[n + 1 :])
                    found = fnp.flip(found, n)
                elif not (steps > 0).all():
                    raise ValueError(f"the points in dimension {n} must be strictly ascending or descending")
        self.method, self.bounds_error, self.fill_value, self.values = method, bounds_error, fill_value, found

    def tree_flatten(self) -> tuple[Any, Any]:
        """Arrays, and what is static."""
        return (self.grid, self.values, self.fill_value), (self.method, self.bounds_error)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> RegularGridInterpolator:
        """The interpolator of these parts."""
        made = cls.__new__(cls)
        made.method, made.bounds_error = aux
        made.grid, made.values, made.fill_value = children
        return made

    def __call__(self, xi: Any, method: str | None = None) -> Any:
        """The values at points xi (…, d), or a tuple of d arrays that broadcast: (…, *the rest of values' dimensions)."""
        method = self.method if method is None else method
        if method not in ("linear", "nearest"):
            raise ValueError(f"method {method!r} is not defined")
        d = len(self.grid)
        points = fnp.stack(fnp.broadcast_arrays(*xi), -1) if isinstance(xi, tuple) else fnp.asarray(xi)
        points = points if points.ndim else points[None]
        if points.ndim == 1 and points.shape[0] % d == 0:  # as SciPy reads it: points one after another
            points = fnp.reshape(points, (-1, d))
        if points.shape[-1] != d:
            raise ValueError(
                f"the requested sample points xi have dimension {points.shape[-1]}, but this RegularGridInterpolator has dimension {d}"
            )
        lead = points.shape[:-1]
        flat = fnp.reshape(points, (-1, d))
        places, outside = [], fnp.zeros(flat.shape[0], bool)
        for n, line in enumerate(self.grid):
            x = flat[:, n]
            cell = fnp.clip(fnp.searchsorted(line, x, side="left") - 1, 0, max(line.shape[0] - 2, 0))
            width = line[cell + 1] - line[cell] if line.shape[0] > 1 else fnp.ones((), line.dtype)
            places.append((cell, (x - line[cell]) / fnp.where(width == 0, 1, width)))
            outside = outside | (x < line[0]) | (x > line[-1])
        result = self._linear(places) if method == "linear" else self._nearest(places)
        if self.fill_value is not None:
            mask = fnp.reshape(outside, outside.shape + (1,) * (result.ndim - 1))
            result = fnp.where(mask, fnp.asarray(self.fill_value).astype(result.dtype), result)
        return fnp.reshape(result, (*lead, *self.values.shape[d:]))

    def _linear(self, places: list[tuple[Any, Any]]) -> Any:
        """The sum over the corners of the cell, each weighted by the opposite part of it."""
        total: Any = 0
        rest = (1,) * (self.values.ndim - len(places))
        for corner in itertools.product((0, 1), repeat=len(places)):
            index = tuple(cell + c for (cell, _), c in zip(places, corner))
            weight: Any = 1
            for (_, t), c in zip(places, corner):
                weight = weight * (t if c else 1 - t)
            total = total + self.values[index] * fnp.reshape(weight, weight.shape + rest)
        return total

    def _nearest(self, places: list[tuple[Any, Any]]) -> Any:
        return self.values[tuple(fnp.where(t <= 0.5, cell, cell + 1) for cell, t in places)]


tree.register_pytree_node_class(RegularGridInterpolator)

_install_ranks(globals(), "fuser.scipy")
