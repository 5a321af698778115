"""Segments: a function whose Python needs values runs as it is written, on arrays that record what is done to them.

Where a value is needed, what was recorded so far runs as a compiled program, a *segment*, and recording goes on. A segment is
known by its structure (the calls, what they take, and which results live on), so that loops and later calls find it compiled.
The user's Python runs in each call: its order, its branches and its effects are its own.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuser.config import config
from fuser.errors import FuserError
from fuser.interop.entries import errors_key, present_errors
from fuser.interop.numpy.checks import in_numpy
from fuser.interop.numpy.context import Context
from fuser.interop.numpy.layout import order_of, strides_of
from fuser.interop.numpy.lazy import LazyArray, Meta
from fuser.interop.numpy.library import numpy_call_p
from fuser.interop.numpy.traced import TracedArray
from fuser.interop.outside import follows, is_object
from fuser.ir.source import current_source
from fuser.ir.types import ALL_DTYPES, ArrayType
from fuser.trace.stage import stage

MOST_CALLS = 256  # that are recorded before a segment runs in any case
MOST_SEGMENTS = 64  # of one signature that are compiled; further ones run in NumPy
FEWEST_ELEMENTS = 1 << 13  # of a segment's results in all, below which NumPy's own calls cost less than they would save
COPIED_BYTES = (
    1 << 16
)  # of arrays that others may write to, which a segment reads as they were; larger ones are read at once
MOST_REACHED = 1000  # values that are looked through for arrays that share memory with arguments


@dataclass(eq=False)
class Operation:
    """A function of arrays with the types of its operands: what it gives, or why it runs in NumPy at once."""

    function: Callable[..., Any]
    template: Any
    results: tuple[Any, ...] = ()  # of each result its Meta, or the number of the operand that it is
    views: tuple[int, ...] = ()  # the operand that each result is a view of, or -1
    several: type | None = None
    refused: str = ""

    def __call__(self, operands: Sequence[Any]) -> Any:
        """Its results for these operands: ndarrays, or traced ones."""
        args, kwargs = _filled(self.template, operands)
        return self.function(*args, **kwargs)


@dataclass(frozen=True)
class _Slot:
    """Where an operand stands among the arguments."""

    number: int


_operations: dict[Any, Operation] = {}
_CONTAINERS = (list, tuple, dict, slice)


def _template(value: Any, operands: list[Any], floats: bool) -> Any:
    """The argument with its arrays, and with `floats` its floats, taken out; it can be hashed, or TypeError."""
    kind = type(value)
    if isinstance(value, (LazyArray, np.ndarray, np.generic)) or (floats and kind in (float, complex)):
        operands.append(value)
        return _Slot(len(operands) - 1)
    if kind in (list, tuple):
        return (kind, *[_template(v, operands, floats) for v in value])
    if kind is dict:
        return (kind, *[(k, _template(v, operands, floats)) for k, v in value.items()])
    if kind is slice:
        return (kind, value.start, value.stop, value.step)
    hash(value)
    return (None, kind, value)


def _filled(template: Any, operands: Sequence[Any]) -> Any:
    if type(template) is _Slot:
        return operands[template.number]
    kind = template[0]
    if kind is None:
        return template[2]
    if kind is dict:
        return {k: _filled(v, operands) for k, v in template[1:]}
    return slice(*template[1:]) if kind is slice else kind(_filled(v, operands) for v in template[1:])


def operation(function: Callable[..., Any], template: Any, metas: tuple[Meta, ...]) -> Operation:
    """The operation of these operands' types; it is looked at once."""
    key = (function, template, metas)
    known = _operations.get(key)
    if known is None:
        if len(_operations) > 1 << 14:
            _operations.clear()
        known = _operations[key] = _looked_at(function, template, metas)
    return known


def _looked_at(function: Callable[..., Any], template: Any, metas: tuple[Meta, ...]) -> Operation:
    made = Operation(function, template)
    context = Context("a segment", all(meta.strides is None for meta in metas))

    def flat(*tracers: Any) -> list[Any]:
        operands = [_stand_in(context, tracer, meta) for tracer, meta in zip(tracers, metas)]
        with context.checks.active(), in_numpy():
            _describe(made, made(operands), operands)
        if context.checks._conditions or context.checks.always:
            made.refused = made.refused or "".join(sorted(_RAISING & {e.primitive.name for e in _eqns()}))
        return []

    try:
        with config.using(enable_x64=True), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("error")
            graph = stage(flat, [ArrayType(meta.shape, meta.dtype) for meta in metas])
    except Exception as error:  # NumPy says what is wrong, if anything is
        made.refused = str(error) or type(error).__name__
        return made
    if any(eqn.primitive is numpy_call_p for eqn in graph.eqns):
        made.refused = "a function of NumPy's that may raise"
    return made


