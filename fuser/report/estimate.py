"""What the cost model says that the steps of a program take, one after the other.

In: a plan, the machine that it runs on and its sources. Out: an `Estimate` of each group, or None where the time depends on values or is
a library's.
"""

from __future__ import annotations

from collections.abc import Mapping

from fuser.backends.base import KernelSource
from fuser.ir.graph import Var
from fuser.ir.target import Target
from fuser.ir.types import is_complex
from fuser.kernel.cost import Estimate, estimate, shared, together
from fuser.kernel.lower import lower, results
from fuser.kernel.lower_loop import lower_loop
from fuser.partition.group import FUSIBLE, FusionGroup, Kind, Plan


def estimated(
    plan: Plan, target: Target, sources: Mapping[FusionGroup, KernelSource], workers: int = 1
) -> list[Estimate | None]:
    """Seconds of one run of each group on a machine, by so many of its workers, in a program that is called again and again."""
    reuse = _Reuse(plan)
    found = [_estimated(group, target, sources.get(group), reuse) for group in plan.groups]
    return [e if e is None else shared(e, target, workers) for e in found]


def _estimated(group: FusionGroup, target: Target, source: KernelSource | None, reuse: _Reuse) -> Estimate | None:
    if group.kind is Kind.HORIZONTAL:
        return together([_estimated(part, target, source, reuse) for part in group.parts])
    since = reuse.touch(group)
    if group.kind is Kind.CONTRACTION and source is not None:
        return product(group, target, since)
    if group.kind not in (*FUSIBLE, Kind.LOOP) or source is None:
        return None
    kernel = lower_loop(group) if group.kind is Kind.LOOP else lower(group)
    return estimate(kernel, target, "scalar" not in source.launch, since)


def product(group: FusionGroup, target: Target, since: list[float]) -> Estimate | None:
    """Of a product of matrices by its arithmetic, or by its operands where they are thin."""
    arrays = [*group.graph.invars, *results(group)]
    if target.products <= 0 or any(is_complex(v.aval.dtype) for v in arrays):
        return None
    wide = max(max(v.aval.dtype.itemsize for v in arrays) / 4, 1)
    moved = sum(target.stream(v.aval.nbytes, distance) for v, distance in zip(arrays, since, strict=True))
    rate = target.short_products.get(arrays[0].aval.dtype.name, target.products / wide)
    return Estimate(target.launch, group.flops / rate, moved, exposed=target.exposed)


class _Reuse:
    """Bytes that a program touches between two uses of an array, its calls one after the other (Mattson et al., 1970)."""

    def __init__(self, plan: Plan) -> None:
        self.total = float(sum(v.aval.nbytes for v in _touched(plan)))
        self.now = 0.0
        self.last: dict[Var, float] = {}

    def touch(self, group: FusionGroup) -> list[float]:
        """The bytes since each parameter of the group's kernel was touched."""
        arrays = [*group.graph.invars, *results(group)]
        self.now += sum(v.aval.nbytes for v in arrays if v not in self.last)
        found = [self.now - self.last[v] if v in self.last else self.total for v in arrays]
        for var in arrays:
            self.last[var] = self.now
        return [min(distance, self.total) for distance in found]


def _touched(plan: Plan) -> dict[Var, None]:
    """All arrays that kernels read or write."""
    return {v: None for group in plan.kernels for v in (*group.graph.invars, *results(group))}
