"""`TracedArray`: what stands for an ndarray or NumPy scalar while a NumPy function is traced.

It wraps a value (known or traced) and behaves as NumPy's arrays do: NumPy's dtypes, views that see writes to their base,
assignment and in-place operators. Mutation is emulated: a write replaces the value of the array that owns the memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from fuser.interop.numpy.context import FALL_BACK, Context, supported, untraceable
from fuser.interop.read_only import is_sequence
from fuser.ir.source import current_source, is_hidden
from fuser.ir.types import ArrayType
from fuser.trace.core import Tracer, current
from fuser.trace.stage import StageTrace

Value = Any  # a tracer, or an ndarray that is known while tracing and never written to


class Either:
    """The `weak` of what is a Python number or a NumPy scalar, as values decide: it serves where that makes no difference."""


class EitherInteger:
    """The `weak` of a float64 that may be an int of Python's instead, as in `max(x, 0)`: it serves where that makes no difference."""


EITHER = (Either, EitherInteger)


@dataclass(frozen=True, slots=True)
class View:
    """How a view is read from its base's value, and what the base's value becomes when the view is written."""

    read: Callable[[Value], Value]
    write: Callable[[Value, Value], Value]
    index: Any = None  # of a view by indexing
    at_values: bool = False  # whether traced scalars are in the index


@dataclass(frozen=True, slots=True)
class Assignment:
    """`read(...read(array))[index] = value`, as the traced function made it; `key` tells basic regions of an array apart."""

    reads: tuple[Callable[[Value], Value], ...]
    index: tuple[Any, ...]
    value: Any
    key: str = ""


