"""Instances of the user's classes as a traced function sees them: attributes are looked up when they are read.

The stand-in is an instance of a subclass of the object's class, without attributes of its own. Its methods are the class's,
with the globals of the trace; writing to it raises.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from fuser.interop.guards import Reach, Test
from fuser.interop.numpy.context import untraceable

if TYPE_CHECKING:
    from fuser.interop.outside import Outside

_ABSENT = object()
_LEFT_ALONE = frozenset(
    [
        "__new__",
        "__init__",
        "__del__",
        "__getattribute__",
        "__getattr__",
        "__setattr__",
        "__delattr__",
        "__init_subclass__",
        "__class_getitem__",
        "__repr__",
        "__set_name__",
        "__getstate__",
        "__setstate__",
        "__reduce__",
        "__reduce_ex__",
        "__sizeof__",
        "__dir__",
        "__subclasshook__",
    ]
)


def shadow(outside: Outside, value: Any, number: int, name: str) -> Any:
    """What stands for an object."""
    cls = type(value)
    outside.require(number, Test.TYPE, cls)
    state = _State(outside, value, number, name)
    members = {
        "__getattribute__": lambda self, part: state.read(self, part),
        "__setattr__": lambda self, part, new: state.set(self, part, new),
        "__delattr__": lambda self, part: state.refuse("deleting", part),
        **{part: state.rebound(part, function) for part, function in _special_methods(cls).items()},
    }
    try:
        new: Any = cls.__new__ if cls is types.SimpleNamespace else object.__new__
        metaclass: Any = type(cls)
        stand_in = new(metaclass(cls.__name__, (cls,), {"__slots__": (), **members}))
    except TypeError:
        raise untraceable(
            f"the {cls.__name__} {name} was not made in the traced function, and its class cannot be followed",
            "pass what is read of it as arguments",
        ) from None
    outside._remember(value, number, stand_in)
    if any(
        "__class__" in f.__code__.co_freevars
        for base in cls.__mro__
        for f in vars(base).values()
        if isinstance(f, types.FunctionType)
    ):
        for base in cls.__mro__[1:]:  # whose methods `super()` calls as they are
            outside.comparison.of_class(base)
    return stand_in


def _special_methods(cls: type) -> dict[str, types.FunctionType]:
    """Methods that Python calls for operators, by name."""
    found: dict[str, types.FunctionType] = {}
    for base in cls.__mro__:
        for name, member in vars(base).items():
            special = name.startswith("__") and name.endswith("__") and name not in _LEFT_ALONE
            if special and isinstance(member, types.FunctionType):
                found.setdefault(name, member)
    return found


class _State:
    """What a stand-in knows; it is no attribute of it."""

    def __init__(self, outside: Outside, value: Any, number: int, name: str) -> None:
        self.outside, self.value, self.number, self.name = outside, value, number, name
        self.cls = type(value)

    def refuse(self, what: str, part: str) -> Any:
        raise untraceable(
            f"{what} {self.name}.{part}, which the caller would see, cannot be traced",
            "return the value and set it after the call",
        )

    def set(self, stand_in: Any, part: str, new: Any) -> None:
        """`stand_in.part = new`: nothing where that is there, as after `body.velocity += x`; else an error."""
        if not hasattr(stand_in, part) or getattr(stand_in, part) is not new:
            self.refuse("setting", part)

    def read(self, stand_in: Any, part: str) -> Any:
        """`stand_in.part`."""
        if part == "__class__":
            return self.cls
        if part == "__dict__":
            return self._all()
        found = _static(self.cls, part)
        own = vars(self.value).get(part, _ABSENT) if hasattr(self.value, "__dict__") else _ABSENT
        if own is not _ABSENT and not hasattr(type(found), "__set__"):
            return self._attribute(part, own)
        if found is not _ABSENT:
            return self._of_class(stand_in, part, found)
        getter = _static(self.cls, "__getattr__")
        self.outside.require(self._node(part), Test.MISSING)
        if getter is not _ABSENT:
            return self.rebound("__getattr__", getter)(stand_in, part)
        raise AttributeError(f"{self.cls.__name__!r} object has no attribute {part!r}", name=part, obj=self.value)

    def _node(self, part: str) -> int:
        return self.outside.node(Reach.ATTRIBUTE, self.number, part, f"{self.name}.{part}")

    def _attribute(self, part: str, value: Any) -> Any:
        return self.outside.visit(value, self._node(part), f"{self.name}.{part}")

    def _all(self) -> Any:
        number = self._node("__dict__")
        return self.outside.mapping(vars(self.value), number, self.name)

    def _member(self, part: str) -> int:
        """The node of what the class has under this name."""
        cls = self.outside.held_node(self.cls, self.cls.__name__)
        return self.outside.node(Reach.ATTRIBUTE, cls, part, f"{self.cls.__name__}.{part}")

    def rebound(self, part: str, function: Any) -> Any:
        """A function of the class as the trace calls it."""
        return self.outside.visit(function, self._member(part), f"{self.cls.__name__}.{part}")

    def _of_class(self, stand_in: Any, part: str, found: Any) -> Any:
        if isinstance(found, types.FunctionType) or hasattr(type(found), "within"):
            return types.MethodType(self.rebound(part, found), stand_in)
        if isinstance(found, property):
            number = self.outside.node(Reach.ATTRIBUTE, self._member(part), "fget", part)
            return self.outside.visit(found.fget, number, part)(stand_in)
        if isinstance(found, functools.cached_property):
            number = self.outside.node(Reach.ATTRIBUTE, self._member(part), "func", part)
            return self.outside.visit(found.func, number, part)(stand_in)
        if isinstance(found, staticmethod):
            return self.rebound(part, found.__func__)
        if isinstance(found, classmethod):
            number = self.outside.node(Reach.ATTRIBUTE, self._member(part), "__func__", part)
            return types.MethodType(self.outside.visit(found.__func__, number, part), self.cls)
        if isinstance(found, types.MemberDescriptorType):  # of __slots__
            return self._slot(part, found)
        if hasattr(type(found), "__get__"):
            return found.__get__(stand_in, self.cls)
        return self._attribute(part, found)  # of the instance, which may come to have one of its own

    def _slot(self, part: str, found: Any) -> Any:
        try:
            value = found.__get__(self.value)
        except AttributeError:
            self.outside.require(self._node(part), Test.MISSING)
            raise
        return self._attribute(part, value)


def _static(cls: type, name: str) -> Any:
    """What a class has under a name, without binding it."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return _ABSENT
