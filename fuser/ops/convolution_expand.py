"""Convolutions as other primitives: a product over sliding windows, or sums of products of slices.

In: operands and geometry. Out: the product of the padded operand's windows and the kernel, which kernels read where they lie
(implicit GEMM). Where each feature has a kernel of its own, slices are multiplied and added; a dilated operand becomes its
phases, which read no zeros.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser.ir.types import ArrayType, sum_dtype
from fuser.ops.convolution_geometry import ConvDimensionNumbers, Geometry, conv_type, padding_of, space_of
from fuser.ops.dot import dot_general_p
from fuser.ops.elementwise import convert_element_type_p, copy_p
from fuser.ops.movement import (
    broadcast_in_dim_p,
    concatenate_p,
    operand_type,
    reshaped,
    slice_p,
    transpose_p,
)
from fuser.ops.reduce import reduce_sum_p
from fuser.ops.windows import dilated, padded, places, sliding_windows_p
from fuser.trace.tangent import full

UNROLLED = 256  # places of a window that are written out, where each feature has a kernel of its own, or there are few
SUMS = 64  # places of a result, each of which is a sum of its own
MOST_PHASES = 16  # of a dilated operand, each of which is a convolution without dilation
FEW = 4  # features of a result, which leave most columns of a product idle
LANES = 16  # of a vector of float32: features are computed in so many at a time
WIDE = 192  # places of a result that are enough columns for a product of their own


def expand(
    lhs: Any, rhs: Any, dimension_numbers: ConvDimensionNumbers, precision: Any = None,
    preferred_element_type: Any = None, **params: Any,
) -> Any:  # fmt: skip
    """The convolution by other primitives."""
    geometry = Geometry(**params)
    out = conv_type(
        operand_type(lhs), operand_type(rhs), dimension_numbers, precision, preferred_element_type, **params
    )
    if out.size == 0 or lhs.size == 0 or rhs.size == 0:
        return full(out, 0)
    more = {"precision": precision, "preferred_element_type": preferred_element_type}
    phases = math.prod(geometry.lhs_dilation)
    if 1 < phases <= MOST_PHASES and all(
        s == 1 for s, d in zip(geometry.window_strides, geometry.lhs_dilation) if d > 1
    ):
        joined = _joined_phases(rhs, dimension_numbers, geometry, out)
        by_phases = _by_phases if joined is None else functools.partial(_by_joined_phases, joined)
        return by_phases(lhs, rhs, dimension_numbers, geometry, out, more)
    x = padded(lhs, padding_of(lhs.ndim, dimension_numbers.lhs_spec, geometry))
    groups = geometry.feature_group_count
    few = groups > 1 or rhs.shape[dimension_numbers.rhs_spec[0]] <= FEW
    if (
        lhs.shape[dimension_numbers.lhs_spec[1]] == groups
        and few
        and math.prod(space_of(rhs, dimension_numbers.rhs_spec)) <= UNROLLED
    ):
        return _by_features(x, rhs, dimension_numbers, geometry, out)
    alone = lhs.shape[dimension_numbers.lhs_spec[0]] == geometry.batch_group_count > 1
    if alone and math.prod(space_of(out, dimension_numbers.out_spec)) <= SUMS:
        return _by_places(x, rhs, dimension_numbers, geometry, out)
    return _by_product(x, rhs, dimension_numbers, geometry, out, more)


def _by_phases(lhs: Any, rhs: Any, numbers: ConvDimensionNumbers, geometry: Geometry, out: ArrayType, more: Any) -> Any:
    """Along the first dilated dimension: results that are `dilation` apart meet the same places of the kernel, and no
    zeros in between. So each phase is a convolution without dilation, and the results are put in turns."""
    n = next(i for i, d in enumerate(geometry.lhs_dilation) if d > 1)
    dilation, apart, (low, _) = geometry.lhs_dilation[n], geometry.rhs_dilation[n], geometry.padding[n]
    k, o = numbers.rhs_spec[2 + n], numbers.out_spec[2 + n]
    common = math.gcd(dilation, apart)
    step, extent = dilation // common, lhs.shape[numbers.lhs_spec[2 + n]]
    each = -(-out.shape[o] // dilation)
    parts = []
    for phase in range(dilation):
        first = next((t for t in range(min(step, rhs.shape[k])) if (phase + t * apart - low) % dilation == 0), None)
        shape = (*out.shape[:o], each, *out.shape[o + 1 :])
        if first is None:
            parts.append(full(out.update(shape=shape), 0))
            continue
        start = [first if d == k else 0 for d in range(rhs.ndim)]
        strides = [step if d == k else 1 for d in range(rhs.ndim)]
        taken = slice_p.bind(rhs, start_indices=tuple(start), limit_indices=rhs.shape, strides=tuple(strides))
        before = -((phase + first * apart - low) // dilation)
        reach = each - 1 + dilated(taken.shape[k], apart // common)
        new = geometry._replace(
            padding=_with(geometry.padding, n, (before, reach - extent - before)),
            lhs_dilation=_with(geometry.lhs_dilation, n, 1),
            rhs_dilation=_with(geometry.rhs_dilation, n, apart // common),
        )
        parts.append(expand(lhs, taken, numbers, **more, **new._asdict()))
    spread = [reshaped(p, (*p.shape[: o + 1], 1, *p.shape[o + 1 :])) for p in parts]
    turns = concatenate_p.bind(*spread, dimension=o + 1)
    whole = reshaped(turns, (*out.shape[:o], each * dilation, *out.shape[o + 1 :]))
    if whole.shape == out.shape:
        return whole
    return slice_p.bind(whole, start_indices=(0,) * whole.ndim, limit_indices=out.shape, strides=None)


class _Phases(NamedTuple):
    """One dimension of space of all phases together: the first place of the operand that result 0 meets, how many it meets,
    and of each phase the place of the kernel that meets the first."""

    first: int
    window: int
    starts: tuple[int, ...]


def _joined_phases(
    rhs: Any, numbers: ConvDimensionNumbers, geometry: Geometry, out: ArrayType
) -> tuple[_Phases, ...] | None:
    """The phases as more features of one convolution, whose kernels are filled up with zeros; None where that is more work
    than a convolution each: few features leave most of a vector's lanes idle."""
    if geometry.feature_group_count * geometry.batch_group_count > 1:
        return None
    found, extents = [], space_of(rhs, numbers.rhs_spec)
    for extent, spread, step, (low, _) in zip(extents, geometry.lhs_dilation, geometry.rhs_dilation, geometry.padding):
        if spread > 1 and step > 1:
            return None
        first, last = (-(low // spread), (spread - 1 + extent - 1 - low) // spread) if spread > 1 else (0, extent - 1)
        starts = tuple(first * spread + low - phase for phase in range(spread)) if spread > 1 else (0,)
        found.append(_Phases(first, last - first + 1, starts))
    features = out.shape[numbers.out_spec[1]]
    apart = math.prod(extents) * -(-features // LANES)
    together = math.prod(p.window for p in found) * -(-features * math.prod(geometry.lhs_dilation) // LANES)
    return tuple(found) if together <= apart else None


def _by_joined_phases(
    phases: Sequence[_Phases], lhs: Any, rhs: Any, numbers: ConvDimensionNumbers, geometry: Geometry, out: ArrayType,
    more: Any,
) -> Any:  # fmt: skip
    """One convolution whose features are (phase along each dimension, feature), put in turns."""
    lhs_spec, rhs_spec, out_spec = numbers
    kernels = []
    for place in np.ndindex(*geometry.lhs_dilation):
        kernel = rhs
        for n, (found, spread) in enumerate(zip(phases, geometry.lhs_dilation)):
            if spread == 1:
                continue
            d, start = rhs_spec[2 + n], found.starts[place[n]]
            config = [(0, 0, 0)] * rhs.ndim
            config[d] = (-start, start + found.window * spread - rhs.shape[d], 0)
            strides = [spread if e == d else 1 for e in range(rhs.ndim)]
            kernel = padded(kernel, config)
            kernel = slice_p.bind(
                kernel, start_indices=(0,) * rhs.ndim, limit_indices=kernel.shape, strides=tuple(strides)
            )
        kernels.append(kernel)
    each = tuple(-(-out.shape[d] // spread) for d, spread in zip(out_spec[2:], geometry.lhs_dilation))
    pads = []
    for n, (found, spread) in enumerate(zip(phases, geometry.lhs_dilation)):
        extent = lhs.shape[lhs_spec[2 + n]]
        beyond = each[n] - 1 + found.window - extent + found.first
        pads.append((-found.first, beyond) if spread > 1 else geometry.padding[n])
    new = geometry._replace(padding=tuple(pads), lhs_dilation=(1,) * len(pads))
    joined = concatenate_p.bind(*kernels, dimension=rhs_spec[0])
    result = expand(lhs, copy_p.bind(joined), numbers, **more, **new._asdict())
    return _in_turns(result, numbers, geometry, out)


def _in_turns(result: Any, numbers: ConvDimensionNumbers, geometry: Geometry, out: ArrayType) -> Any:
    """Features (phase along each dimension of space, feature) as neighbours in space."""
    out_spec, spread = numbers.out_spec, geometry.lhs_dilation
    feature, features = out_spec[1], out.shape[out_spec[1]]
    shape = (*result.shape[:feature], *spread, features, *result.shape[feature + 1 :])
    place = lambda d: d + len(spread) * (d > feature)
    order: list[int] = []
    for d in range(out.ndim):
        order.append(feature + len(spread) if d == feature else place(d))
        if d in out_spec[2:]:
            order.append(feature + list(out_spec[2:]).index(d))
    turns = transpose_p.bind(reshaped(result, shape), permutation=tuple(order))
    wide = list(out.shape)
    for n, d in enumerate(out_spec[2:]):
        wide[d] = result.shape[d] * spread[n]
    whole = reshaped(turns, tuple(wide))
    if whole.shape == out.shape:
        return whole
    return slice_p.bind(whole, start_indices=(0,) * whole.ndim, limit_indices=out.shape, strides=None)


def _with(values: Sequence[Any], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _by_features(x: Any, rhs: Any, numbers: ConvDimensionNumbers, geometry: Geometry, out: ArrayType) -> Any:
    """One input feature a group (a depthwise convolution): elementwise products of slices, added up."""
    lhs_spec, rhs_spec, out_spec = numbers
    wide = sum_dtype(out.dtype)
    groups = geometry.feature_group_count
    each = rhs.shape[rhs_spec[0]] // groups
    window, strides, dilation = [1] * x.ndim, [1] * x.ndim, [1] * x.ndim
    for n, d in enumerate(lhs_spec[2:]):
        window[d], strides[d], dilation[d] = (
            rhs.shape[rhs_spec[2 + n]],
            geometry.window_strides[n],
            geometry.rhs_dilation[n],
        )
    # In the order of the result, its features as (group, those of the group).
    order = [list(out_spec).index(d) for d in range(x.ndim)]
    feature = order.index(1)
    shape = (*out.shape[:feature], groups, each, *out.shape[feature + 1 :])
    kept = tuple(d + (d > feature) for d in range(x.ndim))
    total = None
    for place, part in zip(np.ndindex(*space_of(rhs, rhs_spec)), places(x, window, strides, dilation)):
        value = converted(transpose_p.bind(part, permutation=tuple(lhs_spec[d] for d in order)), wide)
        value = broadcast_in_dim_p.bind(value, shape=shape, broadcast_dimensions=kept)
        start, limit = [0] * rhs.ndim, list(rhs.shape)
        for d, p in zip(rhs_spec[2:], place):
            start[d], limit[d] = p, p + 1
        weight = slice_p.bind(rhs, start_indices=tuple(start), limit_indices=tuple(limit), strides=None)
        weight = converted(reshaped(weight, (groups, each)), wide)
        weight = broadcast_in_dim_p.bind(weight, shape=shape, broadcast_dimensions=(feature, feature + 1))
        product = value * weight
        total = product if total is None else total + product
    return reshaped(converted(total, out.dtype), out.shape)


def _by_places(x: Any, rhs: Any, numbers: ConvDimensionNumbers, geometry: Geometry, out: ArrayType) -> Any:
    """One item of the batch a group and few places in the result (the kernel's gradient of a depthwise convolution): for
    each of these a sum of products of the kernel and a slice, all of which read the same padded operand."""
    lhs_spec, rhs_spec, out_spec = numbers
    wide = sum_dtype(out.dtype)
    groups, space = geometry.batch_group_count, space_of(out, out_spec)
    feature = rhs_spec[0]
    kernel = converted(split_off(rhs, feature, groups), wide)
    order = tuple(lhs_spec[list(rhs_spec).index(d)] for d in range(rhs.ndim))
    kept = tuple(d + (d > feature) for d in range(rhs.ndim))
    summed = tuple(d for d in range(kernel.ndim) if d not in (feature, feature + 1))
    x = x if geometry.padding == ((0, 0),) * len(space) else copy_p.bind(x)
    sums = []
    for place in np.ndindex(*space):
        start, limit, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
        for n, d in enumerate(lhs_spec[2:]):
            strides[d], start[d] = geometry.rhs_dilation[n], place[n] * geometry.window_strides[n]
            limit[d] = start[d] + dilated(rhs.shape[rhs_spec[2 + n]], strides[d])
        part = slice_p.bind(x, start_indices=tuple(start), limit_indices=tuple(limit), strides=tuple(strides))
        part = converted(transpose_p.bind(part, permutation=order), wide)
        part = broadcast_in_dim_p.bind(part, shape=kernel.shape, broadcast_dimensions=kept)
        total = reduce_sum_p.bind(part * kernel, axes=summed)
        sums.append(reshaped(total, (1, out.shape[out_spec[1]], 1)))
    whole = reshaped(concatenate_p.bind(*sums, dimension=2), (1, out.shape[out_spec[1]], *space))
    whole = transpose_p.bind(whole, permutation=tuple(list(out_spec).index(d) for d in range(out.ndim)))
    return converted(whole, out.dtype)


def converted(x: Any, dtype: np.dtype) -> Any:
    return x if x.dtype == dtype else convert_element_type_p.bind(x, new_dtype=dtype, weak_type=False)


def _by_product(x: Any, rhs: Any, numbers: ConvDimensionNumbers, geometry: Geometry, out: ArrayType, more: Any) -> Any:
    """A product of the padded operand's windows and the kernel; dimensions have letters: n, g (groups), c, o, s and w."""
    lhs_spec, rhs_spec, out_spec = numbers
    space = range(x.ndim - 2)
    letters: list[Any] = [None] * x.ndim
    for letter, d in zip(("n", "c", *(f"s{n}" for n in space)), lhs_spec):
        letters[d] = letter
    x, letters = _windows(x, letters, rhs, rhs_spec, geometry)
    groups = geometry.feature_group_count * geometry.batch_group_count
    kernel_letters: list[Any] = [None] * rhs.ndim
    for letter, d in zip(("o", "c", *(f"w{n}" for n in space)), rhs_spec):
        kernel_letters[d] = letter
    kernel = rhs
    if groups > 1:
        grouped = "c" if geometry.feature_group_count > 1 else "n"
        x, letters = _split(x, letters, grouped, groups)
        kernel, kernel_letters = _split(kernel, kernel_letters, "o", groups)
    for n in space:  # windows of one place have no dimension
        if f"w{n}" not in letters:
            at = kernel_letters.index(f"w{n}")
            kernel = reshaped(kernel, (*kernel.shape[:at], *kernel.shape[at + 1 :]))
            kernel_letters.remove(f"w{n}")
    wanted = [
        ("n", "g", "o", *(f"s{n}" for n in space))[i + (i > 0)]
        for i in (list(out_spec).index(d) for d in range(out.ndim))
    ]
    features_last = wanted[-1] == "o"
    batch_first = wanted.index("n") < wanted.index("o")
    if not features_last and batch_first and math.prod(out.shape[d] for d in out_spec[2:]) >= WIDE:
        extent = x.shape[letters.index("n")]
        kernel = broadcast_in_dim_p.bind(
            kernel, shape=(extent, *kernel.shape), broadcast_dimensions=tuple(range(1, kernel.ndim + 1))
        )
        kernel_letters = ["n", *kernel_letters]
    sides = [(x, letters), (kernel, kernel_letters)]
    first, second = sides if features_last else sides[::-1]
    product, found = _contracted(first, second, more)
    final = [letter for want in wanted for letter in (("g", "o") if want == "o" and groups > 1 else (want,))]
    order = tuple(found.index(letter) for letter in final)
    if order != tuple(range(len(order))):
        product = transpose_p.bind(product, permutation=order)
    return reshaped(product, out.shape)


def _windows(
    x: Any, letters: list[Any], rhs: Any, rhs_spec: Sequence[int], geometry: Geometry
) -> tuple[Any, list[Any]]:
    """Strided slices where a window is one place, else the windows, whose dimensions are called w."""
    strides, slid = [1] * x.ndim, []
    limits = list(x.shape)
    for n, stride in enumerate(geometry.window_strides):
        d = letters.index(f"s{n}")
        if rhs.shape[rhs_spec[2 + n]] > 1:
            slid.append(n)
        elif stride > 1:
            strides[d] = stride
    if strides != [1] * x.ndim:
        x = slice_p.bind(x, start_indices=(0,) * x.ndim, limit_indices=tuple(limits), strides=tuple(strides))
    if slid:
        x = sliding_windows_p.bind(
            x,
            dimensions=tuple(letters.index(f"s{n}") for n in slid),
            window=tuple(rhs.shape[rhs_spec[2 + n]] for n in slid),
            strides=tuple(geometry.window_strides[n] for n in slid),
            dilation=tuple(geometry.rhs_dilation[n] for n in slid),
        )
    return x, [*letters, *(f"w{n}" for n in slid)]


def _split(x: Any, letters: list[Any], letter: str, groups: int) -> tuple[Any, list[Any]]:
    """One dimension as two, the groups first."""
    d = letters.index(letter)
    shape = (*x.shape[:d], groups, x.shape[d] // groups, *x.shape[d + 1 :])
    return reshaped(x, shape), [*letters[:d], "g", *letters[d:]]


def _contracted(first: tuple[Any, list[Any]], second: tuple[Any, list[Any]], more: Any) -> tuple[Any, list[Any]]:
    """The product over the letters that both have, but for n and g, which are batch; and the result's letters."""
    (x, xs), (y, ys) = first, second
    both = [letter for letter in xs if letter in ys]
    batch = [letter for letter in ("n", "g") if letter in both]
    summed = [letter for letter in both if letter not in batch]
    numbers = (
        (tuple(xs.index(s) for s in summed), tuple(ys.index(s) for s in summed)),
        (tuple(xs.index(b) for b in batch), tuple(ys.index(b) for b in batch)),
    )
    product = dot_general_p.bind(x, y, dimension_numbers=numbers, **more)
    return product, [*batch, *(s for s in xs if s not in both), *(s for s in ys if s not in both)]


def split_off(x: Any, dimension: int, count: int) -> Any:
    """Dimension `dimension` as two, the first of extent `count`."""
    shape = x.shape
    return reshaped(x, (*shape[:dimension], count, shape[dimension] // count, *shape[dimension + 1 :]))
