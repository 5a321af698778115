"""Products of matrices in the forms that kernels have: copied by tensor maps and by pointers, in parts, batched, with work before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser.ir.types import ArrayType
from fuser.kernel.schedule import Schedule

Form = tuple[Callable[..., Any], tuple[ArrayType, ...]]


def of(dtype: str, *shape: int) -> ArrayType:
    return ArrayType(shape, fnp.dtype(dtype))


def f32(*shape: int) -> ArrayType:
    return ArrayType(shape, np.dtype("float32"))


def biased(x: Any, w: Any, b: Any) -> Any:
    return fnp.maximum(x @ w + b, 0)


def whole(x: Any, w: Any) -> Any:
    return fnp.matmul(x, w, preferred_element_type="int32")


def dequantised(x: Any, w: Any, s: Any, b: Any) -> Any:
    return fnp.maximum(whole(x, w).astype("float32") * s * 0.01 + b, 0)


PRODUCTS: dict[str, Form] = {
    "both by tensor maps": (biased, (of("bfloat16", 40, 72), of("bfloat16", 72, 48), of("bfloat16", 48))),
    "several blocks": (biased, (of("float16", 300, 200), of("float16", 200, 264), of("float16", 264))),
    "one by a tensor map": (biased, (of("bfloat16", 40, 70), of("bfloat16", 70, 48), of("bfloat16", 48))),
    "by pointers": (biased, (of("bfloat16", 40, 70), of("bfloat16", 70, 50), of("bfloat16", 50))),
    "operands that lie along k": (lambda x, w: fnp.tanh(x @ w.T * 0.1), (of("float16", 40, 64), of("float16", 48, 64))),
    "operands that lie across k": (
        lambda x, w: fnp.tanh(x.T @ w * 0.1),
        (of("float16", 64, 40), of("float16", 64, 48)),
    ),
    "batched by tensor maps": (
        lambda x, w: fnp.tanh(x @ w),
        (of("bfloat16", 3, 20, 32), of("bfloat16", 3, 32, 24)),
    ),
    "heads": (
        lambda q, k: fnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125,
        (of("bfloat16", 2, 20, 4, 32), of("bfloat16", 2, 24, 4, 32)),
    ),
    "shared matrix of a batch": (lambda x, w: fnp.tanh(x @ w), (of("bfloat16", 3, 20, 32), of("bfloat16", 32, 24))),
    "slices by tensor maps": (
        lambda x, w: fnp.tanh(x[3:, 8:40] @ w[::2]),
        (of("float16", 20, 48), of("float16", 64, 24)),
    ),
    "slices that begin anywhere": (
        lambda x, w: fnp.tanh(x[3:, 1:33] @ w[::2]),
        (of("float16", 20, 48), of("float16", 64, 24)),
    ),
    "parts of a long axis": (biased, (of("bfloat16", 16, 2048), of("bfloat16", 2048, 64), of("bfloat16", 64))),
    "parts of an odd axis": (biased, (of("bfloat16", 13, 2500), of("bfloat16", 2500, 40), of("bfloat16", 40))),
    "parts of a long axis in float32": (lambda x, w: (x.T @ w) / 3, (f32(3000, 16), f32(3000, 8))),
    "batched parts": (lambda x, w: fnp.tanh(x @ w), (of("bfloat16", 2, 16, 2048), of("bfloat16", 2, 2048, 64))),
    "parts by streams": (biased, (of("bfloat16", 144, 3000), of("bfloat16", 3000, 64), of("bfloat16", 64))),
    "parts of a batch's last blocks": (
        lambda x, w: fnp.tanh(x @ w * 0.01),
        (of("float16", 3, 180, 2144), of("float16", 3, 2144, 240)),
    ),
    "parts, to float32": (
        lambda x, w: fnp.matmul(x, w, preferred_element_type="float32") * 0.01 + 1,
        (of("float16", 16, 2048), of("float16", 2048, 64)),
    ),
    "float32": (lambda x, w: fnp.maximum(x @ w, 0), (f32(33, 64), f32(64, 65))),
    "float32 rounded to TF32": (
        lambda x, w: fnp.maximum(fnp.matmul(x, w, precision="tensorfloat32"), 0),
        (f32(33, 64), f32(64, 65)),
    ),
    "dequantised weights": (
        lambda x, w, s: x @ (w.astype("bfloat16") * s),
        (of("bfloat16", 16, 512), of("int8", 512, 64), of("bfloat16", 64)),
    ),
    "dequantised by groups of rows": (
        lambda x, w, s: fnp.tanh(x @ (w.reshape(8, 64, 64).astype("bfloat16") * s[:, None, :]).reshape(512, 64)),
        (of("bfloat16", 16, 512), of("int8", 512, 64), of("bfloat16", 8, 64)),
    ),
    "an operand of exponentials, not 0 beyond its end": (
        lambda x, w: fnp.exp(x * 0.1) @ w,
        (of("float16", 40, 72), of("float16", 72, 48)),
    ),
    "narrowed operand": (
        lambda x, w: x.astype("bfloat16") @ w + 1,
        (f32(40, 72), of("bfloat16", 72, 48)),
    ),
    "gathered rows": (
        lambda x, rows, w: fnp.tanh(x[rows] @ w),
        (of("bfloat16", 100, 64), of("int32", 40), of("bfloat16", 64, 48)),
    ),
    "scaled and shifted rows": (
        lambda x, m, r, w: ((x - m[:, None]) * r[:, None]) @ w * 0.1,
        (of("float16", 40, 64), of("float16", 40), of("float16", 40), of("float16", 64, 48)),
    ),
    "operand that the epilogue reads too": (
        lambda x, w: (x * 2) @ w + (x * 2),
        (of("float16", 48, 48), of("float16", 48, 48)),
    ),
    "8 bits with scales": (
        lambda x, w, s, t: fnp.matmul(x, w, preferred_element_type="float32") * s[:, None] * t * 0.1,
        (of("float8_e4m3fn", 40, 256), of("float8_e4m3fn", 256, 48), f32(40), f32(48)),
    ),
    "8 bits by pointers": (
        lambda x, w: fnp.matmul(x, w, preferred_element_type="bfloat16") * 0.1,
        (of("float8_e5m2", 40, 90), of("float8_e5m2", 90, 40)),
    ),
    "int8 with scales": (
        dequantised,
        (of("int8", 40, 256), of("int8", 256, 48), f32(48), f32(48)),
    ),
    "int8 by pointers": (whole, (of("int8", 37, 90), of("int8", 90, 50))),
    "int8 that lie across k": (lambda x, w: whole(x.T, w.T), (of("int8", 80, 48), of("int8", 32, 80))),
    "int8 to int8, batched": (lambda x, w: x @ w + 1, (of("int8", 3, 20, 32), of("int8", 3, 32, 48))),
    "int8 quantised within": (
        lambda x, w, s, b: dequantised(fnp.rint(x * 40).astype("int8"), w, s, b),
        (f32(40, 90), of("int8", 90, 48), f32(48), f32(48)),
    ),
    "int8 in parts of a long axis": (whole, (of("int8", 16, 4096), of("int8", 4096, 64))),
    "int8 in parts whose sums units would saturate": (whole, (of("int8", 2, 131_072), of("int8", 131_072, 16))),
    "uint8 with scales": (
        dequantised,
        (of("uint8", 40, 256), of("uint8", 256, 48), f32(48), f32(48)),
    ),
    "uint8 by pointers": (whole, (of("uint8", 37, 90), of("uint8", 90, 50))),
}

# What a case is asked to run by, where its sizes alone would choose something else.
SCHEDULES = {
    "parts of a batch's last blocks": Schedule(tile=(16, 64), stream_k=132),
    "softmax of 3000, read ahead": Schedule(stages=3),
    "layer norm of 3000, read ahead": Schedule(stages=3),
    "cross-entropy of 3000, read ahead": Schedule(stages=3),
}
