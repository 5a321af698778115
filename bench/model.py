"""`python -m bench.model`: what the cost model says of kernels, beside what they take.

Programs are those of `bench`, random ones (`bench.random_programs`) and the traps; every kernel of their plans is timed in
place, on one core and by its processor time, so that what else the machine does is not in it.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

LEAST_SECONDS = 10e-6  # below this a clock's own time is what is measured


def rows_of(name: str, function: Any, arguments: Sequence[Any], rounds: int) -> Iterator[dict[str, Any]]:
    """A row a kernel: seconds as estimated and as measured."""
    import fuser
    from fuser import backends
    from fuser.partition.group import kernel_groups
    from fuser.report.estimate import estimated

    backend = backends.get("c")
    compiled = fuser.jit(function).lower(*arguments).compile()
    arrays = [np.asarray(a) for a in fuser.tree.leaves(tuple(arguments))]
    sources = dict(zip(kernel_groups(compiled.plan, backend.limits), compiled.sources))
    steps = compiled.executable.call_profiled
    samples: list[list[float]] = [[] for _ in compiled.plan.groups]
    for _ in range(rounds):
        for index, seconds in steps(arrays, time.thread_time)[1]:
            samples[index].append(seconds - overhead())
    estimates = estimated(compiled.plan, backend, sources)
    for group, measured, found in zip(compiled.plan.groups, samples, estimates, strict=True):
        if found is not None and measured:
            yield {
                "program": name,
                "kernel": group.name,
                "kind": group.kind.value,
                "ops": " ".join(group.ops[:8]),
                "estimated": found.seconds,
                "limiter": found.limiter,
                "measured": min(measured),
            }


@functools.cache
def overhead() -> float:
    """Seconds of calling a kernel from Python with a clock beside it, which its own time does not hold."""
    import fuser

    compiled = fuser.jit(lambda x: x + 1).lower(np.float32(1)).compile()
    one = [np.ones((), np.float32)]
    return min(
        seconds for _ in range(200) for _, seconds in compiled.executable.call_profiled(one, time.thread_time)[1]
    )


def random_rows(first: int, count: int, rounds: int) -> Iterator[dict[str, Any]]:
    import fuser.numpy as fnp
    from bench.random_programs import draw

    for seed in range(first, first + count):
        program = draw(seed)
        function = functools.partial(program.function, fnp)
        yield from rows_of(f"random {seed}", function, program.arguments, rounds)


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Median error, and the rank correlation (Spearman's)."""
    estimated, measured = (np.array([row[key] for row in rows]) for key in ("estimated", "measured"))
    error = np.abs(estimated / measured - 1)
    ranks = [np.argsort(np.argsort(values)) for values in (estimated, measured)]
    return {
        "kernels": len(rows),
        "median error": float(np.median(error)),
        "rank correlation": float(np.corrcoef(*ranks)[0, 1]),
        "beyond 2x": float(np.mean((estimated > 2 * measured) | (measured > 2 * estimated))),
    }


def main(arguments: list[str] | None = None) -> int:
    os.environ["FUSER_THREADS"] = "1"
    parser = argparse.ArgumentParser(prog="python -m bench.model", description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=500, help="random programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", metavar="PATH", help="where the rows go")
    options = parser.parse_args(arguments)
    rows = [
        row for row in random_rows(options.seed, options.programs, options.rounds) if row["measured"] > LEAST_SECONDS
    ]
    for row in sorted(rows, key=lambda row: row["estimated"] / row["measured"]):
        print(
            f"{row['estimated'] / row['measured']:6.2f} {row['measured'] * 1e6:9.1f} us {row['limiter']:10} {row['program']} {row['kernel']} {row['kind']}: {row['ops']}"
        )
    print(summary(rows))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"date": datetime.datetime.now().isoformat(), "summary": summary(rows), "rows": rows}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
