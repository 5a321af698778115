"""Tables and plots of a run: a rich table per size, the targets, start-up figures, a comparison, and matplotlib bars."""

from __future__ import annotations

import datetime
import json
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench import machine

Row = dict[str, Any]
RESULTS = pathlib.Path(__file__).resolve().parent / "results"
COLOURS = {"PASS": "green", "FASTER": "green", "MISS": "red", "SLOWER": "red", "SAME": "dim", "NOT MEASURED": "yellow"}


def open_console() -> Console:
    """A console for the tables; 150 columns wide where the output is a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=150)


def save(suite: str, path: str | pathlib.Path | None, facts: dict[str, Any], gpu: bool = False) -> pathlib.Path | None:
    """Write a run's facts beside the machine's description, as JSON: to `path`, else bench/results/DATE-SUITE.json; "-" is nowhere."""
    if str(path) == "-":
        return None
    target = pathlib.Path(path or RESULTS / f"{datetime.datetime.now():%Y-%m-%d-%H%M}-{suite}.json")
    target.write_text(json.dumps({"machine": machine.describe(gpu), **facts}, indent=1) + "\n")
    return target


def seconds(value: float) -> str:
    """A time with three digits and its unit: "4.52 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * scale >= 1.0:
            return f"{value * scale:.3g} {unit}" if value * scale < 1000 else f"{value * scale:.0f} {unit}"
    return f"{value * 1e9:.3g} ns"


def size_name(rows: Sequence[Row], size: str) -> str:
    """ "full (float32, cpu)"."""
    return f"{size} ({rows[0]['dtype']}, {rows[0]['device']})"


def print_run(document: dict[str, Any], console: Console) -> None:
    """Everything that a run's document holds."""
    print_machine(document, console)
    for size in dict.fromkeys(row["size"] for row in document["rows"]):
        rows = [row for row in document["rows"] if row["size"] == size]
        console.print(size_table(rows, size, document["copy_bytes_per_s"]))
    _print_absent(document, console)
    if document["means"]:
        console.print(means_table(document["means"]))
    if document["startup"]:
        console.print(startup_table(document["startup"]))
    if document["checks"]:
        console.print(checks_table(document["checks"]))


