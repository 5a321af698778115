"""The page's table of kernels: a sortable row of figures for each, and under it a row with all there is to know.

In: a profile. Out: one HTML table. Cells carry their plain number in `data-value`, by which the page's script sorts.
"""

from __future__ import annotations

from fuser.report.data import KernelProfile, ProgramProfile, SourceLine
from fuser.report.markup import Child, Markup, highlight, join, tag
from fuser.report.roofline import kind_class
from fuser.report.units import bandwidth, compiled, flop_rate, flops, intensity, percent, seconds, size, tally

# heading, and the class that says from which width of the window on the column shows
COLUMNS = (
    ("#", ""),
    ("Kernel", "name"),
    ("Median", ""),
    ("Min", "wide"),
    ("Estimated", "wide"),
    ("Share", ""),
    ("Must move", "medium"),
    ("Moved", ""),
    ("Rate", ""),
    ("Of copy", ""),
    ("FLOP", "medium"),
    ("Compile", "wide"),
    ("On chip", ""),
)
TIMES = frozenset(
    ("Median", "Min", "Estimated", "Share", "Rate", "Of copy", "Compile")
)  # which a report of the plan alone has not


def kernel_table(profile: ProgramProfile) -> Markup:
    """All kernels, in the order in which they run."""
    absent = _absent(profile)
    heads = (
        tag("th", tag("button", heading, type="button"), scope="col", class_=shown or None, aria_sort="none")
        for heading, shown in COLUMNS
        if heading not in absent
    )
    bodies = (_body(index, kernel, profile) for index, kernel in enumerate(profile.kernels))
    return tag("table", tag("thead", tag("tr", *heads)), *bodies, class_="kernels", id="kernel-table")


def _body(index: int, kernel: KernelProfile, profile: ProgramProfile) -> Markup:
    """The two rows of a kernel, which sort as one."""
    detail = tag("td", _detail(kernel, profile), colspan=len(COLUMNS) - len(_absent(profile)))
    return tag(
        "tbody",
        tag("tr", *_cells(index, kernel, profile), class_="figures"),
        tag("tr", detail, class_="detail", id=f"detail-{index}", hidden=True),
        id=f"kernel-{index}", class_=kind_class(kernel.kind),
    )  # fmt: skip


def _cells(index: int, kernel: KernelProfile, profile: ProgramProfile) -> list[Markup]:
    machine = profile.machine
    share = _share(kernel, profile)
    fraction = kernel.fraction_of_bandwidth(machine)
    of_copy = _meter(fraction) if machine.copy_bandwidth > 0 else Markup("–")
    values: list[tuple[str | int | float, Child]] = [
        (index, str(index)),
        (kernel.name, _title(index, kernel)),
        (kernel.median_seconds, seconds(kernel.median_seconds)),
        (kernel.min_seconds, seconds(kernel.min_seconds)),
        (kernel.estimated_seconds, seconds(kernel.estimated_seconds) if kernel.estimated_seconds else "–"),
        (share, percent(share)),
        (kernel.bytes_ideal, size(kernel.bytes_ideal)),
        (kernel.bytes_moved, tag("span", size(kernel.bytes_moved), class_="excess" if _excess(kernel) else None)),
        (kernel.achieved_bandwidth, bandwidth(kernel.achieved_bandwidth)),
        (fraction, of_copy),
        (kernel.flops, flops(kernel.flops).removesuffix("FLOP").rstrip()),
        (0.0 if kernel.cache_hit else kernel.compile_seconds, _compiled(kernel)),
        (kernel.vmem, size(kernel.vmem) if kernel.vmem else "–"),
    ]
    absent = _absent(profile)
    return [
        tag("td", shown, class_=visible or None, data_value=repr(value) if isinstance(value, float) else value)
        for (value, shown), (heading, visible) in zip(values, COLUMNS)
        if heading not in absent
    ]


def _absent(profile: ProgramProfile) -> frozenset[str]:
    """Columns of which nothing is known."""
    absent = frozenset() if profile.timed else TIMES
    return absent if any(kernel.vmem for kernel in profile.kernels) else absent | {"On chip"}


