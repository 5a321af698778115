"""Products of operands in blocks that have a scale each."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from fuser import dtypes
from fuser.errors import TypeRuleError
from fuser.lax.reduction import dot_general
from fuser.lax.values import as_value, broadcast_to, convert
from fuser.ops.elementwise import mul_p
from fuser.ops.movement import broadcast_in_dim_p, reshape_p
from fuser.trace.core import bind


def scaled_dot(
    lhs: Any,
    rhs: Any,
    *,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    dimension_numbers: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """The dot_general of `lhs * lhs_scale` and `rhs * rhs_scale`, of dtype `preferred_element_type`, bfloat16 by default.

    A scale has the extents of its operand, but along contracted dimensions, where each of its elements is for a block. Without
    `dimension_numbers` the last dimension is contracted with the last but one, the others are batches. TypeError for ranks below
    2, TypeRuleError for scales that do not divide their operand.
    """
    lhs, rhs = as_value(lhs, "scaled_dot"), as_value(rhs, "scaled_dot")
    if dimension_numbers is None:
        if lhs.ndim < 2:
            raise TypeError("scaled_dot does not support 0-rank and 1-rank operands.")
        batch = tuple(range(lhs.ndim - 2))
        dimension_numbers = (((lhs.ndim - 1,), (lhs.ndim - 2,)), (batch, batch))
    wanted = dtypes.requested(
        ml_dtypes.bfloat16 if preferred_element_type is None else preferred_element_type, "scaled_dot"
    )
    (of_lhs, of_rhs), _ = dimension_numbers
    wide = np.dtype(np.float64) if wanted == np.float64 else np.dtype(np.float32)
    operands = (_scaled(lhs, lhs_scale, of_lhs, wide), _scaled(rhs, rhs_scale, of_rhs, wide))
    return convert(dot_general(*operands, dimension_numbers), wanted)


def _scaled(x: Any, scale: Any, contracting: Any, dtype: np.dtype) -> Any:
    """The operand times the scales of its blocks."""
    x = convert(x, dtype)
    if scale is None:
        return x
    scale = convert(as_value(scale, "scaled_dot"), dtype)
    fits = x.ndim == scale.ndim and all(
        s and n % s == 0 if d in contracting else n == s for d, (n, s) in enumerate(zip(x.shape, scale.shape))
    )
    if not fits:
        raise TypeRuleError(
            f"scaled_dot takes a scale with the operand's extents, divided along dimensions {tuple(contracting)}; got {scale.shape} for {x.shape}"
        )
    for d in contracting:
        size = x.shape[d] // scale.shape[d]
        wide = (*scale.shape[: d + 1], size, *scale.shape[d + 1 :])
        kept = tuple(k for k in range(len(wide)) if k != d + 1)
        repeated = bind(broadcast_in_dim_p, scale, shape=wide, broadcast_dimensions=kept)
        scale = bind(
            reshape_p, repeated, new_sizes=(*scale.shape[:d], x.shape[d], *scale.shape[d + 1 :]), dimensions=None
        )
    return bind(mul_p, x, broadcast_to(scale, x.shape))
