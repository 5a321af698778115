"""`python -m bench.gpu_variants`: forms and constants of kernels between which no GPU has decided yet, timed beside those that plans have.

    python -m bench.gpu_variants [--seconds 60] [order places counts rows steps loops]
    python -m bench.gpu_variants --dry-run          small sizes by the driver's stand-in, which shows that all get through

A JSON line a variant: device, name, variant, us of a call among many (of a loop's step), whether the result is right; of a peer of torch's us alone; of
`launches` the microseconds of each launch of the last kernels, on the arrays that these read in the case, queued behind a long wait so that the host does
not show. Nothing begins after the seconds are over. What a GPU has decided goes from here into the constants' comments and docs/gpu.md.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

import fuser
import fuser.numpy as fnp
from bench import static
from bench.gpu import Run, _leaves, _put, _wait
from bench.static import cross_entropy, softmax
from bench.workloads import WORKLOADS
from fuser import lax
from fuser.backends.triton import block_sizes, bucket_sums, emit, memory, radix_sort, target_counts
from fuser.backends.triton.block_sizes import Tile
from fuser.backends.triton.pipelined_rows import PipelinedRows
from fuser.ir.graph import Eqn, Literal, Var
from fuser.ir.types import bfloat16
from fuser.runtime.array import to_numpy

Patches = list[
    tuple[Any, str, Any]
]  # a module, the name of one of its constants or functions, and what is there meanwhile
Right = Callable[[list[np.ndarray]], bool]
WAIT_CYCLES = 40_000_000
F32, HALF = np.dtype("float32"), bfloat16
PLANNED_ROWS: Callable[..., Tile | None] = block_sizes.row_tile
gradient = fuser.grad(cross_entropy)


@dataclasses.dataclass(frozen=True)
class Case:
    """`function(*arrays())` in each of some variants besides as planned; `right` makes a judge of results from the arrays, where the first variant is not
    the judge of the others; `peer` is torch's, a function of the module; `steps` of a loop in it."""

    name: str
    function: Callable[..., Any]
    arrays: Callable[[], tuple[np.ndarray, ...]]
    variants: dict[str, Patches]
    right: Callable[..., Right] | None = None
    peer: Callable[[Any], Callable[..., Any]] | None = None
    steps: int = 1


def near(expected: np.ndarray) -> Right:
    """Whether a first result is as near to this as float32 allows."""
    return lambda found: bool(np.abs(found[0] - expected).max() <= 1e-5 * np.abs(expected).max())


def same(expected: np.ndarray) -> Right:
    return lambda found: bool(np.array_equal(found[0], expected))


def alike(first: list[np.ndarray]) -> Right:
    """Whether results are those of another variant, but for the rounding of sums in another order, in 16 bits where they are of 16 bits."""

    def judge(found: list[np.ndarray]) -> bool:
        close = lambda a, b: np.allclose(a.astype(F32), b.astype(F32), 1e-4 if a.itemsize > 2 else 2e-2, 1e-6)
        return all(close(a, b) for a, b in zip(found, first, strict=True))

    return judge


def _numbers(*shape: int, dtype: np.dtype = F32) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32).astype(dtype)


# Cases; `log` is that of the largest arrays' elements, 13 in a dry run.


