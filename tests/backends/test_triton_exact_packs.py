"""Rounded quotients, reciprocals and roots in packs: their PTX, run on NumPy as it is specified, beside NumPy's own, for every error that an approximation may have."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends.triton import exact_packs
from fuser.ir.types import ArrayType

F32 = np.float32
ULP = 2.0**-23


def _fma(a: Any, b: Any, c: Any) -> Any:
    return F32(np.longdouble(a) * np.longdouble(b) + np.longdouble(c))


def _flushed(x: Any) -> Any:
    """Subnormal numbers as zeros of their sign."""
    return np.where(np.abs(x) < 2.0**-126, np.copysign(F32(0), x), x)


def run(steps: tuple[str, ...], x: np.ndarray, y: np.ndarray | None, off: int) -> tuple[np.ndarray, np.ndarray]:
    """The results of a pack's instructions where approximations are `off` units off, and which numbers take the slow path."""
    approximate = lambda exact: _flushed(F32(np.longdouble(exact) * (1 + off * ULP)))
    operations: dict[str, Callable[..., Any]] = {
        "rcp.approx.ftz.f32": lambda a: approximate(1 / np.longdouble(_flushed(a))),
        "rsqrt.approx.ftz.f32": lambda a: approximate(1 / np.sqrt(np.longdouble(_flushed(a)))),
        "neg.f32": np.negative,
        "abs.f32": np.abs,
        "mul.rn.f32": lambda a, b: F32(a * b),
        "fma.rn.f32": _fma,
        "setp.lt.f32": np.less,
        "setp.lt.or.f32": lambda a, b, p: (a < b) | p,
        "setp.gt.or.f32": lambda a, b, p: (a > b) | p,
    }
    values: dict[str, Any] = {"x": x, "y": y}
    for step in steps:
        name, result, *operands = re.findall(r"[\w.{}]+", step.format(n="", o="o", x="x", y="y"))
        numbers = [
            np.array(int(o[2:], 16), np.uint32).view(F32)[()] if o.startswith("0f") else values[o] for o in operands
        ]
        values[result] = operations[name](*numbers)
    return values["o"], values["p"]


def drawn(seed: int, least: int, most: int, count: int = 300_000) -> np.ndarray:
    """Numbers of both signs with exponents from `least` to `most`, some of them with the longest significands."""
    random = np.random.default_rng(seed)
    significand = random.integers(0, 1 << 23, count)
    significand[: count // 4] |= 0x7FFFF0
    bits = significand | (random.integers(least + 127, most + 127, count) << 23) | (random.integers(0, 2, count) << 31)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3e-39, 1.0, 3.4028235e38, 1.1754944e-38, 2.0**-125, 2.0**126]
    return np.concatenate([bits.astype(np.uint32).view(F32), F32(special)])


def same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    return (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))


@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize(
    "name, x, y",
    [
        ("quotient", drawn(0, -60, 60), drawn(1, -60, 60)),
        ("quotient", drawn(2, -127, 128), np.roll(drawn(3, -127, 128), 5)),
        ("reciprocal", drawn(4, -127, 128), None),
        ("root", drawn(5, -127, 128), None),
    ],
)
def test_packs_are_rounded_or_take_the_slow_path(name: str, x: np.ndarray, y: np.ndarray | None, off: int) -> None:
    steps = {"quotient": exact_packs._DIVISION, "reciprocal": exact_packs._RECIPROCAL, "root": exact_packs._ROOT}
    with np.errstate(all="ignore"):
        want = np.sqrt(x) if name == "root" else x / y if y is not None else F32(1) / x
        got, slow = run(steps[name], x, y, off)
    right = same(got, want) | slow
    if name == "reciprocal":  # right for NVIDIA's approximations: `tests/gpu` tries all numbers
        ones = x.view(np.uint32) & 0x7FFFFF == 0x7FFFFF
        right |= ones if off == 0 else np.abs(got.view(np.int32) - want.view(np.int32)) <= 1
    assert right.all()
    assert not slow[np.isnan(x)].any()  # nan costs nothing
    moderate = (np.abs(x) > 2.0**-60) & (np.abs(x) < 2.0**60) & (True if y is None else np.abs(y) < 2.0**30)
    assert not slow[moderate & (True if y is None else np.abs(y) > 2.0**-30)].any()


def test_kernels_pack_what_a_thread_holds_several_of() -> None:
    f32 = lambda *shape: ArrayType(shape, np.dtype("float32"))
    text = lambda function, *types: fuser.jit(function, backend="triton").lower(*types).sources[0].text
    line = text(lambda x, y: x / y + 1 / x + fnp.sqrt(y), f32(4096), f32(4096))
    assert all(f"{helper}(" in line for helper in exact_packs.HELPERS)
    row = text(lambda x, y: x * fnp.sqrt(y), f32(4096, 128), f32(128))  # a root a column, of which a thread has few
    assert "packed_root" not in row and "tl.sqrt_rn" in row
    assert "packed" not in text(lambda x: 1 / x, ArrayType((4096,), np.dtype("float16")))
