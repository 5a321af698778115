"""Names of the user's in text of ours: the one place where they become harmless.

Functions, files, arguments and axes may be called anything. What reaches messages, reports and comments of generated text
is `printable`; what becomes an identifier or a file's name is an `identifier`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

MOST_CHARACTERS = 120  # of one name in a line of text
_ELSE = re.compile(r"[^0-9A-Za-z_]+")


def printable(name: object, most: int = MOST_CHARACTERS) -> str:
    """The name in one line of visible characters that any encoding of Unicode takes; a long one loses its middle.

    It ends no comment and no line: control characters, line ends, lone surrogates and marks of direction are escaped.
    """
    text = name if isinstance(name, str) else str(name)
    if len(text) > most:
        text = f"{text[: most - 40]}...{text[-37:]}"
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text.replace("*/", "* /").replace("??/", "?? /")


def identifier(name: str) -> str:
    """The name as an identifier of every language and a file's name: ASCII letters, digits and underscores."""
    text = _ELSE.sub("_", name[:MOST_CHARACTERS])
    return f"_{text}" if not text or text[0].isdigit() else text


def described(value: object) -> str:
    """The value's `repr` in one line, or its type where that fails."""
    try:
        return printable(repr(value))
    except Exception:  # a class of the user's
        return printable(f"<{type(value).__name__}>")


def function_name(function: Any) -> str:
    """What messages and graphs call a function: its name, that of the function in a partial, or that of its class."""
    while isinstance(function, functools.partial) and not hasattr(function, "__name__"):
        function = function.func
    return printable(getattr(function, "__name__", None) or type(function).__name__)


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that decorators wrapped, as inspect.unwrap finds it, which looks for cycles too."""
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        function = inner
    return function


def parameter_names(function: Callable[..., Any]) -> tuple[list[str], list[str], list[str]]:
    """The names of the parameters by position alone, by both, and by name; as inspect.signature finds them, which takes a
    hundred microseconds for each of 600 functions."""
    function = unwrapped(function)
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__signature__"):
        found = list(inspect.signature(function).parameters.values())
        kinds = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        )
        alone, both, named = ([p.name for p in found if p.kind is kind] for kind in kinds)
        return alone, both, named
    names, positional, alone_count = code.co_varnames, code.co_argcount, code.co_posonlyargcount
    by_name = names[positional : positional + code.co_kwonlyargcount]
    return list(names[:alone_count]), list(names[alone_count:positional]), list(by_name)
