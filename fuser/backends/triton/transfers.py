"""Steps of a program over several GPUs that no kernel makes: what the device sends to others, and which place in the mesh it has.

Their sources have no text: what is to be sent stands in `launch`, and the linker, which knows the device, makes operations of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fuser.backends.base import KernelSource
from fuser.ir.graph import Eqn, Literal, Var
from fuser.ops.collective import axis_index_p, collective_group_p
from fuser.ops.transfers import transfers
from fuser.partition.axes import Views
from fuser.partition.group import FusionGroup, Refusal
from fuser.trace.batch import axis_names

LANGUAGE = "transfers"


class Member(Protocol):
    """One GPU of a mesh."""

    def communicator(self, names: tuple[Any, ...], groups: Any) -> Any:
        """How it reaches the devices that differ from it along these axes; it waits for them."""

    def place(self, names: tuple[Any, ...], groups: Any) -> int:
        """Which of them it is."""

    def index(self, names: tuple[Any, ...]) -> int:
        """Where it stands along these axes."""


def refusal(eqn: Eqn) -> str | None:
    """Why an equation is no transfer; None where it is."""
    if eqn.primitive is collective_group_p and transfers(eqn) is None:
        return "it computes, and links between GPUs only move bytes"
    return None


def emit(group: FusionGroup) -> KernelSource | Refusal:
    """The source of a group of one meeting, or of an axis_index: which inputs are sent, and how."""
    eqn, graph = group.graph.eqns[-1], group.graph
    if (reason := refusal(eqn)) is not None:
        return Refusal(reason)
    operands = _inputs(eqn, graph.eqns, graph.invars)
    if operands is None:
        return Refusal("operands that are no arrays")
    known = [*graph.invars, *dict.fromkeys(graph.outvars)]
    unread = [v for v in eqn.outvars if v not in known]
    places = {v: n for n, v in enumerate([*known, *unread])}
    made: dict[str, Any] = {
        "launches": (),
        "scratch": tuple((v.aval.size, v.aval.dtype) for v in unread),
        "dtypes": tuple(v.aval.dtype for v in known),
        "scalars": (),
        "names": axis_names(eqn.params),
        "groups": eqn.params.get("axis_index_groups"),
        "index": eqn.primitive is axis_index_p,
        "transfers": tuple(transfers(eqn) or ()),
        "operands": operands,
        "results": tuple(places[v] for v in eqn.outvars),
    }
    return KernelSource(group.name, f"# {eqn.primitive.name}: {made['transfers']}\n", LANGUAGE, (), made)


def _inputs(eqn: Eqn, eqns: Sequence[Eqn], inputs: Sequence[Var]) -> tuple[int, ...] | None:
    """Of each operand the input that it is in another shape; None where one is not."""
    views, found = Views(tuple(eqns)), []
    for operand in eqn.invars:
        view = None if isinstance(operand, Literal) else views(operand)
        source = None if view is None or not view.dense else view.source
        if source is None or source not in inputs or source.aval.nbytes != operand.aval.nbytes:
            return None
        found.append(inputs.index(source))
    return tuple(found)
