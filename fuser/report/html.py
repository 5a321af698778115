"""The report as one self-contained HTML page: it works offline, loads nothing and needs no script to be read.

In: a profile. Out: text. `page.css` and `page.js` beside this file are written into the page; a content security
policy in its head forbids every request.
"""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Callable, Iterable

from fuser.report.data import ProgramProfile
from fuser.report.graph_picture import caption, graph_picture
from fuser.report.kernel_rows import kernel_table
from fuser.report.markup import Markup, inline, join, tag
from fuser.report.roofline import KINDS, kind_class, roofline
from fuser.report.summary import summary
from fuser.report.units import bandwidth, count, flop_rate, percent, seconds, size

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
SECTIONS = (
    ("summary", "Summary"),
    ("kernels", "Kernels"),
    ("roofline", "Roofline"),
    ("timeline", "Timeline"),
    ("graph", "Graph"),
    ("refused", "Not fused"),
    ("machine", "Machine"),
)
TIMED = ("roofline", "timeline")  # sections that a report of the plan alone has not


def page(profile: ProgramProfile) -> str:
    """The whole page."""
    contents: dict[str, Callable[[ProgramProfile], tuple[Markup, ...]]] = {
        "summary": lambda p: (_summary(p),),
        "kernels": _kernels,
        "roofline": _roofline,
        "timeline": _timelines,
        "graph": _graph,
        "refused": lambda p: (_refused(p),),
        "machine": lambda p: (_machine(p),),
    }
    sections = (_section(name, title, *contents[name](profile)) for name, title in _shown(profile))
    body = tag(
        "body", _header(profile), tag("main", _tiles(profile), *sections), tag("script", Markup(_asset("page.js")))
    )
    return "<!doctype html>\n" + tag("html", _head(profile), body, lang="en")


def _shown(profile: ProgramProfile) -> tuple[tuple[str, str], ...]:
    """Names and titles of the sections that have contents."""
    return tuple(section for section in SECTIONS if profile.timed or section[0] not in TIMED)


def notebook(profile: ProgramProfile) -> str:
    """The page in a frame of its own, so that its styles stay out of the notebook's."""
    return tag(
        "iframe", srcdoc=page(profile), style="width:100%;height:42rem;border:0", title=f"Profile of {profile.name}"
    )


@functools.cache
def _asset(name: str) -> str:
    return importlib.resources.files("fuser.report").joinpath(name).read_text(encoding="utf-8")


def _head(profile: ProgramProfile) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{profile.name}: fuser profile"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Markup(_asset("page.css"))),
        tag("noscript", tag("style", ".detail[hidden]{display:table-row}.scripted{display:none}")),
    )


def _header(profile: ProgramProfile) -> Markup:
    machine = profile.machine
    facts = [machine.name, count(machine.cores, "core") if machine.cores else "", f"{machine.backend} backend"]
    words = tag("div", tag("p", "fuser profile", class_="eyebrow"), tag("h1", profile.name), _dotted(facts))
    button = tag(
        "button", "Dark", type="button", id="theme", class_="scripted", aria_label="Switch between light and dark"
    )
    links = (tag("a", title, href=f"#{name}") for name, title in _shown(profile))
    top = tag("div", words, button, class_="top")
    return tag("header", top, tag("nav", *links, aria_label="Sections"))


def _dotted(facts: Iterable[str]) -> Markup:
    return tag("p", " · ".join(fact for fact in facts if fact), class_="facts-line")


def _section(name: str, title: str, *children: Markup) -> Markup:
    return tag("section", tag("h2", title, id=f"{name}-title"), *children, id=name, aria_labelledby=f"{name}-title")


def _tiles(profile: ProgramProfile) -> Markup:
    """The handful of figures that a reader looks for first."""
    measured = profile.machine.copy_bandwidth > 0
    ratio = profile.planned_bytes / profile.ideal_bytes if profile.ideal_bytes else 1.0
    times = (
        ("Time per call", seconds(profile.median_seconds), f"best {seconds(profile.min_seconds)}"),
        (
            "Of copy bandwidth",
            percent(profile.fraction_of_bandwidth) if measured else "–",
            bandwidth(profile.achieved_bandwidth),
        ),
    )
    chip = (("On-chip memory", size(max((k.vmem for k in profile.kernels), default=0)), "the most of one kernel"),)
    tiles = (
        *(times if profile.timed else ()),
        ("Kernels", str(len(profile.kernels)), f"from {count(profile.operations, 'operation')}"),
        (
            "Memory moved",
            size(profile.planned_bytes),
            "the least possible" if ratio <= 1 else f"{ratio:.2f}× the least",
        ),
        ("Peak memory", size(profile.peak_bytes), "held at a time"),
        *(chip if any(kernel.vmem for kernel in profile.kernels) else ()),
        *(() if profile.timed else (("Not fused", str(len(profile.refused)), "refused merges"),)),
        ("Compiling" if profile.timed else "Planning", seconds(profile.compile_seconds), "once, at the first call"),
    )
    return tag("dl", *(_tile(*tile) for tile in tiles), class_="tiles")


def _tile(name: str, value: str, below: str) -> Markup:
    return tag("div", tag("dt", name), tag("dd", value, class_="value"), tag("dd", below, class_="below"))


