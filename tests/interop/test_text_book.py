"""Text-book algorithms with loops over elements, as they are written: one program each, with NumPy's values, types and effects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import accelerate
from tests.interop.random_loops import functions
from tests.interop.test_control import agrees

R = np.random.default_rng(3)
A = R.standard_normal((20, 20))
POSITIVE = A @ A.T + 20 * np.eye(20)


def bubble_sort(x):
    n = len(x)
    for i in range(n):
        for j in range(n - 1 - i):
            if x[j] > x[j + 1]:
                x[j], x[j + 1] = x[j + 1], x[j]
    return x


def insertion_sort(x):
    for i in range(1, len(x)):
        key, j = x[i], i - 1
        while j >= 0 and x[j] > key:
            x[j + 1] = x[j]
            j -= 1
        x[j + 1] = key
    return x


def cholesky(a):
    n = len(a)
    lower = np.zeros_like(a)
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s -= lower[i, k] * lower[j, k]
            if i == j:
                lower[i, j] = np.sqrt(s)
            else:
                lower[i, j] = s / lower[j, j]
    return lower


def back_substitution(u, b):
    n = len(b)
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        s = b[i]
        for j in range(i + 1, n):
            s -= u[i, j] * x[j]
        x[i] = s / u[i, i]
    return x


def thomas(a, b, c, d):
    n = len(d)
    upper, x = np.zeros(n), np.zeros(n)
    upper[0], x[0] = c[0] / b[0], d[0] / b[0]
    for i in range(1, n):
        pivot = b[i] - a[i] * upper[i - 1]
        upper[i] = c[i] / pivot
        x[i] = (d[i] - a[i] * x[i - 1]) / pivot
    for i in reversed(range(n - 1)):
        x[i] -= upper[i] * x[i + 1]
    return x


def running_sum(x):
    total, out = 0.0, np.zeros(len(x))
    for i, v in enumerate(x):
        total += v
        out[i] = total
    return out


def inner(x, y):
    total = 0.0
    for a, b in zip(x, y):
        total += a * b
    return total


def horner(coefficients, x):
    result = 0.0
    for c in reversed(coefficients):
        result = result * x + c
    return result


def normalises_rows(m):
    for row in m:
        row /= row.sum()
    return m


def first_above(x, limit):
    for i, v in enumerate(x):
        if v > limit:
            return i
    return -1


def largest_or_weighted(rows, weights):
    out = np.zeros(len(rows))
    for i, (row, weight) in enumerate(zip(rows, weights)):
        out[i] = (row * weight).sum() if weight > 0 else row.max()
    return out


def zero_pairs(x):
    count = 0
    for i in range(len(x)):
        for j in range(i):
            if x[i] + x[j] == 0:
                count += 1
    return count


def knapsack(weights, values, capacity):
    best = np.zeros(capacity + 1)
    for weight, value in zip(weights, values):
        for j in range(capacity, weight - 1, -1):
            best[j] = max(best[j], best[j - weight] + value)
    return best[capacity]


def with_functions_of_its_own(x):
    def smoothed(y, a):
        result = y.copy()
        for t in range(1, len(y)):
            if y[t] > 0:
                result[t] = a * y[t] + (1 - a) * result[t - 1]
            else:
                result[t] = result[t - 1]
        return result

    def total(y):
        s = 0.0
        for v in y:
            if v < 0:
                continue
            if v > 100:
                break
            s += v
        return s

    return smoothed(x, 0.3), total(x)


def single_precision(x, n):
    s = np.float32(0)
    for k in range(np.int64(n)):  # gives Python's integers, which leave float32 what it is
        s = s + x[k] * np.float32(2) * k
    return s


CASES: list[tuple[Any, tuple[Any, ...]]] = [
    (bubble_sort, (R.standard_normal(24),)),
    (insertion_sort, (R.standard_normal(30),)),
    (cholesky, (POSITIVE,)),
    (back_substitution, (np.triu(POSITIVE), R.random(20))),
    (thomas, (R.random(60), R.random(60) + 9, R.random(60), R.random(60))),
    (running_sum, (R.standard_normal(450),)),
    (inner, (R.standard_normal(500), R.standard_normal(450))),
    (horner, (R.standard_normal(450), 0.9)),
    (normalises_rows, (R.random((450, 3)),)),
    (first_above, (np.linspace(0, 1, 300), 0.7)),
    (first_above, (np.linspace(0, 1, 300), 1.7)),
    (largest_or_weighted, (R.random((60, 5)), R.standard_normal(60))),
    (zero_pairs, (R.integers(-9, 9, 40),)),
    (knapsack, (R.integers(1, 9, 20), R.random(20), 60)),
    (with_functions_of_its_own, (R.standard_normal(400),)),
    (single_precision, (R.random(450).astype(np.float32), 450)),
]


@pytest.mark.parametrize(("function", "arguments"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_algorithms_are_one_program(function: Any, arguments: tuple[Any, ...]) -> None:
    accelerated = accelerate(function, fallback="error", backend="reference")
    for _ in range(2):
        agrees(accelerated, function, arguments)
    assert "compiled whole" in accelerated.explain()


@pytest.mark.parametrize("function", [bubble_sort, thomas, with_functions_of_its_own], ids=lambda f: f.__name__)
def test_kernels_agree(function: Any) -> None:
    accelerated = accelerate(function, fallback="error", measure=False)
    for _ in range(2):
        agrees(accelerated, function, dict(CASES)[function])


def test_a_range_that_values_empty() -> None:
    """Without an iteration variables stay what they were, unbound ones too."""

    def last(x):
        found = None
        for j in range(int(x[0])):
            found = j
        return found

    def unbound(x):
        for j in range(int(x[0])):  # noqa: B007
            pass
        return j

    for function in (last, unbound):
        accelerated = accelerate(function, backend="reference", measure=False)
        agrees(accelerated, function, (np.array([3.0, 5.0]),))
    assert accelerate(last, backend="reference", measure=False)(np.array([0.0])) is None
    with pytest.raises(UnboundLocalError):
        accelerate(unbound, backend="reference", measure=False)(np.array([0.0]))


def test_errors_of_ranges_are_pythons() -> None:
    def of_floats(x):
        s = 0.0
        for j in range(x[0]):
            s += j
        return s

    def of_step_zero(x):
        s = 0.0
        for j in range(0, int(x[0]), 0):
            s += j
        return s

    for function, error, words in (
        (of_floats, TypeError, "cannot be interpreted as an integer"),
        (of_step_zero, ValueError, "must not be zero"),
    ):
        with pytest.raises(error, match=words):
            accelerate(function, backend="reference", measure=False)(np.array([4.0]))


def test_what_is_written_while_a_loop_goes_over_it() -> None:
    def shifts(x):
        for i, v in enumerate(x):
            if i + 1 < len(x):
                x[i + 1] = 0.5 * x[i + 1] + v
        return x

    accelerated = accelerate(shifts, backend="reference", measure=False)
    agrees(accelerated, shifts, (R.random(300),))
    agrees(accelerated, shifts, (R.random(300),))


def test_names_that_hide_pythons_own() -> None:
    def reads(x):
        def zip(a, b):
            return [a, b]

        s = 0.0
        for part in zip(x[:3], x[3:6]):
            if part.sum() > 1:
                s += part[0]
        return s

    accelerated = accelerate(reads, backend="reference", measure=False)
    for _ in range(2):
        agrees(accelerated, reads, (R.random(40),))


def test_random_loops_over_sequences(tmp_path: Any) -> None:
    whole = 0
    for seed, function in enumerate(functions(range(24), str(tmp_path), sequences=True)):
        accelerated = accelerate(function, backend="reference", measure=False)
        random = np.random.default_rng(seed)
        for scale in (1.0, 1.5):
            with np.errstate(all="ignore"):
                agrees(accelerated, function, (scale * random.random(19), random.random(19), 0.45))
        whole += "compiled whole" in accelerated.explain()
    assert whole >= 6
