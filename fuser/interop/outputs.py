"""From what a traced function returned to what each call returns: arrays, NumPy scalars, Python numbers, constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuser.backends.base import Backend
from fuser.compile import Program
from fuser.interop.compaction import check_memory, compaction
from fuser.interop.numpy.context import Context, untraceable
from fuser.interop.numpy.layout import Order
from fuser.interop.numpy.selected import Selected, unknown_shape
from fuser.interop.numpy.traced import EITHER, TracedArray
from fuser.interop.outside import Known
from fuser.ir.graph import Var
from fuser.ir.types import ArrayType
from fuser.ops.movement import transpose_p
from fuser.runtime.array import Array, to_numpy
from fuser.trace import tree
from fuser.trace.core import Tracer, bind, type_of

DECLINED = object()  # the result of a program that reported an event


class Declined(Exception):
    """A step of a program met what NumPy must answer."""


class Owners:
    """Arrays that the traced function made and of which its results are views, as results of the program."""

    def __init__(self, results: Sequence[Any]) -> None:
        self.arrays: list[TracedArray] = []
        self._constants: dict[int, tuple[TracedArray, np.ndarray]] = {}
        owners = [leaf._owner for leaf in results if _has_memory(leaf)]
        self._counts = Counter(map(id, owners))
        self._selections: dict[int, Output] = {}
        _check_shared(owners)
        check_memory(results)

    def view(self, leaf: TracedArray) -> tuple[int, Any] | None:
        """The position of the array whose memory a result shares, and how it is read; None for one of its own.

        A small part of an array that nothing else returns is a copy.
        """
        owner = leaf._owner
        if self._counts[id(owner)] == 1 and (leaf is owner or leaf.size * _SMALL_PART < owner.size):
            return None
        position = next((n for n, array in enumerate(self.arrays) if array is owner), None)
        if position is None:
            position = len(self.arrays)
            self.arrays.append(owner)
        return position, leaf.reads()

    def selection(self, leaf: Selected) -> Output:
        """How to give back what a mask selects: one array for each selection."""
        if id(leaf) not in self._selections:
            mask, full, how = compaction(leaf)
            parts: dict[str, Any] = {"mask": self._part(mask), "full": None if full is None else self._part(full)}
            self._selections[id(leaf)] = Output("selected", replace(how, **parts))
        return self._selections[id(leaf)]

    def _part(self, array: TracedArray) -> Output:
        """An array that a selection is made of: the caller's own where nothing has written to it."""
        for number, argument in array._context.arguments:
            if array.value is argument.value and not argument._version and not isinstance(number, Known):
                return Output("argument", (number, ()))
        if array.known:
            return Output("same", np.asarray(array.value))
        position = next((n for n, other in enumerate(self.arrays) if other.value is array.value), len(self.arrays))
        self.arrays[position:] = self.arrays[position:] or [array]
        return Output("view", (position, ()))

    def constant(self, owner: TracedArray) -> np.ndarray:
        """The elements, in the order of its memory, of an array that is known; the same ones for all results that are views of it."""
        if id(owner) not in self._constants:
            self._constants[id(owner)] = owner, _elements(owner)
        return self._constants[id(owner)][1]

    def orders(self) -> list[Order]:
        """The orders of the arrays in memory."""
        return [array.order for array in self.arrays]


_SMALL_PART = 4
MOST_WORK = 100  # to find out whether strided arrays share memory


def _check_shared(owners: Sequence[TracedArray]) -> None:
    """Refuse results that share memory or do not, as values decide, or with what a program does not give back."""
    if owners and any(owner is part for owner in owners for part in owners[0]._context.parts):
        raise untraceable("returning items of a list that are views of an array cannot be traced", "return copies")
    context = owners[0]._context if owners else None
    returned = {context.number_of(owner) for owner in owners} if context is not None else set()
    taken = {number: number for number in returned}  # memory, by the result that may have it
    for joined, old in context.may_share if context is not None else ():
        if joined in returned and any(taken.setdefault(number, joined) != joined for number in old):
            raise untraceable(
                "returning arrays that share memory where values say so cannot be traced",
                "return a copy of one of them",
            )


def _has_memory(leaf: Any) -> bool:
    return isinstance(leaf, TracedArray) and not isinstance(leaf, Selected) and not leaf.scalar


def in_order(array: TracedArray) -> Any:
    """An array as the program computes it: with its axes in the order of its memory."""
    value = array.lifted()
    return value if array.order is None else bind(transpose_p, value, permutation=array.order)


def computed_value(leaf: Any) -> Any:
    """What the program computes for a result. UnsupportedError where its shape depends on values."""
    if isinstance(leaf, Selected):
        raise unknown_shape(leaf.line)
    return in_order(leaf) if isinstance(leaf, TracedArray) else leaf


