"""Carries that a loop's body only writes parts of, by a chain of `dynamic_update_slice`s that begins with the carry itself.

Such a body need not give the whole carry: it gives the parts and where they belong, and the loop writes them in place, one after
the other, once the step is over, when nothing reads the old carry any more. A chain may also begin with what loops inside have made
of the carry: then the body gives that, and the updates are written into it. An update of the carry that such a loop starts from is
a loop of one step, so that it is written in place where it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Control, Fusion, Movement
from fuser.ops.control import scan_p
from fuser.ops.movement import slice_p
from fuser.passes.indexing.scatter_to_update import origin


@dataclass(frozen=True)
class Update:
    """`value` goes into carry `carry` at `starts`, one a dimension, moved inside where it does not fit."""

    carry: int
    value: Operand
    starts: tuple[Operand, ...]


@dataclass(frozen=True, eq=False)
class InPlace:
    """A body whose results are the carries `moving`, its ys, and then what the updates need, at `results`; what they need that is an
    input of the body, and no carry, is read from there: `inputs`."""

    body: Graph
    moving: tuple[int, ...]
    updates: tuple[Update, ...]
    results: dict[Operand, int]
    inputs: dict[Operand, int]


@dataclass(frozen=True, eq=False)
class LoopBuffers:
    """Where the carries of a native loop lie. `slots` are those of the body's plan that the moving carries are written to,
    `rows` those of a scan's results of each step.

    Carries that are `updated` alone, and those `in_place`, stay in the result's memory. `double` change between it and a back
    buffer; the rest share a slot with one of these, or with a row. `within` are slots of the body's plan that lie where a carry
    in place does, by the carry.
    """

    updated: InPlace
    slots: dict[int, int]
    rows: tuple[int, ...]
    in_place: frozenset[int]
    double: tuple[int, ...]
    within: dict[int, int]


def carries(eqn: Eqn) -> tuple[int, int]:
    """The place of a loop's first carry among its operands, and the number of them."""
    params = eqn.params
    if eqn.primitive.control is Control.SCAN:
        return params["num_consts"], params["num_carry"]
    return params["cond_nconsts"] + params["body_nconsts"], len(eqn.outvars)


def updates_in_place(eqn: Eqn) -> InPlace:
    """The body of a scan, or of a while without lanes, with the updates taken out."""
    params = eqn.params
    if eqn.primitive.control is Control.SCAN:
        body, first, count = params["jaxpr"], params["num_consts"], params["num_carry"]
    else:
        body, first, count = params["body_jaxpr"], params["body_nconsts"], len(eqn.outvars)
    lanes = eqn.primitive.control is Control.WHILE and params["cond_jaxpr"].out_avals[0].shape
    chains = {} if lanes else _chains(body, first, count)
    updates = tuple(Update(n, e.invars[1], e.invars[2:]) for n, chain in chains.items() for e in chain)
    bases = {n: chain[0].invars[0] for n, chain in chains.items() if chain[0].invars[0] is not body.invars[first + n]}
    moving = tuple(n for n in range(count) if n not in chains or n in bases)
    wanted = [operand for update in updates for operand in _needs(update)]
    inputs: dict[Operand, int] = {v: n for n, v in enumerate(body.invars) if not first <= n < first + count}
    extra = [operand for operand in dict.fromkeys(wanted) if operand not in inputs]
    outvars = [*(bases.get(n, body.outvars[n]) for n in moving), *body.outvars[count:]]
    results: dict[Operand, int] = {operand: len(outvars) + n for n, operand in enumerate(extra)}
    gone = {eqn for chain in chains.values() for eqn in chain}
    early = set() if lanes else _before_loops(body, first, count)
    eqns = tuple(one_step(e) if e in early else e for e in body.eqns if e not in gone)
    smaller = replace(body, eqns=eqns, outvars=(*outvars, *extra)) if updates or early else body
    return InPlace(smaller, moving, updates, results, inputs)


def _needs(update: Update) -> list[Operand]:
    return [update.value, *(start for start in update.starts if isinstance(start, Var))]


def _chains(body: Graph, first: int, count: int) -> dict[int, list[Eqn]]:
    """The updates, in their order, of each carry that they alone change, or they and loops inside."""
    producers = body.producers
    uses = Counter([v for eqn in body.eqns for v in eqn.operands()] + [v for v in body.outvars if isinstance(v, Var)])
    found = {}
    for n in range(count):
        chain, operand = [], body.outvars[n]
        while (eqn := _update(operand, producers, uses)) is not None:
            chain.append(eqn)
            operand = eqn.invars[0]
        if chain and (operand is body.invars[first + n] or _looped(operand, body, body.invars[first + n])):
            found[n] = chain[::-1]
    return found


