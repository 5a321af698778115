"""How two tree structures differ, in words: of trees that must be equal, and of a prefix and the tree that it must fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fuser.trace.tree import PyTreeDef, entries

Difference = tuple[str, str, str, str]


def differences(first: PyTreeDef, second: PyTreeDef, path: str = "") -> Iterator[Difference]:
    """(path, what stands there in the first, what in the second, why they differ) for each place where they do."""
    if first.is_leaf() and second.is_leaf():
        return
    kind, other = first.type, second.type
    if kind is not other:
        yield path, _kind(first), _kind(second), "their Python types differ"
        return
    children, others = first.children(), second.children()
    if len(children) != len(others):
        if kind in (list, tuple):
            sizes = (f"{kind.__name__} of length {len(each)}" for each in (children, others))
            yield path, *sizes, "the lengths do not match"  # type: ignore[misc]
            return
        sizes = (f"{kind} with {len(each)} child{'ren' if len(each) > 1 else ''}" for each in (children, others))
        yield path, *sizes, f"the numbers of children do not match{_keys(first, second)}"  # type: ignore[misc]
        return
    data = [_data(structure) for structure in (first, second)]
    if data[0] != data[1]:
        meta = (f"{kind} with pytree metadata {each}" for each in data)
        yield path, *meta, "the pytree node metadata does not match"  # type: ignore[misc]
        return
    for key, child, counterpart in zip(entries(first), children, others):
        yield from differences(child, counterpart, path + key)


def prefix_mismatches(prefix: PyTreeDef, full: PyTreeDef, name: str, path: str = "") -> Iterator[str]:
    """What keeps a structure from being a prefix of another, whose leaves may be trees there; `name` is the prefix's."""
    if prefix.is_leaf():
        return
    kind = prefix.type
    if kind is not full.type:
        yield (
            f"pytree structure error: different types at key path\n    {name}{path}\nAt that key path, the prefix pytree {name} has a "
            f"subtree of type\n    {_kind(prefix)}\nbut at the same key path the full pytree has a subtree of different type\n"
            f"    {_kind(full)}."
        )
        return
    children, others = prefix.children(), full.children()
    if len(children) != len(others):
        what = f"lengths of {kind.__name__}" if kind in (list, tuple) else "numbers of pytree children"
        yield (
            f"pytree structure error: different {what} at key path\n    {name}{path}\nAt that key path, the prefix pytree {name} has a "
            f"subtree of type {kind.__name__} of length {len(children)}, but the full pytree has a subtree of the same type but of "
            f"length {len(others)}{_keys(prefix, full)}."
        )
        return
    if _data(prefix) != _data(full):
        yield (
            f"pytree structure error: different pytree metadata at key path\n    {name}{path}\nAt that key path, the prefix pytree "
            f"{name} has a subtree of type\n    {kind}\nwith metadata\n    {_data(prefix)}\nbut at the same key path the full pytree has a "
            f"subtree of the same type but with metadata\n    {_data(full)}"
        )
        return
    for key, child, counterpart in zip(entries(prefix), children, others):
        yield from prefix_mismatches(child, counterpart, name, path + key)


def details(mismatches: Sequence[str]) -> str:
    """One mismatch, or several numbered, as the end of a message."""
    if len(mismatches) < 2:
        return f"Mismatch details: {''.join(mismatches)}"
    listed = "\n".join(f"{n}. {each}" for n, each in enumerate(mismatches, 1))
    return f"Mismatch details ({len(mismatches)} found):\n{listed}"


def _kind(structure: PyTreeDef) -> str:
    return "pytree leaf" if structure.is_leaf() else str(structure.type)


def _data(structure: PyTreeDef) -> Any:
    """What stands beside the children; the keys of a dict as a tuple."""
    found = structure.node_data()
    data = None if found is None else found[1]
    return tuple(data) if isinstance(data, list) else data


def _keys(first: PyTreeDef, second: PyTreeDef) -> str:
    """The keys that one of two dicts alone has."""
    if first.type is not dict:
        return ""
    differing = set(_data(first)) ^ set(_data(second))
    return f", with the symmetric difference of key sets: {{{' '.join(sorted(map(repr, differing)))}}}"
