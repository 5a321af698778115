"""Segments: a function whose Python needs values runs as it is written, on arrays that record what is done to them.

Where a value is needed, what was recorded so far runs as a compiled program, a *segment*, and recording goes on. A segment is
known by its structure (the calls, what they take, and which results live on), so that loops and later calls find it compiled.
The user's Python runs in each call: its order, its branches and its effects are its own.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import sys
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuser.errors import FuserError
from fuser.interop.deferred_compilation import LEAST_SECONDS, SHARE
from fuser.interop.entries import errors_key, present_errors
from fuser.interop.numpy.lazy import LazyArray, Meta
from fuser.interop.numpy.substitutes import faster
from fuser.interop.operations import Assignment, Operation, operation_of
from fuser.interop.outside import follows, is_object
from fuser.interop.types_seen import asks_for_types
from fuser.ir.source import current_source
from fuser.ir.types import ALL_DTYPES

MOST_CALLS = 256  # that are recorded before a segment runs in any case
MOST_IN_VAIN = 1000  # segments one after the other that ran without a program, after which a call records no more
MOST_SEGMENTS = 64  # of one signature that are compiled; further ones run in NumPy
MOST_SEEN = 1024  # segments that came once and are remembered
FEWEST_ELEMENTS = 1 << 13  # of a segment's results in all, below which NumPy's own calls cost less than they would save
COPIED_BYTES = (
    1 << 16
)  # of arrays that others may write to, which a segment reads as they were; larger ones are read at once
_NOTHING: dict[int, Any] = {}
MOST_REACHED = 1000  # values that are looked through for arrays that share memory with arguments


@dataclass
class Cut:
    """A line at which recording stops: why, how often so far, and the least seconds of the segment that ran then, and of Python around it."""

    why: str
    count: int = 0
    running: float = math.inf
    around: float = math.inf

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        return f"{self.why}, {times}: its segment takes {self.running * 1e6:.0f} µs, the cut {self.around * 1e6:.0f} µs"


@dataclass
class Segments:
    """What is compiled of one signature, and where its calls were cut: by the user's line."""

    name: str
    compile: Callable[[Callable[..., Any]], Any]
    programs: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    cuts: dict[str, Cut] = field(default_factory=dict)
    seen: set[Any] = field(default_factory=set)  # what came once: it is compiled when it comes again
    accelerated: list[Any] = field(default_factory=list)  # of the programs, those that are compiled
    compiling: float = 0.0  # seconds of what ran a program for the first time
    taken: float = 0.0  # seconds of all calls, with these

    @property
    def measuring(self) -> bool:
        """Whether a program is being timed beside NumPy."""
        return any(each.measuring for each in self.accelerated)

    @property
    def may_compile(self) -> bool:
        """Whether the calls took a share of what compiling takes: as for whole programs (deferred_compilation.py)."""
        return self.compiling <= LEAST_SECONDS + (self.taken - self.compiling) / SHARE

    def explain(self) -> list[str]:
        """Lines that say what was compiled and where calls were cut."""
        slower = sum(each.explain().count(": by NumPy") for each in self.accelerated)
        lines = [
            f"  {len(self.accelerated)} segments compiled"
            + (f", {slower} of which NumPy runs faster" if slower else "")
        ]
        return lines + [f"  cut at {line} by {cut}" for line, cut in self.cuts.items()]


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
        self._conditions: Any = (None, None)
        self._state: Any = {}
        self._records = True
        self._in_vain = 0  # segments that ran without a program; beyond MOST_IN_VAIN nothing is recorded any more
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
        found = faster(function)(*self.real(tuple(args)), **self.real(dict(kwargs)))
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
        is_read_at_once = self._append(made, operands)
        results = [self._result(r, v, n, made, operands) for n, (r, v) in enumerate(zip(made.results, made.views))]
        if is_read_at_once or len(self.calls) >= MOST_CALLS:
            self.flush("")
        return made.several(results) if made.several else results[0]

    def _append(self, made: Operation, operands: list[Any]) -> bool:
        """Record a call; whether it must run at once, as others may write to what it reads."""
        shared = [x for x in operands if self._is_shared(x)]
        if not shared:
            self.calls.append((made, tuple([self._position(x, _NOTHING) for x in operands])))
            return False
        copied = {id(x): _elements(x).copy("K") for x in shared if _elements(x).nbytes <= COPIED_BYTES}
        self.calls.append((made, tuple([self._position(x, copied) for x in operands])))
        return len(copied) < len(shared)

    def assign(self, array: LazyArray, index: Any, value: Any) -> bool:
        """Record `array[index] = value`, where this tape alone has the memory; False where it is to be done in NumPy."""
        owner, reads = _path(array)
        if owner is None or owner._array is not None or not _is_lasting(index):
            return False
        found = self._operation(Assignment(reads), (owner, index, value), {})
        if type(found) is str or owner._array is not None:
            return False
        is_read_at_once = self._append(*found)
        self.results[owner._slot] = None
        owner._slot = len(self.results)
        self.results.append(weakref.ref(owner))
        self._views_again(owner)
        if is_read_at_once:
            self.flush("")
        return True

    def _views_again(self, owner: LazyArray) -> None:
        """Record again the views that live of an array that was written to."""
        for slot, ref in enumerate(self.results[: owner._slot]):
            view = ref() if ref is not None else None
            if view is None or view._base is None or _root(view) is not owner:
                continue
            made, operands, _, number = view._again.args  # type: ignore[union-attr]
            self.calls.append((made, tuple([self._position(x, _NOTHING) for x in operands])))
            first = len(self.results)
            self.results += [None] * len(made.results)
            self.results[slot], self.results[first + number], view._slot = None, ref, first + number

    def _operation(self, function: Any, args: Any, kwargs: Any) -> Any:
        """The operation and its operands, or why NumPy runs it at once."""
        if not self._same_conditions():
            return "np.errstate(...='raise')"
        return operation_of(function, args, kwargs)

    def _same_conditions(self) -> bool:
        """Begin anew where `np.errstate` or the warnings filters are others; False where NumPy must run what comes."""
        errors, filters = present_errors(), warnings.filters
        if errors is not self._conditions[0] or filters is not self._conditions[1]:
            self.flush("np.errstate or warnings.catch_warnings")
            self._conditions, self._state = (errors, filters), np.geterr()
            self._records = all(how in ("warn", "ignore") for how in self._state.values())
        return self._records and self._in_vain < MOST_IN_VAIN

    def _is_shared(self, operand: Any) -> bool:
        """Whether code that records nothing may write to an operand's memory."""
        if type(operand) is LazyArray:
            return operand._exposed and operand._array is not None and not operand._meta.scalar
        return type(operand) is np.ndarray

    def _position(self, operand: Any, copied: dict[int, Any]) -> int:
        """The position of an operand: of a result, or, counted from -1 downwards, of an input."""
        if type(operand) is LazyArray and operand._array is None:
            return operand._slot
        value = copied.get(id(operand), _elements(operand)) if copied else _elements(operand)
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
        start = time.perf_counter()
        living = [
            (slot, array) for slot, ref in enumerate(self.results) if ref is not None and (array := ref()) is not None
        ]
        owners = [(slot, array) for slot, array in living if array._base is None]
        calls, inputs, elements = tuple(self.calls), self.inputs, self.elements
        self.calls, self.inputs, self.results, self._positions, self.elements = [], [], [], {}, 0
        found: Sequence[Any] = ()
        running = 0.0
        if owners:
            compiled = len(self.segments.programs)
            owned = tuple([slot for slot, _ in owners])
            program = self._program(calls, owned, elements)
            running = time.perf_counter()
            with self._under_conditions():
                found = program(*inputs)
            running = time.perf_counter() - running
            if len(self.segments.programs) > compiled:
                self.segments.compiling += running
            self._in_vain = 0 if (calls, owned) in self.segments.programs else self._in_vain + 1
        for (_, array), value in zip(owners, found):
            array._array = value
            if isinstance(value, np.ndarray):
                array._meta = Meta.of(value)
        for _, array in living:
            if array._base is not None:
                _take_again(array)
        if why:
            self._note(why, running, time.perf_counter() - start - running)

    def _note(self, why: str, running: float, around: float) -> None:
        cut = self.segments.cuts.setdefault(current_source().short, Cut(why))
        cut.count += 1
        cut.running, cut.around = min(cut.running, running), min(cut.around, around)

    def _program(self, calls: Any, owners: tuple[int, ...], elements: int) -> Callable[..., Any]:
        programs, key = self.segments.programs, (calls, owners)
        program = programs.get(key)
        if program is None:
            program = _replaying(calls, owners, self.segments.name)
            few = elements < FEWEST_ELEMENTS or len(programs) >= MOST_SEGMENTS
            if few or not self.segments.may_compile or not self._came_before(key):
                return program
            compiled = self.segments.compile(program)
            self.segments.accelerated.append(compiled)
            program = programs[key] = _or_in_numpy(compiled, program)
        return program

    def _came_before(self, key: Any) -> bool:
        seen = self.segments.seen
        if key in seen:
            seen.remove(key)
            return True
        if len(seen) >= MOST_SEEN:
            seen.clear()
        seen.add(key)
        return False

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


