"""Attention whose scores several products read, as in its gradient: each kernel computes them again, none stores them.

Of a first product Q Kᵀ all that is made element by element is found, with the products that take part in it (dO Vᵀ). What
leaves are further products (O, dQ, dK, dV) and reductions of rows: the forward pass writes these beside its product, the
kernels after it read them. Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning" (2023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from fuser.config import config
from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import MOVES, Fusion
from fuser.legalise.attention import MOST_EQNS, Surroundings, inside
from fuser.legalise.row_dots import with_row_dots
from fuser.legalise.shift_invariance import without_gradients_of_maxima
from fuser.ops.attention import attention_p, result_type
from fuser.ops.conversion import convert_element_type_p, copy_p
from fuser.ops.elementwise import eq_p, ne_p
from fuser.ops.movement import transpose_p
from fuser.passes.dce import drop_dead

Supports = Callable[[Eqn], str | None]
IN_MEMORY = "its weights are needed in memory by other operations too"


@dataclass(frozen=True, eq=False)
class End:
    """A product that reads weights, as operand `side`, and what follows it alone: movement and conversions."""

    eqn: Eqn
    side: int
    epilogue: tuple[Eqn, ...]

    @property
    def result(self) -> Var:
        return (self.epilogue[-1] if self.epilogue else self.eqn).outvars[0]


@dataclass(eq=False)
class Region:
    """What is made of `products` of as many elements as the scores: `eqns`, and where that ends."""

    products: list[Eqn] = field(default_factory=list)
    eqns: set[Eqn] = field(default_factory=set)
    ends: list[End] = field(default_factory=list)
    sums: list[Eqn] = field(default_factory=list)  # reductions of rows


def with_recomputed_scores(graph: Graph, supports: Supports) -> Graph:
    """The graph with kernels that share no weights in memory, where a backend `supports` all that a region needs."""
    products = sum(eqn.primitive.fusion is Fusion.DOT for eqn in graph.eqns)
    if not products or not any(eqn.primitive.fusion is Fusion.REDUCE for eqn in graph.eqns):
        return graph
    graph = without_gradients_of_maxima(graph) if products >= 3 else graph
    around = Surroundings(graph)
    regions = _regions(around)
    while regions:
        short = with_row_dots(graph, around.maker, list(regions.values()))
        shorter = around if short is graph else Surroundings(short)
        found = _kernels(shorter, regions, supports, again=short is not graph)
        if short is graph or len(found) == len(regions):
            return _replaced(short, [eqn for eqns in found.values() for eqn in eqns]) or _one_by_one(short, found)
        regions = {first: region for first, region in regions.items() if first in found}  # the others keep their sums
    return graph


def _regions(around: Surroundings) -> dict[Eqn, Region]:
    """The regions of a graph by their first products; no product is in two."""
    found: dict[Eqn, Region] = {}
    seen = set[Eqn]()
    for first in [eqn for eqn in around.order if eqn.primitive.fusion is Fusion.DOT]:
        region = "" if first in seen else _region(around, first)
        if isinstance(region, str) or not region.sums:
            continue
        if region.ends and len(region.ends) + len(region.products) < 3:
            continue
        if not seen & set(region.products):
            found[first] = region
        seen |= set(region.products)
    return found


def _kernels(around: Surroundings, regions: dict[Eqn, Region], supports: Supports, again: bool) -> dict[Eqn, list[Eqn]]:
    """The kernels of each region that has them, as far as FUSER_FUEL allows; regions are looked for `again` in another graph."""
    found: dict[Eqn, list[Eqn]] = {}
    made = 0
    for first, known in regions.items():
        region = _region(around, first) if again else known
        eqns = region if isinstance(region, str) else _Kernels(around, region, supports).found()
        if not isinstance(eqns, str) and not 0 <= config.fuel < made + len(eqns):
            found[first], made = eqns, made + len(eqns)
    return found


def _one_by_one(graph: Graph, found: dict[Eqn, list[Eqn]]) -> Graph:
    """The graph with as many regions' kernels as do not wait for each other in a circle."""
    taken: list[Eqn] = []
    for eqns in found.values():
        replaced = _replaced(graph, [*taken, *eqns])
        taken += eqns if replaced is not None else []
    return (_replaced(graph, taken) if taken else None) or graph


