"""Runs kernels whose programs wait for each other in Triton's interpreter, a process a program at a time, on memory that they share.

Out: a JSON line a case, `{"case", "error"}`: the largest error relative to the largest element, against float64. A process of its own, as
TRITON_INTERPRET must be set before Triton is imported.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    os.environ |= {"TRITON_INTERPRET": "1"}

import numpy as np
import torch

import fuser
import fuser.numpy as fnp
from fuser.backends.triton import backend, block_sizes, emit
from fuser.backends.triton.launch import module_of
from fuser.runtime.array import to_numpy

PIECE = 32  # elements that a program holds here
SECONDS = 120  # that the programs of a kernel may take on a busy machine


def softmax(x: Any) -> Any:
    e = fnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / fnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def with_sums(x: Any) -> tuple[Any, ...]:
    total = x.sum(-1)
    return total, x / total[:, None], x.min(-1) * 2


def log_softmax(x: Any) -> Any:
    return fuser.nn.log_softmax(x, -1)


def weighted(x: Any) -> tuple[Any, ...]:
    """Two sums of the same exponentials, of which only one is divided by."""
    e = fnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True), (e * x).sum(-1)


def far_from_zero(x: Any) -> tuple[Any, ...]:
    x = fnp.round(256 * x) / 256 + 100  # exact in float32
    return x.var(-1), x / x.sum(-1, keepdims=True)


def infinities(x: Any) -> Any:
    """Of rows of whose pieces some are −∞ alone, one is all −∞, and one has +∞ and nan."""
    piece, row = fnp.arange(x.shape[1]) // PIECE, fnp.arange(x.shape[0])[:, None]
    x = fnp.where((piece == 1) | (row == 1), -fnp.inf, 64 * x)
    x = fnp.where((row == 2) & (fnp.arange(x.shape[1]) == 5), fnp.inf, x)
    return softmax(fnp.where((row == 3) & (piece == 2), fnp.nan, x))


CASES: dict[str, tuple[Callable[..., Any], tuple[int, int]]] = {
    "softmax": (softmax, (3, 4 * PIECE)),
    "softmax with a part of a piece": (softmax, (2, 4 * PIECE - 11)),
    "layer norm": (layer_norm, (2, 3 * PIECE)),
    "results of rows": (with_sums, (3, 2 * PIECE + 5)),
    "log softmax": (log_softmax, (2, 3 * PIECE)),
    "several sums of exponentials": (weighted, (2, 3 * PIECE - 7)),
    "variance far from zero": (far_from_zero, (2, 4 * PIECE - 1)),
    "infinities": (infinities, (4, 3 * PIECE)),
}


def source_of(function: Any, x: np.ndarray) -> Any:
    """The source of the one kernel, its rows in pieces."""
    block_sizes.HELD_PIECE, block_sizes.LONGEST_ROW = 4 * PIECE, PIECE
    emit.interpreter.active = lambda: False  # type: ignore[attr-defined]
    (source,) = fuser.jit(function, backend="triton").lower(x).sources
    emit.interpreter.active = lambda: True  # type: ignore[attr-defined]
    assert "ticket" in source.text
    return source


def run(source: Any, arrays: list[torch.Tensor], processes: int) -> None:
    """Both launches: the second by processes that take one program after another while there are some, as multiprocessors do."""
    backend.interpreter.prepare(module := module_of(source)[0])
    scratch = [
        torch.zeros(size, dtype=getattr(torch, dtype.name)).share_memory_() for size, dtype in source.launch["scratch"]
    ]
    clear, rows = source.launch["launches"]
    buffers = [*arrays, *scratch]

    def launched(launch: Any, programs: int) -> None:
        kernel = getattr(module, launch.function)
        kernel[(programs,)](*(buffers[n] for n in launch.buffers), *launch.sizes, **launch.constants)

    launched(clear, clear.grid)
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    left = context.Value("i", rows.grid)

    def work() -> None:
        while True:
            with left.get_lock():
                if left.value == 0:
                    return
                left.value -= 1
            launched(rows, 1)

    workers = [context.Process(target=work, daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + SECONDS
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    codes = [worker.exitcode for worker in workers]
    for worker in workers:
        worker.kill()
    assert codes == [0] * processes, "a program waits for what nobody publishes"


def error(name: str) -> float:
    function, shape = CASES[name]
    x = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(np.float32)
    source = source_of(function, x)
    with fuser.config.using(backend="reference", enable_x64=True):
        expected = [to_numpy(r) for r in fuser.tree_util.tree_leaves(fuser.jit(function)(x.astype(np.float64)))]
    inputs = [torch.from_numpy(x).share_memory_()]
    outputs = [torch.full(e.shape, float("nan")).share_memory_() for e in expected]
    pieces = source.launch["launches"][1].constants["PIECES"]
    run(source, inputs + outputs, pieces + 1)  # as many as one row needs, and one that is ahead of it
    return max(difference(o.numpy(), e) for o, e in zip(outputs, expected, strict=True))


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest one relative to the largest element; infinite where nan is not where it should be."""
    nothing = np.isnan(expected)
    if not np.array_equal(np.isnan(found), nothing):
        return float("inf")
    return float(np.abs(found - expected)[~nothing].max() / np.abs(expected[~nothing]).max())


if __name__ == "__main__":
    for case in CASES:
        print(json.dumps({"case": case, "error": error(case)}), flush=True)