class TracedArray:
    """An array of a function that is being traced; `scalar` where NumPy would have a scalar, `weak` for Python numbers."""

    __slots__ = (
        "__weakref__",
        "_base",
        "_cached",
        "_context",
        "_guard",
        "_level",
        "_scope",
        "_seen",
        "_strides",
        "_value",
        "_version",
        "_view",
        "assignments",
        "contiguous",
        "order",
        "scalar",
        "weak",
    )
    __array_priority__ = 1e6
    real: Any  # these and the methods of ndarray are put on by fuser.interop.numpy.methods
    imag: Any
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        context: Context,
        value: Value,
        *,
        scalar: bool = False,
        weak: type | None = None,
        contiguous: bool = True,
        guard: str = "",
        order: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        if context.most_operations is not None:
            context.count(value)
        self._context = context
        self._value = value
        self._version = 0
        self._base: TracedArray | None = None
        self._view: View | None = None
        self._cached: Value = None
        self._seen = self._scope = -1
        self._level = len(context.logs)  # of the loop or branch that made it
        self._guard = guard  # why it must not be written to; "" where it may
        self.scalar = scalar
        self.weak = weak
        self.contiguous = contiguous and order is None
        self.order = order  # of the axes in memory, where this owns it (fuser.interop.numpy.layout)
        self._strides = strides  # of the caller's memory
        self.assignments: list[Assignment] | None = None  # of the caller's array, where they are all that was written

    # ---- memory: values, views, writes

    @property
    def value(self) -> Value:
        """The value now."""
        if self._base is None:
            return self._value
        version = self._owner._version
        if self._seen != version or self._scope != self._context.scope:
            assert self._view is not None
            if self._seen not in (-1, version) and self._view.index == "unsure":
                raise untraceable(
                    "the array that this reshaped or traced-indexed array was made from has changed, and whether NumPy "
                    "makes a view there depends on the memory layout",
                    "use .copy()",
                )
            self._cached, self._seen = self._view.read(self._base.value), version
            self._scope = self._context.scope
        return self._cached

    @property
    def _owner(self) -> TracedArray:
        array = self
        while array._base is not None:
            array = array._base
        return array

    def reads(self) -> tuple[Callable[[Value], Value], ...]:
        """How this view is read from the array that owns its memory, step by step. UnsupportedError where values say where it lies."""
        views = self.views()
        if any(view.at_values for view in views):
            raise untraceable(
                "giving back a view of an array at a position that is computed cannot be traced", "return a copy"
            )
        return tuple(view.read for view in views)

    def views(self) -> tuple[View, ...]:
        """The views, from the array that owns the memory to this one."""
        if self._base is None:
            return ()
        assert self._view is not None
        return (*self._base.views(), self._view)

    def view_of(self, view: View, contiguous: bool, guard: str = "") -> TracedArray:
        """A view of this array: it reads and writes this array's memory."""
        made = TracedArray(self._context, None, contiguous=contiguous, guard=guard or self._guard)
        made._base, made._view = self, view
        return made

    def write(self, value: Value, index: tuple[Any, ...] | None = None, new: Any = None) -> None:
        """Replace the contents; `value` has this array's shape and dtype. It is as before but for `index`, where it is `new`."""
        if self._guard:
            raise untraceable(*self._guard_words())
        owner = self._owner
        owner.will_change()
        if owner.assignments is not None:
            owner.assignments = (
                None if index is None or self._context.logs else self._logged(owner.assignments, index, new)
            )
        self._replace(value)

    def will_change(self) -> None:
        """Tell the loops and branches being staged, which this array is older than, that it is written to."""
        if self._guard:
            raise untraceable(*self._guard_words())
        for log in self._context.logs[self._level :]:
            log(self)

    def _logged(self, log: list[Assignment], index: tuple[Any, ...], new: Any) -> list[Assignment] | None:
        """The log with one more assignment; None where this view cannot be taken again of the caller's array."""
        views, array = [], self
        while array._base is not None:
            assert array._view is not None
            if array._view.index is None or array._view.index == "unsure" or array._view.at_values:
                return None
            views.append(array._view.index)
            array = array._base
        kinds = (int, np.integer, slice, type(None), type(Ellipsis))
        basic = all(isinstance(part, kinds) and type(part) is not TracedArray for part in index)
        key = repr((views, index)) if basic else ""
        whole = not views and len(index) == 1 and index[0] is Ellipsis
        kept = [] if whole else [a for a in log if not key or a.key != key]
        return [*kept, Assignment(self.reads(), index, new, key)]

    def _replace(self, value: Value) -> None:
        if self._base is None:
            self._value = value
            self._version += 1
        else:
            assert self._view is not None
            self._base._replace(self._view.write(self._base.value, value))

    def _guard_words(self) -> tuple[str, str]:
        what, _, way_out = self._guard.partition("|")
        return what, way_out

    @property
    def known(self) -> bool:
        """Whether the value is at hand while tracing."""
        return not isinstance(self.value, Tracer)

    def lifted(self, dtype: np.dtype | None = None) -> Any:
        """The value as primitives take it, converted to `dtype`."""
        value = self.value
        return self._context.lift(value, value.dtype if dtype is None else dtype)

    def __jax_array__(self) -> Any:
        return self.lifted()

    # ---- what it is

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # so that `isinstance(x, np.ndarray)` holds in the traced function
        return self.dtype.type if self.scalar else np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        return len(self.value.shape)

    @property
    def size(self) -> int:
        return ArrayType(self.shape, self.dtype).size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        from fuser.interop.numpy.layout import strides_of

        return strides_of(self)

    @property
    def base(self) -> TracedArray | None:
        return self._base

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))  # type: ignore[index]

    def __repr__(self) -> str:
        """Of what is known as NumPy's; else its type, unless the traced function itself asks."""
        if self.known:
            return repr(self.value)
        if not is_hidden(sys._getframe(1).f_code.co_filename) and type(current()) is StageTrace:
            return repr(self._concrete("repr()"))
        return f"traced<{self._aval}>"

    @property
    def _aval(self) -> ArrayType:
        return ArrayType(self.shape, self.dtype)

    # ---- what Python asks of a value

    def __bool__(self) -> bool:
        if self.known:
            return bool(self.value)
        raise TracerBoolConversionError(
            f"a traced {self._aval} has no value yet, so `if` cannot read it ({current_source().short}); "
            f"use np.where, or make the argument that decides static with static_argnames, {FALL_BACK}"
        )

    def _concrete(self, what: str) -> Any:
        if self.known:
            return self.value
        raise ConcretizationTypeError(
            f"a traced {self._aval} has no value yet, so {what} cannot read it ({current_source().short}); "
            f"keep it an array, or make the argument static with static_argnames, {FALL_BACK}"
        )

    def __float__(self) -> float:
        return float(self._concrete("float()"))

    def __int__(self) -> int:
        return int(self._concrete("int()"))

    def __complex__(self) -> complex:
        return complex(self._concrete("complex()"))

    def __index__(self) -> int:
        if self.known:
            return self.value.__index__()  # type: ignore[no-any-return]
        raise TracerIntegerConversionError(
            f"a traced {self._aval} has no value yet, so Python cannot use it as an integer ({current_source().short}); "
            f"make the argument static with static_argnames, or index with np.take, {FALL_BACK}"
        )

    def item(self, *index: Any) -> Any:
        """The element as a Python number, where it is known."""
        return self._concrete(".item()").item(*index)

    def tolist(self) -> Any:
        """The elements as Python numbers, where they are known."""
        return self._concrete(".tolist()").tolist()

    def __format__(self, spec: str) -> str:
        return format(self._concrete("formatting"), spec)

    def __str__(self) -> str:
        return str(self._concrete("str()"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.known:
            return np.array(self.value, dtype)
        raise TracerArrayConversionError(
            f"a traced {self._aval} has no value yet, so NumPy cannot store or read it ({current_source().short}); "
            f"assign to arrays made with np.zeros_like(x) of a traced x, and index others with np.take(table, x), {FALL_BACK}"
        )

    # ---- NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from fuser.interop.numpy.ufuncs import dispatch

        return dispatch(self._context, ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from fuser.interop.numpy.dispatch import call

        return call(self._context, function, args, kwargs)


def wrap(context: Context, value: Value, scalar: bool | None = None, contiguous: bool = True) -> TracedArray:
    """A result as an array that owns its memory; rank 0 is a scalar, as in NumPy, unless said otherwise."""
    supported(value.dtype)
    return TracedArray(context, value, scalar=not value.shape if scalar is None else scalar, contiguous=contiguous)


def is_traced(x: Any) -> bool:
    """Whether `x` stands for an array of the traced function."""
    return isinstance(x, TracedArray)


def find_context(*values: Any) -> Context | None:
    """The context of the first traced array among values, lists and tuples."""
    for value in values:
        if is_traced(value):
            return value._context  # type: ignore[no-any-return]
        if is_sequence(value):
            found = find_context(*value)
            if found is not None:
                return found
    return None
