"""`ravel_pytree`: a tree of arrays as one vector, and back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import dtypes, lax
from fuser import numpy as fnp
from fuser.trace import tree

__all__ = ["ravel_pytree"]


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """(vector, unravel): the leaves in order as one vector of their promoted dtype, and the function that undoes it.

    `unravel` takes a vector of the same extent (ValueError). Where all leaves have one dtype its parts keep the vector's; else it
    must have the promoted one (TypeError), and each part is converted to its leaf's dtype. Those of trees of the same structure,
    shapes and dtypes are equal, so that one may be a static argument. A tree without leaves gives an empty float32 vector.
    """
    leaves, structure = tree.flatten(pytree)
    values = [fnp.asarray(leaf) for leaf in leaves]
    originals = tuple(value.dtype for value in values)  # numbers of Python's promote as arrays here
    whole = dtypes.result_type(*originals) if values else np.dtype(np.float32)
    mixed = any(dtype != whole for dtype in originals)
    unravel = Unravel(structure, tuple(value.shape for value in values), originals if mixed else None, whole)
    if not values:
        return fnp.zeros(0, whole), unravel
    rows = [fnp.ravel(value.astype(whole) if mixed else value) for value in values]
    return rows[0] if len(rows) == 1 else lax.concatenate(rows, 0), unravel


@dataclass(frozen=True)
class Unravel:
    """A vector as a tree of arrays of these shapes; `originals` are the leaves' dtypes where they are not all `whole`."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    originals: tuple[np.dtype, ...] | None
    whole: np.dtype

    def __call__(self, flat: Any) -> Any:
        """The tree, of parts of the vector `flat`."""
        if not self.shapes:
            return tree.unflatten(self.structure, [])
        given = fnp.asarray(flat)
        ends = list(itertools.accumulate(map(math.prod, self.shapes)))
        if given.shape != (ends[-1],):
            raise ValueError(f"The unravel function expected an array of shape {(ends[-1],)}, got shape {given.shape}.")
        if self.originals is not None and given.dtype != self.whole:
            raise TypeError(
                f"The unravel function expected an array of dtype {self.whole}, got dtype {given.dtype}; convert it first"
            )
        parts = [fnp.reshape(part, shape) for part, shape in zip(fnp.split(given, ends[:-1]), self.shapes)]
        if self.originals is not None:
            parts = [
                fnp.astype(part, dtype) if part.dtype != dtype else part for part, dtype in zip(parts, self.originals)
            ]
        return tree.unflatten(self.structure, parts)
