"""Pytrees with JAX's names: key paths, registration of classes, prefixes, `Partial`.

A tree is made of nodes (list, tuple, dict, OrderedDict, defaultdict, named tuples, None and registered classes) and leaves
(everything else). optree flattens; the keys by which a registered class names its children are kept here.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import optree

from fuser.trace import tree as T
from fuser.trace.tree import PyTreeDef

__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyEntry",
    "KeyPath",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "all_leaves",
    "default_registry",
    "flatten_one_level",
    "flatten_one_level_with_keys",
    "is_tree_node",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_reduce_associative",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
]

Leaf = Any
IsLeaf = Callable[..., bool] | None
KeyEntry = TypeVar("KeyEntry", bound=Hashable)
KeyPath = tuple[KeyEntry, ...]
Class = TypeVar("Class", bound=type)
_MISSING = object()


# Keys of children.


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """The position `idx` of a child of a list or tuple."""

    idx: int

    def __hash__(self) -> int:
        return hash((type(self), self.idx))

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclasses.dataclass(frozen=True)
class DictKey:
    """The key of a child of a dict."""

    key: Hashable

    def __hash__(self) -> int:
        return hash((type(self), self.key))

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """The attribute `name` that holds a child."""

    name: str

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __str__(self) -> str:
        return f".{self.name}"


@dataclasses.dataclass(frozen=True)
class FlattenedIndexKey:
    """The number of a child of a class that was registered without keys."""

    key: int

    def __hash__(self) -> int:
        return hash((type(self), self.key))

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


def keystr(keys: Sequence[Any], *, simple: bool = False, separator: str = "") -> str:
    """A key path as text, `['w'][0].bias`; with `simple` the bare keys, `w0bias`, joined by `separator`."""
    return separator.join(_bare(key) if simple else str(key) for key in keys)


def _bare(key: Any) -> str:
    for field in ("idx", "key", "name"):
        if isinstance(key, (SequenceKey, DictKey, GetAttrKey, FlattenedIndexKey)) and hasattr(key, field):
            return str(getattr(key, field))
    return str(key)


# Registration.

# class -> function of a node that gives ([(key, child), ...], aux)
_with_keys: dict[type, Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]]] = {}
# The classes whose instances are nodes; instances of named tuples are nodes too.
registered_types: set[type] = {
    list,
    tuple,
    dict,
    type(None),
    collections.OrderedDict,
    collections.defaultdict,
    collections.deque,
}


def register_pytree_node(
    nodetype: type,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_with_keys_func: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Make `nodetype` a node: `flatten_func(x) -> (children, aux)` with hashable `aux`, `unflatten_func(aux, children) -> x`.

    `flatten_with_keys_func(x) -> ([(key, child), ...], aux)` names the children in key paths; else they are numbered.
    ValueError for a class that is registered already.
    """
    T.register_pytree_node(nodetype, lambda x: _tuples(flatten_func(x)), unflatten_func)
    registered_types.add(nodetype)
    if flatten_with_keys_func is not None:
        _with_keys[nodetype] = flatten_with_keys_func


def _tuples(flat: Any) -> tuple[tuple[Any, ...], Any]:
    if not isinstance(flat, tuple) or len(flat) != 2:
        raise ValueError(
            f"The to_iterable function for a custom PyTree node should return a (children, aux_data) tuple, got {flat!r}"
        )
    children, aux = flat
    return tuple(children), aux


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """As `register_pytree_node`, from a function that gives the children with their keys."""

    def children_alone(x: Any) -> tuple[Any, Any]:
        pairs, aux = flatten_with_keys(x)
        return tuple(child for _, child in pairs), aux

    register_pytree_node(nodetype, flatten_func or children_alone, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: Class) -> Class:
    """A decorator for classes with `tree_flatten()` and a classmethod `tree_unflatten(aux, children)`."""
    register_pytree_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def register_pytree_with_keys_class(cls: Class) -> Class:
    """A decorator for classes with `tree_flatten_with_keys()` and a classmethod `tree_unflatten(aux, children)`."""
    flatten = (lambda x: x.tree_flatten()) if hasattr(cls, "tree_flatten") else None
    register_pytree_with_keys(cls, lambda x: x.tree_flatten_with_keys(), cls.tree_unflatten, flatten)  # type: ignore[attr-defined]
    return cls


def register_static(cls: Class) -> Class:
    """A decorator: instances, which must be hashable, are nodes without children, so that jit takes them as static."""
    register_pytree_node(cls, lambda x: ((), x), lambda aux, _: aux, lambda x: ((), x))
    return cls