def _region(around: Surroundings, first: Eqn) -> Region | str:
    """All that is made of a product element by element; why some of it must lie in memory."""
    size, region, stack, ending = first.outvars[0].aval.size, Region(), [first], set[Eqn]()
    region.products.append(first)
    while stack:
        eqn = stack.pop()
        if len(region.eqns) > MOST_EQNS:
            return f"more than {MOST_EQNS} operations would be computed again"
        for reader in around.reading(eqn):
            if reader is None:
                return IN_MEMORY
            if reader in region.eqns or reader in region.sums or reader in ending:
                continue
            if reader.primitive in (eq_p, ne_p) and reader.invars[0] is not reader.invars[1]:
                return "scores that are computed again are tested for equality"
            fusion, large = reader.primitive.fusion, reader.outvars[0].aval.size == size
            if fusion is Fusion.DOT and reader.primitive is not attention_p:
                ending.add(reader)
                region.ends.append(_end(around, reader, reader.invars.index(eqn.outvars[0])))
            elif fusion is Fusion.REDUCE and not large:
                region.sums.append(reader)
            elif large and inside(reader) and (fusion is Fusion.ELEMENTWISE or reader.primitive.movement in MOVES):
                region.eqns.add(reader)
                stack.append(reader)
                for product in _beside(around, reader, region, size):
                    region.products.append(product)
                    stack.append(product)
            else:
                return IN_MEMORY
    region.ends.sort(key=lambda end: around.order[end.eqn])
    region.sums.sort(key=around.order.__getitem__)
    if any(end.eqn in region.products for end in region.ends):
        return "a product of its weights is a score of others"
    return region


def _beside(around: Surroundings, eqn: Eqn, region: Region, size: int) -> Iterator[Eqn]:
    """Further products that an equation of the region is made of."""
    stack, seen = [v for v in eqn.operands() if v.aval.size == size], set[Var]()
    while stack:
        var = stack.pop()
        maker = around.maker.get(var)
        if maker is None or var in seen or maker in region.eqns or maker in region.products:
            continue
        seen.add(var)
        if maker.primitive.fusion is Fusion.DOT and maker.primitive is not attention_p:
            yield maker
        elif inside(maker) and maker.primitive.fusion is not Fusion.REDUCE:
            stack.extend(v for v in maker.operands() if v.aval.size == size)


def _end(around: Surroundings, eqn: Eqn, side: int) -> End:
    epilogue: list[Eqn] = []
    while True:
        readers = list(around.reading(epilogue[-1] if epilogue else eqn))
        if len(readers) != 1 or readers[0] is None or not _follows(readers[0]):
            return End(eqn, side, tuple(epilogue))
        epilogue.append(readers[0])


def _follows(eqn: Eqn) -> bool:
    return eqn.primitive in (transpose_p, convert_element_type_p, copy_p)


@dataclass(eq=False)
class _Kernel:
    """One kernel to be: products of weights, and reductions of rows."""

    ends: list[End]
    sums: list[Eqn]
    eqn: Eqn
    online: bool


