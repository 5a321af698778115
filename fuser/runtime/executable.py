"""`Executable`: a flat list of steps over numbered buffer slots, and the call of a compiled C function.

In: steps that name the slots they read and write. Out: a callable from arrays to arrays. Temporaries lie in one arena
a call, each at the offset that the plan gave it. What has memory of its own is allocated right before its step, and
dropped right after its last use, so that the pool hands its warm memory on. Nothing here knows what a step computes.
Calls from several threads do not disturb each other: all that changes lives in the call.
"""

from __future__ import annotations

import ctypes
import functools
import math
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fuser.runtime import memory
from fuser.runtime.core import native

Allocate = Callable[[tuple[int, ...], "np.dtype[Any]", str], Any]  # shape, dtype, and the user's line
_BYTE = np.dtype(np.uint8)


@dataclass(frozen=True)
class Allocation:
    """A slot that a kernel fills: at `offset` bytes into the call's arena, or in memory of its own.

    The latter takes over the memory of slot `reuse`: of an input if it was donated, of another kernel's output always.
    `label` is the user's line, for errors.
    """

    slot: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    reuse: int | None = None
    offset: int | None = None
    label: str = ""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class KernelStep:
    """Runs `function` on one list: the arrays in the slots `arguments`, then the freshly allocated `outputs`.

    One that `keeps_gil` is over before another thread could make use of the interpreter.
    """

    name: str
    function: Callable[[list[Any]], object]
    arguments: tuple[int, ...]
    outputs: tuple[Allocation, ...]
    keeps_gil: bool = False

    @property
    def writes(self) -> tuple[int, ...]:
        return tuple(output.slot for output in self.outputs)


