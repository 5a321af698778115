"""Lists that loops append to, comprehensions and sums of them, staged whole: values, kinds, shared memory and effects against NumPy."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.interop import accelerate
from tests.interop import random_lists

R = np.random.default_rng(11)
X = R.standard_normal((150, 8))
LINE = R.standard_normal(700)
COUNT = R.integers(0, 9, 300)


def moving_mean(x, w):
    return np.array([x[i : i + w].mean() for i in range(len(x) - w)])


def moving_spread(x, w):
    found = []
    for i in range(len(x) - w):
        found.append(x[i : i + w].std())
    return np.array(found)


def behind(x, w):
    found = []
    for i in range(w, len(x)):
        found.append(x[i - w : i].max() - x[i - w])
    return found


def frames(x, n):
    return np.array([x[i : i + n] for i in range(0, len(x) - n, n // 4)]) * np.hanning(n)


def norms(x):
    return np.array([np.linalg.norm(row) for row in x]), len(x)


def columns(x):
    return np.stack([(c - c.mean()) / c.std() for c in x.T], 1)


def stacked(x):
    return np.vstack([row / np.linalg.norm(row) for row in x]), np.stack([row * 2 for row in x], axis=-1)


def joined(x):
    parts = [row * row for row in x]
    return np.concatenate(parts), np.hstack(parts), np.column_stack(parts)


def distances(x, y):
    return np.array([[np.abs(a - b).sum() for b in y] for a in x])


def nested(x):
    result = []
    for i in range(len(x)):
        row = []
        for j in range(x.shape[1]):
            row.append(x[i, j] * 2 + j)
        result.append(row)
    return np.array(result)


def pairs(x):
    return np.array([(row.min(), row.max()) for row in x])


def two_lists(x):
    first, second = [], []
    for i in range(1, len(x)):
        first.append(x[i] - x[i - 1])
        second.append(x[i] * 2)
    return np.array(first), np.mean(second), max(first), min(second)


def recurrence(x):
    state, found = 0.0, []
    for value in x:
        state = 0.5 * state + value
        found.append(state)
    return np.array(found)


def items_of_a_list(x):
    found = [row.sum() for row in x]
    return found[3], found[-1], found[2:5], len(found), found


def arrays_of_a_list(x):
    found = [row * 2 for row in x]
    found[3][0] = 7.0
    found[5] += 1.0
    return np.array(found), found[3]


def integers(x):
    return np.array([int(v) * 3 for v in x]), [i * 2 for i in range(40)]


def dot_products(x, y):
    return sum((a * b).sum() for a, b in zip(x, y))


def total(x):
    return sum(np.sin(k * x) / k for k in range(1, 300))


def enumerated(x):
    return [(i, i * row.sum()) for i, row in enumerate(x)]


def of_both(x):
    found = [1.5, 2.5]
    for value in x:
        found.append(value)
    return np.array(found)


def joined_flat(x):
    parts = [row * row for row in x]
    return np.concatenate(parts, axis=None), np.concatenate(parts, axis=-1), np.stack(parts, axis=-2)


def percentiles(x):
    return np.percentile([row.mean() for row in x], [5, 95])


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "moving mean": (moving_mean, (LINE, 20)),
    "moving spread": (moving_spread, (LINE, 20)),
    "windows behind": (behind, (LINE, 5)),
    "frames": (frames, (LINE, 64)),
    "norms": (norms, (np.tile(X, (4, 1)),)),
    "columns": (columns, (X.T.copy(),)),
    "stacked": (stacked, (np.tile(X, (2, 1)),)),
    "joined": (joined, (np.tile(X, (3, 1)),)),
    "distances": (distances, (X[:30], X[30:60])),
    "nested": (nested, (X[:60],)),
    "pairs": (pairs, (np.tile(X, (2, 1)),)),
    "two lists": (two_lists, (LINE,)),
    "recurrence": (recurrence, (LINE,)),
    "items of a list": (items_of_a_list, (np.tile(X, (3, 1)),)),
    "arrays of a list": (arrays_of_a_list, (np.tile(X, (3, 1)),)),
    "integers": (integers, (COUNT,)),
    "dot products": (dot_products, (np.tile(X, (2, 1)), np.tile(X, (2, 1)))),
    "total": (total, (LINE[:50],)),
    "enumerated": (enumerated, (np.tile(X, (3, 1)),)),
    "joined flat": (joined_flat, (np.tile(X, (3, 1)),)),
    "percentiles": (percentiles, (np.tile(X, (4, 1)),)),
}


@pytest.mark.parametrize("name", CASES)
def test_lists_are_numpys(name: str) -> None:
    function, arguments = CASES[name]
    accelerated = accelerate(function, measure=False)
    wanted = function(*arguments)
    for _ in range(2):
        agree(accelerated(*arguments), wanted)
    assert "compiled whole" in accelerated.explain()


def agree(found: Any, wanted: Any) -> None:
    """The same containers, types and dtypes, and values to rounding."""
    assert type(found) is type(wanted)
    if wanted is None:
        return
    if isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted):
            agree(a, b)
        return
    if isinstance(wanted, (np.ndarray, np.generic)):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["moving mean", "nested", "pairs", "distances"])
def test_an_iteration_is_traced_once(name: str) -> None:
    function, arguments = CASES[name]
    graph = accelerate(function, measure=False).trace(*arguments).graph
    assert len(graph.eqns) < 80


# Lists whose items share memory with each other, with variables or with arguments: never another result than NumPy's.


def one_buffer(x):
    found, buffer = [], np.zeros(8)
    for row in x:
        buffer += row
        found.append(buffer)
    return np.array(found)


def carried(x):
    found, state = [], np.zeros(8)
    for row in x:
        state = state * 0.5 + row
        found.append(state)
    state[0] = 100.0
    return np.array(found)


def written_later(x):
    found = [row for row in x]  # noqa: C416
    x[3] = 5.0
    return np.array(found)


def write_through(x):
    found = [row for row in x]  # noqa: C416
    found[3][:] = 5.0
    return x


def one_item_twice(x):
    first, second = [], []
    for row in x:
        value = row * 2
        first.append(value)
        second.append(value)
    first[4][:] = 9.0
    return np.array(second)


def before_a_write(x):
    found = []
    for i in range(len(x)):
        value = x[i] * 2
        found.append(value)
        value[0] = i
    return np.array(found)


def last_of_before(x):
    found, value = [], np.zeros(8)
    for i in range(len(x)):
        found.append(value)
        value = x[i] * 2
        value[1] = i
    value[2] = 77.0
    return np.array(found), value


def length_inside(x):
    found = []
    for row in x:
        found.append(row.sum() * len(found))
    return np.array(found)


def chosen(x):
    found = []
    for row in x:
        if row[0] > 0:
            found.append(row.sum())
    return np.array(found)


def until(x):
    found = []
    for row in x:
        found.append(row.sum())
        if row[0] > 2:
            break
    return np.array(found)


def nothings(x):
    found, total = [], 0.0
    for row in x:
        found.append(None)
        total += row[0]
    return found, [() for row in x], total


def of_different_shapes(x):
    return [row[: i % 3] for i, row in enumerate(x)]


@pytest.mark.parametrize(
    "function",
    [
        of_both,
        one_buffer,
        carried,
        written_later,
        write_through,
        one_item_twice,
        before_a_write,
        last_of_before,
        length_inside,
        chosen,
        until,
        of_different_shapes,
        nothings,
    ],
)
def test_memory_and_lengths_are_numpys(function: Callable[..., Any]) -> None:
    given = LINE if function is of_both else np.tile(X, (4, 1))
    wanted_given, found_given = given.copy(), given.copy()
    wanted = function(wanted_given)
    accelerated = fuser.accelerate(function)
    for _ in range(3):
        found_given = given.copy()
        agree(accelerated(found_given), wanted)
        np.testing.assert_array_equal(found_given, wanted_given)


def test_a_nan_in_a_list_is_where_python_finds_it() -> None:
    def extremes(x):
        found = [value * 2 for value in x]
        return max(found), min(found)

    accelerated = accelerate(extremes, measure=False)
    for place in (0, 5, 300):
        x = np.abs(LINE) + 1
        x[place] = np.nan
        with np.errstate(invalid="ignore"):
            agree(accelerated(x), extremes(x))


# Views between computed positions.


def doubled_positions(x):
    out = np.zeros(100)
    for i in range(100):
        k = i
        for _ in range(14):
            k = k + k
        out[i] = x[i : i + 3].sum() + 0 * k + x[k - k + i : k - k + i + 2].sum()
    return out


def written_windows(x):
    y = np.zeros(4 * len(x) + 20)
    for i in range(len(x)):
        y[4 * i : 4 * i + 6] += x[i]
        y[2 * i + 3 : 2 * i + 9 : 2] *= 0.5
    return y


def blocks(x, b):
    out = np.zeros((x.shape[0] // b, x.shape[1] // b))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = x[i * b : (i + 1) * b, j * b : (j + 1) * b].std()
    return out


def beyond_the_end(x, w):
    out = np.zeros(len(x))
    for i in range(len(x)):
        out[i] = x[i : i + w].sum()
    return out


def before_the_start(x, w):
    out = np.zeros(len(x))
    for i in range(len(x)):
        out[i] = x[i - w : i].sum()
    return out


def in_steps(x):
    out = np.zeros(200)
    for i in range(200):
        out[i] = x[i : i + 9 : 3].sum()
    return out


@pytest.mark.parametrize(
    "function, arguments",
    [
        (written_windows, (LINE,)),
        (blocks, (R.standard_normal((48, 60)), 4)),
        (beyond_the_end, (LINE, 9)),
        (before_the_start, (LINE, 9)),
        (in_steps, (LINE,)),
        (doubled_positions, (LINE,)),
    ],
)
def test_windows_at_computed_positions_are_numpys(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    accelerated = accelerate(function, measure=False)
    for _ in range(2):
        agree(accelerated(*arguments), function(*arguments))
    assert "compiled whole" in accelerated.explain()


def epidemic(rate, recovery, n):
    susceptible, infected = [990.0], [10.0]
    for _ in range(n):
        new = rate * susceptible[-1] * infected[-1] / 1000
        susceptible.append(susceptible[-1] - new)
        infected.append(infected[-1] + new - recovery * infected[-1])
    return np.array(susceptible), np.array(infected)


def smoothed(x):
    found = [x[0]]
    for value in x[1:]:
        found.append(0.1 * value + 0.9 * found[-1])
    return np.array(found)


def orbit(x, n):
    found = [x]
    for _ in range(n):
        found.append(3.7 * found[-1] * (1 - found[-1]))
    return np.array(found), found[-1]


def accumulated(x):
    total, found = 0.0, []
    for value in x:
        found.append(value * 2)
        total = total + found[-1]
    return np.array(found), total


def changed_at_the_end(x, n):
    found = [x]
    for _ in range(n):
        found[-1][0] += 0.5
        found.append(found[-1] * 0.9)
    return np.array(found)


def the_same_item(x, n):
    found = [x]
    for _ in range(n):
        last = found[-1]
        last *= 0.99
        found.append(last)
    return np.array(found)


@pytest.mark.parametrize(
    "function, arguments, staged",
    [
        (epidemic, (0.3, 0.1, 400), True),
        (smoothed, (LINE,), True),
        (orbit, (X[0] % 1, 200), True),
        (accumulated, (LINE,), True),
        (changed_at_the_end, (X[0], 60), False),
        (the_same_item, (X[0], 60), False),
    ],
)
def test_a_loop_may_read_the_last_item_of_a_list(
    function: Callable[..., Any], arguments: tuple[Any, ...], staged: bool
) -> None:
    accelerated = accelerate(function, measure=False)
    for _ in range(2):
        given, own = copy.deepcopy(arguments), copy.deepcopy(arguments)
        agree(accelerated(*given), function(*own))
        agree(given, own)
    assert "compiled whole" in accelerated.explain()
    if staged:
        assert len(accelerated.trace(*arguments).graph.eqns) < 100


def test_the_last_item_of_an_empty_list_is_pythons_error() -> None:
    def read(x):
        found = []
        for value in x:
            found.append(found[-1] + value)
        return found

    with pytest.raises(IndexError):
        accelerate(read)(LINE)


def test_random_lists(tmp_path: pathlib.Path) -> None:
    for seed, (source, function) in enumerate(random_lists.functions(range(20), str(tmp_path))):
        words = random_lists.difference(function, seed)
        assert words is None, f"{source}\n{words}"
