"""The reference backend: every group runs its primitives' `eval` rules in NumPy. Slow, simple, and the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.backends.base import HOST, HOST_LIBRARIES, KernelSource, Loaded
from fuser.backends.link import Stepwise
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Graph
from fuser.ir.text import show
from fuser.partition.group import FusionGroup, FusionLimits


class Reference(Stepwise):
    """NumPy, group by group."""

    name = "reference"
    memory = HOST
    limits = FusionLimits(natives=HOST_LIBRARIES)

    def supports(self, eqn: Eqn) -> str | None:
        return None

    def emit(self, group: FusionGroup) -> KernelSource:
        return KernelSource(group.name, show(group.graph), "graph", launch={"graph": group.graph})

    def load(self, sources: Sequence[KernelSource], device: Any = None) -> Loaded:
        return Loaded(tuple(_kernel(source.launch["graph"]) for source in sources))


def _kernel(graph: Graph) -> Callable[[Sequence[Any]], None]:
    def run(arrays: Sequence[Any]) -> None:
        count = len(graph.invars)
        for target, value in zip(arrays[count:], evaluate(graph, arrays[:count])):
            np.copyto(target, value.astype(target.dtype, copy=False))

    return run


BACKEND = Reference()
