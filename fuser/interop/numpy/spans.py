"""`x[i : i + w]` at a position that the program computes: a view of known extent, where `i + w - i` is seen to be a number.

Positions outside of the array, at which NumPy would give fewer elements, are events: NumPy answers such a call.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fuser.interop.numpy.checks import notice
from fuser.interop.numpy.traced import TracedArray, Value, View
from fuser.ir.graph import Eqn, Literal, Operand, Var
from fuser.ir.primitive import Primitive
from fuser.lax.values import literal
from fuser.ops import elementwise as E
from fuser.ops import movement as V
from fuser.ops.conversion import convert_element_type_p
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.trace.core import bind
from fuser.trace.stage import StageTrace, StageTracer

DEEPEST = 32  # equations that are looked through
Form = dict[Var | None, int]  # the multiple of each variable, and the number that is added (of None)


@dataclass(frozen=True, slots=True)
class Span:
    """`size` elements from `start` on, in steps; equal where they surely are the same elements."""

    start: Any
    form: tuple[tuple[Var | None, int], ...]
    size: int
    step: int

    def __eq__(self, other: object) -> bool:
        mine = (self.form, self.size, self.step)
        return isinstance(other, Span) and mine == (other.form, other.size, other.step)

    def __hash__(self) -> int:
        return hash((self.size, self.step))

    @property
    def first(self) -> slice:
        """The same as it would be at the beginning of the array."""
        return slice(0, self.size * self.step, self.step)


def span(part: slice) -> Span | None:
    """A slice from a traced integer to one that is a known distance from it; None for any other."""
    step = 1 if part.step is None else part.step
    ends = [part.start, part.stop]
    if type(step) is not int or step < 1 or not all(type(end) is TracedArray and is_integer(end) for end in ends):
        return None
    first, last = (form_of(end.value) for end in ends)
    if {**first, None: 0} != {**last, None: 0}:
        return None
    start = ends[0].lifted()
    form = tuple(sorted(first.items(), key=lambda item: id(item[0])))
    return Span(start, form, max(0, -(-(last[None] - first[None]) // step)), step)


def is_integer(array: TracedArray) -> bool:
    """Whether an array is a traced integer."""
    return array.scalar and not array.known and array.dtype.kind in "iu" and type(array.value) is StageTracer


def windowed(x: TracedArray, parts: tuple[Any, ...]) -> tuple[TracedArray, tuple[Any, ...]]:
    """The view of `x` that the spans of an index cut out, and the index into it."""
    spans = {}
    dimension = 0
    for part in parts:
        if part is Ellipsis:
            dimension += x.ndim - sum(1 for p in parts if p is not None and p is not Ellipsis)
        elif part is not None:
            if isinstance(part, Span):
                spans[dimension] = part
            dimension += 1
    if any(d >= x.ndim for d in spans):
        return x, tuple(slice(None) if isinstance(p, Span) else p for p in parts)  # NumPy's error for too many indices
    for d, part in spans.items():
        last = (part.size - 1) * part.step
        outside = bind(E.gt_p, part.start, _like(part.start, x.shape[d] - 1 - last))
        notice(bind(E.or_p, outside, bind(E.lt_p, part.start, _like(part.start, 0))))
    dense = x.contiguous and all(d == 0 and part.step == 1 for d, part in spans.items())
    view = x.view_of(_view(x, spans), dense)
    return view, tuple(slice(None) if isinstance(p, Span) else p for p in parts)


def _like(start: Any, number: int) -> Any:
    return literal(number, start.dtype)


def _view(x: TracedArray, spans: dict[int, Span]) -> View:
    lift, shape = x._context.lift, x.shape
    start_type = next(iter(spans.values())).start.dtype
    starts = [
        bind(convert_element_type_p, spans[d].start, new_dtype=start_type, weak_type=False)
        if d in spans
        else literal(0, start_type)
        for d in range(len(shape))
    ]
    sizes = tuple(
        min((s.size - 1) * s.step + 1, n) if (s := spans.get(d)) is not None and s.size else 0 if d in spans else n
        for d, n in enumerate(shape)
    )
    steps = tuple(spans[d].step if d in spans else 1 for d in range(len(shape)))

    def block(value: Any) -> Any:
        return bind(dynamic_slice_p, value, *starts, slice_sizes=sizes)

    def read(value: Value) -> Value:
        found = block(lift(value, value.dtype))
        if set(steps) == {1}:
            return found
        return bind(V.slice_p, found, start_indices=(0,) * len(sizes), limit_indices=sizes, strides=steps)

    def write(value: Value, new: Any) -> Value:
        value = lift(value, value.dtype)
        new = lift(new, value.dtype)
        if set(steps) != {1}:
            new = _spread(block(value), new, steps)
        return bind(dynamic_update_slice_p, value, new, *starts)

    index = tuple(spans.get(d, slice(None)) for d in range(len(shape)))
    return View(read, write, index, True)


def _spread(block: Any, new: Any, steps: tuple[int, ...]) -> Any:
    """`block` with `new` at each step."""
    from fuser.interop.numpy.indexing import placed_at  # which has spans as indices

    return placed_at(block, new, [(0, n, step) for n, step in zip(new.shape, steps)])


# Integers of the program as sums of multiples.


def form_of(value: Any, trace: StageTrace | None = None) -> Form:
    """A traced integer, or an operand of a trace, as a sum."""
    if trace is None:
        return _form(value._var, value._trace, DEEPEST, {})
    return _form(value, trace, DEEPEST, {})


def producer(operand: Var, trace: StageTrace) -> Eqn | None:
    """The equation of a trace that gives a variable; None for what comes from outside of it."""
    return _producers(trace).get(operand)


def _form(operand: Operand, trace: StageTrace, depth: int, known: dict[Var, Form]) -> Form:
    """The form of an operand; each is found once, as one may be added to itself many times."""
    if isinstance(operand, Literal):
        return {None: int(operand.val)}
    if operand not in known:
        known[operand] = (_found(operand, trace, depth - 1, known) if depth else None) or {operand: 1, None: 0}
    return known[operand]


def _found(operand: Var, trace: StageTrace, depth: int, known: dict[Var, Form]) -> Form | None:
    eqn = producer(operand, trace)
    if eqn is None:
        value = next((value for var, value in trace.constants.values() if var is operand), None)
        return _form(value._var, value._trace, depth, known) if type(value) is StageTracer else None  # type: ignore[arg-type]
    combine = _combinations.get(eqn.primitive)
    return None if combine is None else combine(*(_form(v, trace, depth, known) for v in eqn.invars))


def sum_of(x: Form, y: Form, sign: int = 1) -> Form:
    """`x + sign * y`."""
    total = {key: x.get(key, 0) + sign * y.get(key, 0) for key in x.keys() | y.keys()}
    return {key: n for key, n in total.items() if n or key is None}


def _product(x: Form, y: Form) -> Form | None:
    if len(x) > 1:
        x, y = y, x
    return None if len(x) > 1 else {key: n * x[None] for key, n in y.items() if n * x[None] or key is None}


_combinations: dict[Primitive, Callable[..., Form | None]] = {
    E.add_p: sum_of,
    E.sub_p: lambda x, y: sum_of(x, y, -1),
    E.mul_p: _product,
    E.neg_p: lambda x: {key: -n for key, n in x.items()},
    convert_element_type_p: lambda x: x,
}
_known: weakref.WeakKeyDictionary[StageTrace, tuple[int, dict[Any, Eqn]]] = weakref.WeakKeyDictionary()


def _producers(trace: StageTrace) -> dict[Any, Eqn]:
    """The equation that gives each variable of a trace."""
    seen, found = _known.get(trace, (0, {}))
    for eqn in trace.eqns[seen:]:
        found.update((var, eqn) for var in eqn.outvars)
    _known[trace] = (len(trace.eqns), found)
    return found