def places(log: int) -> Iterator[Case]:
    """Sums at as many places as updates: what is moved to buckets at once, and by how many programs; at few, by buckets and by atomics."""
    size, fewer = 1 << log, 1 << (log // 2 + 4)
    moves: dict[str, Patches] = {"in order": [(bucket_sums, "seconds", lambda *_: 1e9)]}
    moves |= {
        f"{steps} steps by {programs}": [(bucket_sums, "STEPS", steps), (bucket_sums, "MOVING", programs)]
        for steps, programs in ((2, 132), (8, 132), (2, 264), (4, 264), (3, 132))
    }
    either: dict[str, Patches] = {"buckets": [(bucket_sums, "seconds", lambda *_: 0.0)]}
    for name, most, variants in (("many", size, moves), ("few", fewer, either)):

        def arrays(most: int = most) -> tuple[np.ndarray, ...]:
            random = np.random.default_rng(2)
            return random.integers(0, most, size).astype(np.int32), _numbers(size)

        added = lambda i, v, most=most: fnp.zeros(most).at[i].add(v)
        right = lambda i, v, most=most: near(np.bincount(i, v.astype(np.float64), most))
        peer = lambda torch, most=most: lambda i, v: torch.zeros(most, device=v.device).index_add_(0, i, v)
        yield Case(f"2^{log} added to {name} places", added, arrays, variants, right, peer)


def counts(log: int) -> Iterator[Case]:
    """Histograms of few and of many rows, by how many programs."""
    for most in (16, 256, 1 << 16):
        arrays = lambda most=most: (np.random.default_rng(3).integers(0, most, 1 << (log + 2)).astype(np.int32),)
        variants = {f"{n} programs": [(target_counts, "PROGRAMS", n)] for n in (528, 2112)}
        function = lambda x, most=most: fnp.bincount(x, length=most)
        peer = lambda torch, most=most: lambda x: torch.bincount(x, minlength=most)
        right = lambda x, most=most: same(np.bincount(x, minlength=most))
        yield Case(f"histogram of {most}", function, arrays, variants, right, peer)


def order(log: int) -> Iterator[Case]:
    """Passes of smaller radix sorts: elements, warps and registers of a program."""
    for size in (log - 3, log - 5):
        arrays = lambda size=size: (np.random.default_rng(1).integers(-(1 << 31), 1 << 31, 1 << size).astype(np.int32),)
        blocks = (2048, 4, 80), (1024, 4, 0)
        variants = {str(b): [(radix_sort, kind, b) for kind in ("PAIRS", "SMALL")] for b in blocks}
        stable = lambda torch: lambda x: torch.sort(x, stable=True)[1]
        right = lambda x: same(np.argsort(x, kind="stable"))
        yield Case(f"argsort of 2^{size}", lambda x: fnp.argsort(x), arrays, variants, right, stable)


def rows(log: int) -> Iterator[Case]:
    """Rows in longer pieces, and rows that are read ahead."""
    found: tuple[tuple[np.dtype, int, Callable[..., Any], dict[str, Patches]], ...] = (
        (HALF, 32000, gradient, {f"{n} ahead": ahead(32000, 16384, n) for n in (2, 3)}),
        (HALF, 32768, softmax, {"3 ahead": ahead(32768, 32768, 3)}),
        (F32, 131072, softmax, {"pieces of 32 KB": [(block_sizes, "HELD_PIECE", 32 << 10)]}),
        (F32, 524288, softmax, {"pieces of 32 KB": [(block_sizes, "HELD_PIECE", 32 << 10)]}),
        (HALF, 524288, softmax, {"pieces of 32 KB": [(block_sizes, "HELD_PIECE", 32 << 10)]}),
    )
    for dtype, columns, function, variants in found:
        count = 3 if log < 20 else static.ELEMENTS // columns
        name = "gradient of cross-entropy" if function is gradient else "softmax"
        arrays = functools.partial(_rows, count, columns, dtype)
        yield Case(f"{name} {dtype.name} {columns}", function, arrays, variants)


def _rows(count: int, columns: int, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    return (_numbers(count, columns, dtype=dtype),)


def ahead(columns: int, block: int, count: int) -> Patches:
    """Rows of that length in parts of `block`, so many rows read ahead."""
    whole = emit.whole_or_pipelined

    def made(kernel: Any, loops: Any, tile: Tile, stages: int | None) -> Any:
        if loops.count(loops.reduced) != columns:
            return whole(kernel, loops, tile, stages)
        parts = Tile(1, block, block_sizes.MOST_WARPS, True, 0, -(-columns // block))
        return PipelinedRows(kernel, loops, kernel.name, parts, count, 0).write()

    def chosen(count: int, rows: int = 0, held: int = 2, whole: bool = False, together: int = 4) -> Tile | None:
        known = (max(rows, 1000), 1) if count == columns else (rows, held)
        return PLANNED_ROWS(count, *known, whole, together)

    return [(emit, "whole_or_pipelined", made), (block_sizes, "row_tile", chosen)]


def steps(log: int) -> Iterator[Case]:
    """Steps of loops over few rows by so many warps."""
    count = 3 if log < 20 else 200
    variants: dict[str, Patches] = {
        f"{warps} warps": [(block_sizes, "_WARPS_OF_FEW", warps), (block_sizes, "_LEAST_OF_FEW", 2)]
        for warps in (4, 16)
    }
    summed = lambda c, xs: lax.scan(lambda c, x: ((c := fnp.tanh(c + x)), c.sum()), c, xs)
    for columns in (1024, 2048):
        series = lambda columns=columns: (_numbers(columns), _numbers(count, columns))
        yield Case(f"scan with a sum of {columns}", summed, series, variants, steps=count)
    for shape in ((1, 2048), (64, 1024)):
        repeated = lambda c: lax.fori_loop(0, count, lambda i, c: softmax(c * 100), c)
        arrays = functools.partial(_rows, *shape, F32)
        yield Case(f"steps of softmax of {shape}", repeated, arrays, variants, steps=count)


def loops(log: int) -> Iterator[Case]:
    """Loops by lanes: how many of them a program has."""
    variants: dict[str, Patches] = {
        f"{n} lanes": [(block_sizes, "LANES", dataclasses.replace(block_sizes.LANES, columns=n))] for n in (32, 128)
    }
    for name in ("monte_carlo_loop", "mandelbrot_loop"):
        workload = WORKLOADS[name]
        arrays = lambda workload=workload: workload.inputs("full" if log > 20 else "tiny")
        function = lambda *given, workload=workload: workload.run(fuser, given)
        yield Case(name, function, arrays, variants)


PARTS: dict[str, Callable[[int], Iterator[Case]]] = {
    "places": places,
    "counts": counts,
    "order": order,
    "rows": rows,
    "steps": steps,
    "loops": loops,
}


# Measuring.


def measured(run: Run, case: Case, deadline: float) -> Iterator[dict[str, Any]]:
    """The rows of a case; of first calls alone none."""
    row: dict[str, Any] = {"device": run.device, "name": case.name}
    if time.perf_counter() > deadline:
        yield row | {"left_out": "the time is over"}
        return
    arrays = case.arrays()
    placed, judge = tuple(map(_put, arrays)), None
    if case.right is not None and not run.first:
        judge = case.right(*arrays)
    variants: dict[str, Patches] = {"planned": [], **case.variants}
    for name, patches in variants.items():
        of: dict[str, Any] = row | {"variant": name}
        if time.perf_counter() > deadline:
            yield of | {"left_out": "the time is over"}
            continue
        try:
            compiled, results = _first_call(case, patches, placed)
            if run.first:
                continue
            found = [to_numpy(x) for x in _leaves(results)]
            judge = judge or alike(found)
            yield of | {"right": judge(found), "us": run.seconds(compiled, placed) * 1e6 / case.steps}
        except Exception as error:
            yield of | {"failure": f"{type(error).__name__}: {error}"[:500]}
    if not run.dry and not run.first and time.perf_counter() < deadline:
        yield from _on_a_gpu(run, case, row, arrays)


@contextlib.contextmanager
def patched(patches: Patches) -> Iterator[None]:
    """Modules as a variant has them."""
    with contextlib.ExitStack() as stack:
        for module, name, value in patches:
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def _first_call(case: Case, patches: Patches, placed: tuple[Any, ...]) -> tuple[Any, Any]:
    """A variant's program, and what its first call gives."""
    with patched(patches):
        compiled = fuser.jit(lambda *given: case.function(*given), backend="triton")
        result = compiled(*placed)
        _wait(result)
        return compiled, result


def _on_a_gpu(run: Run, case: Case, row: dict[str, Any], arrays: tuple[np.ndarray, ...]) -> Iterator[dict[str, Any]]:
    """The peer's row, and that of the launches."""
    if case.peer is not None:
        import torch

        tensors = [torch.from_numpy(a).to("cuda") for a in arrays]
        yield row | {"variant": "torch", "us": run.seconds(case.peer(torch), tensors) * 1e6}
    if case.steps == 1:
        yield row | {"launches": launches(case, arrays)}


def read_last(lowered: Any, arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """What the last kernels of a program read, as the reference computes it from the program's arguments."""
    graph, group = lowered.plan.graph, lowered.plan.groups[-1]
    values: dict[Var, np.ndarray] = dict(
        zip((*graph.constvars, *graph.invars), map(np.asarray, (*graph.consts, *arrays)))
    )
    made = {v: eqn for eqn in graph.eqns for v in eqn.outvars}

    def known(of: Any) -> np.ndarray:
        if isinstance(of, Literal):
            return np.asarray(of.val, of.aval.dtype)
        if of not in values:
            eqn: Eqn = made[of]
            result = eqn.primitive.rule("eval")(*map(known, eqn.invars), **eqn.params)
            values.update(zip(eqn.outvars, result if eqn.primitive.multiple_results else (result,)))
        return values[of]

    return [np.asarray(known(v)) for v in group.graph.invars]


def launches(case: Case, arrays: tuple[np.ndarray, ...]) -> list[tuple[str, float]]:
    """Microseconds of each launch of the last source of a case as it is planned."""
    import torch

    from fuser.backends.triton.launch import Launcher, allocate, real
    from fuser.runtime.array import torch_dtype

    lowered = fuser.jit(lambda *given: case.function(*given), backend="triton").lower(*arrays)
    source, group = lowered.sources[-1], lowered.plan.groups[-1]
    launcher = Launcher(source, "cuda")
    given = [_tensor(torch, array) for array in read_last(lowered, arrays)]
    given += [torch.empty(v.aval.size, dtype=torch_dtype(v.aval.dtype), device="cuda") for v in group.graph.outvars]
    buffers = [real(a) for a in (*given, *(allocate(n, d, "cuda") for n, d in launcher.scratch))]
    found: list[tuple[str, float]] = []
    for again in (False, True):
        if again:
            torch.cuda._sleep(WAIT_CYCLES)
        events = [torch.cuda.Event(enable_timing=True) for _ in (*launcher.launches, None)]
        events[0].record()
        each = zip(launcher.kernels, launcher.launches, launcher.constants, launcher.limits, strict=True)
        for event, (kernel, launch, known, limited) in zip(events[1:], each, strict=True):
            passed = (*(buffers[n] for n in launch.buffers), *launch.sizes)
            kernel[(launch.grid,)](*passed, **known, **limited, **launcher.common)
            event.record()
        torch.cuda.synchronize()
        spans = zip(launcher.launches, events, events[1:])
        found = [(launch.function, 1e3 * begun.elapsed_time(ended)) for launch, begun, ended in spans]
    return found


def _tensor(torch: Any, array: np.ndarray) -> Any:
    """An array's bytes on the GPU, with its dtype."""
    from fuser.runtime.array import torch_dtype

    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return torch.from_numpy(flat.copy()).to("cuda").view(torch_dtype(array.dtype))


def first_calls(run: Run) -> Iterator[Callable[[], Any]]:
    """What makes the first call of each variant of each case, one case after another, for what compiles kernels ahead (`bench.gpu_ahead`)."""
    for part in PARTS.values():
        for case in part(13 if run.dry else 24):
            yield functools.partial(list, measured(run, case, float("inf")))


def main(arguments: list[str] | None = None) -> int:
    """Print the rows; 1 where a result is wrong or there is a failure, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_variants", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    deadline, wrong = time.perf_counter() + options.seconds, False
    with contextlib.ExitStack() as stack:
        if options.dry_run:
            from tests import cuda_stand_in

            stack.enter_context(cuda_stand_in.opened())
        if not memory.on_device():
            print("bench.gpu_variants: there is no GPU; --dry-run runs without one", file=sys.stderr)
            return 2
        run = Run(options.dry_run)
        for part in options.parts or list(PARTS):
            for case in PARTS[part](13 if run.dry else 24):
                for row in measured(run, case, deadline):
                    wrong |= "failure" in row or not row.get("right", True)
                    print(json.dumps(row), flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
