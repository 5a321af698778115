"""Attention: softmax(Q Kᵀ · scale + mask) V and its kin as one equation, so that no array of queries × keys lies in memory.

What stands between the two products is found by walking back from the second one: elementwise work, reductions and movement. What
of it does not depend on the first product is computed inside where it is made of less than it makes (masks of positions).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fuser.config import config
from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import MOVES, Fusion, Movement
from fuser.ir.rewrite import Rewriter
from fuser.ir.source import Source
from fuser.ir.types import FLOATS, bfloat16
from fuser.ops.attention import attention_p
from fuser.ops.conversion import convert_element_type_p
from fuser.ops.elementwise import exp_p
from fuser.passes.dce import drop_dead

MOST_EQNS = 64  # between the products


def with_attention(graph: Graph, supports: Callable[[Eqn], str | None]) -> Graph:
    """The graph with each such chain that a backend `supports` as one `attention` equation; FUSER_FUEL counts them."""
    if sum(eqn.primitive.fusion is Fusion.DOT for eqn in graph.eqns) < 2:
        return graph
    around, made = Surroundings(graph), 0
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        allowed = config.fuel < 0 or made < config.fuel
        found = around.attention(eqn) if eqn.primitive.fusion is Fusion.DOT and allowed else None
        if found is not None and supports(found) is None:
            made += 1
            eqn = found
        rewriter.keep(eqn)
    return drop_dead(rewriter.finish()) if made else graph


def refusals(graph: Graph, supports: Callable[[Eqn], str | None]) -> Iterator[tuple[Eqn, Eqn, str]]:
    """Of each chain with exponentials that is left in a graph its products, and why it is no kernel of its own."""
    around = Surroundings(graph)
    for eqn in graph.eqns:
        if eqn.primitive.fusion is not Fusion.DOT or eqn.primitive is attention_p:
            continue
        for between in (around.between(eqn, side) for side in range(2)):
            if between is not None and any(e.primitive is exp_p for e in between.eqns):
                yield between.first, eqn, between.reason or supports(around.joined(eqn, between)) or FUEL


FUEL = "the merges allowed by FUSER_FUEL are used up"


@dataclass(frozen=True)
class _Between:
    """What stands between two products: the first one, and the equations that depend on it or that are computed inside; `side`
    is the operand of the second one that they make; `reason`: why they cannot be left out of memory."""

    first: Eqn
    eqns: frozenset[Eqn]
    side: int
    reason: str = ""


class Surroundings:
    """Who makes and who reads each value of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.order = {eqn: number for number, eqn in enumerate(graph.eqns)}
        self.maker = graph.producers
        self.readers: dict[Var, list[Eqn | None]] = {}
        for eqn in graph.eqns:
            for var in dict.fromkeys(eqn.operands()):
                self.readers.setdefault(var, []).append(eqn)
        for result in graph.outvars:
            if isinstance(result, Var):
                self.readers.setdefault(result, []).append(None)

    def attention(self, second: Eqn) -> Eqn | None:
        """The equation of all that ends in the product `second`; None where it is no attention."""
        for side in range(len(second.invars)):
            between = self.between(second, side)
            if between is not None:
                return None if between.reason else self.joined(second, between)
        return None

    def between(self, second: Eqn, side: int) -> _Between | None:
        """What makes operand `side` of a product out of another product by way of a reduction; None where nothing does."""
        operand = second.invars[side]
        region = self._region(operand, frozenset())
        if not any(eqn.primitive.fusion is Fusion.REDUCE for eqn in region):
            return None
        first = next(iter(self.products(region, operand.aval.size)), None)
        if first is None:
            return None
        depends = self._depending(region, (first,))
        if any(reader not in depends and reader is not second for eqn in depends for reader in self.reading(eqn)):
            return _Between(first, frozenset(depends), side, "its weights are needed in memory by other operations too")
        inside = depends | self._recomputed(depends - {first}, region - depends)
        return _Between(first, frozenset(inside - {first}), side)

    def products(self, region: Iterable[Eqn], size: int) -> list[Eqn]:
        """The products of so many elements that equations read."""
        read = dict.fromkeys(v for eqn in region for v in eqn.operands())
        found = [eqn for v in read if (eqn := self.maker.get(v)) is not None and eqn.primitive.fusion is Fusion.DOT]
        return [eqn for eqn in found if eqn.outvars[0].aval.size == size]

    def weights(self, operand: Operand, products: Collection[Eqn], given: frozenset[Eqn]) -> set[Eqn]:
        """The equations inside of a kernel that computes an operand from `products`, these included; what `given` ones
        make lies in memory."""
        region = self._region(operand, given)
        depends = self._depending(region, products)
        depends |= {product for product in products if operand in product.outvars}
        inside = depends | self._recomputed(depends - set(products), region - depends)
        for product in depends & set(products):
            for v in product.invars:
                inside |= self.moved(v)
        return inside

    def _depending(self, region: set[Eqn], products: Collection[Eqn]) -> set[Eqn]:
        """Those of a region that depend on products, and the products."""
        depends = set[Eqn]()
        for eqn in sorted(region, key=self.order.__getitem__):
            makers = {self.maker.get(v) for v in eqn.operands()}
            depends |= makers & set(products)  # type: ignore[arg-type]
            if makers & depends:
                depends.add(eqn)
        return depends

    def reading(self, eqn: Eqn) -> Iterable[Eqn | None]:
        return (reader for v in eqn.outvars for reader in self.readers.get(v, ()))

    def _region(self, operand: Operand, given: frozenset[Eqn]) -> set[Eqn]:
        """The equations that an operand is made of, back to products, to what is not computed element by element or is given,
        and not too far."""
        found: set[Eqn] = set()
        stack = [operand]
        while stack:
            eqn = self.maker.get(stack.pop())  # type: ignore[arg-type]
            if eqn is None or eqn in found or eqn in given or not inside(eqn):
                continue
            if len(found) == MOST_EQNS:
                return set()
            found.add(eqn)
            stack.extend(eqn.operands())
        return found

    def _recomputed(self, depends: set[Eqn], others: set[Eqn]) -> set[Eqn]:
        """Those of `others` that make what `depends` read of less than that."""
        found: set[Eqn] = set()
        for value in dict.fromkeys(v for eqn in depends for v in eqn.operands() if self.maker.get(v) in others):
            eqns, leaves = self._made_of(value, others)
            bytes_read = sum(v.aval.nbytes for v in leaves)
            reduced = any(eqn.primitive.fusion is Fusion.REDUCE for eqn in eqns)
            views = all(eqn.primitive.movement in MOVES for eqn in eqns)
            if views or (not reduced and 2 * bytes_read <= value.aval.nbytes):
                found |= eqns
        return found

    def _made_of(self, value: Var, inside: set[Eqn]) -> tuple[set[Eqn], set[Var]]:
        """The equations of `inside` that a value is made of, and the values that these read."""
        eqns: set[Eqn] = set()
        leaves: set[Var] = set()
        stack = [value]
        while stack:
            var = stack.pop()
            eqn = self.maker.get(var)
            if eqn is None or eqn not in inside:
                leaves.add(var)
            elif eqn not in eqns:
                eqns.add(eqn)
                stack.extend(eqn.operands())
        return eqns, leaves

    def joined(self, second: Eqn, between: _Between) -> Eqn:
        """All from the first product to the second one as one equation."""
        eqns = {*between.eqns, between.first, second}
        for operand in (*between.first.invars, second.invars[1 - between.side]):
            eqns |= self.moved(operand)
        return self.equation(eqns, second.outvars, second.source)

    def equation(self, eqns: Iterable[Eqn], results: Sequence[Var], source: Source) -> Eqn:
        """Equations of the graph as one `attention` that makes `results`."""
        inputs, inner = _closed(sorted(eqns, key=self.order.__getitem__), results)
        return Eqn(attention_p, inputs, {"graph": inner}, tuple(results), source)

    def moved(self, operand: Operand) -> set[Eqn]:
        """The movement and the widening through which a product reads an operand."""
        found: set[Eqn] = set()
        eqn = self.maker.get(operand)  # type: ignore[arg-type]
        while eqn is not None and (eqn.primitive.movement in MOVES or _widens(eqn)) and isinstance(eqn.invars[0], Var):
            found.add(eqn)
            eqn = self.maker.get(eqn.invars[0])
        return found


