"""Convolutions with jax.lax's names: shapes, paddings and dimension numbers in; `conv_general_dilated_p` does the rest."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.errors import TypeRuleError
from fuser.lax.movement import pad, reshape, rev, transpose
from fuser.lax.others import padtype_to_pads
from fuser.lax.reduction import dot_general
from fuser.lax.values import as_value
from fuser.ops.convolution import conv_general_dilated_p
from fuser.ops.convolution_geometry import ConvDimensionNumbers, conv_shape
from fuser.ops.windows import dilated, sliding_windows_p
from fuser.trace.core import bind

ConvGeneralDilatedDimensionNumbers = None | ConvDimensionNumbers | tuple[str, str, str]
_LETTERS = (("N", "C"), ("O", "I"), ("N", "C"))


def conv_general_permutations(dimension_numbers: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """For three strings such as ("NHWC", "HWIO", "NHWC") the positions of batch (or outputs), features (or inputs) and space,
    the latter in the kernel's order. TypeError for strings that are none."""
    kernel = dimension_numbers[1]
    for n, (text, (a, b)) in enumerate(zip(dimension_numbers, _LETTERS)):
        where = f"convolution dimension_numbers[{n}]"
        if not text.count(a) == text.count(b) == 1:
            raise TypeError(f"{where} must contain the characters '{a}' and '{b}' exactly once, got {text}.")
        if len(text) != len(set(text)):
            raise TypeError(f"{where} cannot have duplicate characters, got {text}.")
    space = [set(text) - set(pair) for text, pair in zip(dimension_numbers, _LETTERS)]
    if not space[0] == space[1] == space[2]:
        raise TypeError(
            "convolution dimension_numbers elements must each have the same set of spatial characters, got "
            f"{tuple(dimension_numbers)}."
        )
    ordered = [c for c in kernel if c not in "OI"]
    return tuple(tuple(text.index(c) for c in (*pair, *ordered)) for text, pair in zip(dimension_numbers, _LETTERS))


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Three strings, or None for batch, features and then space in all three, as ConvDimensionNumbers. TypeError for others."""
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    if len(lhs_shape) != len(rhs_shape):
        raise TypeError(
            f"convolution requires lhs and rhs ndim to be equal, got {len(lhs_shape)} and {len(rhs_shape)}."
        )
    if dimension_numbers is None:
        order = tuple(range(len(lhs_shape)))
        return ConvDimensionNumbers(order, order, order)
    if not isinstance(dimension_numbers, (list, tuple)):
        raise TypeError(f"convolution dimension_numbers must be tuple/list or None, got {type(dimension_numbers)}.")
    if len(dimension_numbers) != 3:
        raise TypeError(f"convolution dimension_numbers list/tuple must be length 3, got {len(dimension_numbers)}.")
    if not all(isinstance(text, str) for text in dimension_numbers):
        kinds = tuple(map(type, dimension_numbers))
        raise TypeError(f"convolution dimension_numbers elements must be strings, got {kinds}.")
    for n, text in enumerate(dimension_numbers):
        if len(text) != len(lhs_shape):
            raise TypeError(
                f"convolution dimension_numbers[{n}] must have len equal to the ndim of lhs and rhs, got {len(text)} for "
                f"lhs and rhs shapes {tuple(lhs_shape)} and {tuple(rhs_shape)}."
            )
    return ConvDimensionNumbers(*conv_general_permutations(dimension_numbers))


def _pairs(function: str, padding: Any, space: Sequence[int], window: Sequence[int], strides: Any) -> Any:
    """The padding as (low, high) pairs, from such or from a word."""
    if isinstance(padding, str):
        return tuple(padtype_to_pads(space, window, strides, padding))
    try:
        return tuple((operator.index(low), operator.index(high)) for low, high in padding)
    except (ValueError, TypeError):
        raise ValueError(
            f"padding argument to {function} should be a string or a sequence of (low, high) pairs, got {padding}"
        ) from None


def _integers(values: Sequence[int] | None, count: int) -> tuple[int, ...]:
    return (1,) * count if values is None else tuple(operator.index(v) for v in values)


def conv_general_dilated(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Any, lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None, dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1, batch_group_count: int = 1, precision: Any = None,
    preferred_element_type: Any = None, out_sharding: None = None,
) -> Any:  # fmt: skip
    """The convolution of `lhs` with the kernels `rhs`, which are not turned: each result is a sum of products over a window.

    Padding is "SAME", "SAME_LOWER", "VALID" or (low, high) pairs, negative ones too; dilations put gaps between elements.
    Sums of 16-bit floats are taken in float32. TypeRuleError for shapes that do not go together.
    """
    name = "conv_general_dilated"
    x, kernel = as_value(lhs, name), as_value(rhs, name)
    numbers = conv_dimension_numbers(x.shape, kernel.shape, dimension_numbers)
    space = len(numbers.lhs_spec) - 2
    spread, apart = _integers(lhs_dilation, space), _integers(rhs_dilation, space)
    if isinstance(padding, str) and any(d != 1 for d in spread):
        raise ValueError(
            "String padding is not implemented for transposed convolution using this op. Please either exactly specify "
            "the required padding or use conv_transpose."
        )
    window = [dilated(kernel.shape[d], a) for d, a in zip(numbers.rhs_spec[2:], apart)]
    pads = _pairs(name, padding, [x.shape[d] for d in numbers.lhs_spec[2:]], window, window_strides)
    element = None if preferred_element_type is None else dtypes.requested(preferred_element_type, name)
    return bind(
        conv_general_dilated_p, x, kernel, dimension_numbers=ConvDimensionNumbers(*map(tuple, numbers)),
        window_strides=_integers(window_strides, space), padding=pads, lhs_dilation=spread, rhs_dilation=apart,
        feature_group_count=operator.index(feature_group_count), batch_group_count=operator.index(batch_group_count),
        precision=precision, preferred_element_type=element,
    )  # fmt: skip


def conv(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: str, precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """`conv_general_dilated` of (batch, features, *space) with (outputs, inputs, *space)."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Any, lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None, precision: Any = None, preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """`conv` with dilations and any padding."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def _transposed_padding(window: int, stride: int, padding: Any) -> tuple[int, int]:
    """The padding of a transposed convolution along one dimension, from that of the convolution which it transposes."""
    if padding == "SAME":
        total = window + stride - 2
        before = window - 1 if stride > window - 1 else -(-total // 2)
    elif padding == "VALID":
        total, before = window + stride - 2 + max(window - stride, 0), window - 1
    elif isinstance(padding, tuple):
        before, after = (window - p - 1 for p in padding)
        return before, after
    else:
        raise ValueError(f"Invalid padding mode: {padding}")
    return before, total - before


_TRANSPOSED = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


def conv_transpose(
    lhs: Any, rhs: Any, strides: Sequence[int], padding: Any, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, transpose_kernel: bool = False, precision: Any = None,
    preferred_element_type: Any = None, use_consistent_padding: bool = False,
) -> Any:  # fmt: skip
    """A convolution with fractional strides: `strides` are put between the operand's elements.

    "SAME", "VALID" and, with `use_consistent_padding`, pairs are the padding of the convolution of which this is the
    derivative; other pairs are its own. `transpose_kernel` turns the kernel and swaps its features. Features come last
    unless `dimension_numbers` say otherwise.
    """
    x, kernel = as_value(lhs, "conv_transpose"), as_value(rhs, "conv_transpose")
    assert x.ndim == kernel.ndim and x.ndim >= 2, (
        "conv_transpose needs an operand and a kernel of one rank of at least 2"
    )
    if dimension_numbers is None:
        if x.ndim not in _TRANSPOSED:
            raise ValueError("No 4+ dimensional dimension_number defaults.")
        dimension_numbers = _TRANSPOSED[x.ndim]
    numbers = conv_dimension_numbers(x.shape, kernel.shape, dimension_numbers)
    apart = _integers(rhs_dilation, x.ndim - 2)
    if use_consistent_padding or padding in ("SAME", "VALID"):
        window = [dilated(kernel.shape[d], a) for d, a in zip(numbers.rhs_spec[2:], apart)]
        each = [padding] * len(strides) if isinstance(padding, str) else padding
        padding = tuple(map(_transposed_padding, window, strides, each))
    if transpose_kernel:
        kernel = rev(kernel, numbers.rhs_spec[2:])
        order = list(range(kernel.ndim))
        a, b = numbers.rhs_spec[:2]
        order[a], order[b] = b, a
        kernel = transpose(kernel, tuple(order))
    return conv_general_dilated(
        x, kernel, (1,) * (x.ndim - 2), padding, strides, apart, numbers, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_patches(
    lhs: Any, filter_shape: Sequence[int], window_strides: Sequence[int], padding: Any,
    lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """The windows that a convolution multiplies with its kernels: as features (feature, *position in the window) of the result."""
    name = "conv_general_dilated_patches"
    x, window = as_value(lhs, name), tuple(operator.index(w) for w in filter_shape)
    numbers = conv_dimension_numbers(x.shape, (1, 1, *window), dimension_numbers)
    lhs_spec, _, out_spec = numbers
    spread, apart = _integers(lhs_dilation, len(window)), _integers(rhs_dilation, len(window))
    wide = [dilated(w, a) for w, a in zip(window, apart)]
    pads = _pairs(name, padding, [x.shape[d] for d in lhs_spec[2:]], wide, window_strides)
    config = [(0, 0, 0)] * x.ndim
    for d, (low, high), dilation in zip(lhs_spec[2:], pads, spread):
        config[d] = (low, high, dilation - 1)
    x = pad(transpose(x, lhs_spec), np.zeros((), x.dtype), [config[d] for d in lhs_spec])
    found = bind(
        sliding_windows_p, x, dimensions=tuple(range(2, x.ndim)), window=window,
        strides=_integers(window_strides, len(window)), dilation=apart,
    )  # fmt: skip
    positions = tuple(range(2, x.ndim))
    found = transpose(found, (0, 1, *range(x.ndim, found.ndim), *positions))
    batch, features, counts = found.shape[0], found.shape[1] * math.prod(window), found.shape[-len(positions) :]
    found = reshape(found, (batch, features, *(counts if positions else ())))
    result = transpose(found, tuple(list(out_spec).index(d) for d in range(x.ndim)))
    return result if preferred_element_type is None else result.astype(preferred_element_type)


def conv_general_dilated_local(
    lhs: Any, rhs: Any, window_strides: Sequence[int], padding: Any, filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None, precision: Any = None,
) -> Any:  # fmt: skip
    """A convolution with a kernel of its own at each position: `rhs` has the result's space, and features × window as inputs."""
    x, kernels = as_value(lhs, "conv_general_dilated_local"), as_value(rhs, "conv_general_dilated_local")
    window = tuple(operator.index(w) for w in filter_shape)
    numbers = conv_dimension_numbers(x.shape, (1, 1, *window), dimension_numbers)
    patches = conv_general_dilated_patches(x, window, window_strides, padding, lhs_dilation, rhs_dilation, numbers)
    _, rhs_spec, out_spec = numbers
    batch = sorted(zip(out_spec[2:], rhs_spec[2:]))
    contracted = (out_spec[1],), (rhs_spec[1],)
    product = dot_general(
        patches, kernels, (contracted, (tuple(a for a, _ in batch), tuple(b for _, b in batch))), precision
    )
    order = list(range(product.ndim - 2))
    for position, d in sorted(((out_spec[0], product.ndim - 2), (out_spec[1], product.ndim - 1))):
        order.insert(position, d)
    return transpose(product, tuple(order))


# Shapes.


def conv_shape_tuple(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], strides: Sequence[int], pads: Any, batch_group_count: int = 1
) -> tuple[int, ...]:
    """The shape (batch, features, *space) of the convolution of (batch, features, *space) with (outputs, inputs, *space)."""
    if isinstance(pads, str):
        pads = padtype_to_pads(lhs_shape[2:], rhs_shape[2:], strides, pads)
    if len(pads) != len(lhs_shape) - 2:
        raise TypeRuleError(
            f"Wrong number of explicit pads for convolution: expected {len(lhs_shape) - 2}, got {len(pads)}."
        )
    return conv_shape(tuple(map(int, lhs_shape)), tuple(map(int, rhs_shape)), strides, pads, batch_group_count)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], window_strides: Sequence[int], padding: Any,
    dimension_numbers: Sequence[str],
) -> tuple[int, ...]:  # fmt: skip
    """`conv_shape_tuple` for dimensions in any order."""
    lhs_spec, rhs_spec, out_spec = conv_general_permutations(dimension_numbers)
    ordered = conv_shape_tuple(
        [lhs_shape[d] for d in lhs_spec], [rhs_shape[d] for d in rhs_spec], window_strides, padding
    )
    return tuple(ordered[out_spec.index(d)] for d in range(len(ordered)))


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], window_strides: Sequence[int], padding: Any,
    dimension_numbers: Sequence[str],
) -> tuple[int, ...]:  # fmt: skip
    """The shape of `conv_transpose` for dimensions in any order."""
    lhs_spec, rhs_spec, out_spec = conv_general_permutations(dimension_numbers)
    given, kernel = [lhs_shape[d] for d in lhs_spec], [rhs_shape[d] for d in rhs_spec]
    if isinstance(padding, str):
        padding = [_transposed_padding(w, s, padding) for w, s in zip(kernel[2:], window_strides)]
    space = [(e - 1) * s - w + 2 + sum(p) for e, w, s, p in zip(given[2:], kernel[2:], window_strides, padding)]
    ordered = (given[0], kernel[0], *space)
    return tuple(ordered[out_spec.index(d)] for d in range(len(ordered)))
