"""Pytrees for users, with JAX's names: `fuser.tree.map`, `leaves`, `flatten`, `unflatten`, `structure`, and registration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.trace.tree import (
    flatten,
    leaves,
    map,
    paths,
    register_pytree_node,
    register_pytree_node_class,
    structure,
    unflatten,
)

__all__ = [
    "all",
    "flatten",
    "leaves",
    "map",
    "paths",
    "reduce",
    "register_pytree_node",
    "register_pytree_node_class",
    "structure",
    "transpose",
    "unflatten",
]


def reduce(function: Callable[[Any, Any], Any], tree: Any, *initial: Any) -> Any:
    """`function` folded over the leaves, from the left."""
    import functools

    return functools.reduce(function, leaves(tree), *initial)


def all(tree: Any) -> bool:
    """Whether every leaf is true."""
    import builtins

    return builtins.all(leaves(tree))


def transpose(outer: Any, inner: Any, tree: Any) -> Any:
    """A tree of structure `outer` whose leaves have structure `inner`, turned inside out."""
    flat = leaves(tree)
    width = inner.num_leaves
    columns = [unflatten(outer, flat[n::width]) for n in range(width)]
    return unflatten(inner, columns)
