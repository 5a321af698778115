"""A Graph as a straight list of NumPy calls: the eval rules of its primitives, all lookups done beforehand.

It gives the bits that evaluation gives, equation by equation; only the way from one to the next is short.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal
from fuser.ir.source import current_source
from fuser.runtime.array import Array, to_numpy
from fuser.runtime.memory import refusal_in_step

Results = tuple[tuple[int, "np.dtype[Any]", tuple[int, ...]], ...]


class _Call(NamedTuple):
    """One equation: its rule, the slots that it reads, slot, dtype and shape of each result, and the slots it reads last."""

    function: Callable[..., Any]
    reads: tuple[int, ...]
    results: Results
    drops: tuple[int, ...]
    name: str


class _Quiet(threading.local):
    """A context of this thread in which NumPy warns of nothing: it is entered faster than `errstate`."""

    def __init__(self) -> None:
        self.entered = False
        self.context = contextvars.copy_context()
        self.context.run(np.seterr, all="ignore")


_quiet = _Quiet()


def recorded(graph: Graph) -> Callable[..., list[np.ndarray]]:
    """A function from the graph's inputs, ndarrays, to its outputs, dense ndarrays. An input that is an output is passed on."""
    slot = {v: n for n, v in enumerate((*graph.invars, *graph.constvars))}
    values: list[Any] = [to_numpy(c) for c in graph.consts]

    def read(operand: Any) -> int:
        if isinstance(operand, Literal):
            values.append(np.asarray(operand.val, operand.aval.dtype))
            return len(graph.invars) + len(values) - 1
        return slot[operand]

    found: list[tuple[Eqn, tuple[int, ...]]] = []
    for eqn in graph.eqns:
        reads = tuple([read(v) for v in eqn.invars])
        for v in eqn.outvars:
            values.append(None)
            slot[v] = len(graph.invars) + len(values) - 1
        found.append((eqn, reads))
    outputs = tuple([read(v) for v in graph.outvars])
    made = {slot[v] for eqn in graph.eqns for v in eqn.outvars}
    calls = _dropping([_call(eqn, reads, slot) for eqn, reads in found], made - {*outputs})
    run = functools.partial(_run, calls, tuple(values), outputs)
    return functools.partial(_quietly, run)


def _call(eqn: Eqn, reads: tuple[int, ...], slot: dict[Any, int]) -> _Call:
    primitive = eqn.primitive
    rule = _evaluated(eqn) if primitive.run is not None else functools.partial(primitive.rule("eval"), **eqn.params)
    results = tuple([(slot[v], v.aval.dtype, v.aval.shape) for v in eqn.outvars])
    return _Call(rule, reads, results, (), primitive.name)


def _evaluated(eqn: Eqn) -> Callable[..., Any]:
    """The rule of a primitive that runs on Arrays, as a function of ndarrays."""
    weak = [v.aval.weak_type for v in eqn.invars]
    run = functools.partial(eqn.primitive.run, **eqn.params)  # type: ignore[arg-type]
    several = eqn.primitive.multiple_results

    def call(*operands: Any) -> Any:
        result = run(*map(Array, operands, weak))
        return [to_numpy(r) for r in result] if several else to_numpy(result)

    return call


def _dropping(calls: Sequence[_Call], temporary: set[int]) -> tuple[_Call, ...]:
    """The calls, each with those temporaries that nobody reads after it."""
    dropped: list[_Call] = []
    for call in reversed(calls):
        last = temporary.intersection((*call.reads, *(slot for slot, _, _ in call.results)))
        temporary = temporary - last
        dropped.append(call._replace(drops=tuple(sorted(last))))
    return tuple(dropped[::-1])


def _quietly(run: Callable[..., Any], *inputs: Any) -> Any:
    quiet = _quiet
    if quiet.entered:
        with np.errstate(all="ignore"):
            return run(*inputs)
    quiet.entered = True
    try:
        return quiet.context.run(run, *inputs)
    finally:
        quiet.entered = False


def _run(calls: tuple[_Call, ...], values: tuple[Any, ...], outputs: tuple[int, ...], *inputs: Any) -> list[np.ndarray]:
    slots = [*inputs, *values]
    try:
        for function, reads, results, drops, name in calls:
            found = function(*[slots[k] for k in reads])
            if len(results) == 1:
                slot, dtype, shape = results[0]
                value = found[0] if type(found) in (list, tuple) else found
                slots[slot] = value if _settled(value, dtype, shape) else _settle(value, dtype, shape)
            else:
                for (slot, dtype, shape), value in zip(results, found):
                    slots[slot] = value if _settled(value, dtype, shape) else _settle(value, dtype, shape)
            for slot in drops:
                slots[slot] = None
    except MemoryError as error:
        raise refusal_in_step(error, name, str(current_source()))  # noqa: B904
    return [slots[k] for k in outputs]


def _settled(value: Any, dtype: np.dtype, shape: tuple[int, ...]) -> bool:
    return type(value) is np.ndarray and value.dtype is dtype and value.shape == shape and value.flags.c_contiguous


def _settle(value: Any, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """What a rule gave as an array of that dtype and shape, dense."""
    array = np.asarray(value)
    array = array if array.dtype == dtype else array.astype(dtype)
    return np.asarray(array.reshape(shape), order="C")
