"""Layers of ResNet-50, MobileNet and a U-Net, beside JAX and torch (oneDNN): `python -m bench.convolutions`.

Each layer runs forward, with an epilogue (scale and shift of a batch norm, relu) and a prologue (relu before), and backward to its
input and to its kernel; channels last and channels first; pooling forward and backward. Systems take turns in one process and medians
count. `--threads 1` keeps the process on one processor and counts processor time. A row prints the time of fuser, GFLOP/s, and
the time of each peer over it. Results are compared with JAX's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.timing import CLOCKS, Call, Clock, samples

SAMPLE_SECONDS = 0.02  # a sample holds enough calls to last this long
TOLERANCE = 1e-4  # of the largest magnitude
KINDS = ("forward", "epilogue", "prologue", "input", "kernel")
Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Layer:
    """A layer over images of `size`² pixels; padding is the same on all sides. `pool` is "max" or "mean"."""

    name: str
    size: int
    inputs: int
    outputs: int
    window: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    pool: str = ""

    @property
    def result(self) -> int:
        """Pixels along a side of the result."""
        if self.transposed:
            return (self.size - 1) * self.stride + self.window - 2 * self.padding
        return (self.size + 2 * self.padding - (self.window - 1) * self.dilation - 1) // self.stride + 1

    def flops(self, batch: int) -> int:
        """Additions and multiplications that no zero takes part in, padding excepted."""
        pixels = self.size if self.transposed else self.result
        inputs = 1 if self.pool else 2 * self.inputs // self.groups
        return batch * pixels**2 * self.window**2 * inputs * self.outputs


LAYERS = (
    Layer("resnet 7×7/2 3→64", 224, 3, 64, 7, 2, 3),
    Layer("resnet 3×3 64→64 of 56²", 56, 64, 64, 3, 1, 1),
    Layer("resnet 3×3 128→128 of 28²", 28, 128, 128, 3, 1, 1),
    Layer("resnet 3×3 256→256 of 14²", 14, 256, 256, 3, 1, 1),
    Layer("resnet 3×3 512→512 of 7²", 7, 512, 512, 3, 1, 1),
    Layer("resnet 3×3/2 128→128 of 56²", 56, 128, 128, 3, 2, 1),
    Layer("resnet 1×1 64→256 of 56²", 56, 64, 256, 1),
    Layer("resnet 1×1 256→64 of 56²", 56, 256, 64, 1),
    Layer("resnet 1×1 1024→256 of 14²", 14, 1024, 256, 1),
    Layer("resnet 1×1 512→2048 of 7²", 7, 512, 2048, 1),
    Layer("resnet 1×1/2 256→512 of 56²", 56, 256, 512, 1, 2),
    Layer("mobilenet 3×3/2 3→32", 224, 3, 32, 3, 2, 1),
    Layer("mobilenet depthwise 3×3 of 112²×32", 112, 32, 32, 3, 1, 1, groups=32),
    Layer("mobilenet depthwise 3×3/2 of 112²×64", 112, 64, 64, 3, 2, 1, groups=64),
    Layer("mobilenet depthwise 3×3 of 14²×512", 14, 512, 512, 3, 1, 1, groups=512),
    Layer("mobilenet depthwise 5×5 of 28²×120", 28, 120, 120, 5, 1, 2, groups=120),
    Layer("mobilenet depthwise 5×5/2 of 14²×672", 14, 672, 672, 5, 2, 2, groups=672),
    Layer("resnext 3×3 256 in 32 groups of 28²", 28, 256, 256, 3, 1, 1, groups=32),
    Layer("deeplab 3×3 dilated 2 256→256 of 28²", 28, 256, 256, 3, 1, 2, 2),
    Layer("unet 3×3 64→64 of 128²", 128, 64, 64, 3, 1, 1),
    Layer("unet 3×3 256→128 of 32²", 32, 256, 128, 3, 1, 1),
    Layer("unet 1×1 64→2 of 128²", 128, 64, 2, 1),
    Layer("unet transposed 2×2/2 256→128 of 32²", 32, 256, 128, 2, 2, transposed=True),
    Layer("unet transposed 4×4/2 128→64 of 32²", 32, 128, 64, 4, 2, 1, transposed=True),
    Layer("max pool 3×3/2 of 112²×64", 112, 64, 64, 3, 2, 1, pool="max"),
    Layer("max pool 2×2 of 128²×64", 128, 64, 64, 2, 2, pool="max"),
    Layer("mean pool 2×2 of 56²×256", 56, 256, 256, 2, 2, pool="mean"),
)


@dataclass(frozen=True)
class Case:
    """A layer in one layout ("NHWC" or "NCHW"), for one batch, and what is asked of it."""

    layer: Layer
    layout: str
    batch: int
    kind: str

    @property
    def label(self) -> str:
        """The row's name."""
        return f"{self.layer.name:40}{self.layout:6}{self.batch:3}  {self.kind:9}"

    def inputs(self) -> Arrays:
        """Images, kernel, scale, shift and the result's cotangent in the layout; (height, width, in, out) or (out, in, height, width)."""
        random, layer = np.random.default_rng(0), self.layer
        normal = lambda *shape: random.standard_normal(shape, np.float32)
        depth = layer.inputs // layer.groups
        kernel = normal(layer.window, layer.window, depth, layer.outputs) / np.float32(math.sqrt(depth) * layer.window)
        arrays = normal(self.batch, layer.size, layer.size, layer.inputs), kernel
        cotangent = normal(self.batch, layer.result, layer.result, layer.outputs)
        scale, shift = normal(layer.outputs), normal(layer.outputs)
        if self.layout == "NHWC":
            return *arrays, scale, shift, cotangent
        x, y = (np.ascontiguousarray(a.transpose(0, 3, 1, 2)) for a in (arrays[0], cotangent))
        return x, np.ascontiguousarray(kernel.transpose(3, 2, 0, 1)), scale[:, None, None], shift[:, None, None], y


