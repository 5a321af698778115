"""`python -m bench.scaling`: weak scaling of data-parallel training as `python -m fuser plan` predicts it, beside runs of 2, 4 and 8 processes here.

The machine's constants come from one process alone (a product, a sum of arrays), the link's from sums between two processes; steps on
2, 4 and 8 processes are predicted from them. All figures are processor seconds of a process: processes outnumber the processors, and one
that waits for its turn or for a message uses none. Then the same model says what 1,024 GPUs would do. Exit status 1: an error above 20 %, or
less than 90 % on the GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import fuser
import fuser.numpy as fnp
from bench import machine
from bench.timing import sample
from fuser import NamedSharding, P
from fuser.parallel.network import LINKS, Link, Network
from fuser.parallel.planning import MACHINES, DevicePlan, Machine, plan

COUNTS = (2, 4, 8)
ROWS, WIDTH, HIDDEN = 512, 512, 1024  # rows of a batch on each device
SHORT_BYTES, LONG_BYTES = 8192, 4 << 20  # of the sums that the link's constants come from
MOST_ERROR, LEAST_EFFICIENCY = 0.2, 0.9
GPUS, GPU_ROWS, GPU_WIDTH = 1024, 32768, 4096  # rows: 16 sequences of 2,048 tokens on each


def loss(params: Any, x: Any, y: Any) -> Any:
    hidden = fnp.tanh(x @ params["in"] + params["bias"])
    return ((hidden @ params["out"] - y) ** 2).mean()


def step(params: Any, x: Any, y: Any) -> Any:
    """A step of gradient descent."""
    value, slopes = fuser.value_and_grad(loss)(params, x, y)
    return value, fuser.tree.map(lambda p, s: p - 0.01 * s, params, slopes)


def shapes(count: int, rows: int = ROWS, width: int = WIDTH, hidden: int = HIDDEN) -> tuple[Any, ...]:
    """The types of the arguments of `step` for so many devices."""
    of = lambda *shape: fuser.ShapeDtypeStruct(shape, np.float32)
    params = {"in": of(width, hidden), "bias": of(hidden), "out": of(hidden, width)}
    return params, of(count * rows, width), of(count * rows, width)


def seconds(call: Callable[[], Any], calls: int = 4, rounds: int = 9) -> float:
    """Processor seconds of this process for a call: the median over rounds."""
    ready = lambda: fuser.block_until_ready(call())
    sample(ready, 2)
    return statistics.median(sample(ready, calls, time.process_time) for _ in range(rounds))


def run_here(count: int) -> dict[str, Any]:
    """What one of `count` processes measures."""
    fuser.config.update("collective_timeout", 600.0)
    if count > 1:
        fuser.distributed.initialize()
    mesh = fuser.make_mesh((count,), ("data",), axis_types=(fuser.sharding.AxisType.Auto,))
    rng = np.random.default_rng(0)
    lay = lambda aval, *spec: fuser.device_put(
        (rng.normal(size=aval.shape) / 32).astype(np.float32), NamedSharding(mesh, P(*spec))
    )
    params, x, y = shapes(count)
    args = ({name: lay(aval) for name, aval in params.items()}, lay(x, "data"), lay(y, "data"))
    compiled = fuser.jit(step)
    found: dict[str, Any] = {"step": seconds(lambda: compiled(*args))}
    if count == 1:
        a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((ROWS, WIDTH), (WIDTH, HIDDEN)))
        product, long = fuser.jit(lambda a, b: a @ b), np.ones(1 << 24, np.float32)
        added = fuser.jit(lambda x: x + 1)
        found["flops_per_second"] = 2 * ROWS * WIDTH * HIDDEN / seconds(lambda: product(a, b))
        found["bytes_per_second"] = 2 * long.nbytes / seconds(lambda: added(long), 1)
    if count == 2:
        total = fuser.shard_map(lambda v: fuser.lax.psum(v, "data"), mesh=mesh, in_specs=P("data"), out_specs=P())
        summed = fuser.jit(total)
        values = {
            n: lay(fuser.ShapeDtypeStruct((count * n // 4,), np.float32), "data") for n in (SHORT_BYTES, LONG_BYTES)
        }
        found["sums"] = {n: seconds(lambda v=v: summed(v)) for n, v in values.items()}
    return found


def run_on(count: int) -> list[dict[str, Any]]:
    """What each of so many processes on loopback measures."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    common |= {"FUSER_THREADS": "1", "FUSER_NUM_CPU_DEVICES": "1"}
    command = [sys.executable, "-m", "bench.scaling", "--process", str(count)]
    started = [
        subprocess.Popen(command, env={**os.environ, **common, "RANK": str(n)}, stdout=subprocess.PIPE, text=True)
        for n in range(count)
    ]
    texts = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"a run of {count} processes failed")
    return [json.loads(text.splitlines()[-1]) for text in texts]


