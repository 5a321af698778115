"""Programs for the TPU backend: every form of kernel, and the benchmark's workloads.

`FORMS[name]` is a function and the types of its arguments, of sizes that choose the form but that the interpreter can
run; `PALLAS` are those of them that must be Pallas kernels alone, with how many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from bench.workload import Workload
from fuser.ir.primitive import REGISTRY
from fuser.ir.types import ArrayType
from fuser.ops.column_major import COLUMN_MAJOR
from fuser.trace.core import bind
from tests.backends.triton_cases import Form, f32, layer_norm, of, places, reductions, softmax

LOOSE = ("long sum", "mandelbrot_loop", "particles")  # long sums, and programs that make much of the last bit
WIDE = ("checksum",)  # 64-bit integers
# Primitives that only SciPy on the host computes, or that are made of 64-bit integers; the backend refuses programs with one (docs/tpu.md).
HOST = frozenset(
    [
        "bessel_j",
        "complex_digamma",
        "cosine_integral",
        "dawsn",
        "eig",
        "erfcx",
        "exp1",
        "expi",
        "expn",
        "fresnel_c",
        "fresnel_s",
        "geqrf",
        "hessenberg",
        "order",  # and scatter_rows, select_largest: what sorts, scatters and top_k become on GPUs
        "scatter_rows",
        "write_window",
        "select_largest",
        "hyp1f1",
        "hyp1f1_by_a",
        "hyp1f1_by_b",
        "hyp2f1",
        "hyp2f1_by_a",
        "hyp2f1_by_b",
        "hyp2f1_by_c",
        "loggamma",
        "owens_t",
        "schur",
        "sine_integral",
        "spence",
        "tridiagonal",
        "wofz",
        "rng_bit_generator",
    ]
)
# What the Triton backend alone makes factorisations, transforms and ragged products of; no other backend meets these.
OF_GPUS = frozenset(["dft", "grouped_matmul", "grouped_sums", *(primitive.name for primitive in COLUMN_MAJOR)])

FORMS: dict[str, Form] = {
    # one axis, several, ragged ones; neighbours along different axes
    "line": (lambda x: fnp.tanh(x) * 2 + 1, (f32(3000),)),
    "long line": (lambda x, y: fnp.maximum(x, y) - 0.5, (f32(300_001), f32(300_001))),
    "three axes": (lambda x, y: fnp.maximum(x, y) - 0.5, (f32(7, 5, 64), f32(7, 5, 64))),
    "scalar beside": (lambda x, y: x * y + 1, (f32(40, 300), f32())),
    "bfloat16 line": (lambda x: fnp.exp(x) / 3, (of("bfloat16", 1000),)),
    "bfloat16 and float32": (lambda x, y: x.astype("float32") + y, (of("bfloat16", 20, 100), f32(20, 100))),
    "integers": (lambda x, y: (x // y, x % y, x << 3, -x), (of("int32", 1000), of("int32", 1000))),
    "unsigned": (lambda x, y: (x // y, x >> 3, x ^ y, x > y), (of("uint32", 1000), of("uint32", 1000))),
    "convolution that leaves an edge out": (
        lambda x, k: fuser.lax.conv_general_dilated(x, k, (1, 2), ((-1, 1), (0, 0)), (2, 1)),
        (f32(2, 4, 5, 6), f32(4, 4, 2, 3)),
    ),
    "bytes": (lambda x: x * x + 200, (of("uint8", 1000),)),
    "masks": (lambda x, m: (fnp.where(m, x, 0), x > 0, ~m), (f32(40, 300), of("bool", 40, 300))),
    "masks of another shape": (lambda x: ((x + 1)[:, None], (x >= 0)[:, None]), (of("int32", 32),)),
    "rows and columns": (lambda x, y, z: x + y * z[:, None], (f32(40, 300), f32(300), f32(40))),
    "many rows": (lambda x, y: fnp.exp(x) * y[:, None], (f32(3000, 300), f32(3000))),
    "transposed": (lambda x: fnp.transpose(x) + 1, (f32(70, 90),)),
    "permuted": (lambda x: fnp.transpose(x, (2, 0, 1)) * 2, (f32(20, 30, 40),)),
    "broadcast outer": (lambda x, y: x[:, None] * y[None, :], (f32(50), f32(70))),
    "stencil": (lambda u: u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1], (f32(40, 50),)),
    "large stencil": (
        lambda u: u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1],
        (f32(700, 520),),
    ),
    "stencil in space": (lambda u: u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, 2:, :-2], (f32(30, 70, 140),)),
    "padded": (lambda x: fnp.pad(x, ((1, 2), (3, 0))) + 1, (f32(20, 30),)),
    "large padded": (lambda x: fnp.pad(x, ((1, 2), (3, 0))) + 1, (f32(900, 700),)),
    "joined": (lambda x, y: fnp.concatenate([x, y * 2], axis=1), (f32(20, 30), f32(20, 11))),
    "reshaped": (lambda x: (x.reshape(6, 35) + 1).T, (f32(10, 21),)),
    "reversed": (lambda x: x[::-1, ::-1] * 2, (f32(20, 30),)),
    "every other": (lambda x: x[::2, 1::3] * 2, (f32(20, 30),)),
    "one column": (lambda x: fnp.exp(x[:, 3]) + x[:, 7], (f32(200, 30),)),
    "gathered": (lambda x, i: x[i] + 1, (f32(50, 20), of("int32", 64))),
    "one of each row": (
        lambda x, i: fnp.take_along_axis(x, i[:, None], axis=1)[:, 0] - fnp.max(x, axis=1),
        (f32(40, 300), of("int32", 40)),
    ),
    "biases of labels": (
        lambda x, b, i: fnp.max(x, axis=1) - fnp.take_along_axis(x + b[None, :], i[:, None], axis=1)[:, 0],
        (f32(40, 300), f32(300), of("int32", 40)),
    ),
    "updated inside": (lambda x: x.at[1:-1, 1:-1].set(x[2:, 1:-1] * 2), (f32(40, 300),)),
    "counted": (lambda x: x + fnp.arange(1000), (of("int32", 1000),)),
    "random numbers": (lambda x: x + fuser.random.normal(fuser.random.key(3), (500,)), (f32(500),)),
    "random numbers of a given key": (
        lambda x, seed: fuser.random.uniform(fuser.random.fold_in(fuser.random.key(1), seed), (40, 300)) + x,
        (f32(40, 300), of("uint32")),
    ),
    # whole rows
    "softmax": (softmax, (f32(37, 100),)),
    "softmax of three": (softmax, (f32(300, 3),)),
    "softmax of 6000": (softmax, (f32(20, 6000),)),
    "layer norm": (layer_norm, (f32(33, 128), f32(128), f32(128))),
    "layer norm in bfloat16": (layer_norm, tuple(of("bfloat16", *s) for s in ((9, 128), (128,), (128,)))),
    "reductions": (reductions, (f32(20, 50),)),
    "reductions of bytes": (reductions, (of("int8", 20, 50),)),
    "reductions of unsigned": (reductions, (of("uint32", 20, 50),)),
    "places": (places, (f32(20, 50),)),
    "places of integers": (places, (of("int32", 20, 50),)),
    "all and any": (lambda x: (fnp.any(x > 1, axis=-1), fnp.all(x > -1, axis=-1)), (f32(20, 50),)),
    "several rows axes": (lambda x: fnp.sum(x * 2, axis=2), (f32(6, 7, 60),)),
    "outer and inner reduced": (lambda x: fnp.sum(x, axis=(0, 2)), (f32(6, 20, 15),)),
    "full sum": (lambda x: fnp.sum(x), (f32(9, 11),)),
    "full sum of a line": (lambda x: fnp.sum(x), (f32(1000),)),
    # columns
    "column sum": (lambda x: fnp.sum(x * x, axis=0), (f32(40, 300),)),
    "column softmax": (lambda x: softmax(x, 0), (f32(60, 100),)),
    "middle sum": (lambda x: fnp.sum(x, axis=1), (f32(5, 20, 100),)),
    "column places": (lambda x: places(x, 0), (f32(30, 200),)),
    # tiles cut the reduced axes
    "long rows": (softmax, (f32(9, 500_000),)),
    "long sum": (lambda x: fnp.sum(x * x), (f32(3_000_000),)),
    "tall column sum": (lambda x: fnp.sum(x * x, axis=0), (f32(30_000, 140),)),
    "tall column softmax": (lambda x: softmax(x, 0), (f32(30_011, 140),)),
    "long places": (places, (f32(9, 500_000),)),
    "long places down columns": (lambda x: places(x, 0), (f32(30_011, 130),)),
    "long all and any": (lambda x: (fnp.any(x > 5, axis=0), fnp.all(x > -1, axis=0)), (f32(30_011, 130),)),
    "long layer norm": (layer_norm, (f32(8, 400_000), f32(400_000), f32(400_000))),
    # scans
    "cumsum": (lambda x: fnp.cumsum(x, axis=1), (f32(20, 50),)),
    "cumulative maximum down columns": (lambda x: bind(REGISTRY["cummax"], x, axis=0, reverse=True), (f32(50, 40),)),
    "cumprod of integers": (lambda x: fnp.cumprod(x), (of("int32", 30),)),
    "normalised cumsum": (lambda x: fnp.cumsum(x, axis=1) / fnp.sum(x, axis=1, keepdims=True), (f32(20, 50),)),
    "long cumsum": (lambda x: fnp.cumsum(x, axis=1), (of("int32", 8, 500_000),)),
    "long reverse cumsum": (
        lambda x: bind(REGISTRY["cumsum"], x, axis=0, reverse=True) * 2,
        (of("int32", 30_011, 130),),
    ),
    "cumulative logarithm": (lambda x: bind(REGISTRY["cumlogsumexp"], x, axis=1, reverse=False), (f32(10, 300),)),
    # products, with what XLA fuses behind them
    "product": (lambda x, w, b: fnp.tanh(x @ w + b), tuple(of("bfloat16", *s) for s in ((40, 70), (70, 50), (50,)))),
    "float32 product": (lambda x, w: fnp.maximum(x @ w, 0), (f32(33, 20), f32(20, 65))),
    "batched product": (lambda x, w: x @ w, (of("bfloat16", 3, 20, 32), of("bfloat16", 3, 32, 24))),
    "product of sliced operands": (lambda x, w: x[3:, 1:33] @ w[::2], (f32(20, 40), f32(64, 24))),
    # loops
    "loop of lanes": (
        lambda x: fuser.lax.fori_loop(0, 50, lambda _, v: fnp.sin(v) + 0.5 * v, x),
        (f32(20, 300),),
    ),
    "loop until done": (
        lambda x: fuser.vmap(
            fuser.vmap(lambda v: fuser.lax.while_loop(lambda a: a < 5, lambda a: a * 1.5 + 0.1, abs(v) + 0.1))
        )(x),
        (f32(20, 300),),
    ),
    "scan of rows": (lambda x: fuser.lax.scan(lambda c, r: (c * 0.5 + r, c), x[0], x), (f32(12, 9, 40),)),
    "loop with a sum": (lambda x: fuser.lax.fori_loop(0, 9, lambda _, v: v / fnp.sum(v), abs(x) + 1), (f32(300),)),
    "branch": (
        lambda x: fuser.lax.cond(fnp.sum(x) > 0, lambda v: fnp.exp(v) + 1, lambda v: fnp.sort(v), x),
        (f32(300),),
    ),
    # libraries
    "sorted": (lambda x: fnp.sort(x, axis=1) + 1, (f32(20, 50),)),
    "solved": (lambda a, b: fnp.linalg.solve(a @ a.T + 50 * fnp.eye(8), b), (f32(8, 8), f32(8, 3))),
}


def loss(x: Any, w: Any) -> Any:
    """The mean of a softmax's negative logarithms."""
    return -fnp.mean(fnp.log(softmax(fnp.tanh(x @ w))[:, 0]))


