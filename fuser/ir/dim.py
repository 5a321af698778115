"""Symbolic extents: `Dim`, an integer polynomial over named variables, each at least 1 and below 2**31.

A Dim is an `int` whose value is that of a *witness*: some sizes that the variables may have. So it passes wherever an extent
does; arithmetic and comparisons are symbolic all the same. What has used the value instead is found by tracing with two
witnesses, which must give the same graph (`export/symbolic.py`).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fuser.errors import InconclusiveDimensionOperation
from fuser.ir.polynomial import (
    MOST_DEGREE,
    MOST_RULES,
    Atom,
    Monomial,
    Rule,
    Terms,
    checked_size,
    implied,
    multiplied,
    order,
    rewritten,
    text,
    without,
)

INFINITE = math.inf
WIDE = 2**31 - 1  # extents are assumed to fit 32 bits
Interval = tuple[float, float]
Constraint = tuple[str, Any, str]  # its text, a Dim that is >= 0 or == 0, "ge" or "eq"

MOST_WORK = 10_000  # atoms that one question of order looks at

_WITNESSES = (37, 53, 71, 89, 101, 113, 131, 149, 167, 181)


class Scope:
    """The variables that may meet in one program, what is known of them, and the witness."""

    def __init__(self, witness: int = 0, work: float = INFINITE) -> None:
        self.turn = witness
        self.witness: dict[str, int] = {}
        self.defined: dict[str, Any] = {}  # variables that stand for expressions of others
        self.constraints = ()
        self.rules: dict[Monomial, Rule] = {}
        self.work = work  # atoms that all further questions of order may look at

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return self._constraints

    @constraints.setter
    def constraints(self, given: Iterable[Constraint]) -> None:
        self._constraints, self._ends = tuple(given), dict[str, Interval]()

    def ends(self, name: str) -> Interval:
        """The bounds of a variable, from constraints that speak of it alone."""
        if name not in self._ends:
            self._ends[name] = _variable_bounds(name, self._constraints)
        return self._ends[name]

    def rule(self, zero: Dim) -> None:
        """Let the greatest monomial of an equation stand for the rest of it, where that is one of operations."""
        greatest = max(zero.terms, key=order)
        if (
            any(atom[0] != "var" for atom, _ in greatest)
            and len(zero.terms) <= MOST_RULES
            and len(self.rules) < MOST_RULES
        ):
            k = zero.terms[greatest]
            rest = abs(k), {m: c * (-1 if k > 0 else 1) for m, c in zero.terms.items() if m != greatest}
            self.rules[greatest] = rest
            for other, of_other in implied(greatest, rest):
                self.rules.setdefault(other, of_other)

    def variable(self, name: str) -> Dim:
        """The variable of this name, or what a constraint says that it is."""
        if name in self.defined:
            return self.defined[name]  # type: ignore[no-any-return]
        if name not in self.witness:
            place = len(self.witness)
            self.witness[name] = _WITNESSES[(place + 3 * self.turn) % len(_WITNESSES)] + 2 * self.turn + place // 10
        found = made(self, {((("var", name), 1),): 1})
        assert isinstance(found, Dim)
        return found


def made(scope: Scope, terms: Terms) -> Dim | int:
    """The polynomial of these terms; a plain int where it is constant. ValueError for one of more terms, a higher degree or larger
    coefficients than extents have in earnest."""
    terms = rewritten({m: c for m, c in terms.items() if c}, scope.rules)
    if not terms:
        return 0
    if len(terms) == 1 and () in terms:
        return terms[()]
    atoms = checked_size(terms)
    value = sum(c * math.prod(_atom_value(a, scope.witness) ** p for a, p in m) for m, c in terms.items())
    found = int.__new__(Dim, value)
    found.scope, found.terms, found.atoms = scope, terms, atoms
    return found


def _atom_value(atom: Atom, sizes: Mapping[str, Any]) -> Any:
    kind, *operands = atom
    if kind == "var":
        return sizes[operands[0]]
    a, b = (evaluated(o, sizes) for o in operands)
    return {
        "floordiv": lambda: a // b,
        "mod": lambda: a % b,
        "max": lambda: maximum(a, b),
        "min": lambda: minimum(a, b),
    }[kind]()


def evaluated(value: Any, sizes: Mapping[str, Any]) -> Any:
    """A Dim with sizes (integers, or Dims of another scope) for its variables; anything else as it is."""
    if not isinstance(value, Dim):
        return value
    total: Any = 0
    for monomial, coefficient in value.terms.items():
        product: Any = coefficient
        for atom, power in monomial:
            part = _atom_value(atom, sizes)
            for _ in range(power):
                product = product * part
        total = total + product
    return total


class Dim(int):
    """An extent that is not known; see the module. InconclusiveDimensionOperation where a comparison holds for some sizes only."""

    scope: Scope
    terms: Terms
    atoms: int  # how many there are, those in operands of others among them
    __array_ufunc__ = None  # NumPy leaves operators to the methods below
    shape: tuple[int, ...] = ()  # what np.shape and np.ndim give, who else would ask for the number
    ndim = 0

    def _of(self, other: Any) -> Terms | None:
        if isinstance(other, Dim):
            if other.scope is not self.scope:
                raise ValueError(
                    f"Invalid mixing of symbolic scopes: '{self}' and '{other}' come from different scopes; make all shapes with one "
                    "symbolic_shape call, or give them one SymbolicScope"
                )
            return other.terms
        return {(): int(other)} if type(other) is int or (hasattr(other, "__index__") and _is_integer(other)) else None

    def _with(self, operation: Any, other: Any, swapped: bool = False) -> Any:
        """The operation on arrays, for numbers and arrays that are no integers."""
        if not isinstance(other, (float, complex, np.ndarray, np.generic)):
            return NotImplemented
        return operation(other, self.__jax_array__()) if swapped else operation(self.__jax_array__(), other)

    def __add__(self, other: Any) -> Any:
        if (theirs := self._of(other)) is None:
            return self._with(operator.add, other)
        return made(self.scope, {m: self.terms.get(m, 0) + theirs.get(m, 0) for m in (*self.terms, *theirs)})

    def __mul__(self, other: Any) -> Any:
        if (theirs := self._of(other)) is None:
            return self._with(operator.mul, other)
        return made(self.scope, multiplied(self.terms, theirs))

    def __neg__(self) -> Any:
        return made(self.scope, {m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Any) -> Any:
        return self._with(operator.sub, other) if self._of(other) is None else self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return self._with(operator.sub, other, True) if self._of(other) is None else (-self) + other

    __radd__, __rmul__ = __add__, __mul__

    def __pos__(self) -> Any:
        return self

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        if type(other) is not int or other < 0:
            return NotImplemented
        if other > MOST_DEGREE:
            raise ValueError(f"a symbolic dimension has a degree above {MOST_DEGREE}")
        return math.prod([self] * other)

    def __divmod__(self, other: Any) -> Any:
        return NotImplemented if self._of(other) is None else divided(self, as_extent(other))

    def __rdivmod__(self, other: Any) -> Any:
        return NotImplemented if self._of(other) is None else divided(as_extent(other), self)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(operator.floordiv, other) if self._of(other) is None else divmod(self, other)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(operator.floordiv, other, True) if self._of(other) is None else divmod(other, self)[0]

    def __mod__(self, other: Any) -> Any:
        return self._with(operator.mod, other) if self._of(other) is None else divmod(self, other)[1]

    def __rmod__(self, other: Any) -> Any:
        return self._with(operator.mod, other, True) if self._of(other) is None else divmod(other, self)[1]

    def __truediv__(self, other: Any) -> Any:
        return self.__jax_array__() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.__jax_array__()

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, Dim):
            return self.scope is other.scope and self.terms == other.terms
        return False  # a constant is a plain int

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __ge__(self, other: Any) -> bool:
        return NotImplemented if self._of(other) is None else at_least(self, other)

    def __le__(self, other: Any) -> bool:
        return NotImplemented if self._of(other) is None else at_least(other, self)

    def __gt__(self, other: Any) -> bool:
        return NotImplemented if self._of(other) is None else not at_least(other, self)

    def __lt__(self, other: Any) -> bool:
        return NotImplemented if self._of(other) is None else not at_least(self, other)

    def __bool__(self) -> bool:
        return True if bounds(self)[0] > 0 else not at_least(0, self)

    def __abs__(self) -> Any:
        return self if at_least(self, 0) else -self

    def __str__(self) -> str:
        return self._text

    @functools.cached_property
    def _text(self) -> str:
        return text(self.terms)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __int__(self) -> int:
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension '{self}' used in a context that requires a constant; compute with it as an extent, or as an array"
        )

    def __float__(self) -> float:
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension '{self}' used in a context that requires a constant; divide arrays by it instead"
        )

    def __jax_array__(self) -> Any:
        return as_array[0](self)

    def __reduce__(self) -> Any:
        raise TypeError(f"the symbolic dimension '{self}' cannot be pickled; export the function instead")

    def __copy__(self) -> Dim:
        return self

    # Names by which converters read the dimension expressions of JAX.

    def _get_vars(self) -> set[str]:
        """The names of the variables."""
        return {*variables([self])}

    def _to_term(self) -> Monomial | None:
        """What the expression is where it is one product of atoms, else None."""
        return next(iter(self.terms)) if [*self.terms.values()] == [1] else None

    def _to_single_term(self) -> tuple[int, int, Monomial] | None:
        """(n, k, product) where the expression is n + k * product, else None."""
        rest = [(k, m) for m, k in self.terms.items() if m]
        return (self.terms.get((), 0), *rest[0]) if len(rest) == 1 else None

    def _to_var(self) -> str | None:
        """The name where the expression is a variable, else None."""
        names = variables([self])
        return names[0] if len(names) == 1 and self == self.scope.variable(names[0]) else None

    def _evaluate(self, env: Mapping[str, Any]) -> Any:
        """The value for these sizes of the variables."""
        return evaluated(self, env)

    def _eq(self, other: Any) -> bool:
        """Whether both are the same for all sizes."""
        return self == other

    def __deepcopy__(self, memo: Any) -> Dim:
        return self


as_array: list[Any] = []  # what makes an array of a Dim; set by fuser.ops.dim


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) or (
        getattr(value, "ndim", None) == 0
        and getattr(getattr(value, "dtype", None), "kind", "") in "iu"
        and hasattr(value, "item")
        and not hasattr(value, "aval")
    )


def _operation(kind: str, a: Any, b: Any) -> Any:
    scope = a.scope if isinstance(a, Dim) else b.scope
    return made(scope, {(((kind, a, b), 1),): 1})


def divided(a: Any, b: Any) -> tuple[Any, Any]:
    """(a // b, a % b): exact where b divides some terms of a, an operation of its own for the rest."""
    if not isinstance(b, Dim) and b == 0:
        raise ZeroDivisionError("a symbolic dimension is divided by zero")
    divisor = b.terms if isinstance(b, Dim) else {(): b}
    quotient: Any = 0
    rest: Any = a
    if len(divisor) == 1 and isinstance(a, Dim):
        [(monomial, coefficient)] = divisor.items()
        whole: Terms = {}
        for m, c in a.terms.items():
            left = without(m, monomial)
            if left is not None and c % coefficient == 0:
                whole[left] = c // coefficient
        quotient = made(a.scope, whole)
        rest = a - quotient * b
    elif isinstance(a, Dim):
        for factor in (1, *a.terms.values()):
            if a == factor * b:
                return factor, 0
    if not isinstance(rest, Dim) and not isinstance(b, Dim):
        return quotient + rest // b, rest % b
    if not isinstance(rest, Dim) and rest == 0:
        return quotient, 0
    if bounds(rest)[0] >= 0 and known_at_least(b, 1) and known_at_least(b - 1, rest):
        return quotient, rest
    return quotient + _operation("floordiv", rest, b), _operation("mod", rest, b)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two extents, as an expression where that is not known."""
    for first, second in ((a, b), (b, a)):
        if known_at_least(first, second):
            return first
    return _operation("max", a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two extents, as an expression where that is not known."""
    for first, second in ((a, b), (b, a)):
        if known_at_least(second, first):
            return first
    return _operation("min", a, b)


# What is known.


def at_least(a: Any, b: Any) -> bool:
    """Whether a >= b for all sizes; False where a < b for all; else InconclusiveDimensionOperation."""
    if known_at_least(a, b):
        return True
    if known_at_least(b - 1, a):
        return False
    raise InconclusiveDimensionOperation(
        f"Symbolic dimension comparison '{a}' >= '{b}' is inconclusive. It holds for some sizes only; give symbolic_shape a "
        f"constraint that decides it{_known_of(a, b)}"
    )


def _known_of(a: Any, b: Any) -> str:
    scope = a.scope if isinstance(a, Dim) else b.scope
    known = ", ".join(text for text, *_ in scope.constraints)
    return f" (it is decided with constraints: {known})" if known else ""


def known_at_least(a: Any, b: Any) -> bool:
    """Whether a >= b can be shown for all sizes."""
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return bool(a >= b)
    if not isinstance(a, Dim) and a >= WIDE:
        return True
    difference = a - b
    if not isinstance(difference, Dim):
        return bool(difference >= 0)
    work = _Work(difference.scope)
    try:
        return _shown(difference, 2, work)
    except _Exhausted:
        return False


class _Exhausted(Exception):
    """A question of order looked at as many atoms as it may."""


class _Work:
    """The atoms that a question may still look at, of those of its scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.left = scope, MOST_WORK

    def spend(self, atoms: int) -> None:
        self.left -= atoms
        self.scope.work -= atoms
        if self.left < 0 or self.scope.work < 0:
            raise _Exhausted


def _shown(difference: Any, depth: int, work: _Work) -> bool:
    """Whether an extent is at least 0: by its bounds, or once up to `depth` facts have been taken from it."""
    if isinstance(difference, Dim):
        work.spend(difference.atoms)
    if bounds(difference)[0] >= 0:
        return True
    if not depth or not isinstance(difference, Dim):
        return False
    counts = {1, *(abs(c) for c in difference.terms.values() if abs(c) < 64)}
    return any(_shown(difference - times * fact, depth - 1, work) for fact in _facts(difference) for times in counts)


def _facts(value: Dim) -> Iterator[Any]:
    """Extents that are at least 0: of constraints, and of what operations in `value` give."""
    for _, known, kind in value.scope.constraints:
        yield known
        if kind == "eq":
            yield -known
    polynomials = (value, *(known for _, known, _ in value.scope.constraints))
    for atom in {atom for p in polynomials for monomial in p.terms for atom, _ in monomial if atom[0] != "var"}:
        kind, first, second = atom
        found = made(value.scope, {((atom, 1),): 1})
        if kind in ("max", "min"):
            yield from (found - part if kind == "max" else part - found for part in (first, second))
        elif kind == "floordiv" and type(second) is int and second > 0:
            yield from (first - found * second, found * second - first + (second - 1))


def bounds(value: Any) -> Interval:
    """The least and the greatest value that an extent can have, as far as its terms tell."""
    if not isinstance(value, Dim):
        return value, value
    low = high = 0.0
    for monomial, coefficient in value.terms.items():
        ends: Interval = (1.0, 1.0)
        for atom, power in monomial:
            for _ in range(power):
                ends = _multiplied(ends, _atom_bounds(atom, value.scope))
        a, b = sorted((_scaled(coefficient, ends[0]), _scaled(coefficient, ends[1])))
        low, high = low + a, high + b
    return low, high


def _scaled(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _multiplied(a: Interval, b: Interval) -> Interval:
    corners = [_scaled(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _atom_bounds(atom: Atom, scope: Scope) -> Interval:
    kind, *operands = atom
    if kind == "var":
        return scope.ends(operands[0])
    (al, ah), (bl, bh) = map(bounds, operands)
    if kind in ("max", "min"):
        choose = max if kind == "max" else min
        return choose(al, bl), choose(ah, bh)
    if kind == "mod":
        return (0.0, bh - 1) if bl > 0 else (-INFINITE, INFINITE)
    if bl > 0:
        ends = [
            math.floor(x / y) if math.isfinite(x) and math.isfinite(y) else (0.0 if math.isfinite(x) and x >= 0 else x)
            for x in (al, ah)
            for y in (bl, bh)
        ]
        return min(ends), max(ends)
    return -INFINITE, INFINITE


def _variable_bounds(name: str, constraints: Iterable[Constraint]) -> Interval:
    low, high = 1.0, INFINITE
    own = ((("var", name), 1),)
    for _, known, kind in constraints:
        if set(known.terms) <= {own, ()} and abs(known.terms.get(own, 0)) == 1:
            end = -known.terms.get((), 0) * known.terms[own]
            if known.terms[own] == 1 or kind == "eq":
                low = max(low, end)
            if known.terms[own] == -1 or kind == "eq":
                high = min(high, end)
    return low, high


def variables(values: Iterable[Any]) -> list[str]:
    """The names of the variables in extents, in order of appearance."""
    found: dict[str, None] = {}
    for value in values:
        for monomial in value.terms if isinstance(value, Dim) else ():
            for atom, _ in monomial:
                found.update(dict.fromkeys([atom[1]] if atom[0] == "var" else variables(atom[1:])))
    return list(found)


def as_extent(value: Any) -> Any:
    """An integer as `operator.index` has it; a symbolic extent as it is."""
    return value if type(value) is Dim else operator.index(value)
