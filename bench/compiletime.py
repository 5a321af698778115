"""`python -m bench.compiletime [families]`: seconds of a first call with a cold cache, fuser beside JAX, at the largest sizes.

Every figure comes from a fresh process that has compiled something small before; the systems take turns, and each one's
median counts. Processor seconds, those of compilers that it started among them, stand beside the seconds of the clock:
on a busy machine they say more. Exit status 1: fuser took longer than JAX for some family, or failed.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import machine
from bench.families import families

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = pathlib.Path(__file__).resolve().parent / "results"
SYSTEMS = ("fuser", "jax")
TIMEOUT_SECONDS = 180
LIMITS_SECONDS = {"outputs": 1.0}  # beside "no more than JAX"

# The arguments are placed and the libraries' imports are done before the clock starts; results are waited for.
FIRST_CALL = """
import json, os, sys, time
import numpy as np
from bench.families import families
library = __import__("{module}")
warm = library.jit(lambda x: x * 2.0 + 1.0)(np.ones((4, 4), np.float32))
np.asarray(warm)
program, arguments = families("{module}")["{family}"].make({size})
for array in arguments:
    array.block_until_ready()
spent = lambda: sum(os.times()[:4])
seconds, used = time.perf_counter(), spent()
results = library.jit(program)(*arguments)
for leaf in library.tree_util.tree_leaves(results) if "{module}" == "jax" else library.tree.leaves(results):
    leaf.block_until_ready()
print(json.dumps([time.perf_counter() - seconds, spent() - used]))
"""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    names = options.names or list(families("fuser"))
    path = pathlib.Path(options.json) if options.json else _path()
    document: dict[str, Any] = {"machine": machine.describe(gpu=False), "rows": (rows := [])}
    for name in names:
        rows.append(measure(name, options.repeats))
        print(" | ".join(_cells(rows[-1])), file=sys.stderr, flush=True)
        if options.json != "-":  # a run that is stopped leaves what it has
            path.write_text(json.dumps(document, indent=1) + "\n")
            path.with_suffix(".md").write_text(markdown(rows))
    print_table(rows)
    return 1 if any(row["verdict"] != "PASS" for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.compiletime", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="families (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="processes of each system (default: 3)")
    parser.add_argument("--json", metavar="PATH", help='where the results go (default: bench/results; "-" for nowhere)')
    return parser


def measure(name: str, repeats: int) -> dict[str, Any]:
    """A family's row: seconds and processor seconds of each system at its largest size, and the verdict."""
    size = families("fuser")[name].largest
    taken: dict[str, list[list[float]]] = {system: [] for system in SYSTEMS}
    failures: dict[str, str] = {}
    for _ in range(repeats):
        for system in SYSTEMS:
            if system not in failures:
                try:
                    taken[system].append(_first_call(system, name, size))
                except RuntimeError as error:
                    failures[system] = str(error)
    row: dict[str, Any] = {"family": name, "size": size, "failures": failures}
    for system in SYSTEMS:
        for number, what in enumerate(("seconds", "processor_seconds")):
            values = [pair[number] for pair in taken[system]]
            row[f"{system}_{what}"] = statistics.median(values) if values and system not in failures else None
    row["verdict"] = verdict(row)
    return row


def verdict(row: dict[str, Any]) -> str:
    """PASS where fuser takes no longer than JAX (which may have failed) and no longer than the family's own limit."""
    ours, theirs = row["fuser_seconds"], row["jax_seconds"]
    if ours is None:
        return "FAIL"
    limit = min(theirs if theirs is not None else TIMEOUT_SECONDS, LIMITS_SECONDS.get(row["family"], TIMEOUT_SECONDS))
    return "PASS" if ours <= limit else "MISS"


def print_table(rows: list[dict[str, Any]]) -> None:
    table = Table("family", "size", "fuser s", "JAX s", "fuser/JAX", "fuser cpu s", "JAX cpu s", "")
    for row in rows:
        table.add_row(*_cells(row))
    Console().print(table)


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table as text that a repository shows."""
    head = ["family", "size", "fuser s", "JAX s", "fuser/JAX", "fuser cpu s", "JAX cpu s", ""]
    lines = [head, ["---"] * len(head), *(_cells(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    figure = lambda value: "failed" if value is None else f"{value:.2f}"
    ours, theirs = row["fuser_seconds"], row["jax_seconds"]
    ratio = "" if ours is None or theirs is None else f"{ours / theirs:.2f}"
    cpu = [figure(row[f"{system}_processor_seconds"]) for system in SYSTEMS]
    return [row["family"], str(row["size"]), figure(ours), figure(theirs), ratio, *cpu, row["verdict"]]


def _path() -> pathlib.Path:
    return RESULTS / f"{time.strftime('%Y-%m-%d-%H%M', time.gmtime())}-compile-times.json"


def _first_call(system: str, name: str, size: int) -> list[float]:
    """Seconds and processor seconds in a fresh process; RuntimeError with the last line of its complaint."""
    script = FIRST_CALL.replace("{module}", system).replace("{family}", name).replace("{size}", str(size))
    with tempfile.TemporaryDirectory(prefix="bench-cache-") as folder:
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {"JAX_PLATFORMS": "cpu"} | os.environ | {"FUSER_CACHE_DIR": folder, "PYTHONPATH": path}
        command = [sys.executable, "-c", script]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"it took more than {TIMEOUT_SECONDS} s") from None
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return [float(value) for value in json.loads(done.stdout.strip().splitlines()[-1])]


if __name__ == "__main__":
    sys.exit(main())
