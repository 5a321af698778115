"""`python -m bench.tpu`: what TPU programs cost by XLA's own count, next to what XLA makes of the same function in jax.numpy.

Both are compiled ahead of time by libtpu; no TPU is needed and none is used. Kernels are the instructions of the compiled
program that launch work, bytes those that `cost_analysis` counts: for XLA's fusions its own estimate, for a Pallas kernel
what it declares, which is what its blocks move from step to step of its grid (a test walks it). Products have the
precision of their operands on both sides. Writes a table and a JSON document to bench/results.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from bench.workloads import WORKLOADS

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
# (workload, dtype)
CASES = (
    *((name, "float32") for name in ("softmax", "layer_norm", "rms_norm", "cross_entropy", "cross_entropy_gradient")),
    *(("gelu_mlp", dtype) for dtype in ("float32", "bfloat16")),
    *((name, "float32") for name in ("black_scholes", "stencil", "mandelbrot_loop", "mandelbrot")),
)


@dataclass(frozen=True)
class Row:
    """One workload on one machine; `kernels` and `bytes` by XLA's count. `xla_fusions` are part of `xla_kernels`."""

    workload: str
    dtype: str
    target: str
    shapes: list[str]
    kernels: int
    xla_kernels: int
    xla_fusions: int
    bytes: int
    xla_bytes: int
    ideal_bytes: int
    vector_memory: int
    seconds: float
    xla_seconds: float

    @property
    def good(self) -> bool:
        """No more kernels than XLA has fusions, and no more bytes."""
        return self.kernels <= self.xla_fusions and self.bytes <= self.xla_bytes


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tpu", description="TPU programs beside XLA's, by count.")
    parser.add_argument("names", nargs="*", help="workloads (default: all of the table)")
    parser.add_argument("--size", default="full", help="size of the workloads (default: full)")
    parser.add_argument("--targets", default="v5e,v6e", metavar="A,B", help="machines (default: v5e,v6e)")
    parser.add_argument("--no-write", action="store_true", help="only print")
    options = parser.parse_args(arguments)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    chosen = [case for case in CASES if not options.names or case[0] in options.names]
    rows = []
    for name, dtype in chosen:
        for target in options.targets.split(","):
            rows.append(compare(name, dtype, target, options.size))
            print(_line(rows[-1]), flush=True)
    if not options.no_write:
        _write(rows)
    return int(not all(row.good for row in rows))


def compare(name: str, dtype: str, target: str, size: str) -> Row:
    """The workload compiled by fuser and by XLA."""
    import jax

    import fuser
    from fuser.backends.tpu.aot import compile_function, compile_plan
    from fuser.ir.types import ArrayType

    workload = WORKLOADS[name]
    inputs = workload.inputs(size, dtype)
    lowered = fuser.jit(lambda *arrays: workload.run(fuser, arrays), backend="tpu").lower(*inputs)
    ours, seconds = _timed(lambda: compile_plan(lowered.plan, target))
    avals = [ArrayType(a.shape, a.dtype) for a in inputs]
    with jax.default_matmul_precision("highest" if dtype == "float32" else "default"):
        theirs, xla_seconds = _timed(lambda: compile_function(lambda *a: workload.run(jax, a), avals, target))
    return Row(
        name,
        dtype,
        target,
        [aval.str_short() for aval in avals],
        ours.kernels,
        theirs.kernels,
        theirs.launches["fusion"],
        ours.bytes_accessed,
        theirs.bytes_accessed,
        int(lowered.cost_analysis()["optimal bytes"]),
        max(group.vmem for group in lowered.plan.groups),
        seconds,
        xla_seconds,
    )


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return function(), round(time.perf_counter() - start, 2)


HEAD = (
    "| workload | dtype | TPU | kernels | XLA's | its fusions | MB moved | XLA's | ratio | ideal | vector memory, MB |\n"
    "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def _line(row: Row) -> str:
    counts = (str(row.kernels), str(row.xla_kernels), str(row.xla_fusions))
    numbers = (f"{row.bytes / 1e6:.2f}", f"{row.xla_bytes / 1e6:.2f}", f"{row.bytes / row.xla_bytes:.3f}")
    ends = (f"{row.ideal_bytes / 1e6:.2f}", f"{row.vector_memory / 1e6:.2f}")
    return f"| {' | '.join((row.workload, row.dtype, row.target, *counts, *numbers, *ends))} |"


def _write(rows: list[Row]) -> None:
    now = datetime.datetime.now(datetime.UTC)
    name = f"{now:%Y-%m-%d-%H%M}-tpu-ahead-of-time"
    versions = {package: importlib.metadata.version(package) for package in ("jax", "jaxlib", "libtpu")}
    document = {"date": now.isoformat(timespec="seconds"), "versions": versions, "rows": [asdict(row) for row in rows]}
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    words = ", ".join(f"{package} {version}" for package, version in versions.items())
    text = f"# TPU programs beside XLA's, compiled ahead of time\n\n`python -m bench.tpu`, with {words}.\n\n{HEAD}\n"
    text += "\n".join(map(_line, rows)) + "\n"
    text += "\nBytes are those of XLA's `cost_analysis`: its own estimate for fusions, and for a Pallas kernel what the kernel\n"
    text += "declares, the blocks that its grid fetches and writes. Kernels are what one call launches, the bodies of loops once.\n"
    (RESULTS / f"{name}.md").write_text(text)
    print(f"wrote {name}.md and {name}.json")


if __name__ == "__main__":
    sys.exit(main())
