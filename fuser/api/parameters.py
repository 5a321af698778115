"""Parameters of a user's function by number and by name: which arguments are static or donated, however they are passed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fuser.ir.names import function_name
from fuser.ir.source import current_source


class Signature:
    """`__signature__` of a jitted function: `inspect` asks for it where it is told not to follow `__wrapped__`."""

    def __get__(self, jitted: Any, owner: type) -> inspect.Signature:
        if jitted is None:  # the class has the signature of its constructor
            raise AttributeError("__signature__")
        return inspect.signature(jitted.function)


def numbers_of(value: int | Iterable[int] | None) -> tuple[int, ...]:
    """One number, several, or none."""
    return () if value is None else (value,) if isinstance(value, int) else tuple(value)


def names_of(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """One name, several, or none."""
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def both_ways(
    function: Callable[..., Any], argnums: Any, argnames: Any, what: str = "static_"
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Numbers and names of the same parameters, so that an argument is found whichever way it is passed; both as they are
    where both are given, as they may be meant to differ."""
    numbers, names = numbers_of(argnums), names_of(argnames)
    if not numbers and not names:
        return (), ()
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        if names and what == "donate_":
            raise ValueError(
                f"Getting the signature of function {function} failed. Pass donate_argnums instead of donate_argnames."
            ) from None
        return numbers, names
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    _checked(function, numbers, names, parameters, positional)
    if argnums is not None and argnames is not None:
        return numbers, names
    all_numbers = {*numbers, *(positional.index(n) for n in names if n in positional)}
    all_names = {*names, *(positional[n] for n in numbers if -len(positional) <= n < len(positional))}
    return tuple(sorted(all_numbers)), tuple(sorted(all_names))


def _checked(
    function: Callable[..., Any],
    numbers: Any,
    names: Any,
    parameters: Sequence[inspect.Parameter],
    positional: Sequence[str],
) -> None:
    """ValueError for a number or name that no parameter of the function has."""
    for name in names:
        if name not in [p.name for p in parameters] and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            raise ValueError(
                f"{function_name(function)} has no parameter {name!r}; it has {', '.join(p.name for p in parameters)}"
            )
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for number in numbers:
        if not variadic and not -len(positional) <= number < len(positional):
            raise ValueError(
                f"{function_name(function)} has {len(positional)} positional parameters, so none has number {number}"
            )


class Typed:
    """A static value; 1, 1.0 and True are told apart, and so are 0.0 and -0.0, in tuples too. Each nan is equal to any other."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash((type(self.value), _hash(self.value)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Typed) and _same(self.value, other.value)


def _hash(value: Any) -> int:
    if isinstance(value, (float, complex)) and value != value:
        return 0
    return hash(tuple(map(_hash, value))) if type(value) is tuple else hash(value)


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all(map(_same, a, b))
    if type(a) is float:
        return a == b and math.copysign(1.0, a) == math.copysign(1.0, b) if a == a else b != b
    if type(a) is complex:
        return _same(a.real, b.real) and _same(a.imag, b.imag)
    return bool(a == b)


def incomparable(error: Exception) -> ValueError:
    """What a comparison of static arguments raised, which was not to be."""
    return ValueError(
        "static arguments should be comparable using __eq__. The following error was raised when comparing two of them: "
        f"{type(error).__name__}: {error} ({current_source().short})"
    )
