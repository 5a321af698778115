"""`python -m bench --suite traps|models [lines]`: programs that a compiler may fall over, and whole ones, beside JAX or NumPy.

Each line is drawn ten times by a seed. Every system has a process of its own; they take turns, results are compared,
and medians count. Exit status 1: a result was wrong, a system failed, or a line's worst program is over its limit.

On a machine that others use, `--one-core` pins both systems to one core and counts processor time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import machine, model_programs, trap_programs
from bench.trap_programs import Line, Program

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
SAMPLE_SECONDS = 0.05  # of calls that are timed together
TIMEOUT_SECONDS = 120
SUITES = {"traps": trap_programs.lines, "models": model_programs.lines}
TOLERANCE = 2e-3  # of the largest magnitude: float32, with loops that amplify rounding


def lines(module: str) -> dict[str, Line]:
    """The lines of all suites."""
    return {name: line for suite in SUITES.values() for name, line in suite(module).items()}


def program_of(module: str, name: str, number: int, seed: int) -> tuple[Line, Program]:
    """The program `number` of a line: the same numbers for every system."""
    line = lines(module)[name]
    random = np.random.default_rng((seed, zlib.crc32(name.encode()), number))
    return line, line.draw(random, number)


def serve(module: str, seed: int, one_core: bool) -> None:
    """A system's process: reads [line, number] or null, and answers with the seconds of a first call or of one call."""
    clock = time.process_time if one_core else time.perf_counter
    call: Callable[[], Any] = lambda: None
    for request in map(json.loads, sys.stdin):
        try:
            if request is None:
                print(json.dumps({"seconds": _seconds(call, clock)}), flush=True)
                continue
            name, number, path = request
            line, program = program_of(module, name, number, seed)
            call = _prepared(module, line, program)
            start = time.perf_counter()
            results = _wait(call())
            first = time.perf_counter() - start
            np.savez(path, *[np.asarray(r) for r in results])
            print(json.dumps({"first": first, "label": program.label}), flush=True)
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:500]}), flush=True)


def _prepared(module: str, line: Line, program: Program) -> Callable[[], Any]:
    """What calls the program; what it gives away is then what the call before has made of it."""
    if module == "numpy":
        return lambda: program.function(*program.arguments)
    library = __import__(module)
    if line.peer == "numpy":
        accelerated = library.accelerate(program.function)
        return lambda: accelerated(*program.arguments)
    arguments = library.tree_util.tree_map(library.numpy.asarray, program.arguments)
    if not program.donates:
        jitted = library.jit(program.function)
        return lambda: jitted(*arguments)
    updated, array, rest = library.jit(program.function, donate_argnums=0), arguments[0], arguments[1:]

    def call() -> Any:
        nonlocal array
        array = updated(array, *rest)
        return array

    return call


def _wait(results: Any) -> list[Any]:
    found = list(results) if isinstance(results, (tuple, list)) else [results]
    leaves = [leaf for r in found for leaf in (_wait(r) if isinstance(r, (tuple, list)) else [r])]
    for leaf in leaves:
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return leaves