def _summary(profile: ProgramProfile) -> Markup:
    return tag(
        "dl",
        *(tag("div", tag("dt", head), tag("dd", inline(words))) for head, words in summary(profile)),
        class_="words",
    )


def _kernels(profile: ProgramProfile) -> tuple[Markup, ...]:
    if not profile.kernels:
        return (tag("p", "This program has no kernels: it returns inputs or constants.", class_="quiet"),)
    hint = tag("p", "Click a heading to sort, a kernel to see its source and your lines.", class_="quiet scripted")
    return hint, tag("div", kernel_table(profile), class_="scroll", tabindex=0, role="region", aria_label="Kernels")


def _roofline(profile: ProgramProfile) -> tuple[Markup, ...]:
    machine = profile.machine
    words = [
        "Each dot is a kernel. Under the slanted roof memory is its limit, under the flat one arithmetic; the nearer to "
        "the roof, the less there is to win.",
    ]
    if any(kernel.arithmetic_intensity <= 0 for kernel in profile.kernels):
        words.append(
            "Hollow dots do no arithmetic: they stand on the left edge, as far below the roof as their bandwidth is."
        )
    if any(kernel.fraction_of_bandwidth(machine) > 1.02 for kernel in profile.kernels):
        words.append("Dots above the slanted roof read arrays that fit in a cache.")
    if machine.ridge > 0:
        words.append(f"The roofs meet at {machine.ridge:.1f} FLOP per byte.")
    kinds = tuple(dict.fromkeys(kernel.kind for kernel in profile.kernels))
    side = tag("div", *(tag("p", sentence) for sentence in words), _legend(kinds), class_="side")
    return (tag("div", roofline(profile), side, class_="picture"),)


def _legend(kinds: tuple[str, ...]) -> Markup:
    order = sorted(kinds, key=lambda kind: (*KINDS, kind.lower()).index(kind.lower()))
    return tag("ul", *(tag("li", kind, class_=kind_class(kind)) for kind in order), class_="legend")


def _timelines(profile: ProgramProfile) -> tuple[Markup, ...]:
    stages = [(stage.name, stage.seconds, "kind-stage", "") for stage in profile.stages]
    call = [
        (kernel.name, kernel.median_seconds, kind_class(kernel.kind), f"#kernel-{index}")
        for index, kernel in enumerate(profile.kernels)
    ]
    if profile.between_seconds > 0:
        call.append(("between kernels", profile.between_seconds, "kind-other", ""))
    return (
        tag("h3", f"Compiling, once: {seconds(profile.compile_seconds)}"),
        _bars(stages),
        tag("h3", f"One call: {seconds(profile.median_seconds)}"),
        _bars(call),
    )


def _bars(spans: list[tuple[str, float, str, str]]) -> Markup:
    """Spans (label, seconds, class, link) one after the other, each in a line of its own; all fill the width."""
    whole = sum(length for _, length, _, _ in spans) or 1.0
    lines: list[Markup] = []
    start = 0.0
    for label, length, colour, link in spans:
        style = f"margin-left:{100 * start / whole:.3f}%;width:{100 * length / whole:.3f}%"
        name = tag("a", label, href=link) if link else tag("span", label)
        track = tag("span", tag("span", class_=f"span {colour}", style=style), class_="track", aria_hidden="true")
        figure = tag("span", seconds(length), tag("small", percent(length / whole)), class_="figure")
        lines.append(tag("li", tag("span", name, class_="label"), track, figure))
        start += length
    return tag("ol", *lines, class_="timeline")


def _graph(profile: ProgramProfile) -> tuple[Markup, ...]:
    if not profile.graph.nodes:
        return (tag("p", "This profile carries no graph.", class_="quiet"),)
    picture = tag("div", graph_picture(profile), class_="scroll canvas", tabindex=0, role="region", aria_label="Graph")
    return tag("p", caption(profile), class_="quiet"), picture


def _refused(profile: ProgramProfile) -> Markup:
    if not profile.refused:
        return tag("p", "Nothing: every merge that was tried was made.", class_="quiet")
    heads = (tag("th", heading, scope="col") for heading in ("First", "Second", "Why they do not share a kernel"))
    rows = (
        tag(
            "tr",
            tag("td", tag("code", refusal.first)),
            tag("td", tag("code", refusal.second)),
            tag("td", refusal.reason),
        )
        for refusal in profile.refused
    )
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="refused")
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="Refused merges")


def _machine(profile: ProgramProfile) -> Markup:
    machine = profile.machine
    pairs = [
        ("Processor", machine.name),
        ("Cores", str(machine.cores) if machine.cores else "–"),
        (
            "Copy bandwidth, measured",
            bandwidth(machine.copy_bandwidth) if machine.copy_bandwidth > 0 else "not measured",
        ),
        ("Peak arithmetic, measured", flop_rate(machine.peak_flops) if machine.peak_flops > 0 else "not measured"),
        ("Backend", machine.backend),
        ("Versions", ", ".join(f"{name} {version}" for name, version in machine.versions) or "–"),
    ]
    facts = tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs), class_="machine")
    notes = tag("ul", *(tag("li", note) for note in profile.notes), class_="notes") if profile.notes else None
    return join(facts, notes)