# Operations that, where they have conditions, may make NumPy raise: in its place, which may be a `try`.
_RAISING = frozenset(
    ("gather", "scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max", "pow", "integer_pow")
)


def _eqns() -> Any:
    from fuser.trace.core import current

    return current().eqns  # type: ignore[attr-defined]


def _stand_in(context: Context, tracer: Any, meta: Meta) -> TracedArray:
    dense = meta.strides is None
    return TracedArray(context, tracer, scalar=meta.scalar, weak=meta.weak, contiguous=dense, strides=meta.strides)


def _describe(made: Operation, result: Any, operands: list[TracedArray]) -> None:
    """Note what the results are; `refused` where a program's results would not be NumPy's arrays."""
    made.several = type(result) if type(result) in (list, tuple) else None
    leaves = result if made.several else (result,)
    if any(x._version for x in operands):
        made.refused = "a write"
    elif not all(type(x) is TracedArray and not x.weak and not _unsure(x) for x in leaves):
        made.refused = "a result whose shape, or whose memory, depends on values or on layout"
    else:
        numbers = {id(x): n for n, x in enumerate(operands)}
        made.results = tuple(numbers.get(id(x), _meta(x)) for x in leaves)
        made.views = tuple(numbers.get(id(x._owner), -1) if x._base is not None else -1 for x in leaves)


def _unsure(x: TracedArray) -> bool:
    array: TracedArray | None = x
    while array is not None:
        if array._guard or (array._view is not None and array._view.index == "unsure"):
            return True
        array = array._base
    return False


def _meta(x: TracedArray) -> Meta:
    dense = x.contiguous and order_of(x) is None
    return Meta(x.shape, x.dtype, None if dense else strides_of(x), x.scalar)


@dataclass
class Segments:
    """What is compiled of one signature, and where its calls were cut: by the user's line, why."""

    name: str
    compile: Callable[[Callable[..., Any]], Any]
    programs: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    cuts: dict[str, str] = field(default_factory=dict)
    accelerated: list[Any] = field(default_factory=list)  # of the programs, those that are compiled

    @property
    def measuring(self) -> bool:
        """Whether a program is being timed beside NumPy."""
        return any(each.measuring for each in self.accelerated)

    def explain(self) -> list[str]:
        """Lines that say what was compiled and where calls were cut."""
        slower = sum(each.explain().count(": by NumPy") for each in self.accelerated)
        lines = [
            f"  {len(self.accelerated)} segments compiled"
            + (f", {slower} of which NumPy runs faster" if slower else "")
        ]
        return lines + [f"  cut at {line}: {why}" for line, why in self.cuts.items()]


