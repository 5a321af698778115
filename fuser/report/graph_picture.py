"""The optimised graph, drawn: nodes as boxes, fusion groups as coloured boxes around them, data as curves (SVG).

In: a profile and the layout of its graph. Out: one SVG element; a group's box and the nodes in it link to the row of
its kernel in the table.
"""

from __future__ import annotations

from fuser.report.data import GraphNode, ProgramProfile
from fuser.report.layout import GROUPS_ONLY, Box, Layout, clipped, lay_out
from fuser.report.markup import Markup, tag
from fuser.report.roofline import kind_class
from fuser.report.routes import routes
from fuser.report.units import count, tally

MARGIN = 6.0


def graph_picture(profile: ProgramProfile) -> Markup:
    """The graph as one SVG element of its natural size."""
    titles = {index: kernel.name for index, kernel in enumerate(profile.kernels)}
    layout = lay_out(profile.graph, titles)
    width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
    drawn = tag(
        "g",
        tag("g", *(_group(profile, group, box, titles) for group, box in layout.groups.items()), class_="groups"),
        tag("g", *_edges(profile, layout), class_="edges"),
        tag("g", *(_group_title(profile, group, box, titles) for group, box in layout.groups.items()), class_="titles"),
        tag("g", *(_node(node, layout.nodes[node.id]) for node in profile.graph.nodes if node.id in layout.nodes)),
        transform=f"translate({MARGIN:.0f} {MARGIN:.0f})",
    )
    return tag(
        "svg", drawn, class_="graph", width=width, height=height, viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img", aria_label=_description(profile),
    )  # fmt: skip


def caption(profile: ProgramProfile) -> str:
    """What the picture shows, in a sentence."""
    nodes = profile.graph.nodes
    groups = len({node.group for node in nodes if node.group >= 0})
    shown = f"{count(len(nodes), 'node')}, {count(groups, 'fusion group')}. Each coloured box becomes one kernel"
    if len(nodes) > GROUPS_ONLY:
        return f"{shown}; with more than {GROUPS_ONLY} nodes, those inside of the groups are not drawn."
    return f"{shown}; what passes inside of a box never reaches memory."


def _description(profile: ProgramProfile) -> str:
    groups = "; ".join(f"{kernel.name}: {', '.join(tally(kernel.ops))}" for kernel in profile.kernels[:20])
    return f"Graph of {profile.name}. {caption(profile)} {groups}"


def _group(profile: ProgramProfile, group: int, box: Box, titles: dict[int, str]) -> Markup:
    known = group < len(profile.kernels)
    kind = profile.kernels[group].kind if known else "other"
    operations = profile.kernels[group].ops if known else ()
    text = f"{titles.get(group, '')} ({kind}): {', '.join(tally(operations))}"
    return tag(
        "a",
        tag("title", text),
        tag("rect", x=box.x, y=box.y, width=box.width, height=box.height, rx=9),
        href=f"#kernel-{group}", class_=f"group {kind_class(kind)}",
    )  # fmt: skip


def _group_title(profile: ProgramProfile, group: int, box: Box, titles: dict[int, str]) -> Markup:
    """The group's name, drawn after the curves so that it stays readable."""
    kind = profile.kernels[group].kind if group < len(profile.kernels) else "other"
    title = clipped(titles.get(group, f"{group}"), 40)
    return tag("text", title, x=box.x + 14, y=box.y + 21, class_=kind_class(kind))


def _node(node: GraphNode, box: Box) -> Markup:
    outside = " outside" if node.group < 0 else ""
    text = " · ".join(part for part in (node.label, node.primitive, node.type, node.line) if part)
    return tag(
        "g" if node.group < 0 else "a",
        tag("title", text),
        tag("rect", x=box.x, y=box.y, width=box.width, height=box.height, rx=6),
        tag("text", clipped(node.label), x=box.centre, y=box.y + 19),
        tag("text", clipped(node.type), x=box.centre, y=box.y + 35, class_="type"),
        class_=f"node{outside}", href=None if node.group < 0 else f"#kernel-{node.group}",
    )  # fmt: skip


def _edges(profile: ProgramProfile, layout: Layout) -> list[Markup]:
    """Curves between drawn nodes, or between the groups that stand for them; each pair once."""
    home = {node.id: layout.nodes.get(node.id) or layout.groups[node.group] for node in profile.graph.nodes}
    pairs = dict.fromkeys((home[first], home[second]) for first, second in profile.graph.edges)
    drawn = [pair for pair in pairs if pair[0] != pair[1]]
    return [tag("path", d=route) for route in routes(drawn, set(home.values()))]
