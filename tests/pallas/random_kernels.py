"""Random kernels: `python -m tests.pallas.random_kernels c 7 50` holds 50 of them on a backend against the interpreter.

Grids of one to three dimensions, some of which are summed over in a scratch buffer or in the result; blocks that do not divide,
squeezed dimensions, index maps that turn round or stay; bodies with branches, loops over parts, products, masks and reductions.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

if __name__ == "__main__":  # before the packages are imported that read them
    os.environ |= {"TRITON_INTERPRET": "1", "FUSER_TPU_INTERPRET": "1", "JAX_PLATFORMS": "cpu"}

import fuser
import fuser.numpy as fnp
from fuser import pallas as pl

F32 = np.dtype("float32")


@dataclass(frozen=True)
class Input:
    """An operand: its rows and columns go with those of the result (a number of the grid), are summed over, or are one whole block."""

    rows: str  # "result", "summed", "whole", "squeezed"
    columns: str


@dataclass(frozen=True)
class Case:
    """What a random kernel is made of."""

    block: tuple[int, int]
    shape: tuple[int, int]
    summed: tuple[int, int]  # blocks along the summed dimension of the grid, and what lies in each
    inputs: tuple[Input, ...]
    order: tuple[int, ...]  # of the grid's dimensions: rows, columns, sum
    backwards: bool  # whether the index map along rows turns round
    scratch: bool
    parallel: bool
    body: tuple[int, ...]


def drawn(rng: np.random.Generator) -> Case:
    """A case, of small extents."""
    block = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 8, 16], 2))
    shape = tuple(
        int(b * n - (rng.integers(0, b) if rng.random() < 0.5 else 0)) for b, n in zip(block, rng.integers(1, 4, 2))
    )
    summed = int(rng.integers(1, 4)), int(rng.choice([1, 2, 4, 8]))
    inputs = []
    for _ in range(int(rng.integers(1, 4))):
        rows = str(rng.choice(["result", "result", "whole", "squeezed"]))
        columns = str(rng.choice(["result", "result", "summed", "whole"]))
        inputs.append(Input(rows, columns))
    order = tuple(int(n) for n in rng.permutation(2)) + (2,)  # blocks of the result are visited once, in a row
    return Case(
        block, shape, summed, tuple(inputs), order, bool(rng.integers(2)), bool(rng.integers(2)), bool(rng.integers(2)),
        tuple(int(n) for n in rng.integers(0, 6, 3)),
    )  # fmt: skip


def arrays(case: Case, rng: np.random.Generator) -> list[np.ndarray]:
    """The operands."""
    rows, columns = case.shape
    long = case.summed[0] * case.summed[1]
    extents = {"result": (rows, columns), "summed": (long, long), "whole": (5, 8), "squeezed": (3, 3)}
    shapes = [(extents[i.rows][0], extents[i.columns][1]) for i in case.inputs]
    return [rng.uniform(0.5, 1.5, shape).astype(F32) for shape in shapes]


def _spec(case: Case, given: Input) -> pl.BlockSpec:
    at = lambda n: case.order.index(n)  # the grid's dimension that rows, columns or the sum run along
    down, deep = pl.cdiv(case.shape[0], case.block[0]), case.summed[1]
    turn = (lambda n: down - 1 - n) if case.backwards else (lambda n: n)
    high = {"result": case.block[0], "whole": 5, "squeezed": None}[given.rows]
    wide = {"result": case.block[1], "summed": deep, "whole": 8}[given.columns]

    def place(*ids: Any) -> tuple[Any, Any]:
        rows = {"result": turn(ids[at(0)]), "whole": 0, "squeezed": ids[at(2)] % 3}[given.rows]
        return rows, {"result": ids[at(1)], "summed": ids[at(2)], "whole": 0}[given.columns]

    return pl.BlockSpec((high, wide), place)


def _fitted(value: Any, given: Input, case: Case) -> Any:
    """A block as something that broadcasts against a block of the result."""
    if given.rows == "squeezed":
        value = value[None, :]
    if given.columns != "result":
        value = value.max(-1, keepdims=True) if given.columns == "whole" else value.sum(-1, keepdims=True)
    return value.mean(0, keepdims=True) if given.rows == "whole" else value


def kernel_of(case: Case) -> Callable[..., None]:
    """The kernel."""
    step, last = case.order.index(2), case.summed[0] - 1
    high, wide = case.block

    def part(refs: Any) -> Any:
        total: Any = fnp.zeros(case.block, F32)
        for ref, given in zip(refs, case.inputs):
            total = total + _fitted(ref[...], given, case) * (1 + pl.program_id(step))
        for kind in case.body:
            total = bent(total, kind)
        return total

    def bent(value: Any, kind: int) -> Any:
        at = fnp.arange(wide)[None, :] + pl.program_id(case.order.index(1)) * wide
        if kind == 0:
            return fnp.where(at % 3 == 1, value, -value)
        if kind == 1:
            return fnp.tanh(value) + pl.program_id(case.order.index(0))
        if kind == 2:
            return fuser.lax.fori_loop(0, 3, lambda n, v: v * 0.5 + n, value)
        if kind == 3:
            return fuser.lax.cond(pl.program_id(step) == 1, lambda v: v * 2, lambda v: v + 1, value)
        if kind == 4:
            return fnp.exp(-abs(value)) if wide < 16 else fnp.sqrt(abs(value))
        return value + fnp.arange(high)[:, None]

    def kernel(*refs: Any) -> None:
        given, out = refs[: len(case.inputs)], refs[len(case.inputs)]
        total = refs[-1]  # the scratch buffer, or the result

        @pl.when(pl.program_id(step) == 0)
        def _() -> None:
            total[...] = fnp.zeros(case.block, F32)

        total[...] += part(given)
        if case.scratch:

            @pl.when(pl.program_id(step) == last)
            def _() -> None:
                out[...] = total[...] * 2

    return kernel


def call(case: Case, interpret: bool, *given: Any) -> Any:
    """The kernel on the operands."""
    down, across = (pl.cdiv(n, b) for n, b in zip(case.shape, case.block))
    extents = (down, across, case.summed[0])
    grid = tuple(extents[n] for n in case.order)
    at, turn = case.order.index, (lambda n: down - 1 - n) if case.backwards else (lambda n: n)
    kind = "parallel" if case.parallel else "arbitrary"
    semantics = tuple("arbitrary" if n == 2 else kind for n in case.order)
    return pl.pallas_call(
        kernel_of(case), fuser.ShapeDtypeStruct(case.shape, F32), grid=grid,
        in_specs=[_spec(case, i) for i in case.inputs],
        out_specs=pl.BlockSpec(case.block, lambda *ids: (turn(ids[at(0)]), ids[at(1)])),
        scratch_shapes=[pl.MemoryRef(case.block, F32)] if case.scratch else [],
        compiler_params=pl.CompilerParams(dimension_semantics=semantics), interpret=interpret,
    )(*given)  # fmt: skip


def cases(seed: int, count: int) -> Iterator[tuple[Case, list[np.ndarray]]]:
    """So many cases and their operands."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        case = drawn(rng)
        yield case, arrays(case, rng)


def difference(case: Case, given: list[np.ndarray], backend: str) -> str:
    """What is wrong with a case on a backend; empty where nothing is."""
    try:
        wanted = np.asarray(call(case, True, *given))
        found = np.asarray(fuser.jit(functools.partial(call, case, False), backend=backend)(*given))
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:500]
    return ""


def main(backend: str, seed: str, count: str) -> int:
    """Print the cases that differ; their number."""
    found = [(case, text) for case, given in cases(int(seed), int(count)) if (text := difference(case, given, backend))]
    for case, text in found:
        print(case, text)
    print(f"{len(found)} of {count} differ on {backend}")
    return len(found)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
