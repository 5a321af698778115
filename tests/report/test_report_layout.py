"""The graph's layout: no two boxes overlap, groups hold their nodes and nothing else, curves end on their boxes."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.report.data import GraphNode, GraphPicture
from fuser.report.layout import GROUPS_ONLY, Box, lay_out, ranks
from fuser.report.routes import routes


@st.composite
def pictures(draw) -> GraphPicture:
    """A program of up to 40 nodes in order, cut into groups of neighbours."""
    count = draw(st.integers(1, 40))
    cuts = draw(st.sets(st.integers(0, count), max_size=8))
    groups = [sum(cut <= node for cut in cuts) - 1 for node in range(count)]
    labels = draw(st.lists(st.text("abc", min_size=1, max_size=40), min_size=count, max_size=count))
    nodes = tuple(GraphNode(node, labels[node], "p", "f32[2]", groups[node]) for node in range(count))
    pairs = [(a, b) for a, b in itertools.combinations(range(count), 2) if b - a < 6]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=60)) if pairs else []
    return GraphPicture(nodes, tuple(edges))


def overlap(a: Box, b: Box) -> bool:
    return a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height


def inside(inner: Box, outer: Box) -> bool:
    right, bottom = inner.x + inner.width <= outer.x + outer.width, inner.y + inner.height <= outer.y + outer.height
    return inner.x >= outer.x and inner.y >= outer.y and right and bottom


@settings(max_examples=60, deadline=None)
@given(pictures())
def test_boxes_are_apart_and_groups_hold_their_own(picture):
    layout = lay_out(picture, {})
    assert layout.nodes.keys() == {node.id for node in picture.nodes}
    assert not any(overlap(a, b) for a, b in itertools.combinations(layout.nodes.values(), 2))
    assert not any(overlap(a, b) for a, b in itertools.combinations(layout.groups.values(), 2))
    whole = Box(-1e-6, -1e-6, layout.width + 2e-6, layout.height + 2e-6)
    for node in picture.nodes:
        box = layout.nodes[node.id]
        assert inside(box, whole)
        for group, frame in layout.groups.items():
            assert inside(box, frame) if group == node.group else not overlap(box, frame)


@settings(max_examples=60, deadline=None)
@given(pictures())
def test_consumers_are_ranked_below_their_producers(picture):
    found = ranks([node.id for node in picture.nodes], picture.edges)
    assert all(found[first] < found[second] for first, second in picture.edges)


def test_a_source_stands_just_above_its_first_consumer():
    found = ranks("abcdx", [("a", "b"), ("b", "c"), ("c", "d"), ("x", "d")])
    assert found["x"] == found["c"] == 2


def test_cycles_end():
    assert ranks("ab", [("a", "b"), ("b", "a")]).keys() == set("ab")


@pytest.mark.parametrize(("count", "detailed"), [(GROUPS_ONLY, True), (GROUPS_ONLY + 1, False)])
def test_large_graphs_show_groups_alone(count, detailed):
    nodes = tuple(GraphNode(id, "add", "add", "f32[4]", -1 if id == 0 else id // 100) for id in range(count))
    layout = lay_out(GraphPicture(nodes, tuple((id, id + 1) for id in range(count - 1))), {})
    assert layout.detailed is detailed
    assert set(layout.groups) == {node.group for node in nodes} - {-1}
    assert len(layout.nodes) == (count if detailed else 1)


def test_curves_end_on_their_boxes_and_apart():
    left, right, low = Box(0, 0, 60, 40), Box(80, 0, 60, 40), Box(40, 80, 60, 40)
    curves = [re.findall(r"-?[\d.]+", curve) for curve in routes([(right, low), (left, low)], [left, right, low])]
    assert [tuple(map(float, numbers[:2])) for numbers in curves] == [(110, 40), (30, 40)]
    (x_right, y_right), (x_left, y_left) = (tuple(map(float, numbers[-2:])) for numbers in curves)
    assert y_right == y_left == 80
    assert low.x < x_left < low.centre < x_right < low.x + low.width


def test_a_curve_keeps_clear_of_the_box_between():
    top, middle, low = Box(0, 0, 60, 40), Box(-10, 60, 80, 40), Box(0, 120, 60, 40)
    straight, bent = routes([(top, middle), (top, low)], [top, middle, low])
    assert "L" not in straight
    lane = re.search(r"L(-?[\d.]+) 100.0", bent)
    assert lane is not None
    assert not middle.x <= float(lane[1]) <= middle.x + middle.width
