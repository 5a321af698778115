"""Products of ragged arrays: rows (or summands) in groups, each group with its own matrix. Built of masks and dot_general."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError, UnsupportedError
from fuser.lax.movement import broadcasted_iota, expand_dims, transpose
from fuser.lax.reduction import cumsum, dot_general
from fuser.lax.values import as_value, broadcast_to, literal
from fuser.ops import elementwise as E
from fuser.trace.core import bind

__all__ = ["RaggedDotDimensionNumbers", "ragged_dot", "ragged_dot_general"]


@dataclasses.dataclass(frozen=True, init=False)
class RaggedDotDimensionNumbers:
    """What `ragged_dot_general` contracts: dot_general's numbers, the ragged dimension of lhs, and that of rhs that numbers groups."""

    dot_dimension_numbers: Any
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]

    def __init__(self, dot_dimension_numbers: Any, lhs_ragged_dimensions: Any, rhs_group_dimensions: Any) -> None:
        numbers = tuple(tuple(map(tuple, pair)) for pair in dot_dimension_numbers)
        object.__setattr__(self, "dot_dimension_numbers", numbers)
        object.__setattr__(self, "lhs_ragged_dimensions", tuple(lhs_ragged_dimensions))
        object.__setattr__(self, "rhs_group_dimensions", tuple(rhs_group_dimensions))


_ROWS = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def ragged_dot(
    lhs: Any, rhs: Any, group_sizes: Any, precision: Any = None, preferred_element_type: Any = None, group_offset: Any = None,
    out_sharding: None = None,
) -> Any:  # fmt: skip
    """Rows in groups, each times its own matrix: lhs (m, k), rhs (g, k, n), group_sizes (g,) → (m, n); rows beyond give 0.

    Every matrix is applied to all rows, masked: g products. UnsupportedError for `group_offset`.
    """
    x, matrices, sizes = as_value(lhs, "ragged_dot"), as_value(rhs, "ragged_dot"), as_value(group_sizes, "ragged_dot")
    if x.ndim != 2 or matrices.ndim != 3 or sizes.shape != matrices.shape[:1] or x.shape[1] != matrices.shape[1]:
        raise TypeRuleError(
            f"ragged_dot takes (m, k), (g, k, n) and (g,), got {x.shape}, {matrices.shape} and {sizes.shape}"
        )
    return ragged_dot_general(x, matrices, sizes, _ROWS, precision, preferred_element_type, group_offset)


def ragged_dot_general(
    lhs: Any, rhs: Any, group_sizes: Any, ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, precision: Any = None,
    preferred_element_type: Any = None, group_offset: Any = None, out_sharding: None = None,
) -> Any:  # fmt: skip
    """dot_general of groups along one dimension of lhs, of `group_sizes` (g,), or (batch…, outer dimensions…, g) for each.

    A free ragged dimension: each group of rows meets its own slice of rhs along the group dimension. A contracted one: one
    product for each group, along a new first dimension. A batch dimension: dot_general itself. TypeError for other numbers
    and shapes, UnsupportedError for `group_offset`.
    """
    if group_offset is not None:
        raise UnsupportedError("ragged_dot takes no group_offset; slice rhs and group_sizes instead")
    x, y, sizes = (as_value(v, "ragged_dot_general") for v in (lhs, rhs, group_sizes))
    numbers = ragged_dot_dimension_numbers
    ragged = _checked(x, y, sizes, numbers)
    (xc, yc), (xb, yb) = numbers.dot_dimension_numbers
    options = {"precision": precision, "preferred_element_type": preferred_element_type}
    if ragged in xb:
        return dot_general(x, y, numbers.dot_dimension_numbers, **options)
    if ragged not in xc:
        groups = (*yc, *numbers.rhs_group_dimensions)
        return dot_general(
            _spread(x, ragged, sizes, _outer(x, ragged, xc, xb)), y, (((*xc, x.ndim), groups), (xb, yb)), **options
        )
    own = yc[xc.index(ragged)]
    first, second = (
        _spread(x, ragged, sizes, (*xb, *xc[: xc.index(ragged)])),
        _spread(y, own, sizes, (*yb, *yc[: yc.index(own)])),
    )
    return dot_general(first, second, ((xc, yc), ((x.ndim, *xb), (y.ndim, *yb))), **options)


