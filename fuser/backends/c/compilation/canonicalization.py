"""Canonicalisation of short loops: each element is read once, right before its first use, and stores come last.

In: a loop. Out: one that computes the same; loops that differ in the order of their statements alone become equal, and then
one function (`outlining.py`). A read may move before a store: where both are of one memory, they are of one element, and the
read was to come first. A loop that reads what it stores stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuser.backends.c.function import Code, Element, For, Let, Set, Statement, Sum, Variable, leaves

MOST = 32  # statements; a long loop seldom has a like, and its order is what a compiler's registers go by


def canonical(loop: For) -> For:
    """The loop in its canonical form, or as it is."""
    if len(loop.body) > MOST or not all(map(_known, loop.body)):
        return loop
    lets = {s.variables[0]: s for s in loop.body if isinstance(s, Let)}
    sets = [s for s in loop.body if isinstance(s, Set)]
    if not _independent(lets, sets):
        return loop
    return replace(loop, body=_Ordering(lets).statements(sets))


def _known(statement: Statement) -> bool:
    return isinstance(statement, Set) or (isinstance(statement, Let) and len(statement.variables) == 1)


def _independent(lets: dict[Variable, Let], sets: Sequence[Set]) -> bool:
    """Whether the assignments may come in any order, after all else."""
    arrays = [s.target.array for s in sets if isinstance(s.target, Element)]
    changed = [s.target for s in sets if isinstance(s.target, Variable)]
    targets = {*arrays, *changed}
    if len(targets) < len(sets) or targets & lets.keys():
        return False
    values = [(s.value, s.target) for s in sets] + [(let.values[0], None) for let in lets.values()]
    for value, target in values:
        if any(leaf in targets and leaf != target for leaf in leaves(value) if type(leaf) is Variable):
            return False
        for before, part in zip(("", *value), value):
            addressed = type(before) is str and before.endswith("&")
            if (type(part) is Element and (addressed or _nested(part))) or (type(part) is Variable and addressed):
                return False
    places = [s.target for s in sets if isinstance(s.target, Element)]
    return not any(_nested(place) for place in places)


def _nested(element: Element) -> bool:
    """Whether an element of an array says which element it is."""
    terms = [term for _, term in element.offset.terms] if type(element.offset) is Sum else [element.offset]
    return any(type(part) is Element for term in terms for part in term)


class _Ordering:
    """Statements in the order in which assignments need them."""

    def __init__(self, lets: dict[Variable, Let]) -> None:
        self.lets = lets
        self.found: list[Statement] = []
        self.done: dict[Variable, Variable] = {}  # by variable of the loop, the one that has its value
        self.loads: dict[Element, Variable] = {}
        self.sizes: dict[Variable, int] = {}

    def statements(self, sets: Sequence[Set]) -> tuple[Statement, ...]:
        last = []
        for one in sorted(sets, key=lambda s: (isinstance(s.target, Variable), self._size(s.value))):
            target = one.target
            if isinstance(target, Element):
                target = self._element(target)
            last.append(Set(target, self._value(one.value), one.operator))
        return (*self.found, *last)

    def _size(self, value: Code) -> int:
        """The statements that a value needs, those that are needed twice counted twice."""
        total = 0
        for leaf in leaves(value):
            if type(leaf) is Variable and leaf in self.lets:
                if leaf not in self.sizes:
                    self.sizes[leaf] = 1 + self._size(self.lets[leaf].values[0])
                total += self.sizes[leaf]
        return total

    def _value(self, value: Code) -> Code:
        found = []
        for part in value:
            if type(part) is Element:
                part = self._load(part)
            elif type(part) is Variable:
                part = self._variable(part)
            found.append(part)
        return Code(found)

    def _load(self, element: Element) -> Variable:
        element = self._element(element)
        if element not in self.loads:
            kind = element.array.type
            self.loads[element] = Variable(f"load{len(self.loads)}", kind)
            self.found.append(Let(f"const {kind}", (self.loads[element],), (Code((element,)),)))
        return self.loads[element]

    def _element(self, element: Element) -> Element:
        offset = element.offset
        if isinstance(offset, Sum):
            return Element(element.array, Sum(tuple((sign, self._value(term)) for sign, term in offset.terms)))
        return Element(element.array, self._value(offset))

    def _variable(self, variable: Variable) -> Variable:
        if variable not in self.lets:
            return variable
        if variable not in self.done:
            let = self.lets[variable]
            value = self._value(let.values[0])
            same = len(value) == 1 and type(value[0]) is Variable and let.type == f"const {value[0].type}"
            self.done[variable] = value[0] if same else variable
            if not same:
                self.found.append(replace(let, values=(value,)))
        return self.done[variable]
