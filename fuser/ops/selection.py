"""The positions of the largest elements along the last dimension, in the order of positions: what top_k is made of where rows are long.

Numbers are compared in the total order of their bits, as top_k does; of equal ones those at the lowest positions are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import FLOATS, INTEGERS, ArrayType, is_inexact
from fuser.ops.family import sample
from fuser.ops.order import POSITION
from fuser.trace.batch import moved

_NUMBERS = (*INTEGERS, *FLOATS)
# Numbers that kernels select among.
SELECTED = tuple(dtype for dtype in _NUMBERS if dtype.itemsize <= 4)
# Up to how many elements are selected of rows of any length; more of them are found by ordering the rows.
MOST_SELECTED = 2048


def total(x: np.ndarray) -> np.ndarray:
    """Integers in the total order of the values: nans by their sign and bits outside of the infinities, -0.0 below 0.0."""
    if not is_inexact(x.dtype):
        return x
    bits = x.view(f"i{x.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _type(x: ArrayType, k: int) -> ArrayType:
    if x.dtype not in _NUMBERS or not x.shape or not 1 <= k <= x.shape[-1]:
        raise TypeRuleError(f"select_largest takes 1 to all integers or floats along a dimension, got {k} of {x}")
    return ArrayType((*x.shape[:-1], k), POSITION)


def _eval(x: np.ndarray, k: int) -> np.ndarray:
    last = x.shape[-1] - 1
    ascending = np.argsort(
        np.flip(total(x), -1), axis=-1, kind="stable"
    )  # reversed twice, the first of equals comes first
    return np.sort(last - ascending[..., last + 1 - k :], axis=-1).astype(POSITION)


def _samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    for number, dtype in enumerate(SELECTED):
        yield (sample(rng, (3, 40), dtype),), {"k": (1, 7, 40)[number % 3]}
    special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-40], np.float32)
    numbers = np.where(rng.random((2, 2500)) < 0.3, rng.choice(special, (2, 2500)), rng.normal(size=(2, 2500)))
    yield (numbers.astype(np.float32),), {"k": 300}


select_largest_p: Primitive = register(
    Primitive(
        "select_largest",
        Fusion.LIBRARY,
        type=_type,
        eval=_eval,
        batch=lambda operands, dims, **params: (select_largest_p.bind(moved(operands[0], dims[0], 0), **params), 0),
        samples=_samples,
    )
)
