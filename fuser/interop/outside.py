"""What a traced function sees of what lies outside it: globals, closures, defaults, objects, modules, lists and dicts.

The function runs with globals, closure and objects of its own, whose parts are looked up when they are read. Each value read
becomes a guard (fuser.interop.guards), arrays become inputs of the program, NumPy becomes a `np` that makes traced arrays,
and what a trace must not run (fuser.interop.impure) or write is refused. The code is the user's own, unchanged: files and
lines in errors stay right.
"""

from __future__ import annotations

import builtins
import collections
import copy as copies
import dis
import enum
import functools
import os
import struct
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fuser.interop.classes import is_simple, stand_in
from fuser.interop.comparison import Comparison, is_users_class
from fuser.interop.guards import Guards, Node, Reach, Test, path
from fuser.interop.impure import BUILTINS, Refusing, replacement
from fuser.interop.numpy.context import untraceable
from fuser.interop.read_only import items_of, read_only, refuse_change
from fuser.interop.types_seen import SEEN_TYPE
from fuser.ir.source import is_hidden

SUBSTITUTED = BUILTINS | {"type": SEEN_TYPE}
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement
_IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: a class of a module in C
_STANDARD = os.path.abspath(sysconfig.get_path("stdlib")) + os.sep
_CONSTANT_PACKAGES = ("numpy", "scipy", "torch", "jax", "jaxlib", "numba")
_POLYNOMIALS = f"{os.sep}numpy{os.sep}polynomial{os.sep}"  # written in NumPy, and traced as the user's code is
_CONSTANT_MODULES = ("fuser.", *(f"{name}." for name in _CONSTANT_PACKAGES))
_CONSTANTS = (type, enum.Enum, BaseException, Refusing, int, float, str, bytes, tuple, frozenset, types.ModuleType)
_followed: dict[str, bool] = {}
Substitute = Callable[["Outside", Any, int, str], Any]  # NotImplemented: nothing of this library


@dataclass(frozen=True)
class Known:
    """Where an array outside is whose contents the trace knows; `path` is None where they have to be known."""

    name: str
    path: Any