def register_dataclass(
    nodetype: Class,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Class:
    """Make a dataclass a node: its `data_fields` are children, its `meta_fields` hashable and static.

    Of a dataclass both may be left out: fields with `metadata={"static": True}` (`fuser.tree.static`) are static, the others
    children. Instances are rebuilt through the class, by keywords; fields of `drop_fields` are left to their defaults.
    ValueError where the two lists are not all fields that the constructor takes, or name one that there is not.
    """
    data, meta = _dataclass_fields(nodetype, data_fields, meta_fields, drop_fields)

    def with_keys(x: Any) -> tuple[Any, Any]:
        return tuple((GetAttrKey(f), getattr(x, f)) for f in data), tuple(getattr(x, f) for f in meta)

    def flatten(x: Any) -> tuple[Any, Any]:
        return tuple(getattr(x, f) for f in data), tuple(getattr(x, f) for f in meta)

    def unflatten(aux: Any, children: Any) -> Any:
        return nodetype(**dict(zip(meta, aux)), **dict(zip(data, children)))

    register_pytree_node(nodetype, flatten, unflatten, with_keys)
    return nodetype


def _dataclass_fields(
    nodetype: type, data_fields: Sequence[str] | None, meta_fields: Sequence[str] | None, drop_fields: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if (data_fields is None) != (meta_fields is None):
        raise TypeError(
            "register_dataclass: data_fields and meta_fields must both be specified when either is specified. "
            f"Got {data_fields=} {meta_fields=}."
        )
    known = dataclasses.fields(nodetype) if dataclasses.is_dataclass(nodetype) else None
    if data_fields is None or meta_fields is None:
        if known is None:
            raise TypeError(
                f"register_dataclass: data_fields and meta_fields are required when nodetype is not a dataclass. Got {nodetype=}."
            )
        given = [f for f in known if f.name not in drop_fields]
        static = {f.name for f in given if f.metadata.get("static", False)}
        data_fields, meta_fields = (
            [f.name for f in given if f.name not in static],
            [f.name for f in given if f.name in static],
        )
    data, meta = tuple(data_fields), tuple(meta_fields)
    both = sorted(set(data) & set(meta))
    if both:
        raise ValueError(f"data_fields and meta_fields must not overlap. Overlapping fields: {set(both)}.")
    if known is not None:
        wanted = {f.name for f in known if f.init} - set(drop_fields)
        missing, unexpected = wanted - {*data, *meta}, {*data, *meta} - wanted
        if missing or unexpected:
            raise ValueError(
                f"data_fields and meta_fields must include all dataclass fields with init=True and only them. "
                f"Missing fields: {missing}. Unexpected fields: {unexpected}."
            )
    return data, meta


class _Registry:
    """The registry of node classes, with the methods that JAX's has."""

    def flatten(self, tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Leaf], PyTreeDef]:
        """As `tree_flatten`."""
        return T.flatten(tree, is_leaf)

    def flatten_one_level(self, tree: Any) -> tuple[list[Any], Hashable] | None:
        """The children of a node and what stands beside them; None for a leaf."""
        found = _level(tree)
        return None if found is None else ([child for _, child in found[0]], found[1])

    def register_node(self, nodetype: type, flatten: Any, unflatten: Any, with_keys: Any = None) -> None:
        """As `register_pytree_node`."""
        register_pytree_node(nodetype, flatten, unflatten, with_keys)


default_registry = _Registry()


# One level.


def _named(kind: type) -> bool:
    return issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)


def _level(node: Any) -> tuple[list[tuple[Any, Any]], Hashable] | None:
    """The children of a node under their keys, and what stands beside them; None for a leaf."""
    kind = type(node)
    if kind in _with_keys:
        pairs, aux = _with_keys[kind](node)
        return list(pairs), aux
    if kind is list or kind is tuple:
        return [(SequenceKey(n), child) for n, child in enumerate(node)], None
    if kind is dict or kind is collections.defaultdict:
        names = sorted(node)
        aux = tuple(names) if kind is dict else (node.default_factory, tuple(names))
        return [(DictKey(name), node[name]) for name in names], aux
    if kind is collections.OrderedDict:
        return [(DictKey(name), child) for name, child in node.items()], tuple(node)
    if node is None:
        return [], None
    if _named(kind) and kind not in registered_types:
        return [(GetAttrKey(name), getattr(node, name)) for name in kind._fields], kind  # type: ignore[attr-defined, return-value]
    if not is_tree_node(kind):
        return None
    flat = optree.tree_flatten_one_level(node, none_is_leaf=False, namespace=T.NAMESPACE)
    return [(FlattenedIndexKey(n), child) for n, child in enumerate(flat[0])], flat[1]  # type: ignore[return-value]


def is_tree_node(typ: type) -> bool:
    """Whether instances of the class are nodes: built-in containers, named tuples, registered classes."""
    if typ in _with_keys or typ in (list, tuple, dict, collections.defaultdict, collections.OrderedDict, type(None)):
        return True
    return _named(typ) or optree.register_pytree_node.get(typ, namespace=T.NAMESPACE) is not None  # type: ignore[attr-defined]


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Hashable]:
    """The children of a node, and the static data beside them. ValueError for a leaf."""
    pairs, aux = flatten_one_level_with_keys(tree)
    return [child for _, child in pairs], aux


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], Hashable]:
    """The children of a node under their keys, and the static data beside them. ValueError for a leaf."""
    found = _level(tree)
    if found is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}; it is a leaf, register it to make it a node")
    return found


# Whole trees.

