"""Compiled functions in pickles: by the name under which their module holds them, as Python's functions are.

Where the module's name is the plain function (`fast = jit(slow)`), the pickle holds that name and the options. No
compiled program travels: the other process has its own, mostly out of the same disk cache.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

from fuser.ir.names import printable

_BY_VALUE = ("cloudpickle", "dill")  # these picklers take any function


def reduced(wrapper: Any, rebuild: Callable[..., Any], *options: Any) -> Any:
    """What `wrapper.__reduce__()` is to give; `rebuild(function, *options)` makes another such wrapper."""
    if _held(wrapper) is wrapper:
        return wrapper.__qualname__
    function = wrapper.function
    held = _held(function)
    if held is not function and getattr(held, "function", None) is function:  # the module holds another wrapper of it
        return _again, (rebuild, held, *options)
    name = str(getattr(function, "__qualname__", ""))
    named = name and hasattr(function, "__code__") and not hasattr(function, "__self__")
    if named and held is not function and not _any_function():
        what = "a lambda" if name.endswith("<lambda>") else "a local function" if "<locals>" in name else "not there"
        raise pickle.PicklingError(
            f"the {type(wrapper).__name__} function {printable(name)} cannot be pickled: functions are pickled by their name "
            f"in a module, and in {printable(function.__module__)} it is {what}; define it with def at the top of a module"
        )
    return rebuild, (function, *options)


def _again(rebuild: Callable[..., Any], wrapper: Any, *options: Any) -> Any:
    return rebuild(wrapper.function, *options)


def _held(function: Any) -> Any:
    """What the function's module holds under its name."""
    found = sys.modules.get(getattr(function, "__module__", None) or "__main__")
    for part in getattr(function, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found


def _any_function() -> bool:
    """Whether the pickler that asks takes functions that no module holds."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _BY_VALUE:
            return True
        frame = frame.f_back
    return False
