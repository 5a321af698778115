"""The stable order of unsigned words along the last dimension: what sorts and scatters are made of where a radix sort is at hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType
from fuser.trace.batch import moved

WORD, POSITION = np.dtype("uint32"), np.dtype("int32")


def _type(keys: ArrayType, bits: int) -> tuple[ArrayType, ArrayType]:
    if keys.dtype != WORD or not keys.shape or not 1 <= bits <= 32:
        raise TypeRuleError(f"order takes u32 words of 1 to 32 bits along a dimension, got {keys} of {bits} bits")
    return ArrayType(keys.shape, WORD), ArrayType(keys.shape, POSITION)


def _eval(keys: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    positions = np.argsort(keys, axis=-1, kind="stable").astype(POSITION)
    return np.take_along_axis(keys, positions, -1), positions


def _samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    for shape, bits in (((9,), 32), ((4, 7), 3), ((2, 1500), 9), ((1100,), 32), ((2, 3, 5), 17), ((1,), 1)):
        yield (rng.integers(0, 1 << bits, shape, np.uint64).astype(WORD),), {"bits": bits}


# The keys, all below 2^bits, in ascending order, and the positions that they come from; equal ones keep their order.
order_p: Primitive = register(
    Primitive(
        "order",
        Fusion.LIBRARY,
        multiple_results=True,
        type=_type,
        eval=_eval,
        batch=lambda operands, dims, bits: (order_p.bind(moved(operands[0], dims[0], 0), bits=bits), [0, 0]),
        samples=_samples,
    )
)