tree_flatten, tree_unflatten, tree_leaves, tree_structure = T.flatten, T.unflatten, T.leaves, T.structure
tree_map = T.map


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Leaf]], PyTreeDef]:
    """[(key path, leaf), ...] in order, and the structure.

    `is_leaf(x)`, or `is_leaf(path, x)` with `is_leaf_takes_path`, says which nodes are taken as leaves.
    """
    found: list[tuple[Any, Any]] = []
    stops: list[bool] = []

    def visit(path: tuple[Any, ...], node: Any) -> None:
        stop = is_leaf is not None and bool(is_leaf(path, node) if is_leaf_takes_path else is_leaf(node))
        stops.append(stop)
        level = None if stop else _level(node)
        if level is None:
            found.append((path, node))
        else:
            for key, child in level[0]:
                visit((*path, key), child)

    visit((), tree)
    again = iter(stops)  # optree asks of the nodes in the same order
    return found, T.structure(tree, None if is_leaf is None else lambda node: next(again))


def tree_leaves_with_path(
    tree: Any, is_leaf: IsLeaf = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Leaf]]:
    """[(key path, leaf), ...] in order."""
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def tree_map_with_path(
    f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None, is_leaf_takes_path: bool = False
) -> Any:
    """The tree with `f(path, leaf, *matching parts of rest)` in place of each leaf."""
    pairs, structure = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    others = [structure.flatten_up_to(other) for other in rest]
    return T.unflatten(structure, [f(path, leaf, *more) for (path, leaf), *more in zip(pairs, *others)])


def tree_all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf is true."""
    return all(T.leaves(tree, is_leaf))


def tree_reduce(
    function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _MISSING, is_leaf: IsLeaf = None
) -> Any:
    """`function` reduced over the leaves from the left, from `initializer` on if it is given. TypeError without any value."""
    start = () if initializer is _MISSING else (initializer,)
    return functools.reduce(function, T.leaves(tree, is_leaf), *start)


def tree_reduce_associative(
    operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = _MISSING, is_leaf: IsLeaf = None
) -> Any:
    """The leaves combined half by half: a tree of least depth, for an associative operation.

    TypeError for a tree without leaves, unless `identity` is given.
    """
    values = T.leaves(tree, is_leaf)
    if not values:
        if identity is _MISSING:
            raise TypeError("Must specify identity for parallel reduction of empty sequence.")
        return identity

    def combined(start: int, stop: int) -> Any:
        if stop - start == 1:
            return values[start]
        middle = (start + stop) // 2
        return operation(combined(start, middle), combined(middle, stop))

    return combined(0, len(values))


def tree_transpose(outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any) -> Any:
    """A tree of structure `outer` whose leaves have structure `inner`, turned inside out.

    With `inner_treedef=None` the inner structure is that of the first subtree. TypeError for a tree of another number of leaves.
    """
    flat, treedef = T.flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = T.structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    inner, outer = inner_treedef.num_leaves, outer_treedef.num_leaves
    if not inner or not outer:
        raise ValueError("Cannot transpose a pytree with no leaves.")
    if treedef.num_leaves != inner * outer:
        raise TypeError(f"Mismatch\nouter {outer_treedef}\ninner {inner_treedef}\ngiven tree {treedef}")
    return T.unflatten(inner_treedef, [T.unflatten(outer_treedef, flat[n::inner]) for n in range(inner)])


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """The tree of `full_tree`'s structure in which each leaf of `prefix_tree` stands at all places below it.

    ValueError where `prefix_tree` is no prefix of `full_tree`.
    """
    given, spec = T.flatten(prefix_tree, is_leaf)
    subtrees = spec.flatten_up_to(full_tree)
    flat = [leaf for leaf, subtree in zip(given, subtrees) for _ in T.leaves(subtree, is_leaf)]
    return T.unflatten(T.structure(full_tree, is_leaf), flat)


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether each element is a leaf."""
    return all((is_leaf is not None and is_leaf(element)) or not is_tree_node(type(element)) for element in iterable)


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure has one node alone: that of a leaf, or of a container without children."""
    return treedef.num_nodes == 1


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of a node's children; of a leaf there are none."""
    return treedef.children()


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees of these structures."""
    return T.tuple_of(treedefs)


class Partial(functools.partial):
    """functools.partial as a node: its arguments are children, its function is static and compared by equality."""

    def __new__(klass, func: Any, *args: Any, **kw: Any) -> Partial:
        """A partial call of a partial call keeps the inner one whole, so that its function stays comparable."""
        if isinstance(func, functools.partial):
            inner = func
            own = functools.wraps(inner)(_Whole(inner)) if not isinstance(inner, Partial) else None
            if own is not None:
                return super().__new__(klass, own, *args, **kw)
        return super().__new__(klass, func, *args, **kw)


class _Whole:
    """A functools.partial called as one function; equal to another of the same partial."""

    def __init__(self, inner: functools.partial) -> None:
        self.inner = inner

    def __call__(self, *args: Any, **kw: Any) -> Any:
        return self.inner(*args, **kw)

    def __hash__(self) -> int:
        return hash(self.inner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Whole) and self.inner == other.inner


register_pytree_node(
    Partial,
    lambda x: ((x.args, x.keywords), x.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
)