class Outside:
    """The outside of one trace. `substitute(outside, value, node, name)` gives what stands for a library's own values."""

    def __init__(self, substitute: Substitute, dynamic: frozenset[Any] = frozenset()) -> None:
        self.nodes: list[Node] = []
        self.inputs: list[Any] = []  # the program's inputs from outside, as the library makes them
        self.captures: list[int] = []  # the nodes whose values are inputs of the program, in order
        self.returned: list[int] = []  # and those that are results
        self.dynamic = dynamic  # paths of numbers and small arrays that have changed before
        self._substitute = substitute
        self._numbers: dict[Any, int] = {}
        self._known: dict[int, tuple[Any, int, Any]] = {}  # by identity: a value, its node, what stands for it
        self._standing: dict[int, int] = {}  # the node of what stands for a value, by identity
        self.control: Any = None  # what stages loops and branches on values, where that is asked for
        self.comparison = Comparison(self)
        self._scopes: dict[int, Scope] = {}
        self._containers: list[
            tuple[Any, tuple[Any, ...]]
        ] = []  # what stands for lists and dicts, and its items at first
        self._new_cells: dict[int, tuple[types.CellType, types.CellType]] = {}
        self._empty: list[Any] = []  # new cells that wait for their contents
        self._cells: list[tuple[types.CellType, Any, str, types.CodeType]] = []

    # ---- nodes

    def node(self, reach: Reach, parent: int, key: Any, name: str) -> int:
        """The number of the node for what is reached so."""
        where = (reach, parent, (type(key), key) if reach in (Reach.ITEM, Reach.ATTRIBUTE) else id(key))
        number = self._numbers.get(where)
        if number is None:
            number = self._numbers[where] = len(self.nodes)
            self.nodes.append(Node(reach, parent, key, name))
        return number

    def held_node(self, value: Any, name: str) -> int:
        """The node of an object that the guards hold."""
        return self.node(Reach.HELD, -1, value, name)

    def require(self, number: int, test: Test, expected: Any = None) -> None:
        """Have the guards test a node's value."""
        self.nodes[number].test, self.nodes[number].expected = test, expected

    def is_dynamic(self, number: int) -> bool:
        """Whether the value at this node is known to change from call to call."""
        return bool(self.dynamic) and self.path(number) in self.dynamic

    def path(self, number: int) -> Any:
        """Where a node is, in terms that another trace shares."""
        return path(self.nodes, number)

    def capture(self, number: int) -> int:
        """Have the value at this node be an input of the program; its number among those."""
        self.captures.append(number)
        return len(self.captures) - 1

    def guards(self) -> Guards:
        """The guards of all that was read, and what they capture: the program's inputs, then results."""
        return Guards(self.nodes, (*self.captures, *self.returned))

    def result(self, value: Any) -> int | None:
        """The position among the values captured of what `value` stands for, so that a call returns that very object."""
        number = self._standing.get(id(value))
        return None if number is None else self.hand_over(number)

    def stands(self, value: Any) -> bool:
        """Whether `value` stands for something that lies outside."""
        return id(value) in self._standing

    def hand_over(self, number: int) -> int:
        """Have the guards give each call the value at this node; its position among those."""
        self.returned.append(number)
        return len(self.returned) - 1

    def hand_over_constants(self) -> None:
        """Have each call get the arrays that were taken to be constant too: it may be that what it writes to is their memory."""
        for number, node in enumerate(self.nodes):
            if node.test is Test.CONTENTS:
                self.hand_over(number)

    # ---- values

    def visit(self, value: Any, number: int, name: str) -> Any:
        """What stands for `value`, which is reached at this node, in the traced function."""
        known = self._known.get(id(value))
        if known is not None and known[0] is value:
            if known[1] != number:
                self.require(number, Test.SAME, known[1])
            return known[2]
        made = self._made(value, number, name)
        if made is not value or not _is_constant(value):
            self._remember(value, number, made)
        return made

    def _remember(self, value: Any, number: int, made: Any) -> Any:
        self._known[id(value)] = (value, number, made)
        if made is not value:
            self._standing[id(made)] = number
        return made

    def _made(self, value: Any, number: int, name: str) -> Any:
        kind = type(value)
        if kind is float:
            return self._float(value, number, name)
        if value is None or kind in (bool, int, str, bytes, type(Ellipsis), range):
            self.require(number, Test.IS if value is None else Test.EQUAL, value)
            return value
        found = self._substitute(self, value, number, name)
        if found is not NotImplemented:
            return found
        refusing = replacement(value, name)
        if refusing is not None:
            self.require(number, Test.IS, value)
            return refusing
        maker = _MAKERS.get(kind)
        if maker is not None:
            return maker(self, value, number, name)
        if isinstance(value, dict):
            return self.mapping(value, number, name)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self.sequence(value, number, name)
        if isinstance(value, types.ModuleType) and follows(getattr(value, "__file__", None)):
            return self._module(value, number)
        if is_object(value):
            from fuser.interop.objects import shadow

            return shadow(self, value, number, name)
        self.require(number, Test.IS, value)
        if isinstance(value, type):
            self.comparison.of_class(value)
            if is_users_class(value) and is_simple(value):
                return stand_in(self, value, number)
        return value

    def _float(self, value: float, number: int, name: str) -> Any:
        if self.is_dynamic(number):
            self.require(number, Test.TYPE, float)
            return self._substitute(self, value, number, name)
        self.require(number, Test.BITS, struct.pack("d", value))
        return value

    def _module(self, module: types.ModuleType, number: int) -> Any:
        self.require(number, Test.IS, module)
        return Module(self, module, number)

    def sequence(self, value: Any, number: int, name: str) -> Any:
        """What stands for a list or tuple."""
        self.require(number, Test.LENGTH, (type(value), len(value)))
        stand_in = read_only((), value, name) if type(value) is list else None
        if stand_in is not None:
            self._remember(value, number, stand_in)  # before its items, which may refer to it
        items = [
            self.visit(v, self.node(Reach.INDEX, number, n, f"{name}[{n}]"), f"{name}[{n}]")
            for n, v in enumerate(value)
        ]
        if stand_in is not None:
            list.extend(stand_in, items)
            return self.keep_unchanged(stand_in)
        return tuple(items) if type(value) is tuple else type(value)(*items)

    def mapping(self, value: Any, number: int, name: str) -> Any:
        """What stands for a dict, an instance of a class of dicts included."""
        self.require(number, Test.KEYS, (type(value), tuple(value)))
        stand_in = self._remember(value, number, read_only({}, value, name))
        for key in value:
            title = f"{name}[{key!r}]"
            dict.__setitem__(stand_in, key, self.visit(value[key], self.node(Reach.ITEM, number, key, title), title))
        return self.keep_unchanged(stand_in)

    def keep_unchanged(self, container: Any) -> Any:
        """Have a ReadOnlyList or ReadOnlyDict be as it is now when the trace ends; what is written in C changes them unseen."""
        self._containers.append((container, items_of(container)))
        return container

    def _compared(self, value: Any, number: int, name: str) -> Any:
        """What stands for something whose contents are compared as a whole."""
        kind, before = type(value), copies.copy(value)
        self.require(number, Test.HOLDS, lambda now: type(now) is kind and now == before)
        return copies.copy(value)

    def _complex(self, value: complex, number: int, name: str) -> complex:
        parts = struct.pack("dd", value.real, value.imag)
        self.require(
            number, Test.HOLDS, lambda now: type(now) is complex and struct.pack("dd", now.real, now.imag) == parts
        )
        return value

    def _set(self, value: Any, number: int, name: str) -> Any:
        self._compared(value, number, name)
        return frozenset(value)

    # ---- functions

    def function(self, function: types.FunctionType, number: int, name: str) -> Any:
        """A copy of a function of the user's, whose globals and closure are looked up here."""
        self.require(number, Test.CODE, function.__code__)
        if not follows(function.__code__.co_filename):
            self.require(number, Test.IS, function)
            return function
        code = function.__code__
        cells = [self._cell(cell, function, number, n) for n, cell in enumerate(function.__closure__ or ())]
        if self.control is not None:
            code, cells = self.control.rewritten(code, cells)
        copy = types.FunctionType(code.replace(), self._scope(function), function.__name__, None, tuple(cells) or None)
        self._remember(function, number, copy)  # before what it refers to, which may refer to it
        while self._empty:
            self._fill(*self._empty.pop())
        copy.__defaults__ = self._defaults(function, number)
        copy.__kwdefaults__ = self._keyword_defaults(function, number)
        copy.__dict__.update(function.__dict__)
        copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
        return copy

    def _cell(self, cell: types.CellType, function: types.FunctionType, number: int, position: int) -> types.CellType:
        """The cell that stands for one of a function's closure; it is filled once the function is known."""
        known = self._new_cells.get(id(cell))
        if known is not None:
            return known[1]
        name = function.__code__.co_freevars[position]
        if self.nodes[number].reach is Reach.HELD:
            where = self.held_node(cell, name)
        else:
            closure = self.node(Reach.ATTRIBUTE, number, "__closure__", "__closure__")
            where = self.node(Reach.INDEX, closure, position, name)
        new = types.CellType()
        self._new_cells[id(cell)] = (cell, new)
        self._empty.append((cell, new, where, name, function.__code__))
        return new

    def _fill(self, cell: types.CellType, new: types.CellType, where: int, name: str, code: types.CodeType) -> None:
        number = self.node(Reach.CELL, where, None, name)
        try:
            value = cell.cell_contents
        except ValueError:
            self.require(number, Test.MISSING)
            return
        new.cell_contents = self.visit(value, number, name)
        self._cells.append((new, new.cell_contents, name, code))

    def _scope(self, function: types.FunctionType) -> Scope:
        scope = self._scopes.get(id(function.__globals__))
        if scope is None:
            scope = self._scopes[id(function.__globals__)] = Scope(self, function.__globals__)
        return scope

    def _defaults(self, function: types.FunctionType, number: int) -> Any:
        if function.__defaults__ is None:
            return None
        where = self.node(Reach.ATTRIBUTE, number, "__defaults__", "__defaults__")
        names = function.__code__.co_varnames[: function.__code__.co_argcount][-len(function.__defaults__) :]
        self.require(where, Test.LENGTH, (tuple, len(function.__defaults__)))
        return tuple(
            self.visit(value, self.node(Reach.INDEX, where, n, name), name)
            for n, (value, name) in enumerate(zip(function.__defaults__, names))
        )

    def _keyword_defaults(self, function: types.FunctionType, number: int) -> Any:
        if not function.__kwdefaults__:
            return function.__kwdefaults__
        where = self.node(Reach.ATTRIBUTE, number, "__kwdefaults__", "__kwdefaults__")
        return {
            name: self.visit(value, self.node(Reach.ITEM, where, name, name), name)
            for name, value in function.__kwdefaults__.items()
        }

    def method(self, method: types.MethodType, number: int, name: str) -> Any:
        """What stands for a bound method."""
        self.require(number, Test.TYPE, types.MethodType)
        function = self.node(Reach.ATTRIBUTE, number, "__func__", name)
        instance = self.node(Reach.ATTRIBUTE, number, "__self__", name.rpartition(".")[0] or "self")
        owner = self.visit(method.__self__, instance, self.nodes[instance].name)
        return types.MethodType(self.visit(method.__func__, function, name), owner)

    def partial(self, value: Any, number: int, name: str) -> Any:
        """What stands for a functools.partial."""
        self.require(number, Test.TYPE, functools.partial)
        parts = [
            self.visit(getattr(value, n), self.node(Reach.ATTRIBUTE, number, n, name), name)
            for n in ("func", "args", "keywords")
        ]
        return functools.partial(parts[0], *parts[1], **parts[2])

    # ---- after the trace

    def check_unchanged(self) -> None:
        """Refuse global variables, closures' variables and containers that the function has changed."""
        for scope in self._scopes.values():
            scope.check_unchanged()
        for container, items in self._containers:
            now = items_of(container)
            if len(now) != len(items) or any(a is not b for a, b in zip(now, items)):
                refuse_change(container.name, "list" if isinstance(container, list) else "dict")
        for cell, before, name, code in self._cells:
            if _contents(cell) is not before:
                raise untraceable(
                    f"setting the variable {name}, which the caller would see, cannot be traced",
                    "return the value",
                    _line_of(code, "STORE_DEREF", name),
                )