def _checked(x: Any, y: Any, sizes: Any, numbers: RaggedDotDimensionNumbers) -> int:
    """The ragged dimension of lhs; TypeRuleError for numbers and shapes that do not go together."""
    if len(numbers.lhs_ragged_dimensions) != 1:
        raise TypeRuleError("ragged_dot_general expects exactly one lhs ragged dimension.")
    (ragged,) = numbers.lhs_ragged_dimensions
    (xc, yc), (xb, yb) = numbers.dot_dimension_numbers
    _in_range(ragged, x.ndim, "lhs ragged dimension", "lhs")
    if sizes.dtype.kind not in "iu":
        raise TypeRuleError("ragged_dot_general requires that group_sizes.dtype is subtype of np.integer.")
    if not sizes.ndim:
        raise TypeRuleError("expected rank of group_sizes to be >=1.")
    expected = (*(x.shape[d] for d in _outer(x, ragged, xc, xb)), sizes.shape[-1])
    if sizes.ndim != 1 and sizes.shape != expected:
        raise TypeRuleError(f"expected group_sizes to have shape {expected}, got {sizes.shape}.")
    groups = numbers.rhs_group_dimensions
    if ragged in xc or ragged in xb:
        if groups:
            raise TypeRuleError(
                "ragged_dot_general requires zero group dimensions in the rhs when lhs ragged dimension is contracting or batch."
            )
        return ragged
    if len(groups) != 1:
        raise TypeRuleError(
            "ragged_dot_general requires exactly one rhs group dimension when lhs ragged dimension is noncontracting."
        )
    _in_range(groups[0], y.ndim, "rhs group dimension", "rhs")
    if groups[0] in yb or groups[0] in yc:
        raise TypeRuleError(
            "ragged_dot_general requires rhs group dimension numbers to be distinct from contracting and batch dimensions."
        )
    if y.shape[groups[0]] != sizes.shape[-1]:
        raise TypeRuleError(f"expected rhs group dimension size to be {sizes.shape[-1]}, got {y.shape[groups[0]]}.")
    return ragged


def _in_range(dimension: int, rank: int, what: str, operand: str) -> None:
    if not 0 <= dimension < rank:
        raise TypeRuleError(
            f"ragged_dot_general requires {what} numbers to be nonnegative and less than the number of axes of the {operand} value, "
            f"got {dimension} for {operand} of rank {rank}."
        )


def _outer(x: Any, ragged: int, contracted: Sequence[int], batch: Sequence[int]) -> tuple[int, ...]:
    """The dimensions of lhs that groups may differ along: of batches, and those outside the ragged one of its own kind."""
    if ragged in batch:
        return tuple(batch[: batch.index(ragged)])
    if ragged in contracted:
        return (*batch, *contracted[: contracted.index(ragged)])
    return (*batch, *(d for d in range(ragged) if d not in batch and d not in contracted))


def _spread(x: Any, ragged: int, sizes: Any, outer: Sequence[int]) -> Any:
    """`x` with a last dimension of groups: what belongs to the group, and zeros."""
    groups = sizes.shape[-1]
    if sizes.ndim == 1:
        outer = ()
    ends = cumsum(sizes, axis=sizes.ndim - 1)
    starts = bind(E.sub_p, ends, sizes)
    order = tuple(np.argsort(outer))
    rest = tuple(d for d in range(x.ndim) if d not in outer)
    shape = (*x.shape, groups)
    bounds = (broadcast_to(expand_dims(transpose(v, (*order, len(outer))), rest), shape) for v in (starts, ends))
    low, high = bounds
    position = broadcasted_iota(sizes.dtype, shape, ragged)
    mine = bind(E.and_p, bind(E.le_p, low, position), bind(E.lt_p, position, high))
    wide = broadcast_to(expand_dims(x, (x.ndim,)), shape)
    return bind(E.select_n_p, mine, literal(0, x.dtype), wide)
