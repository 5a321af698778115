"""Outlining: each vector loop of a long kernel becomes a function, and equal loops become one function.

A compiler's work grows faster than the length of a function, and a deep network repeats the same loops on other rows, under
other names and with other numbers. In: generated kernels. Out: the functions that their loops became, and kernels that call
them. Only loops of which every effect is known are taken out; the others stay.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fuser.backends.c.compilation.canonicalization import canonical
from fuser.backends.c.function import (
    Block,
    Code,
    Do,
    Element,
    For,
    Function,
    Let,
    Module,
    Number,
    Return,
    Set,
    Statement,
    Sum,
    Symbol,
    Variable,
    code,
    expanded,
    joined,
    leaves,
    rewritten,
    walk,
)

MANY = 10  # vector loops in a kernel from which they are taken out
LIKE = 3  # like loops in a kernel from which they are
FLOATS = ("float", "double")  # types of which a function's parameter may stand for a literal
LONG = 12  # lines of a loop beside which a call is little

HIDDEN = '__attribute__((noinline, noclone, visibility("hidden"))) '  # nor compiled again for each caller's constants


@dataclass(frozen=True)
class Loop:
    """A function that loops became. Its variables are numbered, and its numbers have no values."""

    returns: str
    parameters: tuple[tuple[str, Variable], ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Call(Statement):
    """One loop of a kernel: `target`, if any, takes what function number `function` returns."""

    function: int
    target: Variable | None
    arguments: tuple[Code, ...]
    numbers: tuple[Number | Variable, ...]  # that stand where the function has one without a value


class Outline:
    """The loops taken out of a program's kernels; first all are taken, then they are written."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._numbers: dict[Loop, int] = {}
        self._taken: dict[int, list[Call]] = {}

    def take(self, kernel: Module) -> Module:
        """The kernel with a Call for each loop that was taken out; `kernel` writes the calls.

        All vector loops are, where there are many, and long loops of all kinds that have several like them; but not those
        of functions whose loops are short.
        """
        loops = [s for f in kernel.functions if not f.short_loops for s in walk(f.body) if isinstance(s, For)]
        many, likely = sum(loop.vector for loop in loops) >= MANY, len(loops) >= LIKE * LIKE
        if not many and not likely:
            return kernel
        found = {id(loop): call for loop in loops if (call := self._call(loop)) is not None}
        like = Counter(call.function for call in found.values())

        def taken(statement: Statement) -> list[Statement] | None:
            call = found.get(id(statement))
            if call is None or not isinstance(statement, For):
                return None
            if not (many and statement.vector) and (_height(statement) < LONG or like[call.function] < LIKE):
                return None
            self.calls.append(call)
            self._taken.setdefault(call.function, []).append(call)
            return [call]

        return kernel.changed(lambda function: _eased(replace(function, body=expanded(function.body, taken))))

    def _call(self, loop: For) -> Call | None:
        found = _outlined(loop)
        if found is None:
            return None
        function, target, arguments, numbers = found
        return Call(self._numbers.setdefault(function, len(self._numbers)), target, arguments, numbers)

    def functions(self) -> dict[str, Function]:
        """By name the functions. Kernels in other translation units may call them."""
        loops = list(self._numbers)
        return {name: self._function(loops[number], number, name) for number, name in self._names.items()}

    def kernel(self, kernel: Module) -> Module:
        """The kernel with its calls."""

        def written(statement: Statement) -> list[Statement] | None:
            return [self._written(statement)] if isinstance(statement, Call) else None

        return kernel.changed(lambda function: replace(function, body=expanded(function.body, written)))

    def _written(self, call: Call) -> Statement:
        arguments = [*call.arguments, *(code(call.numbers[n]) for n in self._varying[call.function])]
        text = code("{}({})", Symbol(self._names[call.function]), joined(arguments, ", "))
        return Do(code("{};", text)) if call.target is None else Set(call.target, text)

    def _function(self, loop: Loop, number: int, name: str) -> Function:
        """The function of a loop; the numbers that all its calls share are filled in."""
        varying, shared = self._varying[number], iter(enumerate(self._taken[number][0].numbers))
        variables = {n: Variable(f"number{n}", kind) for n, kind in varying.items()}

        def filled(part: Any) -> Any:
            if type(part) is not Number:
                return part
            n, value = next(shared)
            return variables.get(n, value)

        parameters = (*loop.parameters, *((variable.type, variable) for variable in variables.values()))
        return Function(Symbol(name), rewritten(loop.body, filled), parameters, loop.returns, HIDDEN)

    @functools.cached_property
    def _names(self) -> dict[int, str]:
        return {number: f"loop{n}" for n, number in enumerate(self._taken)}

    @functools.cached_property
    def _varying(self) -> dict[int, dict[int, str]]:
        """For each function the numbers in which its calls differ, which are parameters, with those parameters' types."""
        found: dict[int, dict[int, str]] = {}
        for number, calls in self._taken.items():
            columns = list(zip(*(call.numbers for call in calls)))
            found[number] = {n: column[0].type for n, column in enumerate(columns) if not _alike(column)}
        return found


def _alike(numbers: Sequence[Number | Variable]) -> bool:
    """Whether all calls give one literal."""
    return len(set(numbers)) == 1 and type(numbers[0]) is Number