@dataclass(frozen=True)
class LibraryStep:
    """Runs `function` on the arrays in the slots `arguments`; what it returns, one array or several, fills `outputs`.

    `label` is the user's line, for errors. At one that `meets` other devices a suspended call stops.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[int, ...]
    outputs: tuple[int, ...]
    label: str = ""
    meets: bool = False

    @property
    def writes(self) -> tuple[int, ...]:
        return self.outputs


Step = KernelStep | LibraryStep


@dataclass(frozen=True)
class _Move:
    """One step, prepared: which slots to gather, to allocate, to fill and to drop."""

    function: Callable[..., Any]
    gather: tuple[int, ...]
    allocations: tuple[Allocation, ...] | None  # None for a library step
    fill: tuple[int, ...]
    drop: tuple[int, ...]
    name: str = field(compare=False)
    label: str = field(default="", compare=False)


LIVING: weakref.WeakSet[Executable] = weakref.WeakSet()  # all that somebody holds


class Executable:
    """Steps over slots. `inputs` and `outputs` are slots in order; `consts` maps slots to arrays that never change.

    With `types`, shape and dtype of each input, calls with ndarrays of others raise TypeError. `joined` are the steps that
    calls run where several of `steps` have become one; profiles run `steps`.
    """

    def __init__(
        self,
        inputs: Sequence[int],
        consts: dict[int, Any],
        steps: Sequence[Step],
        outputs: Sequence[int],
        allocate: Allocate = memory.empty,
        arena: int = 0,
        types: Sequence[tuple[tuple[int, ...], np.dtype[Any]]] | None = None,
        joined: Sequence[Step] | None = None,
        label: str = "the temporaries of one call",
    ) -> None:
        LIVING.add(self)
        self.inputs, self.consts, self.outputs = tuple(inputs), dict(consts), tuple(outputs)
        self.steps = tuple(steps)
        self.joined = self.steps if joined is None else tuple(joined)
        self.allocate = allocate
        self.arena = arena  # bytes that one call needs for the slots with an offset
        self.label = label  # whose the arena is, for errors
        self.types = None if types is None else tuple(types)
        self._check(self.steps)
        self._check(self.joined)
        written = {slot for step in self.steps for slot in step.writes}
        self._dying = {o.reuse for o in self.allocations() if o.reuse in written}  # taken over whatever is donated
        drops = self.drops(self.joined)
        self._moves = [_prepare(step, drop) for step, drop in zip(self.joined, drops, strict=True)]
        both = (*self.steps, *self.joined)
        used = [*self.inputs, *self.consts, *(slot for step in both for slot in step.writes)]
        self._blank: list[Any] = [None] * (max(used, default=-1) + 1)
        for slot, value in self.consts.items():
            self._blank[slot] = value
        self._made = {output.slot for output in self.allocations()}

    @functools.cached_property
    def native(self) -> Any:
        """The same executable in the native core, or None."""
        return None if native is None else native.Executable(*self.described)

    def call(self, *arrays: Any, writable: Collection[int] = (), foreign: Collection[int] = ()) -> list[Any]:
        """The outputs. `writable` holds the positions of inputs whose memory a result may take over.

        `foreign` those over memory that the caller may change, which no result shares.
        """
        if self.native is not None:
            return self.native.call(*arrays, writable=writable, foreign=foreign)  # type: ignore[no-any-return]
        slots = self._start(arrays)
        spare = {self.inputs[position] for position in writable} | self._dying
        arena = self._arena()
        for move in self._moves:
            operands = [slots[k] for k in move.gather]
            if move.allocations is None:
                _fill(slots, move, _library(move, operands), arena)
            else:
                for output in move.allocations:
                    slots[output.slot] = self._memory(output, slots, spare, arena)
                    operands.append(slots[output.slot])
                move.function(operands)
            operands = None  # type: ignore[assignment]  # or dead arrays would live on into the next allocation
            for k in move.drop:
                slots[k] = None
        if foreign:
            outside = [slots[self.inputs[position]] for position in foreign]
            return [slots[k] if k in self._made else _apart(slots[k], outside) for k in self.outputs]
        return [slots[k] for k in self.outputs]

    __call__ = call

    def suspended(self, *arrays: Any) -> Any:
        """A call that stops at each collective. `advance()` runs up to the next one and gives (its function, operands), or None
        at the end; `advance(results)` goes on with what came of it; `outputs()` follows the end. For one thread at a time.
        """
        return _Suspended(self, arrays) if self.native is None else native.Suspended(self.native, *arrays)

    def call_profiled(
        self, arrays: Sequence[Any], clock: Callable[[], float], before: Callable[[], object] | None = None
    ) -> tuple[list[Any], list[tuple[int, float]]]:
        """The outputs, and (step index, seconds by `clock`) of each step; allocation is not counted. `before` runs ahead of each
        step: what calls a step from Python has left the caches after a step that moves much, and a program does not wait for it."""
        slots = self._start(arrays)
        arena = self._arena()
        times = []
        moves = [_prepare(step, drop) for step, drop in zip(self.steps, self.drops(), strict=True)]
        for index, move in enumerate(moves):
            operands = [slots[k] for k in move.gather]
            for output in move.allocations or ():
                slots[output.slot] = self._memory(output, slots, self._dying, arena)
                operands.append(slots[output.slot])
            if before is not None:
                before()
            start = clock()
            results = _library(move, operands) if move.allocations is None else move.function(operands)
            times.append((index, clock() - start))
            if move.allocations is None:
                _fill(slots, move, results, arena)
            operands = results = None  # type: ignore[assignment]
            for k in move.drop:
                slots[k] = None
        return [slots[k] for k in self.outputs], times

    def allocations(self, steps: Sequence[Step] | None = None) -> Iterator[Allocation]:
        """What the kernels fill, in order."""
        for step in self.steps if steps is None else steps:
            if isinstance(step, KernelStep):
                yield from step.outputs

    def drops(self, steps: Sequence[Step] | None = None) -> list[tuple[int, ...]]:
        """For each step, the temporaries that nobody needs after it."""
        keep = {*self.inputs, *self.consts, *self.outputs}
        result: list[tuple[int, ...]] = []
        for step in reversed(self.steps if steps is None else steps):
            dead = dict.fromkeys(slot for slot in (*step.arguments, *step.writes) if slot not in keep)
            result.append(tuple(dead))
            keep.update(dead)
        return result[::-1]

    def planned_peak(self, block: Callable[[int], int] = int, others: Mapping[int, int] = {}) -> int:
        """Bytes that the arena and what has memory of its own hold at once, at the worst moment, with nothing donated.

        `block` gives the bytes that so many of an array take from the pool; else they are not rounded. `others` are the
        bytes of slots that library steps fill, which may come from elsewhere.
        """
        alive: dict[int, int] = {}
        arena = block(self.arena) if self.arena else 0
        peak = arena
        for step, dropped in zip(self.steps, self.drops(), strict=True):
            if isinstance(step, LibraryStep):
                alive |= {slot: block(others.get(slot, 0)) for slot in step.outputs}
            for output in step.outputs if isinstance(step, KernelStep) else ():
                taken = alive.pop(output.reuse, None) if output.reuse is not None else None
                if output.offset is None:
                    alive[output.slot] = block(output.nbytes) if taken is None else taken
            peak = max(peak, arena + sum(alive.values()))
            for slot in dropped:
                alive.pop(slot, None)
        return peak

    def __str__(self) -> str:
        lines = [f"executable({', '.join(f'%{slot}' for slot in self.inputs)}):"]
        for step, dropped in zip(self.steps, self.drops(), strict=True):
            results = ", ".join(_describe(output) for output in step.outputs)
            arguments = ", ".join(f"%{slot}" for slot in step.arguments)
            freed = f"   frees {', '.join(f'%{slot}' for slot in dropped)}" if dropped else ""
            kind = "kernel" if isinstance(step, KernelStep) else "library"
            lines.append(f"  {results or '()'} = {kind} {step.name}({arguments}){freed}")
        return "\n".join([*lines, f"  return {', '.join(f'%{slot}' for slot in self.outputs)}"])

    def _arena(self) -> Any:
        if self.allocate is memory.empty or not self.arena:
            return memory.block(self.arena, self.label) if self.arena else None
        return self.allocate((self.arena,), _BYTE, self.label)

    def _memory(self, output: Allocation, slots: list[Any], spare: Collection[int | None], arena: Any) -> Any:
        """The array that a kernel is to fill."""
        if output.offset is not None:
            return np.ndarray(output.shape, output.dtype, arena, output.offset)
        if output.reuse in spare and output.reuse is not None:
            array = slots[output.reuse]
            if not isinstance(array, np.ndarray) or (array.shape, array.dtype) == (output.shape, output.dtype):
                return array
        return self.allocate(output.shape, output.dtype, output.label)

    def _start(self, arrays: Sequence[Any]) -> list[Any]:
        if len(arrays) != len(self.inputs):
            raise TypeError(f"this executable takes {len(self.inputs)} arrays, got {len(arrays)}")
        for number, (wanted, array) in enumerate(zip(self.types or (), arrays)):
            if isinstance(array, np.ndarray) and (array.shape, array.dtype) != wanted:
                shape, dtype = wanted
                raise TypeError(
                    f"this executable takes {_words(dtype, shape)} as array {number}, got {_words(array.dtype, array.shape)}"
                )
        slots = self._blank.copy()
        for slot, array in zip(self.inputs, arrays):
            dense = not isinstance(array, np.ndarray) or (array.flags.c_contiguous and array.flags.aligned)
            slots[slot] = array if dense else np.array(array, order="C")
        return slots

    @property
    def described(self) -> tuple[Any, ...]:
        """What the native core makes the same executable of: nested tuples."""
        drops = self.drops(self.joined)
        known = {output.slot: (output.shape, output.dtype) for output in self.allocations(self.joined)}
        known |= dict(zip(self.inputs, self.types or ()))
        types = tuple((slot, *described) for slot, described in known.items())
        steps = tuple(_described(step, drop) for step, drop in zip(self.joined, drops, strict=True))
        allocate = None if self.allocate is memory.empty else self.allocate
        typed = self.types is not None
        head = len(self._blank), self.inputs, self.consts, types, typed
        return *head, steps, self.outputs, allocate, self.arena, self.label

    def _check(self, steps: Sequence[Step]) -> None:
        """A step reads only what is there, and no slot is written twice: a broken plan must fail before it runs."""
        known = {*self.inputs, *self.consts}
        for step in steps:
            for slot in step.arguments:
                if slot not in known:
                    raise ValueError(f"step {step.name} reads slot {slot}, which nothing has written")
            for slot in step.writes:
                if slot in known:
                    raise ValueError(f"step {step.name} writes slot {slot} a second time")
                known.add(slot)
        for slot in self.outputs:
            if slot not in known:
                raise ValueError(f"slot {slot} is an output, and nothing has written it")


class _Suspended:
    """The native core's Suspended, in Python."""

    def __init__(self, executable: Executable, arrays: Sequence[Any]) -> None:
        self._executable, self._slots, self._arena = executable, executable._start(arrays), executable._arena()
        self._steps = iter(zip(executable.joined, executable._moves))
        self._met: _Move | None = None

    def advance(self, *results: Any) -> tuple[Callable[..., Any], list[Any]] | None:
        if self._met is not None:
            self._end(self._met, *results)
        for step, move in self._steps:
            operands = [self._slots[k] for k in move.gather]
            if isinstance(step, LibraryStep) and step.meets:
                self._met = move
                return move.function, operands
            if move.allocations is None:
                self._end(move, _library(move, operands))
                continue
            for output in move.allocations:
                array = self._executable._memory(output, self._slots, self._executable._dying, self._arena)
                self._slots[output.slot] = array
                operands.append(array)
            move.function(operands)
            self._drop(move)
        return None

    def _end(self, move: _Move, results: Any) -> None:
        _fill(self._slots, move, results, self._arena)
        self._drop(move)

    def _drop(self, move: _Move) -> None:
        for k in move.drop:
            self._slots[k] = None

    def outputs(self) -> list[Any]:
        return [self._slots[k] for k in self._executable.outputs]


