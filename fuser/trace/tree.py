"""Pytrees, by optree, with JAX's conventions: None is an empty tree, and dicts flatten in sorted key order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree

from fuser.ir.names import printable

NAMESPACE = "fuser"
PyTreeDef = optree.PyTreeSpec


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], PyTreeDef]:
    """The leaves of a tree, and its structure."""
    return optree.tree_flatten(tree, is_leaf=is_leaf, none_is_leaf=False, namespace=NAMESPACE)


def unflatten(structure: PyTreeDef, leaves: Any) -> Any:
    """The tree with this structure and these leaves."""
    return optree.tree_unflatten(structure, leaves)


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree, in order."""
    return optree.tree_leaves(tree, is_leaf=is_leaf, none_is_leaf=False, namespace=NAMESPACE)


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> PyTreeDef:
    """The structure of a tree."""
    return optree.tree_structure(tree, is_leaf=is_leaf, none_is_leaf=False, namespace=NAMESPACE)


def map(function: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The tree with `function` applied to each leaf (and the matching leaves of `rest`)."""
    return optree.tree_map(function, tree, *rest, is_leaf=is_leaf, none_is_leaf=False, namespace=NAMESPACE)


def broadcast_prefix(prefix: Any, tree: Any) -> list[Any]:
    """For each leaf of `tree`, the leaf of `prefix` (None is one) that stands for it; ValueError if it is no prefix."""
    given, spec = optree.tree_flatten(prefix, none_is_leaf=True, namespace=NAMESPACE)
    subtrees = spec.flatten_up_to(tree)
    return [leaf for leaf, subtree in zip(given, subtrees) for _ in leaves(subtree)]


def paths(tree: Any) -> list[str]:
    """A readable path of each leaf: `['w'][0]`."""
    accessors = optree.tree_accessors(tree, none_is_leaf=False, namespace=NAMESPACE)
    return [printable(accessor.codify("")) for accessor in accessors]


def register_pytree_node(
    cls: type, flatten_function: Callable[[Any], tuple[Any, Any]], unflatten_function: Callable[[Any, Any], Any]
) -> None:
    """Make `cls` a pytree: `flatten_function(x) -> (children, aux)`, `unflatten_function(aux, children) -> x`."""
    optree.register_pytree_node(cls, flatten_function, unflatten_function, namespace=NAMESPACE)  # type: ignore[arg-type]


def register_pytree_node_class(cls: type) -> type:
    """A decorator for classes with `tree_flatten()` and a classmethod `tree_unflatten(aux, children)`."""
    register_pytree_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls
