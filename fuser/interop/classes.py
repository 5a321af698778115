"""Classes as a traced function sees them, where it makes instances: subclasses whose methods have the globals of the trace.

So `np.zeros(n)` in `__init__` makes an array that takes traced values. Only classes without bases of the user's, whose methods say nothing
of their class (`super()`, `__slots__`, `__new__`), are stood in for; others run as they are.
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from fuser.interop.guards import Reach
from fuser.interop.numpy.context import untraceable

if TYPE_CHECKING:
    from fuser.interop.outside import Outside

_LEFT_ALONE = {"__init_subclass__", "__getstate__", "__setstate__", "__set_name__"}
_OWN_LAYOUT = {"__slots__", "__new__", "__getattribute__", "__getattr__", "__setattr__", "__delattr__", "__del__"}
_METHODS = (types.FunctionType, staticmethod, classmethod, property)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, tuple, types.GetSetDescriptorType)


class _Standing(type):
    """The class of what stands for a class: instances of that one are its own, and its attributes are not set."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, real_class(cls) or object)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, real_class(cls) or object)

    def __setattr__(cls, name: str, value: Any) -> None:
        raise untraceable(
            f"setting {cls.__name__}.{name}, which the caller would see, cannot be traced", "return the value"
        )


def real_class(cls: type) -> type | None:
    """The class for which `cls` stands; None where it stands for none."""
    return cls.__dict__.get("_stands_for")


def is_simple(cls: type) -> bool:
    """Whether a class can be stood in for: its instances are made and kept by `object` alone."""
    if type(cls) is not type or cls.__bases__ != (object,) or _OWN_LAYOUT & vars(cls).keys():
        return False
    return all(_is_followed(member) for member in vars(cls).values())


def _is_followed(member: Any) -> bool:
    if not isinstance(member, _METHODS):
        return isinstance(member, _PLAIN)
    parts = (member.fget, member.fset, member.fdel) if isinstance(member, property) else (member,)
    functions = [getattr(part, "__func__", part) for part in parts if part is not None]
    return all(isinstance(f, types.FunctionType) and "__class__" not in f.__code__.co_freevars for f in functions)


def stand_in(outside: Outside, cls: type, number: int, metaclass: type = _Standing) -> type:
    """What stands for a class, which is reached at node `number`."""
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "_stands_for": cls}
    made: type = metaclass(cls.__name__, (cls,), names)
    outside._remember(cls, number, made)  # before its methods, which may refer to it
    node = outside.held_node(cls, cls.__name__)
    for name in sorted({name for base in cls.__mro__[:-1] for name in vars(base)} - _LEFT_ALONE):
        member = _member(outside, node, cls, name, inspect.getattr_static(cls, name))
        if member is not None:
            type.__setattr__(made, name, member)
    return made


def _member(outside: Outside, node: int, cls: type, name: str, member: Any) -> Any:
    """A method, property or array of a class as a trace sees it; None for anything else."""
    title = f"{cls.__name__}.{name}"
    if not isinstance(member, (*_METHODS, np.ndarray)):
        return None
    where = outside.node(Reach.ATTRIBUTE, node, name, title)
    if isinstance(member, property):
        parts = [
            None if part is None else outside.visit(part, outside.node(Reach.ATTRIBUTE, where, which, title), title)
            for which, part in (("fget", member.fget), ("fset", member.fset), ("fdel", member.fdel))
        ]
        return property(*parts)
    if isinstance(member, classmethod):
        inner = outside.node(Reach.ATTRIBUTE, where, "__func__", title)
        return classmethod(outside.visit(member.__func__, inner, title))
    if isinstance(member, staticmethod):
        return staticmethod(outside.visit(member.__func__, where, title))
    return outside.visit(member, where, title)
