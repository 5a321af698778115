"""C functions as data: declarations, loops, stores and calls that know their names and types; text is spelt from them last.

An expression is `Code`: fixed text, and between it what a transform may ask for or replace: variables, elements of arrays,
numbers, and functions that stand elsewhere. Fixed text holds operators, casts and integers, and no name that a function has.
"""

from __future__ import annotations

import functools
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn


def _refused(data: Any) -> TypeError:
    return TypeError(f"{data!r} is data, and would be text before its time; put it into an expression with `code`")


class Variable(NamedTuple):
    """A name of a function's own, and its C type; of a pointer or an array the type of its elements."""

    name: str
    type: str
    pointer: bool = False

    def __format__(self, _: str) -> NoReturn:
        raise _refused(self)


class Number(NamedTuple):
    """A floating-point literal as it is written, and its C type."""

    text: str
    type: str

    def __format__(self, _: str) -> NoReturn:
        raise _refused(self)


class Symbol(NamedTuple):
    """What stands outside of the function: another function, or a global variable."""

    name: str

    def __format__(self, _: str) -> NoReturn:
        raise _refused(self)


class Own(NamedTuple):
    """A function of the same kernel: its name is the kernel's, which is not known yet, with a suffix."""

    suffix: str = ""

    def __format__(self, _: str) -> NoReturn:
        raise _refused(self)


class Code(tuple[Any, ...]):
    """An expression: fixed text (str), Variable, Number, Symbol, Own and Element, in the order of the text."""

    __slots__ = ()

    def __format__(self, _: str) -> NoReturn:
        raise _refused(self)


class Sum(NamedTuple):
    """An index as its terms, each with its sign."""

    terms: tuple[tuple[str, Code], ...]

    def __format__(self, _: str) -> NoReturn:
        raise _refused(self)

    def code(self) -> Code:
        found: list[Any] = []
        for number, (sign, term) in enumerate(self.terms):
            found += [*([f" {sign} "] if number else ["-"] if sign == "-" else []), *term]
        return Code(found)


class Element(NamedTuple):
    """An element of an array. An offset that is no Sum is taken as a whole."""

    array: Variable
    offset: Sum | Code

    def __format__(self, _: str) -> NoReturn:
        raise _refused(self)


NOTHING = Code()
Part = str | int | Variable | Number | Symbol | Own | Element | Sum | Code
Range = tuple[Part, Part]  # the first iteration of a loop, and the one after its last


def code(form: str | Part, *parts: Part, names: Mapping[str, Variable] | None = None) -> Code:
    """The expression that `form` becomes with `parts` in the place of `{}` or `{0}`, and variables in that of their names."""
    if not isinstance(form, str):
        parts, form = (form,), "{}"
    found: list[Any] = []
    for piece in _pieces(form):
        if type(piece) is str:
            found.append(piece)
            continue
        part = names[piece.text] if type(piece) is _Name else parts[piece]  # type: ignore[index,union-attr]
        if type(part) is Code:
            found += part
        elif type(part) is Sum:
            found += part.code()
        else:
            found.append(str(part) if isinstance(part, (str, int)) else part)
    return Code(found)


@dataclass(frozen=True, slots=True)
class _Name:
    text: str


@functools.lru_cache(4096)
def _pieces(form: str) -> tuple[str | int | _Name, ...]:
    found: list[str | int | _Name] = []
    count = 0
    for text, slot, _, _ in string.Formatter().parse(form):
        if text:
            found.append(text)
        if slot is not None:
            found.append(count if not slot else int(slot) if slot.isdigit() else _Name(slot))
            count += not slot
    return tuple(found)


def joined(parts: Iterable[Part], between: str) -> Code:
    """The parts with the same text between them."""
    found: list[Any] = []
    for number, part in enumerate(parts):
        found += [between] if number else []
        found += code(part)
    return Code(found)


@dataclass(frozen=True, slots=True)
class Spelling:
    """The name of a kernel's own functions; and whether numbers and comments are written, without which texts are compared."""

    own: str = "kernel"
    numbers: bool = True
    comments: bool = True


