"""`ravel_pytree`: a tree of arrays as one vector, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import dtypes
from fuser import numpy as fnp
from fuser.lax.values import convert
from fuser.trace import tree

__all__ = ["ravel_pytree"]


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """(vector, unravel): the leaves in order as one vector of their promoted dtype, and the function that undoes it.

    `unravel` takes a vector of the same extent (ValueError). Where all leaves have one dtype its parts keep the vector's; else it
    must have the promoted one (TypeError), and each part is converted to its leaf's dtype. A tree without leaves gives an empty float32 vector.
    """
    leaves, structure = tree.flatten(pytree)
    if not leaves:
        return fnp.zeros(0, np.float32), lambda vector: tree.unflatten(structure, [])
    values = [fnp.asarray(leaf) for leaf in leaves]
    whole = dtypes.result_type(*values)
    shapes, sizes = [v.shape for v in values], [v.size for v in values]
    ends = np.cumsum(sizes)
    mixed = any(v.dtype != whole for v in values)
    originals = [v.dtype for v in values]
    vector = fnp.concatenate([convert(fnp.ravel(v), whole) for v in values])

    def unravel(flat: Any) -> Any:
        given = fnp.asarray(flat)
        if given.shape != (int(ends[-1]),):
            raise ValueError(
                f"The unravel function expected an array of shape {(int(ends[-1]),)}, got shape {given.shape}."
            )
        if mixed and given.dtype != whole:
            raise TypeError(
                f"The unravel function expected an array of dtype {whole}, got dtype {given.dtype}; convert it first"
            )
        parts = fnp.split(given, ends[:-1].tolist())
        return tree.unflatten(
            structure,
            [
                _part(part, shape, dtype if mixed else part.dtype)
                for part, shape, dtype in zip(parts, shapes, originals)
            ],
        )

    return vector, unravel


def _part(part: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    return fnp.reshape(fnp.astype(part, dtype) if part.dtype != dtype else part, shape)
