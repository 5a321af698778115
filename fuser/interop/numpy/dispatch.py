"""The table of NumPy functions that can be traced, and the call of one: what `__array_function__` does.

A handler takes the context and NumPy's own parameters. A call whose arrays are all known goes to NumPy itself; a function
without a handler is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.interop.numpy import time_functions
from fuser.interop.numpy.checks import exempted, in_numpy
from fuser.interop.numpy.context import Context, untraceable
from fuser.interop.numpy.layout import laid_out
from fuser.interop.numpy.selected import Selected, unknown_shape
from fuser.interop.numpy.time_ufuncs import holds_time
from fuser.interop.numpy.traced import EITHER, TracedArray
from fuser.interop.numpy.ufuncs import known, store
from fuser.interop.read_only import is_sequence

Handler = Callable[..., Any]
FUNCTIONS: dict[Any, Handler] = {}
VIEWS: set[Any] = set()  # functions whose handler is called for known arrays too, because the result shares memory
ON_SELECTED: dict[Any, Handler] = {}  # functions of x[mask]


def implements(*functions: Any, view: bool = False) -> Callable[[Handler], Handler]:
    """Register a handler for functions of NumPy (names that this NumPy lacks are None)."""

    def register(handler: Handler) -> Handler:
        for function in functions:
            if function is not None:
                FUNCTIONS[function] = handler
                if view:
                    VIEWS.add(function)
        return handler

    return register


def numpy_function(name: str) -> Any:
    """NumPy's function of this name, or None where this version has none."""
    return getattr(np, name, None)


def title(function: Any) -> str:
    """`np.linalg.svd`."""
    module = (getattr(function, "__module__", "") or "numpy").replace("numpy", "np", 1)
    return f"{module}.{function.__name__}".replace("._core", "").replace(".lib", "")


def call(context: Context, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`function(*args, **kwargs)` on traced arrays."""
    if holds_time((*args, *kwargs.values())):
        return time_functions.call(function, args, kwargs)
    if function not in VIEWS and not _any_traced(args) and not _any_traced(tuple(kwargs.values())):
        with in_numpy():
            return wrap_known(context, function(*unwrap(args), **unwrap(kwargs)))
    out = kwargs.pop("out", None) if "out" in kwargs else None
    handler = ON_SELECTED.get(function) if _any_selected(args) else FUNCTIONS.get(function)
    _check_either(function, (*args, *kwargs.values()))
    if handler is None:
        if _any_selected(args):
            raise unknown_shape()
        raise untraceable(f"{title(function)} cannot be traced", "call it before or after the traced function")
    try:
        with exempted():
            result = handler(context, *args, **{k: v for k, v in kwargs.items() if v is not np._NoValue})
    except TypeError as error:
        if "unexpected keyword argument" in str(error) and handler.__name__ in str(error):
            keyword = str(error).rsplit("'", 2)[1]
            raise untraceable(f"{title(function)} with {keyword}= cannot be traced") from None
        raise
    if out is not None:
        return store(result, out)
    return result if function in VIEWS else laid_out(function, args, kwargs, result)


def _check_either(function: Any, values: Any) -> None:
    """Refuse what may be a Python number or a NumPy scalar, as values decide."""
    for value in values:
        if type(value) in (list, tuple):
            _check_either(function, value)
        elif type(value) is TracedArray and value.weak in EITHER:
            raise untraceable(
                f"{title(function)} of a value that is a Python number or a NumPy scalar, as values decide, cannot be traced",
                "make it float(x) in all cases",
            )


def _any_traced(value: Any) -> bool:
    if isinstance(value, TracedArray):
        return not value.known
    return is_sequence(value) and any(_any_traced(v) for v in value)


def _any_selected(value: Any) -> bool:
    if isinstance(value, Selected):
        return True
    return is_sequence(value) and any(_any_selected(v) for v in value)


def unwrap(value: Any) -> Any:
    """Known traced arrays in a tree of tuples, lists and dicts as NumPy's arrays; they may be written to without effect."""
    if isinstance(value, TracedArray):
        return np.array(value.value) if value.shape else value.value
    if is_sequence(value):
        return (tuple if type(value) is tuple else list)(unwrap(v) for v in value)
    return {k: unwrap(v) for k, v in value.items()} if isinstance(value, dict) else value


def wrap_known(context: Context, result: Any) -> Any:
    """What NumPy gave: arrays in tuples and lists become known traced arrays."""
    if isinstance(result, (list, tuple)):
        items = [wrap_known(context, r) for r in result]
        return (
            items if isinstance(result, list) else type(result)(*items) if hasattr(result, "_fields") else tuple(items)
        )
    return known(context, result)
