"""Objects that a traced function has made and returns: each call gives a new one, whose attributes are results of the program.

In: a result that holds instances of the user's classes. Out: the same with nodes of a tree in their places, whose leaves are the
attributes; to unflatten such a tree makes the instances, without their `__init__`, as copying does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.interop.classes import real_class
from fuser.interop.numpy.context import untraceable
from fuser.interop.numpy.times import TimeArray, as_result
from fuser.interop.numpy.traced import TracedArray
from fuser.interop.outside import Outside, is_object
from fuser.interop.records import refuse_record
from fuser.trace import tree

_VALUES = (type(None), bool, int, float, complex, str, bytes, range, slice, type, np.generic, np.dtype)


class _Made:
    """An instance, taken apart."""

    def __init__(self, cls: type, attributes: dict[str, Any]) -> None:
        self.cls, self.attributes = cls, attributes


def _instance(how: tuple[type, tuple[str, ...]], values: Any) -> Any:
    cls, names = how
    made: Any = object.__new__(cls)
    made.__dict__.update(zip(names, values))
    return made


tree.register_pytree_node(
    _Made,
    lambda made: (tuple(made.attributes.values()), (made.cls, tuple(made.attributes))),
    _instance,
)


def taken_apart(outside: Outside, result: Any) -> Any:
    """A result with nodes in the places of objects; UnsupportedError for those that a call cannot make anew."""
    seen: set[int] = set()

    def within(value: Any) -> Any:
        refuse_record(value)
        if type(value) is TimeArray:
            return as_result(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(within, value))
        if type(value) in (list, tuple):
            return type(value)([within(v) for v in value])
        if type(value) is dict:
            return {key: within(v) for key, v in value.items()}
        real = real_class(type(value))
        if real is None and (not is_object(value) or type(value) is TracedArray or outside.stands(value)):
            return value
        if id(value) in seen:
            raise _refused(value, "twice")
        seen.add(id(value))
        return _Made(real or type(value), {name: attribute(v, value) for name, v in _attributes(value).items()})

    def attribute(value: Any, owner: Any) -> Any:
        made = within(value)
        if not all(_is_value(leaf) or outside.stands(leaf) for leaf in tree.flatten_as_filled(made)[0]):
            raise _refused(owner, "with such attributes")
        return made

    return within(result)


def _is_value(leaf: Any) -> bool:
    return type(leaf) in (TracedArray, np.ndarray) or isinstance(leaf, _VALUES)


def _attributes(value: Any) -> dict[str, Any]:
    cls = type(value)
    slots = any("__slots__" in vars(base) for base in cls.__mro__[:-1])
    if cls.__new__ is not object.__new__ or (slots and real_class(cls) is None) or not hasattr(value, "__dict__"):
        raise _refused(value, "of such a class")
    return dict(value.__dict__)


def _refused(value: Any, how: str) -> UnsupportedError:
    return untraceable(
        f"returning a {type(value).__name__} that the function has made, {how}, cannot be traced", "return its arrays"
    )
