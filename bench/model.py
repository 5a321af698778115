"""`python -m bench.model`: what the cost model says that kernels take, beside what they take.

Programs are those of `bench`, the traps and random ones; every kernel of their plans is timed where it stands, by one
thread and its processor time, so that what else the machine does is not in it. `--operations` measures what the
costs of scalar operations are made of.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import report

LEAST_SECONDS = 10e-6  # of a kernel: below, a call from Python and a clock are what is measured
SHOWN = 12  # kernels that stray most
OPERATIONS = ("exp", "log", "log1p", "sin", "tan", "tanh", "cosh", "cbrt", "sqrt", "arcsinh", "arctan", "floor")
TERMS = 8  # of a sum, each an operation of its own


def rows_of(name: str, function: Callable[..., Any], arguments: Sequence[Any], rounds: int) -> Iterator[dict[str, Any]]:
    """A row a kernel: seconds as estimated and as measured, the least of the rounds."""
    import fuser
    from fuser import backends
    from fuser.backends.base import machine_target
    from fuser.partition.group import kernel_groups
    from fuser.report.estimate import estimated

    backend = backends.get("c")
    compiled = fuser.jit(function).lower(*arguments).compile()
    arrays = [np.asarray(leaf) for leaf in fuser.tree.leaves(tuple(arguments))]
    sources = dict(zip(kernel_groups(compiled.plan, backend.limits), compiled.sources))
    samples: list[list[float]] = [[] for _ in compiled.plan.groups]
    for _ in range(rounds):
        for index, seconds in compiled.executable.call_profiled(arrays, time.thread_time, idle())[1]:
            samples[index].append(seconds - overhead())
    estimates = estimated(compiled.plan, machine_target(backend), sources)
    for group, measured, found in zip(compiled.plan.groups, samples, estimates, strict=True):
        if found is not None and measured and min(measured) > LEAST_SECONDS:
            yield {
                "program": name,
                "kernel": group.name,
                "kind": group.kind.value,
                "estimated": found.seconds,
                "limiter": found.limiter,
                "measured": min(measured),
            }


@functools.cache
def idle() -> Callable[[], list[tuple[int, float]]]:
    """What runs a kernel that has nothing to do and gives its seconds. Ahead of a kernel that is timed it brings back into the caches
    what calls one from Python: after a kernel that moves megabytes that took 30 µs, which were counted as the next one's."""
    import fuser

    compiled = fuser.jit(lambda x: x + 1).lower(np.float32(1)).compile()
    one = [np.ones((), np.float32)]
    return lambda: compiled.executable.call_profiled(one, time.thread_time)[1]


@functools.cache
def overhead() -> float:
    """Seconds of calling a kernel from Python with a clock beside it, which its own time does not hold."""
    return min(seconds for _ in range(200) for _, seconds in idle()())


def random_programs(first: int, count: int) -> Iterator[tuple[str, Callable[..., Any], Sequence[Any]]]:
    import fuser.numpy as fnp
    from bench.random_programs import draw

    for seed in range(first, first + count):
        program = draw(seed)
        yield f"random {seed}", functools.partial(program.function, fnp), program.arguments


def workloads() -> Iterator[tuple[str, Callable[..., Any], Sequence[Any]]]:
    import fuser
    from bench.workloads import select

    for workload in select([], ["arrays", "programs", "science"]):
        if not workload.numpy_alone:
            inputs = workload.inputs("medium")
            yield workload.name, lambda *a, workload=workload: workload.run(fuser, a), inputs


