"""The roofline picture: each kernel's FLOP per second over its FLOP per byte, under the machine's two roofs (SVG).

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model" (2009). Both axes are logarithmic. A
kernel without arithmetic has no place on them: it stands on the left edge, as far below the roof as its bandwidth is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fuser.report.data import KernelProfile, Machine, ProgramProfile
from fuser.report.markup import Markup, join, tag
from fuser.report.units import bandwidth, flop_rate, intensity, percent, seconds

WIDTH, HEIGHT = 720.0, 400.0
LEFT, RIGHT, TOP, BOTTOM = 84.0, 18.0, 18.0, 48.0
NAMED = 10  # with more kernels than this, labels are numbers
LABEL_HEIGHT, LABEL_DROP = 15.0, 9.0  # labels hang a little, clear of the roof above their dot
HEAP = 14.0  # dots nearer to one another than this share a label
LABEL_ROOM = 110.0  # from the middle of a roof's label to the nearest dot, if it can be had
KINDS = ("elementwise", "reduction", "scan", "contraction", "loop", "horizontal", "library", "control")

Point = tuple[float, float]  # in the picture, pixels from the upper left


def kind_class(kind: str) -> str:
    """The CSS class that colours a kind of kernel, the same in every picture of the page."""
    return f"kind-{kind.lower()}" if kind.lower() in KINDS else "kind-other"


@dataclass(frozen=True, slots=True)
class Scale:
    """Both axes: powers of ten from the first to the last, onto the plot's rectangle."""

    x_first: int
    x_last: int
    y_first: int
    y_last: int

    def x(self, value: float) -> float:
        """The abscissa of `value` FLOP per byte, clamped to the plot."""
        return LEFT + _share(value, self.x_first, self.x_last) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """The ordinate of `value` FLOP per second, clamped to the plot."""
        return HEIGHT - BOTTOM - _share(value, self.y_first, self.y_last) * (HEIGHT - TOP - BOTTOM)


def _share(value: float, first: int, last: int) -> float:
    if value <= 0:
        return 0.0
    return min(1.0, max(0.0, (math.log10(value) - first) / (last - first)))


def roofline(profile: ProgramProfile) -> Markup:
    """The picture as one SVG element: the axes, the roofs, and a dot with its label for each kernel."""
    scale = fit(profile)
    return tag(
        "svg", _grid(scale), _roofs(profile, scale), _dots(profile, scale),
        class_="roofline", viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}", role="img", aria_label=_description(profile),
    )  # fmt: skip


def fit(profile: ProgramProfile) -> Scale:
    """Axes that hold every kernel and the ridge between the roofs."""
    machine = profile.machine
    across = [kernel.arithmetic_intensity for kernel in profile.kernels if kernel.arithmetic_intensity > 0] + [
        0.1,
        10.0,
    ]
    across += [machine.ridge] if machine.ridge > 0 else []
    x_first, x_last = _decades(across)
    upward = [kernel.achieved_flops for kernel in profile.kernels if kernel.flops > 0 and kernel.achieved_flops > 0]
    upward += [10.0**x_first * kernel.achieved_bandwidth for kernel in profile.kernels if _idle(kernel)]
    upward += [rate for rate in (machine.peak_flops, machine.copy_bandwidth * 10.0**x_first) if rate > 0]
    y_first, y_last = _decades([value for value in upward if value > 0] or [1e9, 1e12])
    return Scale(x_first, x_last, y_first, y_last)


def _idle(kernel: KernelProfile) -> bool:
    """Whether the kernel has no place on a logarithmic axis of FLOP per byte."""
    return kernel.arithmetic_intensity <= 0


def _decades(values: list[float]) -> tuple[int, int]:
    first = math.floor(math.log10(min(values)) - 0.05)
    return first, max(first + 1, math.ceil(math.log10(max(values)) + 0.05))


def _grid(scale: Scale) -> Markup:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines: list[Markup] = []
    for power in range(scale.x_first, scale.x_last + 1):
        x = scale.x(10.0**power)
        lines += [
            tag("line", x1=x, x2=x, y1=TOP, y2=bottom),
            tag("text", _power(power), x=x, y=bottom + 18, class_="tick middle"),
        ]
    step = 1 + (scale.y_last - scale.y_first) // 8
    for power in range(scale.y_first, scale.y_last + 1, step):
        y = scale.y(10.0**power)
        rate = flop_rate(10.0**power).replace(".00", "").replace(".0", "")
        lines += [tag("line", x1=LEFT, x2=right, y1=y, y2=y), tag("text", rate, x=LEFT - 8, y=y + 4, class_="tick end")]
    middle = (LEFT + right) / 2
    title = tag("text", "FLOP per byte moved", x=middle, y=HEIGHT - 8, class_="axis middle")
    return tag("g", *lines, title, class_="grid")


def _power(power: int) -> str:
    return f"{10**power:,}" if 0 <= power < 6 else f"{10.0**power:.{-power}f}" if -4 < power < 0 else f"1e{power}"


def _roofs(profile: ProgramProfile, scale: Scale) -> Markup:
    """The slanted roof of the bandwidth and the flat one of arithmetic, each as far as it was measured."""
    machine = profile.machine
    left, right = 10.0**scale.x_first, 10.0**scale.x_last
    drawn: list[Markup] = []
    if machine.copy_bandwidth > 0:
        low = max(left, 10.0**scale.y_first / machine.copy_bandwidth)
        high = min(right, machine.ridge or right, 10.0**scale.y_last / machine.copy_bandwidth)
        start, end = ((scale.x(at), scale.y(at * machine.copy_bandwidth)) for at in (low, high))
        along = _clear(start, end, [_spot(kernel, scale) for kernel in profile.kernels])
        drawn.append(_roof(start, end, f"copy bandwidth {bandwidth(machine.copy_bandwidth)}", "middle", along))
    if machine.peak_flops > 0:
        y = scale.y(machine.peak_flops)
        start, end = (scale.x(min(right, max(left, machine.ridge))), y), (scale.x(right), y)
        drawn.append(_roof(start, end, f"peak {flop_rate(machine.peak_flops)}", "end", 1.0))
    return tag("g", *drawn, class_="roofs")