@dataclass(frozen=True)
class Output:
    """One leaf of the results: "array", "scalar" or "number" of a program's output; "copy" or "same" of a constant.

    Constants with the same `value` are copied once in a call, and `reads` are made of that.
    "argument": an array of the caller's or a view of it, (number, reads); "view": of a result that several share, (position,
    reads); "outside": what the guards captured, a position; "selected": a Compaction of other outputs. `aval` is the type of what is computed, `order` that of its axes.
    """

    kind: str
    value: Any = None
    aval: ArrayType | None = None
    order: Order = None
    reads: tuple[Callable[[Any], Any], ...] = ()

    @property
    def computed(self) -> bool:
        """Whether a program computes it for itself alone."""
        return self.kind in ("array", "scalar", "number")

    @classmethod
    def of(cls, context: Context, leaf: Any, owners: Owners) -> Output:
        """How to give `leaf` back on each call."""
        position = context.outside.result(leaf)
        if position is not None:
            return cls("outside", position)
        if isinstance(leaf, TracedArray):
            return _of_array(context, leaf, owners)
        if isinstance(leaf, (Tracer, Array)):
            return cls("array", aval=type_of(leaf))
        return cls("copy", np.array(leaf)) if isinstance(leaf, np.ndarray) else cls("same", leaf)


def _of_array(context: Context, array: TracedArray, owners: Owners) -> Output:
    if isinstance(array, Selected):
        return owners.selection(array)
    aval = ArrayType(array.shape, array.dtype)
    if array.weak in EITHER:
        raise untraceable(
            "returning a Python number or a NumPy scalar, as values decide, cannot be traced", "return float(x)"
        )
    if array.scalar:
        kind = "same" if array.known else "number" if array.weak else "scalar"
        return Output(kind, array.value[()] if array.known else None, aval)
    for number, argument in context.arguments:
        if array._owner is argument and not isinstance(number, Known):
            return Output("argument", (number, array.reads()), aval)
    if array.known:
        return Output("copy", owners.constant(array._owner), aval, reads=array.reads())
    view = owners.view(array)
    return Output("array", None, aval, array.order) if view is None else Output("view", view, aval)


def _elements(owner: TracedArray) -> np.ndarray:
    made = np.empty(owner.shape, owner.dtype)
    if owner.order is not None:
        made = np.empty([made.shape[d] for d in owner.order], made.dtype).transpose(np.argsort(owner.order))
    made[...] = owner.value
    return made


def runner(
    program: Program, traced: Any, call: Callable[..., Any] | None = None
) -> Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Any]:
    """A function `(arrays, leaves, captured)` from a program's inputs, a call's arguments and what its guards captured to the
    results' tree, or to DECLINED. Results share memory where they do in NumPy: with arguments of which they are views.
    `call` runs the program where its own way is not meant.
    """
    if call is None:
        on_host = traced._backend.memory.platform == "cpu"
        call = program.executable.call if on_host else _through(program, traced._backend)
        if traced._backend.name == "reference":
            call = _apart(call)
    outputs, watched, out_tree = traced.outputs, traced.watched, traced.out_tree
    makers, shared_makers = makers_of(program, outputs, traced.shared)
    writes, shared_count, computed_count = traced.writes, len(traced.shared), sum(o.computed for o in outputs)
    if len(outputs) == 1 and outputs[0].computed and out_tree == tree.structure(0) and not writes:
        return _of_one(call, makers[0], watched)
    first_returned = traced.outside_inputs

    def run(arrays: Sequence[Any], leaves: Sequence[Any], captured: Sequence[Any]) -> Any:
        targets = [write.array(leaves, captured) for write in writes]
        if targets and not _writable(targets, leaves, captured):
            return DECLINED
        found = call(*arrays)
        if watched and happened(found, watched):
            return DECLINED
        shared = [make(value) for make, value in zip(shared_makers, found[computed_count:])]
        for write, target in zip(writes, targets):
            write.apply(target, found[computed_count + shared_count :])
        computed = iter(found)
        copies: dict[int, np.ndarray] = {}
        read: dict[Any, Any] = {}

        def given(output: Output) -> Any:
            if output.kind == "view":
                return _view(shared[output.value[0]], output.value[1], read)
            if output.kind == "argument":
                where, reads = output.value
                return _view(leaves[where] if where >= 0 else captured[-1 - where], reads, read)
            if output.kind == "outside":
                return captured[first_returned + output.value]
            if output.kind == "selected":
                return _selected(output, given, read)
            return _view(_copied(output, copies), output.reads, read) if output.kind == "copy" else output.value

        results = []
        for output, make in zip(outputs, makers):
            if output.computed:
                value = next(computed)
                results.append(value if make is None else make(value))
            else:
                results.append(given(output))
        return tree.unflatten(out_tree, results)

    return run


