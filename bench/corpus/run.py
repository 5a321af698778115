"""`python -m bench --suite corpus [names]`: ordinary NumPy functions, accelerated as they are, beside NumPy, numba and numexpr.

Every call is timed alone, systems in turns, in an order drawn anew each round, on arguments restored before it. Results, dtypes, shapes and the caller's arguments
after a first and a third call must be NumPy's. Exit status 1: a function was wrong or raised. With --one-core all run on one core,
and processor time counts, compilers' among it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import report as bench_report
from bench.corpus import FIELDS
from bench.corpus.case import Case
from bench.corpus.check import copied, difference, restore
from bench.systems import fresh_caches
from bench.timing import CLOCKS, take_turns

ONE_CORE = {"FUSER_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "1"}
FLOOR = 0.87  # of NumPy's speed
WARM_CALLS = 8
MOST_WARM_CALLS = 100  # of fuser, until it has chosen between its program and NumPy
ROUND_SECONDS = 0.15  # of a system's calls


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(given)
    if options.one_core and os.environ.get("FUSER_THREADS") != "1":  # libraries read it when they are imported
        os.execve(sys.executable, [sys.executable, "-m", "bench", *given], os.environ | ONE_CORE)
    if options.one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    chosen = [
        (field, case)
        for field, cases in FIELDS.items()
        for case in cases
        if not options.names or any(name in (field, case.name) for name in options.names)
    ]
    if not chosen:
        print(f"error: no field or function is named {options.names}", file=sys.stderr)
        return 2
    rows = []
    with fresh_caches(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _start_compilers(options)
        for field, case in chosen:
            rows.append({"field": field} | measure(case, options))
            print(_words(rows[-1]), file=sys.stderr, flush=True)
    bench_report.save("corpus", options.json, {"seed": options.seed, "one_core": options.one_core, "rows": rows})
    return report(rows, Console())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench --suite corpus", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="functions or fields (default: all)")
    parser.add_argument("--suite", choices=["corpus"])
    parser.add_argument("--rounds", type=int, default=15, help="the most timed calls of each system, at least 3 run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-peers", action="store_true", help="NumPy and fuser alone")
    parser.add_argument("--one-core", action="store_true", help="one core, and processor time")
    parser.add_argument("--json", metavar="PATH", help='where the results go (default: bench/results; "-" for nowhere)')
    return parser


def _start_compilers(options: Any) -> None:
    """What a process pays once is no part of any function's first call."""
    import fuser

    fuser.accelerate(lambda x: x + 1)(np.ones(3))
    if not options.no_peers:
        import numba

        numba.njit(lambda x: x + 1)(np.ones(3))


def measure(case: Case, options: Any) -> dict[str, Any]:
    """A function's row: seconds of a first and of a warm call of each system, or in what it failed."""
    import fuser

    clock = CLOCKS["processor" if options.one_core else "wall"]
    pristine = case.make(np.random.default_rng(options.seed), case.size)
    row: dict[str, Any] = {"name": case.name, "numexpr": bool(case.numexpr)}
    systems: dict[str, Callable[..., Any]] = {"numpy": case.function, "fuser": fuser.accelerate(case.function)}
    if not options.no_peers:
        systems |= _peers(case)
    wanted: Any = None
    ready: dict[str, Any] = {}
    for name, function in systems.items():
        given = copied(pristine)
        try:
            start = clock()
            result = function(*given)
            row[f"{name}_first_s"] = clock() - start
            wanted = (result, given) if wanted is None else wanted
            words = _compared(name, (result, given), wanted)
            for _ in range(2):
                restore(given, pristine)
                result = function(*given)
            row[f"{name}_failure"] = words or _compared(name, (result, given), wanted)
        except Exception as error:
            first = str(error).partition("\n")[0]  # the other lines name files of this machine
            row[f"{name}_failure"] = f"{type(error).__name__}: {first}"[:300]
        if not row[f"{name}_failure"]:
            ready[name] = (function, given)
    return row | _timed(ready, pristine, options)


