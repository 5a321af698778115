"""The `np` that a traced function sees, and what stands for NumPy's values that lie outside of it.

Arrays that a function makes must be able to take traced values: `np.zeros(n)` inside gives a known TracedArray.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.interop.guards import Reach, Test
from fuser.interop.impure import Refusing, replacement
from fuser.interop.numpy import (  # noqa: F401  for their tables
    creation,
    dispatch,
    polynomials,
    positions,
    scipy,
    selected_functions,
    selected_reductions,
    selected_steps,
)
from fuser.interop.numpy.context import Context
from fuser.interop.numpy.dispatch import wrap_known
from fuser.interop.numpy.layout import order_of
from fuser.interop.numpy.random import GENERATORS, RandomModule, stand_in
from fuser.interop.numpy.traced import TracedArray
from fuser.interop.outside import Known, Outside, Substitute
from fuser.ir.types import ALL_DTYPES, ArrayType
from fuser.trace.core import current

_MAKERS = (
    "arange",
    "eye",
    "identity",
    "tri",
    "indices",
    "logspace",
    "geomspace",
    "fromfunction",
    "hanning",
    "hamming",
    "blackman",
)
# Functions of several arrays in a list, which are no array together.
_OF_SEQUENCES = frozenset(
    [
        *(np.concatenate, np.stack, np.vstack, np.hstack, np.dstack, np.column_stack, np.block),
        *(np.select, np.choose, np.piecewise, np.lexsort, np.histogramdd, np.ravel_multi_index, np.linalg.multi_dot),
    ]
)
_DISPATCHED = (type(np.mean), np.ufunc)  # the types of NumPy's functions that ask their arguments, but not lists
KNOWN_BYTES = 512  # of arrays from outside that a trace may compute with; larger ones are inputs


class _TakesLists:
    """A function of NumPy's, or a ufunc with its methods, that takes lists of traced values as arrays. It equals that function."""

    def __init__(self, context: Context, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._context, self._function = context, function

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._function)

    def __eq__(self, other: Any) -> bool:
        return self._function is vars(other).get("_function") if type(other) is _TakesLists else self._function is other

    def __hash__(self) -> int:
        return hash(self._function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = {name: value if name == "out" else self._as_array(value) for name, value in kwargs.items()}
        return self._function(*map(self._as_array, args), **given)

    def at(self, x: Any, indices: Any, *values: Any) -> None:
        """A ufunc's method, whose indices are a tuple where there are several."""
        self._function.at(x, indices, *map(self._as_array, values))  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._function, name)
        return _TakesLists(self._context, value) if callable(value) else value

    def _as_array(self, value: Any) -> Any:
        plain = type(value) not in (list, tuple) or not creation.holds_traced(value)
        return value if plain else creation.array(self._context, value)


class _Submodule:
    """`np.linalg` or `np.fft`, whose functions take lists of traced values as arrays."""

    def __init__(self, context: Context, module: types.ModuleType) -> None:
        self._context, self._module = context, module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return value if (found := _of_lists(self._context, value)) is None else found


def _of_lists(context: Context, value: Any) -> Any:
    """What takes lists of traced values as arrays and stands for this part of NumPy, the same in all of a trace, so that `f is np.mean`
    holds; None for any other value."""
    kind = (
        _TakesLists
        if type(value) in _DISPATCHED and value not in _OF_SEQUENCES
        else _Submodule
        if value is np.linalg or value is np.fft
        else None
    )
    if kind is not None and value not in context.functions:
        context.functions[value] = kind(context, value)
    return None if kind is None else context.functions[value]


class NumpyModule:
    """NumPy with the functions that make arrays replaced; everything else is NumPy's own."""

    def __init__(self, context: Context) -> None:
        self._context = context
        for name in (
            "array",
            "asarray",
            "asanyarray",
            "ascontiguousarray",
            "asfortranarray",
            "zeros",
            "ones",
            "empty",
            "full",
        ):
            setattr(self, name, getattr(self, f"_{name}"))
        for function in (np.linspace, np.meshgrid):
            traced = functools.partial(_traced, context, function)
            setattr(self, function.__name__, _TakesLists(context, traced))
        for name in _MAKERS:
            setattr(self, name, self._maker(getattr(np, name)))
        self.random = RandomModule(context)
        self.ndarray = np.ndarray

    def __getattr__(self, name: str) -> Any:
        value = getattr(np, name)
        if name == "polynomial":  # whose functions are traced as the user's are
            outside = self._context.outside
            return outside.visit(value, outside.held_node(value, "np.polynomial"), "np.polynomial")
        if (made := _of_lists(self._context, value)) is not None:
            return made
        found = replacement(value, f"np.{name}")
        return value if found is None else found

    def _maker(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **kwargs: Any) -> Any:
            return wrap_known(self._context, function(*args, **kwargs))

        return make

    def _array(
        self,
        object: Any,
        dtype: Any = None,
        *,
        copy: Any = True,
        order: Any = "K",
        subok: bool = False,
        ndmin: int = 0,
        like: Any = None,
    ) -> Any:
        return creation.array(self._context, object, dtype, copy, order, ndmin=ndmin)

    def _asarray(
        self, a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None, like: Any = None
    ) -> Any:
        if isinstance(a, TracedArray) and not a.scalar and not copy and (dtype is None or np.dtype(dtype) == a.dtype):
            asked = creation.ordered(a, order or "K")
            return a if order in (None, "K", "A") or asked == order_of(a) else creation.copy(self._context, a, order)
        if isinstance(a, np.ndarray) and not isinstance(a, TracedArray):
            return a if dtype is None else a.astype(dtype, copy=False)
        return creation.array(self._context, a, dtype, order=order or "K")

    _asanyarray = _asarray

    def _asfortranarray(self, a: Any, dtype: Any = None, *, like: Any = None) -> Any:
        return self._asarray(a, dtype, "F")

    def _ascontiguousarray(self, a: Any, dtype: Any = None, *, like: Any = None) -> Any:
        made = self._asarray(a, dtype)
        return made if not isinstance(made, TracedArray) or made.contiguous else creation.copy(self._context, made, "C")

    def _zeros(
        self, shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None
    ) -> TracedArray:
        return creation.filled(self._context, shape, 0, np.dtype(dtype), _named(order, shape))

    _empty = _zeros

    def _ones(
        self, shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
    ) -> TracedArray:
        return creation.filled(
            self._context, shape, 1, np.dtype(float if dtype is None else dtype), _named(order, shape)
        )

    def _full(
        self, shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
    ) -> TracedArray:
        return creation.filled(self._context, shape, fill_value, dtype, _named(order, shape))


