"""`x[max(0, i - w) : i + 1]`: a slice whose extent values decide, of at most as many elements as its ends can lie apart.

It is a window of that many elements, moved inside the array, and a mask of those that count. Ends before the array, which NumPy
counts from its end, are events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.interop.numpy.checks import notice
from fuser.interop.numpy.context import untraceable
from fuser.interop.numpy.spans import DEEPEST, Form, Span, form_of, is_integer, producer, sum_of, windowed
from fuser.interop.numpy.traced import TracedArray
from fuser.ir.graph import Literal, Operand, Var
from fuser.lax.values import broadcast_to, literal
from fuser.ops import elementwise as E
from fuser.ops import movement as V
from fuser.ops.conversion import convert_element_type_p
from fuser.trace.core import bind
from fuser.trace.stage import StageTrace

MOST_FORMS = 8  # of which one end of a slice is the largest or smallest
_INDEX = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class Varying:
    """The elements from `start` up to `stop`, at most `most` of them."""

    start: Any
    stop: Any
    most: int


def varying(part: slice) -> Varying | None:
    """A slice between traced integers that lie at most a known distance apart; None for any other.

    Each of what the ends are chosen from must be a number or stand in such a relation, so that few elements more are looked at.
    """
    ends = (part.start, part.stop)
    if part.step not in (None, 1) or not all(type(end) is TracedArray and is_integer(end) for end in ends):
        return None
    first, last = (_extremes(end.value, largest) for end, largest in zip(ends, (True, False)))
    related = [_distance(low, high) for low in first for high in last]
    found = [distance for distance in related if distance is not None]
    if not found or not all(_is_tied(low, last) for low in first) or not all(_is_tied(high, first) for high in last):
        return None
    start, stop = (bind(convert_element_type_p, e.lifted(), new_dtype=_INDEX, weak_type=False) for e in ends)
    return Varying(start, stop, max(0, min(found)))


def _distance(low: Form, high: Form) -> int | None:
    return high[None] - low[None] if {**low, None: 0} == {**high, None: 0} else None


def _is_tied(form: Form, others: list[Form]) -> bool:
    return len(form) == 1 or any(_distance(form, other) is not None for other in others)


def _extremes(tracer: Any, largest: bool) -> list[Form]:
    """Sums of which an integer is the largest, or the smallest; itself alone where it is chosen otherwise."""
    return _found(tracer._var, tracer._trace, largest, DEEPEST) or [form_of(tracer)]


def _found(operand: Operand, trace: StageTrace, largest: bool, depth: int) -> list[Form] | None:
    if isinstance(operand, Literal):
        return [{None: int(operand.val)}]
    eqn = producer(operand, trace) if depth else None
    if eqn is not None and eqn.primitive is convert_element_type_p:
        return _found(eqn.invars[0], trace, largest, depth - 1)
    parts = None if eqn is None else _chosen_from(eqn, trace, largest)
    if parts is not None:
        sides = [_found(part, trace, largest, depth - 1) for part in parts]
        both = None if None in sides else [form for side in sides for form in side or ()]
        return None if both is None or len(both) > MOST_FORMS else both
    if eqn is not None and eqn.primitive in (E.add_p, E.sub_p) and isinstance(eqn.invars[1], Literal):
        sign = 1 if eqn.primitive is E.add_p else -1
        inner = _found(eqn.invars[0], trace, largest, depth - 1)
        return None if inner is None else [sum_of(form, {None: int(eqn.invars[1].val)}, sign) for form in inner]
    return [form_of(operand, trace)]


def _chosen_from(eqn: Any, trace: StageTrace, largest: bool) -> tuple[Operand, Operand] | None:
    """The two values of which an equation gives the larger, or the smaller; None where it gives something else."""
    if eqn.primitive is (E.max_p if largest else E.min_p):
        return eqn.invars
    if eqn.primitive is not E.select_n_p or len(eqn.invars) != 3:
        return None
    test, old, new = eqn.invars
    compared = producer(test, trace) if isinstance(test, Var) else None
    if compared is None or compared.primitive not in (E.gt_p, E.lt_p, E.ge_p, E.le_p):
        return None
    above = compared.primitive in (E.gt_p, E.ge_p)
    forms = [form_of(v, trace) for v in compared.invars]
    wanted = [form_of(v, trace) for v in ((new, old) if above == largest else (old, new))]
    return (old, new) if forms == wanted else None


def cut(x: TracedArray, parts: tuple[Any, ...]) -> tuple[TracedArray, Any, tuple[int, ...]]:
    """The window of `x` that an index with varying slices reaches, the mask of what counts in it, and the dimensions that vary."""
    if any(not isinstance(p, (int, np.integer, slice, Varying)) for p in parts) or len(parts) > x.ndim:
        raise untraceable("a slice of computed extent beside such an index cannot be traced", "use integers and slices")
    slices: list[Any] = []
    index: list[Any] = []
    masks: dict[int, Any] = {}
    kept = 0
    for d, part in enumerate(parts):
        if isinstance(part, Varying):
            span, masks[kept] = _moved_inside(part, x.shape[d])
            slices.append(span)
            index.append(slice(None))
        else:
            slices.append(slice(None))
            index.append(part)
        kept += not isinstance(part, (int, np.integer))
    window = windowed(x, tuple(slices))[0]
    if any(part != slice(None) for part in index):
        window = window[tuple(index)]  # type: ignore[index]
    mask = None
    for d, inside in masks.items():
        along = bind(V.broadcast_in_dim_p, inside, shape=window.shape, broadcast_dimensions=(d,))
        mask = along if mask is None else bind(E.and_p, mask, along)
    return window, mask, tuple(masks)


def _moved_inside(part: Varying, extent: int) -> tuple[Span, Any]:
    """The window of `part` along a dimension, and which of its positions count."""
    zero, size = literal(0, _INDEX), min(part.most, extent)
    notice(bind(E.or_p, bind(E.lt_p, part.start, zero), bind(E.lt_p, part.stop, zero)))
    first = bind(E.max_p, zero, bind(E.min_p, part.start, literal(extent - size, _INDEX)))
    positions = bind(E.add_p, bind(V.iota_p, dtype=_INDEX, shape=(size,), dimension=0), _along(first, size))
    inside = bind(
        E.and_p,
        bind(E.ge_p, positions, _along(part.start, size)),
        bind(E.lt_p, positions, _along(part.stop, size)),
    )
    return Span(first, tuple(form_of(first).items()), size, 1), inside


def _along(value: Any, size: int) -> Any:
    return broadcast_to(value, (size,))


def assign(window: TracedArray, mask: Any, new: Any) -> None:
    """Write `new`, as primitives take it, to the elements of a window that count."""
    shape = window.shape
    mask = mask if tuple(mask.shape) == shape else broadcast_to(mask, shape)
    new = new if tuple(new.shape) == shape else broadcast_to(new, shape)
    window.write(bind(E.select_n_p, mask, window.lifted(), new))
