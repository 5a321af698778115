"""Reductions, prefix scans and sorts of dtypes that kernels only load and store: floats of 8 bits and fewer, integers of 4 and fewer.

They go by a wider dtype that holds every value of the small one, and are rounded once, at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.ir.primitive import Primitive
from fuser.ir.types import INT1_4, SMALL, SMALL_FLOATS
from fuser.lax.values import convert
from fuser.trace.core import bind

_SMALL = frozenset(SMALL)


def widened(x: Any) -> Any:
    """`x`, of a small dtype as float32, int8 or uint8."""
    if x.dtype not in _SMALL:
        return x
    return convert(x, np.dtype("float32" if x.dtype in SMALL_FLOATS else "int8" if x.dtype in INT1_4 else "uint8"))


def bind_wide(primitive: Primitive, *operands: Any, **params: Any) -> Any:
    """`bind` for a primitive whose n-th result has the dtype of its n-th operand, which may be a small one."""
    if not any(x.dtype in _SMALL for x in operands):
        return bind(primitive, *operands, **params)
    found = bind(primitive, *map(widened, operands), **params)
    results = list(found) if primitive.multiple_results else [found]
    for n, x in enumerate(operands):
        if x.dtype in _SMALL:
            results[n] = convert(results[n], x.dtype)
    return results if primitive.multiple_results else results[0]