PLAIN = Spelling()
KEY = Spelling(comments=False)
FORM = Spelling(comments=False, numbers=False)


def spelt(expression: Code, how: Spelling = PLAIN) -> str:
    """The text of an expression."""
    found = []
    for part in expression:
        if type(part) is str:
            found.append(part)
        elif type(part) is Variable:
            found.append(part.name)
        elif type(part) is Element:
            found.append(f"{part.array.name}[{_spelt_index(part.offset, how)}]")
        elif type(part) is Number:
            found.append(part.text if how.numbers else part.type)
        elif type(part) is Symbol:
            found.append(part.name)
        else:
            found.append(how.own + part.suffix)
    return "".join(found)


def _spelt_index(index: Sum | Code, how: Spelling) -> str:
    if not isinstance(index, Sum):
        return spelt(index, how)
    [(sign, first), *rest] = index.terms
    text = f"{'-' if sign == '-' else ''}{spelt(first, how)}"
    return "".join([text, *(f" {sign} {spelt(term, how)}" for sign, term in rest)])


def leaves(*expressions: Code) -> list[Variable | Number | Symbol | Own]:
    """The variables, numbers and functions of expressions, in the order of the text."""
    found: list[Any] = []
    for expression in expressions:
        for part in expression:
            kind = type(part)
            if kind is Element:
                found.append(part.array)
                offset = part.offset
                found += leaves(*(term for _, term in offset.terms)) if type(offset) is Sum else leaves(offset)
            elif kind is not str:
                found.append(part)
    return found


Change = Callable[[Any], Any]  # of a leaf or an Element: what stands in its place (a part, or Code)


def changed(expression: Code, change: Change) -> Code:
    """The expression with each part changed. An element is asked for first; if it stays, its array and index are."""
    found: list[Any] = []
    for part in expression:
        if type(part) is str:
            found.append(part)
            continue
        new = change(part)
        if type(new) is Element and new is part:
            new = Element(change(part.array), _changed_index(part.offset, change))
        if type(new) is Code:
            found += new
        else:
            found.append(new)
    return Code(found)


def _changed_index(index: Sum | Code, change: Change) -> Sum | Code:
    if type(index) is Sum:
        return Sum(tuple((sign, changed(term, change)) for sign, term in index.terms))
    return changed(index, change)  # type: ignore[arg-type]


# Statements. `parts` are a statement's own expressions and the variables that it declares, in the order of the text.


class Statement:
    __slots__ = ()
    body: tuple[Statement, ...] = ()

    def parts(self) -> Iterator[Code]:
        raise NotImplementedError

    def changed(self, change: Change, body: Callable[[Statement], Statement]) -> Statement:
        """The statement with `change` done to its expressions and `body` to the statements in it."""
        raise NotImplementedError

    def lines(self, indent: str, how: Spelling) -> Iterator[str]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Let(Statement):
    """Declares variables of one type, each with a value. `type` is spelt, with `const` and `*restrict`."""

    type: str
    variables: tuple[Variable, ...]
    values: tuple[Code, ...]
    remark: str = ""  # a comment behind it

    def parts(self) -> Iterator[Code]:
        for variable, value in zip(self.variables, self.values):
            yield Code((variable,))
            yield value

    def changed(self, change: Change, body: Callable[[Statement], Statement]) -> Let:
        pairs = [(change(variable), changed(value, change)) for variable, value in zip(self.variables, self.values)]
        return Let(self.type, tuple(v for v, _ in pairs), tuple(value for _, value in pairs), self.remark)

    def lines(self, indent: str, how: Spelling) -> Iterator[str]:
        values = ", ".join(f"{v.name} = {spelt(value, how)}" for v, value in zip(self.variables, self.values))
        remark = f"  // {self.remark}" if self.remark else ""
        yield f"{indent}{self.type}{'' if self.type.endswith('*') else ' '}{values};{remark}"


