"""`python -m bench.device_calls`: what a call costs the host on a GPU's path, with the driver's stand-in that runs nothing.

Processor time of the calling thread, the least and the median of rounds; what the driver was asked in one call of the steady state. Exit
status 1: the least is more than the target, or copies, or waits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser.runtime.array import Array
from fuser.runtime.core import native
from tests import cuda_stand_in

MICROSECONDS = 1e6
TARGETS = {"one array": 1.5, "array and number": 1.8, "dict of 20": 6.0, "8-layer MLP": 8.0}  # microseconds of a call


def _put(*shape: int) -> Array:
    return Array(native.device_upload(np.ones(shape, np.float32)))


def _mlp(x: Any, ws: Any) -> Any:
    for w in ws:
        x = fnp.maximum(x @ w, 0)
    return x


def _loss(ws: Any, x: Any, y: Any) -> Any:
    return ((_mlp(x, ws) - y) ** 2).mean()


def _step(ws: Any, x: Any, y: Any, rate: Any) -> Any:
    loss, slopes = fuser.value_and_grad(_loss)(ws, x, y)
    return [w - rate * slope for w, slope in zip(ws, slopes)], loss


def cases() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Name, function and arguments."""
    x, weights = _put(8), [_put(128, 128) for _ in range(8)]
    yield "one array", lambda x: x * 2 + 1, (x,)
    yield "array and number", lambda x, a: x * a, (x, 1.5)
    yield "dict of 20", lambda d: {k: v + 1 for k, v in d.items()}, ({f"key{n}": _put(8) for n in range(20)},)
    yield "8-layer MLP", _mlp, (_put(16, 128), weights)
    yield "training step of 8 layers", _step, (weights, _put(16, 128), _put(16, 128), 0.1)
    yield (
        "scan of 100 products",
        lambda h, w: fuser.lax.fori_loop(0, 100, lambda i, c: fnp.tanh(c @ w), h),
        (_put(16, 128), weights[0]),
    )
    square = _put(16, 16)
    yield "while", lambda c: fuser.lax.while_loop(lambda c: c.sum() < 1e3, lambda c: c @ c, c), (square,)


def cost(run: Callable[..., Any], args: Any, rounds: int, calls: int) -> tuple[float, float]:
    """The processor time of the calling thread that a call takes, in microseconds: the least and the median of rounds."""
    samples = []
    for _ in range(rounds):
        start = time.thread_time()
        for _ in range(calls):
            run(*args)
        samples.append((time.thread_time() - start) / calls)
    return min(samples) * MICROSECONDS, statistics.median(samples) * MICROSECONDS


def main(arguments: list[str] | None = None) -> int:
    """Print a line a case; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.device_calls", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args(arguments)
    worse = 0
    with cuda_stand_in.opened() as device:
        device.switch.execute.value = device.switch.checking.value = 0
        for name, function, args in cases():
            run = fuser.jit(function, backend="triton")
            for _ in range(50):
                run(*args)
            least, median = cost(run, args, options.rounds, options.calls)
            device.reset()
            run(*args)
            asked = device.counts()
            target = TARGETS.get(name, float("inf"))
            worse |= least > target or bool({"to_device", "to_host", "host_waits"} & set(asked))
            print(f"{name:28} {least:6.2f} us (median {median:5.2f})   at most {target:4.1f}   {asked}")
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
