"""The text, the walk, the bytes and the errors of tree structures, as JAX's."""

from __future__ import annotations

import collections
import pickle

import jax
import pytest

import fuser
from fuser import tree_util

Point = collections.namedtuple("Point", "x y")


class Node:
    """A registered class with static data."""

    def __init__(self, child):
        self.child = child


for module in (tree_util, jax.tree_util):
    module.register_pytree_node(Node, lambda n: ((n.child,), [4, "foo"]), lambda aux, children: Node(*children))

TREES = [
    1,
    None,
    (),
    (None,),
    [(), 1],
    {"b": 1, "a": (2, [3])},
    collections.OrderedDict(b=1, a=2),
    collections.defaultdict(int, {"b": 1, "a": 2}),
    Point(1, None),
    [Node(Point(1, 2))],
]


@pytest.mark.parametrize("number", range(len(TREES)))
def test_structures(number):
    tree = TREES[number]
    ours, theirs = tree_util.tree_structure(tree), jax.tree_util.tree_structure(tree)
    assert str(ours) == str(theirs) and ours.node_data() == theirs.node_data()
    assert (ours.num_leaves, ours.num_nodes) == (theirs.num_leaves, theirs.num_nodes)
    assert ours == tree_util.tree_structure(tree) and ours == pickle.loads(pickle.dumps(ours))
    assert [str(c) for c in ours.children()] == [str(c) for c in theirs.children()]


def test_walk_and_bytes():
    tree = {"b": 2, "a": [1, None], "c": (3,)}
    ours, theirs = tree_util.tree_structure(tree), jax.tree_util.tree_structure(tree)
    node, leaf, leaves = (lambda children, data: (children, data)), (lambda x: -x), [1, 2, 3]
    assert ours.walk(node, leaf, leaves) == theirs.walk(node, leaf, leaves)
    assert type(ours).deserialize_using_proto(None, ours.serialize_using_proto()) == ours
    with pytest.raises(ValueError, match="are serialized, got Node"):
        tree_util.tree_structure(Node(1)).serialize_using_proto()


def test_errors_have_jax_words():
    with pytest.raises(ValueError, match="pytree structure error"):
        tree_util.tree_broadcast((1, 2), (0, 0, 0))
    with pytest.raises(ValueError, match="pytree structure error"):
        tree_util.tree_map(lambda x, y: x, [1, 2], None)


@pytest.mark.parametrize("tree", [{"b": 1, "a": {"d": 2, "c": [3]}}, collections.defaultdict(int, {2: 1, 1: 2}), collections.OrderedDict(z=0, y=({"q": 1, "p": 2},))])  # fmt: skip
def test_dicts_come_back_in_key_order(tree):
    """However they were filled: else what a cached program gives would depend on the tree that it was first called with."""
    leaves, structure = tree_util.tree_flatten(tree)
    expected = repr(jax.tree.map(lambda x: x, tree))
    assert repr(tree_util.tree_unflatten(structure, leaves)) == repr(tree_util.tree_map(lambda x: x, tree)) == expected
    assert repr(pickle.loads(pickle.dumps(structure)).unflatten(leaves)) == expected


def test_keys_that_cannot_be_sorted():
    for library in (jax.tree_util, tree_util):
        with pytest.raises(ValueError, match="Comparator raised exception"):
            library.tree_flatten({"a": 1, 2: "b"})


def test_order_of_arguments_and_results_of_programs():
    seen = []

    def function(x):
        seen.append(list(x))
        return {"q": x["b"], "p": x["a"]}

    program = fuser.jit(function)
    for given in ({"b": 1, "a": 2}, {"a": 1, "b": 2}):
        assert list(program(given)) == ["p", "q"]
    assert seen == [["a", "b"]]
