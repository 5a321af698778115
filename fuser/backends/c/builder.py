"""Builds the body of a C function, statement by statement: what a loop form calls. Out: statements of `function`.

In expressions `{}` stands for the next part and `{name}` for the variable that was declared last under that name.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from fuser.backends.c.function import (
    NOTHING,
    Block,
    Buffer,
    Code,
    Do,
    Element,
    For,
    Let,
    Part,
    Pragma,
    Set,
    Statement,
    Sum,
    Variable,
    code,
)
from fuser.backends.c.target import TARGET

ALIGNED = " __attribute__((aligned(64)))"
INTEGER = "int64_t"
STAGGER = (
    17 * TARGET.line
)  # bytes between arrays: an odd number of lines, and more than are written while a store waits
FEWEST_STAGGERED = 256  # elements of an array, multiples of which fill pages or even parts of them


class Builder:
    """Statements in the making: those of the open block, and of the blocks around it."""

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        self.statements: list[Statement] = []
        self._open: list[
            tuple[list[Statement], For | Block]
        ] = []  # what stands around a block, and the block without its body
        self._local: list[set[str]] = [set()]  # names of constants, variables and arrays of each open block
        self._pragmas: list[Pragma] = []
        self._outside_lanes: int | None = None  # depth around the open loop over a vector's lanes

    def code(self, form: str | Part, *parts: Part) -> Code:
        """An expression, in which names stand for declared variables."""
        return code(form, *parts, names=self.variables)

    def named(self, name: str) -> Variable:
        """The variable of that name."""
        return self.variables[name]

    def at(self, array: Variable | str, *terms: Part, index: Code | None = None) -> Element:
        """An element at the sum of the terms, or at an index that is taken as a whole."""
        array = self.variables[array] if isinstance(array, str) else array
        if index is not None:
            return Element(array, index)
        found: list[tuple[str, Code]] = []
        for term in terms:
            found += term.terms if isinstance(term, Sum) else [("+", self.code(term))]
        return Element(array, Sum(tuple(found)))

    # Statements.

    def _declared(self, name: str, kind: str, pointer: bool = False) -> Variable:
        """A variable that the open block declares. A name that it has declared already is spelt with a number."""
        spelt, local = name, self._local[-1]
        for number in itertools.count(2):
            if spelt not in local:
                break
            spelt = f"{name}_{number}"
        local.add(spelt)
        self.variables[name] = variable = Variable(spelt, kind, pointer)
        return variable

    def _counter(self, name: str, kind: str) -> Variable:
        """A variable that the loop declares which is opened next."""
        self.variables[name] = variable = Variable(name, kind)
        return variable

    def let(self, kind: str, name: str, form: str | Part, *parts: Part) -> Variable:
        """Declare a constant."""
        return self.lets(kind, (name, self.code(form, *parts)))

    def lets(self, kind: str, *pairs: tuple[str, Code]) -> Variable:
        """Declare constants of one type; gives the last."""
        return self._let(f"const {kind}", kind, *pairs)

    def var(self, kind: str, name: str, form: str | Part, *parts: Part, remark: str = "") -> Variable:
        """Declare a variable that changes."""
        return self.vars(kind, (name, self.code(form, *parts)), remark=remark)

    def vars(self, kind: str, *pairs: tuple[str, Code], remark: str = "") -> Variable:
        return self._let(kind, kind, *pairs, remark=remark)

    def _let(self, spelt: str, kind: str, *pairs: tuple[str, Code], remark: str = "") -> Variable:
        variables = tuple(self._declared(name, kind) for name, _ in pairs)
        self.statements.append(Let(spelt, variables, tuple(value for _, value in pairs), remark))
        return variables[-1]

    def pointer(self, spelt: str, kind: str, name: str, form: str | Part, *parts: Part) -> Variable:
        """Declare a pointer to elements of type `kind`; `spelt` is its whole type."""
        value = self.code(form, *parts)
        variable = self._declared(name, kind, pointer=True)
        self.statements.append(Let(spelt, (variable,), (value,)))
        return variable

    def buffer(self, kind: str, name: str, extent: Part, ending: str = ALIGNED) -> Variable:
        """Declare an array on the stack. One of a block is longer than asked for: arrays that begin at one place of their pages share
        the few lines that a cache has for it, and a load waits for a store shortly before it to the same place of another page."""
        if isinstance(extent, int) and extent >= FEWEST_STAGGERED and extent % FEWEST_STAGGERED == 0:
            extent = f"{extent} + {STAGGER} / sizeof({kind})"
        variable = self._declared(name, kind, pointer=True)
        self.statements.append(Buffer(variable, self.code("{}", extent), ending))
        return variable

    def room(self, kind: str, name: str, count: Part) -> Variable:
        """Declare an array on the stack whose length is not known when the function is compiled."""
        variable = self._declared(name, kind, pointer=True)
        self.statements.append(Buffer(variable, self.code("{}", count), dynamic=True))
        return variable

    def set(self, target: Variable | Element | str, form: str | Part, *parts: Part, operator: str = "=") -> None:
        """Assign to a variable, or store to an element."""
        target = self.variables[target] if isinstance(target, str) else target
        self.statements.append(Set(target, self.code(form, *parts), operator))

    def do(self, form: str | Part, *parts: Part) -> None:
        """A line of which no more is known than what it names."""
        self.statements.append(Do(self.code(form, *parts)))

    # Blocks.

    def pragma(self, form: str, *parts: Part) -> None:
        """What stands before the next loop."""
        text = self.code(form, *parts)
        self._pragmas.append(Pragma(text, vector=form.startswith("omp simd")))

    def lanes(self, count: int) -> Variable:
        """Open the loop over the lanes of a vector of `count` numbers."""
        self.pragma("omp simd")
        lane = self._counter("lane", INTEGER)
        whole = code("{} < {}", lane, str(count))
        self.variables[lane.name] = lane
        self._outside_lanes = self.depth
        self._enter(For(lane, lane.type, code("0"), whole, code("++{}", lane), (), self._before(), short=True))
        return lane

    def count(
        self, name: str, first: Part, last: Part, step: str = "++{}", test: str = "{} < {}", kind: str = INTEGER
    ) -> Variable:
        """Open a loop in which `name` runs from `first` up to `last`. In `step` and `test` the first `{}` is the counter."""
        first, last = self.code("{}", first), self.code("{}", last)
        counter = self._counter(name, kind)
        return self.start(counter, first, self.code(test, counter, last), self.code(step, counter))

    def count_down(self, name: str, first: Part, last: Part) -> Variable:
        """Open a loop in which `name` runs from `last` - 1 down to `first`."""
        start, first = self.code("{} - 1", last), self.code("{}", first)
        counter = self._counter(name, INTEGER)
        return self.start(counter, start, self.code("{} >= {}", counter, first), self.code("--{}", counter))

    def as_short(self) -> None:
        """The innermost open loop takes less time than a call: it stays where it is."""
        statements, loop = self._open.pop()
        assert isinstance(loop, For)
        self._open.append((statements, replace(loop, short=True)))

    def go_on(self, counter: Variable, test: Code, step: Code) -> None:
        """Open a loop that goes on with a counter."""
        self._enter(For(counter, "", NOTHING, test, step, (), self._before()))

    def start(self, counter: Variable, first: Code, test: Code, step: Code) -> Variable:
        """Open a loop that declares its counter."""
        self.variables[counter.name] = counter
        self._enter(For(counter, counter.type, first, test, step, (), self._before()))
        return counter

    def _before(self) -> tuple[Pragma, ...]:
        pragmas, self._pragmas = tuple(self._pragmas), []
        return pragmas

    def open(self, form: str | Part = "", *parts: Part, plain: bool = True) -> None:
        """Open a block: of an `if`, or without a head. Not `plain`: a loop of another kind."""
        self._enter(Block(self.code(form, *parts) if form else NOTHING, (), plain=plain))

    def _enter(self, block: For | Block) -> None:
        self._open.append((self.statements, block))
        self._local.append(set())
        self.statements = []

    @property
    def depth(self) -> int:
        return len(self._open)

    @property
    def in_lanes(self) -> bool:
        """Whether a loop over the lanes of a vector is open."""
        return self._outside_lanes is not None

    def close(self, form: str = "", *parts: Part, flat: bool = False) -> None:
        """Close the innermost block; `flat`: it is written on one line."""
        body = tuple(self.statements)
        self.statements, block = self._open.pop()
        self._local.pop()
        if self.depth == self._outside_lanes:
            self._outside_lanes = None
        if isinstance(block, Block) and form:
            block = replace(block, ending=self.code(form, *parts))
        self.statements.append(replace(block, body=body, flat=flat))
