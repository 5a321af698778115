"""`python -m bench.static --inductor`: fuser's kernels beside TorchInductor's for the functions of `bench.kernel_pairs`, modelled for sm_90.

Both are counted in the same way (`bench.inductor`): launches, bytes by the loads and stores in the text, and seconds, the longer of memory and issue
for each kernel and the launches. Exit status 1: more bytes than inductor somewhere, more launches without being faster, or a geometric mean of
times above `MOST`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import fuser
from bench.kernel_pairs import PAIRS
from fuser.backends.triton import machine_code
from fuser.backends.triton.matmul import extents
from fuser.backends.triton.product_cost import library_seconds
from fuser.backends.triton.target import MACHINES
from fuser.ir.primitive import Fusion

MOST = 0.8
ROUNDING = 1.01  # of bytes, for partial sums and masks


def ours(function: Any, types: Any) -> dict[str, Any]:
    """Launches, bytes and modelled seconds of fuser's program."""
    machine = MACHINES["cuda:90"]
    lowered = fuser.jit(function, backend="triton").lower(*types)
    sources = {source.name: source for source in lowered.sources}
    found: dict[str, Any] = {"launches": 0, "bytes": 0, "seconds": 0.0, "kernels": []}
    for group in lowered.plan.groups:
        if group.name in sources:
            report = machine_code.report(group, sources[group.name], machine)
            count, moved, seconds = len(report.launches), report.moved, report.seconds
        else:
            (dot,) = (eqn for eqn in group.graph.eqns if eqn.primitive.fusion is Fusion.DOT)
            count, moved, seconds = 1, group.ideal_bytes, library_seconds(extents(dot))
        found["kernels"].append({"name": group.name, "launches": count, "bytes": moved, "seconds": seconds})
        found["launches"] += count
        found["bytes"] += moved
        found["seconds"] += seconds
    return found


def theirs(words: list[str]) -> dict[str, Any]:
    """Inductor's, by a process of its own."""
    command = [sys.executable, "-m", "bench.inductor", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["name"]: row for row in rows}


def main(words: list[str], path: Path | None = None) -> int:
    """Print the table, and write it to a file where one is named; the exit status."""
    rows, failed = [], False
    print("function                              launches       MB moved        modelled us   ratio")
    inductor = theirs(words)
    for name, (function, _, types) in PAIRS.items():
        if not all(word in name for word in words):
            continue
        mine, other = ours(function, types), inductor.get(name, {"failure": "no answer"})
        rows.append({"name": name, "fuser": mine, "inductor": other})
        if "failure" in other:
            print(f"{name:36} inductor: {other['failure']}", flush=True)
            failed = True
            continue
        slower = mine["seconds"] > other["seconds"]
        worse = mine["bytes"] > ROUNDING * other["bytes"] or (mine["launches"] > other["launches"] and slower)
        failed |= worse
        print(
            f"{name:36} {mine['launches']:3} {other['launches']:5} {mine['bytes'] / 1e6:8.1f} {other['bytes'] / 1e6:8.1f}"
            f" {mine['seconds'] * 1e6:8.1f} {other['seconds'] * 1e6:8.1f} {mine['seconds'] / other['seconds']:8.2f}"
            + ("  worse" if worse else ""),
            flush=True,
        )
    ratios = [r["fuser"]["seconds"] / r["inductor"]["seconds"] for r in rows if "seconds" in r["inductor"]]
    mean = math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan
    print(f"geometric mean of {len(ratios)} functions: {mean:.2f} of inductor's modelled time (at most {MOST})")
    if path is not None:
        path.write_text(
            json.dumps({"machine": MACHINES["cuda:90"].name, "geometric_mean": mean, "rows": rows}, indent=1) + "\n"
        )
    return int(failed or not mean <= MOST)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the comparison takes."""
    parser.add_argument("--inductor", action="store_true", help="beside TorchInductor's kernels")
    parser.add_argument("--json", type=Path, help="where the comparison's rows are written")
