"""Results that are no argument: what a function would pass through becomes an Array of its own.

As in JAX, `y = squeeze(x)` outlives `x.delete()` and the donation of `x`, and does not see later writes to an ndarray `x`.
Memory that several Arrays hold is never written to, so they share it; an ndarray's is copied.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from types import FunctionType
from typing import Any

import numpy as np

from fuser.lax.layouts import install as install_layouts
from fuser.lax.ranks import lenient
from fuser.runtime.array import Array, alias

# Where JAX, too, may return the argument itself.
PASSING = frozenset(
    [
        "array",
        "asarray",
        "astype",
        "broadcast_to",
        "broadcast_to_rank",
        "collapse",
        "concat",
        "concatenate",
        "convert_element_type",
        "from_dlpack",
        "full",
        "full_like",
        "permute_dims",
        "stop_gradient",
        "transpose",
    ]
)


def distinct(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with Arrays of their own in place of those results that are among its arguments."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        kind = type(result)
        if kind is Array:
            return _apart(result, _held((*args, *kwargs.values())))
        if (kind is tuple or kind is list) and any(type(r) is Array for r in result):
            held = _held((*args, *kwargs.values()))
            return kind([_apart(r, held) if type(r) is Array else r for r in result])
        return result

    return call


def install(module: dict[str, Any], package: str, elementwise: Collection[str] = ()) -> None:
    """Make every public function of a module's namespace that the package defines a `distinct` one, except PASSING.

    Those of all submodules but the `elementwise` ones, which check the ranks of their operands, become `lenient` too; those
    that take `out_sharding` heed it.
    """
    install_layouts(module, package)
    for name, value in module.items():
        home = getattr(value, "__module__", "") or ""
        mine = callable(value) and home.startswith(package) and not isinstance(value, type)
        if mine and not name.startswith("_") and name not in PASSING:
            free = bool(elementwise) and isinstance(value, FunctionType) and home not in elementwise
            module[name] = distinct(lenient(value) if free else value)
            module[name].__module__ = package  # where pickle finds it


def _held(arguments: Iterable[Any]) -> list[Any]:
    """The arrays among arguments and in sequences of them."""
    held: list[Any] = []
    for argument in arguments:
        if isinstance(argument, (Array, np.ndarray)):
            held.append(argument)
        elif type(argument) in (tuple, list):
            held += [a for a in argument if isinstance(a, (Array, np.ndarray))]
    return held


def _apart(result: Array, held: list[Any]) -> Array:
    """The result, or another Array in its place if somebody else holds it; from now on somebody does."""
    for other in held:
        if other is result:
            return alias(result)
        if isinstance(other, np.ndarray) and np.may_share_memory(result._data, other):
            return result.__copy__()
    held.append(result)
    return result
