"""Collectives that only move bytes: of several in one meeting, what each sends to which device of its group.

In: a `collective_group` whose members gather, exchange, permute or broadcast along a leading dimension. Out: what a
device that computes its own reductions has to ask of the links between devices. parallel/transfers.py writes all others so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fuser.ir.graph import Eqn
from fuser.ops.collective import collective_group_p


@dataclass(frozen=True)
class Transfer:
    """`kind` is "gather", "swap", "permute" or "broadcast". Each device sends so many bytes to another one.

    `perm` are the (source, destination) pairs of a permutation, `source` is who broadcasts, both counted within the group.
    """

    kind: str
    nbytes: int
    perm: tuple[tuple[int, int], ...] = ()
    source: int = 0


def gather(size: int) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """All devices' values along a new leading dimension, as a member of a collective_group."""
    return "all_gather", (("axis", 0), ("axis_size", size))


def swap(size: int) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """The n-th part of the leading dimension of each device's value goes to the n-th device, as a member of a collective_group."""
    return "all_to_all", (("axis_size", size), ("concat_axis", 0), ("split_axis", 0))


def transfers(eqn: Eqn) -> Sequence[Transfer] | None:
    """What the equation moves, one for each operand; None where it is no group of such collectives."""
    if eqn.primitive is not collective_group_p:
        return None
    found = [_transfer(name, dict(own), v.aval.nbytes) for (name, own), v in zip(eqn.params["kinds"], eqn.invars)]
    return None if None in found else found  # type: ignore[return-value]


def _transfer(name: str, params: dict[str, Any], nbytes: int) -> Transfer | None:
    if name == "all_gather" and params["axis"] == 0:
        return Transfer("gather", nbytes)
    if name == "all_to_all" and params["split_axis"] == params["concat_axis"] == 0:
        return Transfer("swap", nbytes // params["axis_size"])
    if name == "ppermute":
        return Transfer("permute", nbytes, perm=tuple(params["perm"]))
    return Transfer("broadcast", nbytes, source=params["source"]) if name == "pbroadcast" else None
