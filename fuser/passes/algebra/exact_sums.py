"""Rules of sums of small integers in floats: no partial sum is rounded, so they are sums in int32, of which a vector holds more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import BOOL
from fuser.ops import reduce as R
from fuser.ops.conversion import convert_element_type_p
from fuser.passes.algebra.rule import Result, Rule

_INT32 = np.dtype(np.int32)
_SMALL = tuple(map(np.dtype, (bool, np.int8, np.uint8, np.int16, np.uint16)))
_MANTISSA_BITS: dict[np.dtype, int] = {np.dtype(np.float32): 24, np.dtype(np.float64): 53}


def _largest(dtype: np.dtype) -> int:
    """The largest magnitude of a bool or an integer of this dtype."""
    return 1 if dtype == BOOL else max(-int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def _sum_of_integers(eqn: Eqn, rewriter: Rewriter) -> Result:
    """The float sum of converted integers, where no sum of some of them is beyond int32 and the float's exact integers."""
    x, out = eqn.invars[0], eqn.outvars[0].aval
    inner = rewriter.producer(x, convert_element_type_p)
    bits = _MANTISSA_BITS.get(out.dtype)
    if inner is None or bits is None or inner.invars[0].aval.dtype not in _SMALL:
        return None
    small = inner.invars[0]
    count = math.prod(x.aval.shape[axis] for axis in eqn.params["axes"])
    if count <= 1 or count * _largest(small.aval.dtype) >= 1 << min(bits, 31):
        return None
    wide = rewriter.add(convert_element_type_p, small, new_dtype=_INT32, weak_type=False)
    total = rewriter.add(R.reduce_sum_p, wide, **eqn.params)
    return rewriter.make(convert_element_type_p, total, new_dtype=out.dtype, weak_type=out.weak_type)


def _rule(dtype: np.dtype) -> Rule:
    def sample(x: Any) -> Any:
        return R.reduce_sum_p.bind(convert_element_type_p.bind(x, new_dtype=dtype, weak_type=False), axes=(1,))

    return Rule(f"{dtype} sum of small integers", (R.reduce_sum_p,), _sum_of_integers, sample, _SMALL, ((3, 50, 4),))


EXACT_SUMS: tuple[Rule, ...] = tuple([_rule(dtype) for dtype in _MANTISSA_BITS])
