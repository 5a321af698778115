"""`out_sharding` of functions: their result, laid out over devices. fuser.parallel, which stands above, says how."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from fuser.ir.names import parameter_names
from fuser.ir.primitive import REGISTRY
from fuser.ir.types import ArrayType
from fuser.runtime.array import Array
from fuser.trace import tree
from fuser.trace.batch import named_axes
from fuser.trace.core import Tracer
from fuser.trace.explicit import resolving

_lay: list[Callable[[Any, Any, str], Any]] = []


def install_layout(lay: Callable[[Any, Any, str], Any]) -> None:
    """Let `lay(value, sharding, function)` lay out results from now on; `function` is "device" for the argument `device`."""
    _lay[:] = [lay]


def with_sharding(result: Any, sharding: Any, function: str = "reshard") -> Any:
    """The arrays of a tree laid out by a sharding, or by a PartitionSpec over the mesh in scope; as they are for None."""
    return result if sharding is None else tree.map(lambda leaf: _lay[0](leaf, sharding, function), result)


def described_layout(like: Any) -> Any:
    """How an array that was put somewhere lies, or a described one (a ShapeDtypeStruct), as its sharding says of devices that there are.

    None for all else.
    """
    if isinstance(like, Array):
        return like.sharding if like.committed and not like.weak_type else None  # type: ignore[attr-defined]
    sharding = getattr(like, "sharding", None) if isinstance(like, ArrayType) else None
    return _laid_over[0](sharding) if sharding is not None and _laid_over else None


def like_it(result: Any, like: Any) -> Any:
    """A new array that lies as another or a described one does, and varies from device to device along the axes of a mesh that it names."""
    aval = getattr(like, "aval", like)
    axes, explicit = getattr(aval, "vma", None), getattr(aval, "explicit", None)
    if axes:
        result = REGISTRY["pvary"].bind(result, axes=tuple(n for n in named_axes() if n in axes))
    if isinstance(like, Tracer) and explicit is not None and not (explicit.spec.unreduced or explicit.spec.reduced):
        return REGISTRY["sharding_constraint"].bind(result, sharding=explicit)
    return with_sharding(result, described_layout(like), "device")


_laid_over: list[
    Callable[[Any], Any]
] = []  # a sharding over the devices of the mesh in scope, or None; set by fuser.parallel


def lays_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that heeds its `out_sharding` itself."""
    function.lays_out = True  # type: ignore[attr-defined]
    return function


def sharded(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with the arguments `out_sharding` and `device` heeded for it."""

    names = [n for n in ("out_sharding", "device") if _takes(function, n)]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return function(*args)
        found = {name: w for name in names if (w := kwargs.pop(name, None)) is not None}
        if not found:
            return function(*args, **kwargs)
        with resolving():
            result = function(*args, **kwargs)
        name, wanted = next(iter(found.items()))
        return with_sharding(result, wanted, function.__name__ if name == "out_sharding" else "device")

    return call


def install(module: dict[str, Any], package: str) -> None:
    """Make every public function of a module's namespace that the package defines and that takes `out_sharding` heed it."""
    for name, value in module.items():
        home = getattr(value, "__module__", None) or ""
        if name.startswith("_") or not inspect.isfunction(value) or not home.startswith(package):
            continue
        if not hasattr(value, "lays_out") and _takes(value, "out_sharding"):
            module[name] = sharded(value)
            module[name].__module__ = package  # where pickle finds it


def _takes(function: Callable[..., Any], name: str) -> bool:
    return any(name in names for names in parameter_names(function))
