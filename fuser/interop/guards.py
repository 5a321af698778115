"""Guards: what a trace read from outside of its function, and whether all of it is at a later call as it was then.

A node says how a value is reached (from an object held, an argument, or the value of an earlier node) and what it must be.
Arrays and numbers that changed before are not compared but taken along: the values of `captures` are inputs of the program.
The check runs in the native core; `FUSER_NATIVE=0` runs the same here.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser.runtime.core import native

_MISSING = object()


class Reach(enum.IntEnum):
    """How a node's value is reached: `parent` is a node, `key` what is looked up there."""

    HELD = 0  # the key itself
    ARGUMENT = 1  # the leaf with this number
    ITEM = 2  # of a dict
    INDEX = 3  # of a list or tuple
    ATTRIBUTE = 4
    CELL = 5  # the contents of a closure's cell


class Test(enum.IntEnum):
    """What a node's value must be."""

    ANY = 0
    MISSING = 1  # not there
    IS = 2  # this very object
    EQUAL = 3  # of this type, and equal
    BITS = 4  # this float, bit by bit
    LENGTH = 5  # a list or tuple, (type, length)
    KEYS = 6  # a dict, (type, keys in order)
    ARRAY = 7  # an ndarray, (dtype, shape, strides)
    CONTENTS = 8  # an ndarray, (dtype, shape, bytes in C order)
    TYPE = 9  # of this very type
    CODE = 10  # a function of this code
    SAME = 11  # the value of the node with this number
    HOLDS = 12  # this function of the value is true


@dataclass
class Node:
    """One value that was read; `name` is what messages call it."""

    reach: Reach
    parent: int
    key: Any
    name: str
    test: Test = Test.ANY
    expected: Any = None


class Guards:
    """The nodes of one trace. Calling it with a call's leaves gives the captured values, or None if a test fails."""

    def __init__(self, nodes: Sequence[Node], captures: Sequence[int]) -> None:
        self.nodes = tuple(nodes)
        self.captures = tuple(captures)
        described = tuple((int(n.reach), n.parent, n.key, int(n.test), n.expected) for n in self.nodes)
        self.check: Any = self._check if native is None else native.Guards(described, self.captures)

    def _check(self, leaves: Sequence[Any]) -> tuple[Any, ...] | None:
        values: list[Any] = []
        for node in self.nodes:
            value = _reached(node, values, leaves)
            if not holds(node, value, values):
                return None
            values.append(value)
        return tuple(values[number] for number in self.captures)

    def changed(self, leaves: Sequence[Any]) -> list[Node]:
        """The nodes whose tests fail now; of those below them nothing is known."""
        values: list[Any] = []
        found = []
        for node in self.nodes:
            lost = node.parent >= 0 and values[node.parent] is _MISSING
            value = _MISSING if lost else _reached(node, values, leaves)
            if not lost and not holds(node, value, values):
                found.append(node)
                value = value if node.test in (Test.BITS, Test.CONTENTS, Test.EQUAL) else _MISSING
            values.append(value)
        return found

    def path(self, number: int) -> tuple[Any, ...]:
        """Where a node is, in terms that another trace shares."""
        return path(self.nodes, number)


def path(nodes: Sequence[Node], number: int) -> tuple[Any, ...]:
    """The steps to a node; objects held are told by identity."""
    steps = []
    while number >= 0:
        node = nodes[number]
        steps.append((node.reach, id(node.key) if node.reach is Reach.HELD else node.key))
        number = node.parent
    return tuple(steps)


def _reached(node: Node, values: Sequence[Any], leaves: Sequence[Any]) -> Any:
    if node.reach is Reach.HELD:
        return node.key
    if node.reach is Reach.ARGUMENT:
        return leaves[node.key]
    parent = values[node.parent]
    try:
        if node.reach is Reach.ITEM:
            return dict.get(parent, node.key, _MISSING)
        if node.reach is Reach.INDEX:
            return parent[node.key]
        if node.reach is Reach.CELL:
            return parent.cell_contents
        return (type if isinstance(parent, type) else object).__getattribute__(parent, node.key)
    except (AttributeError, ValueError, IndexError):
        return _MISSING


def holds(node: Node, value: Any, values: Sequence[Any]) -> bool:
    """Whether a node's value is what it must be."""
    test, expected = node.test, node.expected
    if test is Test.MISSING or value is _MISSING:
        return test is Test.MISSING and value is _MISSING
    if test is Test.EQUAL:
        return type(value) is type(expected) and (value is expected or bool(value == expected))
    return _TESTS[test](value, expected, values)


def _array(value: Any, expected: Any, values: Any) -> bool:
    dtype, shape, strides = expected
    return type(value) is np.ndarray and value.dtype == dtype and value.shape == shape and value.strides == strides


def _contents(value: Any, expected: Any, values: Any) -> bool:
    dtype, shape, contents = expected
    return (
        type(value) is np.ndarray
        and value.dtype == dtype
        and value.shape == shape
        and bool(value.tobytes() == contents)
    )


_TESTS: dict[Test, Any] = {
    Test.ANY: lambda value, expected, values: True,
    Test.IS: lambda value, expected, values: value is expected,
    Test.BITS: lambda value, expected, values: type(value) is float and struct.pack("d", value) == expected,
    Test.LENGTH: lambda value, expected, values: type(value) is expected[0] and len(value) == expected[1],
    Test.KEYS: lambda value, expected, values: type(value) is expected[0] and same_keys(value, expected[1]),
    Test.ARRAY: _array,
    Test.CONTENTS: _contents,
    Test.TYPE: lambda value, expected, values: type(value) is expected,
    Test.CODE: lambda value, expected, values: getattr(value, "__code__", None) is expected,
    Test.SAME: lambda value, expected, values: value is values[expected],
    Test.HOLDS: lambda value, expected, values: bool(expected(value)),
}


def same_keys(value: dict[Any, Any], keys: tuple[Any, ...]) -> bool:
    """Whether a dict has these keys in this order, of the same types."""
    return len(value) == len(keys) and all(a is b or (type(a) is type(b) and a == b) for a, b in zip(value, keys))
