"""Convolutions by their extents: which dimensions are batch, features and space, what places are read, and the result's type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.text import param_type
from fuser.ir.types import ArrayType
from fuser.ops.windows import count, dilated


@param_type
class ConvDimensionNumbers(NamedTuple):
    """Which dimensions of a convolution's operand, kernel and result are batch, features and space.

    (batch, features, *space) of the operand and the result, (output features, input features, *space) of the kernel.
    """

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


class Geometry(NamedTuple):
    """What places are read for what results: one entry a dimension of space, and the groups."""

    window_strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    feature_group_count: int
    batch_group_count: int


def space_of(x: ArrayType | Any, spec: Sequence[int]) -> tuple[int, ...]:
    return tuple(x.shape[d] for d in spec[2:])


def conv_shape(
    lhs: Sequence[int], rhs: Sequence[int], strides: Any, pads: Any, batch_group_count: int = 1
) -> tuple[int, ...]:
    """The result's shape (batch, features, *space), of dilated operands (batch, features, *space) and (out, in, *space)."""
    space = [e + low + high for e, (low, high) in zip(lhs[2:], pads)]
    if any(e < 0 for e in space):
        raise TypeRuleError(
            f"the padding {tuple(pads)} takes more from the operand's space {tuple(lhs[2:])} than there is"
        )
    counts = tuple(count(e, w, s) for e, w, s in zip(space, rhs[2:], strides))
    return (lhs[0] // batch_group_count, rhs[0], *counts)


def conv_type(
    lhs: ArrayType, rhs: ArrayType, dimension_numbers: ConvDimensionNumbers, precision: Any = None,
    preferred_element_type: Any = None, **params: Any,
) -> ArrayType:  # fmt: skip
    name, geometry = "conv_general_dilated", Geometry(**params)
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    if lhs.dtype != rhs.dtype:
        raise TypeRuleError(f"{name} needs equal dtypes, got {lhs} and {rhs}; convert one of them first")
    if lhs.ndim != rhs.ndim:
        raise TypeRuleError(
            f"{name} lhs and rhs must have the same number of dimensions, but got {lhs.shape} and {rhs.shape}."
        )
    groups, batches = geometry.feature_group_count, geometry.batch_group_count
    for word, value in (("feature", groups), ("batch", batches)):
        if value <= 0:
            raise TypeRuleError(f"{name} {word}_group_count must be a positive integer, got {value}.")
    features, made = lhs.shape[lhs_spec[1]], rhs.shape[rhs_spec[0]]
    if features % groups:
        raise TypeRuleError(
            f"{name} feature_group_count must divide lhs feature dimension size, but {groups} does not divide {features}."
        )
    if features // groups != rhs.shape[rhs_spec[1]]:
        raise TypeRuleError(
            f"{name} lhs feature dimension size divided by feature_group_count must equal the rhs input feature "
            f"dimension size, but {features} // {groups} != {rhs.shape[rhs_spec[1]]}."
        )
    if lhs.shape[lhs_spec[0]] % batches:
        raise TypeRuleError(
            f"{name} batch_group_count must divide lhs batch dimension size, but {batches} does not divide "
            f"{lhs.shape[lhs_spec[0]]}."
        )
    for word, value in (("feature", groups), ("batch", batches)):
        if made % value:
            raise TypeRuleError(
                f"{name} rhs output feature dimension size must be a multiple of {word}_group_count, but {made} is not "
                f"a multiple of {value}."
            )
    if batches > 1 and groups > 1:
        raise TypeRuleError(
            "At most one of batch_group_count and feature_group_count may be > 1, got "
            f"batch_group_count={batches} and feature_group_count={groups}"
        )
    if any(len(p) != lhs.ndim - 2 for p in geometry[:4]):
        raise TypeRuleError(
            f"{name} window and window_strides must have the same number of dimensions, but got {lhs.ndim - 2} and "
            f"{geometry[:4]}"
        )
    given = (*(lhs.shape[d] for d in lhs_spec[:2]), *map(dilated, space_of(lhs, lhs_spec), geometry.lhs_dilation))
    kernel = (*(rhs.shape[d] for d in rhs_spec[:2]), *map(dilated, space_of(rhs, rhs_spec), geometry.rhs_dilation))
    ordered = conv_shape(given, kernel, geometry.window_strides, geometry.padding, batches)
    shape = tuple(ordered[list(out_spec).index(d)] for d in range(lhs.ndim))
    dtype = lhs.dtype if preferred_element_type is None else np.dtype(preferred_element_type)
    return ArrayType(shape, dtype, lhs.weak_type and rhs.weak_type and preferred_element_type is None)


def padding_of(ndim: int, spec: Sequence[int], geometry: Geometry) -> tuple[tuple[int, int, int], ...]:
    """The `padding_config` of the operand."""
    config = [(0, 0, 0)] * ndim
    for d, (low, high), dilation in zip(spec[2:], geometry.padding, geometry.lhs_dilation):
        config[d] = (low, high, dilation - 1)
    return tuple(config)
