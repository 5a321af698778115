"""`type(x)` in a traced function: the type that x has in NumPy, not that of what stands for it.

`SEEN_TYPE` stands for the builtin. A function that runs in segments calls the builtin itself, which nothing stands for there:
`asks_for_types` tells of it.
"""

from __future__ import annotations

import dis
import types
from typing import Any

from fuser.interop.read_only import ReadOnlyDict, ReadOnlyList


class _Seen(type):
    """The class of `SEEN_TYPE`, which is called as `type` is."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return seen(args[0]) if len(args) == 1 and not kwargs else type(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, type)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return issubclass(subclass, type)


def seen(value: Any) -> Any:
    """The type of a value as the traced function is to see it."""
    kind = type(value)
    if kind in (ReadOnlyList, ReadOnlyDict):
        return type(value.origin) if value.origin is not None else kind.__mro__[1]
    weak = getattr(value, "weak", None) if hasattr(kind, "reads") else None
    found = weak if isinstance(weak, type) and weak in (int, float, complex) else value.__class__
    return SEEN_TYPE if found is type else found  # so that `type(Class) is type`


SEEN_TYPE = _Seen("type", (), {"__doc__": type.__doc__})


def asks_for_types(code: types.CodeType) -> bool:
    """Whether code calls for the builtin `type` by its name."""
    return "type" in code.co_names and any(
        instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and instruction.argval == "type"
        for instruction in dis.get_instructions(code)
    )
