"""What a program of one device sends: its collectives with the bytes that each device sends by the usual algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fuser.ir.graph import Eqn, Graph, graphs_in
from fuser.ir.primitive import Control
from fuser.ir.types import ArrayType
from fuser.ops import collective as C
from fuser.trace.batch import axis_names


@dataclass(frozen=True)
class Message:
    """A collective as it runs: over which axes of how many devices, how often, and what each device sends each time."""

    names: tuple[str, ...]  # more than one where several are one exchange
    axes: tuple[Any, ...]
    devices: int
    operand_bytes: int
    sent_bytes: float
    rounds: int
    times: int
    source: str

    @property
    def name(self) -> str:
        return " + ".join(dict.fromkeys(n.removesuffix("_invariant") for n in self.names))


def messages(graph: Graph, sizes: dict[Any, int], times: int = 1) -> Iterator[Message]:
    """The collectives of the graph of one device, those in loops as often as they run (once where that is unknown)."""
    for eqn in graph.eqns:
        if eqn.primitive in (C.collective_group_p, C.collective_start_p) or eqn.primitive.sends is not None:
            found = _message(eqn, sizes, times)
            if found.devices > 1:
                yield found
        else:
            trips = eqn.params["length"] if eqn.primitive.control is Control.SCAN else 1
            for inner in graphs_in(eqn.params):
                yield from messages(inner, sizes, times * trips)


def _message(eqn: Eqn, sizes: dict[Any, int], times: int) -> Message:
    axes, groups = axis_names(eqn.params), eqn.params.get("axis_index_groups")
    devices = 1
    for name in axes:
        devices *= sizes[name]
    devices = devices if groups is None else max(map(len, groups))
    primitives = C.members(eqn)
    avals: list[ArrayType] = [v.aval for v in eqn.invars]
    sent = sum(aval.nbytes * p.rule("sends")(devices) for p, aval in zip(primitives, avals))
    names, rounds = tuple(p.name for p in primitives), max(p.rounds for p in primitives)
    return Message(names, axes, devices, sum(a.nbytes for a in avals), sent, rounds, times, str(eqn.source))
