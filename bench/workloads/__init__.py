"""All workloads, in the order of the tables: `WORKLOADS[name]` and `select(names)`."""

from __future__ import annotations

from bench.workload import Workload
from bench.workloads import elementwise, grids, loops, networks, reductions, rows, training

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for family in (elementwise, rows, reductions, grids, networks, training, loops)
    for workload in family.WORKLOADS
}


def select(names: list[str]) -> list[Workload]:
    """The named workloads (all, if none is named); a part of a name will do. Raises ValueError for an unknown name."""
    chosen: dict[str, Workload] = {}
    for name in names or list(WORKLOADS):
        found = [name] if name in WORKLOADS else [known for known in WORKLOADS if name in known]
        if not found:
            raise ValueError(f"no workload {name!r}; the workloads are {', '.join(WORKLOADS)}")
        chosen.update({known: WORKLOADS[known] for known in found})
    return list(chosen.values())