@dataclass(frozen=True, slots=True)
class Buffer(Statement):
    """Declares an array on the stack. `dynamic`: its length is not known when the function is compiled."""

    array: Variable
    extent: Code
    ending: str = ""  # attributes, or initial values
    dynamic: bool = False

    def parts(self) -> Iterator[Code]:
        yield Code((self.array,))
        yield self.extent

    def changed(self, change: Change, body: Callable[[Statement], Statement]) -> Buffer:
        return Buffer(change(self.array), changed(self.extent, change), self.ending, self.dynamic)

    def lines(self, indent: str, how: Spelling) -> Iterator[str]:
        kind, name, extent = self.array.type, self.array.name, spelt(self.extent, how)
        if self.dynamic:
            yield f"{indent}{kind} *restrict {name} = __builtin_alloca_with_align({extent} * sizeof({kind}), 512);"
        else:
            yield f"{indent}{kind} {name}[{extent}]{self.ending};"


@dataclass(frozen=True, slots=True)
class Set(Statement):
    """Assigns to a variable, or stores to an element of an array; with `|=` and the like, reads it first."""

    target: Variable | Element
    value: Code
    operator: str = "="

    def parts(self) -> Iterator[Code]:
        yield Code((self.target,))
        yield self.value

    def changed(self, change: Change, body: Callable[[Statement], Statement]) -> Set:
        (target,) = changed(Code((self.target,)), change)
        return Set(target, changed(self.value, change), self.operator)

    def lines(self, indent: str, how: Spelling) -> Iterator[str]:
        yield f"{indent}{spelt(Code((self.target,)))} {self.operator} {spelt(self.value, how)};"


@dataclass(frozen=True, slots=True)
class Do(Statement):
    """A line of which no more is known than what it names: a call, or a jump. Loops with one stay where they are."""

    line: Code

    def parts(self) -> Iterator[Code]:
        yield self.line

    def changed(self, change: Change, body: Callable[[Statement], Statement]) -> Do:
        return Do(changed(self.line, change))

    def lines(self, indent: str, how: Spelling) -> Iterator[str]:
        yield indent + spelt(self.line, how)


@dataclass(frozen=True, slots=True)
class Return(Statement):
    value: Code

    def parts(self) -> Iterator[Code]:
        yield self.value

    def changed(self, change: Change, body: Callable[[Statement], Statement]) -> Return:
        return Return(changed(self.value, change))

    def lines(self, indent: str, how: Spelling) -> Iterator[str]:
        yield f"{indent}return {spelt(self.value, how)};"


@dataclass(frozen=True, slots=True)
class Block(Statement):
    """Statements under a head: `if (test)`, `do` with its `ending`, or nothing. `plain`: they run in order, at most once."""

    head: Code
    body: tuple[Statement, ...]
    ending: Code = NOTHING
    plain: bool = True
    flat: bool = False  # on one line

    def parts(self) -> Iterator[Code]:
        yield self.head
        for statement in self.body:
            yield from statement.parts()
        yield self.ending

    def changed(self, change: Change, body: Callable[[Statement], Statement]) -> Block:
        head = changed(self.head, change)
        inside = tuple(map(body, self.body))
        return Block(head, inside, changed(self.ending, change), self.plain, self.flat)

    def lines(self, indent: str, how: Spelling) -> Iterator[str]:
        head, ending = spelt(self.head, how), spelt(self.ending, how)
        if self.flat:
            yield f"{indent}{head} {_flat(self.body, how)}{ending}"
            return
        yield f"{indent}{head} {{"
        for statement in self.body:
            yield from statement.lines(indent + "  ", how)
        yield f"{indent}}}{ending}"


@dataclass(frozen=True, slots=True)
class Pragma:
    """What stands before a loop. `vector`: the loop is a vector's, and nothing else."""

    text: Code
    vector: bool = False


