"""Where a tree that should be a prefix of another differs from it, by the keys that classes register for their children."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fuser.trace.mismatch import prefix_mismatches
from fuser.tree_util import IsLeaf, KeyPath, flatten_one_level_with_keys, is_tree_node, keystr, tree_structure

MakeError = Callable[[str], ValueError]


def prefix_errors(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> list[MakeError]:
    """A function for each difference, from the name of `prefix_tree` to the ValueError that tells of it; none for a prefix."""
    return list(_differences((), prefix_tree, full_tree, is_leaf))


def _differences(path: KeyPath, prefix: Any, full: Any, is_leaf: IsLeaf) -> Iterator[MakeError]:
    if (is_leaf is not None and is_leaf(prefix)) or not is_tree_node(type(prefix)):
        return  # a leaf stands for whatever is in its place
    if type(prefix) is type(full):
        (ours, data), (theirs, others_data) = (flatten_one_level_with_keys(tree) for tree in (prefix, full))
        pairs, others = list(ours), list(theirs)
        if [key for key, _ in pairs] == [key for key, _ in others] and data == others_data:
            for (key, child), (_, counterpart) in zip(pairs, others):
                yield from _differences((*path, key), child, counterpart, is_leaf)
            return
    structures = tree_structure(prefix, is_leaf), tree_structure(full)
    yield lambda name: ValueError(next(prefix_mismatches(*structures, name, keystr(path))))
