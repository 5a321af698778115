"""The `np` that a traced function sees, and the function itself with that `np` in the place of NumPy.

Arrays that a function makes must be able to take traced values: `np.zeros(n)` inside gives a known TracedArray. So the
function is run with a copy of its globals in which NumPy is `MODULE`, and so are the plain functions that it calls by name.
The code is the user's own, unchanged: files and lines in errors stay right.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.interop import creation, dispatch
from fuser.interop.context import Context, untraceable
from fuser.interop.dispatch import wrap_known
from fuser.interop.traced import TracedArray
from fuser.ir.source import is_hidden
from fuser.ir.types import ALL_DTYPES

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
_HIDDEN_STATE = "draws from a state that tracing would freeze: every later call would get the same numbers"


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
            "linspace",
            "meshgrid",
        ):
            setattr(self, name, getattr(self, f"_{name}"))
        for name in _MAKERS:
            setattr(self, name, self._maker(getattr(np, name)))
        self.random = _Refusing("np.random", _HIDDEN_STATE, "draw the numbers outside and pass them in")
        self.ndarray = np.ndarray

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

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
        return creation.array(self._context, object, dtype, copy, ndmin=ndmin)

    def _asarray(
        self, a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None, like: Any = None
    ) -> Any:
        if isinstance(a, TracedArray) and not a.scalar and not copy and (dtype is None or np.dtype(dtype) == a.dtype):
            return a
        if isinstance(a, np.ndarray) and not isinstance(a, TracedArray):
            return a if dtype is None else a.astype(dtype, copy=False)
        return creation.array(self._context, a, dtype)

    _asanyarray = _asarray
    _asfortranarray = _asarray

    def _ascontiguousarray(self, a: Any, dtype: Any = None, *, like: Any = None) -> Any:
        made = self._asarray(a, dtype)
        return made if not isinstance(made, TracedArray) or made.contiguous else creation.copy(self._context, made, "C")

    def _zeros(
        self, shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None
    ) -> TracedArray:
        return creation.filled(self._context, shape, 0, np.dtype(dtype))

    _empty = _zeros

    def _ones(
        self, shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
    ) -> TracedArray:
        return creation.filled(self._context, shape, 1, np.dtype(float if dtype is None else dtype))

    def _full(
        self, shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
    ) -> TracedArray:
        return creation.filled(self._context, shape, fill_value, dtype)

    def _linspace(self, *args: Any, **kwargs: Any) -> Any:
        return dispatch.call(self._context, np.linspace, args, kwargs)

    def _meshgrid(self, *args: Any, **kwargs: Any) -> Any:
        return dispatch.call(self._context, np.meshgrid, args, kwargs)


class _Refusing:
    """A part of NumPy that a traced function must not use."""

    def __init__(self, name: str, reason: str, way_out: str) -> None:
        self._words = (name, reason, way_out)

    def __getattr__(self, name: str) -> Any:
        title, reason, way_out = self._words
        raise untraceable(f"{title}.{name} {reason}", way_out)


def rebound(function: Any, context: Context) -> Any:
    """`function` with NumPy, and functions of its own modules that use NumPy, replaced in its globals and closure."""
    return _Rebinder(NumpyModule(context)).visit(function)


class _Rebinder:
    """Copies functions, each once, so that recursion ends where it began."""

    def __init__(self, module: NumpyModule) -> None:
        self.module = module
        self.known: dict[int, Any] = {}

    def visit(self, value: Any, name: str = "") -> Any:
        """What stands for `value` in the traced function."""
        if value is np:
            return self.module
        if value is np.random:
            return self.module.random
        if type(value) is np.ndarray and value.dtype in ALL_DTYPES:
            guard = f"writing to the array {name}, which was not made in the traced function, cannot be traced|write to a copy: {name}.copy()"
            return TracedArray(self.module._context, value, contiguous=bool(value.flags.c_contiguous), guard=guard)
        if isinstance(value, types.FunctionType) and not is_hidden(value.__code__.co_filename):
            return self._function(value)
        if isinstance(value, types.MethodType) and isinstance(value.__func__, types.FunctionType):
            return types.MethodType(self.visit(value.__func__), value.__self__)
        called = getattr(value, "__name__", None)
        if (
            isinstance(called, str)
            and callable(value)
            and called in self.module.__dict__
            and getattr(np, called, None) is value
        ):
            return self.module.__dict__[called]
        return value

    def _function(self, function: types.FunctionType) -> Any:
        if id(function) in self.known:
            return self.known[id(function)]
        names = _names(function.__code__)
        if names is None:
            return function
        scope = dict(function.__globals__)
        old = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        new = {name: types.CellType() if _replaceable(cell) else cell for name, cell in old.items()}
        copy = types.FunctionType(
            function.__code__, scope, function.__name__, function.__defaults__, tuple(new.values()) or None
        )
        copy.__kwdefaults__ = function.__kwdefaults__
        copy.__dict__.update(function.__dict__)
        self.known[id(function)] = copy  # before what it refers to is visited, for that may refer to it
        for name in names:
            if name in scope:
                scope[name] = self.visit(scope[name], name)
        for name, cell in new.items():
            if cell is not old[name]:
                cell.cell_contents = self.visit(old[name].cell_contents, name)
        return copy


def _replaceable(cell: Any) -> bool:
    """Whether a closure's variable may hold what is replaced; others keep their cell, which `nonlocal` may write to."""
    try:
        value = cell.cell_contents
    except ValueError:  # not set yet
        return False
    return isinstance(value, (types.ModuleType, types.FunctionType, types.MethodType, np.ndarray)) or callable(value)


def _names(code: types.CodeType) -> set[str] | None:
    """Global names that the code and the functions inside it read; None where they write a global."""
    import dis

    names = set(code.co_names)
    if any(i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") for i in dis.get_instructions(code)):
        return None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = _names(constant)
            if inner is None:
                return None
            names |= inner
    return names
