"""Slices whose one end is computed, in loops: `x[:i]`, `a[k + 1 :, k:] -= np.outer(...)`. They broadcast, multiply and are written as NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser.interop import accelerate
from tests.interop.oracle import agree, same

N = 24
RANDOM = np.random.default_rng(0)
A = RANDOM.normal(size=(N, N)) + 6 * np.eye(N)
B = RANDOM.normal(size=N)
SYMMETRIC = A @ A.T


def solved(a: Any, b: Any) -> Any:
    """Gaussian elimination with pivots, and back substitution."""
    a, b = a.copy(), b.copy()
    n = len(b)
    for k in range(n - 1):
        p = k + np.argmax(np.abs(a[k:, k]))
        if p != k:
            a[[k, p]] = a[[p, k]]
            b[[k, p]] = b[[p, k]]
        factors = a[k + 1 :, k] / a[k, k]
        a[k + 1 :, k:] -= np.outer(factors, a[k, k:])
        b[k + 1 :] -= factors * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return x


def factored(a: Any, b: Any) -> Any:
    u, lower = a.copy(), np.eye(len(a))
    for k in range(len(a) - 1):
        lower[k + 1 :, k] = u[k + 1 :, k] / u[k, k]
        u[k + 1 :, k:] -= lower[k + 1 :, k][:, None] * u[k, k:]
        u[k + 1 :, k] = 0
    return lower, u


def cholesky(a: Any, b: Any) -> Any:
    a = a @ a.T
    lower = np.zeros_like(a)
    for j in range(len(a)):
        lower[j, j] = np.sqrt(a[j, j] - np.sum(lower[j, :j] ** 2))
        lower[j + 1 :, j] = (a[j + 1 :, j] - lower[j + 1 :, :j] @ lower[j, :j]) / lower[j, j]
    return lower


def substituted(a: Any, b: Any) -> Any:
    x = np.zeros_like(b)
    for i in range(len(b)):
        x[i] = (b[i] - np.dot(a[i, :i], x[:i])) / a[i, i]
    return x


def cut_columns(a: Any, b: Any) -> Any:
    out = np.zeros((len(a), 6))
    for k in range(len(a)):
        block = a[k:, : k + 1]
        out[k] = (
            block.sum(),
            block.sum(axis=1).max(),
            block.mean(axis=0).min(),
            np.linalg.norm(a[k:, k]),
            b[k:][0],
            b[: k + 1][-1],
        )
    return out


def from_the_end(a: Any, b: Any) -> Any:
    out = np.zeros((len(b), 4))
    for k in range(1, len(b)):
        out[k] = b[-k:].sum(), b[:-k].sum(), b[2:k].sum(), np.argmin(b[-k:])
    return out


def between(a: Any, b: Any) -> Any:
    total = np.zeros(len(b))
    for i in range(len(b)):
        for j in range(i, len(b)):
            total[i] = max(total[i], b[i:j].sum())
    return total


def rows_written(a: Any, b: Any) -> Any:
    for k in range(len(a)):
        a[k, k:] = 1.5
        a[:k, k] *= b[:k]
        part = a[k:, 0]
        part += 1
    return a


def reflected(a: Any, b: Any) -> Any:
    r = a.copy()
    for k in range(len(a) - 1):
        v = r[k:, k].copy()
        norm = np.linalg.norm(v)
        r[k:, k:] -= np.outer(v, v @ r[k:, k:]) / (norm * norm + 1)
    return r


CASES = [solved, factored, cholesky, substituted, cut_columns, from_the_end, between, rows_written, reflected]


@pytest.mark.parametrize("function", CASES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_open_slices(function: Callable[..., Any], order: Any) -> None:
    agree(function, np.asarray(A, order=order), B, backend="c", tolerance=1e-9)
    compiled = accelerate(function, measure=False)
    compiled(A.copy(), B.copy())
    assert "compiled whole" in compiled.explain()


@pytest.mark.parametrize("function", CASES)
def test_open_slices_of_single_precision_and_views(function: Callable[..., Any]) -> None:
    wide = np.zeros((2 * N, 2 * N))
    wide[::2, ::2] = A
    agree(function, wide[::2, ::2], B[::-1], backend="c", tolerance=1e-9)
    agree(function, A.astype(np.float32), B.astype(np.float32), backend="c", tolerance=2e-3)


def test_what_a_slice_does_not_have_is_no_event() -> None:
    def logs(a: Any, b: Any) -> Any:
        out = np.zeros(len(b))
        for i in range(1, len(b)):
            out[i] = np.log(b[:i]).sum() + (1 / b[:i]).max()
        return out

    positive = np.append(np.abs(B), 0.0)
    agree(logs, A, positive, backend="c")


def test_slices_of_other_extents_are_numpys_error() -> None:
    def wrong(a: Any, b: Any) -> Any:
        total = 0.0
        for k in range(len(b)):
            total += (b[k:] + b[k + 1 :]).sum()
        return total

    with pytest.raises(ValueError, match="could not be broadcast"):
        accelerate(wrong, measure=False)(A, B)


def test_swaps_by_lists_of_computed_rows() -> None:
    def sorted_rows(a: Any, b: Any) -> Any:
        for k in range(len(b)):
            p = k + np.argmin(b[k:])
            a[[k, p]] = a[[p, k]]
            b[[k, p]] = b[[p, k]]
        return a, b

    agree(sorted_rows, A, B, backend="c")


def test_tests_that_assign() -> None:
    def settled(a: Any, b: Any) -> Any:
        x, rounds = np.zeros_like(b), 0
        while (error := np.abs(step := (b - a @ x) / 20).max()) > 1e-6 and rounds < 500:
            x = x + step
            rounds += 1
            if (most := x.max()) > 100:
                x = x / most
        return x, error

    compiled = accelerate(settled, measure=False)
    same(compiled(SYMMETRIC / 30, B), settled(SYMMETRIC / 30, B), tolerance=1e-9)
    assert "compiled whole" in compiled.explain()
