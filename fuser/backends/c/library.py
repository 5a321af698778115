"""Library steps of the CPU, by the eval rules; and matrix products in C (`gemm/`), compiled for this processor.

Measured on a processor with 512-bit vectors, one core, float32, 1024³: these 200 GFLOP/s, NumPy's OpenBLAS 118,
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
from fuser.ir.types import BOOL, FLOAT8, FLOATS, bfloat16, is_complex
from fuser.partition.group import FusionGroup
from fuser.runtime import toolchain


def library(group: FusionGroup) -> Callable[..., Any]:
    """A function of the group's input arrays that gives the list of its outputs."""
    return lambda *arrays: dense(evaluate(group.graph, arrays))


def has_gemm(eqn: Eqn) -> bool:
    """Whether gemm has the types of this product; empty ones are left to NumPy."""
    operand, out = eqn.invars[0].aval.dtype, eqn.outvars[0].aval
    known = all(d != BOOL and d not in FLOAT8 and not is_complex(d) for d in (operand, out.dtype))
    same_kind = (operand.kind in "iu") == (out.dtype.kind in "iu")
    return known and same_kind and out.size > 0 and eqn.invars[0].aval.size > 0


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


PARTS = ("base", "packed", "direct", "vector", "gemm")  # of the text, in gemm/


def gemm_text(operand: np.dtype, out: np.dtype) -> str:
    """The C text of products for these dtypes: half precision and small integers accumulate in 32 bits."""
    wide = accumulator(out)
    conversions = f"#define LOAD(x) {spell.load(operand, '(x)')}\n#define SAVE(x) {spell.store(out, '(x)')}\n"
    helpers = "\n".join(spell.HELPERS[n] for n in ("float_of_bits", "bits_of_float", "bfloat16_load", "bfloat16_round"))
    same = f"#define SAME {int(operand == wide)}\n#define WHOLE {int(out == wide)}\n"
    types = f"#define IN {spell.storage(operand)}\n#define T {spell.local(wide)}\n#define OUT {spell.storage(out)}\n"
    needs = f"#include <stdint.h>\n{helpers}\n" if bfloat16 in (operand, out) else ""
    folder = pathlib.Path(__file__).with_name("gemm")
    body = "\n".join((folder / f"{name}.c").read_text() for name in PARTS)
    return f"{types}{same}{conversions}{needs}{body}"


def accumulator(out: np.dtype) -> np.dtype:
    """The dtype in which sums of a product with results of dtype `out` are taken."""
    return out if out.itemsize >= 4 else FLOATS[2] if out.kind not in "iu" else np.dtype("int32")
