"""Symbolic shapes: `symbolic_shape("b, 4*k", constraints=("b >= k",))`, and specifications of arguments with them."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.api.shapes import ShapeDtypeStruct
from fuser.ir.dim import (
    INFINITE,
    Constraint,
    Dim,
    Scope,
    bounds,
    divided,
    evaluated,
    known_at_least,
    maximum,
    minimum,
    variables,
)
from fuser.lax.values import as_value
from fuser.trace import tree
from fuser.trace.core import type_of

_TOKEN = re.compile(r"\s*(?:(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)|(?P<mark>\.\.\.|>=|<=|==|[-+*^(),]))")
_OPERATIONS = {
    "floordiv": lambda a, b: _divided(a, b)[0],
    "mod": lambda a, b: _divided(a, b)[1],
    "max": maximum,
    "min": minimum,
}
MOST_DEPTH = 64  # of parentheses and operations in one another
MOST_LETTERS = 4096
MOST_DIGITS = 18
MOST_SEARCH = 200_000  # products that the search for a witness computes


def _divided(a: Any, b: Any) -> tuple[Any, Any]:
    return divided(a, b) if isinstance(a, Dim) or isinstance(b, Dim) else divmod(a, b)


class SymbolicScope(Scope):
    """The variables of shapes that may meet in one program, and what is known of them: `SymbolicScope(("a >= b", "mod(a, 2) == 0"))`.

    A variable that an equation is linear in is that expression from then on. `work` is how many atoms questions of order may look
    at, where texts come from elsewhere. ValueError for a constraint that cannot be read, or that no size fulfils; `check` raises it
    where no sizes fulfil all of them.
    """

    def __init__(self, constraints: Sequence[str] | str = (), witness: int = 0, work: float = INFINITE) -> None:
        super().__init__(witness, work)
        if isinstance(constraints, str) or not all(isinstance(c, str) for c in constraints):
            raise ValueError(f"The symbolic constraints should be a sequence of strings. Got {constraints!r}")
        self.said = tuple(constraints)
        self.unfulfilled = ""
        for text in self.said:
            self._constrain(text)
        _fulfil(self)

    def check(self) -> None:
        """ValueError where no sizes were found that fulfil the constraints: nothing can be traced for such."""
        if self.unfulfilled:
            raise ValueError(self.unfulfilled)

    def _constrain(self, text: str) -> None:
        reader = _Reader(text, self)
        left = reader.sum()
        relation = reader.peek()
        if relation not in (">=", "<=", "=="):
            reader.fail("Constraint parsing error: must contain one of '==' or '>=' or '<='. A relation")
        reader.take("a relation")
        right = reader.sum()
        reader.end()
        known = right - left if relation == "<=" else left - right
        if relation == "==" and isinstance(known, Dim) and self._define(text, known):
            return
        if isinstance(known, Dim):
            self.constraints = (*self.constraints, (text, known, "eq" if relation == "==" else "ge"))
            if relation == "==":
                self.rule(known)
        elif known < 0 or (relation == "==" and known):
            raise ValueError(f"Unsatisfiable explicit constraint: {text}; it holds for no size")

    def _define(self, text: str, zero: Dim) -> bool:
        """Let a variable that an equation is linear in stand for the rest of it."""
        for name in sorted(variables([zero]), reverse=True):
            own = ((("var", name), 1),)
            sign = zero.terms.get(own, 0)
            rest = self.variable(name) - sign * zero
            if abs(sign) != 1 or name in variables([rest]):
                continue
            if not isinstance(rest, Dim) and rest < 1:
                raise ValueError(f"Unsatisfiable explicit constraint: {text}; it holds for no size")
            self.defined[name] = rest
            del self.witness[name]
            put = {v: self.variable(v) for v in (*self.witness, *self.defined)}
            self.constraints = _again(self, put)
            self.rules = {}
            for _, zero, kind in self.constraints:
                if kind == "eq" and isinstance(zero, Dim):
                    self.rule(zero)
            self.defined = {n: evaluated(value, put) for n, value in self.defined.items()}
            if not known_at_least(rest, 1):
                self.constraints = (*self.constraints, (text, rest - 1, "ge"))
            return True
        return False

    def twin(self) -> SymbolicScope:
        """The same variables and constraints with another witness."""
        found = SymbolicScope((), self.turn + 1)
        for name in (*self.witness, *self.defined):
            found.variable(name)
        found.said = self.said
        for text in self.said:
            found._constrain(text)
        _fulfil(found)
        return found

    def __str__(self) -> str:
        return f"SymbolicScope({', '.join(self.said)})"


def _again(scope: Scope, put: dict[str, Any]) -> tuple[Constraint, ...]:
    """The constraints with values for variables: Dims hold the witness of when they were made. They do not simplify each other."""
    said, scope.constraints = scope.constraints, ()
    rules, scope.rules = scope.rules, {}
    found = tuple((text, evaluated(known, put), kind) for text, known, kind in said)
    scope.rules = rules
    return found


def _fulfil(scope: SymbolicScope) -> None:
    """Sizes for the witness that fulfil the constraints; `unfulfilled` says that none were found."""
    rng = np.random.default_rng(scope.turn)
    names = list(scope.witness)
    ends = {name: bounds(scope.variable(name)) for name in names}
    products = sum(known.atoms for _, known, _ in scope.constraints if isinstance(known, Dim))
    for attempt in range(min(20_000, 1 + MOST_SEARCH // (1 + products))):
        if all(_holds(evaluated(known, scope.witness), kind) for _, known, kind in scope.constraints):
            scope.constraints = _again(scope, {v: scope.variable(v) for v in names})
            return
        width = (7, 39, 199)[attempt % 3]
        scope.witness.update(
            {n: int(rng.integers(int(low), int(min(high, low + width)) + 1)) for n, (low, high) in ends.items()}
        )
    listed = ", ".join(text for text, *_ in scope.constraints)
    scope.unfulfilled = f"no sizes were found that fulfil the symbolic constraints {listed}; are they contradictory?"


def _holds(value: int, kind: str) -> bool:
    return value == 0 if kind == "eq" else value >= 0


class _Reader:
    """Text to extents, for one scope."""

    def __init__(self, text: str, scope: Scope) -> None:
        self.text, self.place, self.scope, self.depth = text, 0, scope, 0
        if len(text) > MOST_LETTERS:
            self.fail(f"a text of up to {MOST_LETTERS} letters")

    def fail(self, expected: str) -> Any:
        raise ValueError(
            f"the symbolic shape specification {self.text[:MOST_LETTERS]!r} cannot be read at position {self.place}: {expected} was expected"
        )

    def peek(self) -> str:
        found = _TOKEN.match(self.text, self.place)
        return found[0].strip() if found else ""

    def take(self, expected: str) -> str:
        found = _TOKEN.match(self.text, self.place) or self.fail(expected)
        self.place = found.end()
        return str(found[0].strip())

    def end(self) -> None:
        if self.text[self.place :].strip():
            self.fail("the end")

    def sum(self) -> Any:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            self.fail("less depth")
        negative = self.peek() == "-" and bool(self.take("-"))
        total = -self.product() if negative else self.product()
        while self.peek() in ("+", "-"):
            total = total + self.product() if self.take("+") == "+" else total - self.product()
        self.depth -= 1
        return total

    def product(self) -> Any:
        found = self.factor()
        while self.peek() == "*":
            self.take("*")
            found = found * self.factor()
        return found

    def factor(self) -> Any:
        word = self.take("a number, a variable or an operation")
        if word.isdecimal():
            if len(word) > MOST_DIGITS:
                self.fail(f"a number of up to {MOST_DIGITS} digits")
            found: Any = int(word)
        elif word == "(":
            found = self.sum()
            self.expect(")")
        elif word in _OPERATIONS:
            self.expect("(")
            first = self.sum()
            self.expect(",")
            found = _OPERATIONS[word](first, self.sum())
            self.expect(")")
        elif word.isidentifier():
            found = self.scope.variable(word)
        else:
            self.fail("a number, a variable or an operation")
        if self.peek() == "^":
            self.take("^")
            power = self.take("a power")
            if not power.isdecimal() or len(power) > 2 or int(power) > 16:
                self.fail("a power up to 16")
            found = found ** int(power)
        return found

    def expect(self, mark: str) -> None:
        if self.peek() != mark:
            self.fail(repr(mark))
        self.take(mark)


def read_dim(text: str, scope: Scope) -> Any:
    """The extent that a text says. ValueError for others."""
    reader = _Reader(text, scope)
    found = reader.sum()
    reader.end()
    return found


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[int] | None = None,
) -> tuple[Any, ...]:
    """The shape that a text says: extents apart by commas, made of numbers, variables, + - * ^ and floordiv, mod, max, min.

    "_" and "..." (and None) stand for the extents of `like`. Variables are at least 1 and fit 32 bits; `constraints` say more of
    them ("a >= b", "mod(b, 8) == 0"). Shapes of one program share a `scope`. ValueError for a text that cannot be read, and for
    constraints beside a scope.
    """
    if scope is not None and constraints:
        raise ValueError("Cannot specify both a scope and constraints; give the constraints to the SymbolicScope")
    own = scope or SymbolicScope()
    spec = "..." if shape_spec is None else str(shape_spec).strip()
    if spec.startswith("(") and spec.endswith(")") and _wraps(spec):
        spec = spec[1:-1]
    found: list[Any] = []
    parts = [part.strip() for part in _split(spec)]
    if parts and not parts[-1]:
        parts.pop()
    for n, part in enumerate(parts):
        if part == "...":
            if like is None or n != len(parts) - 1:
                raise ValueError(
                    f"the symbolic shape specification {spec!r} has '...', which stands last, and needs `like`"
                )
            found += like[n:]
        elif part == "_":
            if like is None or n >= len(like):
                raise ValueError(f"the symbolic shape specification {spec!r} has '_', and `like` has no extent for it")
            found.append(like[n])
        else:
            found.append(read_dim(part, own))
    if scope is None:
        own.said = SymbolicScope(constraints).said
        for text in own.said:
            own._constrain(text)
        _fulfil(own)
        found = [evaluated(d, {v: own.variable(v) for v in (*own.witness, *own.defined)}) for d in found]
    for extent in found:
        if not isinstance(extent, Dim) and extent < 0:
            raise ValueError(f"the symbolic shape specification {spec!r} has the negative extent {extent}")
    return Shape(found)


class Shape(tuple[Any, ...]):
    """A shape that prints as it is written."""

    def __repr__(self) -> str:
        return f"({', '.join(map(str, self))}{',' if len(self) == 1 else ''})"

    __str__ = __repr__


def _wraps(spec: str) -> bool:
    """Whether the first parenthesis closes at the end."""
    depth = 0
    for n, letter in enumerate(spec):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return n == len(spec) - 1
    return False


def _split(spec: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for n, letter in enumerate(spec):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(spec[start:n])
            start = n + 1
    return [*parts, spec[start:]]


def is_symbolic_dim(p: Any) -> bool:
    """Whether an extent is symbolic."""
    return isinstance(p, Dim)


def symbolic_dim_bounds(dimension: Any) -> tuple[float, float]:
    """The least and the greatest value that an extent can be shown to have; infinite ones where that is not known.

    TypeError for what is no integer and no symbolic extent.
    """
    value = dimension if isinstance(dimension, Dim) else operator.index(dimension)
    return bounds(value)


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
) -> Any:
    """The tree of `args` with a ShapeDtypeStruct a leaf, whose shapes `shapes_specs`, a tree prefix of texts, says; None: as it is."""
    own = scope or SymbolicScope(constraints)
    leaves, structure = tree.flatten(args)
    specs = (
        tree.broadcast_prefix(shapes_specs, args)
        if not isinstance(shapes_specs, (str, type(None)))
        else [shapes_specs] * len(leaves)
    )
    found = []
    for leaf, spec in zip(leaves, specs):
        aval = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else type_of(as_value(leaf))
        shape = symbolic_shape(spec, scope=own, like=tuple(map(operator.index, aval.shape)))
        if len(shape) != len(aval.shape):
            raise ValueError(
                f"the symbolic shape specification {spec!r} has {len(shape)} dimensions, and it is for an array of shape {aval.shape}; "
                "give each dimension a part, or end with '...'"
            )
        found.append(ShapeDtypeStruct(shape, aval.dtype))
    return tree.unflatten(structure, found)
