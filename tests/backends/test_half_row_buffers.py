"""The longest rows of bfloat16 that a program holds: which keep 16 bits between reductions, and what that is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from fuser.backends.triton import machine_code
from fuser.backends.triton.target import MACHINES
from fuser.ir.types import ArrayType, bfloat16


def softmax(x: Any) -> Any:
    e = fnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def source(function: Any, rows: int, columns: int, dtype: Any = bfloat16) -> Any:
    (found,) = fuser.jit(function, backend="triton").lower(ArrayType((rows, columns), np.dtype(dtype))).sources
    return found


def forms(*arguments: Any) -> list[str]:
    (launch,) = source(*arguments).launch["launches"]
    return [choice.function.rpartition("_")[2] for choice in launch.choices]


def test_which_rows_keep_16_bits() -> None:
    assert forms(softmax, 1024, 32768)[0] == "kept"
    assert forms(softmax, 1024, 20000)[0] == "kept"
    for rows, columns, dtype in ((1024, 16384, bfloat16), (1024, 32768, np.float32)):
        assert "kept" not in forms(softmax, rows, columns, dtype)
    wide = lambda x: (lambda e: e / e.sum(-1, keepdims=True))(fnp.exp(x.astype("float32")))
    assert "kept" not in forms(wide, 1024, 32768)  # what is read again has 32 bits


@pytest.mark.slow
def test_two_rows_fit_on_a_multiprocessor() -> None:
    (launch,) = machine_code.of_source(source(softmax, 1024, 32768), 1 << 25, MACHINES["cuda:90"])
    assert launch.name.endswith("kept") and launch.code.spills == 0
    assert machine_code.at_once(32 * launch.warps, launch.code.registers, launch.code.shared) == 2
    assert (launch.code.load_bits, launch.code.store_bits) == (128, 128)
