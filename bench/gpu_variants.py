"""`python -m bench.gpu_variants`: constants of kernels for orders, sums at places, counts and loops in variants beside each other on a GPU.

    python -m bench.gpu_variants [--seconds 60] [order places counts embedding loops]
    python -m bench.gpu_variants --dry-run          small sizes by the driver's stand-in, which shows that all get through

A JSON line a variant: device, name, settings, us of a call among many, whether the result is right; of a peer of torch's us alone; of launches the
microseconds of each, queued behind a long wait so that the host does not show. Nothing begins after the seconds are over.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from bench.gpu import Run, _leaves, _put
from bench.workloads import WORKLOADS
from fuser.backends.triton import block_sizes, bucket_sums, memory, radix_sort, target_counts
from fuser.runtime.array import to_numpy

Settings = dict[str, tuple[Any, dict[str, Any]]]  # of a variant: a module and values of its constants
WAIT_CYCLES = 40_000_000


@dataclasses.dataclass(frozen=True)
class Case:
    """`function(*arrays)` with each of some settings; `right` judges its results; `peer` is torch's, a function of the module."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]
    right: Callable[[list[np.ndarray]], bool]
    settings: Settings
    peer: Callable[[Any], Callable[..., Any]] | None = None


def near(expected: np.ndarray) -> Callable[[list[np.ndarray]], bool]:
    """Whether a first result is as near to this as float32 allows."""
    return lambda found: bool(np.abs(found[0] - expected).max() <= 1e-5 * np.abs(expected).max())


def same(expected: np.ndarray) -> Callable[[list[np.ndarray]], bool]:
    return lambda found: bool(np.array_equal(found[0], expected))


