"""Kernels for a GPU judged without one: what the machine code of sm_90 says of time, width and memory.

    python -m bench.static            row kernels of every length, in float32 and bfloat16, and the other forms
    python -m bench.static softmax    those whose name has the word
    python -m bench.static --target hip:gfx942    the same for another GPU
    python -m bench.static --inductor    functions beside TorchInductor's kernels (`bench/kernel_comparison.py`)

DRAM time is bytes moved over 4.3 TB/s, the copy rate measured on an H200; issue time, and that of the unit which is busy longest, are those
of `fuser/backends/triton/machine_code.py`, and of products and attention, which tensor cores limit, it says nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from bench import kernel_comparison
from fuser.backends.triton import machine_code
from fuser.backends.triton.machine_code import LaunchReport
from fuser.backends.triton.target import MACHINES, Machine
from fuser.ir.types import ArrayType, bfloat16
from fuser.partition.group import Kind


@dataclass(frozen=True)
class Summary:
    """A program's kernels on a machine: bytes that they move beside those that they must, and their launches."""

    machine: Machine
    moved: int
    ideal: int
    launches: tuple[LaunchReport, ...]
    products: bool  # whether there are products of matrices among the kernels

    @property
    def issue(self) -> float:
        return sum(launch.issue for launch in self.launches)

    @property
    def busy(self) -> float:
        return sum(launch.busy for launch in self.launches)

    @property
    def dram(self) -> float:
        return self.moved / self.machine.copy


def report(function: Callable[..., Any], *types: ArrayType, machine: Machine = MACHINES["cuda:90"]) -> Summary:
    """What a function's generated kernels cost on a machine; library steps count with neither bytes nor time."""
    lowered = fuser.jit(function, backend="triton").lower(*types)
    sources = {source.name: source for source in lowered.sources}
    groups = [group for group in lowered.plan.groups if group.name in sources]
    found = [machine_code.report(group, sources[group.name], machine) for group in groups]
    launches = tuple(launch for kernel in found for launch in kernel.launches)
    products = any(group.kind is Kind.CONTRACTION for group in groups)
    return Summary(machine, sum(k.moved for k in found), sum(k.ideal for k in found), launches, products)


# Programs.

ROWS = (64, 100, 256, 1000, 1024, 1025, 2048, 4096, 5120, 8192, 16384, 32768)
ELEMENTS = 1 << 25


def softmax(x: Any) -> Any:
    e = fnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / fnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def cross_entropy(logits: Any) -> Any:
    """The mean of −log softmax at labels all over the rows."""
    rows, columns = logits.shape
    labels = fnp.arange(rows) * 7919 % columns
    chosen = fnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return (fuser.nn.logsumexp(logits, -1) - chosen).mean()


def layer_norm_gradients(x: Any, scale: Any, bias: Any, ct: Any) -> Any:
    return fuser.vjp(lambda x, scale, bias: layer_norm(x) * scale + bias, x, scale, bias)[1](ct)


def wide_product(x: Any, y: Any) -> Any:
    """x yᵀ in float32."""
    return fuser.lax.dot_general(x, y, (((1,), (1,)), ((), ())), preferred_element_type=np.float32)


def nearest(x: Any, y: Any) -> Any:
    """The square of the distance from each row of x to the nearest row of y."""
    wide = y.astype("float32")
    found = fnp.argmin((wide * wide).sum(-1) - 2 * wide_product(x, y), -1)
    away = x.astype("float32") - wide[found]
    return (away * away).sum(-1)


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    return fuser.nn.dot_product_attention(q, k, v, is_causal=True)


def attention_gradients(q: Any, k: Any, v: Any, ct: Any) -> Any:
    out, pulled = fuser.vjp(causal_attention, q, k, v)
    return out, *pulled(ct)


