"""`TimeArray`: what stands for an array of datetime64 or timedelta64 in a traced function: its ticks, as int64, and its dtype.

NumPy decides the units (`ufunc.resolve_dtypes`); arithmetic is that of the ticks, of which the smallest is NaT. As an argument and
as a result it is a node of a tree whose leaf is the ticks, in the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fuser.interop.numpy import time_functions, time_ufuncs
from fuser.interop.numpy.context import untraceable
from fuser.interop.numpy.time_units import convert
from fuser.interop.numpy.traced import TracedArray
from fuser.trace import tree


def is_time(leaf: Any) -> bool:
    """Whether an argument is an array or scalar of datetime64 or timedelta64 that can be traced."""
    kinds = (np.ndarray, np.memmap, np.datetime64, np.timedelta64)
    return type(leaf) in kinds and leaf.dtype.kind in "mM" and leaf.dtype.isnative


def as_time(leaf: Any) -> TimeArray:
    """An array or scalar of NumPy's as its ticks, in its memory."""
    return TimeArray(leaf.dtype, leaf.view(np.int64))


def as_result(times: TimeArray) -> TimeArray:
    """What the function returns, as a node. UnsupportedError for an argument itself, which a call would not give back as that."""
    ticks = times.ticks
    if type(ticks) is TracedArray and any(ticks is argument for _, argument in ticks._context.arguments):
        raise untraceable(
            "returning an argument of datetime64 or timedelta64 as it is cannot be traced", "return a copy"
        )
    return times


class TimeArray:
    """What stands for an array, or scalar, of datetime64 or timedelta64 in a traced function."""

    __slots__ = ("dtype", "ticks")
    __array_priority__ = 1e6
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, dtype: np.dtype, ticks: Any) -> None:
        self.dtype, self.ticks = dtype, ticks

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # so that `isinstance(x, np.ndarray)` holds in the traced function
        return self.dtype.type if self.scalar else np.ndarray

    scalar = property(lambda self: not isinstance(self.ticks, np.ndarray))
    shape = property(lambda self: self.ticks.shape)
    ndim = property(lambda self: self.ticks.ndim)
    size = property(lambda self: self.ticks.size)
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.ticks.nbytes)
    strides = property(lambda self: self.ticks.strides)
    flags = property(lambda self: self.ticks.flags)
    T = property(lambda self: TimeArray(self.dtype, self.ticks.T))

    def __len__(self) -> int:
        return len(self.ticks)

    def __iter__(self) -> Iterator[Any]:
        return (TimeArray(self.dtype, tick) for tick in self.ticks)

    def __getitem__(self, index: Any) -> TimeArray:
        return TimeArray(self.dtype, self.ticks[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.ticks[index] = self._taken(value)

    def _taken(self, value: Any) -> Any:
        """The ticks of a value that is assigned."""
        if isinstance(value, str):
            value = np.datetime64(value) if self.dtype.kind == "M" else np.timedelta64(value)
        found = time_ufuncs.time_of(value)
        if found is None and self.dtype.kind == "m" and isinstance(value, (int, np.integer)):
            return value
        if found is None or not np.can_cast(found[0], self.dtype, "same_kind"):
            raise untraceable(
                f"assigning such a value to an array of {self.dtype} cannot be traced", "convert it first"
            )
        return convert(found[1], found[0], self.dtype)

    def astype(
        self, dtype: Any, order: Any = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        """As `ndarray.astype`: to another unit, or to numbers of ticks."""
        wanted = np.dtype(dtype)
        if not np.can_cast(self.dtype, wanted, casting):
            raise TypeError(
                f"Cannot cast array data from {self.dtype!r} to {wanted!r} according to the rule {casting!r}"
            )
        if wanted.kind in "mM":
            if wanted.kind != self.dtype.kind:
                raise untraceable(f"astype from {self.dtype} to {wanted} cannot be traced")
            ticks = convert(self.ticks, self.dtype, wanted)
            return TimeArray(wanted, ticks.copy() if ticks is self.ticks and copy else ticks)
        return self.ticks.astype(wanted)

    def view(self, dtype: Any = None, type: Any = None) -> Any:
        """As `ndarray.view`, of the ticks' own width."""
        wanted = self.dtype if dtype is None else np.dtype(dtype)
        return TimeArray(wanted, self.ticks[...]) if wanted.kind in "mM" else self.ticks.view(wanted)

    def copy(self, order: Any = "C") -> TimeArray:
        """An array of its own memory."""
        return TimeArray(self.dtype, self.ticks.copy())

    def sort(self, axis: int = -1) -> None:
        """In place, NaT last."""
        self.ticks[...] = time_functions.sort(self, axis).ticks

    def reshape(self, *shape: Any, order: Any = "C") -> TimeArray:
        """As `ndarray.reshape`."""
        return TimeArray(self.dtype, self.ticks.reshape(*shape, order=order))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return time_ufuncs.dispatch(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return time_functions.call(function, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.ticks).view(self.dtype)

    def __bool__(self) -> bool:
        return bool(self.ticks)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise untraceable(f"x.{name} of an array of {self.dtype} cannot be traced", "use x.view(np.int64)")

    def __repr__(self) -> str:
        return f"traced<{self.dtype}{list(self.shape)}>"


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)
    return lambda self, *args, **kwargs: time_functions.call(function, (self, *args), kwargs)


def _operator(ufunc: np.ufunc, reflected: bool = False) -> Callable[..., Any]:
    return lambda self, other: time_ufuncs.call(ufunc, (other, self) if reflected else (self, other))


def _in_place(ufunc: np.ufunc) -> Callable[..., Any]:
    def method(self: TimeArray, other: Any) -> Any:
        found = time_ufuncs.call(ufunc, (self, other))
        if self.scalar:
            return found
        self[...] = found
        return self

    return method


def _install() -> None:
    from fuser.interop.numpy.methods import _BINARY, _COMPARISONS, _UNARY

    for name, ufunc in _BINARY.items():
        setattr(TimeArray, f"__{name}__", _operator(ufunc))
        setattr(TimeArray, f"__r{name}__", _operator(ufunc, reflected=True))
        if name != "divmod":
            setattr(TimeArray, f"__i{name}__", _in_place(ufunc))
    for name, ufunc in _COMPARISONS.items():
        setattr(TimeArray, f"__{name}__", _operator(ufunc))
    for name, ufunc in _UNARY.items():
        setattr(TimeArray, f"__{name}__", lambda self, ufunc=ufunc: time_ufuncs.call(ufunc, (self,)))
    for name in time_functions.METHODS:
        setattr(TimeArray, name, _method(name))
    TimeArray.__hash__ = None  # type: ignore[assignment]


def _unflattened(dtype: np.dtype, ticks: Any) -> Any:
    (value,) = ticks
    return value.view(dtype) if type(value) in (np.ndarray, np.memmap, np.int64) else TimeArray(dtype, value)


tree.register_pytree_node(TimeArray, lambda times: ((times.ticks,), times.dtype), _unflattened)


_install()
