"""Carries that a loop's body only writes parts of, by a chain of `dynamic_update_slice`s that begins with the carry itself.

Such a body need not give the whole carry: it gives the parts and where they belong, and the loop writes them in place, one after
the other, once the step is over, when nothing reads the old carry any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Control, Movement


@dataclass(frozen=True)
class Update:
    """`value` goes into carry `carry` at `starts`, one a dimension, moved inside where it does not fit."""

    carry: int
    value: Operand
    starts: tuple[Operand, ...]


@dataclass(frozen=True, eq=False)
class InPlace:
    """A body whose results are the carries `moving`, its ys, and then what the updates need, at `results`."""

    body: Graph
    moving: tuple[int, ...]
    updates: tuple[Update, ...]
    results: dict[Operand, int]


@dataclass(frozen=True, eq=False)
class LoopBuffers:
    """Where the carries of a native loop lie. `slots` are those of the body's plan that the moving carries are written to,
    `rows` those of a scan's results of each step.

    Carries that are `updated`, and those `in_place`, stay in the result's memory. `double` change between it and a back
    buffer; the rest share a slot with one of these, or with a row.
    """

    updated: InPlace
    slots: dict[int, int]
    rows: tuple[int, ...]
    in_place: frozenset[int]
    double: tuple[int, ...]


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
    moving = tuple(n for n in range(count) if n not in chains)
    wanted = [operand for update in updates for operand in _needs(update)]
    extra = list(dict.fromkeys(wanted))
    outvars = [*(body.outvars[n] for n in moving), *body.outvars[count:]]
    results: dict[Operand, int] = {operand: len(outvars) + n for n, operand in enumerate(extra)}
    gone = {eqn for chain in chains.values() for eqn in chain}
    eqns = tuple(e for e in body.eqns if e not in gone)
    smaller = replace(body, eqns=eqns, outvars=(*outvars, *extra)) if updates else body
    return InPlace(smaller, moving, updates, results)


def _needs(update: Update) -> list[Operand]:
    return [update.value, *(start for start in update.starts if isinstance(start, Var))]


def _chains(body: Graph, first: int, count: int) -> dict[int, list[Eqn]]:
    """The updates, in their order, of each carry that they alone change."""
    producers = body.producers
    uses = Counter([v for eqn in body.eqns for v in eqn.operands()] + [v for v in body.outvars if isinstance(v, Var)])
    found = {}
    for n in range(count):
        chain, operand = [], body.outvars[n]
        while (eqn := _update(operand, producers, uses)) is not None:
            chain.append(eqn)
            operand = eqn.invars[0]
        if chain and operand is body.invars[first + n]:
            found[n] = chain[::-1]
    return found


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
