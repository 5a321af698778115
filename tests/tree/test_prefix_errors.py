"""Where trees are no prefixes of others: the places that JAX finds, each by its path."""

from __future__ import annotations

import collections
import re
from typing import Any

import jax._src.tree_util as theirs
import numpy as np
import pytest

from fuser.tree_prefix import prefix_errors

Pair = collections.namedtuple("Pair", "a b")
TREES: list[tuple[Any, Any]] = [
    (1, [2, 3]),
    ([1, None], [2, None]),
    ((1, 2), [1, 2]),
    ([1, 2], [1, 2, 3]),
    ({"a": 1, "b": [1]}, {"a": [1], "b": 2}),
    ({"a": 1}, {"b": 1}),
    (Pair(1, (1, 2)), Pair([1], (1, [2]))),
    (Pair((2,), 1), Pair([2], 1)),
    ([1, None], [1, np.zeros(2)]),
    ({"x": [1, (2,)], "y": [3]}, {"x": [1, 2], "y": (3,)}),
    (collections.OrderedDict(b=1, a=2), {"a": 1, "b": 2}),
]


@pytest.mark.parametrize("prefix, full", TREES, ids=repr)
def test_the_places_are_those_that_jax_finds(prefix: Any, full: Any) -> None:
    ours, wanted = ([str(make("in_axes")) for make in errors(prefix, full)] for errors in (prefix_errors, theirs.prefix_errors))  # fmt: skip
    assert len(ours) == len(wanted)
    for one, other in zip(ours, wanted):
        place, expected = (re.search(r"key path\s+(in_axes\S*)", text) for text in (one, other))
        assert expected is None or (place is not None and place[1] == expected[1])  # JAX names no path at the root


def test_what_is_taken_as_a_leaf() -> None:
    is_leaf = lambda node: isinstance(node, tuple)
    assert not prefix_errors([(1, 2)], [{"a": 1}], is_leaf) and len(prefix_errors([(1, 2)], [{"a": 1}])) == 1
