"""Steps of the programs of `bench.sharded_programs` on several GPUs of this machine, beside JAX where it sees them.

    python -m bench.gpus --rows gpus.jsonl            on 2, 4, ... GPUs, as many as there are
    python -m bench.gpus --rows gpus.jsonl --dry-run  two programs on two that are none, by stand-ins of the driver and of NCCL

A row: program, devices, seconds a step (the median), `jax` seconds, and the largest difference to the CPU's devices relative to the largest value.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from bench.sharded_programs import PROGRAMS, Program
from bench.timing import sample

NAMES = [
    "device_put",
    "NamedSharding",
    "P",
    "sharding",
    "numpy",
    "lax",
    "nn",
    "tree",
    "jit",
    "value_and_grad",
    "shard_map",
]
IN_A_DRY_RUN = ("data-parallel MLP", "halo exchange")
MOST_ERROR = 1e-3  # of float32 products on matrix units that round as IEEE says, in another order


def over(lib: Any, devices: list[Any]) -> Any:
    """A library whose meshes are over these devices."""
    make_mesh = lambda shape, names, axis_types: lib.make_mesh(shape, names, axis_types=axis_types, devices=devices)
    return SimpleNamespace(make_mesh=make_mesh, **{name: getattr(lib, name) for name in NAMES})


def seconds(function: Any, args: Any, wait: Any, rounds: int) -> float:
    """The median of a step, of which several are under way."""
    for _ in range(3):
        wait(function(*args))
    return statistics.median(sample(lambda: function(*args), 5, wait=wait) for _ in range(rounds))


def row(name: str, program: Program, count: int, options: argparse.Namespace, jax: Any) -> dict[str, Any]:
    """One program on so many GPUs."""
    import fuser

    scale, rounds = (1, 1) if options.dry_run else (options.scale, options.rounds)
    function, args = program(over(fuser, fuser.devices("cuda")[:count]), count, scale)
    with fuser.config.using(num_cpu_devices=count):
        on_host, host_args = program(over(fuser, fuser.devices("cpu")[:count]), count, scale)
        wanted = [np.asarray(x) for x in fuser.tree.leaves(on_host(*host_args))]
    got = [np.asarray(x) for x in fuser.tree.leaves(function(*args))]
    error = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in zip(got, wanted, strict=True))
    found: dict[str, Any] = {
        "program": name,
        "devices": count,
        "error": error,
        "device": fuser.devices("cuda")[0].device_kind,
    }
    found["seconds"] = seconds(function, args, fuser.block_until_ready, rounds)
    if jax is not None:
        function, args = program(over(jax, jax.devices("gpu")[:count]), count, scale)
        found["jax"] = seconds(function, args, jax.block_until_ready, rounds)
    return found


def peer(dry: bool) -> Any:
    """JAX where it sees GPUs, else None."""
    with contextlib.suppress(Exception):
        import jax

        return jax if not dry and jax.devices("gpu") else None
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=pathlib.Path)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--scale", type=int, default=32, help="extents are this many times those of bench.collectives")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=60, help="seconds after which no further program begins")
    options = parser.parse_args(arguments)
    import fuser

    begun, failed = time.monotonic(), False
    with contextlib.ExitStack() as stack:
        if options.dry_run:
            from tests import cuda_stand_in

            stack.enter_context(cuda_stand_in.opened(2))
        try:
            there = len(fuser.devices("cuda"))
        except RuntimeError:
            there = 0
        if there < 2:
            print(f"bench.gpus: {there} GPU(s) here; programs over several are left out")
        jax = peer(options.dry_run)
        names = IN_A_DRY_RUN if options.dry_run else tuple(PROGRAMS)
        cases = [(name, PROGRAMS[name], count) for count in (2, 4, 8) if count <= there for name in names]
        for name, program, count in cases:
            if not options.dry_run and time.monotonic() - begun > options.budget:
                break
            try:
                found = row(name, program, count, options, jax)
            except Exception as error:
                found = {"program": name, "devices": count, "failure": f"{type(error).__name__}: {error}"}
            failed |= "failure" in found or found["error"] > MOST_ERROR
            print(json.dumps(found), flush=True)
            if options.rows is not None:
                with options.rows.open("a") as file:
                    file.write(json.dumps(found) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
