"""`python -m bench.calls`: what one call of a compiled function costs around its arithmetic, fuser beside its peers.

Each case is a tiny function on tiny arguments. All systems are measured in one process, in turns (every round visits
each of them, in a rotating order), so that a busy machine slows all alike. JAX's calls are waited for at the end of
a sample only, as it hands work to a thread of its own. Figures are medians of the rounds; `× JAX` is JAX's divided by
the system's. The last case is no call but the cost of the first one of a size beyond the second, under `jit(dynamic=)`. The JSON document: schema (1), machine, rounds, rows (case, system, median_s, min_s, q1_s, q3_s, samples_s,
calls_per_sample, first_call_s, or failure), targets. Exit status 1: a result was wrong, or fuser failed.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import pathlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import machine, report
from bench.timing import calls_per_sample, sample, take_turns

SAMPLE_SECONDS = 0.004
NEW_SIZES = "a new size of softmax"  # what it costs beyond a call of a size that was there before
TARGETS = {"one small array": 1.0e-6, "dict of 20 in and out": 6.0e-6, NEW_SIZES: 30e-6}  # seconds of fuser's call
SYSTEMS = ("fuser", "fuser in Python", "jax", "torch.compile", "numba")


@dataclass(frozen=True)
class Case:
    """`function` of what `arguments(make)` gives, where `make` turns an ndarray into the system's own array."""

    name: str
    function: Callable[..., Any]
    arguments: Callable[[Callable[[Any], Any]], tuple[tuple[Any, ...], dict[str, Any]]]
    static: tuple[int, ...] = ()
    systems: tuple[str, ...] = SYSTEMS


def _small() -> Any:
    return np.arange(8, dtype=np.float32)


def _dict(make: Any) -> dict[str, Any]:
    return {f"key{n}": make(_small() + n) for n in range(20)}


WITHOUT_NUMBA = ("fuser", "fuser in Python", "jax", "torch.compile")
WITH_TREES = ("fuser", "fuser in Python", "jax")
CASES = (
    Case("one small array", lambda x: x * 2 + 1, lambda make: ((make(_small()),), {})),
    Case("an ndarray of NumPy", lambda x: x * 2 + 1, lambda make: ((_small(),), {}), systems=(*WITH_TREES, "numba")),
    Case("a Python float", lambda x: x * 2 + 1, lambda make: ((1.5,), {}), systems=(*WITH_TREES, "numba")),
    Case("array, float and int", lambda x, a, n: x * a + n, lambda make: ((make(_small()), 1.5, 2), {})),
    Case("four arrays", lambda a, b, c, d: a + b + c + d, lambda make: (tuple(make(_small()) for _ in range(4)), {})),
    Case("two results", lambda x: (x * 2, x + 1), lambda make: ((make(_small()),), {})),
    Case(
        "keywords",
        lambda x, *, scale, shift: x * scale + shift,
        lambda make: ((make(_small()),), {"scale": 2.0, "shift": 1.0}),
        systems=WITHOUT_NUMBA,
    ),
    Case(
        "a static argument",
        lambda x, mode: x * 2 if mode == "double" else x,
        lambda make: ((make(_small()), "double"), {}),
        static=(1,),
        systems=WITH_TREES,
    ),
    Case(
        "nested tuples",
        lambda t: ((t[0][0] + 1, t[0][1]), (t[1], t[2][0][0] * 2)),
        lambda make: (((((make(_small()), make(_small())), make(_small()), ((make(_small()),),))),), {}),
        systems=WITHOUT_NUMBA,
    ),
    Case(
        "dict of 20 in and out",
        lambda d: {key: value + 1 for key, value in d.items()},
        lambda make: ((_dict(make),), {}),
        systems=WITHOUT_NUMBA,
    ),
    Case(
        "list of 1,000, one result",
        lambda xs: xs[0] + xs[-1],
        lambda make: (([make(_small()) for _ in range(1000)],), {}),
        systems=WITH_TREES,
    ),
)