def cases(
    layers: Sequence[Layer], layouts: Sequence[str], batches: Sequence[int], kinds: Sequence[str]
) -> Iterator[Case]:
    """All of them that there are: pooling has no kernel and no epilogue here."""
    for layer in layers:
        for layout in layouts:
            for batch in batches:
                for kind in kinds:
                    if not layer.pool or kind in ("forward", "input"):
                        yield Case(layer, layout, batch, kind)


def by_library(library: Any, case: Case) -> Call:
    """The case by `jax` or `fuser`, compiled."""
    xnp = library.numpy
    x, kernel, scale, shift, cotangent = (xnp.asarray(a) for a in case.inputs())
    layer = _of_library(library, case)
    relu = lambda v: xnp.maximum(v, 0)
    if case.kind == "forward":
        call, arguments = layer, (x, kernel)
    elif case.kind == "epilogue":
        call, arguments = lambda a, w, s, b: relu(layer(a, w) * s + b), (x, kernel, scale, shift)
    elif case.kind == "prologue":
        call, arguments = lambda a, w, s, b: layer(relu(a), w) + b, (x, kernel, scale, shift)
    elif case.kind == "input":
        call, arguments = lambda a, w, ct: library.vjp(lambda a: layer(a, w), a)[1](ct)[0], (x, kernel, cotangent)
    else:
        call, arguments = lambda a, w, ct: library.vjp(lambda w: layer(a, w), w)[1](ct)[0], (x, kernel, cotangent)
    jitted = library.jit(call)
    return lambda: jitted(*arguments).block_until_ready()


def _of_library(library: Any, case: Case) -> Callable[[Any, Any], Any]:
    layer, lax = case.layer, library.lax
    numbers = (case.layout, "HWIO" if case.layout == "NHWC" else "OIHW", case.layout)
    strides, pads = (layer.stride,) * 2, ((layer.padding,) * 2,) * 2
    if layer.pool:
        around = lambda values, rest: (rest, *values, rest) if case.layout == "NHWC" else (rest, rest, *values)
        windows = around((layer.window,) * 2, 1), around(strides, 1), around(pads, (0, 0))
        if layer.pool == "max":
            return lambda x, w: lax.reduce_window(x, -np.inf, lax.max, *windows)
        return lambda x, w: lax.reduce_window(x, 0.0, lax.add, *windows) / layer.window**2
    if layer.transposed:
        edge = ((layer.window - 1 - layer.padding,) * 2,) * 2
        return lambda x, w: lax.conv_transpose(x, w, strides, edge, dimension_numbers=numbers)
    dilation = (layer.dilation,) * 2
    return lambda x, w: lax.conv_general_dilated(
        x, w, strides, pads, rhs_dilation=dilation, dimension_numbers=numbers, feature_group_count=layer.groups
    )


def by_torch(case: Case) -> Call:
    """The case by torch's own functions, without autograd; arrays lie as in the layout."""
    import torch
    from torch.nn import functional

    layer, last = case.layer, case.layout == "NHWC"
    arrays = [torch.from_numpy(a) for a in case.inputs()]
    x, kernel, scale, shift, cotangent = arrays
    if last:
        x, cotangent = x.permute(0, 3, 1, 2), cotangent.permute(0, 3, 1, 2)
        kernel = kernel.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        scale, shift = scale[:, None, None], shift[:, None, None]
    if layer.transposed:
        kernel = kernel.permute(1, 0, 2, 3).contiguous()
    window, stride, padding, dilation = ((n,) * 2 for n in (layer.window, layer.stride, layer.padding, layer.dilation))
    if layer.pool == "max" and case.kind == "forward":
        return lambda: functional.max_pool2d(x, window, stride, padding)
    if layer.pool == "max":  # with the forward pass, which both others compute once more
        backward = torch.ops.aten.max_pool2d_with_indices_backward

        def pooled() -> Any:
            _, index = functional.max_pool2d(x, window, stride, padding, return_indices=True)
            return backward(cotangent, x, window, stride, padding, (1, 1), False, index)

        return pooled
    if layer.pool and case.kind == "forward":
        return lambda: functional.avg_pool2d(x, window, stride, padding)
    if layer.pool:
        return lambda: torch.ops.aten.avg_pool2d_backward(cotangent, x, window, stride, padding, False, True, None)
    if layer.transposed:
        forward = lambda v, b=None: functional.conv_transpose2d(v, kernel, b, stride, padding)
    else:
        forward = lambda v, b=None: functional.conv2d(v, kernel, b, stride, padding, dilation, layer.groups)
    if case.kind == "forward":
        return lambda: forward(x)
    if case.kind == "epilogue":
        return lambda: forward(x).mul_(scale).add_(shift).relu_()
    if case.kind == "prologue":
        return lambda: forward(functional.relu(x), shift[:, 0, 0])
    wanted = [case.kind == "input", case.kind == "kernel", False]
    backward = torch.ops.aten.convolution_backward
    place = 0 if wanted[0] else 1
    return lambda: backward(
        cotangent, x, kernel, None, stride, padding, dilation, layer.transposed, [0, 0], layer.groups, wanted
    )[place]


