"""All workloads, in the order of the tables: `WORKLOADS[name]`, `SUITES[name]` and `select(names, suites)`."""

from __future__ import annotations

from bench.workload import Workload
from bench.workloads import (
    elementwise,
    factors,
    fields,
    grids,
    loops,
    matrices,
    networks,
    reductions,
    rows,
    science,
    sequences,
    stencils,
    training,
)

SCIENCE = (stencils, fields, matrices, factors, sequences, science)

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for family in (elementwise, rows, reductions, grids, networks, training, loops, *SCIENCE)
    for workload in family.WORKLOADS
}

# What a figure for many workloads at once stands for; one workload may be in several suites.
SUITES: dict[str, tuple[str, ...]] = {
    "arrays": (
        *("polynomial", "chain", "black_scholes", "softmax", "layer_norm", "rms_norm", "cross_entropy"),
        *("column_sum", "full_sum", "stencil", "nbody", "mandelbrot", "gelu_mlp"),
    ),
    "programs": (
        *("cross_entropy_gradient", "mlp_train_step", "monte_carlo_paths", "monte_carlo_loop", "mandelbrot_loop"),
        *("lotka_volterra", "newton_roots", "scan_of_eight", "scalar_while"),
    ),
    "science": tuple(workload.name for family in SCIENCE for workload in family.WORKLOADS),
}


def select(names: list[str], suites: list[str] | None = None) -> list[Workload]:
    """The named workloads and those of the suites (all, if none is named); a part of a name will do.

    Raises ValueError for an unknown name.
    """
    chosen: dict[str, Workload] = {}
    for suite in suites or []:
        if suite not in SUITES:
            raise ValueError(f"no suite {suite!r}; the suites are {', '.join(SUITES)}")
        chosen.update({name: WORKLOADS[name] for name in SUITES[suite]})
    for name in names or ([] if chosen else list(WORKLOADS)):
        found = [name] if name in WORKLOADS else [known for known in WORKLOADS if name in known]
        if not found:
            raise ValueError(f"no workload {name!r}; the workloads are {', '.join(WORKLOADS)}")
        chosen.update({known: WORKLOADS[known] for known in found})
    return list(chosen.values())
