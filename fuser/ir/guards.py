"""Integers that record what a program asks of them, so that its answers for one size are known to hold for others.

A `Number` has a value, and is a line of a straight-line program from the sizes of variables to it. Arithmetic adds a line; a
comparison is decided by the values, and becomes a guard: other sizes for which it comes out the same would have led the
compiler the same way. What needs the value itself (an index, a text) is a guard that the number is what it is. So what was
computed with Numbers serves all sizes that pass the guards, with the numbers of `instance`.

"Guards" and "specialization": Ansel et al., "PyTorch 2", ASPLOS 2024, section 5 (dynamic shapes).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

MOST_LINES = 20_000  # operations and guards of one program
MOST_CHARACTERS = 120  # of an expression in words
_OPERATIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "add": ("{} + {}", operator.add),
    "sub": ("{} - {}", operator.sub),
    "mul": ("{} * {}", operator.mul),
    "floordiv": ("{} // {}", operator.floordiv),
    "mod": ("{} % {}", operator.mod),
    "truediv": ("{} / {}", operator.truediv),
    "pow": ("{} ** {}", operator.pow),
    "lshift": ("{} << {}", operator.lshift),
    "rshift": ("{} >> {}", operator.rshift),
    "and": ("{} & {}", operator.and_),
    "or": ("{} | {}", operator.or_),
    "xor": ("{} ^ {}", operator.xor),
}
_UNARY: dict[str, tuple[str, Callable[..., Any]]] = {
    "neg": ("-{}", operator.neg),
    "abs": ("abs({})", abs),
    "invert": ("~{}", operator.invert),
}
_ROUNDED: dict[str, tuple[str, Callable[..., Any]]] = {
    "round": ("round({})", round),
    "floor": ("{} // 1", lambda value: value // 1),
    "ceil": ("-(-{} // 1)", lambda value: -(-value // 1)),
}
_COMPARISONS: dict[str, tuple[str, str, Callable[..., bool]]] = {
    "eq": ("{} == {}", "{} != {}", operator.eq),
    "ne": ("{} != {}", "{} == {}", operator.ne),
    "lt": ("{} < {}", "{} >= {}", operator.lt),
    "le": ("{} <= {}", "{} > {}", operator.le),
    "gt": ("{} > {}", "{} <= {}", operator.gt),
    "ge": ("{} >= {}", "{} < {}", operator.ge),
}
_COMMUTE = ("add", "mul")


class TooManyGuards(Exception):
    """A program asks more of its sizes than is worth checking."""


class Guards:
    """The variables with the sizes that answers are given for, the lines, and the guards; `numbers` has a Number a variable."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self.lines: list[tuple[str, tuple[Any, ...]]] = []  # a form, and operands: Numbers or constants
        self.known: dict[Any, Number] = {}
        self.guards: dict[tuple[str, tuple[Any, ...]], None] = {}
        self.ended = False
        self.numbers = {name: self.line(name, (), value) for name, value in self.sizes.items()}

    def line(self, form: str, operands: tuple[Any, ...], value: Any) -> Number:
        """The Number of this operation, which is one for equal operands."""
        key = form, tuple([(type(o), o.place if type(o) is Number else o) for o in operands])
        if (found := self.known.get(key)) is None:
            self._count()
            found = self.known[key] = Number(self, len(self.lines), value)
            self.lines.append((form, operands))
        return found

    def guard(self, form: str, operands: tuple[Any, ...]) -> None:
        """Other sizes must fulfil this too."""
        key = form, tuple([o.place if type(o) is Number else ("constant", o) for o in operands])
        if key not in self.guards:
            self._count()
            self.guards[key] = None

    def _count(self) -> None:
        if self.ended:
            raise RuntimeError("a size was asked for after its guards were written; please report this")
        if len(self.lines) + len(self.guards) > MOST_LINES:
            raise TooManyGuards

    def instance(self, tree: Any) -> Callable[..., Any]:
        """A function of the variables' sizes: `tree`, nested tuples, with their numbers, or None where a guard does not hold.

        Nothing may be asked of the Numbers afterwards: RuntimeError.
        """
        constants: dict[int, Any] = {}
        result = self._written(tree, constants)
        self.ended = True
        values = {f"c{n}": value for n, (_, value) in enumerate(constants.items())}
        return self._function(numbers_in(tree), lambda guard: "None", result, values)

    def failing(self, sizes: Mapping[str, int]) -> str:
        """What holds for other sizes and not for these: the first guard that they fail; "" where they pass all."""
        return self._function([], lambda guard: repr(self._in_words(*guard)), "''", {})(**sizes)  # type: ignore[no-any-return]

    def _function(
        self, wanted: Sequence[Number], of_guard: Callable[[Any], str], result: str, values: dict[str, Any]
    ) -> Callable[..., Any]:
        """A function of the variables' sizes: `result` once the lines behind it are computed, `of_guard` where a guard fails."""
        body = [f"        t{n} = {self._spelt(*self.lines[n])}" for n in sorted(self._needed(wanted))]
        tests = [f"    if {self._test(*guard)}: return {of_guard(guard)}" for guard in self.guards]
        divided = ["    try:", *body, "    except ZeroDivisionError: return None"] if body else []
        lines = [f"def instance({', '.join(self.sizes)}):", *divided, *tests, f"    return {result}"]
        exec("\n".join(lines), values)
        return values["instance"]  # type: ignore[no-any-return]

    def _test(self, form: str, operands: tuple[Any, ...]) -> str:
        return form.format(*(f"t{o}" if type(o) is int else repr(o[1]) for o in operands))

    def _in_words(self, form: str, operands: tuple[Any, ...]) -> str:
        """A guard's test over the variables' names."""
        known: dict[int, str] = {}
        words = [self._expression(o, known) if type(o) is int else repr(o[1]) for o in operands]
        return form.format(*words)

    def _expression(self, place: int, known: dict[int, str]) -> str:
        if place not in known:
            form, operands = self.lines[place]
            words = [self._expression(o.place, known) if type(o) is Number else repr(o) for o in operands]
            text = form.format(*words)
            known[place] = text if not operands else f"({text})" if len(text) < MOST_CHARACTERS else "(…)"
        return known[place]

    def _spelt(self, form: str, operands: tuple[Any, ...]) -> str:
        return form.format(*(f"t{o.place}" if type(o) is Number else repr(o) for o in operands))

    def _needed(self, wanted: Sequence[Number]) -> set[int]:
        """The places of the lines behind the guards and these Numbers."""
        stack = [o for _, operands in self.guards for o in operands if type(o) is int]
        stack += [n.place for n in wanted]
        needed: set[int] = set()
        while stack:
            place = stack.pop()
            if place not in needed:
                needed.add(place)
                stack += [o.place for o in self.lines[place][1] if type(o) is Number]
        return needed

    def _written(self, tree: Any, constants: dict[int, Any]) -> str:
        """An expression for the tree; what holds no Number is a constant."""
        if type(tree) is Number:
            return f"t{tree.place}"
        if type(tree) is tuple and has_numbers(tree):
            return f"({' '.join(f'{self._written(part, constants)},' for part in tree)})"
        constants.setdefault(id(tree), tree)
        return f"c{list(constants).index(id(tree))}"


