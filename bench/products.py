"""Matrix products of many shapes, side by side with torch (its BLAS), JAX and NumPy: `python -m bench.products`.

Every case is a Workload, so results are checked against float64 NumPy before they count. `--threads 1` keeps the whole
process on one processor. Rows are printed as time, GFLOP/s and the ratio of each peer's time to fuser's.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import Workload
from bench.workloads.networks import gelu, gelu_mlp

PEERS = ("torch", "jax", "numpy")
SQUARES = (2, 3, 4, 8, 16, 32, 64, 100, 128, 200, 256, 512, 1000, 1024, 2000, 2048, 4096)
Shapes = tuple[tuple[int, ...], ...]


def case(name: str, function: Callable[..., Any], shapes: Shapes, flops: int, torch: Any = None) -> Workload:
    """A workload of one size: normal numbers of these shapes, of which the products' sums stay about one."""

    def make(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return tuple(random.standard_normal(shape) / max(shape[-1], 1) ** 0.25 for shape in shapes)

    return Workload(name, name, {"full": ()}, make, function, flops=lambda: flops, torch=torch, floor=5.0, slack=20.0)


def product(a: tuple[int, ...], b: tuple[int, ...], name: str = "") -> Workload:
    """A case of `a @ b`."""
    columns = b[-1] if len(b) > 1 else 1
    label = "×".join(map(str, a)) + " @ " + "×".join(map(str, b))
    return case(name or label, lambda np, x, y: x @ y, (a, b), 2 * int(np.prod(a)) * columns)


def einsum(form: str, *shapes: tuple[int, ...]) -> Workload:
    """A case of einsum."""
    inputs = form.split("->")[0].split(",")
    extents = {letter: extent for term, shape in zip(inputs, shapes) for letter, extent in zip(term, shape)}
    work = 2 * int(np.prod(list(extents.values())))
    label = f"{form} {' '.join('×'.join(map(str, s)) for s in shapes)}"
    return case(label, lambda np, *arrays: np.einsum(form, *arrays), shapes, work)


def _rotation(np: Any, points: Any, turn: Any, shift: Any) -> Any:
    return points @ turn.T + shift


def _quadratic(np: Any, x: Any, a: Any) -> Any:
    return ((x @ a) * x).sum(-1)


def _layer(np: Any, x: Any, w: Any, b: Any) -> Any:
    return gelu(np, x @ w + b)


def _layer_torch(x: Any, w: Any, b: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(torch.addmm(b, x, w), approximate="tanh")


def _mlp_torch(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    import torch

    return torch.addmm(b2, _layer_torch(x, w1, b1), w2)


def _relu_backward(np: Any, x: Any, h: Any, g: Any, w: Any) -> Any:
    """Of a layer relu(x @ w1 + b1) @ w2: the cotangents of its weights, its bias and of what it was given."""
    inner = (g @ w.T) * (h > 0)
    return x.T @ inner, inner.sum(0), h.T @ g


def _attention(np: Any, q: Any, k: Any, v: Any) -> Any:
    s = np.einsum("bhqd,bhkd->bhqk", q, k) * 0.125
    e = np.exp(s - np.max(s, -1)[..., None]) if np.__name__ != "torch" else np.exp(s - np.amax(s, -1)[..., None])
    return np.einsum("bhqk,bhkd->bhqd", e / e.sum(-1)[..., None], v)


def cases() -> list[Workload]:
    """All cases."""
    found = [product((n, n), (n, n), f"{n}³") for n in SQUARES]
    for a, b in (
        ((100_000, 64), (64, 64)),
        ((1_000_000, 3), (3, 3)),
        ((100_000, 4), (4, 4)),
        ((2048, 2048), (2048,)),
        ((2048,), (2048, 2048)),
        ((100_000, 100), (100,)),
        ((1000,), (1000,)),
        ((10_000_000,), (10_000_000,)),
        ((2000, 1), (1, 2000)),
        ((512, 512), (512, 10)),
        ((10_000, 512), (512, 10)),
        ((10, 512), (512, 2048)),
        ((1, 784), (784, 512)),
        ((100_000, 4, 4), (100_000, 4, 4)),
        ((100_000, 4, 4), (100_000, 4, 1)),
        ((10_000, 16, 16), (10_000, 16, 16)),
        ((2000, 32, 32), (2000, 32, 32)),
        ((64, 256, 256), (64, 256, 256)),
        ((8, 8, 128, 64), (8, 8, 64, 128)),
    ):
        found.append(product(a, b))
    found += [
        case("x.T @ x 100000×100", lambda np, x: x.T @ x, ((100_000, 100),), 2 * 100_000 * 100 * 100),
        case("a @ b.T 1000³", lambda np, x, y: x @ y.T, ((1000, 1000), (1000, 1000)), 2 * 1000**3),
        case("a.T @ b 1000³", lambda np, x, y: x.T @ y, ((1000, 1000), (1000, 1000)), 2 * 1000**3),
        case("3×3 rotation and shift of 10⁶", _rotation, ((1_000_000, 3), (3, 3), (3,)), 18_000_000),
        case("x·A·x 10⁵×8", _quadratic, ((100_000, 8), (8, 8)), 2 * 100_000 * 72),
        einsum("bhqd,bhkd->bhqk", (4, 8, 128, 64), (4, 8, 128, 64)),
        einsum("bqhd,bkhd->bhqk", (4, 128, 8, 64), (4, 128, 8, 64)),
        einsum("bhqk,bhkd->bhqd", (4, 8, 128, 128), (4, 8, 128, 64)),
        einsum("ij,kj->ki", (700, 300), (500, 300)),
        einsum("bij,bjk->bik", (1000, 10, 20), (1000, 20, 30)),
        einsum("nd,nd->n", (100_000, 16), (100_000, 16)),
        case("attention 4×8×256×64", _attention, ((4, 8, 256, 64),) * 3, 4 * 32 * 256 * 256 * 64),
        case(
            "gelu layer 1024³",
            _layer,
            ((1024, 1024), (1024, 1024), (1024,)),
            2 * 1024**3,
            _layer_torch,
        ),
        case(
            "gelu mlp 256×512×2048",
            gelu_mlp,
            ((256, 512), (512, 2048), (2048,), (2048, 512), (512,)),
            4 * 256 * 512 * 2048,
            _mlp_torch,
        ),
        case(
            "relu backward 512×512",
            _relu_backward,
            ((512, 512), (512, 512), (512, 10), (512, 10)),
            2 * 512 * 512 * (10 + 512 + 10),
        ),
    ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.products", description=__doc__)
    parser.add_argument("--threads", type=int, default=0, help="processors to keep the process on; 0: all")
    parser.add_argument("--dtype", default="float32", help="float32, float64, float16 or bfloat16")
    parser.add_argument("--only", default="", help="parts of the names of cases, with | between them")
    parser.add_argument("--systems", default=",".join(("fuser", *PEERS)))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=pathlib.Path, help="a file for the rows, with the machine's description")
    options = parser.parse_args()
    if options.threads:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    from bench.machine import describe  # after the processors are fixed: libraries count them when they load
    from bench.measure import Settings, measure_cell
    from bench.systems import select

    systems = select(options.systems.split(","))
    print(f"{'case':36}{'fuser':>12}{'GFLOP/s':>9}" + "".join(f"{s.name + '/fuser':>13}" for s in systems[1:]))
    rows: list[dict[str, Any]] = []
    parts = options.only.split("|")
    for workload in cases():
        if any(part in workload.name for part in parts):
            made = measure_cell(workload, "full", systems, Settings(options.rounds, options.dtype))
            rows += made
            print(line(made), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"machine": describe(False), "rows": rows}, indent=1))


def line(rows: list[dict[str, Any]]) -> str:
    """One case as text: fuser's best time, its speed, and each peer's best time over it."""
    ours, *peers = rows
    if "min_s" not in ours:
        return f"{ours['workload']:36}{ours['failure'] or ours['skipped']}"
    wrong = "" if ours["correct"] else "  WRONG"
    best = ours["min_s"]
    ratios = "".join(f"{row['min_s'] / best:12.2f}×" if "min_s" in row else f"{'–':>13}" for row in peers)
    return f"{ours['workload']:36}{best * 1e6:10.1f}µs{ours['flops'] / best / 1e9:9.1f}{ratios}{wrong}"


if __name__ == "__main__":
    main()
