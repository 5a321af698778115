"""Read-only views of the caller's lists and dicts in a traced function: a change raises, for the caller would not see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.interop.numpy.context import untraceable


def refuse_change(name: str, kind: str) -> Any:
    """Raise the error for a change of something of the caller's."""
    raise untraceable(
        f"changing the {kind} {name}, which was not made in the traced function, cannot be traced: the caller would not see it",
        f"change a copy, {name}.copy(), and return it",
    )


def _holds(container: Any, key: Any, value: Any) -> bool:
    try:
        return super(type(container), container).__getitem__(key) is value
    except (LookupError, TypeError):
        return False


def _refusing(method: str, kind: str) -> Any:
    def change(self: Any, *args: Any, **kwargs: Any) -> Any:
        if method == "__setitem__" and _holds(self, *args):
            return None  # the end of `parameters["w"] -= step`, which has written to the array already
        return refuse_change(self.name, kind)

    change.__name__ = method
    return change


class ReadOnlyList(list[Any]):
    """A list that must not be changed; `origin` is the one that it stands for."""

    name = ""
    origin: Any = None


class ReadOnlyDict(dict[Any, Any]):
    """A dict that must not be changed."""

    name = ""
    origin: Any = None

    def __missing__(self, key: Any) -> Any:
        if hasattr(type(self.origin), "__missing__"):
            refuse_change(self.name, type(self.origin).__name__)
        raise KeyError(key)


for _method in (
    "append",
    "extend",
    "insert",
    "pop",
    "remove",
    "clear",
    "sort",
    "reverse",
    "__setitem__",
    "__delitem__",
):
    setattr(ReadOnlyList, _method, _refusing(_method, "list"))
for _method in ("__iadd__", "__imul__"):
    setattr(ReadOnlyList, _method, _refusing(_method, "list"))
for _method in ("__setitem__", "__delitem__", "pop", "popitem", "clear", "update", "setdefault", "__ior__"):
    setattr(ReadOnlyDict, _method, _refusing(_method, "dict"))


def read_only(items: Any, origin: Any, name: str) -> Any:
    """A ReadOnlyList or ReadOnlyDict with these items."""
    made = ReadOnlyDict(items) if isinstance(items, dict) else ReadOnlyList(items)
    made.name, made.origin = name, origin
    return made


def items_of(container: Any) -> tuple[Any, ...]:
    """The items of a list, or the keys and values of a dict, as they lie in it."""
    return (
        tuple(list.__iter__(container))
        if isinstance(container, list)
        else (*dict.keys(container), *dict.values(container))
    )


def is_sequence(value: Any) -> bool:
    """Whether a value is a plain list or tuple, or stands for one."""
    return type(value) in (list, tuple, ReadOnlyList)


def read_only_arguments(
    args: Any, kwargs: dict[str, Any], keep: Callable[[Any], Any]
) -> tuple[list[Any], dict[str, Any]]:
    """A call's arguments with the lists and dicts among them such that a change raises; `keep` is told of each."""

    def within(value: Any, name: str) -> Any:
        if type(value) is list:
            return keep(read_only([within(v, f"{name}[{n}]") for n, v in enumerate(value)], None, name))
        if type(value) is dict:
            return keep(read_only({k: within(v, f"{name}[{k!r}]") for k, v in value.items()}, None, name))
        return tuple(within(v, f"{name}[{n}]") for n, v in enumerate(value)) if type(value) is tuple else value

    return [within(v, f"argument {n}") for n, v in enumerate(args)], {n: within(v, n) for n, v in kwargs.items()}


def released(result: Any) -> Any:
    """A result with plain lists and dicts in the place of arguments'."""
    if isinstance(result, (ReadOnlyList, ReadOnlyDict)) and result.origin is not None:
        return result
    if type(result) in (list, ReadOnlyList):
        return [released(v) for v in result]
    if type(result) in (dict, ReadOnlyDict):
        return {k: released(v) for k, v in result.items()}
    return tuple(released(v) for v in result) if type(result) is tuple else result
