"""Library steps of the CPU: matrix products by `gemm.c`, compiled for this processor; the rest by the eval rules.

Measured on a processor with 512-bit vectors, one core, float32, 1024³: gemm.c 200 GFLOP/s, NumPy's OpenBLAS 118,
torch's MKL 103. It also spares programs with products the import of torch.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.backends.c import spell
from fuser.backends.reference import dense
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn
from fuser.ir.primitive import Fusion
from fuser.ir.types import BOOL, FLOAT8, FLOATS, bfloat16, is_complex
from fuser.ops.dot import as_matrices
from fuser.partition.group import FusionGroup
from fuser.runtime import memory, toolchain
from fuser.runtime.executable import CFunction


def library(group: FusionGroup) -> Callable[..., Any]:
    """A function of the group's input arrays that gives the list of its outputs."""
    *before, last = group.graph.eqns
    if last.primitive.fusion is not Fusion.DOT or not has_gemm(last):
        return lambda *arrays: dense(evaluate(group.graph, arrays))
    multiply = _multiply(last)
    if not before and last.invars == group.graph.invars:
        return lambda *arrays: [multiply(*arrays)]
    prefix = group.graph.updated("operands", eqns=tuple(before), outvars=last.invars)
    return lambda *arrays: [multiply(*evaluate(prefix, arrays))]


def has_gemm(eqn: Eqn) -> bool:
    """Whether gemm.c has the types of this product; empty ones are left to NumPy."""
    operand, out = eqn.invars[0].aval.dtype, eqn.outvars[0].aval
    known = all(d != BOOL and d not in FLOAT8 and not is_complex(d) for d in (operand, out.dtype))
    same_kind = (operand.kind in "iu") == (out.dtype.kind in "iu")
    return known and same_kind and out.size > 0 and eqn.invars[0].aval.size > 0


def _multiply(eqn: Eqn) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    out = eqn.outvars[0].aval
    numbers = eqn.params["dimension_numbers"]
    symbol = _gemm(eqn.invars[0].aval.dtype, out.dtype)

    def multiply(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        a, b = as_matrices(x, y, numbers)
        result = memory.empty(out.shape, out.dtype)
        CFunction(symbol, gemm_sizes(a, b))([a, b, result])
        return result

    return multiply


def gemm_sizes(a: np.ndarray, b: np.ndarray, tail: bool = False) -> tuple[int, ...]:
    """The size arguments of gemm for operands of these shapes and strides: (batch, m, k) and (batch, k, n)."""
    strides = [s // matrix.itemsize for matrix in (a, b) for s in matrix.strides]
    return a.shape[0], a.shape[1], b.shape[2], a.shape[2], *strides, int(tail)


@functools.cache
def _gemm(operand: np.dtype, out: np.dtype) -> Any:
    """The compiled product for operands and results of these dtypes."""
    text = gemm_text(operand, out)
    return toolchain.load_shared(toolchain.compile_shared(text).path).gemm


def gemm_address(operand: np.dtype, out: np.dtype) -> int:
    """The address of the product for operands and results of these dtypes; it stays for the life of the process."""
    address = ctypes.cast(_gemm(operand, out), ctypes.c_void_p).value
    assert address is not None
    return address


def gemm_text(operand: np.dtype, out: np.dtype) -> str:
    """gemm.c for these dtypes: half precision and small integers accumulate in 32 bits."""
    wide = out if out.itemsize >= 4 else FLOATS[2] if out.kind not in "iu" else np.dtype("int32")
    conversions = f"#define LOAD(x) {spell.load(operand, '(x)')}\n#define SAVE(x) {spell.store(out, '(x)')}\n"
    helpers = "\n".join(spell.HELPERS[n] for n in ("float_of_bits", "bits_of_float", "bfloat16_load", "bfloat16_round"))
    types = f"#define IN {spell.storage(operand)}\n#define T {spell.local(wide)}\n#define OUT {spell.storage(out)}\n"
    needs = f"#include <stdint.h>\n{helpers}\n" if bfloat16 in (operand, out) else ""
    body = pathlib.Path(__file__).with_name("gemm.c").read_text()
    return f"{types}{conversions}{needs}{body}"
