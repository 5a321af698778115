"""Spans of integer expressions: none leaves out a value that the expression takes, and masks make clamps needless."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuser
import fuser.numpy as jnp
from fuser.ir import scalar as S
from fuser.ir.scalar import Scalar
from fuser.ir.span import ends, settled, span
from fuser.kernel.lower import lower

TYPES = [np.dtype(t) for t in ("int8", "uint8", "int16", "uint16", "int32", "uint32")]
BINARY = ("add", "sub", "mul", "min", "max", "and", "or", "xor", "rem", "shr")


@st.composite
def expressions(draw) -> tuple[Scalar, dict[str, np.ndarray]]:
    """A random expression over inputs of 8 or 16 bits, and values for them."""
    dtype = draw(st.sampled_from(TYPES[:4]))
    inputs = {}

    def leaf() -> Scalar:
        if draw(st.booleans()):
            return S.constant(draw(st.integers(*ends(dtype))), dtype)
        name = f"x{len(inputs)}"
        low, high = ends(dtype)
        inputs[name] = np.array(draw(st.lists(st.integers(low, high), min_size=20, max_size=20)), dtype)
        return Scalar("input", (), dtype, name)

    node = leaf()
    for _ in range(draw(st.integers(1, 6))):
        op = draw(st.sampled_from((*BINARY, "neg", "cast", "select")))
        if op == "cast":
            dtype = draw(st.sampled_from(TYPES))
            node = S.cast(node, dtype)
        elif op == "neg":
            node = -node
        elif op == "select":
            node = S.where(node > leaf(), node, leaf())
        else:
            node = S.apply(op, node, leaf())
    return node, inputs


@settings(max_examples=400, deadline=None)
@given(expressions())
def test_no_value_lies_outside(case) -> None:
    node, inputs = case
    values = S.evaluate(node, inputs)
    low, high = span(node)
    assert low <= int(values.min()) and int(values.max()) <= high
    assert ends(node.dtype)[0] <= low and high <= ends(node.dtype)[1]


@settings(max_examples=80, deadline=None)
@given(expressions(), st.sampled_from(["lt", "ge"]), st.integers(-300, 300))
def test_a_settled_select_has_its_value(case, comparison, bound) -> None:
    node, inputs = case
    bound = min(max(bound, ends(node.dtype)[0]), ends(node.dtype)[1])
    limit = S.constant(bound, node.dtype)
    choice = S.cast(S.where(S.apply(comparison, node, limit), node, limit), np.dtype("int64"))
    found = settled(choice)
    np.testing.assert_array_equal(S.evaluate(found, inputs), S.evaluate(choice, inputs))
    low, high = span(node)
    assert (found is not choice) == (bound <= low or bound > high)


def operations(function, *arguments) -> list[str]:
    (group,) = fuser.jit(function).lower(*arguments).plan.groups
    return [node.op for node in lower(group).nodes]


@pytest.mark.parametrize(
    ("mask", "clamps"),
    [
        (lambda i: i & 255, 0),
        (lambda i: i.astype("uint8"), 0),
        (lambda i: i >> jnp.uint32(24), 0),
        (lambda i: i & 511, 1),
    ],
    ids=["and", "cast", "shift", "too wide"],
)
def test_an_index_that_is_inside_is_not_clamped(mask, clamps) -> None:
    table, places = np.arange(256, dtype=np.float32), np.arange(0, 2**31, 2**24, dtype=np.uint32)
    take = lambda table, i: table.at[mask(i)].get(mode="clip")
    assert operations(take, table, places).count("min") == clamps
    assert operations(take, table, places).count("max") == 0  # unsigned
    expected = table[np.minimum(np.asarray(mask(jnp.asarray(places))), 255)]
    np.testing.assert_array_equal(fuser.jit(take)(table, places), expected)


@pytest.mark.parametrize("size", [1, 2, 7, 64, 7057])
def test_searches_need_no_clamps(size) -> None:
    """The place of a search is inside the table whatever it compares."""
    found = operations(jnp.searchsorted, np.zeros(size, np.float32), np.zeros(1000, np.float32))
    assert not {"min", "max"} & set(found)
    assert found.count("select") == size.bit_length()  # one a step, and none that would wrap a negative place


def test_a_place_that_is_not_negative_is_not_wrapped() -> None:
    table, places = np.zeros(100, np.float32), np.zeros(1000, np.int32)
    assert "select" not in operations(lambda t, i: t[jnp.clip(i, 0, 99)], table, places)
    assert "select" in operations(lambda t, i: t[jnp.clip(i, -1, 99)], table, places)