class CFunction:
    """A C function `void name(void **buffers, const int64_t *sizes)` that takes a list of contiguous ndarrays; frees the GIL."""

    __slots__ = ("_function", "_keep", "_sizes", "objects", "sizes")

    def __init__(
        self, symbol: Any, sizes: Sequence[int] = (), keep: object = None, objects: tuple[Any, ...] = ()
    ) -> None:
        """`symbol` comes from a `ctypes.CDLL`; `keep` is held for as long as the function is, and so are the `objects` whose
        addresses are among the sizes: with these it calls Python.
        """
        symbol.restype = None
        self.sizes, self.objects = tuple(sizes), objects
        self._sizes: Any = None  # for calls from Python; the native core has its own
        self._function = symbol
        self._keep = keep

    @property
    def address(self) -> int:
        """Where the code is."""
        return ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def __call__(self, arrays: list[np.ndarray[Any, Any]]) -> None:
        # The pointers belong to the call: other threads may be in the same function.
        pointers = (ctypes.c_void_p * len(arrays))(*[data_pointer(array) for array in arrays])
        sizes = self._sizes = self._sizes or (ctypes.c_int64 * max(1, len(self.sizes)))(*self.sizes)
        try:
            self._function(pointers, sizes)
        except (
            SystemError
        ) as error:  # "returned a result with an exception set": a signal's handler, run inside, raised
            raise error.__cause__ or error from None


