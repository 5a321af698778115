"""What a program of one device sends: its collectives with the bytes that each device sends by the usual algorithms.

Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (2005): over p devices an
all-reduce of n bytes sends 2n(p-1)/p from each, a reduce-scatter or all-to-all n(p-1)/p, an all-gather of parts of n bytes
n(p-1), a permutation n.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fuser.ir.graph import Eqn, Graph, graphs_in
from fuser.ir.types import ArrayType
from fuser.ops import collective as C
from fuser.trace.batch import axis_names

_FACTORS = {  # of the bytes of one device's operand, over p devices
    "psum": lambda p: 2 * (p - 1) / p,
    "psum_invariant": lambda p: 2 * (p - 1) / p,
    "pmax": lambda p: 2 * (p - 1) / p,
    "pmin": lambda p: 2 * (p - 1) / p,
    "psum_scatter": lambda p: (p - 1) / p,
    "all_to_all": lambda p: (p - 1) / p,
    "all_gather": lambda p: p - 1,
    "ppermute": lambda p: 1,
    "pbroadcast": lambda p: (p - 1) / p,
}
ROUNDS = {"psum": 2, "psum_invariant": 2, "pmax": 2, "pmin": 2}  # others go round once


@dataclass(frozen=True)
class Message:
    """A collective as it runs: over which axes of how many devices, how often, and what each device sends each time."""

    names: tuple[str, ...]  # more than one where several are one exchange
    axes: tuple[Any, ...]
    devices: int
    operand_bytes: int
    sent_bytes: float
    times: int
    source: str

    @property
    def name(self) -> str:
        return " + ".join(dict.fromkeys(n.removesuffix("_invariant") for n in self.names))


def messages(graph: Graph, sizes: dict[Any, int], times: int = 1) -> Iterator[Message]:
    """The collectives of the graph of one device, those in loops as often as they run (once where that is unknown)."""
    for eqn in graph.eqns:
        if eqn.primitive is C.collective_group_p or eqn.primitive.name in _FACTORS:
            found = _message(eqn, sizes, times)
            if found.devices > 1:
                yield found
        else:
            turns = eqn.params["length"] if eqn.primitive.name == "scan" else 1
            for inner in graphs_in(eqn.params):
                yield from messages(inner, sizes, times * turns)


def _message(eqn: Eqn, sizes: dict[Any, int], times: int) -> Message:
    axes, groups = axis_names(eqn.params), eqn.params.get("axis_index_groups")
    devices = 1
    for name in axes:
        devices *= sizes[name]
    devices = devices if groups is None else max(map(len, groups))
    if eqn.primitive is C.collective_group_p:
        names = tuple(name for name, _ in eqn.params["kinds"])
    else:
        names = (eqn.primitive.name,)
    avals: list[ArrayType] = [v.aval for v in eqn.invars]
    sent = sum(a.nbytes * _FACTORS[n](devices) for n, a in zip(names, avals))
    return Message(names, axes, devices, sum(a.nbytes for a in avals), sent, times, str(eqn.source))
