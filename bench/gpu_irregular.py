"""Sorting, scattering, scans and loops on a GPU beside what torch (and CuPy, for keys alone) calls, for `bench.gpu`.

A case: name, function, arrays, the peer as a function of the same arrays as torch's tensors (None: none), the steps of a loop (0: no loop) and the
seconds that one may take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser import lax


@dataclass(frozen=True)
class Case:
    """`function(*arrays)`; `exact` where results are integers or moved numbers."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]
    peer: Callable[..., Any] | None = None
    exact: bool = False
    steps: int = 0
    at_most: float | None = None  # seconds a step


def cases(dry: bool) -> Iterator[Case]:
    """The cases, at small sizes in a dry run."""
    yield from _sorts(12 if dry else 27)
    yield from _scatters(12 if dry else 24, 64 if dry else 65536)
    yield from _loops(4 if dry else 1000)


def _sorts(log: int) -> Iterator[Case]:
    random = np.random.default_rng(1)
    size, part = 1 << log, 1 << (log - 3)
    keys = random.standard_normal(size, np.float32)
    yield Case(f"sort of 2^{log} float32", lambda x: fnp.sort(x), (keys,), _keys_alone, True)
    integers = random.integers(-(1 << 31), 1 << 31, part).astype(np.int32)
    yield Case(f"sort of 2^{log - 3} int32", lambda x: fnp.sort(x), (integers,), _keys_alone, True)
    stable = lambda torch: lambda x: torch.sort(x, stable=True)[1]
    yield Case(f"argsort of 2^{log - 3} int32", lambda x: fnp.argsort(x), (integers,), stable, True)
    yield Case(f"argsort of 2^{log - 6} int32", lambda x: fnp.argsort(x), (integers[: 1 << (log - 6)],), stable, True)
    rows = keys[:part].reshape(-1, 4096 if log > 20 else 16)
    top = min(64, rows.shape[1])
    of_rows = lambda torch: lambda x: torch.topk(x, top)[0]
    yield Case(f"largest {top} of rows of {rows.shape[1]}", lambda x: lax.top_k(x, top)[0], (rows,), of_rows, True)
    yield Case(f"largest {top} of 2^{log - 3}", lambda x: lax.top_k(x, top)[0], (keys[:part],), of_rows, True)
    short = keys[:part].reshape(-1, 256)
    few = lambda torch: lambda x: torch.topk(x, 8)[1]
    yield Case("largest 8 of rows of 256", lambda x: lax.top_k(x, 8)[1], (short,), few, True)
    of_sorted = lambda torch: lambda x: torch.sort(x)[0]
    yield Case(f"sort of rows of {rows.shape[1]}", lambda x: fnp.sort(x, axis=1), (rows,), of_sorted, True)
    table = np.sort(keys[: part // 16])
    places = lambda torch: lambda a, v: torch.searchsorted(a, v, out_int32=True)
    yield Case("searchsorted", lambda a, v: fnp.searchsorted(a, v), (table, keys[:part]), places, True)


def _keys_alone(torch: Any) -> Callable[..., Any]:
    """CuPy's sort of keys where it is installed (CUB's), else torch's, which sorts pairs."""
    try:
        import cupy
    except ModuleNotFoundError:
        return lambda x: torch.sort(x)[0]
    return lambda x: cupy.sort(cupy.from_dlpack(x))


def _scatters(log: int, tokens: int) -> Iterator[Case]:
    random = np.random.default_rng(2)
    size = 1 << log
    values = random.standard_normal(size, np.float32)
    for words, most in (("few places", 1 << (log // 2 + 4)), ("many places", size)):
        places = random.integers(0, most, size).astype(np.int32)
        added = lambda torch, most=most: lambda i, v: torch.zeros(most, device=v.device).index_add_(0, i, v)
        yield Case(
            f"2^{log} added to {words}", lambda i, v, most=most: fnp.zeros(most).at[i].add(v), (places, values), added
        )
    bins = random.integers(0, 256, 4 * size).astype(np.int32)
    counted = lambda torch: lambda x: torch.bincount(x, minlength=256)
    yield Case("histogram of 256", lambda x: fnp.bincount(x, length=256), (bins,), counted, True)
    spread, most = random.integers(0, 1 << 16, 4 * size).astype(np.int32), 1 << 16
    of_many = lambda torch: lambda x: torch.bincount(x, minlength=most)
    yield Case("histogram of 65536", lambda x: fnp.bincount(x, length=most), (spread,), of_many, True)
    vocabulary, width = (50257, 768) if log > 20 else (100, 16)
    words = random.integers(0, vocabulary, tokens).astype(np.int32)
    table, slopes = (random.standard_normal((n, width), np.float32) for n in (vocabulary, tokens))
    gradient = lambda t, i, ct: fuser.vjp(lambda t: t[i], t)[1](ct)[0]

    def backward(torch: Any) -> Callable[..., Any]:
        dense = torch.ops.aten.embedding_dense_backward
        return lambda t, i, ct: dense(ct, i, t.shape[0], -1, False)

    yield Case("gradient of an embedding", gradient, (table, words, slopes), backward)
    yield Case(
        "rows of a table", lambda t, i: t[i], (table, words), lambda torch: lambda t, i: t.index_select(0, i), True
    )
    yield Case(
        f"running sum of 2^{log + 2}",
        lambda x: fnp.cumsum(x),
        (np.tile(values, 4),),
        lambda t: lambda x: t.cumsum(x, 0),
    )


def _loops(steps: int) -> Iterator[Case]:
    """Loops that forget where they began but end far from 0, so that a wrong step shows and rounding does not add up."""
    random = np.random.default_rng(3)
    small, square = random.standard_normal(16, np.float32), random.standard_normal((256, 256), np.float32) / 32
    count = lambda body: lambda *a: lax.fori_loop(0, steps, lambda i, c: body(c, *a[1:]), a[0])
    yield Case("steps of 16 numbers", count(lambda c: fnp.sin(c) * 1.1), (small,), None, False, steps, 1e-6)
    big = random.standard_normal(1 << 20, np.float32)
    rolled = count(lambda c: (c + fnp.roll(c, 1)) * 0.5)
    yield Case("steps of a stencil of 2^20", rolled, (big,), None, False, steps, 5e-6)
    yield Case(
        "steps of products of 256", count(lambda c, w: fnp.tanh(c @ w + 0.5)), (square, square), None, False, steps
    )
    until = lambda c: lax.while_loop(lambda s: s[0] < steps, lambda s: (s[0] + 1, fnp.sin(s[1]) * 1.1), (0, c))[1]
    yield Case("while, of 2^20", until, (big,), None, False, steps, 5e-6)
    collected = lambda c, xs: lax.scan(lambda c, x: ((c := fnp.tanh(c + x)), c.sum()), c, xs)
    series = random.standard_normal((steps, 1024), np.float32)
    yield Case("scan with a sum a step", collected, (series[0], series), None, False, steps, 3e-6)
    fewer = min(steps, 50)
    solved = lambda c, w: lax.fori_loop(0, fewer, lambda i, c: fnp.linalg.solve(w, c), c)
    matrix = np.eye(64, dtype=np.float32) * 2 + square[:64, :64]
    yield Case("steps with a solution", solved, (small[:1].repeat(64), matrix), None, False, fewer)