class _Kernels:
    """Shares a region out to kernels, each of which a backend supports."""

    def __init__(self, around: Surroundings, region: Region, supports: Supports) -> None:
        self.around, self.region, self.supports = around, region, supports
        self.kernels: list[_Kernel] = []
        self.reason = ""

    def found(self) -> list[Eqn] | str:
        """The kernels' equations; why there are none."""
        ends, sums = list(self.region.ends), list(self.region.sums)
        for end in ends:
            needed = self._sums_of(end)
            if needed and self._add(None, [end], needed, online=True):
                ends.remove(end)
                sums = [s for s in sums if s not in needed]
                break
        for reduction in sums:
            last = self.kernels[-1] if self.kernels else None
            joined = (
                last is not None and not last.ends and self._add(last, [], [reduction, *last.sums], online=last.online)
            )
            if not joined and last is not None and not self.region.ends:
                return "its rows are reduced by more than one kernel, each of which would compute the product"
            if not joined and not self._add(None, [], [reduction], online=True):
                return self.reason
        for end in ends:
            others = [k for k in self.kernels if k.ends and not k.online]
            if not any(self._add(k, [*k.ends, end], [], online=False) for k in others) and not self._add(
                None, [end], [], online=False
            ):
                return self.reason
        return [kernel.eqn for kernel in self.kernels]

    def _sums_of(self, end: End) -> list[Eqn]:
        """The reductions that the weights of a product need."""
        made = self.around.weights(end.eqn.invars[end.side], self.region.products, frozenset())
        return [s for s in self.region.sums if s in made]

    def _add(self, old: _Kernel | None, ends: list[End], sums: list[Eqn], online: bool) -> bool:
        """Try a kernel in the place of an `old` one, or beside the others."""
        others = [k for k in self.kernels if k is not old]
        given = frozenset(s for k in others for s in k.sums)
        around, eqns = self.around, set[Eqn]()
        for end in ends:
            eqns |= {end.eqn, *end.epilogue} if len(ends) > 1 or not online else {end.eqn}
            eqns |= around.weights(end.eqn.invars[end.side], self.region.products, given)
            eqns |= around.moved(end.eqn.invars[1 - end.side])
        for reduction in sums:
            eqns |= {reduction} | around.weights(reduction.invars[0], self.region.products, given)
        if not eqns & set(self.region.products) or any(s in eqns and s not in sums for s in self.region.sums):
            self.reason = "its rows need reductions that no kernel before it makes"
            return False
        results = [end.result if not online else end.eqn.outvars[0] for end in ends]
        results += [s.outvars[0] for s in sums]
        eqn = around.equation(eqns, results, (ends[0].eqn if ends else sums[0]).source)
        reason = self.supports(eqn)
        if reason is None and self._circular(eqn):
            reason = "what it reads is made of what it makes"
        if reason is not None:
            self.reason = reason
            return False
        kernel = _Kernel(ends, sums, eqn, online)
        self.kernels = [kernel if k is old else k for k in self.kernels] if old is not None else [*others, kernel]
        return True

    def _circular(self, eqn: Eqn) -> bool:
        """Whether what an equation reads depends on its results."""
        results, stack, seen = set(eqn.outvars), [*eqn.operands()], set[Var]()
        order = self.around.order
        earliest = min(order[self.around.maker[v]] for v in results)
        while stack:
            var = stack.pop()
            if var in results:
                return True
            maker = self.around.maker.get(var)
            if var not in seen and maker is not None and order[maker] > earliest:
                seen.add(var)
                stack.extend(maker.operands())
        return False


def _replaced(graph: Graph, found: list[Eqn]) -> Graph | None:
    """The graph with these equations for those that make the same; reductions are handed on with the bits that they have."""
    wide: dict[Var, Var] = {}
    converted: list[Eqn] = []
    made: list[Eqn] = []
    for eqn in found:
        types = [result_type(eqn.params["graph"], v) for v in eqn.params["graph"].outvars]
        results = tuple(v if v.aval.dtype == t.dtype else Var(t) for v, t in zip(eqn.outvars, types, strict=True))
        wide |= {old: new for old, new in zip(eqn.outvars, results) if old is not new}
        made.append(replace(eqn, outvars=results))
    for old, new in wide.items():
        params = {"new_dtype": old.aval.dtype, "weak_type": False}
        converted.append(Eqn(convert_element_type_p, (new,), params, (old,), found[0].source))
    made = [replace(eqn, invars=tuple(wide.get(v, v) if isinstance(v, Var) else v for v in eqn.invars)) for eqn in made]
    gone = {v for eqn in (*made, *converted) for v in eqn.outvars}
    kept = [eqn for eqn in graph.eqns if not gone & set(eqn.outvars)]
    ordered = _ordered([*kept, *made, *converted])
    return None if ordered is None else drop_dead(replace(graph, eqns=tuple(ordered)))


def _ordered(eqns: list[Eqn]) -> list[Eqn] | None:
    """Equations each after those that it needs, otherwise in their order; None where they depend on each other in a circle."""
    maker = {v: eqn for eqn in eqns for v in eqn.outvars}
    state: dict[Eqn, int] = {}
    found: list[Eqn] = []
    for root in eqns:
        stack = [root]
        while stack:
            eqn = stack[-1]
            if state.get(eqn) == 2:
                stack.pop()
                continue
            needs = [m for v in eqn.operands() if (m := maker.get(v)) is not None and state.get(m) != 2]
            if not needs:
                state[eqn] = 2
                found.append(eqn)
                stack.pop()
            elif any(state.get(m) == 1 for m in needs):
                return None
            else:
                state[eqn] = 1
                stack.extend(needs)
    return found
