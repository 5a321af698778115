"""Blocks that say how, or as part of what, operations run; and what is forgotten on request."""

from __future__ import annotations

import contextlib
import functools
import platform
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fuser.api import eager, program_cache
from fuser.api.jitted import JITTED
from fuser.ir.names import function_name
from fuser.ir.source import through
from fuser.trace.core import EVALUATION, KnownTrace, current, using


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    with through(name):
        yield


def named_scope(name: str) -> contextlib.AbstractContextManager[None]:
    """Operations of the block, or of the function that this decorates, came through `name`: graphs and reports say so."""
    if not isinstance(name, str):
        raise TypeError(f"named_scope name argument must be a string; got {name!r}")
    return _named(name)


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """`fun`, whose operations come through `name`, by default its own."""
    scope = function_name(fun) if name is None else name

    @functools.wraps(fun)
    def called(*args: Any, **kwargs: Any) -> Any:
        with named_scope(scope):
            return fun(*args, **kwargs)

    return called


@contextlib.contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Operations of the block on arrays that have values are evaluated at once, inside of `jit` too; others are as always."""
    trace = current()
    with using(trace if trace is EVALUATION else KnownTrace(trace)):
        yield


def clear_caches() -> None:
    """Forget every trace and compiled program of this process; kernels on disk stay."""
    for function in list(JITTED):
        function.clear_cache()
    program_cache.forget()
    eager.forget()


def print_environment_info(return_string: bool = False) -> str | None:
    """Versions of fuser, NumPy and Python, the system and its devices: for reports of defects."""
    import fuser
    from fuser.runtime import device

    lines = [
        f"fuser:  {fuser.__version__}",
        f"numpy:  {np.__version__}",
        f"python: {sys.version}",
        f"device info: {', '.join(f'{d} ({d.kind})' for d in device.devices())}",
        f"platform: {platform.uname()}",
    ]
    text = "\n".join(lines)
    if return_string:
        return text
    print(text)
    return None