class Scope(dict[str, Any]):
    """The globals of a traced function: each is looked up when it is first read."""

    def __init__(self, outside: Outside, real: dict[str, Any]) -> None:
        super().__init__({name: real[name] for name in ("__name__", "__file__", "__builtins__") if name in real})
        self._outside, self._real = outside, real
        self._node = outside.held_node(real, real.get("__name__", "the module"))
        self._seen = dict(self)

    def __getitem__(self, name: str) -> Any:
        if dict.__contains__(self, name):
            return dict.__getitem__(self, name)
        number = self._outside.node(Reach.ITEM, self._node, name, name)
        if name in self._real:
            value = self._outside.visit(self._real[name], number, name)
        else:
            self._outside.require(number, Test.MISSING)
            value = SUBSTITUTED[name] if name in SUBSTITUTED else getattr(builtins, name, self)
            if value is self:
                raise KeyError(name)
        dict.__setitem__(self, name, value)
        self._seen[name] = value
        return value

    def check_unchanged(self) -> None:
        for name, value in self.items():
            if name not in self._seen or self._seen[name] is not value:
                raise untraceable(
                    f"setting the global variable {name}, which the caller would see, cannot be traced",
                    "return the value",
                )


class Module(types.ModuleType):
    """A module of the user's, whose parts are looked up when they are read."""

    def __init__(self, outside: Outside, module: types.ModuleType, number: int) -> None:
        super().__init__(module.__name__)
        self.__dict__["_state"] = (outside, module, number)

    def __getattr__(self, name: str) -> Any:
        outside, module, number = self.__dict__["_state"]
        value = getattr(module, name)
        title = f"{module.__name__}.{name}"
        return outside.visit(value, outside.node(Reach.ATTRIBUTE, number, name, title), title)

    def __setattr__(self, name: str, value: Any) -> None:
        _, module, _ = self.__dict__["_state"]
        raise untraceable(
            f"setting {module.__name__}.{name}, which the caller would see, cannot be traced", "return the value"
        )


