"""`python -m bench.gpu`: what a GPU has to confirm, in order of importance, a JSON line for each figure as soon as it is there.

    python -m bench.gpu --rows gpu.jsonl               host time of calls, kernels, products, programs
    python -m bench.gpu --rows gpu.jsonl --dry-run     the same by the driver's stand-in at small sizes, which runs the C backend's twin of each
                                                       kernel: that all parts get through is shown, neither times nor results of a GPU

A row: device ("stand-in" in a dry run), part, name, and of calls host_us, median_us and at_most_us; of the others seconds, error and tolerance (against float64), and bytes,
share_of_copy or flops and tflops, of products also those of cuBLAS and of torch's attention. `failure` says what went wrong instead. A part
begins nothing after its share of the budget. Exit status 1: a result is wrong or a row has a failure; 2: no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from bench import device_calls, static
from bench.workloads import WORKLOADS
from fuser import config
from fuser.backends.triton import memory
from fuser.ir.types import ArrayType, bfloat16
from fuser.runtime.array import Array, to_numpy
from fuser.runtime.core import native

SAMPLES = 5
SAMPLE_SECONDS = 0.01
TOLERANCE = {"float32": 1e-5, "bfloat16": 3e-2, "float16": 4e-3}  # of the largest element of a result
SMALL = 1 << 14  # elements of an argument in a dry run
CHECKED = 1 << 26  # scores that an attention may have for NumPy to check it
PROGRAMS = (
    "mlp",
    "mlp_train_step",
    "transformer_block",
    "black_scholes",
    "mandelbrot",
    "layer_norm",
    "rms_norm",
    "softmax",
)
Row = dict[str, Any]


class Run:
    """How parts measure: the sizes of a dry run or of a GPU, and the rate of a copy there."""

    def __init__(self, dry: bool) -> None:
        self.dry = dry
        self.device = "stand-in" if dry else str(native.cuda_name())

    @functools.cached_property
    def copy(self) -> float:
        """Bytes a second that a copy reads and writes."""
        size = SMALL if self.dry else 1 << 28
        x = _put(np.ones(size, np.float32))
        return 2 * x.nbytes / self.seconds(fuser.jit(fnp.negative, backend="triton"), (x,))

    def seconds(self, run: Callable[..., Any], arguments: Any) -> float:
        """Seconds of a call among many that are queued, the least of some samples."""
        _wait(run(*arguments))
        calls, found = 1, []
        while len(found) < (1 if self.dry else SAMPLES):
            start = time.perf_counter()
            for _ in range(calls):
                result = run(*arguments)
            _wait(result)
            taken = time.perf_counter() - start
            if taken < SAMPLE_SECONDS and not self.dry and calls < 1000:
                calls *= 4
            else:
                found.append(taken / calls)
        return min(found)


def calls(run: Run) -> Iterator[Row]:
    """The host's time of a call."""
    rounds, several = (2, 20) if run.dry else (9, 1000)
    for name, function, arguments in device_calls.cases():
        compiled = fuser.jit(function, backend="triton")
        for _ in range(3 if run.dry else 50):
            _wait(compiled(*arguments))
        least, median = device_calls.cost(compiled, arguments, rounds, several)
        at_most = device_calls.TARGETS.get(name)
        yield {"name": name, "host_us": least, "median_us": median, "at_most_us": at_most}


def kernels(run: Run) -> Iterator[Row]:
    """Generated kernels: right against float64, and their share of the rate of a copy. Of each form one comes first, then the others."""
    forms: dict[str, list[Any]] = {}
    for case in static.cases():
        forms.setdefault(case[0].rstrip("0123456789 "), []).append(case)
    rounds = itertools.zip_longest(*(several[::-1] for several in forms.values()))
    for name, function, types in (case for several in rounds for case in several if case is not None):
        yield _measured(run, name, function, _resized(types) if run.dry else types)


def products(run: Run) -> Iterator[Row]:
    """Products of matrices, those with an epilogue, and attention, beside what torch calls."""
    for extents in (
        ((64, 64, 64), (128, 96, 80)) if run.dry else ((4096, 4096, 4096), (8192, 1024, 8192), (16, 4096, 4096))
    ):
        m, k, n = extents
        types = ArrayType((m, k), bfloat16), ArrayType((k, n), bfloat16)
        flops = 2 * m * k * n
        words = "×".join(map(str, extents))
        yield _measured(run, f"product {words}", lambda a, b: a @ b, types, flops, "matmul")
        yield _measured(run, f"product and relu {words}", lambda a, b: fnp.maximum(a @ b, 0), types, flops, "matmul")
        weights = types[0], ArrayType((k, n), np.dtype("int8"))
        yield _measured(run, f"dequantised product {words}", lambda a, b: a @ (b.astype(a.dtype) * 0.5), weights, flops)
    shape = (1, 64, 2, 32) if run.dry else (1, 16384, 16, 128)
    batch, length, heads, features = shape
    flops = 2 * batch * heads * length * length * features  # half of the scores of two products
    types = (ArrayType(shape, bfloat16),) * 3
    yield _measured(run, f"causal attention of {length}", static.causal_attention, types, flops, "attention")


