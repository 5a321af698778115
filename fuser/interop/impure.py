"""What a trace must not run, because each call of the function would: random numbers, clocks, files, the environment.

`replacement(value)` gives what stands for such a thing in a traced function: using it raises an error with the user's line.
"""

from __future__ import annotations

import builtins
import collections.abc
import datetime
import io
import os
import random
import sys
import time
import types
import warnings
from typing import Any

import numpy as np

from fuser.config import is_environment
from fuser.interop.numpy.context import untraceable

DRAWS = "draws from a state that tracing would freeze: every later call would get the same numbers"
_DRAW_OUTSIDE = "draw the numbers outside and pass them in"
_CLOCK = "tells the time, and tracing would freeze it: every later call would get the same"
_OUTER = "reads or changes what lies outside the program, and would do so only while the function is traced"
_MOVE = "do it before or after the call"
_ITERATOR = "is used up as it is read, which later calls would not do"


class Refusing:
    """Something that a traced function must not use. Whatever is done with it raises an error."""

    def __init__(self, title: str, reason: str, way_out: str) -> None:
        self._words = (title, reason, way_out)

    def _refuse(self, part: str = "") -> Any:
        title, reason, way_out = self._words
        raise untraceable(f"{title}{part} {reason}", way_out)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._refuse(f".{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._refuse()

    def __iter__(self) -> Any:
        return self._refuse()

    def __next__(self) -> Any:
        return self._refuse()

    def __getitem__(self, key: Any) -> Any:
        return self._refuse()

    def __enter__(self) -> Any:
        return self._refuse()

    def __exit__(self, *error: Any) -> None:
        return None

    def __len__(self) -> int:
        return int(self._refuse())

    def __contains__(self, key: Any) -> bool:
        return bool(self._refuse())


class _Module(types.ModuleType):
    """A module some of whose parts a traced function must not use."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(module.__name__)
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        found = replacement(value, f"{self._module.__name__}.{name}")
        return value if found is None else found


class _Instants(type):
    """The class of date and datetime in a traced function: without the clock."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__mro__[1])


def _without_clock(kind: type, names: tuple[str, ...]) -> type:
    def refused(name: str) -> Any:
        return classmethod(
            lambda cls, *args, **kwargs: Refusing(f"{kind.__name__}.{name}", _CLOCK, "pass the time in")()
        )

    return _Instants(kind.__name__, (kind,), {name: refused(name) for name in names})


_MODULES = (
    "random",
    "time",
    "os",
    "sys",
    "datetime",
    "io",
    "secrets",
    "uuid",
    "logging",
    "warnings",
    "subprocess",
    "socket",
)
_WHOLE = ("secrets", "uuid", "logging", "subprocess", "socket", "io", "tempfile", "shutil", "threading", "_thread")
_CLOCKS = (
    "time",
    "monotonic",
    "perf_counter",
    "process_time",
    "thread_time",
    "localtime",
    "gmtime",
    "ctime",
    "asctime",
    "sleep",
)
_STILL = ("path", "sep", "linesep", "name", "pathsep", "curdir", "fspath", "PathLike", "altsep", "extsep", "devnull")
_TIMELESS: dict[type, type] = {
    datetime.datetime: _without_clock(datetime.datetime, ("now", "today", "utcnow")),
    datetime.date: _without_clock(datetime.date, ("today",)),
}


def _functions() -> dict[int, tuple[str, str, str]]:
    """Functions by identity, with what is said of them."""
    found: dict[int, tuple[str, str, str]] = {}

    def add(value: Any, title: str, reason: str, way_out: str) -> None:
        if callable(value) and not isinstance(value, type):
            found[id(value)] = (title, reason, way_out)

    for name in dir(random):
        add(getattr(random, name), f"random.{name}", DRAWS, _DRAW_OUTSIDE)
    for name in dir(np.random):
        add(getattr(np.random, name), f"np.random.{name}", DRAWS, _DRAW_OUTSIDE)
    for name in dir(time):
        if name.removesuffix("_ns") in _CLOCKS:
            add(getattr(time, name), f"time.{name}", _CLOCK, "measure around the call")
    for name in dir(os):
        if name not in _STILL:
            add(getattr(os, name), f"os.{name}", _OUTER, _MOVE)
    for name in dir(os.path):
        if name in (
            "exists",
            "isfile",
            "isdir",
            "getsize",
            "getmtime",
            "getctime",
            "getatime",
            "islink",
            "lexists",
            "realpath",
        ):
            add(getattr(os.path, name), f"os.path.{name}", _OUTER, _MOVE)
    for name in ("print", "input", "open", "breakpoint"):
        add(getattr(builtins, name), name, _OUTER, _MOVE)
    for name in ("warn", "warn_explicit"):
        add(getattr(warnings, name), f"warnings.{name}", _OUTER, _MOVE)
    for name in ("load", "save", "savez", "savez_compressed", "loadtxt", "savetxt", "fromfile", "genfromtxt", "memmap"):
        add(getattr(np, name), f"np.{name}", _OUTER, _MOVE)
    return found


_FUNCTIONS = _functions()
BUILTINS = {name: Refusing(name, _OUTER, _MOVE) for name in ("print", "input", "open", "breakpoint")}


def replacement(value: Any, name: str) -> Any:
    """What stands for `value`, which the user calls `name`, in a traced function; None if it may be used as it is."""
    if isinstance(value, types.ModuleType):
        return _module(value)
    words = _FUNCTIONS.get(id(value))
    if words is not None:
        return Refusing(*words)
    if isinstance(value, (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)):
        return Refusing(name, DRAWS, _DRAW_OUTSIDE)
    owner = getattr(value, "__self__", None) if callable(value) else None
    if isinstance(owner, (np.random.Generator, np.random.RandomState, random.Random)):
        return Refusing(name, DRAWS, _DRAW_OUTSIDE)
    if is_environment(value):
        return Refusing("os.environ", _OUTER, "read it before the call")
    if isinstance(value, io.IOBase) or any(value is stream for stream in (sys.stdout, sys.stderr, sys.stdin) if stream):
        return Refusing(name, _OUTER, _MOVE)
    if isinstance(value, collections.abc.Iterator) and not isinstance(value, type):
        return Refusing(name, _ITERATOR, "make it inside the function")
    return _TIMELESS.get(value) if isinstance(value, type) else None


def _module(module: types.ModuleType) -> Any:
    if module is np.random:
        return Refusing("np.random", DRAWS, _DRAW_OUTSIDE)
    name = module.__name__
    if name in _WHOLE:
        return Refusing(name, _OUTER, _MOVE)
    return _Module(module) if name in _MODULES or name in ("posixpath", "ntpath") else None