@dataclass(frozen=True, slots=True)
class For(Statement):
    """A loop. `type` is that of a counter which the loop declares; "" where it goes on with one that is there. A `short`
    one takes less time than a call."""

    counter: Variable
    type: str
    first: Code
    test: Code
    step: Code
    body: tuple[Statement, ...]
    pragmas: tuple[Pragma, ...] = ()
    flat: bool = False
    short: bool = False

    @property
    def vector(self) -> bool:
        return any(pragma.vector for pragma in self.pragmas)

    def parts(self) -> Iterator[Code]:
        for pragma in self.pragmas:
            yield pragma.text
        if self.type:
            yield Code((self.counter,))
            yield self.first
        yield self.test
        yield self.step
        for statement in self.body:
            yield from statement.parts()

    def changed(self, change: Change, body: Callable[[Statement], Statement]) -> For:
        pragmas = tuple(Pragma(changed(pragma.text, change), pragma.vector) for pragma in self.pragmas)
        first, test, step = (changed(part, change) for part in (self.first, self.test, self.step))
        inside = tuple(map(body, self.body))
        return For(change(self.counter), self.type, first, test, step, inside, pragmas, self.flat, self.short)

    def lines(self, indent: str, how: Spelling) -> Iterator[str]:
        for pragma in self.pragmas:
            yield f"{indent}#pragma {spelt(pragma.text, how)}"
        start = f"{self.type} {self.counter.name} = {spelt(self.first, how)}" if self.type else ""
        test, step = spelt(self.test, how), spelt(self.step, how)
        head = f"{indent}for ({start};{' ' if test else ''}{test};{' ' if step else ''}{step})"
        if self.flat:
            yield f"{head} {_flat(self.body, how)}"
            return
        yield f"{head} {{"
        for statement in self.body:
            yield from statement.lines(indent + "  ", how)
        yield f"{indent}}}"


def _flat(body: tuple[Statement, ...], how: Spelling) -> str:
    text = " ".join(line for statement in body for line in statement.lines("", how))
    return text if len(body) == 1 and isinstance(body[0], Do) else f"{{ {text} }}"


def walk(body: Iterable[Statement]) -> Iterator[Statement]:
    """The statements, and those in them, each before what is in it."""
    for statement in body:
        yield statement
        if statement.body:
            yield from walk(statement.body)


def expanded(
    body: Iterable[Statement], change: Callable[[Statement], Iterable[Statement] | None]
) -> tuple[Statement, ...]:
    """The statements, with others in the place of those for which `change` gives any; it is asked from outside in."""
    found: list[Statement] = []
    for statement in body:
        new = change(statement)
        if new is not None:
            found += new
        elif statement.body:
            found.append(replace(statement, body=expanded(statement.body, change)))  # type: ignore[type-var]
        else:
            found.append(statement)
    return tuple(found)


def rewritten(body: Iterable[Statement], change: Change) -> tuple[Statement, ...]:
    """The statements with each part of their expressions changed, in the order of the text."""

    def one(statement: Statement) -> Statement:
        return statement.changed(change, one)

    return tuple(map(one, body))


# Functions.

# Where only calls are left, an optimiser takes long and gains nothing.
CALLER = '__attribute__((optimize("Og"))) '
BUFFERS, SIZES = Variable("buffers", "void *", pointer=True), Variable("sizes", "int64_t", pointer=True)
THREADS = Symbol("fuser_threads")  # how many a kernel may use
FUNCTION = Symbol("function")  # the type of a pointer to a kernel, or to a function of a library
ARGUMENTS = (("void **", BUFFERS), ("const int64_t *", SIZES))


