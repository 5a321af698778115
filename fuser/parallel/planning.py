"""What a program would need on devices that are not there: memory, operations, bytes sent, and the time of one step.

The program is divided and planned as for devices that are there. A group of operations takes as long as its arithmetic
or its memory traffic, whichever is longer (Williams, Waterman, Patterson, "Roofline", 2009), and a launch; a collective
over p devices takes 2 log2 p (sums) or log2 p (others) latencies and the bytes that a device sends through its link
(Hockney's α-β model; Thakur, Rabenseifner, Gropp, 2005). The program is the one of several processes: a device computes while collectives
that have started travel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fuser.api.jitted import jit
from fuser.parallel.mesh import AxisType, Mesh
from fuser.parallel.network import Link, Network, collective_seconds
from fuser.parallel.sharding import NamedSharding
from fuser.parallel.spec import PartitionSpec
from fuser.parallel.timeline import Timeline
from fuser.parallel.traffic import Message, messages
from fuser.partition.buffers import temporary_bytes
from fuser.partition.explain import moved_bytes
from fuser.partition.group import FusionGroup
from fuser.runtime.device import Device
from fuser.trace import tree


@dataclass(frozen=True)
class Machine:
    """One device: float32 operations and bytes of memory traffic a second, and what starting a kernel takes."""

    flops_per_second: float
    bytes_per_second: float
    launch_seconds: float


# Data sheets: float32 without tensor cores.
MACHINES = {
    "h100": Machine(67e12, 3.35e12, 3e-6),
    "a100": Machine(19.5e12, 2.04e12, 3e-6),
}


@dataclass(frozen=True)
class PlannedCollective:
    """The collectives of one kind over the same axes: how many, what a device sends in all, and how long they take."""

    name: str
    axes: tuple[str, ...]
    count: int
    sent_bytes: float
    seconds: float


@dataclass(frozen=True)
class DevicePlan:
    """One device's share of a program over a mesh: bytes, operations, and seconds of one step."""

    name: str
    mesh: dict[str, int]
    argument_bytes: int
    result_bytes: int
    temporary_bytes: int
    flops: float
    moved_bytes: float
    kernels: int
    collectives: tuple[PlannedCollective, ...]
    compute_seconds: float
    collective_seconds: float
    step_seconds: float  # of which only some collectives' seconds are waited for

    @property
    def waiting_seconds(self) -> float:
        """What of the collectives is not hidden behind what is computed."""
        return self.step_seconds - self.compute_seconds

    @property
    def efficiency(self) -> float:
        """Weak scaling: the step on one device with the same share of the work, over the step on all."""
        return self.compute_seconds / self.step_seconds if self.step_seconds else 1.0

    def document(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {**asdict(self), "waiting_seconds": self.waiting_seconds, "efficiency": self.efficiency}


def absent_mesh(axes: Mapping[str, int]) -> Mesh:
    """A mesh of devices that need not be there, each of a process of its own."""
    devices = np.array([Device("cpu", n, process=n) for n in range(math.prod(axes.values()))], object)
    return Mesh(devices.reshape(tuple(axes.values())), tuple(axes), (AxisType.Auto,) * len(axes))


def plan(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    specs: Any,
    axes: Mapping[str, int],
    machine: Machine,
    network: Network,
) -> DevicePlan:
    """What one device of a mesh with these `axes` does for a call of the function; nothing runs.

    `specs` is a tree prefix of the positional arguments (arrays or ShapeDtypeStructs): PartitionSpecs, None for what every
    device has. ValueError where they do not fit.
    """
    mesh = absent_mesh(axes)
    sharding = lambda spec: NamedSharding(mesh, PartitionSpec() if spec is None else spec)
    given = tree.map(sharding, specs, is_leaf=lambda s: s is None or isinstance(s, PartitionSpec))
    lowered = jit(lambda *values: function(*values), in_shardings=given).lower(*args)
    return planned(getattr(function, "__name__", "function"), lowered, axes, machine, network)


def planned(name: str, lowered: Any, axes: Mapping[str, int], machine: Machine, network: Network) -> DevicePlan:
    """The figures of a divided program."""
    program = lowered.plan
    found = list(messages(lowered.graph, dict(axes)))
    collectives = tuple(_sums(found, network))
    local = [g for g in program.groups if not _sends(g)]
    seconds = lambda group: 0.0 if _sends(group) else _seconds(group, machine)
    ends = lambda links: Timeline(dict(axes), links, seconds).run(program)
    return DevicePlan(
        name,
        dict(axes),
        sum(v.aval.nbytes for v in lowered.spread.graph.invars),
        sum(v.aval.nbytes for v in lowered.spread.graph.outvars),
        temporary_bytes(program),
        float(sum(g.flops for g in local)),
        float(sum(map(moved_bytes, local))),
        len(local),
        collectives,
        ends(Network(Link(0.0, math.inf), {})),
        sum(c.seconds for c in collectives),
        ends(network),
    )


def _sends(group: FusionGroup) -> bool:
    return any(e.primitive.collect is not None for e in group.graph.eqns)


def _seconds(group: FusionGroup, machine: Machine) -> float:
    arithmetic, traffic = group.flops / machine.flops_per_second, moved_bytes(group) / machine.bytes_per_second
    return machine.launch_seconds + max(arithmetic, traffic)


def _sums(found: list[Message], network: Network) -> list[PlannedCollective]:
    kinds: dict[Any, list[Message]] = {}
    for message in found:
        kinds.setdefault((message.name, message.axes), []).append(message)
    return [
        PlannedCollective(
            name,
            tuple(map(str, axes)),
            sum(m.times for m in each),
            sum(m.sent_bytes * m.times for m in each),
            sum(collective_seconds(m, network.of(m.axes)) * m.times for m in each),
        )
        for (name, axes), each in kinds.items()
    ]