def numbers_in(tree: Any) -> list[Number]:
    """The Numbers in nested tuples."""
    if type(tree) is Number:
        return [tree]
    return [number for part in tree for number in numbers_in(part)] if type(tree) is tuple else []


def has_numbers(tree: Any) -> bool:
    """Whether there are Numbers in nested tuples."""
    return bool(numbers_in(tree))


class Number:
    """An integer, or a float that came of one, of `Guards`; it passes for one wherever that is asked by `isinstance`."""

    __slots__ = ("guards", "place", "value")
    __array_ufunc__ = None  # NumPy leaves operators to the methods here

    def __init__(self, guards: Guards, place: int, value: Any) -> None:
        self.guards, self.place, self.value = guards, place, value

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.value)

    def pinned(self) -> Any:
        """The value, which other sizes must give too."""
        self.guards.guard("{} != {}", (self, self.value))
        return self.value

    def __hash__(self) -> int:
        return hash((id(self.guards), self.place))

    def __bool__(self) -> bool:
        self.guards.guard("not {}" if self.value else "{}", (self,))
        return bool(self.value)

    def bit_length(self) -> Any:
        """As that of int."""
        return self.guards.line("{}.bit_length()", (self,), self.value.bit_length())

    def item(self) -> Number:
        """Itself."""
        return self

    def __index__(self) -> int:
        return operator.index(self.pinned())

    def __int__(self) -> int:
        return int(self.pinned())

    def __float__(self) -> float:
        return float(self.pinned())

    def __str__(self) -> str:
        return str(self.pinned())

    def __repr__(self) -> str:
        return repr(self.pinned())

    def __format__(self, spec: str) -> str:
        return format(self.pinned(), spec)

    def __pos__(self) -> Number:
        return self

    def __copy__(self) -> Number:
        return self

    def __deepcopy__(self, memo: Any) -> Number:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a size of a program for all sizes cannot be pickled")