@dataclass(frozen=True, slots=True)
class Function:
    """A function. `first_size` is the kernel's size argument that its `sizes` begin with; None where calls differ in it."""

    name: Own | Symbol
    body: tuple[Statement, ...]
    parameters: tuple[tuple[str, Variable], ...] = ARGUMENTS  # each with its type, spelt
    returns: str = "void"
    attributes: str = ""
    static: bool = False
    calling: bool = False  # it only calls
    short_loops: bool = False  # a call would take longer than a run through its innermost loops
    separable: bool = False  # those that stand before it go with it, and those that call it may be compiled elsewhere
    comments: tuple[str, ...] = ()
    first_size: int | None = None
    named: list[Counter[str]] = field(
        init=False, default_factory=list, compare=False, repr=False
    )  # `symbols`, once known

    @property
    def symbols(self) -> Counter[str]:
        """How often each name that stands elsewhere occurs in the body; every loop around a kernel asks."""
        if not self.named:
            self.named.append(Counter(leaf.name for leaf in leaves(*_expressions(self.body)) if type(leaf) is Symbol))
        return self.named[0]

    def declaration(self, how: Spelling = PLAIN) -> str:
        """What stands before the body, and with a semicolon is its prototype."""
        parameters = ", ".join(f"{kind}{'' if kind.endswith('*') else ' '}{v.name}" for kind, v in self.parameters)
        start = f"{CALLER if self.calling else ''}{'static ' if self.static else ''}{self.attributes}{self.returns}"
        return f"{start} {spelt(Code((self.name,)), how)}({parameters})"

    def text(self, how: Spelling = PLAIN) -> str:
        lines = [f"// {line}" for line in self.comments] if how.comments else []
        lines.append(f"{self.declaration(how)} {{")
        for statement in self.body:
            lines += statement.lines("  ", how)
        return "\n".join([*lines, "}"])


@dataclass(frozen=True, slots=True)
class Definition:
    """A type that functions behind it use; its text on one line."""

    line: str

    def text(self, how: Spelling = PLAIN) -> str:
        return self.line


Parts = tuple[Function | Definition, ...]


@dataclass(frozen=True)
class Module:
    """The functions of a kernel, its entry last, and its name. Kernels that differ in their names alone share `texts`."""

    name: str
    parts: Parts
    texts: dict[Spelling, str] = field(default_factory=dict, compare=False, repr=False)
    inside: dict[str, Parts] = field(default_factory=dict, compare=False, repr=False)  # by name there: as loops have it

    @property
    def functions(self) -> Iterator[Function]:
        return (part for part in self.parts if isinstance(part, Function))

    def __str__(self) -> str:
        return text_of(self.parts, Spelling(self.name))

    def text(self, how: Spelling) -> str:
        """The text under a name that all kernels share, by which they are compared."""
        if how not in self.texts:
            self.texts[how] = text_of(self.parts, how)
        return self.texts[how]

    def renamed(self, name: str) -> Module:
        """The same kernel under another name."""
        return Module(name, self.parts, self.texts, self.inside)

    def changed(self, change: Callable[[Function], Function]) -> Module:
        """The module with each function changed."""
        return Module(self.name, tuple(change(p) if isinstance(p, Function) else p for p in self.parts))

    def named(self) -> Parts:
        """The functions under their names, so that they can stand among others' functions."""
        return self._renamed(lambda own: Symbol(f"{self.name}{own.suffix}"))

    def as_piece(self, suffix: str) -> Parts:
        """The functions as those of a piece of a kernel, whose suffixes begin with this one."""
        return self._renamed(lambda own: Own(f"{suffix}{own.suffix}"))

    def _renamed(self, name: Callable[[Own], Any]) -> Parts:
        change: Change = lambda part: name(part) if type(part) is Own else part
        alone = len(self.parts) == 1  # then nothing calls a function of the kernel
        return tuple(_named(part, change, alone) if isinstance(part, Function) else part for part in self.parts)


def text_of(parts: Parts, how: Spelling = PLAIN) -> str:
    return "\n\n".join(part.text(how) for part in parts)


def _named(function: Function, change: Change, alone: bool) -> Function:
    own = not alone and any(type(leaf) is Own for leaf in leaves(*_expressions(function.body)))
    body = rewritten(function.body, change) if own else function.body
    return replace(function, name=change(function.name), body=body)


def symbols(parts: Parts) -> Counter[str]:
    """How often each name that stands elsewhere occurs in the functions."""
    found = Counter[str]()
    for part in parts:
        if isinstance(part, Function):
            found.update(part.symbols)
    return found


def _expressions(body: Iterable[Statement]) -> Iterator[Code]:
    for statement in body:
        yield from statement.parts()
