"""Python functions called from compiled programs: `pure_callback`, `io_callback`, `debug_callback` and `debug_print`."""

from __future__ import annotations

import functools
import string
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.api.shapes import declared_type
from fuser.ir.names import function_name
from fuser.lax.values import as_value
from fuser.ops.callback import VMAP_METHODS, Callback, debug_callback_p, io_callback_p, pure_callback_p
from fuser.ref import get
from fuser.runtime.array import Array
from fuser.trace import tree
from fuser.trace.cells import is_ref

__all__ = ["debug_callback", "debug_print", "effects_barrier", "io_callback", "pure_callback"]


def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """What `callback(*args, **kwargs)` gives, called with Arrays; a tree like `result_shape_dtypes`, whose leaves have `shape` and `dtype`.

    Inside compiled programs Python is called where they run. A function of its arguments alone: it may be called more often
    than written, or never. Under vmap, by `vmap_method`: once an element ("sequential", "sequential_unrolled"), or once with
    leading dimensions ("expand_dims", "broadcast_all", "legacy_vectorized"). What it raises arrives as JaxRuntimeError.
    It has no derivative: define one with custom_jvp or custom_vjp.
    """
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"vmap_method must be on of the allowed methods {list(VMAP_METHODS)}, but got: {vmap_method}")
    return _called(pure_callback_p, callback, result_shape_dtypes, args, kwargs, vmap_method=vmap_method)


def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """As `pure_callback`, for a function that does something besides: it is called exactly once for each time it is reached.

    Calls happen in the order of the program. Under vmap it is called once an element; with `ordered` vmap is a ValueError.
    """
    return _called(io_callback_p, callback, result_shape_dtypes, args, kwargs, ordered=bool(ordered))


def _called(primitive: Any, callback: Callable[..., Any], declared: Any, args: Any, kwargs: Any, **params: Any) -> Any:
    leaves, structure = tree.flatten((args, kwargs))
    avals, out_tree = tree.flatten(tree.map(declared_type, declared))

    def flat(*arrays: Any) -> list[Any]:
        args, kwargs = tree.unflatten(structure, arrays)
        return [_as_enabled(leaf) for leaf in tree.leaves(callback(*args, **kwargs))]

    values = [as_value(leaf, primitive.name) for leaf in leaves]
    found = primitive.bind(
        *values, callback=Callback(flat, function_name(callback)), result_avals=tuple(avals), **params
    )
    return tree.unflatten(out_tree, found)


def _as_enabled(leaf: Any) -> Any:
    """A result as an array, of 32 bits where 64-bit types are disabled."""
    if isinstance(leaf, Array):
        return leaf
    value = np.asarray(leaf)
    return value.astype(dtypes.canonical(value.dtype), copy=False)


def debug_callback(
    callback: Callable[..., Any] | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> Any:
    """Call `callback(*args, **kwargs)` with the values as Arrays each time the program gets here, in program order.

    Under vmap it is called once an element, under derivatives once, with the values. What is no array is passed as it is.
    A program for several devices calls it once with whole arrays; with `partitioned` once on each device, with that device's parts.
    Without arguments but options, a function that takes the callback and its arguments.
    """
    if callback is None:
        _options_alone("debug_callback", args, kwargs)
        return functools.partial(_debug_callback, partitioned)
    return _debug_callback(partitioned, callback, *args, **kwargs)


def _options_alone(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if args or kwargs:
        raise TypeError(
            f"{name} received unexpected arguments in the two-call form: {args or ''}{kwargs or ''}; the first call takes options alone, "
            "the second the rest"
        )


def _debug_callback(partitioned: bool, callback: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    if not callable(callback):
        raise TypeError(
            f"first argument to jax.debug.callback must be callable, but got an object of type {type(callback)}"
        )
    leaves, structure = tree.flatten((args, kwargs))
    leaves = [get(leaf) if is_ref(leaf) else leaf for leaf in leaves]
    values = [_value(leaf) for leaf in leaves]

    def flat(*arrays: Any) -> list[Any]:
        given = iter(arrays)
        args, kwargs = tree.unflatten(
            structure, [leaf if value is None else next(given) for leaf, value in zip(leaves, fixed)]
        )
        callback(*args, **kwargs)
        return []

    fixed = [None if v is None else True for v in values]
    operands = [v for v in values if v is not None]
    made = Callback(flat, function_name(callback))
    debug_callback_p.bind(*operands, callback=made, result_avals=(), partitioned=partitioned)


def _value(leaf: Any) -> Any:
    try:
        return as_value(leaf, "debug_callback")
    except TypeError:
        return None


class _Checker(string.Formatter):
    """Finds out, before anything runs, whether a format has a place for every argument."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        if unused := [arg for n, arg in enumerate(args) if n not in used_args]:
            raise ValueError(f"Unused positional arguments to `jax.debug.print`: {unused}")
        if missing := [name for name in kwargs if name not in used_args]:
            raise ValueError(
                f'Unused keyword arguments to `jax.debug.print`: {missing}. You may be passing an f-string (i.e, `f"{{x}}"`) '
                "into `jax.debug.print` and instead should pass in a regular string."
            )


def debug_print(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> Any:
    """Print `fmt.format(*args, **kwargs)` with the values, each time the program gets here; see `debug_callback`.

    ValueError for arguments that the format has no place for. Without a format but options, a function that takes them.
    """
    if fmt is None:
        _options_alone("debug_print", args, kwargs)
        return functools.partial(_debug_print, skip_format_check, partitioned)
    return _debug_print(skip_format_check, partitioned, fmt, *args, **kwargs)


def _debug_print(skip_format_check: bool, partitioned: bool, fmt: str, /, *args: Any, **kwargs: Any) -> None:
    if not skip_format_check:
        _Checker().format(fmt, *args, **kwargs)
    places = any(field is not None for _, field, *_ in string.Formatter().parse(fmt))
    options = np.get_printoptions()

    def show(*args: Any, **kwargs: Any) -> None:
        with np.printoptions(**options):
            text = fmt.format(*args, **kwargs) if places or not args else " ".join((fmt, *map(str, args)))
        sys.stdout.write(f"{text}\n")

    _debug_callback(partitioned, show, *args, **kwargs)


def effects_barrier() -> None:
    """Return once every callback of the programs called before has run: they run inside of the calls, so at once."""
