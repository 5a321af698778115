"""`python -m bench [workloads]`: measure fuser and its peers side by side, print tables, write JSON and plots.

The JSON document: schema (1), machine (cpu, cores, gpu, system, python, versions, commit, date), settings,
copy_bytes_per_s, unavailable {system: reason}, rows, means (of suites), startup, checks, seconds. A row: workload, size, dims, dtype,
device, system, bytes, flops, skipped or failure (a reason, else null), first_call_s, median_s, min_s, q1_s, q3_s,
samples_s, calls_per_sample, gb_per_s, gflop_per_s, error, tolerance, correct, result_dtype. Exit status 1: a result
was wrong or fuser failed; 2: a wrong argument, or no system can run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import sys
import time
from typing import Any

from rich.console import Console

from bench import compare, libraries, machine, measure, report, startup, systems, torch_suite, traps
from bench.corpus import run as run_corpus
from bench.workload import FLOATS, SIZES, Workload
from bench.workloads import SUITES, select

RESULTS = pathlib.Path(__file__).resolve().parent / "results"


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    suite = next((suite for flag, suite in itertools.pairwise(given) if flag == "--suite"), None)
    if suite in traps.SUITES:  # with options of their own
        return traps.main(given)
    if suite == "libraries":
        return libraries.main(given)
    if suite == "torch":
        return torch_suite.main(given)
    if suite == "corpus":
        return run_corpus.main(given)
    options = _parser().parse_args(given)
    console, progress = report.open_console(), Console(stderr=True)
    try:
        workloads = select(options.names, _split(options.suite))
        chosen = systems.select(_split(options.systems), options.gpu)
        sizes = _sizes(options)
    except ValueError as error:
        progress.print(f"error: {error}")
        return 2
    if options.list:
        print_list(workloads, list((systems.GPU if options.gpu else systems.CPU).values()), console)
        return 0
    older = _read(options.compare) if options.compare else None
    with systems.fresh_caches(), progress.status("starting") as status:
        reasons = {system.name: system.unavailable() for system in chosen}
        if all(reasons.values()):
            words = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            progress.print(f"error: none of the systems can run here ({words})")
            return 2
        document = run(workloads, sizes, chosen, options, lambda text: status.update(text))
    report.print_run(document, console)
    _write(document, options, console)
    if older is not None:
        _print_comparison(older, document, console)
    return _status(document, console)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure fuser and its peers side by side.")
    parser.add_argument("names", nargs="*", help="workloads, or parts of their names (default: all)")
    parser.add_argument(
        "--suite",
        default="",
        metavar="A,B",
        help=f"all workloads of {', '.join(SUITES)}; or {', '.join(traps.SUITES)}, libraries, torch or corpus",
    )
    parser.add_argument("--systems", default="", metavar="A,B", help='systems to run ("all" for every one)')
    parser.add_argument("--sizes", default="", metavar="A,B", help=f"of {', '.join(SIZES)} (default: full)")
    parser.add_argument("--rounds", type=int, help="timed samples of each system (default: 15)")
    parser.add_argument("--dtype", default="float32", choices=FLOATS)
    parser.add_argument("--json", metavar="PATH", help='where the results go (default: bench/results; "-" for nowhere)')
    parser.add_argument("--plot", metavar="FOLDER", type=pathlib.Path, help="draw PNG plots into a folder")
    parser.add_argument(
        "--compare", metavar="OLD.json", type=pathlib.Path, help="say FASTER, SLOWER or SAME against it"
    )
    parser.add_argument("--quick", action="store_true", help="small size, 5 rounds, no start-up figures")
    parser.add_argument("--gpu", action="store_true", help="the GPU adapters; sizes full and large")
    parser.add_argument("--budget", type=float, default=float("inf"), help="begin nothing after so many seconds")
    parser.add_argument("--no-startup", action="store_true", help="leave out import times and first calls")
    parser.add_argument("--list", action="store_true", help="list workloads and systems, and stop")
    return parser


def _split(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _sizes(options: argparse.Namespace) -> list[str]:
    """The sizes asked for; ValueError for an unknown one."""
    for size in (sizes := _split(options.sizes)):
        if size not in SIZES:
            raise ValueError(f"no size {size!r}; the sizes are {', '.join(SIZES)}")
    return sizes or (["small"] if options.quick else ["full", "large"] if options.gpu else ["full"])


def print_list(workloads: list[Workload], table: list[systems.System], console: Console) -> None:
    for workload in workloads:
        sizes = ", ".join(f"{size} {'×'.join(map(str, dims))}" for size, dims in workload.sizes.items())
        console.print(f"[bold]{workload.name}[/bold]: {workload.summary} ({sizes})", highlight=False, soft_wrap=True)
    for system in table:
        reason = system.unavailable()
        state = f"missing here: {reason}" if reason else "ready"
        console.print(f"[bold]{system.name}[/bold]: {system.summary}; {state}", highlight=False, soft_wrap=True)


def run(
    workloads: list[Workload], sizes: list[str], chosen: list[systems.System], options: Any, say: measure.Report
) -> dict[str, Any]:
    """Measure all cells (and the start-up figures) and return the document."""
    began = time.perf_counter()
    reasons = {system.name: system.unavailable() for system in chosen}
    ready = [system for system in chosen if reasons[system.name] is None]
    rounds = options.rounds or (5 if options.quick else 15)
    settings = measure.Settings(rounds, options.dtype, began + options.budget)
    say("copy bandwidth")
    on_gpu = options.gpu and any(system.device == "gpu" for system in ready)
    copy = machine.copy_bandwidth(on_gpu)
    rows = measure.measure(workloads, sizes, ready, settings, say)
    copy = max(copy, machine.copy_bandwidth(on_gpu))
    entries = [] if options.quick or options.no_startup else _startup(reasons, settings, say)
    return {
        "schema": 1,
        "machine": machine.describe(options.gpu),
        "settings": {"rounds": rounds, "dtype": options.dtype, "sizes": sizes, "gpu": options.gpu},
        "copy_bytes_per_s": copy,
        "unavailable": {name: reason for name, reason in reasons.items() if reason},
        "rows": rows,
        "startup": entries,
        "means": compare.means(rows, SUITES),
        "checks": [] if options.gpu or "full" not in sizes else compare.must_reach(rows),
        "seconds": time.perf_counter() - began,
    }


def _startup(reasons: dict[str, str | None], settings: measure.Settings, say: measure.Report) -> list[dict[str, Any]]:
    names = tuple(name for name in ("fuser", "jax") if name in reasons and reasons[name] is None)
    if settings.over():
        return []
    say("start-up")
    return startup.measure_startup(systems=names)


def _read(path: pathlib.Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def _unused(path: pathlib.Path) -> pathlib.Path:
    """The path, or one like it if there is such a file: runs of one minute keep their files apart."""
    others = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([path], others) if not each.exists())


def _write(document: dict[str, Any], options: argparse.Namespace, console: Console) -> None:
    """The JSON file and the plots."""
    if options.json != "-":
        date = document["machine"]["date"][:16].replace(":", "").replace("T", "-")
        name = f"{date}-{machine.slug(document['machine'])}.json"
        path = pathlib.Path(options.json or RESULTS)
        path = _unused(path / name) if path.is_dir() or not options.json else path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n")
        console.print(f"wrote {path}")
    if options.plot:
        for path in report.save_plots(document, options.plot):
            console.print(f"drew {path}")


def _print_comparison(older: dict[str, Any], document: dict[str, Any], console: Console) -> None:
    machines = [machine.slug(each["machine"]) for each in (older, document)]
    if machines[0] != machines[1]:
        console.print(f"the older run is from another machine: {machines[0]}, this one is {machines[1]}")
    entries = compare.compare(older["rows"], document["rows"])
    console.print(report.comparison_table(entries) if entries else "the two runs have no row in common")


def _status(document: dict[str, Any], console: Console) -> int:
    """1 if a result is wrong or fuser failed; a peer that failed is only reported."""
    status = 0
    for row in document["rows"]:
        where = f"{row['workload']} {row['size']} on {row['system']}"
        if row["failure"]:
            console.print(f"{where} failed: {row['failure']}", style="red")
            status = 1 if row["system"] in systems.OURS else status
        elif row.get("correct") is False:
            console.print(f"{where} is wrong: error {row['error']:.1e}, {row['result_dtype']}", style="red")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
