"""reduce_window: reductions of windows of arrays, as pooling layers are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.dim import as_extent
from fuser.ir.primitive import Primitive
from fuser.ir.types import ArrayType
from fuser.lax.others import padtype_to_pads
from fuser.lax.reduction import _MONOIDS, _monoid
from fuser.lax.values import as_value
from fuser.ops import elementwise as E
from fuser.ops.reduce_window import (
    Windows,
    reduce_window_max_p,
    reduce_window_min_p,
    reduce_window_p,
    reduce_window_sum_p,
)
from fuser.ops.windows import count, dilated
from fuser.trace import tree
from fuser.trace.core import bind
from fuser.trace.stage import stage

_WINDOWED: dict[Primitive, Primitive] = {
    E.add_p: reduce_window_sum_p,
    E.max_p: reduce_window_max_p,
    E.min_p: reduce_window_min_p,
}


def reduce_window(
    operand: Any, init_value: Any, computation: Callable[..., Any], window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None, padding: Any = "VALID", base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    """The reduction of each window of arrays by an associative `computation` of two elements, beginning with `init_value`.

    Several arrays of one shape are reduced together. Padding, "VALID", "SAME", "SAME_LOWER" or (low, high) pairs, holds
    `init_value`. Sums, maxima and minima that begin with what changes nothing are primitives of their own.
    """
    values, structure = tree.flatten(operand)
    starts, start_structure = tree.flatten(init_value)
    if structure != start_structure:
        raise ValueError(
            f"Operands must have the same tree structure as init_values: {structure} vs. {start_structure}"
        )
    if not values:
        raise ValueError("reduce_window must have at least one operand.")
    arrays = [as_value(v, "reduce_window") for v in values]
    firsts = [as_value(v, "reduce_window") for v in starts]
    window = tuple(as_extent(w) for w in window_dimensions)
    windows = _windows(arrays[0].shape, window, window_strides, padding, base_dilation, window_dilation)
    if len(arrays) == 1 and (known := _known(computation, structure, arrays[0], firsts[0])) is not None:
        return tree.unflatten(structure, [bind(known, arrays[0], **windows._asdict())])
    if any(a.dtype != s.dtype for a, s in zip(arrays, firsts)):
        given, wanted = [a.dtype.name for a in arrays], [s.dtype.name for s in firsts]
        raise TypeRuleError(
            f"reduce_window got inconsistent dtypes for operands and init_values: got operand dtypes {given} and "
            f"init_value dtypes {wanted}."
        )
    windows.counts(arrays[0].shape)
    scalars = [ArrayType((), a.dtype) for a in arrays]

    def reduced(*elements: Any) -> list[Any]:
        half = len(elements) // 2
        result = computation(tree.unflatten(structure, elements[:half]), tree.unflatten(structure, elements[half:]))
        leaves, found = tree.flatten(result)
        if found != structure:
            raise ValueError(
                f"reduce_window output must have the same tree structure as the operands {structure} vs. {found}"
            )
        return [as_value(leaf, "reduce_window") for leaf in leaves]

    graph = stage(reduced, [*scalars, *scalars], "reduce_window")
    consts, inner = (
        graph.consts,
        graph.updated("closed", invars=(*graph.constvars, *graph.invars), constvars=(), consts=()),
    )
    return tree.unflatten(
        structure, bind(reduce_window_p, *arrays, *firsts, jaxpr=inner, consts=consts, **windows._asdict())
    )


def _windows(
    shape: Sequence[int], window: tuple[int, ...], strides: Any, padding: Any, base: Any, apart: Any
) -> Windows:
    ones = (1,) * len(window)
    numbers = lambda values: ones if values is None else tuple(as_extent(v) for v in values)
    strides, base, apart = numbers(strides), numbers(base), numbers(apart)
    named = {"window_dimensions": window, "window_strides": strides, "base_dilation": base, "window_dilation": apart}
    for name, extents in named.items():
        if any(e < 1 for e in extents):
            raise TypeRuleError(f"reduce_window {name} must have every element be positive, got {extents}.")
    if isinstance(padding, str):
        padding = padtype_to_pads(shape, [dilated(w, a) for w, a in zip(window, apart)], strides, padding)
    pads = tuple((as_extent(low), as_extent(high)) for low, high in padding)
    return Windows(window, strides, pads, base, apart)


def _known(computation: Any, structure: Any, array: Any, start: Any) -> Primitive | None:
    """The primitive of this reduction, where there is one and it begins with what changes nothing."""
    if hasattr(start, "_trace") or structure.num_nodes != 1:
        return None
    monoid = _monoid(computation, array.dtype)
    windowed = None if monoid is None else _WINDOWED.get(monoid)
    if windowed is None or monoid is None:
        return None
    neutral = np.asarray(_MONOIDS[monoid][1](array.dtype)).astype(array.dtype)
    return windowed if np.asarray(start) == neutral else None


def reduce_window_shape_tuple(
    operand_shape: Sequence[int], window_dimensions: Sequence[int], window_strides: Sequence[int], padding: Any,
    base_dilation: Sequence[int] | None = None, window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:  # fmt: skip
    """How many windows there are along each dimension."""
    ones = (1,) * len(operand_shape)
    wide = map(dilated, operand_shape, base_dilation or ones)
    windows = map(dilated, window_dimensions, window_dilation or ones)
    return tuple(count(e + low + high, w, s) for e, (low, high), w, s in zip(wide, padding, windows, window_strides))
