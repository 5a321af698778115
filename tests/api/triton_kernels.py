"""Triton kernels of a user's, and programs that call them: run by test_triton_call.py in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

import fuser
import fuser.numpy as fnp
from fuser.ops.triton_call import chosen


@triton.jit
def axpy_kernel(x, y, factor, n, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, factor * tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@triton.autotune(configs=[triton.Config({"BLOCK": 32}, num_warps=2), triton.Config({"BLOCK": 64})], key=["n"])
@triton.heuristics({"TWICE": lambda arguments: arguments["n"] > 10})
@triton.jit
def scale_kernel(x, n, out, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) * (4 if TWICE else 2), inside)


@triton.jit
def add_first_kernel(x, total):
    tl.store(total, tl.load(total) + tl.load(x))


def axpy(x: Any, y: Any, factor: float = 2.0) -> Any:
    n = x.size
    out = fuser.ShapeDtypeStruct(x.shape, x.dtype)
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    return fuser.triton_call(axpy_kernel, x, y, factor, n, grid=grid, out_shape=out, BLOCK=64, num_warps=2)


def scale(x: Any) -> Any:
    out = fuser.ShapeDtypeStruct(x.shape, x.dtype)
    grid = lambda meta: (triton.cdiv(x.size, meta["BLOCK"]),)
    return fuser.triton_call(scale_kernel, x, x.size, grid=grid, out_shape={"y": out})["y"]


def check() -> None:
    x, y = np.linspace(0, 1, 100, dtype=np.float32), np.ones(100, np.float32)
    program = fuser.jit(lambda x, y: fnp.sin(axpy(fnp.exp(x), y)) + 1)
    np.testing.assert_allclose(program(x, y), np.sin(2 * np.exp(x) + 1) + 1, 1e-5, 1e-6)
    np.testing.assert_allclose(axpy(fnp.asarray(x), fnp.asarray(y), 0.5), 0.5 * x + 1, 1e-6)
    rows = np.arange(30, dtype=np.float32).reshape(2, 15)
    np.testing.assert_allclose(fuser.jit(fuser.vmap(axpy))(rows, rows), rows * 3)
    np.testing.assert_allclose(fuser.jit(scale)(rows), rows * 4)
    np.testing.assert_allclose(fuser.jit(scale)(rows[0, :5]), rows[0, :5] * 2)
    _, meta = chosen(scale_kernel, {}, [rows, 30])
    assert meta["BLOCK"] == 32 and meta["TWICE"]
    total = fuser.ShapeDtypeStruct((1,), np.float32)
    zeroed = fuser.triton_call(add_first_kernel, x[5:], grid=1, out_shape=total, zeroed_outputs=(0,))
    np.testing.assert_allclose(zeroed, x[5:6])
    added = fuser.triton_call(
        lambda_kernel(), x[5:], np.ones(1, np.float32), grid=(1,), out_shape=total, input_output_aliases={1: 0}
    )
    np.testing.assert_allclose(added, x[5:6] + 1)
    try:
        fuser.grad(lambda x: axpy(x, x).sum())(x)
    except ValueError as error:
        assert "the Triton kernel axpy_kernel has no derivative" in str(error)
    else:
        raise AssertionError("no error")


def lambda_kernel() -> Any:
    @triton.jit
    def with_both(x, start, total):
        tl.store(total, tl.load(total) + tl.load(x))

    return with_both


if __name__ == "__main__":
    check()
    with fuser.config.using(backend="triton"):
        check()
    print("all as expected")
