"""Pytrees with key paths, registered classes and prefixes, against JAX."""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.flatten_util
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import flatten_util, tree_util


class Pair(NamedTuple):
    left: Any
    right: Any


def both(make: Any) -> Any:
    """A class registered with each library by `make(library's tree_util, class)`."""
    found = {}
    for library in (tree_util, jax.tree_util):

        class Node:
            def __init__(self, x: Any = 1, y: Any = 2) -> None:
                self.x, self.y = x, y

            def tree_flatten(self) -> Any:
                return (self.x, self.y), None

            def tree_flatten_with_keys(self, library: Any = library) -> Any:
                return ((library.GetAttrKey("x"), self.x), (library.GetAttrKey("y"), self.y)), None

            @classmethod
            def tree_unflatten(cls, aux: Any, children: Any) -> Any:
                return cls(*children)

        make(library, Node)
        found[library] = Node
    return found


WITH_KEYS = both(lambda library, cls: library.register_pytree_with_keys_class(cls))
WITHOUT = both(lambda library, cls: library.register_pytree_node_class(cls))

TREES: list[Any] = [
    1, None, [], (), {}, [1, (2, None)], {"b": [1, 2], "a": (3, {"z": 4})}, Pair(1, [2, 3]),
    collections.OrderedDict([("b", 1), ("a", 2)]), collections.defaultdict(list, {"b": 1, "a": [2]}), [[[]], None, 5], {2: 1, 1: (0,)},
]  # fmt: skip


def trees(library: Any) -> list[Any]:
    return [*TREES, WITH_KEYS[library](1, {"k": 2}), [WITHOUT[library](3, (4,))], library.Partial(max, 1, key=2)]


@pytest.mark.parametrize("number", range(len(TREES) + 3))
def test_paths_leaves_and_levels(number: int) -> None:
    mine, other = trees(tree_util)[number], trees(jax.tree_util)[number]
    for arguments in ((), (lambda x: isinstance(x, tuple),), (lambda path, x: len(path) == 1, True)):
        found, structure = tree_util.tree_flatten_with_path(mine, *arguments)
        expected, theirs = jax.tree_util.tree_flatten_with_path(other, *arguments)
        for options in ({}, {"simple": True, "separator": "/"}):
            paths = [jax.tree_util.keystr(path, **options) for path, _ in expected]
            assert [tree_util.keystr(path, **options) for path, _ in found] == paths
        assert [str(leaf)[:9] for _, leaf in found] == [str(leaf)[:9] for _, leaf in expected]
        assert (structure.num_leaves, structure.num_nodes) == (theirs.num_leaves, theirs.num_nodes)
        assert tree_util.treedef_is_leaf(structure) == jax.tree_util.treedef_is_leaf(theirs)
        assert len(tree_util.treedef_children(structure)) == len(jax.tree_util.treedef_children(theirs))
    assert tree_util.is_tree_node(type(mine)) == jax.tree_util.is_tree_node(type(other))
    try:
        children, aux = jax.tree_util.flatten_one_level(other)
    except ValueError as error:
        with pytest.raises(ValueError, match="can't tree-flatten type") as caught:
            tree_util.flatten_one_level(mine)
        assert str(error)[:24] in str(caught.value)
    else:
        own, _ = tree_util.flatten_one_level(mine)
        assert [str(c)[:5] for c in own] == [str(c)[:5] for c in children]
        assert tree_util.all_leaves(own) == jax.tree_util.all_leaves(children)
        assert (tree_util.default_registry.flatten_one_level(mine) is None) == (
            aux is None and not children and number == 0
        )


