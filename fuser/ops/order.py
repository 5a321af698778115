"""The stable order of unsigned words, or of floats, along the last dimension: what sorts and scatters are made of where a radix sort is at hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType
from fuser.trace.batch import moved

WORD, FLOAT, DOUBLE, POSITION = (np.dtype(name) for name in ("uint32", "float32", "float64", "int32"))


def _type(keys: ArrayType, bits: int) -> tuple[ArrayType, ArrayType]:
    if keys.dtype not in (WORD, FLOAT, DOUBLE) or not keys.shape or not 1 <= bits <= 32:
        raise TypeRuleError(
            f"order takes u32 words of 1 to 32 bits, f32 or f64, along a dimension, got {keys} of {bits} bits"
        )
    return ArrayType(keys.shape, keys.dtype), ArrayType(keys.shape, POSITION)


def _eval(keys: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    positions = np.argsort(keys, axis=-1, kind="stable").astype(POSITION)  # zeros are equal for NumPy, and nans
    return np.take_along_axis(keys, positions, -1), positions


def _samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    for shape, bits in (((9,), 32), ((4, 7), 3), ((2, 1500), 9), ((1100,), 32), ((2, 3, 5), 17), ((1,), 1)):
        yield (rng.integers(0, 1 << bits, shape, np.uint64).astype(WORD),), {"bits": bits}
    for shape in ((3, 40), (2500,)):
        special = rng.choice(np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-40], np.float32), shape)
        numbers = np.where(rng.random(shape) < 0.3, special, rng.normal(size=shape).astype(np.float32))
        yield (numbers.astype(FLOAT),), {"bits": 32}


# The keys, words all below 2^bits or floats, in ascending order, and the positions that they come from; equal ones keep their order. Floats' zeros are
# equal, and so are their nans, which come last.
order_p: Primitive = register(
    Primitive(
        "order",
        Fusion.LIBRARY,
        multiple_results=True,
        type=_type,
        eval=_eval,
        batch=lambda operands, dims, **params: (order_p.bind(moved(operands[0], dims[0], 0), **params), [0, 0]),
        samples=_samples,
    )
)
