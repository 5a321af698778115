"""Terms of symbolic extents: sums of products of atoms, which are variables and operations on other extents.

They have bounds, so that what is made of a text that a stranger wrote takes bounded time.
"""

from __future__ import annotations

from typing import Any

Atom = tuple[Any, ...]  # ("var", name) or (operation, Dim or int, Dim or int)
Monomial = tuple[tuple[Atom, int], ...]  # atoms with their powers, in order
Terms = dict[Monomial, int]

MOST_TERMS = 512
MOST_ATOMS = 8192  # those in operands of atoms among them
MOST_DEGREE = 64
MOST_RULES = 16  # of equations, each with so many terms, and of uses in one polynomial
MOST_COEFFICIENT = 1 << 127


def rewritten(terms: Terms, rules: dict[Monomial, tuple[int, Terms]]) -> Terms:
    """The terms with each multiple of what an equation defines replaced by the rest of the equation, which is less in order."""
    for _ in range(MOST_RULES if rules and len(terms) < MOST_DEGREE else 0):
        found = next(
            (
                (m, quotient, c // k, rest)
                for m, c in terms.items()
                for defined, (k, rest) in rules.items()
                if c % k == 0 and (quotient := without(m, defined)) is not None
            ),
            None,
        )
        if found is None:
            break
        monomial, quotient, times, rest = found
        terms = {m: c for m, c in terms.items() if m != monomial}
        for m, c in rest.items():
            whole = product(m, quotient)
            terms[whole] = terms.get(whole, 0) + times * c
        terms = {m: c for m, c in terms.items() if c}
    return terms


def checked_size(terms: Terms) -> int:
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
    return 1 + sum(getattr(operand, "atoms", 0) for operand in atom[1:])


def product(a: Monomial, b: Monomial) -> Monomial:
    powers: dict[Atom, int] = {}
    for atom, power in (*a, *b):
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=str))


def order(monomial: Monomial) -> Any:
    """By degree, then by the last atoms."""
    atoms = [(atom[0] != "var", atom_text(atom)) for atom, power in monomial for _ in range(power)]
    return len(atoms), sorted(atoms, reverse=True)


def spelt(monomial: Monomial) -> str:
    ordered = sorted(monomial, key=lambda part: (part[0][0] != "var", atom_text(part[0])))
    return "*".join(atom_text(a) if p == 1 else f"{atom_text(a)}^{p}" for a, p in ordered)


def atom_text(atom: Atom) -> str:
    return str(atom[1]) if atom[0] == "var" else f"{atom[0]}({atom[1]}, {atom[2]})"


def without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    powers = dict(monomial)
    for atom, power in divisor:
        powers[atom] = powers.get(atom, 0) - power
        if powers[atom] < 0:
            return None
    return tuple(sorted(((a, p) for a, p in powers.items() if p), key=str))


def multiplied(a: Terms, b: Terms) -> Terms:
    """The product of two polynomials. ValueError for one of too many terms."""
    if len(a) * len(b) > MOST_TERMS * MOST_DEGREE:
        raise ValueError(f"a product of symbolic dimensions has more than {MOST_TERMS} terms")
    found: Terms = {}
    for m, c in a.items():
        for n, d in b.items():
            whole = product(m, n)
            found[whole] = found.get(whole, 0) + c * d
    return found


def text(terms: Terms) -> str:
    """The polynomial as it is written: `2*b + a - 1`."""
    found = ""
    for monomial, coefficient in sorted(terms.items(), key=lambda term: order(term[0]), reverse=True):
        size, own = abs(coefficient), spelt(monomial)
        part = own if size == 1 and own else f"{size}*{own}" if own else f"{size}"
        sign = "- " if coefficient < 0 else "+ " if found else ""
        found += f"{' ' if found else ''}{sign}{part}"
    return found
