"""Programs that update arrays which are given away: functions of the array module, of the module with loops and of the arrays.

The first result takes over the first array's memory. All write little of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ROWS, COLUMNS = 300, 250
X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
ROW = np.arange(COLUMNS, dtype=np.float32)
MATRIX = np.random.default_rng(1).standard_normal((COLUMNS, COLUMNS)).astype(np.float32) / 16
PLACES = np.array([3, -2, 299, 3, 500, 7], np.int32)
LINE = np.arange(1 << 15, dtype=np.float32)
CACHE = np.random.default_rng(2).standard_normal((2, 64, 3, 50)).astype(np.float32)  # batch, positions, heads, features


def _into(lib: Any, x: Any, value: Any, *starts: Any) -> Any:
    return lib.dynamic_update_slice(x, value, starts)


def _row(lib: Any, x: Any, i: Any) -> Any:
    return lib.dynamic_slice(x, (i, 0), (1, x.shape[1]))


def _normalised(row: Any) -> Any:
    return row / (row * row).sum(1, keepdims=True)


def _column_and_quotients(lib: Any, x: Any, y: Any) -> Any:
    column = lib.dynamic_slice(x, (0, 3), (len(x), 1))
    return _into(lib, x, column * 2, 0, 3), y / (y.sum(1, keepdims=True) * (column + 5))


def _while(lib: Any, x: Any, m: Any) -> Any:
    step = lambda c: (c[0] + 1, c[1].at[c[0] * 2].set(c[1][c[0]] @ m))
    return lib.while_loop(lambda c: c[0] < 20, step, (0, x))[1]


def _scan(lib: Any, x: Any, m: Any) -> Any:
    def step(c: Any, k: Any) -> Any:
        return (c[0].at[k].add(c[1]), c[1] @ m), c[0][k].sum()

    (x, _), sums = lib.scan(step, (x, m[0]), np.arange(0, 40, 2, dtype=np.int32))
    return x, sums


def _choices(lib: Any, x: Any, m: Any) -> Any:
    """Loops in choices in a loop."""

    def step(k: Any, x: Any) -> Any:
        once = lambda x: _into(lib, x, (x[k] @ m)[None], k, 0)
        often = lambda x: lib.fori_loop(0, 3, lambda j, x: x.at[j + 3 * k].add(x[j] @ m), x)
        return lib.switch(k % 3, [once, often, lambda x: x], x)

    return lib.fori_loop(0, 15, step, x)


def _swapped(lib: Any, x: Any, m: Any) -> Any:
    """What no step can leave where it is."""
    return lib.fori_loop(0, 5, lambda k, c: (c[1], c[0].at[k].set(c[1][k] @ m)), (x, x * 2))


def _both_caches(lib: Any, np_: Any, keys: Any, values: Any, i: Any, k: Any, v: Any, q: Any) -> Any:
    """A step of decoding: new keys and values, and attention to all that are there."""
    keys, values = (_into(lib, c, new[:, None], 0, i, 0, 0) for c, new in ((keys, k * 2), (values, v + 1)))
    scores = np_.einsum("bhd,bshd->bhs", q, keys)
    weights = np_.exp(np_.where(np_.arange(keys.shape[1]) <= i, scores, -np_.inf))
    return keys, values, np_.einsum("bhs,bshd->bhd", weights / weights.sum(-1, keepdims=True), values)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "row at an index": (lambda np_, lib: lambda x, i, y: x.at[i].set(y), (X, np.int32(-7), ROW)),
    "row at an index outside": (lambda np_, lib: lambda x, i, y: x.at[i].add(y), (X, np.int32(1000), ROW)),
    "column of a number": (lambda np_, lib: lambda x: x.at[:, 3].set(1.0), (X,)),
    "window of what is computed": (
        lambda np_, lib: lambda x, y, i: _into(lib, x, y[:55, :63] * 2 + 1, i, i + 1),
        (X, X[:60] + 1, np.int32(7)),
    ),
    "update that is moved inside": (lambda np_, lib: lambda x, y: _into(lib, x, y, 280, -5), (X, X[:50, :20] * 2)),
    "row of another one": (lambda np_, lib: lambda x, i: x.at[i].set(x[i + 1] * 2 + x[i]), (X, np.int32(9))),
    "means of rows": (lambda np_, lib: lambda x, y: x.at[2:62, 7].set(y.mean(1)), (X, X[:60] + 1)),
    "row that is normalised too": (  # which a later sweep of its kernel reads again
        lambda np_, lib: lambda x, i: (_into(lib, x, _row(lib, x, i) * 2, i, 0), _normalised(_row(lib, x, i))),
        (np.ascontiguousarray(np.tile(X, (1, 80))[:4]), np.int32(2)),
    ),
    "column that all iterations read": (  # of long rows, of which several programs take a part each
        lambda np_, lib: lambda x, y: _column_and_quotients(lib, x, y),
        (X[:, :220], np.tile(X + 3, (1, 40))),
    ),
    "whole numbers": (
        lambda np_, lib: lambda x, i: x.at[i, i + 1].multiply(3),
        ((X * 100).astype(np.int32), np.int32(7)),
    ),
    "complex numbers": (
        lambda np_, lib: lambda x, i: x.at[i].multiply(2 + 1j),
        ((X + 1j * X[::-1]).astype(np.complex64), np.int32(7)),
    ),
    "rows at indices": (lambda np_, lib: lambda x, i: x.at[i].add(1.5), (X, PLACES)),
    "rows at indices, replaced": (lambda np_, lib: lambda x, i: x.at[i].set(i[:, None] * 1.0), (X, PLACES)),
    "rows at indices, the largest": (lambda np_, lib: lambda x, i: x.at[i].max(0.5), (X, PLACES)),
    "elements of a line": (lambda np_, lib: lambda x, i: x.at[i * 50].add(2.5), (LINE, PLACES)),
    "two": (lambda np_, lib: lambda x, y: x.at[3].set(y).at[:, 5].add(2.0), (X, ROW)),
    "rows, then a window": (lambda np_, lib: lambda x, i, y: x.at[i].add(1.5).at[3].set(y), (X, PLACES, ROW)),
    "what others read before and after": (
        lambda np_, lib: lambda x, y: ((new := x.at[9].set(y)), x.sum(), new[:20].sum(), x[8:11] * 2),
        (X, ROW),
    ),
    "by a while": (lambda np_, lib: lambda x, m: _while(lib, x, m), (X, MATRIX)),
    "by a scan with results": (lambda np_, lib: lambda x, m: _scan(lib, x, m), (X, MATRIX)),
    "by loops in choices in a loop": (lambda np_, lib: lambda x, m: _choices(lib, x, m), (X, MATRIX)),
    "rows by a loop": (
        lambda np_, lib: (
            lambda x, i, m: lib.fori_loop(0, 6, lambda k, x: x.at[i + k].add((x[k] @ m)[None].repeat(6, 0)), x)
        ),
        (X, PLACES, MATRIX),
    ),
    "a choice": (
        lambda np_, lib: lambda x, i: lib.cond(i > 0, lambda x: _into(lib, x, x[:1] * 2, i, 0), lambda x: x, x),
        (X, np.int32(7)),
    ),
    "a choice that leaves it": (
        lambda np_, lib: lambda x, i: lib.cond(i > 0, lambda x: _into(lib, x, x[:1] * 2, i, 0), lambda x: x, x),
        (X, np.int32(-7)),
    ),
    "a step of decoding": (
        lambda np_, lib: lambda keys, values, *rest: _both_caches(lib, np_, keys, values, *rest),
        (CACHE, CACHE * 2, np.int32(40), CACHE[:, 0], CACHE[:, 1], CACHE[:, 2]),
    ),
}
# Those of which the array is needed as it was, so that it is copied; the values count.
COPIED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "swapped in each step": (lambda np_, lib: lambda x, m: _swapped(lib, x, m), (X, MATRIX)),
    "row of the array as it was": (lambda np_, lib: lambda x: (x.at[3].set(x[2]), x), (X,)),
    "most of it": (lambda np_, lib: lambda x: x.at[1:].multiply(2.0).at[3].add(1.0), (X,)),
}


def leaves(results: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in (results if isinstance(results, tuple) else (results,))]