def link_of(sums: dict[int, float]) -> Link:
    """The link's constants from the seconds of a short and a long sum between two processes: two rounds of one message each."""
    short, long = (sums[n] for n in (SHORT_BYTES, LONG_BYTES))
    bytes_per_second = (LONG_BYTES - SHORT_BYTES) / (long - short)  # of n bytes each sends n
    return Link((short - SHORT_BYTES / bytes_per_second) / 2, bytes_per_second)


def predicted(count: int, own: Machine, network: Network, sizes: tuple[Any, ...]) -> DevicePlan:
    """What the planner says of a step on so many devices."""
    return plan(step, sizes, (P(), P("data"), P("data")), {"data": count}, own, network)


def compared(measured: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    """Predictions beside measurements: seconds of a step, and efficiency."""
    (alone,) = measured[1]
    mean = lambda values: statistics.mean(list(values))
    link = link_of({int(n): mean(m["sums"][n] for m in measured[2]) for n in measured[2][0]["sums"]})
    own = Machine(alone["flops_per_second"], alone["bytes_per_second"], 1e-6)
    rows = []
    for count in COUNTS:
        said = predicted(count, own, Network(link, {}), shapes(count))
        took = mean(m["step"] for m in measured[count])
        efficiency = alone["step"] / took
        busy = said.compute_seconds + said.collective_seconds  # processors compute and send: nothing overlaps
        kept = said.compute_seconds / busy
        row = {"processes": count, "seconds": took, "predicted_seconds": busy, "efficiency": efficiency}
        row |= {"predicted_efficiency": kept, "seconds_error": busy / took - 1}
        rows.append(row | {"efficiency_error": kept / efficiency - 1})
    gpu = predicted(
        GPUS, MACHINES["h100"], Network(LINKS["infiniband"], {}), shapes(GPUS, GPU_ROWS, GPU_WIDTH, 4 * GPU_WIDTH)
    )
    constants = {"machine": vars(own), "link": vars(link)}
    efficiencies = {"gpu_efficiency": gpu.efficiency}
    efficiencies["gpu_efficiency_without_overlap"] = gpu.compute_seconds / (
        gpu.compute_seconds + gpu.collective_seconds
    )
    return {"rows": rows, "alone_seconds": alone["step"], **constants, "gpus": GPUS, **efficiencies}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if options.process:
        print(json.dumps(run_here(options.process)), flush=True)
        return 0
    document = compared({count: run_on(count) for count in (1, *COUNTS)})
    table = Table("processes", "step ms", "predicted", "error", "efficiency", "predicted", "error")
    for row in document["rows"]:
        step_figures = (
            f"{row['seconds'] * 1e3:.1f}",
            f"{row['predicted_seconds'] * 1e3:.1f}",
            f"{row['seconds_error']:+.0%}",
        )
        part = (f"{row['efficiency']:.1%}", f"{row['predicted_efficiency']:.1%}", f"{row['efficiency_error']:+.0%}")
        table.add_row(str(row["processes"]), *step_figures, *part)
    Console().print(table)
    print(
        f"{GPUS:,} h100 over infiniband: weak scaling {document['gpu_efficiency']:.1%} predicted, "
        f"{document['gpu_efficiency_without_overlap']:.1%} if nothing overlapped"
    )
    if options.json:
        options.json.write_text(json.dumps({"schema": 1, "host": machine.describe(False), **document}, indent=1))
    worst = max(max(abs(r["seconds_error"]), abs(r["efficiency_error"])) for r in document["rows"])
    return 0 if worst <= MOST_ERROR and document["gpu_efficiency"] >= LEAST_EFFICIENCY else 1


if __name__ == "__main__":
    sys.exit(main())