def systems(names: Sequence[str]) -> dict[str, Callable[[Case], Call]]:
    """What prepares a case, by name."""
    found: dict[str, Callable[[Case], Call]] = {}
    for name in names:
        if name == "torch":
            found[name] = by_torch
        else:
            library = __import__(name)
            found[name] = lambda case, library=library: by_library(library, case)
    return found


def measure(case: Case, prepared: dict[str, Callable[[Case], Call]], rounds: int, clock: Clock) -> dict[str, Any]:
    """One row: each system's median seconds, its first call's, and the largest difference between fuser's result and JAX's."""
    calls = {name: prepare(case) for name, prepare in prepared.items()}
    row: dict[str, Any] = {**vars(case.layer), "layout": case.layout, "batch": case.batch, "kind": case.kind}
    results, first = {}, {}
    for name, call in calls.items():
        start = time.perf_counter()
        results[name] = call()
        first[name] = time.perf_counter() - start
    if {"fuser", "jax"} <= set(results):
        ours, theirs = (np.asarray(results[name]) for name in ("fuser", "jax"))
        row["difference"] = float(abs(ours - theirs).max() / abs(theirs).max())
    seconds = samples(calls, rounds, SAMPLE_SECONDS, clock)
    row["seconds"] = {name: statistics.median(found) for name, found in seconds.items()}
    return row | {"first": first, "flops": case.layer.flops(case.batch)}


def line(case: Case, row: dict[str, Any]) -> str:
    """A row as text."""
    seconds = row["seconds"]
    ours = seconds["fuser"]
    peers = {name: value / ours for name, value in seconds.items() if name != "fuser"}
    wrong = "  WRONG" if row.get("difference", 0) > TOLERANCE else ""
    ratios = "".join(f"{ratio:9.2f}×" for ratio in peers.values())
    return f"{case.label}{ours * 1e6:10.1f}µs{row['flops'] / ours / 1e9:8.1f}{ratios}{min(peers.values(), default=1):9.2f}×{wrong}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.convolutions", description=__doc__)
    parser.add_argument("--threads", type=int, default=0, help="processors to keep the process on; 0: all")
    parser.add_argument("--only", default="", help="parts of the names of layers, with | between them")
    parser.add_argument("--layouts", default="NHWC,NCHW")
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--systems", default="fuser,jax,torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--json", type=pathlib.Path, help='a file for the rows, with the machine\'s description ("-" for nowhere)'
    )
    options = parser.parse_args()
    clock = CLOCKS["processor" if options.threads == 1 else "wall"]
    if options.threads:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    prepared = systems(
        options.systems.split(",")
    )  # after the processors are fixed: libraries count them when they load
    peers = [name for name in prepared if name != "fuser"]
    print(f"{'layer':58}{'fuser':>14}{'GFLOP/s':>8}" + "".join(f"{name:>10}" for name in (*peers, "fastest")))
    rows = []
    wanted = options.only.split("|")
    layers = [layer for layer in LAYERS if any(part in layer.name for part in wanted)]
    batches = [int(n) for n in options.batches.split(",")]
    for case in cases(layers, options.layouts.split(","), batches, options.kinds.split(",")):
        rows.append(measure(case, prepared, options.rounds, clock))
        print(line(case, rows[-1]), flush=True)
    summary(rows)
    if options.json and str(options.json) != "-":
        from bench.machine import describe

        options.json.write_text(json.dumps({"machine": describe(False), "rows": rows}, indent=1))


def summary(rows: list[dict[str, Any]]) -> None:
    """For each kind the geometric mean of the fastest peer's time over fuser's, the worst, and how many are below 1."""
    for kind in KINDS:
        ratios = [min(v for k, v in r["seconds"].items() if k != "fuser") / r["seconds"]["fuser"] for r in rows if r["kind"] == kind and len(r["seconds"]) > 1]  # fmt: skip
        if ratios:
            below = sum(ratio < 1 for ratio in ratios)
            print(
                f"{kind:10}geomean {statistics.geometric_mean(ratios):.2f}  worst {min(ratios):.2f}  below 1: {below} of {len(ratios)}"
            )


if __name__ == "__main__":
    main()
