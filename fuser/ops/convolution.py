"""conv_general_dilated: convolution with strides, padding, dilations of both operands, and groups, as in JAX.

One primitive with its derivatives; `convolution_expand.py` writes it by others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.scalar import convert
from fuser.ir.types import COMPLEX, FLOATS, INTEGERS, ArrayType, sum_dtype
from fuser.ops.convolution_expand import converted, expand, split_off
from fuser.ops.convolution_geometry import ConvDimensionNumbers, Geometry, conv_type, padding_of, space_of
from fuser.ops.family import linear_in, not_both, sample
from fuser.ops.movement import pad_p, reshaped, rev_p, transpose_p
from fuser.ops.windows import dilated, sliding_windows_p
from fuser.trace.tangent import full


def _eval(
    lhs: np.ndarray, rhs: np.ndarray, dimension_numbers: ConvDimensionNumbers, precision: Any = None,
    preferred_element_type: Any = None, **params: Any,
) -> np.ndarray:  # fmt: skip
    """The definition: the operand's windows as rows of a matrix, one product a group."""
    geometry = Geometry(**params)
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    types = ArrayType(lhs.shape, lhs.dtype), ArrayType(rhs.shape, rhs.dtype)
    out = conv_type(*types, dimension_numbers, precision, preferred_element_type, **params)
    wide = sum_dtype(out.dtype)
    config = padding_of(lhs.ndim, tuple(range(lhs.ndim)), geometry)
    x = pad_p.rule("eval")(lhs.transpose(lhs_spec).astype(wide), np.zeros((), wide), padding_config=config)
    kernel = rhs.transpose(rhs_spec).astype(wide)
    space, window = tuple(range(2, lhs.ndim)), kernel.shape[2:]
    windows = {"window": window, "strides": geometry.window_strides, "dilation": geometry.rhs_dilation}
    x = sliding_windows_p.rule("eval")(x, dimensions=space, **windows)  # (batch, features, *places, *window)
    groups, batches = geometry.feature_group_count, geometry.batch_group_count
    counts = x.shape[2 : lhs.ndim]
    x = x.reshape(batches, x.shape[0] // batches, groups, x.shape[1] // groups, *x.shape[2:])
    x = np.moveaxis(x, 2, 1).reshape(batches * groups, -1, x.shape[3], *x.shape[4:])
    rows = np.moveaxis(x, 2, 2 + len(counts)).reshape(x.shape[0], -1, math.prod(kernel.shape[1:]))
    matrices = kernel.reshape(x.shape[0], -1, rows.shape[2])
    result = np.matmul(rows, matrices.transpose(0, 2, 1))
    result = result.reshape(x.shape[0], x.shape[1], *counts, -1)
    result = np.moveaxis(np.moveaxis(result, -1, 1), 2, 0)  # (batch, group, features of it, *places)
    result = result.reshape(x.shape[1], -1, *counts)
    return convert(result.transpose([list(out_spec).index(d) for d in range(lhs.ndim)]), out.dtype)


# Derivatives: each operand's cotangent is a convolution of the result's with the other operand.


def _transpose(
    ct: Any, lhs: Any, rhs: Any, dimension_numbers: ConvDimensionNumbers, precision: Any = None,
    preferred_element_type: Any = None, **params: Any,
) -> tuple[Any, Any]:  # fmt: skip
    not_both("conv_general_dilated", lhs, rhs)
    geometry = Geometry(**params)
    if linear_in(lhs):
        return _cotangent_lhs(ct, lhs.aval, rhs, dimension_numbers, precision, geometry), None
    return None, _cotangent_rhs(ct, lhs, rhs.aval, dimension_numbers, precision, geometry)


def _extents(
    lhs: Any, rhs: Any, ct: Any, numbers: ConvDimensionNumbers, geometry: Geometry
) -> Iterator[tuple[int, int, int, int]]:
    """For each dimension of space the dilated extents of operand, kernel and result, and the padding before."""
    spaces = (space_of(a, spec) for a, spec in zip((lhs, rhs, ct), numbers))
    steps = geometry.lhs_dilation, geometry.rhs_dilation, geometry.window_strides
    wide = (map(dilated, space, step) for space, step in zip(spaces, steps))
    yield from zip(*wide, (low for low, _ in geometry.padding))


def _cotangent_lhs(ct: Any, lhs: ArrayType, rhs: Any, numbers: Any, precision: Any, geometry: Geometry) -> Any:
    lhs_spec, rhs_spec, out_spec = numbers
    padding = []
    for x, w, y, low in _extents(lhs, rhs, ct, numbers, geometry):
        before = w - low - 1
        padding.append((before, x + w - 1 - y - before))
    kernel, batches = rhs, geometry.batch_group_count
    groups = geometry.feature_group_count * batches
    if groups > 1:  # from the kernel's outputs, which are inputs now, to its inputs
        kernel = merged_into(split_off(kernel, rhs_spec[0], groups), rhs_spec[0], rhs_spec[1])
    turned = rev_p.bind(kernel, dimensions=tuple(rhs_spec[2:]))
    out = _bind(
        ct, turned, ConvDimensionNumbers(out_spec, _swapped(rhs_spec), lhs_spec), precision,
        Geometry(geometry.lhs_dilation, tuple(padding), geometry.window_strides, geometry.rhs_dilation, groups, 1),
    )  # fmt: skip
    if batches > 1:
        out = merged_into(split_off(out, lhs_spec[1], batches), lhs_spec[1], lhs_spec[0])
    return converted(out, lhs.dtype)


def _cotangent_rhs(ct: Any, lhs: Any, rhs: ArrayType, numbers: Any, precision: Any, geometry: Geometry) -> Any:
    if ct.size == 0:
        return full(rhs.update(weak_type=False), 0)
    padding = []
    for x, w, y, low in _extents(lhs, rhs, ct, numbers, geometry):
        padding.append((low, y - x + w - low - 1))
    # Groups of features are now groups of the batch, and the other way round.
    new = Geometry(
        geometry.rhs_dilation, tuple(padding), geometry.lhs_dilation, geometry.window_strides,
        geometry.batch_group_count, geometry.feature_group_count,
    )  # fmt: skip
    lhs_spec, rhs_spec, out_spec = map(_swapped, numbers)
    out = _bind(lhs, ct, ConvDimensionNumbers(lhs_spec, out_spec, rhs_spec), precision, new)
    return converted(out, rhs.dtype)


def _swapped(spec: Sequence[int]) -> tuple[int, ...]:
    return (spec[1], spec[0], *spec[2:])


def _bind(lhs: Any, rhs: Any, numbers: ConvDimensionNumbers, precision: Any, geometry: Geometry) -> Any:
    wide = max(lhs.dtype, rhs.dtype, key=lambda d: d.itemsize)
    return conv_general_dilated_p.bind(
        converted(lhs, wide), converted(rhs, wide), dimension_numbers=numbers, precision=precision,
        preferred_element_type=None, **geometry._asdict(),
    )  # fmt: skip


def merged_into(x: Any, source: int, target: int) -> Any:
    """Dimension `source` as the outer part of dimension `target`, which is counted without it."""
    order = [d for d in range(x.ndim) if d != source]
    order.insert(target, source)
    shape = [x.shape[d] for d in order]
    x = transpose_p.bind(x, permutation=tuple(order)) if order != list(range(x.ndim)) else x
    return reshaped(x, (*shape[:target], shape[target] * shape[target + 1], *shape[target + 2 :]))


def _batch(operands: Any, dims: Any, dimension_numbers: ConvDimensionNumbers, **params: Any) -> tuple[Any, int]:
    """A batch of both operands is one more group; of the operand alone, a larger batch; of kernels, more features."""
    (x, kernel), (dim, kernel_dim) = operands, dims
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    more = groups if groups > 1 else batches
    bind = lambda a, b, **new: conv_general_dilated_p.bind(
        a, b, dimension_numbers=dimension_numbers, **{**params, **new}
    )
    if dim is not None and kernel_dim is not None:
        size = x.shape[dim]
        kernel = merged_into(kernel, kernel_dim, rhs_spec[0])
        if batches > 1:
            out = bind(merged_into(x, dim, lhs_spec[0]), kernel, batch_group_count=batches * size)
        else:
            out = bind(merged_into(x, dim, lhs_spec[1]), kernel, feature_group_count=groups * size)
        return split_off(out, out_spec[1], size), out_spec[1]
    if dim is not None:
        size = x.shape[dim]
        x = _merged_inside(x, dim, lhs_spec[0], batches) if batches > 1 else merged_into(x, dim, lhs_spec[0])
        return split_off(bind(x, kernel), out_spec[0], size), out_spec[0]
    size = kernel.shape[kernel_dim]
    if more == 1:
        out = bind(x, merged_into(kernel, kernel_dim, rhs_spec[0]))
        return split_off(out, out_spec[1], size), out_spec[1]
    out = bind(x, _merged_inside(kernel, kernel_dim, rhs_spec[0], more))
    place = out_spec[1]
    out = split_off(split_off(out, place, more), place + 1, size)
    return merged_into(out, place, place + 1), place


def _merged_inside(x: Any, dim: int, target: int, groups: int) -> Any:
    """The batch dimension merged into each group of dimension `target`, which is counted without it."""
    order = [d for d in range(x.ndim) if d != dim]
    x = transpose_p.bind(x, permutation=(*order[: target + 1], dim, *order[target + 1 :]))
    x = split_off(x, target, groups)  # groups, rest of the target, batch
    order = list(range(x.ndim))
    order[target + 1], order[target + 2] = target + 2, target + 1
    x = transpose_p.bind(x, permutation=tuple(order))
    shape = x.shape
    return reshaped(x, (*shape[:target], math.prod(shape[target : target + 3]), *shape[target + 3 :]))


def _samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    plain = ConvDimensionNumbers((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))
    last = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    pads = ((1, 1), (0, 2))
    cases: tuple[Any, ...] = (
        ((2, 3, 6, 7), (4, 3, 3, 2), plain, Geometry((1, 1), pads, (1, 1), (1, 1), 1, 1)),
        ((2, 6, 7, 3), (3, 2, 3, 4), last, Geometry((2, 1), pads, (1, 1), (1, 2), 1, 1)),
        ((2, 4, 5, 4), (6, 2, 2, 2), plain, Geometry((1, 2), ((-1, 1), (0, 0)), (1, 1), (1, 1), 2, 1)),
        ((1, 5, 5, 4), (3, 3, 1, 8), last, Geometry((1, 1), pads, (1, 1), (1, 1), 4, 1)),
        ((4, 3, 5, 5), (4, 3, 2, 2), plain, Geometry((1, 1), pads, (1, 1), (1, 1), 1, 2)),
        ((1, 2, 4, 3), (2, 2, 3, 3), plain, Geometry((1, 1), ((2, 1), (2, 2)), (2, 3), (1, 2), 1, 1)),
        ((1, 2, 4, 4), (3, 2, 1, 1), plain, Geometry((2, 2), ((0, 0), (0, 0)), (1, 1), (1, 1), 1, 1)),
    )
    dtypes = itertools.chain(
        itertools.repeat(FLOATS[2], len(cases)), (FLOATS[0], FLOATS[1], FLOATS[3], COMPLEX[0], INTEGERS[2])
    )
    for number, dtype in enumerate(dtypes):
        a, b, numbers, geometry = cases[number % len(cases)]
        params = {"dimension_numbers": numbers, "precision": None, "preferred_element_type": None, **geometry._asdict()}
        yield (sample(rng, a, dtype), sample(rng, b, dtype)), params


conv_general_dilated_p: Primitive = register(
    Primitive(
        "conv_general_dilated",
        Fusion.LIBRARY,
        type=conv_type,
        eval=_eval,
        expand=expand,
        jvp=(
            lambda t, x, y, out, **params: conv_general_dilated_p.bind(t, y, **params),
            lambda t, x, y, out, **params: conv_general_dilated_p.bind(x, t, **params),
        ),
        transpose=_transpose,
        batch=_batch,
        samples=_samples,
    )
)
