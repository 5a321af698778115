"""Options of `jit` that are refused, and those that make another function of it."""

from __future__ import annotations

import inspect
from typing import Any

from fuser.api import compiler
from fuser.errors import UnsupportedError


def check_options(function: Any, schedule: Any, compiler_options: Any) -> None:
    """Errors for what is no function, and for options that are none of ours."""
    if schedule is not None and not isinstance(schedule, compiler.Schedule):
        raise TypeError(f"jit takes a fuser.Schedule as schedule, got a {type(schedule).__name__}")
    if schedule is not None:
        compiler.require_values(schedule)
    if compiler_options:
        raise UnsupportedError(
            f"jit takes no compiler_options, which are XLA's, got {compiler_options!r}; see docs/environment.md for fuser's settings"
        )
    if not callable(function):
        raise TypeError(f"Expected a callable value: jit takes a function, got a {type(function).__name__}")
    if inspect.isgeneratorfunction(function):
        raise TypeError(
            f"Expected a function, got a generator function: {function}; return a list of its values instead"
        )


def for_all_sizes(function: Any, dynamic: Any, backend: Any, inline: bool, *others: Any) -> Any:
    """`jit(dynamic=)`, with which `others` of jit's options do not go."""
    from fuser.export.dynamic import dynamic_jit

    if any(other is not None for other in others):
        raise UnsupportedError(
            "jit(dynamic=) takes no static and no donated arguments, and no schedule; close over the values instead"
        )
    return dynamic_jit(function, dynamic, backend=backend, inline=inline)