def _elements(value: Any) -> Any:
    return value._array if isinstance(value, LazyArray) else value


_CONSTANT_INDICES = (-2, -1, 0, 1)  # that are written to in segments; others are most often a loop's


def _is_lasting(index: Any) -> bool:
    """Whether an index is such that the next write here will have the same."""
    parts = index if type(index) is tuple else (index,)
    return all(not isinstance(p, (int, np.integer)) or type(p) is bool or p in _CONSTANT_INDICES for p in parts)


def _root(array: LazyArray) -> LazyArray:
    while array._base is not None:
        array = array._base
    return array


def _path(array: LazyArray) -> tuple[LazyArray | None, tuple[Callable[[Any], Any], ...]]:
    """The array that owns the memory, and the functions that take this view of it; (None, ()) where they are not known."""
    reads: list[Callable[[Any], Any]] = []
    while array._base is not None:
        made, operands = array._again.args[:2]  # type: ignore[union-attr]
        if len(operands) != 1 or made.several:
            return None, ()
        reads.append(_reading(made))
        array = array._base
    return array, tuple(reversed(reads))


@functools.lru_cache(4096)
def _reading(made: Operation) -> Callable[[Any], Any]:
    return lambda base: made([base])


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
    began = time.perf_counter()
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
        segments.taken += time.perf_counter() - began


