"""Triton kernels written by hand, for `python -m bench.by_hand --gpu`: the algorithms of bench/by_hand.py, one kernel each.

They are what a Triton programmer would write: row kernels that hold whole rows, a product in tiles with its epilogue, attention
with running maxima, a stencil in tiles. `KERNELS` has for each its function, the types of its arguments, the constants and the launch.

Tiles and warps are those that fuser chooses. Row kernels have two forms: with the exponentials, quotients and roots that fuser's kernels
have too (IEEE 754 and 2 ulps), and with Triton's own, which are approximate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def exponential(x, EXACT: tl.constexpr):
    return libdevice.exp(x) if EXACT else tl.exp(x)


@triton.jit
def quotient(x, y, EXACT: tl.constexpr):
    return tl.div_rn(x, y) if EXACT else x / y


@triton.jit
def root(x, EXACT: tl.constexpr):
    return tl.sqrt_rn(x) if EXACT else tl.sqrt(x)


@triton.jit
def softmax(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    there = (row < rows) & (column < columns)
    values = tl.load(x + row * columns + column, there, other=float("-inf"))
    powers = exponential(values - tl.max(values, 1)[:, None], EXACT)
    tl.store(out + row * columns + column, quotient(powers, tl.sum(powers, 1)[:, None], EXACT), there)


@triton.jit
def layer_norm(x, scale, bias, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    there = (row < rows) & (column < columns)
    values = tl.load(x + row * columns + column, there, other=0.0)
    centred = tl.where(there, values - (tl.sum(values, 1) / columns)[:, None], 0.0)
    deviation = root(tl.sum(centred * centred, 1) / columns + 1e-5, EXACT)
    scales = tl.load(scale + column, column < columns)
    biases = tl.load(bias + column, column < columns)
    tl.store(out + row * columns + column, quotient(centred, deviation[:, None], EXACT) * scales + biases, there)


@triton.jit
def matmul(x, y, bias, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    columns = tl.cdiv(n, N)
    rows_at = (tl.program_id(0) // columns) * M + tl.arange(0, M)
    columns_at = (tl.program_id(0) % columns) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        depth = start + tl.arange(0, K)
        left = tl.load(
            x + rows_at[:, None] * k + depth[None, :], (rows_at[:, None] < m) & (depth[None, :] < k), other=0.0
        )
        right = tl.load(
            y + depth[:, None] * n + columns_at[None, :], (depth[:, None] < k) & (columns_at[None, :] < n), other=0.0
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    total = tl.maximum(total + tl.load(bias + columns_at, columns_at < n, other=0.0)[None, :], 0.0)
    there = (rows_at[:, None] < m) & (columns_at[None, :] < n)
    tl.store(out + rows_at[:, None] * n + columns_at[None, :], total, there)


@triton.jit
def attention(q, k, v, out, length, scale, Q: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr):
    head = tl.program_id(1) * length * WIDTH
    at = (tl.program_id(0) * Q + tl.arange(0, Q))[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    queries = tl.load(q + head + at) * scale
    top = tl.full((Q,), float("-inf"), tl.float32)
    norm = tl.zeros((Q,), tl.float32)
    total = tl.zeros((Q, WIDTH), tl.float32)
    for start in range(0, length, K):
        keys_at = (start + tl.arange(0, K))[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
        scores = tl.dot(queries, tl.trans(tl.load(k + head + keys_at)), input_precision="ieee")
        new = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        before = tl.exp(top - new)
        norm = norm * before + tl.sum(weights, 1)
        total = total * before[:, None] + tl.dot(weights, tl.load(v + head + keys_at), input_precision="ieee")
        top = new
    tl.store(out + head + at, total / norm[:, None])


@triton.jit
def stencil(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    there = (row < rows) & (column < columns)
    at = x + row * (columns + 2) + column
    above = tl.load(at + 1, there)
    below = tl.load(at + 2 * (columns + 2) + 1, there)
    left = tl.load(at + (columns + 2), there)
    right = tl.load(at + (columns + 2) + 2, there)
    tl.store(out + row * columns + column, 0.25 * (above + below + left + right), there)


@dataclass(frozen=True)
class Kernel:
    """A kernel, how many pointers to float32 it takes first, its sizes, constants, programs and warps."""

    function: Any
    pointers: int
    sizes: dict[str, int | float]
    constants: dict[str, int]
    grid: int
    warps: int
    stages: int = 1

    def compiled(self, arch: int) -> Any:
        """Compiled for sm_`arch`, with what Triton's launcher would know of the arguments: which are multiples of 16."""
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        names = self.function.arg_names
        types = ["*fp32"] * self.pointers + ["fp32" if isinstance(s, float) else "i32" for s in self.sizes.values()]
        types += ["constexpr"] * len(self.constants)
        aligned = [*range(self.pointers)]
        aligned += [self.pointers + n for n, s in enumerate(self.sizes.values()) if isinstance(s, int) and s % 16 == 0]
        unit = ASTSource(
            self.function,
            dict(zip(names, types, strict=True)),
            constexprs={(names.index(name),): value for name, value in self.constants.items()},
            attrs={(n,): [["tt.divisibility", 16]] for n in aligned},
        )
        options = {"num_warps": self.warps, "num_stages": self.stages}
        return triton.compile(unit, target=GPUTarget("cuda", arch, 32), options=options)


_ROWS = {"rows": 4096, "columns": 512}
_EXACT, _APPROXIMATE = ({"ROWS": 2, "COLUMNS": 512, "EXACT": exact} for exact in (1, 0))
KERNELS = {
    "softmax": Kernel(softmax, 2, _ROWS, _EXACT, 2048, 1),
    "softmax, approximate": Kernel(softmax, 2, _ROWS, _APPROXIMATE, 2048, 1),
    "layer norm": Kernel(layer_norm, 4, _ROWS, _EXACT, 2048, 1),
    "layer norm, approximate": Kernel(layer_norm, 4, _ROWS, _APPROXIMATE, 2048, 1),
    "matmul": Kernel(matmul, 4, {"m": 1024, "n": 1024, "k": 1024}, {"M": 64, "N": 64, "K": 32}, 256, 4, 3),
    "attention": Kernel(attention, 4, {"length": 1024, "scale": 0.125}, {"Q": 64, "K": 32, "WIDTH": 64}, 128, 4, 2),
    "stencil": Kernel(stencil, 2, {"rows": 2048, "columns": 1024}, {"ROWS": 1, "COLUMNS": 1024}, 2048, 4),
}
