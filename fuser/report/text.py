"""The report as text: the summary in words, then tables of kernels, stages and refused merges (rich).

In: a profile. Out: a string, or a renderable for a rich console that someone else owns.
"""

from __future__ import annotations

import io
import re

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fuser.report.data import KernelProfile, ProgramProfile
from fuser.report.summary import summary
from fuser.report.units import bandwidth, compiled, count, flops, intensity, percent, seconds, size, tally

# a figure of a kernel, and the width of the report from which there is room for it
FIGURES = {
    "median": 0, "min": 88, "estimated": 106, "must move": 100, "moved": 0, "rate": 0, "of copy": 0, "FLOP": 110, "FLOP/B": 140, "compile": 116,
    "on chip": 0,
}  # fmt: skip
TIMES = frozenset(
    ("median", "min", "estimated", "rate", "of copy", "compile")
)  # which a report of the plan alone has not
SHOWN = 20  # refused merges and kernels' operations beyond this many are counted, not listed


def text(profile: ProgramProfile, width: int = 120, colour: bool = False) -> str:
    """The whole report in at most `width` columns."""
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colour, no_color=not colour, highlight=False, emoji=False
    )
    console.print(render(profile, width))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def render(profile: ProgramProfile, width: int = 120) -> RenderableType:
    """The report as one rich renderable for a console of `width` columns."""
    parts: list[RenderableType] = [Text(f"{profile.name}: profile", style="bold"), Text("")]
    parts += [words_table(profile), Text(""), kernel_table(profile, width)]
    if profile.kernels:
        parts += [Text(""), lines_table(profile)]
    if profile.refused:
        parts += [Text(""), refusal_table(profile)]
    parts += [Text(""), stage_table(profile)]
    if profile.notes:
        parts += [Text(""), *(Padding(Text(f"Note: {note}"), (0, 0, 0, 1)) for note in profile.notes)]
    return Group(*parts)


def words_table(profile: ProgramProfile) -> Table:
    """The summary: a heading beside its sentences."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, sentence in summary(profile):
        table.add_row(Text(f" {heading}"), _inline(sentence))
    return table


def kernel_table(profile: ProgramProfile, width: int = 120) -> Table:
    """One row per kernel, in the order of running: time, bytes, bandwidth, FLOP, compile time and on-chip memory."""
    table = _table("Kernels, in the order in which they run")
    table.add_column("#", justify="right")
    table.add_column("kernel", overflow="fold", min_width=12)
    table.add_column("kind", no_wrap=True)
    absent = set() if profile.timed else TIMES
    absent = absent if any(kernel.vmem for kernel in profile.kernels) else absent | {"on chip"}
    shown = [heading for heading, least in FIGURES.items() if width >= least and heading not in absent]
    for heading in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for index, kernel in enumerate(profile.kernels):
        figures = _figures(kernel, profile)
        table.add_row(str(index), Text(kernel.name), Text(kernel.kind), *(figures[heading] for heading in shown))
    return table


def _figures(kernel: KernelProfile, profile: ProgramProfile) -> dict[str, str]:
    machine = profile.machine
    return {
        "median": seconds(kernel.median_seconds),
        "min": seconds(kernel.min_seconds),
        "estimated": seconds(kernel.estimated_seconds) if kernel.estimated_seconds else "–",
        "must move": size(kernel.bytes_ideal),
        "moved": size(kernel.bytes_moved),
        "rate": bandwidth(kernel.achieved_bandwidth),
        "of copy": percent(kernel.fraction_of_bandwidth(machine)) if machine.copy_bandwidth > 0 else "–",
        "FLOP": flops(kernel.flops).removesuffix("FLOP").rstrip(),
        "FLOP/B": intensity(kernel.arithmetic_intensity).removesuffix(" FLOP/B"),
        "compile": compiled(kernel.generated, kernel.cache_hit, kernel.compile_seconds),
        "on chip": size(kernel.vmem) if kernel.vmem else "–",
    }


def lines_table(profile: ProgramProfile) -> Table:
    """What each kernel fuses, and from which lines of the user's program."""
    table = _table("What each kernel does")
    table.add_column("#", justify="right")
    table.add_column("operations", overflow="fold", ratio=1)
    table.add_column("your lines", overflow="fold", ratio=1)
    for index, kernel in enumerate(profile.kernels):
        names = tally(kernel.ops)
        more = f" and {count(len(names) - SHOWN, 'more operation')}" if len(names) > SHOWN else ""
        where = "\n".join(f"{line.where}  {line.text.strip()}".rstrip() for line in kernel.lines)
        table.add_row(str(index), Text(", ".join(names[:SHOWN]) + more), Text(where))
    return table


def refusal_table(profile: ProgramProfile) -> Table:
    """Every merge that was refused, up to `SHOWN`, with its reason."""
    table = _table("Not fused")
    table.add_column("first", overflow="fold")
    table.add_column("second", overflow="fold")
    table.add_column("because", overflow="fold", ratio=1)
    for refusal in profile.refused[:SHOWN]:
        table.add_row(Text(refusal.first), Text(refusal.second), Text(refusal.reason))
    if len(profile.refused) > SHOWN:
        table.caption = f"and {len(profile.refused) - SHOWN} more, all in the JSON and HTML forms"
    return table


def stage_table(profile: ProgramProfile) -> Table:
    """The stages of compiling with their times and shares."""
    table = _table(f"Compiling, {seconds(profile.compile_seconds)} in all")
    table.add_column("stage")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    for stage in profile.stages:
        share = stage.seconds / profile.compile_seconds if profile.compile_seconds > 0 else 0.0
        table.add_row(Text(stage.name), seconds(stage.seconds), percent(share))
    return table


def _table(title: str) -> Table:
    return Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=None,
        header_style="dim",
        pad_edge=True,
        padding=(0, 1),
    )


def _inline(sentence: str) -> Text:
    """A sentence with what stands in `backticks` in bold."""
    pieces = re.split(r"`([^`]*)`", sentence)
    return Text.assemble(*((piece, "bold" if index % 2 else "") for index, piece in enumerate(pieces)))