def is_object(value: Any) -> bool:
    """Whether a value is an instance of a class written in Python, with attributes that may change."""
    kind = type(value)
    if kind is types.SimpleNamespace:
        return True
    return (
        is_python_class(kind)
        and not isinstance(value, _CONSTANTS)
        and (hasattr(value, "__dict__") or hasattr(kind, "__slots__"))
    )


def is_python_class(cls: type) -> bool:
    """Whether a class was made by a class statement, outside of the packages that are taken to be constant."""
    made = cls.__flags__ & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE
    return made and not str(cls.__module__).startswith(_CONSTANT_MODULES)


def follows(file: Any) -> bool:
    """Whether code of this file may read what changes. The standard library's and NumPy's own is taken to be constant."""
    if not isinstance(file, str):
        return False
    known = _followed.get(file)
    if known is None:
        location = os.path.abspath(file)
        library = location.startswith(_STANDARD) and f"{os.sep}site-packages{os.sep}" not in location
        constant = is_hidden(file) or location.startswith(tuple(_folders_of_constants()))
        known = _POLYNOMIALS in location or (not library and not constant)
        _followed[file] = known = known and not location.endswith(".so")
    return known


def _folders_of_constants() -> Iterator[str]:
    """Where the packages lie whose code is constant; a user's folder may have the name of one."""
    for name in _CONSTANT_PACKAGES:
        for folder in getattr(sys.modules.get(name), "__path__", ()):
            yield os.path.abspath(folder) + os.sep


def _is_constant(value: Any) -> bool:
    return isinstance(value, (type(None), bool, int, float, complex, str, bytes, type))


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _line_of(code: types.CodeType, operation: str, name: str) -> str:
    """The line in which a function writes a variable: `file.py:12`."""
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line or line
        if instruction.opname == operation and instruction.argval == name:
            return f"{os.path.basename(code.co_filename)}:{line}"
    return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"


_MAKERS: dict[type, Callable[[Outside, Any, int, str], Any]] = {
    list: Outside.sequence,
    tuple: Outside.sequence,
    complex: Outside._complex,
    set: Outside._set,
    frozenset: Outside._set,
    slice: Outside._compared,
    bytearray: Outside._compared,
    collections.deque: Outside._compared,
    types.FunctionType: Outside.function,
    types.MethodType: Outside.method,
    functools.partial: Outside.partial,
}