def places(log: int) -> Iterator[Case]:
    """Sums at as many places as updates, at few, and with half of them at one."""
    random, size = np.random.default_rng(2), 1 << log
    values = random.standard_normal(size).astype(np.float32)
    many, few = (random.integers(0, most, size).astype(np.int32) for most in (size, 1 << (log // 2 + 4)))
    hot = np.where(random.random(size) < 0.5, 7, many).astype(np.int32)
    buckets: Settings = {"as chosen": (bucket_sums, {}), "in order": (bucket_sums, {"seconds": lambda *_: 1e9})}
    buckets |= {
        f"{steps} steps of {block} by {warps}": (bucket_sums, {"STEPS": steps, "BLOCK": block, "WARPS": warps})
        for steps, block, warps in ((8, 2048, 16), (16, 1024, 8))
    }
    buckets |= {
        f"{added} added by {warps}": (bucket_sums, {"ADDED": added, "ADDING_WARPS": warps})
        for added, warps in ((2048, 8), (2048, 16))
    }
    either: Settings = {n: (bucket_sums, {"seconds": lambda *_, n=n: n == "others"}) for n in ("buckets", "others")}
    for name, targets, settings in (("many", many, buckets), ("few", few, either), ("half at one", hot, either)):
        most = 1 << (log // 2 + 4) if name == "few" else size
        added = lambda i, v, most=most: fnp.zeros(most).at[i].add(v)
        wanted = np.bincount(targets, values.astype(np.float64), most)
        peer = lambda torch, most=most: lambda i, v: torch.zeros(most, device=v.device).index_add_(0, i, v)
        yield Case(f"2^{log} added to {name} places", added, (targets, values), near(wanted), settings, peer)


def counts(log: int) -> Iterator[Case]:
    """Histograms: in registers, in shared memory, and by atomics on memory."""
    random, size = np.random.default_rng(3), 1 << (log + 2)
    for most in (256, 1 << 12, 1 << 16):
        x = random.integers(0, most, size).astype(np.int32)
        settings: Settings = {
            "as chosen": (target_counts, {}),
            "in shared memory": (target_counts, {"MOST_ROWS": 0}),
            "on memory": (target_counts, {"private": lambda rows: False}),
        }
        function = lambda x, most=most: fnp.bincount(x, length=most)
        peer = lambda torch, most=most: lambda of: torch.bincount(of, minlength=most)
        yield Case(f"histogram of {most}", function, (x,), same(np.bincount(x, minlength=most)), settings, peer)


def order(log: int) -> Iterator[Case]:
    """Passes of the radix sort: elements, warps and registers of a program."""
    keys = np.random.default_rng(1).integers(-(1 << 31), 1 << 31, 1 << log).astype(np.int32)
    blocks = (2048, 4, 80), (2048, 4, 0), (4096, 8, 80), (4096, 8, 64), (2048, 8, 64), (1024, 4, 64)
    pairs, alone = ({str(b): (radix_sort, {kind: b}) for b in blocks} for kind in ("PAIRS", "KEYS"))
    positions = np.argsort(keys, kind="stable")
    stable = lambda torch: lambda x: torch.sort(x, stable=True)[1]
    yield Case(f"argsort of 2^{log}", lambda x: fnp.argsort(x), (keys,), same(positions), pairs, stable)
    floats = keys.astype(np.float32)
    yield Case(f"sort of 2^{log}", lambda x: fnp.sort(x), (floats,), same(floats[positions]), alone)


def embedding(log: int) -> Iterator[Case]:
    """The gradient of a table's rows: columns of a program that carries totals from block to block."""
    from fuser.backends.triton import scatter_kernels

    rows, width, tokens = (50257, 768, 65536) if log > 20 else (100, 16, 5000)
    random = np.random.default_rng(4)
    words = random.integers(0, rows, tokens).astype(np.int32)
    table, slopes = (random.standard_normal((n, width)).astype(np.float32) for n in (rows, tokens))
    wanted = np.zeros((rows, width))
    np.add.at(wanted, words, slopes)
    gradient = lambda t, i, ct: fuser.vjp(lambda t: t[i], t)[1](ct)[0]
    settings: Settings = {f"{n} columns": (scatter_kernels, {"CARRIED": n}) for n in (8, 64)}
    yield Case("gradient of an embedding", gradient, (table, words, slopes), near(wanted), settings)


def loops(log: int) -> Iterator[Case]:
    """Loops by lanes: how many of them a program has."""
    for name in ("monte_carlo_loop", "mandelbrot_loop"):
        workload = WORKLOADS[name]
        inputs = workload.inputs("full" if log > 20 else "tiny")
        settings: Settings = {
            f"{n} lanes": (block_sizes, {"LANES": dataclasses.replace(block_sizes.LANES, columns=n)})
            for n in (64, 128, 256)
        }
        first: list[np.ndarray] = []

        def alike(found: list[np.ndarray], first: list[np.ndarray] = first) -> bool:
            first.extend(() if first else found)
            return all(np.allclose(a, b, rtol=1e-4) for a, b in zip(found, first, strict=True))

        function = lambda *arrays, workload=workload: workload.run(fuser, arrays)
        yield Case(name, function, inputs, alike, settings)


PARTS: dict[str, Callable[[int], Iterator[Case]]] = {
    "places": places,
    "counts": counts,
    "order": order,
    "embedding": embedding,
    "loops": loops,
}


@contextlib.contextmanager
def constants(module: Any, values: dict[str, Any]) -> Iterator[None]:
    """A module with other values of its constants."""
    with contextlib.ExitStack() as stack:
        for name, value in values.items():
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield


def variants(run: Run, case: Case, deadline: float) -> Iterator[dict[str, Any]]:
    """The rows of a case."""
    placed = tuple(map(_put, case.arrays))
    for name, (module, values) in case.settings.items():
        row: dict[str, Any] = {"device": run.device, "name": case.name, "settings": name}
        if time.perf_counter() > deadline:
            yield row | {"left_out": "the time is over"}
            continue
        try:
            with constants(module, values):
                compiled = fuser.jit(lambda *arrays: case.function(*arrays), backend="triton")
                results = [to_numpy(x) for x in _leaves(compiled(*placed))]
            yield row | {"right": case.right(results), "us": run.seconds(compiled, placed) * 1e6}
        except Exception as error:
            yield row | {"failure": f"{type(error).__name__}: {error}"[:500]}
    if case.peer is not None and not run.dry and time.perf_counter() < deadline:
        import torch

        tensors = [torch.from_numpy(a).to("cuda") for a in case.arrays]
        seconds = run.seconds(case.peer(torch), tensors)
        yield {"device": run.device, "name": case.name, "settings": "torch", "us": seconds * 1e6}


def launches(case: Case) -> list[tuple[str, float]]:
    """Microseconds of each launch of the last source of a case as it is chosen, on arrays of zeros."""
    import torch

    from fuser.backends.triton.launch import Launcher, allocate, real
    from fuser.runtime.array import torch_dtype

    source = fuser.jit(lambda *arrays: case.function(*arrays), backend="triton").lower(*case.arrays).sources[-1]
    launcher, group = Launcher(source, "cuda"), source.launch["dtypes"]
    sizes = [max((a.size for a in case.arrays), default=1)] * len(group)
    arrays = [torch.zeros(n, dtype=torch_dtype(d), device="cuda") for n, d in zip(sizes, group, strict=True)]
    buffers = [real(a) for a in (*arrays, *(allocate(n, d, "cuda") for n, d in launcher.scratch))]
    found: list[tuple[str, float]] = []
    for again in (False, True):
        if again:
            torch.cuda._sleep(WAIT_CYCLES)
        events = [torch.cuda.Event(enable_timing=True) for _ in (*launcher.launches, None)]
        events[0].record()
        each = zip(launcher.kernels, launcher.launches, launcher.constants, launcher.limits, strict=True)
        for event, (kernel, launch, known, limited) in zip(events[1:], each, strict=True):
            given = (*(buffers[n] for n in launch.buffers), *launch.sizes)
            kernel[(launch.grid,)](*given, **known, **limited, **launcher.common)
            event.record()
        torch.cuda.synchronize()
        spans = zip(launcher.launches, events, events[1:])
        found = [(launch.function, 1e3 * begun.elapsed_time(ended)) for launch, begun, ended in spans]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print the rows; 1 where a result is wrong or there is a failure, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_variants", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(arguments)
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
                for row in variants(run, case, deadline):
                    wrong |= "failure" in row or not row.get("right", True)
                    print(json.dumps(row), flush=True)
                if not run.dry and time.perf_counter() < deadline:
                    print(json.dumps({"device": run.device, "name": case.name, "launches": launches(case)}), flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
