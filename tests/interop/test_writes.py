"""What an accelerated function writes to the caller's arrays: arguments, attributes, containers, globals, and views of them."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fuser import accelerate
from fuser.errors import UnsupportedError


@dataclass
class Body:
    position: np.ndarray
    velocity: np.ndarray
    parts: dict[str, Any] = field(default_factory=dict)


def drift(body, dt):
    body.velocity *= 0.5
    body.position[1:-1] += dt * body.velocity[1:-1]
    body.parts["energy"][0] = (body.velocity**2).sum()
    return body.position


def descend(parameters, rates):
    for name, rate in rates.items():
        parameters[name] -= rate * parameters[name]
    parameters["layers"][0][::2] = 0


def exchange(matrix, i, j):
    matrix[[i, j]] = matrix[[j, i]]
    matrix[i] *= -1
    matrix[:, 0] = 7


def scatter(table, index, rows):
    table[index] = rows
    table[index, 0] += 1
    table[-1] = table[0]


def borders(image):
    edges = [image[:1], image[-1:], image[:, :2], image.T[-2:]]
    for edge in edges:
        edge[...] = -1


def clear(image):
    for edge in image[:1], image[:, -2:][1:]:
        edge[...] = -1


def shift(buffer, new):
    buffer[: -len(new)] = buffer[len(new) :]
    buffer[-len(new) :] = new
    return buffer[::2]


def twice(u):
    u[1:-1] += u[2:]
    u[1:-1] -= u[:-2]
    u[0] = u[-1] = u[1]


def _body(size):
    return Body(np.arange(float(size)), np.ones(size), {"energy": np.zeros(1)})


CASES = {
    "attributes": (drift, lambda: (_body(1000), 0.1)),
    "small attributes": (drift, lambda: (_body(6), 0.1)),
    "items": (descend, lambda: ({"a": np.ones(4), "layers": [np.arange(9.0)]}, {"a": 0.5})),
    "rows by number": (exchange, lambda: (np.arange(12.0).reshape(4, 3), 0, 2)),
    "rows by arrays": (scatter, lambda: (np.zeros((9, 3)), np.array([3, 1, 3]), np.arange(9.0).reshape(3, 3))),
    "views of views": (borders, lambda: (np.arange(30.0).reshape(5, 6),)),
    "constants": (clear, lambda: (np.arange(30.0).reshape(5, 6),)),
    "Fortran order": (borders, lambda: (np.asfortranarray(np.arange(30.0).reshape(5, 6)),)),
    "overlapping": (shift, lambda: (np.arange(9), np.array([1, 2]))),
    "one region twice": (twice, lambda: (np.arange(9.0),)),
}


@pytest.mark.parametrize("name", CASES)
def test_writes_are_made_as_numpy_makes_them(name):
    function, make = CASES[name]
    ours, theirs = make(), make()
    accelerated = accelerate(function)
    for _ in range(3):
        found, wanted = accelerated(*ours), function(*theirs)
        np.testing.assert_equal(found, wanted)
        np.testing.assert_equal(_plain(ours), _plain(theirs))
    if isinstance(found, np.ndarray):  # shares memory with what the caller holds
        owner = ours[0].position if isinstance(ours[0], Body) else ours[0]
        assert np.shares_memory(found, owner)


def _plain(value):
    if isinstance(value, Body):
        return vars(value)
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def test_a_part_that_is_written_costs_the_part():
    x = np.arange(100_000.0).reshape(100, 1000)
    assert [v.aval.shape for v in accelerate(exchange).lower(x, 0, 2).traced.graph.outvars[:2]] == [(2, 1000), (1000,)]
    assert not accelerate(clear).lower(x).traced.graph.outvars  # constants take no kernel


TABLE = np.zeros(3)
LARGE = np.zeros(1000)


def test_arrays_outside_are_written():
    def count(index):
        TABLE[index] += 1
        LARGE[5:8] = TABLE
        return LARGE

    accelerated = accelerate(count)
    for times in (1, 2, 3):
        assert accelerated(np.array([0, 2])) is LARGE
        np.testing.assert_array_equal(TABLE, [times, 0, times])
        np.testing.assert_array_equal(LARGE[5:8], TABLE)


def test_aliases_are_left_to_numpy():
    def add(a, b):
        a[1:] += b[:-1]

    x = np.arange(8.0)
    y = x.copy()
    accelerate(add)(x, x)
    add(y, y)
    np.testing.assert_array_equal(x, y)


def test_an_attribute_that_is_bound_anew_is_refused():
    def rebind(body):
        body.position = body.position + 1

    body = _body(4)
    before = copy.deepcopy(body)
    with pytest.raises(UnsupportedError, match=r"setting body\.position, which the caller would see"):
        accelerate(rebind, fallback="error")(body)
    np.testing.assert_equal(vars(body), vars(before))


def swap(a, b):
    a[...], b[...] = b.copy(), a.copy()


def rotate(a, b, c):
    kept = a + 0
    a[...] = b
    b[...] = c * 1.5
    c[...] = kept
    return c.sum()


def overflowing(a, b):
    a *= b
    np.maximum(a, b, out=b)
    return a[::2]


LARGE_CASES = {"swap": (swap, 2), "rotate": (rotate, 3), "overflowing": (overflowing, 2)}


@pytest.mark.parametrize("name", LARGE_CASES)
def test_large_arrays_are_written_where_they_lie(name):
    """Also once a program with the arguments' memory has been made, and where it finds that NumPy must answer."""
    function, count = LARGE_CASES[name]
    rng = np.random.default_rng(0)
    ours = [rng.random(1 << 16) for _ in range(count)]
    theirs = copy.deepcopy(ours)
    accelerated = accelerate(function)
    for number in range(14):
        if number == 12:
            for arrays in (ours, theirs):
                arrays[0][5] = arrays[1][5] = 1e308  # of which the product overflows
        found, told = _told(accelerated, ours)
        wanted, warned = _told(function, theirs)
        np.testing.assert_equal(ours, theirs)
        np.testing.assert_allclose(found, wanted)
        assert told == warned == ([] if name != "overflowing" or number != 12 else ["overflow encountered in multiply"])


def _told(function, arrays):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*arrays)
    return 0 if result is None else result, [str(warning.message) for warning in caught][:1]


def keeps(x):
    before, part = x.copy(), x[2:].copy()
    x[0] = 5
    x[1:] *= 2
    return before, part, x[1:]


@pytest.mark.parametrize("size", [8, 1 << 16])
def test_copies_made_before_a_write_keep_what_was_there(size):
    ours, theirs = np.arange(float(size)), np.arange(float(size))
    accelerated = accelerate(keeps)
    for _ in range(12):
        found, wanted = accelerated(ours), keeps(theirs)
        np.testing.assert_equal(found, wanted)
        np.testing.assert_array_equal(ours, theirs)
        assert not np.shares_memory(found[0], ours) and np.shares_memory(found[2], ours)
        ours[:] = theirs[:] = np.arange(float(size))
        np.testing.assert_equal(found[0], wanted[0])