def _copied(output: Output, copies: dict[int, np.ndarray]) -> Any:
    """A constant of this call's own; `copies` are those that it has, by the identity of what they are copies of."""
    array = copies.get(id(output.value))
    if array is None:
        array = copies[id(output.value)] = output.value.copy("K")
    return array


def _selected(output: Output, given: Callable[[Output], Any], read: dict[Any, Any]) -> Any:
    """What a mask selects, once in a call for all results that are it."""
    key = id(output), None
    if key not in read:
        how = output.value
        read[key] = how.result(given(how.mask), None if how.full is None else given(how.full))
    return read[key]


def _view(array: Any, reads: tuple[Callable[[Any], Any], ...], read: dict[Any, Any]) -> Any:
    """What is read of an array step by step. A step that copies, as `ravel` may, copies once in a call: `read` holds what was."""
    for step in reads:
        key = id(array), step
        found = read.get(key)
        if found is None:
            found = read[key] = step(array)
        array = found
    return array


def _writable(targets: Sequence[Any], leaves: Sequence[Any], captured: Sequence[Any]) -> bool:
    """Whether arrays may be written after the program has run: nobody else reads their memory."""
    held = {id(array): array for array in captured} if captured else {}
    arrays = [leaf for leaf in (*leaves, *held.values()) if isinstance(leaf, np.ndarray)]
    for target in targets:
        if not isinstance(target, np.ndarray) or not target.flags.writeable or 0 in target.strides:
            return False
        if len(arrays) > 1 and sum(_share_memory(target, other) for other in arrays) > 1:
            return False
    return True


def _share_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether arrays may share memory; fields of structured arrays, and columns, lie side by side and do not."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def happened(found: list[Any], watched: int) -> bool:
    """Whether the last results of a program, which are taken away, tell of an event."""
    flags = found[-watched:]
    del found[-watched:]
    for flag in flags:
        value = flag if isinstance(flag, np.ndarray) else to_numpy(Array(flag))
        if value.any() if value.ndim else value:
            return True
    return False


def _of_one(call: Callable[..., Any], make: Callable[[Any], Any] | None, watched: int) -> Callable[..., Any]:
    """The run of a program with a single array as its result."""
    if watched:

        def run(arrays: Sequence[Any], leaves: Any, captured: Any) -> Any:
            result, *flags = call(*arrays)
            for flag in flags:
                if flag.any() if flag.ndim else flag:
                    return DECLINED
            return result if make is None else make(result)

        return run
    if make is None:
        return lambda arrays, leaves, captured: call(*arrays)[0]
    return lambda arrays, leaves, captured: make(call(*arrays)[0])


def _apart(call: Callable[..., Any]) -> Callable[..., list[np.ndarray]]:
    """The call with results in memory of their own, where control flow that NumPy evaluates has handed on an argument, or one value twice."""

    def run(*arrays: Any) -> list[np.ndarray]:
        results: list[np.ndarray] = []
        for result in map(np.asarray, call(*arrays)):
            shares = any(np.may_share_memory(result, other) for other in (*arrays, *results))
            results.append(result.copy() if shares else result)
        return results

    return run


def _through(program: Program, backend: Backend) -> Callable[..., list[np.ndarray]]:
    """The program's call with arrays taken to the device and results brought back."""
    run, place = program.executable.call, backend.memory.place
    return lambda *arrays: [np.array(to_numpy(Array(result))) for result in run(*map(place, arrays))]


def makers_of(
    program: Program, outputs: tuple[Output, ...], shared: tuple[Order, ...]
) -> tuple[list[Callable[[Any], Any] | None], list[Callable[[Any], Any]]]:
    """For each output what is done to the program's array (None for nothing), and for each array that outputs share."""
    plan = program.lowering.plan
    seen: set[Any] = set()
    variables = iter(plan.outputs)

    def maker(output: Output) -> Callable[[Any], Any] | None:
        operand = next(variables)
        memory = plan.aliases.get(operand, operand) if isinstance(operand, Var) else operand
        made = _maker(output, operand.aval.shape, memory is not operand, memory in seen)
        seen.add(memory)
        return made

    makers = [maker(output) if output.computed else None for output in outputs]
    return makers, [maker(Output("array", order=order)) or _as_it_is for order in shared]


def _as_it_is(value: Any) -> Any:
    return value


def _maker(output: Output, shape: tuple[int, ...], reshapes: bool, shared: bool) -> Callable[[Any], Any] | None:
    if output.kind == "scalar":
        return lambda value: value.reshape(())[()]
    if output.kind == "number":
        return lambda value: value.item()
    if output.order is not None:
        back = tuple(int(d) for d in np.argsort(output.order))
        if shared:
            return lambda value: value.reshape(shape).copy().transpose(back)
        return lambda value: value.reshape(shape).transpose(back)
    if shared:
        return lambda value: value.reshape(shape).copy()
    return (lambda value: value.reshape(shape)) if reshapes else None