def _widens(eqn: Eqn) -> bool:
    """Whether an equation converts floats without loss."""
    narrow = eqn.invars[0].aval.dtype if eqn.invars else None
    return eqn.primitive is convert_element_type_p and narrow == bfloat16 and eqn.outvars[0].aval.dtype == FLOATS[2]


def inside(eqn: Eqn) -> bool:
    """Whether an equation may stand between the products."""
    fusion, movement = eqn.primitive.fusion, eqn.primitive.movement
    return fusion in (Fusion.ELEMENTWISE, Fusion.REDUCE) or movement in (*MOVES, Movement.MAKE)


def _closed(eqns: list[Eqn], results: Iterable[Var]) -> tuple[tuple[Var, ...], Graph]:
    """Equations as a graph with variables of its own, and the values that it reads."""
    made = {v for eqn in eqns for v in eqn.outvars}
    inputs = tuple(dict.fromkeys(v for eqn in eqns for v in eqn.operands() if v not in made))
    new = {v: Var(v.aval) for v in (*inputs, *made)}
    current = lambda v: new[v] if isinstance(v, Var) else v
    copies = tuple(
        Eqn(e.primitive, tuple(map(current, e.invars)), e.params, tuple(new[v] for v in e.outvars), e.source)
        for e in eqns
    )
    return inputs, Graph(tuple(new[v] for v in inputs), (), (), copies, tuple(new[v] for v in results), "attention")
