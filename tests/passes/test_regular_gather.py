"""Gathers whose indices are made of `arange` or constants that count evenly: slices and windows, not gathers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuser
import fuser.numpy as jnp
from fuser import passes
from fuser.ir.graph import Graph

LINE = np.arange(60, dtype=np.float32)
BLOCK = np.random.default_rng(0).standard_normal((2, 7, 9)).astype(np.float32)

# name -> (the function of arange, what reads the elements)
EVEN: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "windows": (lambda i: LINE[i(41)[:, None] + i(20)], {"sliding_windows"}),
    "windows from behind": (lambda i: LINE[59 - i(41)[:, None] - i(19)], {"sliding_windows"}),
    "windows with gaps": (lambda i: LINE[2 * i(10)[:, None] + 3 * i(5)], {"sliding_windows"}),
    "blocks": (lambda i: LINE[i(15)[:, None] * 4 + i(4)], set()),
    "blocks, transposed": (lambda i: LINE[i(15) + 15 * i(4)[:, None]], set()),
    "three that count": (lambda i: LINE[i(3)[:, None, None] * 2 + i(5)[None, :, None] * 7 + i(4)], {"sliding_windows"}),
    "steps": (lambda i: LINE[3 * i(20)], {"slice"}),
    "backwards": (lambda i: LINE[20 - i(10)], {"slice", "rev"}),
    "rows": (lambda i: BLOCK[:, i(3)[:, None] + i(4), :], {"sliding_windows"}),
    "two dimensions": (
        lambda i: BLOCK[:, i(3)[:, None] + i(4), (8 - i(5))[:, None, None]],
        {"slice", "sliding_windows", "rev"},
    ),
    "negative numbers": (lambda i: BLOCK[-1 - i(2), :, -i(3)[:, None] - 1], {"slice", "rev"}),
    "one number repeated": (lambda i: BLOCK[1, i(3)[:, None] * 0 + 2, i(4) * 2], {"slice"}),
    "a dimension of one": (lambda i: BLOCK[i(1) + 1, i(7), :], {"slice"}),
}


def traced(case: Callable[..., Any], constant: bool) -> tuple[Callable[[Any, Any], Any], np.ndarray]:
    """The case on arrays of fuser, with indices counted by the program or given as constants, and NumPy's result."""

    def function(line: Any, block: Any) -> Any:
        scope = {"LINE": line, "BLOCK": block}
        rebound = type(case)(case.__code__, scope)
        return rebound(np.arange if constant else jnp.arange)

    return function, case(np.arange)


@pytest.mark.parametrize("constant", [False, True], ids=["counted", "constant"])
@pytest.mark.parametrize("name", EVEN)
def test_evenly_spaced_places_are_slices_and_windows(name: str, constant: bool) -> None:
    case, expected = EVEN[name]
    function, wanted = traced(case, constant)
    names = primitives(optimised(function, LINE, BLOCK))
    assert "gather" not in names
    assert expected <= names
    if "sliding_windows" not in expected:
        assert "sliding_windows" not in names
    np.testing.assert_array_equal(np.asarray(fuser.jit(function)(LINE, BLOCK)), wanted)


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_places_outside_stay_gathers(mode: str) -> None:
    def function(x: Any) -> Any:
        return x.at[jnp.arange(30)[:, None] + jnp.arange(4)].get(mode=mode, fill_value=-1)

    x = LINE[:30]
    places = np.arange(30)[:, None] + np.arange(4)
    wanted = x[np.minimum(places, 29)] if mode == "clip" else np.where(places < 30, x[np.minimum(places, 29)], -1)
    assert "gather" in primitives(optimised(function, x))
    np.testing.assert_array_equal(np.asarray(fuser.jit(function)(x)), wanted)


def test_an_index_that_is_added_to_itself_is_looked_at_once() -> None:
    def function(x: Any) -> Any:
        i = jnp.arange(4)
        for _ in range(200):
            i = i + i
            i = i - i + jnp.arange(4)
        return x[i]

    np.testing.assert_array_equal(np.asarray(fuser.jit(function)(LINE)), LINE[:4])


def test_a_diagonal_stays_a_gather() -> None:
    function = lambda x: x[1, jnp.arange(7), jnp.arange(7) + 1]
    np.testing.assert_array_equal(np.asarray(fuser.jit(function)(BLOCK)), np.diagonal(BLOCK[1], 1))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_any_even_places_read_as_numpy_reads_them(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    strides = data.draw(st.lists(st.integers(-5, 5), min_size=len(counts), max_size=len(counts)))
    reach = [s * (n - 1) for s, n in zip(strides, counts)]
    start = -sum(min(0, r) for r in reach) + data.draw(st.integers(0, 2))
    extent = start + sum(max(0, r) for r in reach) + 1 + data.draw(st.integers(0, 2))
    x = np.arange(extent * 2, dtype=np.int32).reshape(extent, 2)
    order = data.draw(st.permutations(range(len(counts))))

    def places(arange: Callable[[int], Any]) -> Any:
        total: Any = start
        for axis, (stride, n) in enumerate(zip(strides, counts)):
            shape = [1] * len(counts)
            shape[order[axis]] = n
            total = total + stride * arange(n).reshape(shape)
        return total

    got = fuser.jit(lambda x: x[places(jnp.arange)] * 2)(x)
    np.testing.assert_array_equal(np.asarray(got), x[places(np.arange)] * 2)


def test_sums_over_windows_read_no_indices() -> None:
    """What a rolling mean reads is the series alone, however the windows are written."""
    x = np.random.default_rng(1).standard_normal(4000)

    def rolling(x: Any) -> Any:
        return x[jnp.arange(3981)[:, None] + jnp.arange(20)].mean(axis=1)

    wanted = np.lib.stride_tricks.sliding_window_view(x.astype(np.float32), 20).mean(axis=1)
    graph = optimised(rolling, x.astype(np.float32))
    assert "iota" not in primitives(graph)
    np.testing.assert_allclose(np.asarray(fuser.jit(rolling)(x.astype(np.float32))), wanted, atol=2e-6)


def optimised(function: Callable[..., Any], *arrays: Any) -> Graph:
    return passes.run(fuser.jit(function).trace(*arrays).graph)


def primitives(graph: Graph) -> set[str]:
    return {eqn.primitive.name for eqn in graph.eqns}