class Tape:
    """What one call has recorded and not run yet."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.calls: list[tuple[Operation, tuple[int, ...]]] = []
        self.inputs: list[Any] = []
        self.results: list[weakref.ref[LazyArray] | None] = []
        self.elements = 0
        self.alive: list[weakref.ref[LazyArray]] = []
        self._positions: dict[int, int] = {}  # of inputs, by identity
        self._conditions: Any = None
        self._state: Any = {}
        self._kept = 64

    # ---- arrays

    def made(self, array: LazyArray) -> None:
        """Note an array of this call."""
        self.alive.append(weakref.ref(array))
        if len(self.alive) > self._kept:
            self.alive = [ref for ref in self.alive if ref() is not None]
            self._kept = 64 + 2 * len(self.alive)

    def expose(self, memory: Any) -> None:
        """Note that code which records nothing has got hold of an array's memory."""
        for ref in self.alive if isinstance(memory, np.ndarray) else ():
            array = ref()
            if array is not None and isinstance(array._array, np.ndarray) and np.may_share_memory(array._array, memory):
                array._exposed = True

    def wrapped(self, value: Any, base: LazyArray | None = None) -> Any:
        """A value of NumPy's as the function sees it: arrays record what is done to them."""
        if type(value) is np.ndarray and value.dtype in ALL_DTYPES and value.dtype.isnative:
            made = LazyArray(self, Meta.of(value), value)
            made._exposed = base is not None and base._exposed
            return made
        return type(value)(self.wrapped(v) for v in value) if type(value) in (list, tuple) else value

    def real(self, value: Any) -> Any:
        """A value with NumPy's arrays and scalars in the place of lazy ones."""
        if isinstance(value, LazyArray):
            return value._real()
        if type(value) in (list, tuple):
            return type(value)(self.real(v) for v in value)
        if type(value) is slice:
            return slice(*(self.real(v) for v in (value.start, value.stop, value.step)))
        return {k: self.real(v) for k, v in value.items()} if type(value) is dict else value

    # ---- recording

    def at_once(self, function: Callable[..., Any], args: Any, kwargs: Any, why: str = "") -> Any:
        """`function(*args, **kwargs)` by NumPy, after all that was recorded."""
        self.flush(why or f"{getattr(function, '__name__', 'a function')} in NumPy")
        found = function(*self.real(tuple(args)), **self.real(dict(kwargs)))
        for value in (*args, *kwargs.values()):  # out=, or an array that was given back
            for mine in value if type(value) in (list, tuple) else (value,):
                if isinstance(mine, LazyArray) and mine._array is found:
                    return mine
        return self.wrapped(found)

    def record(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The results of `function(*args, **kwargs)`, to be computed with what else the segment holds."""
        found = self._operation(function, args, kwargs)
        if type(found) is str:
            return self.at_once(function, args, kwargs, found)
        made, operands = found
        shared = [x for x in operands if self._is_shared(x)]
        copied = {id(x): _elements(x).copy("K") for x in shared if _elements(x).nbytes <= COPIED_BYTES}
        slots = tuple([self._position(x, copied) for x in operands])
        self.calls.append((made, slots))
        results = [self._result(r, v, n, made, operands) for n, (r, v) in enumerate(zip(made.results, made.views))]
        if len(copied) < len(shared) or len(self.calls) >= MOST_CALLS:
            self.flush("")
        return made.several(results) if made.several else results[0]

    def _operation(self, function: Any, args: Any, kwargs: Any) -> Any:
        """The operation and its operands, or why NumPy runs it at once."""
        if not self._same_conditions():
            return "np.errstate(...='raise')"
        if kwargs:
            kwargs = {k: v for k, v in kwargs.items() if v is not np._NoValue}
        reason = ""
        for floats in (True, False):
            operands: list[Any] = []
            try:
                template = _template((tuple(args), kwargs), operands, floats)
                made = operation(function, template, tuple([_meta_of(x) for x in operands]))
            except TypeError as error:
                return str(error)
            if not made.refused:
                return made, operands
            reason = reason or made.refused
        return reason

    def _same_conditions(self) -> bool:
        """Begin anew where `np.errstate` or the warnings filters are others; False where NumPy must run what comes."""
        now = (present_errors(), warnings.filters)
        if self._conditions is None or now[0] is not self._conditions[0] or now[1] is not self._conditions[1]:
            self.flush("np.errstate or warnings.catch_warnings")
            self._conditions, self._state = now, np.geterr()
        return all(how in ("warn", "ignore") for how in self._state.values())

    def _is_shared(self, operand: Any) -> bool:
        """Whether code that records nothing may write to an operand's memory."""
        if isinstance(operand, LazyArray):
            return operand._array is not None and operand._exposed and not operand._meta.scalar
        return type(operand) is np.ndarray

    def _position(self, operand: Any, copied: dict[int, Any]) -> int:
        """The position of an operand: of a result, or, counted from -1 downwards, of an input."""
        if isinstance(operand, LazyArray) and operand._array is None:
            return operand._slot
        value = copied.get(id(operand), _elements(operand))
        known = self._positions.get(id(value))
        if known is not None:
            return known
        self.inputs.append(value)
        position = -len(self.inputs)
        if type(value) is np.ndarray:
            self._positions[id(value)] = position
        return position

    def _result(self, meta: Any, view: int, number: int, made: Operation, operands: list[Any]) -> Any:
        slot = len(self.results)
        if type(meta) is int:
            self.results.append(None)
            return operands[meta]
        array = LazyArray(self, meta, None, slot)
        self.results.append(weakref.ref(array))
        if view >= 0:
            array._base = operands[view] if isinstance(operands[view], LazyArray) else self.wrapped(operands[view])
            array._again = functools.partial(_taken, made, operands, view, number)
        self.elements += array.size
        return array

    # ---- running

    def flush(self, why: str) -> None:
        """Run what was recorded; what is still in use has elements then."""
        if not self.calls:
            return
        if why:
            self.segments.cuts.setdefault(current_source().short, why)
        living = [
            (slot, array) for slot, ref in enumerate(self.results) if ref is not None and (array := ref()) is not None
        ]
        owners = [(slot, array) for slot, array in living if array._base is None]
        calls, inputs, elements = tuple(self.calls), self.inputs, self.elements
        self.calls, self.inputs, self.results, self._positions, self.elements = [], [], [], {}, 0
        found: Sequence[Any] = ()
        if owners:
            with self._under_conditions():
                found = self._program(calls, tuple(slot for slot, _ in owners), elements)(*inputs)
        for (_, array), value in zip(owners, found):
            array._array = value
            if isinstance(value, np.ndarray):
                array._meta = Meta.of(value)
        for _, array in living:
            if array._base is not None:
                _take_again(array)

    def _program(self, calls: Any, owners: tuple[int, ...], elements: int) -> Callable[..., Any]:
        programs, key = self.segments.programs, (calls, owners)
        program = programs.get(key)
        if program is None:
            program = _replaying(calls, owners, self.segments.name)
            if elements < FEWEST_ELEMENTS or len(programs) >= MOST_SEGMENTS:
                return program
            compiled = self.segments.compile(program)
            self.segments.accelerated.append(compiled)
            program = programs[key] = _or_in_numpy(compiled, program)
        return program

    @contextlib.contextmanager
    def _under_conditions(self) -> Iterator[None]:
        """As `np.errstate` and the warnings filters were where the calls were recorded."""
        errors, filters = self._conditions
        with contextlib.ExitStack() as stack:
            if present_errors() is not errors:
                stack.enter_context(np.errstate(**self._state))
            if warnings.filters is not filters:
                stack.enter_context(warnings.catch_warnings())
                warnings.filters[:] = filters  # type: ignore[index]
            yield


def _meta_of(value: Any) -> Meta:
    return value._meta if isinstance(value, LazyArray) else Meta.of(value)


def _elements(value: Any) -> Any:
    return value._array if isinstance(value, LazyArray) else value


def _taken(made: Operation, operands: list[Any], view: int, number: int, base: Any) -> Any:
    """Result `number` of an operation that gives views, of its operand's elements."""
    given = [base if n == view else _elements(x) for n, x in enumerate(operands)]
    found = made(given)
    return found[number] if made.several else found


def _take_again(array: LazyArray) -> Any:
    if array._array is None:
        assert array._base is not None and array._again is not None
        array._array = array._again(_take_again(array._base))
        array._meta, array._exposed = Meta.of(array._array), array._base._exposed
        array._base = array._again = None
    return array._array


def _replaying(calls: Any, owners: tuple[int, ...], name: str) -> Callable[..., tuple[Any, ...]]:
    """A function from a segment's inputs to the results `owners` of its calls, on ndarrays or on traced ones."""

    def segment(*inputs: Any) -> tuple[Any, ...]:
        results: list[Any] = []
        for made, slots in calls:
            found = made([results[slot] if slot >= 0 else inputs[-slot - 1] for slot in slots])
            results.extend(found if made.several else (found,))
        return tuple(results[slot] for slot in owners)

    segment.__name__ = segment.__qualname__ = f"{name}_segment"
    return segment


def _or_in_numpy(program: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """The program, or where it turns out that there can be none, NumPy."""
    chosen = [program]

    def run(*inputs: Any) -> Any:
        try:
            return chosen[0](*inputs)
        except FuserError:
            if chosen[0] is plain:
                raise
            chosen[0] = plain
            return plain(*inputs)

    return run


# A call.


def run_in_segments(function: Callable[..., Any], segments: Segments, args: Any, kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, whose array arguments record what is done to them; results are NumPy's."""
    arrays = [v for v in (*args, *kwargs.values()) if type(v) is np.ndarray]
    if errors_key() is NotImplemented or makes_generator(function) or _reached(function, args, kwargs, arrays):
        return function(*args, **kwargs)
    tape = Tape(segments)
    seen: dict[int, Any] = {}
    try:
        result = function(
            *[_argument(tape, v, seen) for v in args], **{k: _argument(tape, v, seen) for k, v in kwargs.items()}
        )
        tape.flush("")
        result = _released(result)  # the arrays that it was made of live no longer, or else have escaped
        return result
    finally:
        tape.flush("")  # where the function raised
        seen.clear()
        _replace_escaped(tape)


def makes_generator(function: Any) -> bool:
    """Whether a call gives a generator or coroutine, whose body runs later."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and bool(code.co_flags & (0x20 | 0x80 | 0x200))  # generators and coroutines


def _argument(tape: Tape, value: Any, seen: dict[int, Any]) -> Any:
    if type(value) is tuple:
        return tuple(_argument(tape, v, seen) for v in value)
    if type(value) is not np.ndarray:
        return value
    if id(value) not in seen:
        seen[id(value)] = tape.wrapped(value)
    return seen[id(value)]


def _reached(function: Any, args: Any, kwargs: Any, arrays: list[np.ndarray]) -> bool:
    """Whether the function reaches memory of its array arguments by other ways, on which writes would go unseen."""
    waiting: list[Any] = [function, *(v for v in (*args, *kwargs.values()) if type(v) is not np.ndarray)]
    seen: set[int] = set()
    while waiting and len(seen) < MOST_REACHED:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            if any(np.may_share_memory(value, array) for array in arrays):
                return True
        elif isinstance(value, (list, tuple, set, frozenset)):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, types.MethodType):
            waiting += [value.__func__, value.__self__]
        elif isinstance(value, functools.partial):
            waiting += [value.func, value.args, value.keywords]
        elif isinstance(value, types.FunctionType):
            waiting.extend(_named(value) if follows(value.__code__.co_filename) else ())
        elif is_object(value):
            waiting.append(getattr(value, "__dict__", ()))
    return len(seen) >= MOST_REACHED


def _named(function: types.FunctionType) -> Iterator[Any]:
    """What a function names: globals, its closure, defaults."""
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield function.__globals__[name]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            yield cell.cell_contents
    yield function.__defaults__ or ()
    yield function.__kwdefaults__ or {}


def _released(value: Any) -> Any:
    """A result with NumPy's arrays and scalars for lazy ones, in the containers that the function made."""
    if isinstance(value, LazyArray):
        return value._array
    kind = type(value)
    if kind is list:
        value[:] = [_released(v) for v in value]
    elif kind is dict:
        for key in value:
            value[key] = _released(value[key])
    elif isinstance(value, tuple):
        parts = [_released(v) for v in value]
        if any(a is not b for a, b in zip(parts, value)):
            return kind(*parts) if hasattr(value, "_fields") else kind(parts)
    return value


def _replace_escaped(tape: Tape) -> None:
    """Have lists, dicts, attributes and closures that still hold lazy arrays hold NumPy's."""
    escaped = [array for ref in tape.alive if (array := ref()) is not None and sys.getrefcount(array) > 2]
    if not escaped:
        return  # as in most calls: to look through all objects takes milliseconds
    for holder in gc.get_referrers(*escaped):
        if holder is not escaped:
            for array in escaped:
                _replace(holder, array)


def _replace(holder: Any, array: LazyArray) -> None:
    real = array._array
    if type(holder) is list:
        holder[:] = [real if v is array else v for v in holder]
    elif isinstance(holder, dict):
        for key in [k for k, v in holder.items() if v is array]:
            holder[key] = real
    elif isinstance(holder, types.CellType):
        if holder.cell_contents is array:
            holder.cell_contents = real
    elif type(holder) is tuple:
        for outer in gc.get_referrers(holder):
            if type(outer) is list or isinstance(outer, dict):
                _replace_tuple(outer, holder)
    elif is_object(holder):
        for cls in type(holder).__mro__:
            for name, member in vars(cls).items():
                if isinstance(member, types.MemberDescriptorType) and getattr(holder, name, None) is array:
                    object.__setattr__(holder, name, real)


def _replace_tuple(outer: Any, old: tuple[Any, ...]) -> None:
    new = _released(old)
    items = enumerate(outer) if type(outer) is list else list(outer.items())
    for key, value in items:
        if value is old:
            outer[key] = new