def _traced(context: Context, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return dispatch.call(context, function, args, kwargs)


def _named(order: str, shape: Any) -> tuple[int, ...] | None:
    return tuple(range(np.size(shape)))[::-1] if order == "F" and np.size(shape) > 1 else None


def seen_outside(context: Context, baked: bool) -> Substitute:
    """What stands for NumPy's own values that a traced function reads from outside.

    Arrays become inputs of the program; small ones, and all where `baked`, are known, and guarded by their contents.
    """
    module = NumpyModule(context)

    def substitute(outside: Outside, value: Any, number: int, name: str) -> Any:
        if value is np:
            outside.require(number, Test.IS, value)
            return module
        if type(value) is np.ndarray:
            return _array(outside, context, value, number, name, baked)
        if scipy.has_stand_in(value):
            outside.require(number, Test.IS, value)
            return scipy.stand_in(value)
        if (made := polynomials.stand_in(outside, value, number)) is not None:
            return made
        if value is np.random:
            outside.require(number, Test.IS, value)
            return module.random
        if value is np.random.seed:
            outside.require(number, Test.IS, value)
            return module.random.seed
        if isinstance(value, GENERATORS):
            return stand_in(outside, context, value, number, name)
        owner = getattr(value, "__self__", None)
        if isinstance(owner, GENERATORS):  # a method of one
            where = outside.node(Reach.ATTRIBUTE, number, "__self__", name.rpartition(".")[0] or "np.random")
            outside.require(number, Test.HOLDS, lambda now: getattr(now, "__name__", "") == value.__name__)
            return getattr(outside.visit(owner, where, name), value.__name__)
        if type(value) is float:
            return _input(outside, context, np.float64(value), number, weak=float)
        if isinstance(value, np.generic) and value.dtype in ALL_DTYPES:
            return _scalar(outside, context, value, number)
        if isinstance(value, np.ndarray):
            outside.require(number, Test.IS, value)
            return Refusing(
                name, f"is a {type(value).__name__}, whose rules differ from those of ndarray", "use np.asarray(x)"
            )
        if hasattr(type(value), "within"):  # an accelerated function
            outside.require(number, Test.IS, value)
            return value.within(context)
        called = getattr(value, "__name__", None)
        if (
            isinstance(called, str)
            and called in module.__dict__
            and getattr(np, called, None) is value
            and callable(value)
        ):
            outside.require(number, Test.IS, value)
            return module.__dict__[called]
        if (made := _of_lists(context, value)) is not None:
            outside.require(number, Test.IS, value)
            return made
        return NotImplemented

    return substitute


def _array(outside: Outside, context: Context, value: np.ndarray, number: int, name: str, baked: bool) -> Any:
    if value.dtype not in ALL_DTYPES or not value.dtype.isnative:
        if value.dtype.kind in "SU":
            before = value.copy()
            outside.require(number, Test.HOLDS, lambda now: type(now) is np.ndarray and _same_text(now, before))
            return before
        outside.require(number, Test.IS, value)
        return Refusing(name, f"is an array of dtype {value.dtype} and cannot be traced", "pass arrays of numbers")
    dense = bool(value.flags.c_contiguous)
    if baked or (value.nbytes <= KNOWN_BYTES and not outside.is_dynamic(number)):
        outside.require(number, Test.CONTENTS, (value.dtype, value.shape, value.tobytes()))
        made = TracedArray(context, value.copy(), contiguous=dense, strides=value.strides)
        return context.argument(Known(name, None if baked else outside.path(number)), made)
    outside.require(number, Test.ARRAY, (value.dtype, value.shape, value.strides))
    tracer = _new_input(outside, value, number)
    made = TracedArray(context, tracer, contiguous=dense, strides=value.strides)
    return context.argument(-len(outside.captures), made)


def _same_text(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())


def _scalar(outside: Outside, context: Context, value: np.generic, number: int) -> Any:
    kind, contents = type(value), value.tobytes()
    if outside.is_dynamic(number):
        outside.require(number, Test.TYPE, kind)
        return _input(outside, context, value, number)
    outside.require(number, Test.HOLDS, lambda now: type(now) is kind and now.tobytes() == contents)
    return value


def _input(outside: Outside, context: Context, value: np.generic, number: int, weak: type | None = None) -> Any:
    return TracedArray(context, _new_input(outside, value, number), scalar=True, weak=weak)


def _new_input(outside: Outside, value: Any, number: int) -> Any:
    tracer = current().new_input(ArrayType(value.shape, value.dtype))  # type: ignore[attr-defined]
    outside.capture(number)
    outside.inputs.append(tracer)
    return tracer
