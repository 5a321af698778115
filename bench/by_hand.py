"""`python -m bench.by_hand`: kernels written in fuser.pallas, beside the same computation as plain array code, fused automatically.

With `--steps`: products from the shortest kernel to the fastest. With `--gpu`, which needs no GPU: what the machine code for sm_90 of the same kernels says, beside Triton kernels written by hand
(bench/by_hand_triton.py).

Both run in one process and take turns; times are processor time, the ratio is the median over turns. Run it with FUSER_THREADS=1. "same" says that
the generated kernels are the same text: then the times differ by chance alone.
"""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rich.table import Table

import fuser
import fuser.numpy as fnp
from bench import report
from bench.timing import samples
from fuser import pallas as pl
from fuser.trace.core import type_of

Row = tuple[str, Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]
ROUNDS, SAMPLE_SECONDS = 15, 0.02
F32 = np.dtype("float32")


def _of(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(F32)


def _by_rows(function: Callable[..., Any], rows: int, shape: tuple[int, int], vectors: int) -> Callable[..., Any]:
    """A function of rows and of vectors along them as a kernel over blocks of rows."""

    def kernel(*refs: Any) -> None:
        refs[-1][...] = function(*(ref[...] for ref in refs[:-1]))

    block, vector = pl.BlockSpec((rows, shape[1]), lambda i: (i, 0)), pl.BlockSpec((shape[1],), lambda i: (0,))
    specs, out = [block, *[vector] * vectors], fuser.ShapeDtypeStruct(shape, F32)
    return pl.pallas_call(kernel, out, grid=shape[0] // rows, in_specs=specs, out_specs=block)


def softmax(x: Any) -> Any:
    """Over rows."""
    e = fnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    """Over rows."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / fnp.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5) * scale + bias


def epilogue(x: Any, y: Any, bias: Any) -> Any:
    """A matrix product with a bias and a relu."""
    return fnp.maximum(x @ y + bias, 0)


def matmul(size: int, block: int, kind: str = "parallel", depth: int = 0) -> Callable[..., Any]:
    """`epilogue` in blocks, each summed up over the last dimension of the grid, `depth` at a time (else as many as a block is wide);
    `kind` of its other two dimensions."""
    depth = depth or block

    def kernel(x_ref: Any, y_ref: Any, bias_ref: Any, o_ref: Any, acc: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            acc[...] = fnp.zeros_like(acc)

        acc[...] += pl.dot(x_ref[...], y_ref[...])

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _() -> None:
            o_ref[...] = fnp.maximum(acc[...] + bias_ref[...], 0)

    return pl.pallas_call(
        kernel, fuser.ShapeDtypeStruct((size, size), F32), grid=(size // block, size // block, size // depth),
        in_specs=[
            pl.BlockSpec((block, depth), lambda i, j, k: (i, k)),
            pl.BlockSpec((depth, block), lambda i, j, k: (k, j)),
            pl.BlockSpec((block,), lambda i, j, k: (j,)),
        ],
        out_specs=pl.BlockSpec((block, block), lambda i, j, k: (i, j)),
        scratch_shapes=[pl.MemoryRef((block, block), F32)],
        compiler_params=pl.CompilerParams(dimension_semantics=(kind, kind, "arbitrary")),
    )  # fmt: skip


def attention(q: Any, k: Any, v: Any) -> Any:
    """Softmax attention, a head in each leading index."""
    return softmax(fnp.einsum("htd,hsd->hts", q * np.float32(q.shape[-1] ** -0.5), k)) @ v


def flash(heads: int, length: int, width: int, of_q: int, of_k: int) -> Callable[..., Any]:
    """`attention` with running maxima and sums: Dao et al., "FlashAttention" (2022), algorithm 1."""

    def kernel(q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any) -> None:
        q = q_ref[...] * np.float32(width**-0.5)

        def step(n: Any, carry: Any) -> Any:
            total, top, norm = carry
            scores = q @ k_ref[pl.ds(n * of_k, of_k), :].T
            new = fnp.maximum(top, scores.max(axis=-1))
            weights, before = fnp.exp(scores - new[:, None]), fnp.exp(top - new)
            part = weights @ v_ref[pl.ds(n * of_k, of_k), :]
            return total * before[:, None] + part, new, norm * before + weights.sum(axis=-1)

        start = fnp.zeros((of_q, width)), fnp.full((of_q,), -fnp.inf), fnp.zeros((of_q,))
        total, _, norm = fuser.lax.fori_loop(0, length // of_k, step, start)
        o_ref[...] = total / norm[:, None]

    block = pl.BlockSpec((None, of_q, width), lambda h, i: (h, i, 0))
    whole = pl.BlockSpec((None, length, width), lambda h, i: (h, 0, 0))
    out = fuser.ShapeDtypeStruct((heads, length, width), F32)
    return pl.pallas_call(kernel, out, grid=(heads, length // of_q), in_specs=[block, whole, whole], out_specs=block)


def stencil(x: Any) -> Any:
    """The mean of the four neighbours."""
    return 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


def stencil_by_hand(rows: int, columns: int, block: int) -> Callable[..., Any]:
    """`stencil` over blocks of rows with a halo."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = stencil(x_ref[...])

    halo = pl.BlockSpec((pl.Element(block + 2), pl.Element(columns + 2)), lambda i: (i * block, 0))
    out = fuser.ShapeDtypeStruct((rows, columns), F32)
    spec = pl.BlockSpec((block, columns), lambda i: (i, 0))
    return pl.pallas_call(kernel, out, grid=rows // block, in_specs=[halo], out_specs=spec)


def rows() -> Iterator[Row]:
    """Name, kernel by hand, array code, arguments."""
    shape = (4096, 512)
    yield "softmax", _by_rows(softmax, 16, shape, 0), softmax, (_of(*shape),)
    yield "layer norm", _by_rows(layer_norm, 16, shape, 2), layer_norm, (_of(*shape), _of(512), _of(512))
    yield "matmul", matmul(1024, 256), epilogue, (_of(1024, 1024), _of(1024, 1024), _of(1024))
    heads = [_of(8, 1024, 64) for _ in range(3)]
    yield "attention", flash(8, 1024, 64, 128, 256), attention, tuple(heads)
    yield "stencil", stencil_by_hand(2048, 1024, 64), stencil, (_of(2050, 1026),)


def measure(row: Row, rounds: int = ROUNDS) -> dict[str, Any]:
    """The median seconds a call of both, the median of their ratio, their greatest difference, and whether their kernels are the same."""
    name, hand, auto, arrays = row
    calls = [fuser.jit(hand), fuser.jit(auto)]
    found = [np.asarray(call(*arrays)) for call in calls]
    both = {str(n): functools.partial(call, *arrays) for n, call in enumerate(calls)}
    times = np.array(list(samples(both, rounds, SAMPLE_SECONDS, time.process_time).values())).T
    texts = [[_code(source.text) for source in call.lower(*arrays).sources] for call in calls]
    return {
        "name": name,
        "hand": float(np.median(times[:, 0])),
        "auto": float(np.median(times[:, 1])),
        "ratio": float(np.median(times[:, 0] / times[:, 1])),
        "difference": float(np.abs(found[0] - found[1]).max()),
        "same": texts[0] == texts[1],
    }


def _code(text: str) -> str:
    """A kernel's text without its comments, which name the lines that it comes from."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))


def by_elements(size: int) -> Callable[..., Any]:
    """A product with an element a program."""

    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[0, 0] = (x_ref[0, :] * y_ref[:, 0]).sum()

    row, column = pl.BlockSpec((1, size), lambda i, j: (i, 0)), pl.BlockSpec((size, 1), lambda i, j: (0, j))
    element, out = pl.BlockSpec((1, 1), lambda i, j: (i, j)), fuser.ShapeDtypeStruct((size, size), F32)
    return pl.pallas_call(kernel, out, grid=(size, size), in_specs=[row, column], out_specs=element)


def by_rows(size: int, block: int) -> Callable[..., Any]:
    """A product with rows of the result a program."""

    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = fnp.maximum(x_ref[...] @ y_ref[...], 0)

    rows, whole = pl.BlockSpec((block, size), lambda i: (i, 0)), pl.BlockSpec((size, size), lambda i: (0, 0))
    out = fuser.ShapeDtypeStruct((size, size), F32)
    return pl.pallas_call(kernel, out, grid=size // block, in_specs=[rows, whole], out_specs=rows)


def steps(size: int = 512) -> Table:
    """GFLOP/s of products by hand, from the shortest to the fastest: the steps of docs/kernels-by-hand.md."""
    x, y, bias = _of(size, size), _of(size, size), np.zeros(size, F32)
    in_blocks = lambda block, kind: lambda x, y: matmul(size, block, kind)(x, y, bias)
    kernels = {
        "an element a program": by_elements(size),
        "blocks of 32, summed along the grid": in_blocks(32, "arbitrary"),
        "the same, parallel": in_blocks(32, "parallel"),
        "blocks of 128, parallel": in_blocks(128, "parallel"),
        "blocks of 256, parallel": in_blocks(256, "parallel"),
        "8 rows a program": by_rows(size, 8),
        "array code": lambda x, y: fnp.maximum(x @ y, 0),
    }
    calls = {name: functools.partial(fuser.jit(kernel), x, y) for name, kernel in kernels.items()}
    times = samples(calls, ROUNDS, SAMPLE_SECONDS, time.process_time)
    table = Table("kernel", "ms", "GFLOP/s")
    for name, found in times.items():
        seconds = statistics.median(found)
        table.add_row(name, f"{seconds * 1e3:.2f}", f"{2 * size**3 / seconds / 1e9:.1f}")
    return table


def on_gpu() -> Table:
    """Registers, bytes spilled, and the widest loads and stores of the kernels for sm_90: fuser.pallas, plain array code, Triton by hand."""
    from bench import static
    from bench.by_hand_triton import KERNELS
    from fuser.backends.triton.machine_code import of_cuda

    table = Table("kernel", "written in", "launches", "registers", "spills", "load bits", "store bits")
    on_sm = {
        "matmul": matmul(1024, 64, depth=32),
        "attention": flash(8, 1024, 64, 64, 32),
    }  # blocks that registers hold
    for name, hand, auto, arrays in rows():
        hand = on_sm.get(name, hand)
        table.add_section()
        types = [type_of(array) for array in arrays]
        found = {
            "fuser.pallas": [launch.code for launch in static.report(hand, *types).launches],
            "array code": [launch.code for launch in static.report(auto, *types).launches],
            "Triton": [of_cuda(KERNELS[name].compiled(90), 1)],
        }
        if loose := KERNELS.get(f"{name}, approximate"):
            found["Triton, approximate"] = [of_cuda(loose.compiled(90), 1)]
        for system, codes in found.items():
            most = [max(getattr(c, key) for c in codes) for key in ("registers", "spills", "load_bits", "store_bits")]
            table.add_row(name, system, str(len(codes)), *map(str, most))
    return table


def main() -> int:
    """Print the table."""
    if (other := {"--gpu": on_gpu, "--steps": steps}.get("".join(sys.argv[1:]))) is not None:
        report.open_console().print(other())
        return 0
    table = Table("kernel", "by hand, ms", "automatic, ms", "ratio", "difference", "kernels")
    for row in rows():
        found = measure(row)
        ms = [f"{found[key] * 1e3:.2f}" for key in ("hand", "auto")]
        same = "same" if found["same"] else ""
        table.add_row(found["name"], *ms, f"{found['ratio']:.2f}", f"{found['difference']:.1e}", same)
    report.open_console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