@dataclass
class Entry:
    """One system in one case."""

    system: str
    call: Callable[[], Any]
    wait: Callable[[Any], Any]
    row: dict[str, Any]
    calls: int = 1
    samples: list[float] = field(default_factory=list)

    def turn(self) -> None:
        """Take a sample behind a call that is not timed."""
        self.call()
        self.samples.append(sample(self.call, self.calls, wait=self.wait))


def prepare(system: str, case: Case) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """A function without arguments that makes the call, and one that waits for its result."""
    if system == "torch.compile":
        import torch

        compiled = torch.compile(case.function, dynamic=False)
        args, kwargs = case.arguments(lambda x: torch.from_numpy(x.copy()))
        return _bound(torch.no_grad()(compiled), args, kwargs), lambda result: None
    if system == "numba":
        import numba

        args, kwargs = case.arguments(lambda x: x.copy())
        return _bound(numba.njit(case.function), args, kwargs), lambda result: None
    library = importlib.import_module("jax" if system == "jax" else "fuser")
    numpy = importlib.import_module(f"{library.__name__}.numpy")
    args, kwargs = case.arguments(numpy.asarray)
    jitted = library.jit(case.function, static_argnums=case.static or None)
    call = jitted._in_python if system == "fuser in Python" else jitted
    return _bound(call, args, kwargs), library.block_until_ready if system == "jax" else lambda result: None