@pytest.mark.parametrize("library", [tree_util, jax.tree_util], ids=["fuser", "jax"])
def test_maps_reductions_and_prefixes(library: Any) -> None:
    tree = {"a": [1, 2], "b": Pair(3, 4)}
    mapped = library.tree_map_with_path(lambda path, x, y: (library.keystr(path), x + y), tree, tree)
    assert mapped == {"a": [("['a'][0]", 2), ("['a'][1]", 4)], "b": Pair(("['b'].left", 6), ("['b'].right", 8))}
    assert library.tree_reduce(lambda x, y: f"({x}{y})", tree) == "(((12)3)4)"
    assert library.tree_reduce(lambda x, y: f"({x}{y})", [], 7) == 7
    assert library.tree_reduce_associative(lambda x, y: f"({x}{y})", [1, 2, 3, 4, 5]) == "((12)(3(45)))"
    assert library.tree_reduce_associative(max, [], identity=0) == 0
    with pytest.raises(TypeError):
        library.tree_reduce_associative(max, [])
    assert library.tree_all([True, 1]) and not library.tree_all({"a": 0})
    assert library.tree_broadcast({"a": 1, "b": 2}, tree) == {"a": [1, 1], "b": Pair(2, 2)}
    with pytest.raises(ValueError):
        library.tree_broadcast({"a": 1}, tree)
    outer, inner = library.tree_structure([0, 0]), library.tree_structure({"x": 0, "y": 0})
    for given in (inner, None):
        assert library.tree_transpose(outer, given, [{"x": 1, "y": 2}, {"x": 3, "y": 4}]) == {"x": [1, 3], "y": [2, 4]}
    with pytest.raises(TypeError):
        library.tree_transpose(outer, inner, [1, 2])
    whole = library.treedef_tuple([outer, inner])
    assert library.tree_unflatten(whole, [1, 2, 3, 4]) == ([1, 2], {"x": 3, "y": 4})


@pytest.mark.parametrize("library", [fuser, jax], ids=["fuser", "jax"])
def test_dataclasses_and_static_classes(library: Any) -> None:
    @library.tree_util.register_dataclass
    @dataclasses.dataclass
    class Layer:
        weight: Any
        bias: Any
        name: str = library.tree.static(default="dense", kw_only=True)

    layer = Layer(np.float32(2.0), np.float32(1.0), name="relu")
    paths = [library.tree_util.keystr(path) for path, _ in library.tree.leaves_with_path(layer)]
    assert paths == [".weight", ".bias"]
    moved = library.jit(lambda given: library.tree.map(lambda leaf: leaf * (3 if given.name == "relu" else 1), given))(
        layer
    )
    assert (float(moved.weight), moved.name) == (6.0, "relu")
    assert library.tree.structure(layer) != library.tree.structure(dataclasses.replace(layer, name="tanh"))

    @dataclasses.dataclass
    class Other:
        a: Any
        b: Any

    with pytest.raises(ValueError, match="overlap"):
        library.tree_util.register_dataclass(Other, ["a", "b"], ["b"])
    with pytest.raises(ValueError, match="Missing fields"):
        library.tree_util.register_dataclass(Other, ["a"], [])
    with pytest.raises(TypeError):
        library.tree_util.register_dataclass(Other, ["a", "b"])
    with pytest.raises(ValueError, match="Unexpected fields"):
        library.tree_util.register_dataclass(
            dataclasses.make_dataclass("Cached", [("cache", Any, dataclasses.field(default=None, init=False))])
        )
    library.tree_util.register_dataclass(Other, ["b"], ["a"])
    assert library.tree.leaves(Other(1, 2)) == [2]

    @library.tree_util.register_static
    class Mode(str):
        pass

    assert library.tree.leaves([Mode("add"), 1]) == [1]
    add = library.jit(lambda x, mode: x + 1 if mode == "add" else x - 1)
    assert (int(add(1, Mode("add"))), int(add(1, Mode("sub")))) == (2, 0)


@pytest.mark.parametrize("library", [fuser, jax], ids=["fuser", "jax"])
def test_partial_is_a_tree_of_its_arguments(library: Any) -> None:
    made = library.tree_util.Partial(lambda x, y, z=0: x * y + z, 2.0, z=np.float32(1))
    assert library.tree.leaves(made) == [2.0, 1]
    assert float(library.jit(lambda f, y: f(y))(made, 5.0)) == 11.0
    nested = library.tree_util.Partial(functools.partial(max, 7), 3)
    assert nested(1) == 7 and library.tree.leaves(nested) == [3]
    assert library.tree_util.Partial(nested, 9)(1) == 9