def _prepare(step: Step, drop: tuple[int, ...]) -> _Move:
    allocations = step.outputs if isinstance(step, KernelStep) else None
    label = step.label if isinstance(step, LibraryStep) else ""
    return _Move(step.function, step.arguments, allocations, step.writes, drop, step.name, label)


def _library(move: _Move, operands: list[Any]) -> Any:
    try:
        return move.function(*operands)
    except MemoryError as error:
        raise memory.refusal_in_step(error, move.name, move.label)  # noqa: B904


def _described(step: Step, drop: tuple[int, ...]) -> tuple[Any, ...]:
    """A step for the native core: kind, name, function, address, sizes, arguments, outputs, slots to drop, keeps_gil."""
    if isinstance(step, LibraryStep):
        filled = tuple((slot, -1, -1, step.label) for slot in step.outputs)
        kind = "meeting" if step.meets else "library"
        return kind, step.name, step.function, 0, (), step.arguments, filled, drop, False
    outputs = tuple(
        (o.slot, -1 if o.reuse is None else o.reuse, -1 if o.offset is None else o.offset, o.label)
        for o in step.outputs
    )
    if native is not None and isinstance(step.function, native.DeviceProgram):
        return "device", step.name, step.function, 0, (), step.arguments, outputs, drop, False
    if isinstance(step.function, CFunction):
        function = step.function
        places = function.address, function.sizes
        return "kernel", step.name, function, *places, step.arguments, outputs, drop, step.keeps_gil
    return "arrays", step.name, step.function, 0, (), step.arguments, outputs, drop, False


def _apart(array: Any, outside: list[Any]) -> Any:
    """The array, or a copy of it if it shares memory with one of the others."""
    if isinstance(array, np.ndarray) and any(np.may_share_memory(array, other) for other in outside):
        return np.array(array, order="C")
    return array


def _fill(slots: list[Any], move: _Move, results: Any, arena: Any) -> None:
    if not isinstance(results, (tuple, list)):
        results = (results,)
    if len(results) != len(move.fill):
        raise ValueError(f"step {move.name} returned {len(results)} arrays and its plan says {len(move.fill)}")
    for k, value in zip(move.fill, results):
        # A library may return its operand, whose place in the arena belongs to another value before long.
        slots[k] = np.array(value, order="C") if arena is not None and np.may_share_memory(value, arena) else value


def _describe(output: Allocation | int) -> str:
    if isinstance(output, int):
        return f"%{output}"
    over = "" if output.reuse is None else f" over %{output.reuse}"
    over = over if output.offset is None else f" at {output.offset}"
    return f"%{output.slot}: {output.dtype}[{','.join(map(str, output.shape))}]{over}"


def _words(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def _pointer_of(array: np.ndarray[Any, Any]) -> int:
    """The address of an ndarray's first element, by the documented way, which takes most of a microsecond."""
    return int(array.ctypes.data)


_POINTER_FIELD = object.__basicsize__  # an ndarray's data pointer follows the header that all objects have
_at = ctypes.c_size_t.from_address


def _pointer_by_layout(array: np.ndarray[Any, Any]) -> int:
    """The address of an ndarray's first element, read out of the object."""
    return _at(id(array) + _POINTER_FIELD).value


def _layout_holds() -> bool:
    samples: list[np.ndarray[Any, Any]] = [np.zeros(3), np.zeros((4, 4), np.int8)[1:, 2:], np.zeros(())]
    return all(_pointer_by_layout(sample) == _pointer_of(sample) for sample in samples)


data_pointer: Callable[[np.ndarray[Any, Any]], int] = _pointer_by_layout if _layout_holds() else _pointer_of
