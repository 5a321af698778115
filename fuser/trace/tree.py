"""Pytrees, by optree, with JAX's conventions: None is an empty tree, and dicts flatten and come back in sorted key order."""

from __future__ import annotations

import collections
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import optree

from fuser.ir.names import printable

NAMESPACE = "fuser"
IsLeaf = Callable[[Any], bool] | None


class PyTreeDef:
    """The structure of a tree: its nodes, and where its leaves are. Equal structures are equal, and hash alike."""

    __slots__ = ("_spec",)

    def __init__(self, spec: optree.PyTreeSpec) -> None:
        self._spec = spec

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return self._spec.num_leaves

    @property
    def num_nodes(self) -> int:
        """The number of nodes and leaves."""
        return self._spec.num_nodes

    @property
    def type(self) -> Any:
        """The class of the outermost node, None for a leaf."""
        return self._spec.type

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves."""
        return self._spec.unflatten(leaves)

    def flatten_up_to(self, xs: Any) -> list[Any]:
        """The subtrees of `xs` where this structure has leaves. ValueError where the structure is no prefix of it."""
        try:
            return self._spec.flatten_up_to(xs)
        except ValueError as error:
            raise ValueError(f"pytree structure error: {error}") from None

    def is_leaf(self) -> bool:
        """Whether the structure is one leaf."""
        return self._spec.is_leaf()

    def children(self) -> list[PyTreeDef]:
        """The structures of the outermost node's children."""
        return [PyTreeDef(child) for child in self._spec.children()]

    def compose(self, inner: PyTreeDef) -> PyTreeDef:
        """The structure with `inner` in place of each leaf."""
        return PyTreeDef(self._spec.compose(inner._spec))

    def node_data(self) -> tuple[Any, Any] | None:
        """The class of the outermost node and what stands beside its children (a dict's keys, static data); None for a leaf."""
        found: list[tuple[Any, Any]] = []
        self._walked(
            lambda kind, data, children: found.append((kind, data)), lambda leaf: None, [None] * self.num_leaves
        )
        return found[-1] if found else None

    def walk(self, f_node: Callable[..., Any], f_leaf: Callable[..., Any] | None, leaves: Iterable[Any]) -> Any:
        """What `f_node(results of the children, static data)` gives for the outermost node, from `f_leaf(leaf)` on."""
        visit = (lambda leaf: leaf) if f_leaf is None else f_leaf
        return self._walked(lambda kind, data, children: f_node(tuple(children), data), visit, leaves)

    def _walked(self, f_node: Callable[..., Any], f_leaf: Callable[..., Any], leaves: Iterable[Any]) -> Any:
        def node(kind: Any, data: Any, children: Any) -> Any:
            return f_node(kind, _static(kind, data), children)

        return self._spec.walk(list(leaves), node, f_leaf)  # type: ignore[arg-type]

    def serialize_using_proto(self) -> bytes:
        """The structure as bytes (JSON), for `deserialize_using_proto`. ValueError for classes of the user's own."""
        import json  # here and below, as few programs need it

        return json.dumps(self._walked(_written, lambda leaf: "*", [None] * self.num_leaves)).encode()

    @staticmethod
    def deserialize_using_proto(registry: Any, data: bytes) -> PyTreeDef:
        """The structure that `serialize_using_proto` wrote."""
        import json

        return structure(_read(json.loads(data)))

    @staticmethod
    def from_iterable_tree(registry: Any, xs: Any) -> PyTreeDef:
        """The structure of a tree whose leaves are structures."""
        outer = structure(xs, lambda leaf: isinstance(leaf, PyTreeDef))
        return structure(
            outer.unflatten([d.unflatten([None] * d.num_leaves) for d in leaves(xs)]), lambda leaf: leaf is None
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PyTreeDef) and self._spec == other._spec

    def __hash__(self) -> int:
        return hash(self._spec)

    def __reduce__(self) -> Any:
        return PyTreeDef, (self._spec,)

    def __repr__(self) -> str:
        return f"PyTreeDef({self._walked(_shown, lambda leaf: '*', [None] * self.num_leaves)})"


def _static(kind: Any, data: Any) -> Any:
    """What stands beside a node's children, as JAX has it."""
    if kind is collections.OrderedDict:
        return tuple(data)
    if kind is collections.defaultdict:
        return data[0], tuple(data[1])
    return None if _is_named(kind) else data


def _is_named(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _shown(kind: Any, data: Any, children: Sequence[str]) -> str:
    """A node as text, its children being text."""
    inside = ", ".join(children)
    if kind is type(None):
        return "None"
    if kind is tuple:
        return f"({inside},)" if len(children) == 1 else f"({inside})"
    if kind is list:
        return f"[{inside}]"
    if kind is dict:
        return "{" + ", ".join(f"{key!r}: {child}" for key, child in zip(data, children)) + "}"
    if _is_named(kind) and data is None:
        return f"CustomNode(namedtuple[{kind.__name__}], [{inside}])"
    return f"CustomNode({kind.__name__}[{data}], [{inside}])"


_CONTAINERS: dict[Any, str] = {list: "list", tuple: "tuple", dict: "dict", type(None): "None"}


def _written(kind: Any, data: Any, children: Any) -> Any:
    """A node for JSON: the name of its class, its children, and a dict's keys."""
    if kind not in _CONTAINERS or not all(isinstance(key, str) for key in data or ()):
        raise ValueError(f"only lists, tuples, dicts of texts and None are serialized, got {printable(kind.__name__)}")
    return [_CONTAINERS[kind], list(children), data]


def _read(written: Any) -> Any:
    """A tree of the structure that was written."""
    if written == "*":
        return 0
    name, children, keys = written
    parts = [_read(child) for child in children]
    return {"list": parts, "tuple": tuple(parts), "None": None, "dict": dict(zip(keys or (), parts))}[name]


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], PyTreeDef]:
    """The leaves of a tree, and its structure."""
    found, spec = optree.tree_flatten(tree, is_leaf=is_leaf, none_is_leaf=False, namespace=NAMESPACE)
    return found, PyTreeDef(_in_key_order(spec))


