"""`LazyArray`: what stands for an ndarray in a function that runs in segments. It records what is done to it on a tape.

Whatever asks for elements (`if`, `float`, `x[mask]`, a library that calls `__array__`) gets them: the tape runs first. Writes go
to NumPy's own memory at once, after what was recorded before them, so that views and aliases need no emulation.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fuser.interop.numpy.methods import _BINARY, _COMPARISONS, _UNARY, FUNCTIONS
from fuser.interop.numpy.substitutes import item

_BASIC = (int, np.integer, slice, type(None), type(Ellipsis))
_TRANSPOSED, _MATRIX_TRANSPOSED = operator.attrgetter("T"), operator.attrgetter("mT")
_NUMBERS = (bool, int, float, complex, np.generic, np.ndarray)
_RECORDED = (*FUNCTIONS, "reshape", "transpose", "ravel", "view", "astype", "copy", "flatten", "conj", "conjugate")


class Meta(NamedTuple):
    """What is known of an array without its elements; `strides` is None in C order."""

    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...] | None = None
    scalar: bool = False
    weak: type | None = None

    @classmethod
    def of(cls, value: Any) -> Meta:
        """Of an ndarray, a NumPy scalar or a Python number."""
        if isinstance(value, np.ndarray):
            return cls(value.shape, value.dtype, None if value.flags.c_contiguous else value.strides)
        if isinstance(value, np.generic):
            return cls((), value.dtype, None, True)
        return cls((), np.dtype(type(value)), None, True, type(value))


class LazyArray:
    """An array of a function that runs in segments: elements in `_array`, or else position `_slot` of what `_tape` holds.

    `_base`: the array of which it is a view; `_again`: how that view is taken. `_exposed`: others hold its memory.
    """

    __slots__ = ("__weakref__", "_again", "_array", "_base", "_exposed", "_meta", "_slot", "_tape")
    __array_priority__ = 1e6
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tape: Any, meta: Meta, array: Any = None, slot: int = -1) -> None:
        self._tape, self._meta, self._array, self._slot = tape, meta, array, slot
        self._base: LazyArray | None = None
        self._again: Callable[[Any], Any] | None = None
        self._exposed = False
        tape.made(self)

    def _real(self, why: str = "") -> Any:
        """The ndarray or NumPy scalar, once all that was recorded has run."""
        if self._array is None:
            self._tape.flush(why)
        return self._array

    # ---- what it is

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self._meta.dtype.type if self._meta.scalar else np.ndarray

    shape = property(lambda self: self._meta.shape, lambda self, shape: self._reshaped(shape))
    dtype = property(lambda self: self._meta.dtype)
    ndim = property(lambda self: len(self._meta.shape))
    size = property(lambda self: math.prod(self._meta.shape))
    itemsize = property(lambda self: self._meta.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.itemsize)
    T = property(lambda self: self._view_by(_TRANSPOSED))
    mT = property(lambda self: self._view_by(_MATRIX_TRANSPOSED))

    def __len__(self) -> int:
        if not self._meta.shape:
            raise TypeError("len() of unsized object")
        return self._meta.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self._meta.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array") or name in ("__jax_array__", "__torch_function__"):
            raise AttributeError(name)
        value = getattr(self._real(f".{name}"), name)
        if callable(value):
            return self._in_place(value)
        if not isinstance(value, (np.ndarray, tuple)):
            self._tape.expose(self._array)
        return self._tape.wrapped(value)

    def _reshaped(self, shape: Any) -> None:
        self._tape.flush("x.shape = ...")
        self._array.shape = shape
        self._meta = Meta.of(self._array)

    def _in_place(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the ndarray, which may change its elements: what was recorded before runs before."""

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._tape.flush(f".{method.__name__}()")
            found = method(*self._tape.real(args), **self._tape.real(kwargs))
            self._meta = Meta.of(self._array)
            return self._tape.wrapped(found)

        return call

    # ---- what Python asks of a value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._tape.flush("a library that asks for its elements")
        self._tape.expose(self._array)
        return np.array(self._array, dtype, copy=copy)

    def __bool__(self) -> bool:
        return bool(self._real("`if` or `while`"))

    def __float__(self) -> float:
        return float(self._real("float()"))

    def __int__(self) -> int:
        return int(self._real("int()"))

    def __complex__(self) -> complex:
        return complex(self._real("complex()"))

    def __index__(self) -> int:
        return operator.index(self._real("an integer"))

    def __round__(self, *digits: Any) -> Any:
        return self._tape.wrapped(round(self._real("round()"), *digits))

    def __contains__(self, item: Any) -> bool:
        return self._tape.real(item) in self._real("`in`")

    def __repr__(self) -> str:
        return repr(self._real("repr()"))

    def __str__(self) -> str:
        return str(self._real("str()"))

    def __format__(self, spec: str) -> str:
        return format(self._real("formatting"), spec)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        return self._real("pickling").__reduce__()

    # ---- views, writes and NumPy's protocols

    def _view_by(self, take: Callable[[Any], Any]) -> Any:
        """What `take` makes of the array, recorded: a segment reads its own inputs' memory best."""
        return self._tape.record(take, (self,), {})

    def __getitem__(self, index: Any) -> Any:
        parts = index if type(index) is tuple else (index,)
        if not all(isinstance(p, _BASIC) and type(p) is not bool and not isinstance(p, LazyArray) for p in parts):
            self._tape.flush("an index that depends on values")
            return self._tape.wrapped(item(self._array, self._tape.real(index)))
        if self._array is not None and any(isinstance(p, (int, np.integer)) for p in parts):
            return self._tape.wrapped(self._array[index], self)  # so that one segment serves all positions
        return self._view_by(_item(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._tape.assign(self, index, value):
            return
        self._tape.flush("a write")
        self._array[self._tape.real(index)] = self._tape.real(value)

    def _takes(self, value: Any) -> bool:
        """Whether an operator in place may leave this value in the array, which has not run yet."""
        mine = self._array is None and isinstance(value, LazyArray) and value.shape == self.shape
        return mine and np.can_cast(value.dtype, self.dtype, "same_kind")

    def __delitem__(self, index: Any) -> None:
        raise ValueError("cannot delete array elements")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and "out" not in kwargs and "where" not in kwargs:
            return self._tape.record(ufunc, inputs, kwargs)
        return self._tape.at_once(getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if "out" in kwargs:
            return self._tape.at_once(function, args, kwargs)
        return self._tape.record(function, args, kwargs)


@functools.lru_cache(4096)
def _item_of(key: Any) -> Callable[[Any], Any]:
    index = tuple(slice(*part[1:]) if type(part) is tuple else part for part in key[1])
    return operator.itemgetter(index if key[0] else index[0])


def _item(index: Any) -> Callable[[Any], Any]:
    """The function that takes `index` of an array; the same one for the same index."""
    parts = index if type(index) is tuple else (index,)
    return _item_of((type(index) is tuple, tuple(map(_part, parts))))


def _part(part: Any) -> Any:
    if isinstance(part, slice):
        return (slice, *(None if b is None else operator.index(b) for b in (part.start, part.stop, part.step)))
    return operator.index(part) if isinstance(part, (int, np.integer)) else part


@functools.cache
def _method(name: str) -> Callable[..., Any]:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, name)(*args, **kwargs)

    call.__name__ = name
    return call


def _binary(function: Callable[[Any, Any], Any], reflected: bool) -> Callable[..., Any]:
    def method(self: LazyArray, other: Any) -> Any:
        operands = (other, self) if reflected else (self, other)
        if isinstance(other, (list, tuple, *_NUMBERS)):
            return self._tape.record(function, operands, {})
        return self._tape.at_once(function, operands, {})

    return method


def _changed(function: Callable[[Any, Any], Any], plain: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The operator `function`, which changes an array in place; `plain` gives a new one."""

    def method(self: LazyArray, other: Any) -> Any:
        if self._meta.scalar:
            return NotImplemented
        if self._array is None and isinstance(other, _NUMBERS):
            value = self._tape.record(plain, (self, other), {})
            if self._takes(value) and self._tape.assign(self, ..., value):
                return self
        self._tape.flush("a write")
        function(self._array, self._tape.real(other))
        return self

    return method


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: LazyArray, *args: Any, **kwargs: Any) -> Any:
        return self._tape.record(function, (self, *args), kwargs)

    return method


def _install() -> None:
    members: dict[str, Any] = {}
    for name in (*_BINARY, *_COMPARISONS):
        function = divmod if name == "divmod" else getattr(operator, {"and": "and_", "or": "or_"}.get(name, name))
        members[f"__{name}__"] = _binary(function, False)
        if name in _BINARY:
            members[f"__r{name}__"] = _binary(function, True)
        if name in _BINARY and name != "divmod":
            members[f"__i{name}__"] = _changed(getattr(operator, f"i{name}"), function)
    members.update({f"__{name}__": _recorded(getattr(operator, name)) for name in _UNARY})
    members.update({name: _recorded(_method(name)) for name in _RECORDED})
    for name, member in members.items():
        setattr(LazyArray, name, member)
    LazyArray.__hash__ = None  # type: ignore[assignment]


_install()