def print_machine(document: dict[str, Any], console: Console) -> None:
    machine = document["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    name = machine["gpu"] or machine["cpu"]
    console.print(f"{name}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}")
    console.print(f"{versions}; commit {machine['commit']}; {machine['date']}")
    console.print(f"copy bandwidth {document['copy_bytes_per_s'] / 1e9:.1f} GB/s (read and written, warm buffers)")


def size_table(rows: list[Row], size: str, copy: float) -> Table:
    """One line per workload and system; the fastest right one is bold, a wrong one red."""
    table = Table(title=f"size {size_name(rows, size)}", title_justify="left")
    heads = ("median", "best", "spread", "× JAX", "GB/s", "% copy", "GFLOP/s", "first call", "error", "allowed")
    table.add_column("workload", no_wrap=True)
    table.add_column("system", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for workload in dict.fromkeys(row["workload"] for row in rows):
        table.add_section()
        group = [row for row in rows if row["workload"] == workload and not row["skipped"]]
        timed = [row for row in group if "median_s" in row]
        jax = next((row["median_s"] for row in timed if row["system"] == "jax"), None)
        fastest = min((row["median_s"] for row in timed if row["correct"]), default=None)
        for position, row in enumerate(group):
            dims = "×".join(str(extent) for extent in row["dims"])
            label = workload if position == 0 else dims if position == 1 else ""
            table.add_row(label, row["system"], *_cells(row, jax, copy), style=_style(row, fastest))
    return table


def _cells(row: Row, jax: float | None, copy: float) -> list[Any]:
    if "median_s" not in row:
        return ["failed"]
    median = row["median_s"]
    return [
        seconds(median),
        seconds(row["min_s"]),
        f"{(row['q3_s'] - row['q1_s']) / median:.0%}",
        f"{jax / median:.2f}" if jax else "",
        f"{row['gb_per_s']:.1f}",
        f"{row['bytes'] / median / copy:.0%}",
        f"{row['gflop_per_s']:.1f}",
        seconds(row["first_call_s"]),
        f"{row['error']:.1e}" + ("" if row["correct"] else f" WRONG ({row['result_dtype']})"),
        f"{row['tolerance']:.0e}",
    ]


def _style(row: Row, fastest: float | None) -> str:
    if row["failure"] or not row["correct"]:
        return "red"
    return "bold" if row["median_s"] == fastest else ""


def _print_absent(document: dict[str, Any], console: Console) -> None:
    """In words: the systems that are missing here, and what the others sat out."""
    for system, reason in document["unavailable"].items():
        console.print(f"{system} took no part: {reason}")
    refused: dict[tuple[str, str], list[str]] = {}
    for row in document["rows"]:
        if row["skipped"]:
            refused.setdefault((row["system"], row["skipped"]), []).append(row["workload"])
    for (system, reason), workloads in refused.items():
        console.print(f"{system} sat out {', '.join(dict.fromkeys(workloads))}: {reason}", style="dim")


def checks_table(checks: list[Row]) -> Table:
    """The targets against JAX."""

    def ratio(value: float | None) -> str:
        return "" if value is None else f"{value:.2f}×"

    heads = ("workload (full size)", "must reach × JAX", "median", "best", "")
    lines = ((c["workload"], ratio(c["required"]), ratio(c["ratio"]), ratio(c["best_ratio"])) for c in checks)
    return _verdict_table("what fuser must reach", heads, lines, [check["verdict"] for check in checks])


def means_table(entries: list[Row]) -> Table:
    """How many times faster fuser is than each peer over the workloads of a suite."""
    table = Table(title="fuser against each peer, geometric means of the ratios", title_justify="left")
    for head in ("suite", "size", "peer", "workloads", "median", "best", "lowest", "where"):
        table.add_column(head)
    for e in entries:
        figures = (f"{e[key]:.2f}×" for key in ("mean", "best_mean", "lowest"))
        table.add_row(e["suite"], e["size"], e["peer"], str(e["count"]), *figures, e["where"])
    return table


def startup_table(entries: list[Row]) -> Table:
    def figure(value: float | None, unit: str) -> str:
        return "" if value is None else seconds(value) if unit == "s" else f"{value} {unit}"

    heads = ("start-up", "system", "measured", "at most", "")
    lines = (
        (e["what"], e["system"], e["failure"] or figure(e["value"], e["unit"]), figure(e["limit"], e["unit"]))
        for e in entries
    )
    return _verdict_table("before the first result", heads, lines, [entry["verdict"] or "" for entry in entries])


def comparison_table(entries: list[Row]) -> Table:
    heads = ("workload", "size", "system", "old", "new", "old / new", "noise", "")
    lines = (
        (
            *(e["workload"], e["size"], e["system"], seconds(e["old_s"]), seconds(e["new_s"])),
            *(f"{e['ratio']:.2f}×", f"±{e['noise']:.0%}"),
        )
        for e in entries
    )
    return _verdict_table("against the older run", heads, lines, [entry["verdict"] for entry in entries])


def _verdict_table(title: str, heads: Sequence[str], lines: Iterable[Sequence[str]], verdicts: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head)
    for line, verdict in zip(lines, verdicts, strict=True):
        table.add_row(*line, Text(verdict, style=COLOURS.get(verdict, "")))
    return table


def save_plots(document: dict[str, Any], folder: pathlib.Path) -> list[pathlib.Path]:
    """Two PNG files per size: speed relative to JAX (or to the first system), and % of the copy bandwidth."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for size in dict.fromkeys(row["size"] for row in document["rows"]):
        rows = [row for row in document["rows"] if row["size"] == size and "median_s" in row]
        if rows:
            written.append(_speed_plot(rows, size, folder))
            written.append(_bandwidth_plot(rows, size, document["copy_bytes_per_s"], folder))
    return written


def _speed_plot(rows: list[Row], size: str, folder: pathlib.Path) -> pathlib.Path:
    base = "jax" if any(row["system"] == "jax" for row in rows) else rows[0]["system"]
    medians = {row["workload"]: row["median_s"] for row in rows if row["system"] == base}
    path = folder / f"speed-{size}.png"
    title = f"Speed relative to {base}, size {size_name(rows, size)}: higher is faster"
    _bars(rows, lambda row: medians.get(row["workload"], float("nan")) / row["median_s"], 1.0, title, True, path)
    return path


def _bandwidth_plot(rows: list[Row], size: str, copy: float, folder: pathlib.Path) -> pathlib.Path:
    path = folder / f"bandwidth-{size}.png"
    title = f"Bytes that must move per second, % of the copy bandwidth ({copy / 1e9:.0f} GB/s), size {size_name(rows, size)}"
    _bars(rows, lambda row: 100.0 * row["bytes"] / row["median_s"] / copy, 100.0, title, False, path)
    return path


def _bars(
    rows: list[Row], value: Callable[[Row], float], line: float, title: str, logarithmic: bool, path: pathlib.Path
) -> None:
    """Grouped bars, one group per workload, one colour per system; a dashed line at `line`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    figure = Figure(figsize=(max(7.0, 1.1 * len(workloads) + 2.5), 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    width = 0.84 / len(systems)
    for index, system in enumerate(systems):
        mine = {row["workload"]: row for row in rows if row["system"] == system}
        places = [workloads.index(name) + (index - (len(systems) - 1) / 2) * width for name in mine]
        axes.bar(places, [value(row) for row in mine.values()], width, label=system)
    axes.axhline(line, color="black", linewidth=0.8, linestyle="--")
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda tick, position: f"{tick:g}×")
    axes.set_xticks(range(len(workloads)), workloads, rotation=30, ha="right")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, ncols=min(4, len(systems)))
    figure.savefig(path, dpi=130)
