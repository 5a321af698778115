"""Kernels with products, loops and dimensions of the grid that run in order: name to (function of arrays and options, arrays)."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

import fuser
import fuser.numpy as fnp
from bench.by_hand import flash
from bench.by_hand import matmul as blocked
from fuser import ShapeDtypeStruct, lax
from fuser import pallas as pl

rng = np.random.default_rng(0)
F32 = np.dtype("float32")


def of(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(F32)


def call(kernel: Any, out: Any, *arrays: Any, **options: Any) -> Any:
    return pl.pallas_call(kernel, out, **options)(*arrays)


def out(*shape: int, dtype: Any = F32) -> Any:
    return ShapeDtypeStruct(shape, dtype)


ROWS, COLUMNS = pl.BlockSpec((16, 32), lambda i, j: (i, 0)), pl.BlockSpec((32, 16), lambda i, j: (0, j))
TILE, EIGHT = pl.BlockSpec((16, 16), lambda i, j: (i, j)), pl.BlockSpec((8,), lambda i: (i,))


def uneven(x: Any, y: Any, **options: Any) -> Any:
    """Blocks that do not divide the result."""

    def kernel(x: Any, y: Any, o: Any) -> None:
        o[...] = x[...] @ y[...]

    return call(kernel, out(50, 40), x, y, grid=(4, 3), in_specs=[ROWS, COLUMNS], out_specs=TILE, **options)


def halves(x: Any, y: Any, **options: Any) -> Any:
    """A product of bfloat16 in float32, rounded at the end; the second operand lies transposed."""

    def kernel(x: Any, y: Any, o: Any) -> None:
        total = lax.dot_general(x[...], y[...], (((1,), (1,)), ((), ())), preferred_element_type=F32)
        o[...] = (total * 2).astype(ml_dtypes.bfloat16)

    specs = [pl.BlockSpec((16, 32), lambda i: (i, 0)), pl.BlockSpec((16, 32), lambda i: (0, 0))]
    rows = pl.BlockSpec((16, 16), lambda i: (i, 0))
    return call(kernel, out(32, 16, dtype=ml_dtypes.bfloat16), x, y, grid=2, in_specs=specs, out_specs=rows, **options)


def counted(counts: Any, x: Any, **options: Any) -> Any:
    """A loop of as many steps as a number in memory says, over slices."""

    def kernel(count: Any, x: Any, o: Any) -> None:
        step = lambda n, total: total + x[pl.ds(n * 4, 4), :].sum(0) * n
        o[...] = lax.fori_loop(0, count[0], step, fnp.zeros((8,), F32))

    specs = [pl.BlockSpec((1,), lambda i: (i,)), pl.BlockSpec((16, 8), lambda i: (0, 0))]
    row = pl.BlockSpec((None, 8), lambda i: (i, 0))
    return call(kernel, out(3, 8), counts, x, grid=3, in_specs=specs, out_specs=row, **options)


def until(x: Any, **options: Any) -> Any:
    """A loop that goes on for as long as a sum is small."""

    def kernel(x: Any, o: Any) -> None:
        step = lambda state: (state[0] + 1, state[1] * 1.5 + state[0])
        count, values = lax.while_loop(lambda s: s[1].sum() < 40, step, (fnp.int32(0), fnp.abs(x[...])))
        o[...] = values + count

    return call(kernel, out(32), x, grid=4, in_specs=[EIGHT], out_specs=EIGHT, **options)


def switched(x: Any, **options: Any) -> Any:
    """A branch of three within a loop."""

    def kernel(x: Any, o: Any) -> None:
        branches = [lambda v: v * 2, lambda v: -v, lambda v: v * v]
        step = lambda n, total: total + lax.switch((pl.program_id(0) + n) % 3, branches, x[...])
        o[...] = lax.fori_loop(0, 3, step, fnp.zeros((8,), F32))

    return call(kernel, out(32), x, grid=4, in_specs=[EIGHT], out_specs=EIGHT, **options)


def begun(start: Any, x: Any, y: Any, **options: Any) -> Any:
    """A result that begins as an input, to which products are added along the grid."""

    def kernel(_: Any, x: Any, y: Any, o: Any) -> None:
        o[...] += x[...] @ y[...]

    tile, left, right = (
        pl.BlockSpec((16, 16), m) for m in (lambda i, j, k: (i, j), lambda i, j, k: (i, k), lambda i, j, k: (k, j))
    )
    specs, aliases = [tile, left, right], {0: 0}
    options |= {"input_output_aliases": aliases}
    return call(kernel, out(32, 32), start, x, y, grid=(2, 2, 3), in_specs=specs, out_specs=tile, **options)


def pair(x: Any, y: Any, **options: Any) -> Any:
    """Two results."""

    def kernel(x: Any, y: Any, product: Any, most: Any) -> None:
        product[...] = x[...] @ y[...]
        most[...] = product[...].max(1)

    rows, row = pl.BlockSpec((16, 16), lambda i: (i, 0)), pl.BlockSpec((16,), lambda i: (i,))
    specs = [rows, pl.BlockSpec((16, 16), lambda i: (0, 0))]
    return call(kernel, (out(32, 16), out(32)), x, y, grid=2, in_specs=specs, out_specs=(rows, row), **options)


def one_of_a_pair(x: Any, y: Any, **options: Any) -> Any:
    return pair(x, y, **options)[1] * 2


def joined(x: Any, y: Any, row: Any, column: Any, **options: Any) -> Any:
    """What makes an operand and what follows a result, element by element: with a row, a column, numbers, of another dtype."""

    def kernel(x: Any, y: Any, o: Any, total: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            total[...] = fnp.zeros_like(total)

        total[...] += x[...] @ y[...]
        o[...] = total[...] / 4

    left, right = pl.BlockSpec((16, 16), lambda i, k: (i, k)), pl.BlockSpec((16, 32), lambda i, k: (k, 0))
    options |= {
        "scratch_shapes": [pl.MemoryRef((16, 32), F32)],
        "compiler_params": pl.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
    }
    rows = pl.BlockSpec((16, 32), lambda i, k: (i, 0))
    made = call(
        kernel,
        out(48, 32),
        fnp.sin(x) + column[:, None],
        y,
        grid=(3, 2),
        in_specs=[left, right],
        out_specs=rows,
        **options,
    )
    return (fnp.where(made > 0, fnp.tanh(made + row), -made) * column[:, None] * 3).astype(ml_dtypes.bfloat16)


def both_joined(x: Any, y: Any, **options: Any) -> Any:
    product, most = pair(x, y, **options)
    return fnp.exp(product / 8) * fnp.cos(x), most - 1


def joined_mapped(x: Any, y: Any, **options: Any) -> Any:
    return fuser.vmap(lambda x, y: fnp.tanh(pair(x + 1, y, **options)[0]) + x, in_axes=(0, None))(x, y)


def by_its_maxima(x: Any, y: Any, **options: Any) -> Any:
    """A result over another one of the same kernel."""
    product, most = pair(x, y, **options)
    return product / most[:, None]


def read_twice(x: Any, y: Any, **options: Any) -> Any:
    product, _ = pair(fnp.sin(x), fnp.sin(y), **options)  # each program would compute the sine of y again
    return product + 1, product.sum(0)


def mapped(x: Any, y: Any, **options: Any) -> Any:
    def kernel(x: Any, y: Any, o: Any) -> None:
        o[...] = x[...].T @ y[...]

    return fuser.vmap(lambda x, y: call(kernel, out(32, 16), x, y, **options), in_axes=(0, None))(x, y)


def summed(x: Any, **options: Any) -> Any:
    """A result that programs in order add to."""

    def kernel(x: Any, o: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            o[...] = fnp.zeros_like(o)

        o[...] += fnp.tanh(x[...]).sum(0)

    spec, row = pl.BlockSpec((8, 16), lambda i, j: (j, i)), pl.BlockSpec((16,), lambda i, j: (i,))
    return call(kernel, out(32), x, grid=(2, 5), in_specs=[spec], out_specs=row, **options)


def running(x: Any, **options: Any) -> Any:
    """A scratch buffer that is handed from program to program, each of which writes a block of its own."""

    def kernel(x: Any, o: Any, total: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            total[...] = fnp.zeros_like(total)

        total[...] += x[...]
        o[...] = total[...]

    row = pl.BlockSpec((1, 16), lambda i: (i, 0))
    options |= {"scratch_shapes": [pl.MemoryRef((1, 16), F32)]}
    return call(kernel, out(6, 16), x, grid=6, in_specs=[row], out_specs=row, **options)


CASES: dict[str, tuple[Any, tuple[np.ndarray, ...]]] = {
    "uneven": (uneven, (of(50, 32), of(32, 40))),
    "halves": (halves, tuple(of(*s).astype(ml_dtypes.bfloat16) for s in ((32, 32), (16, 32)))),
    "counted": (counted, (np.array([0, 4, 2], np.int32), of(16, 8))),
    "until": (until, (of(32),)),
    "switched": (switched, (of(32),)),
    "begun": (begun, (of(32, 32), of(32, 48), of(48, 32))),
    "pair": (pair, (of(32, 16), of(16, 16))),
    "one of a pair": (one_of_a_pair, (of(32, 16), of(16, 16))),
    "joined": (joined, (of(48, 32), of(32, 32), of(32), of(48))),
    "both joined": (both_joined, (of(32, 16), of(16, 16))),
    "joined, mapped": (joined_mapped, (of(3, 32, 16), of(16, 16))),
    "by its maxima": (by_its_maxima, (of(32, 16), of(16, 16))),
    "read twice": (read_twice, (of(32, 16), of(16, 16))),
    "mapped": (mapped, (of(3, 16, 32), of(16, 16))),
    "summed": (summed, (of(40, 32),)),
    "running": (running, (of(6, 16),)),
}
SEVERAL = {"both joined": 2, "by its maxima": 2, "read twice": 3}  # launches, where they are not one
SHIPPED = {
    "matmul": (blocked(128, 32), (of(128, 128), of(128, 128), of(128))),
    "flash": (flash(2, 128, 64, 32, 32), (of(2, 128, 64), of(2, 128, 64), of(2, 128, 64))),
}


def interpreted(name: str) -> Any:
    function, arrays = CASES[name]
    return functools.partial(function, interpret=True)(*arrays)
