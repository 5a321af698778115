"""`closure_convert`: a function on what it closes over as arguments, so that custom rules can speak of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from fuser.config import config
from fuser.ir.graph import Graph
from fuser.ir.source import current_source
from fuser.runtime.array import Array
from fuser.trace import tree
from fuser.trace.batch import BatchTracer, axes_key
from fuser.trace.body import close
from fuser.trace.core import Tracer, type_of
from fuser.trace.replay import replay
from fuser.trace.stage import stage
from fuser.trace.tangent import differentiable
from fuser.transforms.arguments import leaf_values, name_of

# By function, what was made of it for arguments of some types: the same object from call to call, which caches can go by.
_converted: weakref.WeakKeyDictionary[Any, dict[Any, Callable[..., Any]]] = weakref.WeakKeyDictionary()


def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Callable[..., Any], list[Any]]:
    """`fun` for arguments of these types with what it closes over and may be differentiated by as further arguments.

    The pair (a function of the arguments and then the hoisted values, those values). The function given back raises
    TypeError for arguments of another tree.
    """
    return converted(fun, example_args)


def converted(fun: Callable[..., Any], example_args: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """`closure_convert`, for a tuple of arguments."""
    leaves, in_tree = tree.flatten(tuple(example_args))
    avals = tuple(type_of(v) for v in leaf_values(leaves, f"the arguments of {name_of(fun)}"))
    try:
        kept = _converted.setdefault(fun, {})
        key = (in_tree, avals, config.enable_x64, config.traced, *axes_key())
        hash(key)
    except TypeError:  # of what has no weak references, or cannot be hashed
        return _convert(fun, in_tree, avals)[:2]
    if key in kept:
        return kept[key], []
    function, hoisted, lasting = _convert(fun, in_tree, avals)
    if lasting:
        kept[key] = function
    return function, hoisted


def _convert(fun: Callable[..., Any], in_tree: Any, avals: Sequence[Any]) -> tuple[Callable[..., Any], list[Any], bool]:
    """The function on its arguments and the hoisted values, these, and whether it closes over no value of a trace."""
    name = name_of(fun)
    graph, consts, out_tree = _staged(fun, in_tree, avals)
    moving = [may_vary(c) for c in consts]
    fixed = [c for c, move in zip(consts, moving) if not move]

    def on_arguments(*args: Any) -> Any:
        count = len(args) - sum(moving)
        given, structure = tree.flatten(args[:count])
        if structure != in_tree:
            raise TypeError(
                f"the function that closure_convert made of {name} takes arguments of the tree {in_tree}, got {structure} "
                f"({current_source().short})"
            )
        hoisted, kept = iter(args[count:]), iter(fixed)
        closed = [next(hoisted) if move else next(kept) for move in moving]
        return tree.unflatten(out_tree, replay(graph, *leaf_values([*closed, *given], f"the arguments of {name}")))

    on_arguments.__name__ = name
    lasting = all(type(c) is Array for c in consts)
    return on_arguments, [c for c, move in zip(consts, moving) if move], lasting


def _staged(fun: Callable[..., Any], in_tree: Any, avals: Sequence[Any]) -> tuple[Graph, tuple[Any, ...], Any]:
    found: list[Any] = []

    def flat(*tracers: Any) -> list[Any]:
        leaves, out_tree = tree.flatten(fun(*tree.unflatten(in_tree, tracers)))
        found.append(out_tree)
        return leaf_values(leaves, f"the result of {name_of(fun)}")

    graph, consts = close(stage(flat, avals, name_of(fun)))
    return graph, consts, found[0]


def may_vary(value: Any) -> bool:
    """Whether a derivative with respect to the value may be asked for."""
    if not isinstance(value, Tracer) or not differentiable(value.aval):
        return False
    return may_vary(value._value) if isinstance(value, BatchTracer) else True
