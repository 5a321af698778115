"""A Graph as a straight list of NumPy calls: the eval rules of its primitives, all lookups done beforehand.

It gives the bits that evaluation gives, equation by equation; only the way from one to the next is short, in the native core.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal
from fuser.ir.source import current_source
from fuser.runtime.array import Array, to_numpy
from fuser.runtime.core import native
from fuser.runtime.memory import refusal_in_step


class _Call(NamedTuple):
    """One equation: its rule, the slots that it reads, slot, dtype and shape of each result, and the slots it reads last."""

    function: Callable[..., Any]
    reads: tuple[int, ...]
    results: tuple[tuple[int, np.dtype[Any], tuple[int, ...]], ...]
    drops: tuple[int, ...]
    name: str


MOST_FOLDED_BYTES = 1 << 16
_QUIET = contextvars.copy_context()  # in which NumPy warns of nothing
_QUIET.run(np.seterr, all="ignore")


def recorded(graph: Graph) -> Callable[..., tuple[np.ndarray, ...]]:
    """A function from the graph's inputs, ndarrays, to its outputs, dense ndarrays; needs the native core.

    An input that is an output is passed on.
    """
    slot = {v: n for n, v in enumerate((*graph.invars, *graph.constvars))}
    values: list[Any] = [to_numpy(c) for c in graph.consts]

    def place(value: Any) -> int:
        values.append(value)
        return len(graph.invars) + len(values) - 1

    def read(operand: Any) -> int:
        return place(np.asarray(operand.val, operand.aval.dtype)) if isinstance(operand, Literal) else slot[operand]

    calls: list[_Call] = []
    count = len(graph.invars)
    for eqn in graph.eqns:
        reads = tuple([read(v) for v in eqn.invars])
        slot.update((v, place(None)) for v in eqn.outvars)
        call = _call(eqn, reads, slot)
        if _foldable(eqn) and all(k >= count and values[k - count] is not None for k in reads):
            found = _QUIET.copy().run(call.function, *[values[k - count] for k in reads])
            values[slot[eqn.outvars[0]] - count] = _settled(found, *call.results[0][1:])
        else:
            calls.append(call)
    outputs = tuple([read(v) for v in graph.outvars])
    temporary = {k for call in calls for k, _, _ in call.results} - {*outputs}
    return native.Replay(count, _dropping(calls, temporary), tuple(values), outputs, _QUIET, _settled, _refused)  # type: ignore[no-any-return]


def _foldable(eqn: Eqn) -> bool:
    """Whether an equation of constants may become one: it has one result, which is small."""
    primitive = eqn.primitive
    return not primitive.multiple_results and primitive.run is None and eqn.outvars[0].aval.nbytes <= MOST_FOLDED_BYTES


def _call(eqn: Eqn, reads: tuple[int, ...], slot: dict[Any, int]) -> _Call:
    primitive = eqn.primitive
    rule = _evaluated(eqn) if primitive.run is not None else primitive.rule("eval")
    plan = primitive.planned and primitive.planned(*(v.aval for v in eqn.invars), **eqn.params)
    exact = getattr(rule, "exact", None)
    if exact is not None:
        rule = exact(eqn.invars[0].aval.dtype)
    if plan:
        rule = plan
    elif eqn.params and primitive.run is None:
        rule = functools.partial(rule, **eqn.params)
    results = tuple([(slot[v], v.aval.dtype, v.aval.shape) for v in eqn.outvars])
    return _Call(rule, reads, results, (), primitive.name)


def _evaluated(eqn: Eqn) -> Callable[..., Any]:
    """The rule of a primitive that runs on Arrays, as a function of ndarrays."""
    weak = [v.aval.weak_type for v in eqn.invars]
    evaluate = eqn.primitive.run
    assert evaluate is not None
    run = functools.partial(evaluate, **eqn.params)
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


def _settled(value: Any, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """What a rule gave as an array of that dtype and shape, dense."""
    array = np.asarray(value)
    array = array if array.dtype == dtype else array.astype(dtype)
    array = array if array.shape == shape else array.reshape(shape)
    return np.asarray(array, order="C")


def _refused(error: MemoryError, name: str) -> MemoryError:
    return refusal_in_step(error, name, str(current_source()))