def _roof(start: Point, end: Point, label: str, anchor: str, along: float) -> Markup:
    """A line from `start` to `end`, its label above it at the share `along` of the way."""
    (x1, y1), (x2, y2) = start, end
    angle = math.degrees(math.atan2(y2 - y1, x2 - x1)) if x2 > x1 else 0.0
    x, y = x1 + along * (x2 - x1), y1 + along * (y2 - y1)
    text = tag("text", label, x=x, y=y - 8, class_=anchor, transform=f"rotate({angle:.1f} {x:.1f} {y:.1f})")
    return join(tag("line", x1=x1, y1=y1, x2=x2, y2=y2), text)


def _clear(start: Point, end: Point, spots: list[Point]) -> float:
    """How far along a roof, from 0.25 to 0.75, its label is furthest from the dots; in the middle if there are none."""
    (x1, y1), (x2, y2) = start, end

    def distance(along: float) -> float:
        x, y = x1 + along * (x2 - x1), y1 + along * (y2 - y1) - 14
        return min((math.hypot(x - dot[0], y - dot[1]) for dot in spots), default=0.0)

    return max((0.5, 0.4, 0.6, 0.3, 0.7, 0.25, 0.75), key=lambda along: min(distance(along), LABEL_ROOM))


def _dots(profile: ProgramProfile, scale: Scale) -> Markup:
    spots = [_spot(kernel, scale) for kernel in profile.kernels]
    heaps = _heaps(spots)
    heights = dict(zip((heap[0] for heap in heaps), _apart([spots[heap[0]] for heap in heaps])))
    written = {heap[0]: _label(profile, heap) for heap in heaps}
    drawn: list[Markup] = []
    for index, (kernel, (x, y)) in enumerate(zip(profile.kernels, spots)):
        dot = tag("circle", tag("title", _caption(kernel, profile.machine)), cx=x, cy=y, r=5.5)
        label = _label_text(written[index], (x, y), heights[index]) if index in written else None
        classes = f"dot {kind_class(kernel.kind)}{' idle' if _idle(kernel) else ''}"
        drawn.append(tag("a", label, dot, href=f"#kernel-{index}", class_=classes))
    return tag("g", *drawn, class_="dots")


def _heaps(spots: list[Point]) -> list[list[int]]:
    """Dots that lie on one another, as lists of indices; each list gets one label."""
    heaps: list[list[int]] = []
    for index, spot in enumerate(spots):
        heap = next((heap for heap in heaps if math.dist(spots[heap[0]], spot) < HEAP), None)
        if heap is None:
            heaps.append([index])
        else:
            heap.append(index)
    return heaps


def _label(profile: ProgramProfile, heap: list[int]) -> str:
    """The name of a single dot; of a heap its first and how many more; numbers where there are many kernels."""
    if len(profile.kernels) > NAMED:
        return ", ".join(map(str, heap[:4])) + (" …" if len(heap) > 4 else "")
    more = f" +{len(heap) - 1}" if len(heap) > 1 else ""
    return profile.kernels[heap[0]].name[:30] + more


def _label_text(label: str, spot: Point, height: float) -> Markup | None:
    """The label beside its dot, with a leader if it had to move; none if there is no room left for it."""
    x, y = spot
    if height > HEIGHT - BOTTOM:
        return None
    side, shift = ("end", -11) if x > WIDTH * 0.68 else ("start", 11)
    leader = (
        tag("line", x1=x, y1=y, x2=x + shift * 0.8, y2=height, class_="leader") if height - y > LABEL_DROP + 2 else None
    )
    return join(leader, tag("text", label, x=x + shift, y=height + 4, class_=side))


def _spot(kernel: KernelProfile, scale: Scale) -> Point:
    if _idle(kernel):
        return LEFT, scale.y(10.0**scale.x_first * kernel.achieved_bandwidth)
    return scale.x(kernel.arithmetic_intensity), scale.y(kernel.achieved_flops)


def _apart(spots: list[Point]) -> list[float]:
    """Label heights: each at its dot's, or as little lower as keeps it clear of a label near it."""
    heights: dict[int, float] = {}
    for index in sorted(range(len(spots)), key=lambda index: spots[index][1]):
        x, height = spots[index][0], spots[index][1] + LABEL_DROP
        for other in sorted(heights, key=lambda other: heights[other]):
            if abs(spots[other][0] - x) < 150 and abs(heights[other] - height) < LABEL_HEIGHT:
                height = heights[other] + LABEL_HEIGHT
        heights[index] = height
    return [heights[index] for index in range(len(spots))]


def _caption(kernel: KernelProfile, machine: Machine) -> str:
    fraction = kernel.fraction_of_bandwidth(machine)
    return (
        f"{kernel.name} ({kernel.kind}): {seconds(kernel.median_seconds)}, {flop_rate(kernel.achieved_flops)} at "
        f"{intensity(kernel.arithmetic_intensity)}, {bandwidth(kernel.achieved_bandwidth)} ({percent(fraction)} of copy)"
    )


def _description(profile: ProgramProfile) -> str:
    captions = "; ".join(_caption(kernel, profile.machine) for kernel in profile.kernels[:NAMED])
    return f"Roofline: kernels under the roofs of memory bandwidth and peak arithmetic. {captions}"
