"""Where a tree that should be a prefix of another differs from it, by the path to each such place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fuser.tree_util import IsLeaf, KeyPath, flatten_one_level_with_keys, is_tree_node, keystr

MakeError = Callable[[str], ValueError]


def prefix_errors(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> list[MakeError]:
    """A function for each difference, from the name of `prefix_tree` to the ValueError that tells of it; none for a prefix."""
    return list(_differences((), prefix_tree, full_tree, is_leaf))


def _differences(path: KeyPath, prefix: Any, full: Any, is_leaf: IsLeaf) -> Iterator[MakeError]:
    if (is_leaf is not None and is_leaf(prefix)) or not is_tree_node(type(prefix)):
        return  # a leaf stands for whatever is in its place
    if type(prefix) is not type(full):
        yield _error(path, f"it is a {_name(prefix)}, and the full tree has a {_name(full)} there")
        return
    (ours, our_aux), (theirs, their_aux) = (_level(tree) for tree in (prefix, full))
    if [key for key, _ in ours] != [key for key, _ in theirs]:
        words = [f"{len(pairs)} children ({', '.join(str(key) for key, _ in pairs)})" for pairs in (ours, theirs)]
        yield _error(path, f"it is a {_name(prefix)} with {words[0]}, and the full tree's has {words[1]}")
    elif our_aux != their_aux:
        yield _error(
            path, f"it is a {_name(prefix)} with the static data {our_aux!r}, and the full tree's has {their_aux!r}"
        )
    else:
        for (key, ours_), (_, theirs_) in zip(ours, theirs):
            yield from _differences((*path, key), ours_, theirs_, is_leaf)


def _level(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    pairs, aux = flatten_one_level_with_keys(tree)
    return list(pairs), aux


def _name(tree: Any) -> str:
    return type(tree).__name__


def _error(path: KeyPath, text: str) -> MakeError:
    return lambda name: ValueError(
        f"{name}{keystr(path)} is no prefix of the tree that it goes with: {text}; give both the same structure, or a leaf "
        f"as {name}{keystr(path)}"
    )
