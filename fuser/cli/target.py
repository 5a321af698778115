"""`FILE:FUNCTION` in, a staged function and example arguments for it out.

The file is imported as a module with its own folder on `sys.path`, so `if __name__ == "__main__":` stays quiet. Arguments
come from --args, or from the file: `FUNCTION_args` or `example_args`, a value or a function that makes it: a tuple of
positional arguments, a dict of keyword arguments, or the one argument.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import pathlib
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.cli.arguments import parse_arguments
from fuser.cli.output import UsageError

EXPECTED = "write FILE:FUNCTION, as in model.py:softmax"


@dataclass(frozen=True)
class Target:
    """A function of a file."""

    path: pathlib.Path
    name: str
    module: types.ModuleType
    function: Callable[..., Any]


def load(text: str) -> Target:
    """The function that `FILE:FUNCTION` names. UsageError says what is missing."""
    file, colon, name = text.rpartition(":")
    if not colon or not file or not name:
        raise UsageError(f"{text!r} names no function; {EXPECTED}")
    path = pathlib.Path(file)
    if not path.is_file():
        raise UsageError(f"there is no file {file}; {EXPECTED}")
    module = _import(path)
    try:
        function = functools.reduce(getattr, name.split("."), module)
    except AttributeError:
        raise UsageError(f"{path.name} has no function {name!r}; {_known(module)}") from None
    if not callable(function):
        raise UsageError(
            f"{name} of {path.name} is of type {type(function).__name__}, not a function; {_known(module)}"
        )
    return Target(path, name, module, function)


def arguments(target: Target, text: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments to call the function with. UsageError says how to give them where none are needed to be found."""
    if text is not None:
        args, kwargs = parse_arguments(text)
    else:
        args, kwargs = _from_module(target)
    try:
        inspect.signature(target.function).bind(*args, **kwargs)
    except TypeError as error:
        wanted = inspect.signature(target.function)
        raise UsageError(f"{target.name}{wanted} cannot take these arguments: {error}; {_how(target)}") from None
    except ValueError:
        pass  # no signature to compare with
    return args, kwargs


def staged(target: Target) -> Any:
    """The function behind a front door: as it is when decorated, accelerated when it uses NumPy and not fuser.numpy, else jitted."""
    import fuser

    function = target.function
    if hasattr(function, "lower"):
        return function
    return fuser.accelerate(function) if _uses_numpy(function) else fuser.jit(function)


def _import(path: pathlib.Path) -> types.ModuleType:
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"fuser_target_{abs(hash(path))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file; {EXPECTED}")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        raise UsageError(
            f'{path.name} exits when it is imported (status {error.code}); put its main program under if __name__ == "__main__":'
        ) from None
    return module


def _known(module: types.ModuleType) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
    ]
    return f"its functions are {', '.join(own)}" if own else "it defines no functions"


def _from_module(target: Target) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for name in (f"{target.name.replace('.', '_')}_args", "example_args"):
        if hasattr(target.module, name):
            value = getattr(target.module, name)
            value = value() if callable(value) else value
            if isinstance(value, dict):
                return (), value
            return (value,) if not isinstance(value, tuple) else value, {}
    if _needs_nothing(target.function):
        return (), {}
    raise UsageError(f"{target.name} needs example arguments: {_how(target)}")


def _how(target: Target) -> str:
    name = target.name.replace(".", "_")
    return f'pass --args "f32[1024,1024], 3.0", or define {name}_args() in {target.path.name}, which returns a tuple of arguments'


def _needs_nothing(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def _uses_numpy(function: Callable[..., Any]) -> bool:
    """Whether the function's own code names NumPy or something that NumPy made, and not fuser.numpy beside it (for its dtypes)."""
    code, scope = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    if code is None:
        return False
    found = [scope[name] for name in code.co_names if name in scope]
    if any(getattr(value, "__name__", "") == "fuser.numpy" for value in found):
        return False
    return any(
        value is np or isinstance(value, np.ufunc) or str(getattr(value, "__module__", "")).startswith("numpy")
        for value in found
    )
