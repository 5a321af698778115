"""Pytrees for users, with JAX's names: `fuser.tree.map`, `leaves`, `flatten`, `unflatten`, `structure`, and registration."""

from __future__ import annotations

import dataclasses
from typing import Any

from fuser.trace.tree import PyTreeDef, flatten, leaves, map, paths, structure, unflatten
from fuser.tree_util import register_pytree_node, register_pytree_node_class
from fuser.tree_util import tree_all as all
from fuser.tree_util import tree_broadcast as broadcast
from fuser.tree_util import tree_flatten_with_path as flatten_with_path
from fuser.tree_util import tree_leaves_with_path as leaves_with_path
from fuser.tree_util import tree_map_with_path as map_with_path
from fuser.tree_util import tree_reduce as reduce
from fuser.tree_util import tree_reduce_associative as reduce_associative
from fuser.tree_util import tree_transpose as transpose

__all__ = [
    "PyTreeDef",
    "all",
    "broadcast",
    "flatten",
    "flatten_with_path",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "paths",
    "reduce",
    "reduce_associative",
    "register_pytree_node",
    "register_pytree_node_class",
    "static",
    "structure",
    "transpose",
    "unflatten",
]


def static(**kwargs: Any) -> Any:
    """`dataclasses.field` of a field that `tree_util.register_dataclass` takes as static."""
    metadata = {"static": True, **(kwargs.pop("metadata", None) or {})}
    return dataclasses.field(metadata=metadata, **kwargs)
