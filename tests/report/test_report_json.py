"""JSON and Chrome trace: what is written is read back, and other programs find the fields that they need."""

from __future__ import annotations

import dataclasses
import itertools
import json
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.report import GraphNode, GraphPicture, ProgramProfile, from_json


def connected(nodes: list[GraphNode]) -> st.SearchStrategy[GraphPicture]:
    """Pictures of these nodes with any edges among them."""
    pairs = list(itertools.product([node.id for node in nodes], repeat=2))
    edges = st.lists(st.sampled_from(pairs), max_size=4).map(tuple) if pairs else st.just(())
    return st.builds(GraphPicture, st.just(tuple(nodes)), edges)


def records(kind: type) -> st.SearchStrategy:
    """Any value of a report's dataclass, or of a field's annotation."""
    if kind is GraphPicture:
        return st.lists(records(GraphNode), max_size=4, unique_by=lambda node: node.id).flatmap(connected)
    if dataclasses.is_dataclass(kind):
        return st.builds(kind, **{name: records(hint) for name, hint in typing.get_type_hints(kind).items()})
    if typing.get_origin(kind) is tuple:
        first, *others = typing.get_args(kind)
        if others == [Ellipsis]:
            return st.lists(records(first), max_size=3).map(tuple)
        return st.tuples(*map(records, (first, *others)))
    return {
        str: st.text(max_size=8),
        int: st.integers(0, 2**62),
        float: st.floats(allow_nan=False, allow_infinity=False, min_value=1e-9, max_value=1e15),
        bool: st.booleans(),
    }[kind]


@settings(max_examples=40, deadline=None)
@given(records(ProgramProfile))
def test_json_round_trip(profile):
    assert from_json(profile.to_json()) == profile


@settings(max_examples=15, deadline=None)
@given(records(ProgramProfile))
def test_every_form_takes_every_profile(profile):
    assert profile.text()
    assert profile.html().startswith("<!doctype html>")
    json.loads(profile.chrome_trace())


def test_json_carries_derived_figures(profile):
    kernel = json.loads(profile.to_json())["profile"]["kernels"][0]
    assert kernel["derived"]["fraction_of_bandwidth"] == pytest.approx(0.8)
    assert kernel["derived"]["limit"] == "memory"


def changed(profile: ProgramProfile, **fields) -> str:
    document = json.loads(profile.to_json())
    document["profile"].update(fields)
    return json.dumps(document)


def test_edges_end_at_nodes(profile):
    node = GraphNode(3, "exp", "exp", "f32[4]")
    with pytest.raises(ValueError) as caught:
        GraphPicture((node,), ((3, 4),))
    assert str(caught.value) == "edge (3, 4) of a graph picture ends at no node; the nodes are [3]"
    with pytest.raises(ValueError) as caught:
        GraphPicture((node, node))
    assert str(caught.value) == "two nodes of a graph picture have the same id; give each its own"


def test_whole_numbers_serve_as_times(profile):
    found = from_json(changed(profile, median_seconds=2))
    assert found.median_seconds == 2.0
    assert type(found.median_seconds) is float


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "{}",
            'this is no fuser profile: it lacks "format": "fuser-profile"; expected the output of ProgramProfile.to_json()',
        ),
        (
            '{"format": "fuser-profile", "version": 9}',
            "this profile has version 9, and this fuser reads version 3; profile again",
        ),
        (
            "nonsense",
            "this is no fuser profile: Expecting value: line 1 column 1 (char 0); expected the output of ProgramProfile.to_json()",
        ),
        (
            '{"format": "fuser-profile", "version": 3, "profile": null}',
            "profile of a profile must be a record of ProgramProfile, found None",
        ),
    ],
)
def test_other_texts_are_refused(text, words):
    with pytest.raises(ValueError) as caught:
        from_json(text)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"launches": "two"}, "profile.launches of a profile must be int, found 'two'"),
        ({"launches": True}, "profile.launches of a profile must be int, found True"),
        ({"notes": "a"}, "profile.notes of a profile must be a list, found 'a'"),
        ({"colour": "red"}, "profile of a profile has missing or unknown fields: colour"),
        ({"graph": {"nodes": [], "edges": [[1]]}}, "profile.graph.edges[0] of a profile must have 2 entries, found 1"),
    ],
)
def test_wrong_fields_are_named(profile, fields, words):
    with pytest.raises(ValueError) as caught:
        from_json(changed(profile, **fields))
    assert str(caught.value) == words


def events(profile: ProgramProfile) -> list[dict]:
    document = json.loads(profile.chrome_trace())
    assert document["displayTimeUnit"] == "ms"
    return document["traceEvents"]


def test_trace_has_the_fields_of_the_format(profile):
    for event in events(profile):
        assert {"ph", "name", "pid", "tid", "args"} <= event.keys()
        assert event["ph"] in ("M", "X")
        if event["ph"] == "X":
            assert event["cat"] in ("compile", "kernel")
            assert event["ts"] >= 0
            assert event["dur"] >= 0


def test_stages_and_kernels_have_tracks_of_their_own(profile):
    spans = [event for event in events(profile) if event["ph"] == "X"]
    named = {event["tid"] for event in events(profile) if event["name"] == "thread_name"}
    tracks = {
        category: {event["tid"] for event in spans if event["cat"] == category} for category in ("compile", "kernel")
    }
    assert len(tracks["compile"]) == len(tracks["kernel"]) == 1
    assert tracks["compile"].isdisjoint(tracks["kernel"])
    assert tracks["compile"] | tracks["kernel"] == named


def test_spans_follow_one_another_in_microseconds(profile):
    spans = [event for event in events(profile) if event["ph"] == "X"]
    assert [event["name"] for event in spans] == [
        *("trace", "optimise", "partition", "emit", "load"),
        *("scale_bias", "matmul_gelu", "softmax_rows", "transpose_copy", "sort", "between kernels"),
    ]
    for before, after in itertools.pairwise(spans):
        assert after["ts"] == pytest.approx(before["ts"] + before["dur"])
    assert spans[4]["dur"] == pytest.approx(90_000)
    assert spans[-1]["ts"] + spans[-1]["dur"] == pytest.approx(140_000)


def test_kernels_carry_their_figures(profile):
    softmax = next(event for event in events(profile) if event["name"] == "softmax_rows")
    assert softmax["args"]["bytes_moved"] == 160_000_000
    assert softmax["args"]["lines"] == ["attention.py:14 (attend)"]