def _peers(case: Case) -> dict[str, Callable[..., Any]]:
    import numba

    peers: dict[str, Callable[..., Any]] = {"numba": numba.njit(case.function)}
    if case.numexpr:
        import numexpr

        names = case.function.__code__.co_varnames
        peers["numexpr"] = lambda *args: numexpr.evaluate(case.numexpr, dict(zip(names, args)))
    return peers


def _compared(system: str, found: Any, wanted: Any) -> str | None:
    ours = system == "fuser"
    (result, given), (wanted_result, wanted_given) = found, wanted
    return difference(result, wanted_result, types=ours) or difference(given, wanted_given, "arguments", types=ours)


def _timed(ready: dict[str, Any], pristine: Any, options: Any) -> dict[str, Any]:
    """The median seconds of a warm call of each system."""
    clock = CLOCKS["processor" if options.one_core else "wall"]

    def call(name: str) -> float:
        function, given = ready[name]
        restore(given, pristine)
        start = clock()
        function(*given)
        return clock() - start

    for name, (function, _) in ready.items():
        least = WARM_CALLS if name == "fuser" else 1
        for turn in range(MOST_WARM_CALLS):
            if turn >= least and not getattr(function, "measuring", False):
                break
            call(name)
    slowest = max(call(name) for name in ready)
    rounds = max(3, min(options.rounds * (10 if slowest < 1e-3 else 1), int(ROUND_SECONDS / slowest)))
    samples: dict[str, list[float]] = {name: [] for name in ready}
    take_turns([lambda name=name: samples[name].append(call(name)) for name in ready], rounds)  # type: ignore[misc]
    return {f"{name}_s": statistics.median(times) for name, times in samples.items()}


def _words(row: dict[str, Any]) -> str:
    parts = [row["name"]]
    for name in ("numpy", "fuser", "numba", "numexpr"):
        if row.get(f"{name}_failure") and name == "fuser":
            parts.append(f"{name}: {row[f'{name}_failure']}")
        elif f"{name}_s" in row:
            parts.append(f"{name} {row[f'{name}_s'] * 1e3:.3f} ms, first {row[f'{name}_first_s']:.2f} s")
    return " | ".join(parts)


def ratios(rows: list[dict[str, Any]], peer: str, what: str = "s") -> dict[str, float]:
    """Time of a peer ÷ time of fuser by function, where both ran."""
    keys = (f"{peer}_{what}", f"fuser_{what}")
    return {row["name"]: row[keys[0]] / row[keys[1]] for row in rows if f"{peer}_s" in row and "fuser_s" in row}


def report(rows: list[dict[str, Any]], console: Console) -> int:
    """Print geometric means, what is below the floor and what failed; the exit status."""
    table = Table(title="time of the peer ÷ time of fuser, geometric means")
    for head in ("field", "NumPy", "numba", "numexpr", "first call, numba", "functions", "failed"):
        table.add_column(head, justify="left" if head == "field" else "right")
    for field in [*dict.fromkeys(row["field"] for row in rows), "all"]:
        own = [row for row in rows if field in (row["field"], "all")]
        found = [ratios(own, "numpy"), ratios(own, "numba"), ratios(own, "numexpr"), ratios(own, "numba", "first_s")]
        means = [f"{statistics.geometric_mean(each.values()):.2f}" if each else "" for each in found]
        table.add_row(field, *means, str(len(own)), str(sum(bool(row["fuser_failure"]) for row in own)))
    console.print(table)
    for name, ratio in sorted(ratios(rows, "numpy").items(), key=lambda item: item[1]):
        if ratio < FLOOR:
            console.print(f"slower than NumPy: {name} {ratio:.2f}", highlight=False)
    failed = [row for row in rows if row["fuser_failure"] or row["numpy_failure"]]
    for row in failed:
        console.print(f"failed: {row['name']}: {row['fuser_failure'] or row['numpy_failure']}", highlight=False)
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
