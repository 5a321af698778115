"""Guards by value, for what a traced function runs as it is: classes that it reads or makes instances of, and their methods.

Nothing stands in for such code, so all that it can reach by the names in it is compared as a whole at each call.
"""

from __future__ import annotations

import enum
import struct
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.interop.guards import Node, Reach, Test
from fuser.ir.types import ALL_DTYPES

if TYPE_CHECKING:
    from fuser.interop.outside import Outside


class Comparison:
    """The comparisons of one trace; each value is followed once."""

    def __init__(self, outside: Outside) -> None:
        self.outside = outside
        self._seen: dict[int, Any] = {}

    def of_class(self, cls: type) -> None:
        """Compare the data of a class and of those that it inherits from, and what their methods read."""
        for base in cls.__mro__:
            if id(base) in self._seen or not is_users_class(base):
                continue
            self._seen[id(base)] = base
            held = self._node(Reach.HELD, -1, base, base.__name__, Test.IS, base)
            for name, member in list(vars(base).items()):
                function = _function_of(member)
                if function is not None:
                    self._body(function)
                elif not (name.startswith("__") and name.endswith("__")) and not hasattr(type(member), "__get__"):
                    self._value(member, self._node(Reach.ATTRIBUTE, held, name, f"{base.__name__}.{name}"), frozenset())

    def _node(self, reach: Reach, parent: int, key: Any, name: str, test: Test = Test.ANY, expected: Any = None) -> int:
        self.outside.nodes.append(Node(reach, parent, key, name, test, expected))
        return len(self.outside.nodes) - 1

    def _body(self, function: types.FunctionType) -> None:
        """Compare what a function can read: globals by the names in its code, its closure and defaults."""
        from fuser.interop.outside import follows

        if id(function) in self._seen or not follows(function.__code__.co_filename):
            return
        self._seen[id(function)] = function
        names = frozenset(_names(function.__code__))
        scope = self._node(Reach.HELD, -1, function.__globals__, function.__globals__.get("__name__", "the module"))
        for name in names & function.__globals__.keys():
            self._value(function.__globals__[name], self._node(Reach.ITEM, scope, name, name), names)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if name != "__class__" and cell != types.CellType():
                held = self._node(Reach.HELD, -1, cell, name)
                self._value(cell.cell_contents, self._node(Reach.CELL, held, None, name), names)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._value(value, self._node(Reach.HELD, -1, value, function.__name__), names)

    def _value(self, value: Any, number: int, names: frozenset[str]) -> None:
        from fuser.interop.outside import follows, is_object

        node, kind = self.outside.nodes[number], type(value)
        node.test, node.expected = Test.IS, value
        if kind is float:
            node.test, node.expected = Test.BITS, struct.pack("d", value)
        elif kind in (bool, int, str, bytes):
            node.test = Test.EQUAL
        elif kind is np.ndarray and value.dtype in ALL_DTYPES:
            node.test, node.expected = Test.CONTENTS, (value.dtype, value.shape, value.tobytes())
        elif kind is types.FunctionType:
            node.test, node.expected = Test.CODE, value.__code__
            self._body(value)
        elif isinstance(value, type) and is_users_class(value):
            self.of_class(value)
        elif id(value) in self._seen:
            return
        elif kind in (list, tuple) or isinstance(value, dict):
            self._seen[id(value)] = value
            self._container(value, number, names)
        elif (isinstance(value, types.ModuleType) and follows(getattr(value, "__file__", None))) or is_object(value):
            self._seen[id(value)] = value
            if is_object(value):
                self.of_class(kind)
            for name in names & getattr(value, "__dict__", {}).keys():
                self._value(vars(value)[name], self._node(Reach.ATTRIBUTE, number, name, f"{node.name}.{name}"), names)

    def _container(self, value: Any, number: int, names: frozenset[str]) -> None:
        node = self.outside.nodes[number]
        if isinstance(value, dict):
            node.test, node.expected = Test.KEYS, (type(value), tuple(value))
            for key, item in value.items():
                self._value(item, self._node(Reach.ITEM, number, key, f"{node.name}[{key!r}]"), names)
            return
        node.test, node.expected = Test.LENGTH, (type(value), len(value))
        for position, item in enumerate(value):
            self._value(item, self._node(Reach.INDEX, number, position, f"{node.name}[{position}]"), names)


def is_users_class(cls: type) -> bool:
    """Whether a class was written in Python, outside of the libraries that are taken to be constant."""
    from fuser.interop.outside import is_python_class

    return is_python_class(cls) and not issubclass(cls, enum.Enum) and cls.__module__ not in sys.stdlib_module_names


def _function_of(member: Any) -> types.FunctionType | None:
    for part in ("__func__", "fget", "func", "__wrapped__"):
        member = getattr(member, part, member) if not isinstance(member, types.FunctionType) else member
    return member if isinstance(member, types.FunctionType) else None


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
