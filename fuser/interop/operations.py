"""Operations: functions of arrays with the types of their operands, as a tape records them: what they give, or why NumPy runs them at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.config import config
from fuser.interop.numpy.checks import in_numpy
from fuser.interop.numpy.context import Context
from fuser.interop.numpy.layout import order_of, strides_of
from fuser.interop.numpy.lazy import LazyArray, Meta
from fuser.interop.numpy.library import numpy_call_p
from fuser.interop.numpy.traced import TracedArray
from fuser.ir.types import ArrayType
from fuser.trace.core import current
from fuser.trace.stage import stage


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


@dataclass(frozen=True)
class Assignment:
    """`read(...read(array))[index] = value`, as an operation whose result is the array; only what a tape alone holds is changed so."""

    reads: tuple[Callable[[Any], Any], ...]

    def __call__(self, array: Any, index: Any, value: Any) -> Any:
        target = array
        for read in self.reads:
            target = read(target)
        target[index] = value
        return array


MOST_OPERATIONS = 1 << 14
_operations: dict[Any, Operation] = {}
_plain_operations: dict[Any, Operation] = {}  # of arrays and numbers alone, by `_plain_key`
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


_NUMBERS = {float: Meta.of(0.0), complex: Meta.of(0j)}


def _plain_key(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[Any]]:
    """What tells the operation where all arguments are arrays, floats or integers, and its operands; a None key: they are not."""
    parts: list[Any] = [function]
    operands = []
    for arg in args:
        kind = type(arg)
        if kind is LazyArray:
            parts.append(arg._meta)
        elif kind in _NUMBERS:
            parts.append(_NUMBERS[kind])
        elif kind is np.ndarray:
            parts.append(Meta.of(arg))
        elif kind is int:
            parts.append(arg)
            continue
        else:
            return None, []
        operands.append(arg)
    return tuple(parts), operands


def operation_of(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Operation, list[Any]] | str:
    """The operation of a call and its operands, or why NumPy is to run it at once."""
    key, given = (None, []) if kwargs else _plain_key(function, args)
    made = None if key is None else _plain_operations.get(key)
    if made is not None:
        return made, given
    found = _looked_up(function, args, kwargs)
    if key is not None and not isinstance(found, str) and len(found[1]) == len(given):
        if len(_plain_operations) > MOST_OPERATIONS:
            _plain_operations.clear()
        _plain_operations[key] = found[0]
    return found


def _looked_up(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Operation, list[Any]] | str:
    if kwargs:
        kwargs = {k: v for k, v in kwargs.items() if v is not np._NoValue}
    reason = ""
    for floats in (True, False):
        operands: list[Any] = []
        try:
            template = _template((tuple(args), kwargs), operands, floats)
            made = _operation(function, template, tuple([_meta_of(x) for x in operands]))
        except TypeError as error:
            return str(error)
        if not made.refused:
            return made, operands
        reason = reason or made.refused
    return reason


def _meta_of(value: Any) -> Meta:
    return value._meta if isinstance(value, LazyArray) else Meta.of(value)


def _operation(function: Callable[..., Any], template: Any, metas: tuple[Meta, ...]) -> Operation:
    """The operation of these operands' types; it is looked at once."""
    key = (function, template, metas)
    known = _operations.get(key)
    if known is None:
        if len(_operations) > MOST_OPERATIONS:
            _operations.clear()
        known = _operations[key] = _looked_at(function, template, metas)
    return known


def _looked_at(function: Callable[..., Any], template: Any, metas: tuple[Meta, ...]) -> Operation:
    made = Operation(function, template)
    context = Context("a segment", all(meta.strides is None for meta in metas))

    def flat(*tracers: Any) -> list[Any]:
        operands = [_stand_in(context, tracer, meta) for tracer, meta in zip(tracers, metas)]
        with context.checks.active(), in_numpy():
            found = made(operands)
            if not isinstance(function, Assignment):
                _describe(made, found, operands)
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
    (
        "gather",
        "scatter",
        "scatter-add",
        "scatter-mul",
        "scatter-min",
        "scatter-max",
        "pow",
        "integer_pow",
        "lu",
        "cholesky",
    )
)


def _eqns() -> Any:
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
