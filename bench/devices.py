"""`python -m bench.devices`: seconds a step of programs over 2, 4 and 8 devices of this machine, fuser beside JAX in one run.

Both have as many devices in one process; samples alternate, each waits for its results. "call" is a compiled program over
all devices whose arrays have 64 elements. Figures are medians; `× JAX` is fuser's seconds over JAX's. With `--clock processor` they are the
processor seconds of all threads together, which other work on the machine hardly changes, but which say nothing of how threads share the work.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import machine
from bench.sharded_programs import PROGRAMS, mesh_of
from bench.timing import CLOCKS, Clock, samples

DEVICES = (2, 4, 8)
SAMPLE_SECONDS = 0.02
CALL = "call with 64 elements"


def call(lib: Any, count: int, scale: int = 1) -> Any:
    """What is left of a call when there is nothing to compute."""
    mesh = mesh_of(lib, count, "x")
    x = lib.device_put(np.arange(64, dtype=np.float32), lib.NamedSharding(mesh, lib.P("x")))
    return lib.jit(lambda a: a * 2 + 1), (x,)


def measure(name: str, count: int, scale: int, rounds: int, clock: Clock) -> dict[str, Any]:
    """One program on so many devices by both systems."""
    import jax

    import fuser

    program = call if name == CALL else PROGRAMS[name]
    built = {"fuser": program(fuser, count, scale), "jax": program(jax, count, scale)}
    waits = {"fuser": fuser.block_until_ready, "jax": jax.block_until_ready}
    calls = {system: _call(*built[system], waits[system]) for system in built}
    found = samples(calls, rounds, SAMPLE_SECONDS, clock)
    medians = {system: statistics.median(values) for system, values in found.items()}
    return {
        "program": name,
        "devices": count,
        **medians,
        "ratio": medians["fuser"] / medians["jax"],
        "samples": found,
    }


def _call(function: Any, arguments: Any, wait: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: wait(function(*arguments))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=[CALL, *PROGRAMS])
    parser.add_argument("--devices", type=int, nargs="*", default=DEVICES)
    parser.add_argument("--scale", type=int, default=4, help="extents are this many times those of bench.collectives")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    import jax

    import fuser

    jax.config.update("jax_num_cpu_devices", max(options.devices))
    fuser.config.update("num_cpu_devices", max(options.devices))
    clock = CLOCKS[options.clock]
    rows = [measure(n, d, options.scale, options.rounds, clock) for n in options.programs for d in options.devices]
    table = Table("program", "devices", "fuser ms", "JAX ms", "× JAX")
    for row in rows:
        times = (f"{row['fuser'] * 1e3:.3f}", f"{row['jax'] * 1e3:.3f}")
        table.add_row(row["program"], str(row["devices"]), *times, f"{row['ratio']:.2f}")
    steps = [row["ratio"] for row in rows if row["program"] != CALL]
    Console().print(table)
    if steps:
        mean = math.exp(statistics.mean(map(math.log, steps)))
        print(f"geometric mean of steps: {mean:.2f} × JAX, the worst {max(steps):.2f}")
    if options.json:
        document = {
            "schema": 1,
            "machine": machine.describe(False),
            "scale": options.scale,
            "clock": options.clock,
            "rows": rows,
        }
        options.json.write_text(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
