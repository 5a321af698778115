"""`python -m bench.gpu_row_variants`: forms of rows, columns and loop steps that no plan has yet, timed beside those that plans have.

    python -m bench.gpu_row_variants           a JSON line for each: case, variant, us of a call or step, share of a copy, error
    python -m bench.gpu_row_variants --dry-run     by the driver's stand-in, in small; 14 processes make first calls before otherwise

What is measured decides defaults: whether long rows are read ahead (`pipelined_rows.py`), how many rows a program has, tiles of rows that are read
once, pieces of rows that several programs hold, warps of few rows, stages of small products. Errors are against float64 or the first variant.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

import fuser
import fuser.numpy as fnp
from bench import static
from bench.gpu import Run, _leaves, _put, _wait
from bench.static import cross_entropy, layer_norm, softmax
from fuser import lax
from fuser.backends.triton import block_sizes, cooperative_rows, emit, memory, product_cost
from fuser.backends.triton.block_sizes import Tile
from fuser.backends.triton.pipelined_rows import PipelinedRows
from fuser.ir.types import bfloat16
from fuser.runtime.array import to_numpy

ELEMENTS, SMALL = static.ELEMENTS, 1 << 16
PROCESSES, WARMING = 14, 30.0  # that make first calls, and seconds of these
F32, HALF = np.dtype("float32"), bfloat16
Patches = list[Any]
Variant = Callable[[int], Patches]  # of the columns of the rows that it is of
Tiling = Callable[..., Tile | None]
PLANNED_ROWS: Tiling = block_sizes.row_tile
gradient = fuser.grad(cross_entropy)


@dataclass(frozen=True)
class Case:
    """A function's form: what its arguments are made by, what is patched while it is compiled, and steps of a loop in it."""

    name: str
    variant: str
    function: Callable[..., Any]
    arguments: Callable[[bool], tuple[np.ndarray, ...]]
    patches: Callable[[], Patches]
    steps: int = 1


# Variants.


def planned(columns: int) -> Patches:
    return []