TRANSFORMS: dict[str, Form] = {
    "gradient of a loss": (fuser.value_and_grad(loss, argnums=(0, 1)), (f32(20, 30), f32(30, 40))),
    "gradient of layer norm": (
        fuser.grad(lambda x, s, b: fnp.sum(layer_norm(x, s, b) ** 2), argnums=(0, 1, 2)),
        (f32(33, 128), f32(128), f32(128)),
    ),
    "gradient of a stencil": (
        fuser.grad(lambda u: fnp.sum((u[:-2, 1:-1] + u[2:, 1:-1] - 2 * u[1:-1, 1:-1]) ** 2)),
        (f32(40, 50),),
    ),
    "gradient of a cumsum": (fuser.grad(lambda x: fnp.sum(fnp.cumsum(x, axis=1) ** 2)), (f32(20, 50),)),
    "gradient of a loop": (
        fuser.grad(lambda x: fnp.sum(fuser.lax.fori_loop(0, 5, lambda _, v: fnp.sin(v) + v, x))),
        (f32(20, 130),),
    ),
    "gradient of a sort": (fuser.grad(lambda x: fnp.sum(fnp.sort(x) * fnp.arange(50.0))), (f32(50),)),
    "second derivatives": (fuser.hessian(lambda x: fnp.sum(fnp.exp(-x * x))), (f32(12),)),
    "batch of softmax": (fuser.vmap(softmax), (f32(4, 20, 50),)),
    "batch along columns": (fuser.vmap(lambda x, y: fnp.sum(x * y), in_axes=(1, None)), (f32(30, 40), f32(30))),
    "batch of stencils": (fuser.vmap(lambda u: u[2:] - 2 * u[1:-1] + u[:-2]), (f32(10, 300),)),
    "batch of gradients": (fuser.vmap(fuser.grad(lambda x: fnp.sum(fnp.tanh(x) ** 3))), (f32(10, 50),)),
    "batch of loops": (
        fuser.vmap(lambda x: fuser.lax.while_loop(lambda v: v < 10, lambda v: v * 2 + 1, abs(x) + 0.1)),
        (f32(300),),
    ),
    "batch of scans": (fuser.vmap(lambda x: fuser.lax.scan(lambda c, r: (c + r, c * r), 0.0, x)), (f32(20, 9),)),
}


def arguments(avals: tuple[ArrayType, ...]) -> tuple[np.ndarray, ...]:
    """Numbers of these types."""
    rng = np.random.default_rng(7)
    made = []
    for aval in avals:
        if aval.dtype == np.bool_:
            made.append(rng.integers(0, 2, aval.shape).astype(bool))
        elif aval.dtype.kind in "iu":
            low = 0 if aval.dtype.kind == "u" else -9
            made.append((rng.integers(low, 19, aval.shape)).astype(aval.dtype))
        else:
            made.append(np.asarray(rng.standard_normal(aval.shape)).astype(aval.dtype))
    return tuple(made)


def program(workload: Workload) -> Callable[..., Any]:
    """A workload by fuser."""
    return lambda *inputs: workload.run(fuser, inputs)