def _operand(value: Any) -> Any:
    """A number that operations take; NotImplemented for anything else."""
    if type(value) in (Number, int, float, bool):
        return value
    return value.item() if isinstance(value, (np.integer, np.floating)) else NotImplemented


def _value(operand: Any) -> Any:
    return operand.value if type(operand) is Number else operand


def _binary(name: str, form: str, apply: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    def method(self: Number, other: Any) -> Any:
        if (theirs := _operand(other)) is NotImplemented:
            return NotImplemented
        operands = (theirs, self) if swapped else (self, theirs)
        if (trivial := _trivial(name, *operands)) is not None:
            return trivial
        if name in _COMMUTE:
            operands = tuple(
                sorted(operands, key=lambda o: (type(o) is not Number, o.place if type(o) is Number else 0))
            )
        return self.guards.line(form, operands, apply(*map(_value, operands)))

    return method


def _trivial(name: str, a: Any, b: Any) -> Any:
    """What needs no line: integers times 0 and 1, plus and minus 0, and divided by 1."""
    integer = isinstance(_value(a), int) and isinstance(_value(b), int)
    if not integer:
        return None
    if (name in ("mul", "floordiv") and type(b) is int and b == 1) or (
        name in ("add", "sub") and type(b) is int and b == 0
    ):
        return a
    if (name == "mul" and type(a) is int and a == 1) or (name == "add" and type(a) is int and a == 0):
        return b
    if (name == "mul" and 0 in [o for o in (a, b) if type(o) is int]) or (name == "mod" and type(b) is int and b == 1):
        return 0
    return 0 if name == "sub" and a is b else None


def _unary(form: str, apply: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: self.guards.line(form, (self,), apply(self.value))


def _rounded(form: str, apply: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Number, digits: Any = None) -> Any:
        if digits is not None:
            return round(self.pinned(), digits)
        return (
            self if isinstance(self.value, int) else self.guards.line(f"int({form})", (self,), int(apply(self.value)))
        )

    return method


def _comparison(holds: str, contrary: str, apply: Callable[..., bool]) -> Callable[..., Any]:

    def method(self: Number, other: Any) -> Any:
        if (theirs := _operand(other)) is NotImplemented or (
            type(theirs) is Number and theirs.guards is not self.guards
        ):
            return NotImplemented
        if theirs is self:
            return apply(0, 0)
        found = apply(self.value, _value(theirs))
        self.guards.guard(contrary if found else holds, (self, theirs))
        return bool(found)

    return method


def _install() -> None:
    for name, (form, apply) in _OPERATIONS.items():
        setattr(Number, f"__{name}__", _binary(name, form, apply, False))
        setattr(Number, f"__r{name}__", _binary(name, form, apply, True))
    for name, (form, apply) in _UNARY.items():
        setattr(Number, f"__{name}__", _unary(form, apply))
    for name, (form, apply) in _ROUNDED.items():
        setattr(Number, f"__{name}__", _rounded(form, apply))
    for name, comparison in _COMPARISONS.items():
        setattr(Number, f"__{name}__", _comparison(*comparison))
    Number.__divmod__ = lambda self, other: (self // other, self % other)  # type: ignore[operator]
    Number.__rdivmod__ = lambda self, other: (other // self, other % self)  # type: ignore[attr-defined]


_install()