def ahead(block: int, warps: int, rows: int, late: int = 0) -> Variant:
    """Rows in parts of `block`, so many of them read ahead but for their `late` last parts."""

    def patches(columns: int) -> Patches:
        whole = emit.whole_or_pipelined

        def made(kernel: Any, loops: Any, tile: Tile, stages: int | None) -> Any:
            if loops.count(loops.reduced) != columns:
                return whole(kernel, loops, tile, stages)
            parts = Tile(1, block, warps, True, 0, -(-columns // block))
            return PipelinedRows(kernel, loops, kernel.name, parts, rows, late).write()

        return [mock.patch.object(emit, "whole_or_pipelined", made), *held(columns)]

    return patches


def held(columns: int, tile: Tile | None = None) -> Patches:
    """Rows of that length as programs hold them, those that are read once too."""

    def chosen(count: int, rows: int = 0, held: int = 2, whole: bool = False, together: int = 4) -> Tile | None:
        if count != columns:
            return PLANNED_ROWS(count, rows, held, whole, together)
        return tile or PLANNED_ROWS(count, max(rows, 1000), 1, whole, together)

    return [mock.patch.object(block_sizes, "row_tile", chosen)]


def tiled(rows: int, block: int, blocks: int) -> Variant:
    """So many rows a program, each of a warp."""
    return lambda columns: held(columns, Tile(rows, block, rows, True, 0, blocks))


def pieces(length: int, warps: int, most: int = block_sizes.MOST_PIECES) -> Variant:
    """Rows that several programs hold, so many elements each."""

    def patches(columns: int) -> Patches:
        rows = lambda count, *others, **more: None if count == columns else PLANNED_ROWS(count, *others, **more)
        return [
            mock.patch.object(block_sizes, "row_tile", rows),
            mock.patch.object(block_sizes, "piece_tile", lambda count: Tile(1, length, warps, True)),
            mock.patch.object(cooperative_rows, "MOST_PIECES", most),
        ]

    return patches


def walked(length: int, warps: int) -> Variant:
    """Rows that are read once in pieces of that length."""
    return lambda columns: [
        mock.patch.object(block_sizes, "long_row_tile", lambda itemsize: Tile(1, length, warps, True))
    ]


def two_launches(columns: int) -> Patches:
    """What is made of the rows' results in chunks."""
    return [mock.patch.object(block_sizes, "lone", lambda programs, reduced: False)]


def few(elements: int) -> Variant:
    """So many elements a thread of few rows."""
    return lambda columns: [
        mock.patch.object(block_sizes, "_LEAST_OF_FEW", elements),
        mock.patch.object(block_sizes, "_SCHEDULERS", block_sizes.MOST_WARPS),
    ]


def columns_of(width: int, warps: int) -> Variant:
    """So many long columns a program; none: they are walked along."""
    tile = lambda rows, *others: Tile(width, 1 << (rows - 1).bit_length(), warps, True) if width else None
    return lambda columns: [mock.patch.object(block_sizes, "held_column_tile", tile)]


def staged(stages: int) -> Variant:
    """Stages of products of float32."""
    return lambda columns: [mock.patch.object(product_cost, "SINGLE_STAGES", stages)]


ROWS: tuple[tuple[np.dtype, int, Callable[..., Any], dict[str, Variant]], ...] = (
    (F32, 32768, softmax, {"ahead 3/4": ahead(8192, 32, 2, 1), "ahead 1/2": ahead(16384, 32, 2, 1), "pieces": pieces(4096, 4)}),
    (HALF, 32768, softmax, {"2 ahead": ahead(32768, 32, 2), "3 ahead": ahead(32768, 32, 3), "pieces": pieces(8192, 4)}),
    (HALF, 32000, gradient, {"2 ahead": ahead(16384, 32, 2), "3 ahead": ahead(16384, 32, 3), "pieces": pieces(8192, 4)}),
    (F32, 32000, gradient, {"ahead 3/4": ahead(8192, 32, 2, 1), "pieces": pieces(4096, 4)}),
    (HALF, 32000, cross_entropy, {
        "2 ahead": ahead(16384, 32, 2), "whole": held, "walk 4096": walked(4096, 4), "walk 16384": walked(16384, 16),
    }),
    (F32, 32000, cross_entropy, {"ahead 3/4": ahead(8192, 32, 2, 1), "whole": held, "walk 8192": walked(8192, 8)}),
    (HALF, 1000, cross_entropy, {"4 rows": tiled(4, 256, 4), "8 rows": tiled(8, 256, 4), "two launches": two_launches}),
    (F32, 1000, cross_entropy, {"4 rows": tiled(4, 128, 8), "two launches": two_launches}),
    (HALF, 1000, softmax, {"4 rows": tiled(4, 256, 4)}),
    (F32, 16384, softmax, {"2 ahead": ahead(16384, 32, 2), "2 ahead, 16 warps": ahead(16384, 16, 2)}),
    (HALF, 16384, softmax, {"2 ahead, 16 warps": ahead(16384, 16, 2)}),
    (F32, 262144, softmax, {"pieces of 16384": pieces(16384, 16), "64 pieces": pieces(4096, 4, 64)}),
    (HALF, 262144, softmax, {"pieces of 16384": pieces(16384, 8)}),
    (HALF, 65536, softmax, {"pieces of 8192": pieces(8192, 4), "pieces of 16384": pieces(16384, 8)}),
    (F32, 65536, softmax, {"pieces of 8192": pieces(8192, 8)}),
    (F32, 4096, layer_norm, {"2 ahead": ahead(4096, 4, 2), "2 ahead, 8 warps": ahead(4096, 8, 2)}),
    (F32, 8192, softmax, {"2 ahead": ahead(8192, 8, 2)}),
)  # fmt: skip


# Cases.


def cases(steps: int) -> Iterator[Case]:
    """All cases, loops of so many steps."""
    words = {softmax: "softmax", cross_entropy: "cross-entropy", gradient: "its gradient", layer_norm: "layer norm"}
    for dtype, columns, function, variants in ROWS:
        for name, variant in ({"planned": planned} | variants).items():
            rows = functools.partial(_rows, columns, dtype)
            patches = functools.partial(variant, columns)
            yield Case(f"{words[function]} {dtype.name} {columns}", name, function, rows, patches)
    for name, variant in {"planned": planned, "walked": columns_of(0, 0), "16 wide": columns_of(16, 4)}.items():
        image = lambda dry: (_numbers((2, 256, 8, 8) if dry else (16, 256, 64, 64)),)
        yield Case("norm of channels", name, _norm, image, functools.partial(variant, 0))
    for stages in (4, 2, 3, 5):
        loop = lambda c, w: lax.fori_loop(0, steps, lambda i, c: fnp.tanh(c @ w + 0.5), c)
        square = lambda dry: (_numbers((256, 256)) / 32,) * 2
        yield Case("products of 256", f"{stages} stages", loop, square, functools.partial(staged(stages), 0), steps)
    for elements in (8, 32, 16, 4):
        patches = functools.partial(few(elements), 0)
        summed = lambda c, xs: lax.scan(lambda c, x: ((c := fnp.tanh(c + x)), c.sum()), c, xs)
        series = lambda dry: (_numbers((steps, 1024))[0], _numbers((steps, 1024)))
        yield Case("scan with a sum", f"{elements} a thread", summed, series, patches, steps)
        for shape in ((1, 4096), (64, 4096), (1, 16384)):
            softmaxes = lambda c: lax.fori_loop(0, steps, lambda i, c: softmax(c * 100), c)
            start = lambda dry, shape=shape: (_numbers(shape),)
            yield Case(f"steps of softmax of {shape}", f"{elements} a thread", softmaxes, start, patches, steps)


def _norm(x: Any) -> Any:
    return x / fnp.sqrt((x * x).mean(1, keepdims=True) + 1e-6)


def _numbers(shape: Any) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@functools.lru_cache(maxsize=2)
def _flat(dtype: np.dtype, size: int) -> np.ndarray:
    return _numbers(size).astype(dtype)


def _rows(columns: int, dtype: np.dtype, dry: bool) -> tuple[np.ndarray, ...]:
    rows = 3 if dry else ELEMENTS // columns
    return (_flat(dtype, rows * columns).reshape(rows, columns),)


# Results.


def measured(run: Run, case: Case, firsts: dict[str, list[np.ndarray]]) -> dict[str, Any]:
    """The row of a case; `firsts` keeps the results of each case's first variant."""
    arrays = case.arguments(run.dry)
    with contextlib.ExitStack() as stack:
        for patch in case.patches():
            stack.enter_context(patch)
        product_cost.candidates.cache_clear()
        compiled = fuser.jit(lambda *given: case.function(*given), backend="triton")
        placed = tuple(map(_put, arrays))
        result = compiled(*placed)
        _wait(result)
    product_cost.candidates.cache_clear()
    if run.first:
        return {}
    found = [to_numpy(x) for x in _leaves(result)]
    seconds = run.seconds(compiled, placed)
    row: dict[str, Any] = {"us": seconds * 1e6 / case.steps, "error": _error(case, found, arrays, firsts)}
    if case.steps == 1:
        row["share_of_copy"] = sum(a.nbytes for a in (*arrays, *found)) / seconds / run.copy
    return row


def _error(case: Case, found: list[np.ndarray], arrays: Any, firsts: dict[str, list[np.ndarray]]) -> float:
    if case.function in (softmax, gradient, layer_norm):
        x = arrays[0]
        rows = sorted({n % len(x) for n in (0, 1, 131, 133, 264, len(x) // 2, len(x) - 1)})
        want = _expected(case.function, x, rows)
        return float(np.abs(found[0][rows].astype(np.float64) - want).max() / np.abs(want).max())
    first = firsts.setdefault(case.name, found)
    return max(
        float(np.abs(a.astype(np.float64) - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in zip(found, first)
    )


def _expected(function: Callable[..., Any], x: np.ndarray, rows: list[int]) -> np.ndarray:
    """The results of some rows in float64."""
    wide = x[rows].astype(np.float64)
    if function is layer_norm:
        return np.asarray((wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5))
    e = np.exp(wide - wide.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    if function is gradient:
        p[np.arange(len(rows)), np.asarray(rows) * 7919 % x.shape[1]] -= 1
        p /= len(x)
    return np.asarray(p)


def _first_calls() -> None:
    """The first calls of all cases by many processes at once, which leave what they compile on disk."""
    command = [sys.executable, "-m", "bench.gpu_row_variants", "--every", str(PROCESSES), "--first"]
    started = [subprocess.Popen([*command, str(n)], stdout=subprocess.DEVNULL) for n in range(PROCESSES)]
    end = time.perf_counter() + WARMING
    for process in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, end - time.perf_counter()))
        process.kill()


def main(arguments: list[str] | None = None) -> int:
    """Write the rows; 2 where there is no GPU, 1 where a variant fails."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu_row_variants", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--dry-run", action="store_true", help="by the driver's stand-in")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds after which no case begins")
    parser.add_argument("--first", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--every", type=int, default=1, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        if asked.dry_run:
            from tests import cuda_stand_in

            stack.enter_context(cuda_stand_in.opened())
        if not memory.on_device():
            print("bench.gpu_row_variants: there is no GPU; --dry-run runs without one", file=sys.stderr)
            return 2
        if asked.first is None and not asked.dry_run:
            _first_calls()
        run = Run(asked.dry_run, asked.first is not None)
        return _all(run, list(cases(3 if asked.dry_run else 200))[asked.first or 0 :: asked.every], asked.budget)


def _all(run: Run, chosen: list[Case], budget: float) -> int:
    firsts: dict[str, list[np.ndarray]] = {}
    failed, end = False, time.perf_counter() + budget
    for case in chosen:
        row: dict[str, Any] = {"device": run.device, "case": case.name, "variant": case.variant}
        try:
            row |= measured(run, case, firsts) if time.perf_counter() < end else {"left_out": "the time is over"}
        except Exception as error:
            row["failure"], failed = f"{type(error).__name__}: {error}"[:300], True
        print(json.dumps(row), flush=True)
    return int(failed)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
