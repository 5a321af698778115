"""Kernels written by hand over grids of blocks: whether they have a form in Triton, and the source of one."""

from __future__ import annotations

from dataclasses import replace

from fuser.backends.base import KernelSource
from fuser.backends.triton import spell
from fuser.backends.triton.blocks.values import Refused
from fuser.backends.triton.blocks.writer import write
from fuser.ir.graph import Eqn, Literal
from fuser.kernel.schedule import Schedule
from fuser.partition.group import FusionGroup, Refusal


def refusal(eqn: Eqn) -> str | None:
    """Why a kernel cannot be one Triton function; None where it can."""
    try:
        write(eqn.params["kernel"], [v.aval for v in eqn.invars], list(eqn.params["out_avals"]))
    except Refused as reason:
        return str(reason)
    return None


def emit(group: FusionGroup) -> KernelSource | Refusal:
    """The source of a group of one kernel; results that nobody reads are scratch arrays."""
    eqn, graph = group.graph.eqns[-1], group.graph
    if len(graph.eqns) > 1 or any(isinstance(v, Literal) for v in eqn.invars):
        return Refusal("operands that are no arrays")
    try:
        function = write(eqn.params["kernel"], [v.aval for v in eqn.invars], list(eqn.params["out_avals"]))
    except Refused as reason:
        return Refusal(str(reason))
    known = [*graph.invars, *dict.fromkeys(graph.outvars)]
    unread = [v for v in eqn.outvars if v not in known]
    places = {v: n for n, v in enumerate([*known, *unread])}
    buffers = tuple(places[v] for v in (*eqn.invars, *eqn.outvars))  # type: ignore[index]
    launch = replace(function.launch, buffers=buffers)
    comments = "\n".join(f"# {line}" for line in dict.fromkeys(str(s) for s in group.sources if s.file))
    text = "\n\n\n".join((spell.header(function.text), f"{comments}\n{function.text}" if comments else function.text))
    scratch = tuple((v.aval.size, v.aval.dtype) for v in unread)
    made = {"launches": (launch,), "scratch": scratch, "dtypes": tuple(v.aval.dtype for v in known), "scalars": ()}
    schedule = Schedule(warps=launch.warps, stages=launch.stages, grid=(launch.grid,))
    names = tuple(f"array{n}" for n in range(len(known)))
    return KernelSource(group.name, text + "\n", "triton", names, made, schedules={group.name: schedule})