def _share(kernel: KernelProfile, profile: ProgramProfile) -> float:
    return kernel.median_seconds / profile.median_seconds if profile.median_seconds > 0 else 0.0


def _excess(kernel: KernelProfile) -> bool:
    return kernel.bytes_moved > 1.01 * kernel.bytes_ideal


def _compiled(kernel: KernelProfile) -> str:
    return compiled(kernel.generated, kernel.cache_hit, kernel.compile_seconds)


def _title(index: int, kernel: KernelProfile) -> Markup:
    """The button that opens the detail: name, kind, and the first of the user's lines."""
    more = f" +{len(kernel.lines) - 1}" if len(kernel.lines) > 1 else ""
    where = tag("span", kernel.lines[0].where, more, class_="where") if kernel.lines else None
    name = tag("span", kernel.name, class_="kernel-name")
    kind = tag("span", kernel.kind, class_="kind")
    words = tag("span", tag("span", name, kind, class_="heading"), where, class_="stacked")
    return tag(
        "button", tag("span", class_="chevron", aria_hidden="true"), words,
        type="button", class_="expand", aria_expanded="false", aria_controls=f"detail-{index}",
    )  # fmt: skip


def _meter(fraction: float) -> Markup:
    """A percentage with a bar beneath it; the bar ends at 100 %."""
    bar = tag("span", style=f"width:{100 * min(1.0, max(0.0, fraction)):.1f}%")
    return join(percent(fraction), tag("span", bar, class_="meter", aria_hidden="true"))


def _detail(kernel: KernelProfile, profile: ProgramProfile) -> Markup:
    operations = [tag("li", name) for name in tally(kernel.ops)]
    parts = [
        tag("div", tag("h4", "Your lines"), _lines(kernel.lines), class_="lines"),
        tag(
            "div",
            tag("h4", f"{len(kernel.ops)} fused operations"),
            tag("ul", *operations, class_="ops"),
            class_="fused",
        ),
        tag("div", tag("h4", "All figures"), _figures(kernel, profile), class_="numbers"),
    ]
    return tag("div", tag("div", *parts, class_="facts"), _source(kernel), class_="inside")


def _lines(lines: tuple[SourceLine, ...]) -> Markup:
    if not lines:
        return tag("p", "No line of yours is known for this kernel.", class_="quiet")
    return tag("ol", *(tag("li", tag("span", line.where), tag("code", line.text.strip())) for line in lines))


def _figures(kernel: KernelProfile, profile: ProgramProfile) -> Markup:
    machine = profile.machine
    limit = kernel.limit(machine)
    least = kernel.limit_seconds(machine)
    rate = f" at {flop_rate(kernel.achieved_flops)}" if profile.timed else ""
    timed = (
        ("median, minimum", f"{seconds(kernel.median_seconds)}, {seconds(kernel.min_seconds)}"),
        ("least time by the roofline", f"{seconds(least)} ({limit})" if least > 0 else "–"),
        ("compiling", _compiled(kernel)),
    )
    pairs = (
        *(timed[:2] if profile.timed else ()),
        ("bytes that must move", size(kernel.bytes_ideal)),
        ("bytes moved", size(kernel.bytes_moved)),
        ("arithmetic", f"{flops(kernel.flops)}{rate}"),
        ("intensity", intensity(kernel.arithmetic_intensity)),
        *(timed[2:] if profile.timed else ()),
        *((("on-chip memory", size(kernel.vmem)),) if kernel.vmem else ()),
    )
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))


def _source(kernel: KernelProfile) -> Markup:
    if not kernel.text:
        return tag("p", "This step calls a library; it has no generated source.", class_="quiet")
    language = kernel.language or "source"
    lines = kernel.text.count("\n") + (not kernel.text.endswith("\n"))
    copy = tag("button", "Copy", type="button", class_="copy")
    bar = tag("div", tag("span", f"Generated kernel · {language} · {lines} lines"), copy, class_="bar")
    code = tag("pre", tag("code", highlight(kernel.text, kernel.language)), tabindex=0)
    return tag("div", bar, code, class_="source")