def flatten_as_filled(tree: Any) -> tuple[list[Any], PyTreeDef]:
    """As `flatten`, of which dicts come back in the order in which they were filled, as Python's do; keys need no order."""
    found, spec = optree.tree_flatten(tree, none_is_leaf=False, namespace=NAMESPACE)
    return found, PyTreeDef(spec)


def map_as_filled(function: Callable[..., Any], tree: Any) -> Any:
    """As `map`, of which dicts keep the order in which they were filled."""
    found, structure = flatten_as_filled(tree)
    return structure.unflatten([function(leaf) for leaf in found])


def unflatten(treedef: PyTreeDef, leaves: Any) -> Any:
    """The tree with this structure and these leaves."""
    return treedef._spec.unflatten(leaves)


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree, in order."""
    return optree.tree_leaves(tree, is_leaf=is_leaf, none_is_leaf=False, namespace=NAMESPACE)


def structure(tree: Any, is_leaf: IsLeaf = None) -> PyTreeDef:
    """The structure of a tree."""
    return PyTreeDef(
        _in_key_order(optree.tree_structure(tree, is_leaf=is_leaf, none_is_leaf=False, namespace=NAMESPACE))
    )


_MOST_STRUCTURES = 4096
_canonical: dict[optree.PyTreeSpec, optree.PyTreeSpec] = {}


def _in_key_order(spec: optree.PyTreeSpec) -> optree.PyTreeSpec:
    """The structure whose dicts come back in sorted key order; optree's come back in the order in which they were filled.

    Equal structures would make trees of different orders otherwise: a program that is kept for one is called with the other.
    ValueError for keys that cannot be sorted. Structures without the user's classes are remembered.
    """
    try:
        known = _canonical.get(spec)
    except TypeError:  # static data of the user's that is not hashable
        known = None
    if known is not None:
        return known
    state: Any = spec.__getstate__()
    nodes, rest = state[0], state[1:]
    ordered = tuple(node if node[-1] is None else (*node[:-1], _sorted_keys(node[2])) for node in nodes)
    if any(list(new[-1]) != list(old[-1]) for new, old in zip(ordered, nodes) if old[-1] is not None):
        canonical = optree.PyTreeSpec.__new__(optree.PyTreeSpec)
        canonical.__setstate__((ordered, *rest))  # type: ignore[attr-defined]
    else:
        canonical = spec
    if not any(node[4] for node in nodes):
        if len(_canonical) >= _MOST_STRUCTURES:
            _canonical.clear()
        _canonical[canonical] = canonical
    return canonical


def _sorted_keys(data: Any) -> dict[Any, None]:
    """The keys of a dict or defaultdict node, in order."""
    keys = data[1] if isinstance(data, tuple) else data
    try:
        return dict.fromkeys(sorted(keys))
    except TypeError as error:
        raise ValueError(
            f"Comparator raised exception while sorting pytree dictionary keys: {error}; use keys of one type"
        ) from None


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """The tree with `f` applied to each leaf (and the matching parts of `rest`)."""
    first, whole = flatten(tree, is_leaf)
    if not rest:
        return whole.unflatten([f(leaf) for leaf in first])
    others = [whole.flatten_up_to(other) for other in rest]
    return whole.unflatten([f(*parts) for parts in zip(first, *others)])


def tuple_of(structures: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees of these structures."""
    specs = [structure._spec for structure in structures]
    return PyTreeDef(optree.treespec_tuple(specs, none_is_leaf=False, namespace=NAMESPACE))


def broadcast_prefix(prefix: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """For each leaf of `tree`, the leaf of `prefix` (None is one) that stands for it; ValueError if it is no prefix."""
    given, spec = optree.tree_flatten(prefix, is_leaf, none_is_leaf=True, namespace=NAMESPACE)
    subtrees = spec.flatten_up_to(tree)
    return [leaf for leaf, subtree in zip(given, subtrees) for _ in leaves(subtree)]


def paths(tree: Any) -> list[str]:
    """A readable path of each leaf: `['w'][0]`."""
    accessors = optree.tree_accessors(tree, none_is_leaf=False, namespace=NAMESPACE)
    return [printable(accessor.codify("")) for accessor in accessors]


def entries(structure: PyTreeDef) -> list[str]:
    """How a path names each child of the outermost node: `['w']`, `[0]`, `.bias`."""
    named = _is_named(structure.type)
    return [f".{key}" if named else f"[{key!r}]" for key in structure._spec.entries()]


def register_pytree_node(
    cls: type, flatten_function: Callable[[Any], tuple[Any, Any]], unflatten_function: Callable[[Any, Any], Any]
) -> None:
    """Make `cls` a pytree: `flatten_function(x) -> (children, aux)`, `unflatten_function(aux, children) -> x`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is already registered in the global namespace")  # named tuples
        optree.register_pytree_node(cls, flatten_function, unflatten_function, namespace=NAMESPACE)  # type: ignore[arg-type]


def register_pytree_node_class(cls: type) -> type:
    """A decorator for classes with `tree_flatten()` and a classmethod `tree_unflatten(aux, children)`."""
    register_pytree_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def made(cls: type, aux: Any, children: Sequence[Any]) -> Any:
    """A node of a registered class, as its `unflatten_function` makes it."""
    return optree.register_pytree_node.get(cls, namespace=NAMESPACE).unflatten_func(aux, children)  # type: ignore[union-attr]
