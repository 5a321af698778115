"""When the steps of a divided program end: a device computes one step after the other, and each link carries one collective after the other.

A collective in two steps travels while the device computes what stands between them; any other is waited for. Loops are as many runs of
their body, and nothing travels beyond a run. What travels takes no arithmetic and no memory traffic from what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fuser.ir.graph import Operand
from fuser.ir.primitive import Control
from fuser.ops.collective import collective_done_p, collective_start_p
from fuser.parallel.network import Link, Network, collective_seconds
from fuser.parallel.traffic import Message, messages
from fuser.partition.group import FusionGroup, Plan


@dataclass
class Timeline:
    """The end of what has been computed, of what each link carries, and of the collectives that are under way, in seconds."""

    sizes: Mapping[Any, int]
    network: Network
    seconds: Callable[[FusionGroup], float]  # that computing a group takes
    now: float = 0.0
    links: dict[Link, float] = field(default_factory=dict)
    under_way: dict[Operand, float] = field(default_factory=dict)

    def run(self, plan: Plan) -> float:
        """When the last step of a program that begins now has ended."""
        for group in plan.groups:
            self._step(group)
        return self.now

    def _step(self, group: FusionGroup) -> None:
        if group.bodies:
            self.now += self._control(group)
            return
        starts = [e.outvars[0] for e in group.graph.eqns if e.primitive is collective_start_p]
        ends = [self.under_way.pop(e.invars[0]) for e in group.graph.eqns if e.primitive is collective_done_p]
        self.now = max([self.now, *ends]) + self.seconds(group)
        sent = max(map(self._sent, messages(group.graph, dict(self.sizes))), default=self.now)
        self.under_way |= dict.fromkeys(starts, sent)
        self.now = self.now if starts else sent

    def _sent(self, message: Message) -> float:
        """When a collective that can begin now has ended."""
        link = self.network.of(message.axes)
        begin = max(self.now, self.links.get(link, 0.0))
        self.links[link] = begin + message.times * collective_seconds(message, link)
        return self.links[link]

    def _control(self, group: FusionGroup) -> float:
        """The seconds of control flow: all runs of a scan's body, one of a while loop's, the longest branch."""
        each = [Timeline(self.sizes, self.network, self.seconds).run(body) for body in group.bodies]
        eqn = group.graph.eqns[-1]
        if eqn.primitive.control is Control.COND:
            return max(each)
        return sum(each) * int(eqn.params.get("length", 1))
