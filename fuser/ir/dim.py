"""Symbolic extents: `Dim`, an integer polynomial over named variables, each at least 1 and below 2**31.

A Dim is an `int` whose value is that of a *witness*: some sizes that the variables may have. So it passes wherever an extent
does; arithmetic and comparisons are symbolic all the same. What has used the value instead is found by tracing with two
witnesses, which must give the same graph (`export/symbolic.py`).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fuser.errors import InconclusiveDimensionOperation

INFINITE = math.inf
WIDE = 2**31 - 1  # extents are assumed to fit 32 bits
Interval = tuple[float, float]
Atom = tuple[Any, ...]  # ("var", name) or (operation, Dim or int, Dim or int)
Monomial = tuple[tuple[Atom, int], ...]  # atoms with their powers, in order
Terms = dict[Monomial, int]
Constraint = tuple[str, Any, str]  # its text, a Dim that is >= 0 or == 0, "ge" or "eq"

MOST_TERMS = 512
MOST_ATOMS = 8192  # those in operands of atoms among them
MOST_DEGREE = 64
MOST_COEFFICIENT = 1 << 127
MOST_WORK = 10_000  # atoms that one question of order looks at

_WITNESSES = (37, 53, 71, 89, 101, 113, 131, 149, 167, 181)


class Scope:
    """The variables that may meet in one program, what is known of them, and the witness."""

    def __init__(self, witness: int = 0, work: float = INFINITE) -> None:
        self.turn = witness
        self.witness: dict[str, int] = {}
        self.defined: dict[str, Any] = {}  # variables that stand for expressions of others
        self.constraints = ()
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
    terms = {m: c for m, c in terms.items() if c}
    if not terms:
        return 0
    if len(terms) == 1 and () in terms:
        return terms[()]
    atoms = _checked_size(terms)
    value = sum(c * math.prod(_atom_value(a, scope.witness) ** p for a, p in m) for m, c in terms.items())
    found = int.__new__(Dim, value)
    found.scope, found.terms, found.atoms = scope, terms, atoms
    return found


def _checked_size(terms: Terms) -> int:
    """The number of atoms in all."""
    atoms = sum(1 + sum(_atoms(atom) for atom, _ in monomial) for monomial in terms)
    if len(terms) > MOST_TERMS or atoms > MOST_ATOMS:
        raise ValueError(
            f"a symbolic dimension has more than {MOST_TERMS} terms, or {MOST_ATOMS} variables and operations in all"
        )
    for monomial, coefficient in terms.items():
        if sum(power for _, power in monomial) > MOST_DEGREE:
            raise ValueError(f"a symbolic dimension has a degree above {MOST_DEGREE}")
        if abs(coefficient) > MOST_COEFFICIENT:
            raise ValueError("a symbolic dimension has a coefficient of more than 127 bits")
    return atoms


def _atoms(atom: Atom) -> int:
    return 1 + sum(operand.atoms for operand in atom[1:] if isinstance(operand, Dim))


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
        if len(self.terms) * len(theirs) > MOST_TERMS * MOST_DEGREE:
            raise ValueError(f"a product of symbolic dimensions has more than {MOST_TERMS} terms")
        found: Terms = {}
        for m, c in self.terms.items():
            for n, d in theirs.items():
                product = _product(m, n)
                found[product] = found.get(product, 0) + c * d
        return made(self.scope, found)

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
        return NotImplemented if self._of(other) is None else divided(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return NotImplemented if self._of(other) is None else divided(other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(operator.floordiv, other) if self._of(other) is None else divided(self, other)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(operator.floordiv, other, True) if self._of(other) is None else divided(other, self)[0]

    def __mod__(self, other: Any) -> Any:
        return self._with(operator.mod, other) if self._of(other) is None else divided(self, other)[1]

    def __rmod__(self, other: Any) -> Any:
        return self._with(operator.mod, other, True) if self._of(other) is None else divided(other, self)[1]

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
        text = ""
        for monomial, coefficient in sorted(self.terms.items(), key=lambda term: _order(term[0]), reverse=True):
            size, own = abs(coefficient), _spelt(monomial)
            part = own if size == 1 and own else f"{size}*{own}" if own else f"{size}"
            sign = "- " if coefficient < 0 else "+ " if text else ""
            text += f"{' ' if text else ''}{sign}{part}"
        return text

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


def _product(a: Monomial, b: Monomial) -> Monomial:
    powers: dict[Atom, int] = {}
    for atom, power in (*a, *b):
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=str))


def _order(monomial: Monomial) -> Any:
    """By degree, then by the last atoms."""
    atoms = [(atom[0] != "var", _atom_text(atom)) for atom, power in monomial for _ in range(power)]
    return len(atoms), sorted(atoms, reverse=True)


def _spelt(monomial: Monomial) -> str:
    ordered = sorted(monomial, key=lambda part: (part[0][0] != "var", _atom_text(part[0])))
    return "*".join(_atom_text(a) if p == 1 else f"{_atom_text(a)}^{p}" for a, p in ordered)


def _atom_text(atom: Atom) -> str:
    return str(atom[1]) if atom[0] == "var" else f"{atom[0]}({atom[1]}, {atom[2]})"


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
            left = _without(m, monomial)
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


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    powers = dict(monomial)
    for atom, power in divisor:
        powers[atom] = powers.get(atom, 0) - power
        if powers[atom] < 0:
            return None
    return tuple(sorted(((a, p) for a, p in powers.items() if p), key=str))


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
        "constraint that decides it"
    )


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


def slice_bounds(start: Any, stop: Any, step: int, extent: Any) -> tuple[Any, Any]:
    """(first, count) of a slice of so many elements, as `slice.indices` has them; None for bounds that are left out."""
    lowest, highest = (0, extent) if step > 0 else (-1, extent - 1)

    def inside(bound: Any, otherwise: Any) -> Any:
        if bound is None:
            return otherwise
        bound = bound if known_at_least(bound, 0) else bound + extent
        return maximum(lowest, minimum(bound, highest))

    first = inside(start, lowest if step > 0 else highest)
    last = inside(stop, highest if step > 0 else lowest)
    distance = last - first if step > 0 else first - last
    return first, maximum(0, -(-distance // abs(step)))


def common_shape(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """`np.broadcast_shapes`, of symbolic extents too. ValueError for shapes that do not go together."""
    if not any(type(d) is Dim for shape in shapes for d in shape):
        return np.broadcast_shapes(*shapes)
    result: list[Any] = []
    for n in range(max(map(len, shapes))):
        extents = {
            shape[-1 - n]: None
            for shape in shapes
            if n < len(shape) and not (type(shape[-1 - n]) is int and shape[-1 - n] == 1)
        }
        if len(extents) > 1:
            raise ValueError(f"shapes {', '.join(map(str, shapes))} cannot be broadcast together")
        result.append(next(iter(extents), 1))
    return tuple(reversed(result))
