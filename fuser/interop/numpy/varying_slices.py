"""`x[max(0, i - w) : i + 1]` and `x[k:]`: slices whose extent values decide.

The first is a window of as many elements as its ends can lie apart, moved inside the array, and a mask of those that count; ends before
the array, which NumPy counts from its end, are events. A slice whose ends are not tied to each other is all of a dimension and such a mask.
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

MOST_HALF_OPEN = (
    1 << 16
)  # elements beside an open end, all of which are computed; NumPy's call of a function takes as long for 2,000
MOST_BETWEEN = 1 << 12  # elements of an array that is cut where values alone say
MOST_FORMS = 8  # of which one end of a slice is the largest or smallest
_INDEX = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class Varying:
    """The elements from `start` up to `stop`, at most `most` of them; None: of all elements, with ends as NumPy's slices have them."""

    start: Any
    stop: Any
    most: int | None


def varying(part: slice) -> Varying | None:
    """A slice with traced integers as ends; None for any other.

    They lie at most a known distance apart where each of what they are chosen from is a number or stands in such a relation, so that few
    elements more are looked at.
    """
    ends = (part.start, part.stop)
    if part.step not in (None, 1) or not all(end is None or type(end) is int or _is_traced(end) for end in ends):
        return None
    traced = [_is_traced(end) for end in ends]
    if not all(traced):
        return Varying(*ends, None) if any(traced) else None
    first, last = (_extremes(end.value, largest) for end, largest in zip(ends, (True, False)))
    related = [_distance(low, high) for low in first for high in last]
    found = [distance for distance in related if distance is not None]
    if not found or not all(_is_tied(low, last) for low in first) or not all(_is_tied(high, first) for high in last):
        return Varying(*ends, None)
    start, stop = (bind(convert_element_type_p, e.lifted(), new_dtype=_INDEX, weak_type=False) for e in ends)
    return Varying(start, stop, max(0, min(found)))


def _is_traced(end: Any) -> bool:
    return type(end) is TracedArray and is_integer(end)


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


def cut(x: TracedArray, parts: tuple[Any, ...]) -> tuple[TracedArray, dict[int, Any]]:
    """The window of `x` that an index with varying slices reaches, and the masks of what counts along its dimensions that vary."""
    plain = all(isinstance(p, (int, np.integer, slice, Varying, type(None), Span)) or _is_traced(p) for p in parts)
    if not plain or len(parts) - sum(p is None for p in parts) > x.ndim:
        raise untraceable("a slice of computed extent beside such an index cannot be traced", "use integers and slices")
    slices: list[Any] = []
    index: list[Any] = []
    masks: dict[int, Any] = {}
    kept = 0
    for part in parts:
        if part is not None:
            extent = x.shape[len(slices)]
            slices.append(slice(None))
        if isinstance(part, Varying) and part.most is not None:
            slices[-1], masks[kept] = _moved_inside(part, extent)
        elif isinstance(part, Varying):
            masks[kept] = _counting(part, extent)
        elif isinstance(part, Span):
            slices[-1] = part
        index.append(slice(None) if isinstance(part, (Varying, Span)) else part)
        kept += part is None or not (isinstance(part, (int, np.integer)) or _is_traced(part))
    window = windowed(x, tuple(slices))[0] if any(part != slice(None) for part in slices) else x
    if any(type(part) is not slice or part != slice(None) for part in index):
        window = window[tuple(index)]  # type: ignore[index]
    _check_price(window, [p for p in parts if isinstance(p, Varying) and p.most is None])
    return window, masks


def _check_price(window: TracedArray, open_parts: list[Varying]) -> None:
    """Refuse slices of which many more elements would be computed than they have."""
    between = any(_is_traced(p.start) and _is_traced(p.stop) for p in open_parts)
    if open_parts and window.size > (MOST_BETWEEN if between else MOST_HALF_OPEN):
        raise untraceable(
            "a slice of computed extent of a large array cannot be traced", "use a window of known extent"
        )


def _counting(part: Varying, extent: int) -> Any:
    """Which positions of a dimension a slice has, with ends as NumPy takes them: negative ones count from the end."""
    positions = bind(V.iota_p, dtype=_INDEX, shape=(extent,), dimension=0)
    tests = []
    for end, test in ((part.start, E.ge_p), (part.stop, E.lt_p)):
        if end is None:
            continue
        if type(end) is int:
            place = literal(end + extent if end < 0 else end, _INDEX)
        else:
            own = bind(convert_element_type_p, end.lifted(), new_dtype=_INDEX, weak_type=False)
            turned = bind(E.add_p, own, literal(extent, _INDEX))
            place = bind(E.select_n_p, bind(E.lt_p, own, literal(0, _INDEX)), own, turned)
        tests.append(bind(test, positions, _along(place, extent)))
    return tests[0] if len(tests) == 1 else bind(E.and_p, *tests)


def _moved_inside(part: Varying, extent: int) -> tuple[Span, Any]:
    """The window of `part` along a dimension, and which of its positions count."""
    assert part.most is not None
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