RAVELLED: list[Any] = [
    {"b": np.ones((2, 3), np.float32), "a": np.float32(2)}, [], [np.arange(3), np.float32(1)], (np.float16(1), np.arange(2.0)),
    [np.array([True]), np.arange(2, dtype=np.int8)], [np.ones(2, np.float32)] * 2, [np.ones(2, np.complex64), np.ones(1, np.float32)], 3.0, [1, 2.5],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(RAVELLED)))
def test_ravel_pytree(number: int) -> None:
    mine, unravel = flatten_util.ravel_pytree(fuser.tree.map(fnp.asarray, RAVELLED[number]))
    theirs, undo = jax.flatten_util.ravel_pytree(jax.tree.map(jax.numpy.asarray, RAVELLED[number]))
    assert mine.dtype == theirs.dtype
    np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))
    back, expected = unravel(mine * 2), undo(theirs * 2)
    for one, other in zip(fuser.tree.leaves(back), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    if number != 1:
        with pytest.raises(ValueError, match="expected an array of shape"):
            unravel(fnp.ones(99))


def test_raveled_numbers_promote_as_arrays_and_unravel_is_a_static_argument() -> None:
    """A number of Python's is float32 beside bfloat16; equal trees have equal functions, with which a program is traced once."""
    traced = []
    for library, array in ((flatten_util, fnp.asarray), (jax.flatten_util, jax.numpy.asarray)):
        half = array([1.0, 2.0], dtype="bfloat16")
        flat, unravel = library.ravel_pytree({"a": 1.5, "b": half})
        assert (
            flat.dtype == "float32" and unravel(flat)["b"].dtype == "bfloat16" and unravel(flat)["a"].dtype == "float32"
        )
        again = library.ravel_pytree({"a": 2.5, "b": half + 1})[1]
        assert unravel == again and hash(unravel) == hash(again)
        assert unravel != library.ravel_pytree({"a": half, "c": half})[1]
        alone, numbers = library.ravel_pytree([2.0])
        assert alone.weak_type and alone.shape == (1,) and numbers(alone)[0].shape == ()
        assert library.ravel_pytree([])[1](array([])) == []

    def total(flat, unravel):
        traced.append(unravel)
        return sum(leaf.sum() for leaf in fuser.tree.leaves(unravel(flat)))

    compiled = fuser.jit(total, static_argnums=1)
    for number in range(3):
        flat, unravel = flatten_util.ravel_pytree({"a": fnp.full(2, number), "b": fnp.ones((2, 2), int)})
        assert compiled(flat, unravel) == 2 * number + 4
    assert len(traced) == 1


def test_keys_of_different_kinds_hash_apart_and_registered_named_tuples_are_numbered() -> None:
    for library in (tree_util, jax.tree_util):
        assert len({hash(k) for k in (library.SequenceKey(1), library.DictKey(1), library.FlattenedIndexKey(1))}) == 3
        kind = collections.namedtuple("kind", "a b")
        library.register_pytree_node(kind, lambda x: ((x.a,), x.b), lambda aux, children, k=kind: k(children[0], aux))
        (path, leaf), *rest = library.tree_leaves_with_path(kind(1, "hi"))
        assert (library.keystr(path), leaf, rest) == ("[<flat index 0>]", 1, [])
        assert not library.all_leaves([None]) and library.all_leaves([1, "x"])
    wrong = type("Wrong", (), {})
    tree_util.register_pytree_node(wrong, lambda x: "hello", lambda aux, children: wrong())
    with pytest.raises(ValueError, match=r"should return a \(children, aux_data\) tuple, got 'hello'"):
        fuser.tree.leaves(wrong())
