"""The reference backend: every group runs its primitives' `eval` rules in NumPy. Slow, simple, and the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.backends.base import Host, KernelSource, Loaded, Stepwise
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Graph
from fuser.ir.text import show
from fuser.partition.group import FusionGroup, FusionLimits


def dense(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays row-major and without gaps, as kernels read them."""
    return [np.asarray(array, order="C") for array in arrays]


class Reference(Host, Stepwise):
    """NumPy, group by group."""

    name = "reference"
    platform = "cpu"
    limits = FusionLimits()

    def supports(self, eqn: Eqn) -> str | None:
        return None

    def native(self, group: FusionGroup) -> str | None:
        return "the reference runs in NumPy"

    def emit(self, group: FusionGroup) -> KernelSource:
        return KernelSource(group.name, show(group.graph), "graph", launch={"graph": group.graph})

    def load(self, sources: Sequence[KernelSource], device: Any = None) -> Loaded:
        return Loaded(tuple(_kernel(source.launch["graph"]) for source in sources))

    def library(self, group: FusionGroup) -> Callable[..., Any]:
        return lambda *arrays: dense(evaluate(group.graph, arrays))


def _kernel(graph: Graph) -> Callable[[Sequence[Any]], None]:
    def run(arrays: Sequence[Any]) -> None:
        count = len(graph.invars)
        for target, value in zip(arrays[count:], evaluate(graph, arrays[:count])):
            np.copyto(target, value.astype(target.dtype, copy=False))

    return run


BACKEND = Reference()
