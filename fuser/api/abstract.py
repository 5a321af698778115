"""`make_jaxpr`, `eval_shape` and `typeof`: what a function does, and the types of what it gives, without computing."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Any

from fuser.api.jitted import jit
from fuser.ir.names import function_name
from fuser.ir.types import ArrayType, is_key
from fuser.lax.values import as_value
from fuser.runtime.array import Array
from fuser.trace import tree
from fuser.trace.batch import axis
from fuser.trace.cells import is_ref
from fuser.trace.core import Tracer, type_of
from fuser.trace.hoisting import hoisting
from fuser.trace.tangent import full

__all__ = ["eval_shape", "make_jaxpr", "typeof"]


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Iterable[int] = (),
    axis_env: Iterable[tuple[Any, int]] | None = None,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Graph of `fun` for its arguments instead of calling it.

    Arrays that the function closes over are the graph's consts, scalars among them, so that their number does not depend on
    whether they have values; Python's and NumPy's scalars are literals. `axis_env` names axes, with their sizes, that
    collectives in it may speak of.
    """
    traced, named = jit(fun, static_argnums=static_argnums), tuple(axis_env or ())

    @functools.wraps(fun)
    def make(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for axis_name, size in named:
                stack.enter_context(axis(axis_name, size))
            stack.enter_context(hoisting())
            result = traced.trace(*args, **kwargs)
        return (result.graph, result.out_info) if return_shape else result.graph

    name = function_name(fun)
    make.__name__, make.__qualname__ = f"make_jaxpr({name})", f"make_jaxpr({getattr(fun, '__qualname__', name)})"
    make.__module__ = "fuser"
    return make


def typeof(x: Any) -> ArrayType:
    """The type of an array, a tracer, or of what an array is made of a number: weak for Python's own.

    TypeError for what is no array and no number, lists among them.
    """
    if isinstance(x, (Array, ArrayType, Tracer)) or is_ref(x):
        return type_of(x)
    return type_of(as_value(x, "typeof"))


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The tree of the results' ShapeDtypeStructs; nothing is computed. Arguments need only `shape` and `dtype`."""

    def described(*args: Any, **kwargs: Any) -> Any:
        return tree.map(_stand_in, fun(*args, **kwargs))

    functools.update_wrapper(described, fun)
    return jit(described).trace(*args, **kwargs).out_info


def _stand_in(leaf: Any) -> Any:
    """A result that is the description of an array, as an array of its type."""
    return full(leaf, 0) if isinstance(leaf, ArrayType) and not is_key(leaf.dtype) else leaf
