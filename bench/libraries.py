"""`python -m bench --suite libraries [programs]`: programs on unmodified libraries of the JAX ecosystem, fuser as `jax` beside JAX.

Each system runs a program in a process of its own with empty caches. Time to the first step counts from after the imports to
the first step's results: initial values, tracing and compilation. Steady steps are timed in turns. Exit status 1: a program
failed, a state differs after the first step, or a limit is missed: steps 0.8 of JAX's in the geometric mean and 1.3 each,
first steps 1.0 in the mean. With --one-core both are pinned to one core and processor time counts, compilers' among it.
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
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import report
from bench.timing import CLOCKS, sample
from bench.traps import _difference

ROOT = pathlib.Path(__file__).resolve().parent.parent
SYSTEMS = ("fuser", "jax")
SAMPLE_SECONDS = 0.1
LIMITS = {"steps": 0.8, "step": 1.3, "first": 1.0}
TOLERANCE = 2e-3


def serve(system: str, name: str, path: str, one_core: bool) -> None:
    """A system's process: makes the program, answers with the seconds to the first step, then with those of a step a line."""
    if system == "fuser":
        from fuser.compat import install_as_jax

        install_as_jax()
    from bench.library_programs import PROGRAMS

    _import_all(name)
    import jax

    jax.block_until_ready(jax.jit(lambda x: x * 2 + 1)(np.ones(4, np.float32)))
    clock = CLOCKS["processor" if one_core else "wall"]
    start = clock()
    step, state = PROGRAMS[name]()
    state = jax.block_until_ready(step(state))
    first = clock() - start
    np.savez(path, *[np.asarray(leaf) for leaf in map(_plain, jax.tree_util.tree_leaves(state)) if leaf is not None])
    print(json.dumps({"first": first}), flush=True)
    state = jax.block_until_ready(step(state))

    def steps(count: int) -> float:
        current = state

        def once() -> Any:
            nonlocal current
            current = step(current)
            return current

        return sample(once, count, clock, jax.block_until_ready)

    calls = max(1, min(1000, int(SAMPLE_SECONDS / max(steps(1), 1e-6))))
    for _ in sys.stdin:
        print(json.dumps({"seconds": steps(calls)}), flush=True)


def _plain(leaf: Any) -> Any:
    """An array of numbers; None for what is none."""
    if not hasattr(leaf, "dtype"):
        return None
    import jax

    return jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _import_all(name: str) -> None:
    """The libraries of a program, imported before the clock starts."""
    import importlib
    import inspect
    import re

    from bench import library_programs

    source = inspect.getsource(library_programs.PROGRAMS[name])
    if "_regression" in source:
        source += inspect.getsource(library_programs._regression)
    for module in re.findall(r"^ +(?:import|from) ([\w.]+)", source, re.M):
        importlib.import_module(module)


def measure(name: str, rounds: int, one_core: bool) -> dict[str, Any]:
    """A program's row: seconds to the first step and the medians of a step, or the failure."""
    row: dict[str, Any] = {"program": name}
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{system}.npz") for system in SYSTEMS]
        workers: dict[str, Any] = {}
        try:
            for system, path in zip(SYSTEMS, paths):
                worker = workers[system] = _worker(system, name, path, folder, one_core)
                answer = worker.stdout.readline()
                if not answer:
                    worker.wait()
                    return row | {"failure": f"{system}: {worker.stderr.read()[-1500:]}"}
                row[f"{system}_first_s"] = json.loads(answer)["first"]
            row["error"] = _difference(*paths)
            samples: dict[str, list[float]] = {system: [] for system in SYSTEMS}
            for turn in range(rounds):
                for system in SYSTEMS if turn % 2 else SYSTEMS[::-1]:
                    workers[system].stdin.write("\n")
                    workers[system].stdin.flush()
                    samples[system].append(json.loads(workers[system].stdout.readline())["seconds"])
        finally:
            for worker in workers.values():
                worker.kill()
                worker.wait()
    row |= {f"{system}_s": statistics.median(samples[system]) for system in SYSTEMS}
    return row | {"step": row["fuser_s"] / row["jax_s"], "first": row["fuser_first_s"] / row["jax_first_s"]}


def _worker(system: str, name: str, path: str, folder: str, one_core: bool) -> Any:
    command = [sys.executable, "-m", "bench.libraries", "--serve", system, "--out", path, name]
    own = {
        "FUSER_CACHE_DIR": os.path.join(folder, "cache"),
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
        "TPU_SKIP_MDS_QUERY": "1",
    }
    environment = os.environ | own | ({"FUSER_THREADS": "1", "OMP_NUM_THREADS": "1"} if one_core else {})
    command += ["--one-core"] if one_core else []
    pipe = subprocess.PIPE
    worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, env=environment)
    if one_core:
        os.sched_setaffinity(worker.pid, {max(os.sched_getaffinity(0))})
    return worker


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench --suite libraries", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names of programs (default: all)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--one-core", action="store_true", help="pin both systems to a core, and count processor time")
    parser.add_argument("--json", metavar="PATH", help='where the results go (default: bench/results; "-" for nowhere)')
    parser.add_argument("--suite", choices=["libraries"], help=argparse.SUPPRESS)
    parser.add_argument("--serve", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve, options.names[0], options.out, options.one_core)
        return 0
    known = _names()
    chosen = [name for name in known if not options.names or any(part in name for part in options.names)]
    if not chosen:
        print(f"error: no program has {options.names} in its name; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    rows = []
    for name in chosen:
        rows.append(measure(name, options.rounds, options.one_core))
        print(_words(rows[-1]), file=sys.stderr, flush=True)
    report.save("libraries", options.json, {"one_core": options.one_core, "limits": LIMITS, "rows": rows})
    return _print(rows)


def _names() -> list[str]:
    """The programs' names, read without importing any `jax` here."""
    import ast

    source = ast.parse((ROOT / "bench" / "library_programs.py").read_text())
    return [n.name for n in source.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]


def _words(row: dict[str, Any]) -> str:
    if "failure" in row:
        return f"{row['program']} | {row['failure']}"
    return (
        f"{row['program']} | step {row['fuser_s'] * 1e3:.3f} ms, JAX {row['jax_s'] * 1e3:.3f} ms, ratio {row['step']:.2f} | first step "
        f"{row['fuser_first_s']:.2f} s, JAX {row['jax_first_s']:.2f} s, ratio {row['first']:.2f} | error {row['error']:.1e}"
    )


def _print(rows: list[dict[str, Any]]) -> int:
    """A row a program and the geometric means; gives the exit status."""
    table = Table(title="time of fuser ÷ time of JAX")
    for head in ("program", "step", "first step", "error"):
        table.add_column(head, justify="left" if head == "program" else "right")
    good = [row for row in rows if "step" in row and row["error"] <= TOLERANCE]
    for row in rows:
        cells = (
            (f"{row['step']:.2f}", f"{row['first']:.2f}", f"{row['error']:.0e}")
            if "step" in row
            else ("failed", "", "")
        )
        table.add_row(row["program"], *cells)
    means = {
        k: statistics.geometric_mean([row[k] for row in good]) if good else float("inf") for k in ("step", "first")
    }
    table.add_row("geometric mean", *(f"{means[k]:.2f}" for k in ("step", "first")), "")
    Console().print(table)
    missed = means["step"] > LIMITS["steps"] or means["first"] > LIMITS["first"]
    return int(missed or len(good) < len(rows) or any(row["step"] > LIMITS["step"] for row in good))


if __name__ == "__main__":
    raise SystemExit(main())
