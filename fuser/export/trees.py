"""Structures of trees as JSON: lists, tuples, dicts with texts as keys, None, and classes that are registered for it."""

from __future__ import annotations

import base64
import collections
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from fuser.export.decode import Damaged, expect, of, row
from fuser.ir.names import printable
from fuser.trace import tree
from fuser.tree_util import registered_types

_Kind = TypeVar("_Kind", bound=type)


class Serialized(NamedTuple):
    """How nodes of a class are saved: its name there, and functions of what stands beside the children."""

    kind: Any
    name: str
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]
    build: Callable[[Any, Sequence[Any]], Any] | None


_by_kind: dict[Any, Serialized] = {}
_by_name: dict[str, Serialized] = {}


def _is_namedtuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def register_pytree_node_serialization(
    nodetype: _Kind,
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> _Kind:
    """Let trees with nodes of `nodetype`, a registered class, be saved under `serialized_name`; the class itself.

    The two functions make bytes of what its flattening gives beside the children, and read them. ValueError for a class or
    a name that is registered already, and for a class that is no node and comes without `from_children`.
    """
    if nodetype in _by_kind:
        raise ValueError(
            f"Duplicate serialization registration for type `{nodetype}`. "
            f"Previous registration was with serialized_name `{_by_kind[nodetype].name}`."
        )
    if serialized_name in _by_name:
        raise ValueError(
            f"Duplicate serialization registration for serialized_name `{serialized_name}`. "
            f"Previous registration was for type `{_by_name[serialized_name].kind}`."
        )
    if from_children is None and nodetype not in registered_types:
        raise ValueError(
            f"If `from_children` is not present, you must call first `jax.tree_util.register_pytree_node` for `{nodetype}`"
        )
    entry = Serialized(nodetype, serialized_name, serialize_auxdata, deserialize_auxdata, from_children)
    _by_kind[nodetype] = _by_name[serialized_name] = entry
    return nodetype


def register_namedtuple_serialization(nodetype: _Kind, *, serialized_name: str) -> _Kind:
    """Let trees with named tuples of this class be saved; the class itself. ValueError for other classes."""
    if not _is_namedtuple(nodetype):
        raise ValueError(
            "Use `jax.export.register_pytree_node_serialization` for types other than `collections.namedtuple`."
        )
    fields: tuple[str, ...] = nodetype._fields  # type: ignore[attr-defined]
    return register_pytree_node_serialization(
        nodetype,
        serialized_name=serialized_name,
        serialize_auxdata=lambda _: json.dumps(fields).encode(),
        deserialize_auxdata=json.loads,
        from_children=lambda names, children: nodetype(**dict(zip(names, children, strict=True))),
    )


def _written_keys(keys: Any) -> bytes:
    if not all(isinstance(key, str) for key in keys):
        raise NotImplementedError(
            f"Serialization of collections.OrderedDict is supported only when the keys are strings. Found keys: {keys}."
        )
    return json.dumps(list(keys)).encode()


register_pytree_node_serialization(
    collections.OrderedDict,
    serialized_name="collections.OrderedDict",
    serialize_auxdata=_written_keys,
    deserialize_auxdata=json.loads,
    from_children=lambda keys, children: collections.OrderedDict(zip(keys, children, strict=True)),
)


def encode_tree(structure: tree.PyTreeDef) -> Any:
    """The structure: "*" for a leaf, else [kind, children, what stands beside them].

    ValueError for a class that is not registered, TypeError for a dict whose keys are no texts.
    """
    return structure._walked(_written, lambda leaf: "*", [None] * structure.num_leaves)


def _written(kind: Any, data: Any, children: Any) -> Any:
    children = list(children)
    if kind is dict:
        if not all(isinstance(key, str) for key in data):
            raise TypeError(f"Serialization is supported only for dictionaries with string keys. Found key(s) {data}.")
        return ["dict", children, list(data)]
    for plain in (tuple, list, type(None)):
        if kind is plain:
            return [_PLAIN[plain], children, None]
    entry = _by_kind.get(kind)
    if entry is None:
        raise ValueError(
            f"Cannot serialize PyTreeDef containing an unregistered type `{printable(str(kind))}`. "
            "Use `export.register_pytree_node_serialization` or `export.register_namedtuple_serialization`."
        )
    return ["node", children, [entry.name, base64.b64encode(entry.write(data)).decode()]]


_PLAIN: dict[Any, str] = {tuple: "tuple", list: "list", type(None): "None"}


def decode_tree(written: Any) -> tree.PyTreeDef:
    """The structure that `encode_tree` wrote. Damaged for anything else, or a class that is not registered here."""
    return tree.structure(_built(written))


def _built(written: Any) -> Any:
    """A tree of the structure, whose leaves are zeros."""
    if written == "*":
        return 0
    kind, children, data = row(written, 3, "a tree's node")
    parts = [_built(child) for child in of(list, children, "a tree's children")]
    if kind == "dict":
        keys = row(data, len(parts), "a dict's keys")
        expect(all(type(key) is str for key in keys) and len({*keys}) == len(keys), "a dict's keys are no texts")
        return dict(zip(keys, parts))
    if kind == "node":
        return _node(parts, *row(data, 2, "a node's class"))
    expect(kind in ("tuple", "list", "None") and data is None, f"{str(kind)[:40]!r} is no kind of node")
    expect(kind != "None" or not parts, "None has children")
    return {"tuple": tuple(parts), "list": parts, "None": None}[kind]


def _node(parts: list[Any], name: Any, data: Any) -> Any:
    entry = _by_name.get(of(str, name, "a class"))
    if entry is None:
        raise Damaged(f"a tree has a node of the class {name[:80]!r}, which is not registered here for saved functions")
    aux = entry.read(base64.b64decode(of(str, data, "a node's data"), validate=True))
    if entry.build is not None:
        return entry.build(aux, parts)
    return tree.made(entry.kind, aux, parts)
