"""Every case of the Triton backend on a real GPU, in several processes: `python -m tests.gpu.every_case --rows checks.jsonl`.

Out: a JSON line a case as soon as it is done, `{"suite", "case", "error", "seconds"}`, error empty where the result is that of the reference
backend; then a line with the numbers of them. A case that ends its process, or after which the GPU answers no more, or that takes longer than
`--longest`, is one with an error, and its process is started again behind it. Exit status 1: a case has an error; 2: there is no GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SUITES = (
    *(
        "forms",
        "special values",
        "eager",
        "products",
        "attention",
        "horizontal",
        "reduced products",
        "loops",
        "control",
        "scatters",
        "counted scatters",
        "selections",
        "workloads",
    ),
    *(
        "transforms",
        "libraries",
        "registry",
        "random",
        "scatters in order",
        "long",
    ),  # the last two change how kernels are made, for the rest of their process
)
SAMPLES = 4  # of each primitive of the registry, spread over its dtypes: each costs a compilation
PROGRAMS = 150  # random ones
FARTHER = 8.0  # times a random program may be as far from float64 as the reference
DEAD = 3  # exit status of a process whose GPU answers no more
Case = tuple[str, Callable[..., Any], tuple[Any, ...]]


def cases(suites: tuple[str, ...]) -> Iterator[tuple[str, Case]]:
    """Each case with the name of its suite."""
    from tests.backends import triton_cases, triton_worker
    from tests.gpu import library_cases

    for suite in suites:
        if suite == "registry":
            found: Iterator[Case] = _samples(list(triton_worker.registry(0, 1)))
        elif suite == "libraries":
            found = library_cases.cases()
        elif suite == "random":
            found = map(_random, range(PROGRAMS))
        else:
            found = triton_cases.cases(suite)
        yield from ((suite, case) for case in found)


def _samples(all_cases: list[Case]) -> Iterator[Case]:
    """Some cases of each primitive, whose name is a case's first word."""
    for _, several in itertools.groupby(all_cases, lambda case: case[0].split()[0]):
        chosen = list(several)
        yield from chosen[:: max(1, len(chosen) // SAMPLES)]


def _random(seed: int) -> Case:
    import fuser.numpy as fnp
    from bench.random_programs import draw

    program = draw(seed)
    return f"random program {seed}", lambda *a: program.function(fnp, *a), program.arguments


def check(suite: str, case: Case) -> str:
    """What went wrong with a case, or nothing. A random program may lose digits, and choose by what it lost: it may be as far from float64 as
    the reference is."""
    from tests.backends import triton_worker

    error = (triton_worker.check_eager if suite == "eager" else triton_worker.check)(case)
    return "" if suite == "random" and error and _as_far(case) else error


def first_call(suite: str, function: Callable[..., Any], arrays: tuple[Any, ...], schedule: Any) -> None:
    """Call a case's program, of which nothing is checked."""
    import numpy as np

    import fuser
    from fuser.backends.triton import BACKEND
    from fuser.runtime.array import Array

    if suite != "eager":
        fuser.jit(function, schedule=schedule)(*arrays)
        return
    fuser.jit(lambda x: x + 1)(np.ones(3))
    function(*(Array(BACKEND.memory.place(array)) for array in arrays))


def _as_far(case: Case) -> bool:
    """Whether no result of a program is farther from that in float64 than a few times the reference's is."""
    import numpy as np

    import fuser
    from fuser import config
    from fuser.runtime.array import to_numpy

    _, function, arrays = case
    wide = tuple(a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays)
    run = lambda arguments: [
        to_numpy(x).astype(np.float64) for x in fuser.tree_util.tree_leaves(fuser.jit(function)(*arguments))
    ]
    found = run(arrays)
    with config.using(backend="reference"):
        reference, exact = run(arrays), run(wide)
    far = lambda x, y: float(np.abs(x - y).max(initial=0))
    return all(far(f, e) <= FARTHER * far(r, e) for f, r, e in zip(found, reference, exact, strict=True))


def work(number: int, processes: int, first: int, suites: tuple[str, ...]) -> int:
    """Every so manieth case from the `first` on: a line when it begins, and one when it is done."""
    import numpy as np

    import fuser
    from fuser import config

    warnings.simplefilter("ignore")
    with config.using(backend="triton", enable_x64=True):
        for place, (suite, case) in enumerate(cases(suites)):
            if place % processes != number or place < first:
                continue
            _say({"begin": place, "suite": suite, "case": case[0]})
            start = time.perf_counter()
            error = check(suite, case)
            _say(
                {"place": place, "suite": suite, "case": case[0], "error": error}
                | {"seconds": round(time.perf_counter() - start, 3)}
            )
            if error and "Error" in error:
                try:
                    np.asarray(fuser.jit(lambda x: x + 1)(np.ones(3, np.float32)))
                except Exception:
                    return DEAD
    return 0


def _say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


class Worker:
    """A process with its share of the cases, begun again behind a case that ends it."""

    def __init__(
        self, number: int, processes: int, suites: tuple[str, ...], lines: queue.Queue[tuple[Worker, str | None]]
    ) -> None:
        self.number, self.processes, self.suites, self.lines = number, processes, suites, lines
        self.begun: dict[str, Any] | None = None  # the row of a case that is not done
        self.done = -1  # the place of the last case that is
        self.start(0)

    def command(self, first: int) -> list[str]:
        """What does the cases from this place on."""
        words = [sys.executable, "-m", "tests.gpu.every_case", "--worker", f"{self.number},{self.processes},{first}"]
        return [*words, *self.suites]

    def start(self, first: int) -> None:
        """Begin with the case of this place or the next after it."""
        self.process = subprocess.Popen(
            self.command(first), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        self.words, self.begun, self.since = "", None, time.monotonic()
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        heard = threading.Thread(target=self._hear, args=(process,), daemon=True)
        heard.start()
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.put((self, line))
        process.wait()
        heard.join()
        self.lines.put((self, None))

    def _hear(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.words = (self.words + line)[-1500:]


def run(processes: int, seconds: float, longest: float, suites: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The rows of all processes; nothing begins after so many seconds."""
    lines: queue.Queue[tuple[Worker, str | None]] = queue.Queue()
    workers = [Worker(n, processes, suites, lines) for n in range(processes)]
    deadline, running = time.monotonic() + seconds, len(workers)
    while running:
        try:
            worker, line = lines.get(timeout=1)
        except queue.Empty:
            late = time.monotonic() > deadline
            for each in workers:
                if late or (each.begun and time.monotonic() - each.since > longest):
                    each.process.kill()
            continue
        if line is not None and line.startswith("{"):
            row = json.loads(line)
            worker.since = time.monotonic()
            worker.begun = row if "begin" in row else None
            if "begin" not in row:
                worker.done = row.pop("place")
                yield row
        if line is None:
            running -= 1
            if worker.process.returncode and time.monotonic() < deadline:
                lost = worker.begun or {"suite": "", "case": f"after case {worker.done}"}
                if worker.begun or worker.process.returncode != DEAD:
                    told = f"the process ended with {worker.process.returncode}: {worker.words}"
                    yield {"suite": lost["suite"], "case": lost["case"], "error": told, "seconds": None}
                if worker.done >= 0 or worker.begun:  # else it cannot even start
                    worker.start(lost.get("begin", worker.done) + 1)
                    running += 1
        if time.monotonic() > deadline:
            for each in workers:
                each.process.kill()


def main(arguments: list[str]) -> int:
    """Write the rows; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.every_case", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("suites", nargs="*", help=f"of {', '.join(SUITES)} (default: all)")
    parser.add_argument("--processes", type=int, default=max(1, min(14, (os.cpu_count() or 1) - 2)))
    parser.add_argument("--seconds", type=float, default=150, help="after which no more cases begin")
    parser.add_argument("--longest", type=float, default=60, help="seconds that a case may take")
    parser.add_argument("--rows", type=Path, help="a file to which each row is added as a line of JSON")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    suites = tuple(options.suites) or SUITES
    if options.worker:
        number, processes, first = map(int, options.worker.split(","))
        return work(number, processes, first, suites)
    from fuser.backends.triton import interpreter
    from fuser.runtime import device

    if not (device.has_cuda() or interpreter.active()):
        print("every_case: this machine has no GPU that fuser sees", file=sys.stderr)
        return 2
    count = wrong = 0
    for row in run(options.processes, options.seconds, options.longest, suites):
        count, wrong = count + 1, wrong + bool(row["error"])
        if row["error"]:
            print(json.dumps(row | {"error": row["error"][-600:]}), flush=True)
        if options.rows is not None:
            with options.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(json.dumps({"cases": count, "with an error": wrong}), flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