def _seconds(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    _wait(call())
    calls = max(1, min(1_000, int(SAMPLE_SECONDS / max(clock() - start, 1e-7))))
    start = clock()
    for _ in range(calls):
        results = call()
    _wait(results)
    return (clock() - start) / calls


class Worker:
    """A system's process, begun anew after it has failed to answer in time."""

    def __init__(self, module: str, seed: int, one_core: bool) -> None:
        self.module, self.seed, self.one_core = module, seed, one_core
        self._begin()

    def _begin(self) -> None:
        command = [sys.executable, "-m", "bench.traps", "--serve", self.module, "--seed", str(self.seed)]
        command += ["--one-core"] if self.one_core else []
        environment = os.environ | ({"FUSER_THREADS": "1", "OMP_NUM_THREADS": "1"} if self.one_core else {})
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        if self.one_core:
            os.sched_setaffinity(self.process.pid, {max(os.sched_getaffinity(0))})

    def ask(self, request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        previous = signal.signal(signal.SIGALRM, _late)
        signal.alarm(TIMEOUT_SECONDS)
        try:
            answer = self.process.stdout.readline()
        except TimeoutError:
            answer = ""
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, previous)
        if not answer:
            self.close()
            self._begin()
            return {"error": f"no answer within {TIMEOUT_SECONDS} s, or the process ended"}
        return dict(json.loads(answer))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def _late(*_: Any) -> None:
    raise TimeoutError


def measure(workers: dict[str, Worker], line: Line, number: int, rounds: int) -> dict[str, Any]:
    """A program's row: seconds of first calls and medians of both systems, and their ratio."""
    row: dict[str, Any] = {"line": line.name, "number": number, "limit": line.limit, "peer": line.peer}
    systems = ("fuser", line.peer)
    with tempfile.TemporaryDirectory() as folder:
        paths = {system: os.path.join(folder, f"{system}.npz") for system in systems}
        for system in systems:
            answer = workers[system].ask([line.name, number, paths[system]])
            if "error" in answer:
                return row | {"failure": f"{system}: {answer['error']}"}
            row |= {"label": answer["label"], f"{system}_first_s": answer["first"]}
        row["error"] = _difference(*paths.values())
    samples: dict[str, list[float]] = {system: [] for system in systems}
    for turn in range(rounds):
        for system in systems if turn % 2 else reversed(systems):
            answer = workers[system].ask(None)
            if "error" in answer:
                return row | {"failure": f"{system}: {answer['error']}"}
            samples[system].append(answer["seconds"])
    medians = {system: statistics.median(samples[system]) for system in systems}
    return row | {f"{s}_s": m for s, m in medians.items()} | {"ratio": medians["fuser"] / medians[line.peer]}


def _difference(ours: str, theirs: str) -> float:
    """The largest difference of two results, relative to the largest magnitude of each array."""
    with np.load(ours) as a, np.load(theirs) as b:
        if list(a) != list(b):
            return math.inf
        worst = 0.0
        for name in a:
            x, y = a[name], b[name]
            if x.shape != y.shape:
                return math.inf
            wide = np.complex128 if y.dtype.kind == "c" else np.float64
            x, y = x.astype(wide), y.astype(wide)
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            with np.errstate(invalid="ignore"):
                scale = np.max(np.abs(y), initial=1e-30, where=np.isfinite(y))
                worst = max(worst, float(np.max(np.where(same, 0, np.abs(x - y)), initial=0) / scale))
        return worst


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench --suite traps|models", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names of lines (default: all)")
    parser.add_argument("--programs", type=int, default=10, help="programs of a line (default: 10)")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of programs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="PATH", help='where the results go (default: bench/results; "-" for nowhere)')
    parser.add_argument("--suite", choices=sorted(SUITES), default="traps")
    parser.add_argument("--one-core", action="store_true", help="pin both systems to a core, and count processor time")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve, options.seed, options.one_core)
        return 0
    known = SUITES[options.suite]("fuser")
    chosen = [line for line in known.values() if not options.names or any(n in line.name for n in options.names)]
    if not chosen:
        print(f"error: no line has {options.names} in its name; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    modules = dict.fromkeys(["fuser", *(line.peer for line in chosen)])
    workers = {module: Worker(module, options.seed, options.one_core) for module in modules}
    path = pathlib.Path(options.json) if options.json else _path(options.suite)
    rows: list[dict[str, Any]] = []
    try:
        for line in chosen:
            for number in options.only if options.only is not None else range(options.programs):
                rows.append(measure(workers, line, number, options.rounds))
                print(_words(rows[-1]), file=sys.stderr, flush=True)
                if options.json != "-":  # a run that is stopped leaves what it has
                    document = {
                        "machine": machine.describe(gpu=False),
                        "seed": options.seed,
                        "one_core": options.one_core,
                    }
                    document["rows"] = rows
                    path.write_text(json.dumps(document, indent=1) + "\n")
    finally:
        for worker in workers.values():
            worker.close()
    return _print(rows, chosen)


def _path(suite: str) -> pathlib.Path:
    return RESULTS / f"{datetime.datetime.now():%Y-%m-%d-%H%M}-{suite}.json"


def _words(row: dict[str, Any]) -> str:
    head = f"{row['line']} | {row.get('label', row['number'])}"
    if "failure" in row:
        return f"{head} | {row['failure']}"
    peer = row["peer"]
    return (
        f"{head} | {row['fuser_s'] * 1e3:.3f} ms | {peer} {row[f'{peer}_s'] * 1e3:.3f} ms | ratio {row['ratio']:.2f} | "
        f"first {row['fuser_first_s']:.2f} s, {row[f'{peer}_first_s']:.2f} s | error {row['error']:.1e}"
    )


def _print(rows: list[dict[str, Any]], chosen: list[Line]) -> int:
    """A row a line: the worst program and the geometric mean; gives the exit status."""
    table = Table(title="time of fuser ÷ time of the peer")
    for head in ("line", "limit", "mean", "worst", "which", "wrong or failed"):
        table.add_column(head, justify="left" if head in ("line", "which") else "right")
    status = 0
    means: list[float] = []
    for line in chosen:
        own = [row for row in rows if row["line"] == line.name]
        good = [row for row in own if "ratio" in row and row["error"] <= TOLERANCE]
        worst = max(good, key=lambda row: row["ratio"], default=None)
        mean = math.exp(statistics.fmean(math.log(row["ratio"]) for row in good)) if good else math.nan
        status |= len(good) < len(own) or worst is None or worst["ratio"] > line.limit
        cells = (f"{worst['ratio']:.2f}", worst["label"]) if worst else ("", "")
        table.add_row(line.name, f"{line.limit:.2f}", f"{mean:.2f}", *cells, str(len(own) - len(good)))
        means += [mean] if good else []
    table.add_row("geometric mean of lines", "", f"{statistics.geometric_mean(means):.2f}" if means else "", "", "", "")
    Console().print(table)
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main())