def traps(seed: int, count: int) -> Iterator[tuple[str, Callable[..., Any], Sequence[Any]]]:
    from bench.trap_programs import lines
    from bench.traps import program_of

    for name, line in lines("fuser").items():
        for number in range(count if line.peer == "jax" else 0):
            _, program = program_of("fuser", name, number, seed)
            yield f"{name}, {program.label}", program.function, program.arguments


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Median error, rank correlation (Spearman's), and the share of kernels that stray by more than twice."""
    estimated, measured = (np.array([row[key] for row in rows]) for key in ("estimated", "measured"))
    ranks = [np.argsort(np.argsort(values)) for values in (estimated, measured)]
    return {
        "kernels": len(rows),
        "median error": float(np.median(np.abs(estimated / measured - 1))),
        "rank correlation": float(np.corrcoef(np.stack(ranks).astype(float))[0, 1]),
        "beyond twice": float(np.mean(np.maximum(estimated / measured, measured / estimated) > 2)),
    }


def operations() -> Iterator[tuple[str, str, float]]:
    """Additions that a function of maths takes, or a division of integers, by dtype."""
    import fuser
    import fuser.numpy as fnp

    for dtype in ("int32", "int64"):
        with fuser.config.using(enable_x64=dtype == "int64"):
            x = fnp.arange(1, 4097, dtype=dtype)
            yield from _measured(
                {
                    "int_div": lambda v, x=x: fuser.lax.div(v, x),
                    "int_rem": lambda v, x=x: fuser.lax.rem(v, x),
                    "int_div_const": lambda v: fuser.lax.div(v, v.dtype.type(7)),
                },
                x,
            )
    for dtype in ("float32", "float64"):
        with fuser.config.using(enable_x64=dtype == "float64"):
            x = fnp.linspace(0.1, 0.9, 4096, dtype=dtype)
            yield from _measured({name: getattr(fnp, name) for name in OPERATIONS}, x)


def _measured(functions: Mapping[str, Callable[[Any], Any]], x: Any) -> Iterator[tuple[str, str, float]]:
    base = _per_term(lambda v: v, x)
    added = base / 3  # each term has an addition of its own, a product and a sum
    for name, function in functions.items():
        yield name, str(x.dtype), (_per_term(function, x) - base) / added


def _per_term(operation: Callable[[Any], Any], x: Any) -> float:
    import fuser

    def terms(x: Any) -> Any:
        total = x
        for number in range(TERMS):
            total = total + operation(x + (number + 1)) * total
        return total

    jitted = fuser.jit(terms)
    jitted(x)
    best = float("inf")
    for _ in range(20):
        start = time.thread_time()
        for _ in range(50):
            jitted(x)
        best = min(best, (time.thread_time() - start) / 50)
    return best / x.size / TERMS


def main(arguments: list[str] | None = None) -> int:
    os.environ["FUSER_THREADS"] = "1"
    parser = argparse.ArgumentParser(prog="python -m bench.model", description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=500, help="random programs")
    parser.add_argument("--traps", type=int, default=10, help="programs of each line of traps")
    parser.add_argument("--no-bench", action="store_true", help="without the programs of bench")
    parser.add_argument("--operations", action="store_true", help="measure scalar operations instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", metavar="PATH", help='where the results go (default: bench/results; "-" for nowhere)')
    options = parser.parse_args(arguments)
    if options.operations:
        for name, dtype, cost in operations():
            print(f"{name:13} {dtype}  {cost:6.1f} additions", flush=True)
        return 0
    sources = {"random": random_programs(options.seed, options.programs), "traps": traps(options.seed, options.traps)}
    sources |= {} if options.no_bench else {"bench": workloads()}
    found = {
        source: [row for program in programs for row in rows_of(*program, options.rounds)]
        for source, programs in sources.items()
    }
    _report(found, options.json)
    return 0


def _report(found: dict[str, list[dict[str, Any]]], path: str | None) -> None:
    rows = [row for group in found.values() for row in group]
    table = Table("programs", "kernels", "median error", "rank correlation", "beyond twice")
    tables = {source: summary(group) for source, group in {**found, "all": rows}.items() if len(group) > 1}
    for source, figures in tables.items():
        shares = (f"{figures[key]:.0%}" for key in ("median error", "beyond twice"))
        error, beyond = shares
        table.add_row(source, str(figures["kernels"]), error, f"{figures['rank correlation']:.3f}", beyond)
    worst = Table("measured ÷ estimated", "measured", "limited by", "kernel", "program")
    for row in sorted(rows, key=lambda r: -abs(np.log(r["measured"] / r["estimated"])))[:SHOWN]:
        ratio = f"{row['measured'] / row['estimated']:.2f}"
        worst.add_row(ratio, f"{row['measured'] * 1e6:.0f} µs", row["limiter"], row["kernel"], row["program"])
    Console().print(table, worst)
    if (target := report.save("model", path, {"summary": tables, "rows": rows})) is not None:
        print(f"written to {target}")


if __name__ == "__main__":
    sys.exit(main())
