"""`python -m bench.collectives`: collectives and communicated bytes of compiled programs, fuser's and XLA's, on 8 CPU devices.

Bytes are what each device sends by the usual algorithms (fuser.parallel.traffic), for both systems by one formula; XLA's
collectives are read from the text of its compiled program. Exit status 1: a program needs more of either than XLA's.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import sys
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.sharded_programs import PROGRAMS

DEVICES = 8
_WIDTHS = {"f64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "s8": 1, "u8": 1, "pred": 1, "s64": 8, "u64": 8}
_OPERATION = re.compile(
    r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?\((.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class Traffic:
    """Collectives of a program, and the bytes that one device sends."""

    collectives: int
    sent_bytes: float


def own(function: Any, args: tuple[Any, ...]) -> Traffic:
    """What fuser's program of one device sends."""
    from fuser.parallel.traffic import messages

    lowered = function.lower(*args)
    found = list(messages(lowered.graph, dict(lowered.spread.mesh.shape)))
    return Traffic(sum(m.times for m in found), sum(m.sent_bytes * m.times for m in found))


def of_xla(text: str, devices: int = DEVICES) -> Traffic:
    """What XLA's compiled program sends. No loop of these programs holds a collective."""
    count, sent = 0, 0.0
    for shapes, name, started, rest in _OPERATION.findall(text):
        count += 1
        results = _bytes(shapes) / (2 if started and name in ("all-gather", "collective-permute") else 1)
        p = _members(rest, devices)
        factor = {
            "all-reduce": 2 * (p - 1) / p,
            "all-gather": (p - 1) / p,  # of the result
            "reduce-scatter": p - 1,
            "all-to-all": (p - 1) / p,
            "collective-permute": 1,
        }[name]
        sent += results * factor
    return Traffic(count, sent)


def _bytes(shapes: str) -> int:
    total = 0
    for dtype, extents in re.findall(r"(\w+)\[([\d,]*)\]", shapes):
        size = _WIDTHS[dtype]
        for extent in filter(None, extents.split(",")):
            size *= int(extent)
        total += size
    return total


def _members(rest: str, devices: int) -> int:
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", rest)
    if listed:
        return len(listed[1].split(","))
    tiled = re.search(r"replica_groups=\[\d+,(\d+)\]", rest)
    return int(tiled[1]) if tiled else devices


def compare(name: str) -> tuple[Traffic, Traffic]:
    """fuser's and XLA's traffic for one program."""
    import jax

    import fuser

    function, args = PROGRAMS[name](jax, DEVICES)
    theirs = of_xla(function.lower(*args).compile().as_text())
    return own(*PROGRAMS[name](fuser, DEVICES)), theirs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    import jax

    import fuser

    jax.config.update("jax_num_cpu_devices", DEVICES)
    fuser.config.update("num_cpu_devices", DEVICES)
    found = {name: compare(name) for name in options.programs}
    table = Table("program", "collectives", "XLA's", "bytes a device sends", "XLA's", "×")
    for name, (mine, theirs) in found.items():
        ratio = mine.sent_bytes / theirs.sent_bytes if theirs.sent_bytes else float("nan")
        counts = (str(mine.collectives), str(theirs.collectives))
        table.add_row(name, *counts, f"{mine.sent_bytes:,.0f}", f"{theirs.sent_bytes:,.0f}", f"{ratio:.2f}")
    Console().print(table)
    if options.json:
        rows = {name: {"fuser": asdict(a), "xla": asdict(b)} for name, (a, b) in found.items()}
        options.json.write_text(json.dumps({"schema": 1, "devices": DEVICES, "programs": rows}, indent=1))
    more = [n for n, (a, b) in found.items() if a.collectives > b.collectives or a.sent_bytes > b.sent_bytes]
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