def makes_generator(function: Any) -> bool:
    """Whether a call gives a generator or coroutine, whose body runs later."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and bool(code.co_flags & (0x20 | 0x80 | 0x200))  # generators and coroutines


OF_MEMORY = ("nditer", "nested_iters")  # what takes ndarrays alone, and asks none for anything


def left_to_numpy(function: Any) -> str | None:
    """Why a function must not run in segments, in words; None where it may."""
    if names_any(function, OF_MEMORY):
        return "by NumPy, whose iterators read memory"
    return "by NumPy, as it asks for types" if _any_code(function, asks_for_types) else None


def names_any(function: Any, wanted: Iterable[str]) -> bool:
    """Whether a function, or one that it names, names one of these globals or attributes."""
    return _any_code(function, lambda code: not set(code.co_names).isdisjoint(wanted))


def _any_code(function: Any, holds: Callable[[types.CodeType], bool]) -> bool:
    """Whether something holds of the code of a function, or of one that it names."""
    waiting: list[Any] = [function]
    seen: set[int] = set()
    while waiting and len(seen) < MOST_REACHED:
        value = waiting.pop()
        value = getattr(value, "__func__", value)
        if id(value) in seen or not isinstance(value, types.FunctionType) or not follows(value.__code__.co_filename):
            continue
        seen.add(id(value))
        codes = [value.__code__]
        for code in codes:
            if holds(code):
                return True
            codes.extend(part for part in code.co_consts if isinstance(part, types.CodeType))
        waiting.extend(_named(value))
    return False


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