def programs(run: Run) -> Iterator[Row]:
    """Whole programs of the benchmark."""
    for workload in (WORKLOADS[name] for name in PROGRAMS if name in WORKLOADS):
        inputs = workload.inputs("tiny" if run.dry else "medium")
        compiled = fuser.jit(lambda *arrays, workload=workload: workload.run(fuser, arrays), backend="triton")
        placed = tuple(map(_put, inputs))
        found = tuple(map(to_numpy, _leaves(compiled(*placed))))
        error, tolerance = workload.error(found, workload.reference(inputs)), workload.tolerance("float32")
        seconds = run.seconds(compiled, placed)
        yield {"name": workload.name, "seconds": seconds, "error": float(error), "tolerance": tolerance}


PARTS: dict[str, tuple[Callable[[Run], Iterator[Row]], float]] = {  # and its share of the budget
    "calls": (calls, 0.1), "kernels": (kernels, 0.5), "products": (products, 0.2), "programs": (programs, 0.2),
}  # fmt: skip


def _measured(
    run: Run, name: str, function: Callable[..., Any], types: tuple[ArrayType, ...], flops: int = 0, peer: str = ""
) -> Row:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(t.shape, np.float32).astype(t.dtype) for t in types]
    placed = tuple(map(_put, arrays))
    compiled = fuser.jit(function, backend="triton")
    row: Row = {"name": name}
    results = [to_numpy(x) for x in _leaves(compiled(*placed))]
    if "attention" not in name or math.prod(types[0].shape[:3]) * types[0].shape[1] <= CHECKED:
        row |= _judged(results, function, arrays)
    row["seconds"] = run.seconds(compiled, placed)
    if flops:
        row |= {"flops": flops, "tflops": flops / row["seconds"] / 1e12} | _peer(run, peer, arrays, flops)
    else:
        row["bytes"] = sum(x.nbytes for x in (*arrays, *results))
        row["share_of_copy"] = row["bytes"] / row["seconds"] / run.copy
    return row


def _judged(results: list[np.ndarray], function: Callable[..., Any], arrays: list[np.ndarray]) -> Row:
    """The largest error as a part of a result's largest element, against the reference backend in float64."""
    with config.using(backend="reference", enable_x64=True):
        exact = [to_numpy(x) for x in _leaves(fuser.jit(function)(*(a.astype(np.float64) for a in arrays)))]
    wide = [r.astype(np.float64) for r in results]
    errors = [np.abs(r - e).max() / max(np.abs(e).max(), 1e-30) for r, e in zip(wide, exact, strict=True)]
    return {"error": float(max(errors)), "tolerance": TOLERANCE[results[0].dtype.name]}


def _peer(run: Run, name: str, arrays: list[np.ndarray], flops: int) -> Row:
    """The same by torch, where it has a GPU."""
    import torch

    if run.dry or not name or not torch.cuda.is_available():
        return {}
    tensors = [torch.from_numpy(a.astype(np.float32)).to("cuda", torch.bfloat16) for a in arrays]
    if name == "matmul":
        seconds = run.seconds(torch.matmul, tensors)
    else:
        heads_first = [t.transpose(1, 2).contiguous() for t in tensors]
        attention = functools.partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
        seconds = run.seconds(attention, heads_first)
    return {"torch_seconds": seconds, "torch_tflops": flops / seconds / 1e12}


def _resized(types: tuple[ArrayType, ...]) -> tuple[ArrayType, ...]:
    """The same arguments with fewer rows, of attention with fewer of everything but features."""
    if len(types[0].shape) == 4:
        return tuple(ArrayType((1, 64, 2, t.shape[3]), t.dtype) for t in types)
    rank = max(len(t.shape) for t in types)
    small = lambda t: (min(t.shape[0], max(2, SMALL // math.prod(t.shape[1:]))), *t.shape[1:])
    return tuple(ArrayType(small(t), t.dtype) if len(t.shape) == rank else t for t in types)


def _put(array: np.ndarray) -> Array:
    return Array(native.device_upload(np.ascontiguousarray(array)))


def _leaves(result: Any) -> list[Any]:
    return fuser.tree_util.tree_leaves(result)


def _wait(result: Any) -> None:
    for leaf in _leaves(result):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.synchronize()


def rows(run: Run, budget: float, names: list[str]) -> Iterator[Row]:
    """The rows of parts; one with a failure ends its part."""
    for part in names:
        function, share = PARTS[part]
        deadline = time.perf_counter() + share * budget
        try:
            for row in function(run):
                yield {"device": run.device, "part": part, **row}
                if time.perf_counter() > deadline:
                    yield {"device": run.device, "part": part, "name": "rest", "left_out": "the part's time is over"}
                    break
        except Exception as error:
            yield {"device": run.device, "part": part, "name": "rest", "failure": f"{type(error).__name__}: {error}"}


def main(arguments: list[str] | None = None) -> int:
    """Write the rows; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rows", type=Path, help="a file to which each row is added as a line of JSON")
    parser.add_argument("--budget", type=float, default=200.0, help="seconds")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    wrong = False
    with contextlib.ExitStack() as stack:
        if options.dry_run:
            from tests import cuda_stand_in

            stack.enter_context(cuda_stand_in.opened())
        if not memory.on_device():
            print(
                "bench.gpu: there is no GPU that torch and the native core see; --dry-run runs without one",
                file=sys.stderr,
            )
            return 2
        for row in rows(Run(options.dry_run), options.budget, options.parts or list(PARTS)):
            line = json.dumps(row)
            wrong |= "failure" in row or not row.get("error", 0) <= row.get("tolerance", 0)
            print(line, flush=True)
            if options.rows is not None:
                with options.rows.open("a") as file:
                    file.write(line + "\n")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