def _bound(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
    """The call written out, since unpacking costs what is measured here."""
    names = [f"a{n}" for n in range(len(args))]
    words = ", ".join([*names, *(f"{name}={name}" for name in kwargs)])
    source = f"def make(call, {', '.join([*names, *kwargs])}):\n    return lambda: call({words})"
    space: dict[str, Any] = {}
    exec(source, space)
    return space["make"](call, *args, **kwargs)  # type: ignore[no-any-return]


def measure(case: Case, systems: list[str], rounds: int) -> list[dict[str, Any]]:
    """A row for each system that has a counterpart of the case."""
    entries, rows, wanted = [], [], None
    for system in systems:
        if system not in case.systems:
            continue
        row: dict[str, Any] = {"case": case.name, "system": system}
        rows.append(row)
        try:
            call, wait = prepare(system, case)
            start = time.perf_counter()
            result = call()
            wait(result)
            row["first_call_s"] = time.perf_counter() - start
            values = [np.asarray(leaf) for leaf in _leaves(result)]
            wanted = values if wanted is None else wanted
            row["correct"] = all(np.allclose(a, b) for a, b in zip(values, wanted, strict=True))
            entries.append(Entry(system, call, wait, row, calls_per_sample(call, SAMPLE_SECONDS, wait=wait)))
        except Exception as error:
            row["failure"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    _rounds(entries, rounds)
    return rows


def new_sizes(systems: list[str], sizes: int = 100) -> list[dict[str, Any]]:
    """What the first call of each of many sizes costs beyond the second, in processor time; JAX, which compiles for each, gets a few."""
    rows: list[dict[str, Any]] = []
    for system, count in (("fuser", sizes), ("jax", 5)):
        if system not in systems:
            continue
        library = importlib.import_module(system)
        options = {"dynamic": {"x": {0: "n"}}} if system == "fuser" else {}
        softmax = library.jit(library.nn.softmax, **options)
        start = time.perf_counter()
        library.block_until_ready([softmax(library.numpy.ones((n, 8))) for n in (200, 300)])
        row: dict[str, Any] = {"case": NEW_SIZES, "system": system, "first_call_s": time.perf_counter() - start}
        arrays = [library.numpy.ones((201 + n, 8)) for n in range(count)]
        results = [softmax(x) for x in arrays[:1]]
        gc.collect()
        first, again = ([_timed(softmax, x, library, results) for x in arrays[1:]] for _ in range(2))
        row["correct"] = all(np.allclose(np.asarray(result), 1 / 8) for result in results)
        spent = [one - two for one, two in zip(first, again)]
        low, middle, high = statistics.quantiles(spent, n=4, method="inclusive")
        row |= {"median_s": middle, "min_s": min(spent), "q1_s": low, "q3_s": high, "samples_s": spent}
        rows.append(row | {"calls_per_sample": 1})
    return rows


def _timed(function: Callable[[Any], Any], argument: Any, library: Any, results: list[Any]) -> float:
    start = time.thread_time()
    results.append(library.block_until_ready(function(argument)))
    return time.thread_time() - start


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in _leaves(tree[key])]
    return [leaf for part in tree for leaf in _leaves(part)] if isinstance(tree, (tuple, list)) else [tree]


def _rounds(entries: list[Entry], rounds: int) -> None:
    take_turns([entry.turn for entry in entries], rounds)
    for entry in entries:
        low, middle, high = statistics.quantiles(entry.samples, n=4, method="inclusive")
        entry.row |= {"median_s": middle, "min_s": min(entry.samples), "q1_s": low, "q3_s": high}
        entry.row |= {"samples_s": entry.samples, "calls_per_sample": entry.calls}


def table(rows: list[dict[str, Any]]) -> Table:
    """One line per case and system."""
    found = Table(title="one call", title_justify="left")
    for head in ("case", "system"):
        found.add_column(head, no_wrap=True)
    for head in ("median", "best", "× JAX", "best × JAX", "first call", "target"):
        found.add_column(head, justify="right", no_wrap=True)
    for case in dict.fromkeys(row["case"] for row in rows):
        found.add_section()
        group = [row for row in rows if row["case"] == case]
        jax = next((row for row in group if row["system"] == "jax" and "median_s" in row), None)
        for position, row in enumerate(group):
            found.add_row(case if position == 0 else "", row["system"], *_cells(row, jax))
    return found


def _cells(row: dict[str, Any], jax: dict[str, Any] | None) -> list[str]:
    if "failure" in row:
        return [row["failure"][:60], "", "", "", "", ""]
    target = TARGETS.get(row["case"]) if row["system"] == "fuser" else None
    verdict = "" if target is None else "PASS" if row["median_s"] <= target else "MISS"
    words = f"≤ {report.seconds(target)} {verdict}" if target is not None else "" if row["correct"] else "WRONG"
    figures = ("median_s", "min_s")
    ratios = [f"{jax[figure] / row[figure]:.2f}" if jax else "" for figure in figures]
    times = [report.seconds(row[figure]) for figure in figures]
    return [*times, *ratios, report.seconds(row["first_call_s"]), words]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description="What one call costs.")
    parser.add_argument("names", nargs="*", help="cases, or parts of their names (default: all)")
    parser.add_argument("--systems", default="fuser,jax,torch.compile,numba", help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=31, help="samples of each system in each case")
    parser.add_argument("--json", type=pathlib.Path, help="where the figures go")
    options = parser.parse_args(arguments)
    console = report.open_console()
    systems = [name for name in options.systems.split(",") if name == "fuser" or _installed(name)]
    rows: list[dict[str, Any]] = []
    with Console(stderr=True).status("starting") as status:
        for case in CASES:
            if not options.names or any(name in case.name for name in options.names):
                status.update(case.name)
                rows += measure(case, systems, options.rounds)
        if not options.names or any(name in NEW_SIZES for name in options.names):
            rows += new_sizes(systems)
    document = {"schema": 1, "machine": machine.describe(False), "rounds": options.rounds, "rows": rows}
    document["targets"] = TARGETS
    console.print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1))
    return int(any(not row.get("correct", row["system"] != "fuser") for row in rows))


def _installed(system: str) -> bool:
    try:
        importlib.import_module(system.partition(".")[0].partition(" ")[0])
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
