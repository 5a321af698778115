"""Kernels by hand with products and loops are one Triton function each, which gives what the interpreter gives."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import ShapeDtypeStruct
from fuser import pallas as pl
from fuser.backends.triton.aot import compile_ahead
from fuser.backends.triton.machine_code import of_cuda
from fuser.ir.evaluate import evaluate
from fuser.ops.block_kernel import block_kernel_p
from tests.pallas.one_kernel_cases import CASES, SEVERAL, SHIPPED, of


def lowered(function: Any, *arrays: Any) -> Any:
    return fuser.jit(function, backend="triton").lower(*arrays)


def by_hand(program: Any) -> int:
    """How many kernels of a program are those that were written."""
    return sum(group.graph.eqns[-1].primitive is block_kernel_p for group in program.plan.groups)


@pytest.mark.parametrize("name", [*CASES, *SHIPPED])
def test_one_function_each(name: str) -> None:
    function, arrays = {**CASES, **SHIPPED}[name]
    program = lowered(function, *arrays)
    assert by_hand(program) == 1
    assert len(program.sources) == SEVERAL.get(name, 1)


def test_what_they_give() -> None:
    """In Triton's interpreter, in a process of its own."""
    worker = pathlib.Path(__file__).with_name("backends_worker.py")
    result = subprocess.run([sys.executable, str(worker), "one kernel"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert set(found) == {*CASES, *SHIPPED}
    assert not {name: text for name, text in found.items() if text}


@pytest.mark.parametrize("name", ["joined", "both joined", "joined, mapped", "by its maxima", "read twice"])
def test_neighbours_in_numpy(name: str) -> None:
    """The reference backend runs the same plan."""
    function, arrays = CASES[name]
    program = lowered(function, *arrays)
    found = evaluate(program.plan.graph, [np.asarray(a) for a in arrays])
    for a, b in zip(found, fuser.tree.leaves(fuser.jit(function, backend="c")(*arrays)), strict=True):
        a, b = (np.asarray(v).astype(np.float64) for v in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-2 if name == "joined" else 1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["matmul", "flash"])
def test_nothing_is_spilled(name: str) -> None:
    (source,) = lowered(*[SHIPPED[name][0], *SHIPPED[name][1]]).sources
    (compiled,) = compile_ahead(source, "cuda", 90)
    code = of_cuda(compiled, 1)
    assert code.spills == 0 and code.registers <= 128 and (code.load_bits, code.store_bits) == (128, 128)


def test_what_has_no_form_is_fused_as_arrays() -> None:
    """Blocks that are no powers of two, rows that are written one by one, and kernels without loops, which fuse with neighbours."""

    def product(x: Any, y: Any, o: Any) -> None:
        o[...] = x[...] @ y[...]

    x, y = of(24, 17), of(17, 24)
    odd = pl.pallas_call(product, ShapeDtypeStruct((24, 24), np.float32))
    assert by_hand(lowered(odd, x, y)) == 0
    np.testing.assert_allclose(fuser.jit(odd)(x, y), x @ y, rtol=1e-4, atol=1e-5)

    def by_rows(x: Any, o: Any) -> None:
        o[...] = fnp.zeros_like(o)

        @pl.loop(0, 4)
        def _(n: Any) -> None:
            o[n] = x[n] * n

    assert by_hand(lowered(pl.pallas_call(by_rows, ShapeDtypeStruct((4, 8), np.float32)), of(4, 8))) == 0

    def doubled(x: Any, o: Any) -> None:
        o[...] = 2 * x[...]

    spec = pl.BlockSpec((4,), lambda i: (i,))
    double = pl.pallas_call(doubled, ShapeDtypeStruct((8,), np.float32), grid=2, in_specs=[spec], out_specs=spec)
    program = lowered(lambda x: fnp.tanh(double(fnp.sin(x))), of(8))
    assert by_hand(program) == 0 and len(program.sources) == 1


def test_warps_and_stages_are_the_users() -> None:
    asked = pl.CompilerParams(num_warps=2, num_stages=1)  # neither is what a writer chooses

    def product(x: Any, y: Any, o: Any, total: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            total[...] = fnp.zeros_like(total)

        total[...] += pl.dot(x[...], y[...])
        o[...] = total[...]

    call = pl.pallas_call(
        product, ShapeDtypeStruct((32, 32), np.float32), grid=2, scratch_shapes=[pl.MemoryRef((32, 32), np.float32)],
        in_specs=[pl.BlockSpec((32, 16), lambda k: (0, k)), pl.BlockSpec((16, 32), lambda k: (k, 0))],
        compiler_params=asked,
    )  # fmt: skip
    program = lowered(call, of(32, 32), of(32, 32))
    assert by_hand(program) == 1
    (launch,) = program.sources[0].launch["launches"]
    assert (launch.warps, launch.stages) == (asked.num_warps, asked.num_stages)
    with pytest.raises(ValueError, match="num_warps=3; num_warps is 1, 2, 4, 8, 16 or 32, and num_stages 1 to 8"):
        pl.pallas_call(product, ShapeDtypeStruct((32, 32), np.float32), compiler_params=pl.CompilerParams(num_warps=3))