def _outlined(loop: For) -> tuple[Loop, Variable | None, tuple[Code, ...], tuple[Number | Variable, ...]] | None:
    """A loop as a function, and what a Call holds; None if it is no innermost one, or has effects that are not known."""
    if loop.short or not _plain(loop, walk(loop.body)):
        return None
    loop = canonical(loop)
    inside = list(walk(loop.body))
    local = {variable for statement in (loop, *inside) for variable in _declared(statement)}
    changing = dict.fromkeys(v for s in inside if isinstance(s, Set) and isinstance(v := s.target, Variable))
    changing |= {} if loop.type else {loop.counter: None}
    places = _Places(local, local | changing.keys())
    (moved,) = rewritten((loop,), places)
    assert isinstance(moved, For)
    stored = {s.target.array for s in inside if isinstance(s, Set) and isinstance(s.target, Element)}
    stored |= {place for place, array in places.arrays.items() if array in stored}
    used = Counter(leaf for leaf in leaves(*moved.parts()) if type(leaf) is Variable)
    # A variable that is read once is a number like a literal.
    single = {v for v, times in used.items() if times == 1 and v.type in FLOATS and not v.pointer} - local
    single -= changing.keys()
    outer = [variable for variable in used if variable not in local and variable not in single]
    written = [variable for variable in changing if variable not in local]
    returned, others = (written[0] if written else None), set(written[1:])
    names = {v: v._replace(name=f"p{n}") for n, v in enumerate(outer)}
    names |= {v: v._replace(name=f"t{n}") for n, v in enumerate(v for v in used if v in local)}
    numbers: list[Number | Variable] = []

    def renamed(part: Any) -> Any:
        if type(part) is Number or part in single:
            numbers.append(part)
            return Number("", part.type)
        return names.get(part, part) if type(part) is Variable else part

    body = rewritten((moved,), renamed)
    pointers = {v: Variable(f"{names[v].name}_at", v.type, pointer=True) for v in others}
    before = tuple(Let(v.type, (names[v],), (code("*{}", pointers[v]),)) for v in outer if v in others)
    after: tuple[Statement, ...] = tuple(Do(code("*{} = {};", pointers[v], names[v])) for v in outer if v in others)
    after += () if returned is None else (Return(code(names[returned])),)
    parameters = tuple(_parameter(names[v], pointers.get(v), v in stored) for v in outer)
    function = Loop(returned.type if returned else "void", parameters, (*before, *body, *after))
    arguments = tuple(code("&{}", v) if v in others else places.arguments.get(v, code(v)) for v in outer)
    return function, returned, arguments, tuple(numbers)


def _plain(loop: For, inside: Iterable[Statement]) -> bool:
    """Whether the loop has no loop inside, and only statements whose effects are known."""
    if any(not pragma.vector for pragma in loop.pragmas) or (loop.flat and not loop.pragmas):
        return False
    return all(isinstance(s, Let | Set) or (isinstance(s, Block) and s.plain) for s in inside)


def _declared(statement: Statement) -> Iterator[Variable]:
    if isinstance(statement, Let):
        yield from statement.variables
    elif isinstance(statement, For) and statement.type:
        yield statement.counter


class _Places:
    """Rewrites an element by what the loop adds to a place that is known before it: loops on other rows then read alike."""

    def __init__(self, local: set[Variable], changing: set[Variable]) -> None:
        self.local, self.changing = local, changing
        self.arguments: dict[Variable, Code] = {}  # by the pointer that a loop is given, where it points
        self.arrays: dict[Variable, Variable] = {}  # and into which array
        self._known: dict[tuple[Variable, Sum], Variable] = {}

    def __call__(self, part: Any) -> Any:
        if type(part) is not Element or part.array in self.local or type(part.offset) is not Sum:
            return part
        if any(type(inner) is Element for _, term in part.offset.terms for inner in term):
            return part
        kept: list[tuple[str, Code]] = []
        moved: list[tuple[str, Code]] = []
        for sign, term in part.offset.terms:
            (moved if self._fixed(term) else kept).append((sign, term))
        if not moved or any(type(leaf) is Symbol for leaf in leaves(*(term for _, term in moved))):
            return part
        start = Sum(tuple(moved))
        place = self._known.get((part.array, start))
        if place is None:
            place = part.array._replace(name=f"{part.array.name}_at{len(self._known)}")
            self._known[part.array, start] = place
            self.arrays[place] = part.array
            self.arguments[place] = code("{} + {}", part.array, start)
        return Element(place, Sum(tuple(kept) or (("+", code("0")),)))

    def _fixed(self, term: Code) -> bool:
        """Whether the term names something, and nothing that the loop changes."""
        names = [leaf for leaf in leaves(term) if type(leaf) is Variable]
        return bool(names) and self.changing.isdisjoint(names)


def _parameter(variable: Variable, pointer: Variable | None, stored: bool) -> tuple[str, Variable]:
    """A parameter with its type, spelt. Of a pointer that nothing is stored to it says so; whether two may meet is no matter
    to a loop that is told to be a vector's.
    """
    if pointer is not None:
        return f"{variable.type} *restrict", pointer
    if variable.pointer:
        return f"{'' if stored else 'const '}{variable.type} *", variable
    return variable.type, variable


def _eased(function: Function) -> Function:
    """The function; one all of whose loops do no more than call is marked, so that no optimiser dwells on it."""
    loops = [s for s in walk(function.body) if isinstance(s, For)]
    calling = bool(loops) and all(any(isinstance(s, Call) for s in walk(loop.body)) for loop in loops)
    return replace(function, calling=function.calling or calling)


def _height(statement: Statement) -> int:
    """The lines of a statement."""
    if not isinstance(statement, For | Block) or statement.flat:
        return 1
    pragmas = len(statement.pragmas) if isinstance(statement, For) else 0
    return 2 + pragmas + sum(map(_height, statement.body))