def cases() -> Iterator[tuple[str, Callable[..., Any], tuple[ArrayType, ...]]]:
    """Name, function and types of each program."""
    f32 = np.dtype("float32")
    of = lambda dtype, *shape: ArrayType(shape, dtype)
    for dtype in (f32, bfloat16):
        for columns in ROWS:
            yield f"softmax {dtype.name} {columns}", softmax, (of(dtype, ELEMENTS // columns, columns),)
    for dtype in (f32, bfloat16):
        for columns in (1 << 16, 1 << 17, 1 << 18):
            rows = of(dtype, ELEMENTS // columns, columns)
            yield f"softmax {dtype.name} {columns}", softmax, (rows,)
            yield f"logsumexp {dtype.name} {columns}", lambda x: fuser.nn.logsumexp(x, -1), (rows,)
    for dtype, columns in (
        (dtype, columns) for dtype in (f32, bfloat16) for columns in (1000, 32000, 1 << 16, 1 << 18)
    ):
        rows = of(dtype, ELEMENTS // columns, columns)
        yield f"cross-entropy {dtype.name} {columns}", cross_entropy, (rows,)
        yield f"its gradient {dtype.name} {columns}", fuser.grad(cross_entropy), (rows,)
    for columns in (1 << 16, 1 << 18):
        yield f"layer norm {columns}", layer_norm, (of(f32, ELEMENTS // columns, columns),)
    yield "layer norm 4096", layer_norm, (of(f32, 4096, 4096),)
    for dtype in (f32, bfloat16):
        rows, row = of(dtype, 8192, 4096), of(dtype, 4096)
        yield f"layer norm gradients {dtype.name}", layer_norm_gradients, (rows, row, row, rows)
    yield "bias, width 1000", lambda x, b: fnp.maximum(x + b, 0), (of(f32, 8192, 1000), of(f32, 1000))
    yield "full sum", lambda x: x.sum(), (of(f32, 1 << 26),)
    yield "cumsum", lambda x: fnp.cumsum(x), (of(f32, 1 << 26),)
    yield "mean and std", lambda x: (x.mean(), x.std()), (of(f32, 1 << 26),)
    for dtype, features in ((bfloat16, 64), (bfloat16, 128), (f32, 64)):
        heads = of(dtype, 8, 4096, 16, features)
        yield f"causal attention {dtype.name} {features}", causal_attention, (heads, heads, heads)
        yield f"attention gradients {dtype.name} {features}", attention_gradients, (heads, heads, heads, heads)
    for name, function, count, others, features in (
        ("nearest of 1024", nearest, 100_000, 1024, 64),
        ("logsumexp of a product", lambda x, y: fuser.nn.logsumexp(wide_product(x, y), -1), 8192, 32_000, 128),
        ("largest of a product", lambda x, y: wide_product(x, y).max(-1), 65_536, 4096, 64),
    ):
        yield name, function, (of(bfloat16, count, features), of(bfloat16, others, features))
    yield "polynomial", lambda x: (x * x + 1) * x, (of(f32, 1 << 26),)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m bench.static", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("words", nargs="*", help="words that a program's name must have")
    parser.add_argument("--target", choices=sorted(MACHINES), default="cuda:90")
    kernel_comparison.arguments(parser)
    asked = parser.parse_args(arguments)
    if asked.inductor:
        return kernel_comparison.main(asked.words, asked.json)
    print("program                    launches  registers  spills  load/store bits  moved/ideal  issue/DRAM  unit/DRAM")
    for name, function, types in cases():
        if not all(word in name for word in asked.words):
            continue
        found = report(function, *types, machine=MACHINES[asked.target])
        registers, spills = max(x.code.registers for x in found.launches), sum(x.code.spills for x in found.launches)
        widths = f"{max(x.code.load_bits for x in found.launches)}/{max(x.code.store_bits for x in found.launches)}"
        print(
            f"{name:26} {len(found.launches):8} {registers:10} {spills:7} {widths:>16} {found.moved / found.ideal:12.2f}"
            + (
                f" {found.issue / found.dram:11.2f} {found.busy / found.dram:10.2f}"
                if not found.products
                else "  products"
            ),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