def _looped(operand: Operand, body: Graph, carry: Var) -> bool:
    """Whether `operand` is what loops have made of the carry, one after the other, and no result of the body shares its memory."""
    readers = [e for e in body.eqns if operand in e.invars and e.primitive.movement is not Movement.UPDATE]
    if operand in body.outvars or any(is_copy(e, operand) for e in readers):
        return False
    return origin(operand, body.producers)[0] is carry


def _before_loops(body: Graph, first: int, count: int) -> set[Eqn]:
    """The updates of carries that loops go on with."""
    found: set[Eqn] = set()
    producers = body.producers
    for n in range(count):
        operand = body.outvars[n]
        while (eqn := producers.get(operand)) is not None and eqn.primitive.movement is Movement.UPDATE:
            operand = eqn.invars[0]
        start, updates = origin(operand, producers)
        if start is body.invars[first + n]:
            found.update(eqn for eqn in updates if not _mostly(eqn))
    return found


def one_step(eqn: Eqn) -> Eqn:
    """An update as a loop of one step that carries the array."""
    operands = tuple(dict.fromkeys(v for v in eqn.invars[1:] if isinstance(v, Var)))
    inside = {v: Var(v.aval) for v in (*operands, eqn.invars[0], eqn.outvars[0])}
    new = Eqn(
        eqn.primitive, tuple(inside.get(v, v) for v in eqn.invars), eqn.params, (inside[eqn.outvars[0]],), eqn.source
    )
    body = Graph((*(inside[v] for v in operands), inside[eqn.invars[0]]), (), (), (new,), new.outvars, "update")
    params = {"jaxpr": body, "num_consts": len(operands), "num_carry": 1, "length": 1, "reverse": False, "unroll": 1}
    return Eqn(scan_p, (*operands, eqn.invars[0]), params, eqn.outvars, eqn.source)


def reads_its_window(update: Eqn, graph: Graph) -> bool:
    """Whether of the array that an update changes nothing else is read but what lies where it writes, element by element for its value
    alone: a kernel that computes the value may write into the array's memory."""
    array, value, *starts = update.invars
    if not all(isinstance(start, Literal) for start in starts):
        return False
    first = tuple(min(max(int(s.val), 0), n - m) for s, n, m in zip(starts, array.aval.shape, value.aval.shape))  # type: ignore[union-attr]
    made: set[Operand] = set()  # of the window
    for eqn in graph.eqns:
        if array in eqn.invars and eqn is not update:
            if not _is_window(eqn, first, value.aval.shape):
                return False
            made.update(eqn.outvars)
        elif not made.isdisjoint(eqn.invars) and eqn is not update:
            if eqn.primitive.fusion is not Fusion.ELEMENTWISE:
                return False
            made.update(eqn.outvars)
    return array not in graph.outvars and made.isdisjoint(graph.outvars)


def _is_window(eqn: Eqn, first: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether an equation takes the part of its operand that begins at `first`."""
    if eqn.primitive is not slice_p or any(step != 1 for step in eqn.params["strides"] or ()):
        return False
    return tuple(eqn.params["start_indices"]) == tuple(first) and eqn.outvars[0].aval.shape == tuple(shape)


def is_one_step(eqn: Eqn) -> bool:
    """Whether a loop is an update of its carry and nothing else, done once."""
    inside = eqn.params["jaxpr"].eqns if eqn.params.get("length") == 1 else ()
    return bool(inside) and all(e.primitive.movement is Movement.UPDATE for e in inside)


def is_copy(eqn: Eqn, operand: Operand) -> bool:
    """Whether an equation only moves all of an operand: its result may be the same memory."""
    return eqn.primitive.fusion is Fusion.MOVEMENT and any(v.aval.size == operand.aval.size for v in eqn.outvars)


def _update(operand: Operand, producers: Mapping[Operand, Eqn], uses: Counter[Var]) -> Eqn | None:
    """The update of a part that gives this value, which one reader has; None where it is given otherwise."""
    eqn = producers.get(operand)
    if eqn is None or eqn.primitive.movement is not Movement.UPDATE or uses[operand] != 1 or _mostly(eqn):  # type: ignore[index]
        return None
    return eqn


def _mostly(eqn: Eqn) -> bool:
    """Whether most of the carry is written, at a known index: one kernel does that without keeping the part aside."""
    known = all(isinstance(start, Literal) for start in eqn.invars[2:])
    return known and 2 * eqn.invars[1].aval.size > eqn.invars[0].aval.size


def run_length(shape: Sequence[int], extents: Sequence[int]) -> tuple[int, int]:
    """How many leading dimensions an update must be walked along, and the elements of each run that lies dense."""
    dimensions = len(shape)
    while dimensions and shape[dimensions - 1] == extents[dimensions - 1]:
        dimensions -= 1
    outer = max(dimensions - 1, 0)
    run = 1
    for extent in extents[outer:]:
        run *= extent
    return outer, run
