"""Functions of 16-bit numbers in Triton's kernels, in their form for NVIDIA's GPUs: the text itself runs here on NumPy, PTX by what it is specified to do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.backends.triton.half_precision import FUNCTIONS, HELPERS
from fuser.ir.types import ArrayType, bfloat16

scipy_special = pytest.importorskip("scipy.special")
F32 = np.float32
LAST_DIGIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def flushed(x: np.ndarray) -> np.ndarray:
    """A result of ftz: float32, and 0 where that would be subnormal."""
    narrow = x.astype(F32)
    return np.where(np.abs(narrow) < 2.0**-126, F32(0) * narrow, narrow)


PTX: dict[str, Callable[..., Any]] = {
    "ex2.approx.ftz.f32 $0, $1;": lambda x: flushed(np.exp2(flushed(x).astype(np.float64))),
    "tanh.approx.f32 $0, $1;": lambda x: np.clip(np.tanh(x.astype(np.float64)) * (1 + 2.0**-11), -1, 1).astype(F32),
    "rcp.approx.ftz.f32 $0, $1;": lambda x: flushed(1 / flushed(x).astype(np.float64)),
}


def fused(a: Any, b: Any, c: Any) -> np.ndarray:
    return (np.float64(F32(a)) * np.float64(F32(b)) + np.float64(F32(c))).astype(F32)


TL = SimpleNamespace(
    constexpr=None, float32=F32, abs=np.abs, where=lambda c, a, b: np.where(c, F32(a), F32(b)), fma=fused,
    inline_asm_elementwise=lambda asm, constraints, operands, **_: PTX[asm](*operands),
)  # fmt: skip


def helper(name: str) -> Callable[..., np.ndarray]:
    scope: dict[str, Any] = {"tl": TL}
    for text in HELPERS.values():
        exec(text, scope)

    def computed(*arrays: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(scope[name](*(np.asarray(a, F32) for a in arrays), True), F32)

    return computed


def every(dtype: Any) -> np.ndarray:
    """All numbers of 16 bits that are not nan."""
    found = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(F32)
    return found[~np.isnan(found)]


@pytest.mark.parametrize(("name", "dtype"), [(n, d.name) for d in FUNCTIONS for n in FUNCTIONS[d]])
def test_results_are_off_by_a_little_more_than_their_rounding(name: str, dtype: str) -> None:
    x = every(np.float16 if dtype == "float16" else ml_dtypes.bfloat16)
    exact = {"exp": np.exp, "tanh": np.tanh, "erf": scipy_special.erf, "erfc": scipy_special.erfc}[name]
    with np.errstate(all="ignore"):
        want = exact(x.astype(np.float64))
    got = helper(f"half_{name}")(x)
    usual = (
        np.isfinite(want)
        & (np.abs(want) >= (2.0**-14 if dtype == "float16" else 2.0**-126))
        & (np.abs(want) < 2.0**127)
    )
    error = np.abs(got[usual] / want[usual] - 1)
    assert error.max() <= LAST_DIGIT[dtype] / 4
    assert np.isnan(helper(f"half_{name}")(np.array([np.nan]))).all()
    infinite = np.array([-np.inf, np.inf])
    np.testing.assert_allclose(helper(f"half_{name}")(infinite), exact(infinite), atol=2**-15)


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("shift", [0.0, -3.0, 5.5, 88.0, -1e4, 1e30, -1e30, 3.3e38, -3.3895314e38, 2.0**-120])
def test_exponentials_of_differences(shift: float, summed: bool) -> None:
    shift = float(F32(ml_dtypes.bfloat16(shift)))
    x = every(ml_dtypes.bfloat16)
    x = x[x <= shift]  # it is a maximum
    got = helper("summed_exp_difference" if summed else "half_exp_difference")(x, np.full_like(x, shift))
    away = x.astype(np.float64) - shift
    want = np.exp(away)
    large = want >= 2.0**-126
    assert (np.abs(got[large] / want[large] - 1) <= 2.0**-21 + np.abs(away[large]) * 2.0**-17).all()
    assert not summed or not got[~large].any()
    assert (got[x == shift] == 1).all() and not np.isnan(got).any()


@pytest.mark.parametrize("scale", [0.0, 1.0, 4.0, 30.0])
def test_sums_of_exponentials_are_as_exact_as_sums(scale: float) -> None:
    x = (np.random.default_rng(1).standard_normal((8, 32000)) * scale).astype(F32)
    x[3:5] = -np.log(np.arange(1, 32001)) * scale / 4  # far terms weigh as much as near ones
    away = (x - x.max(-1, keepdims=True)).astype(F32)
    got, want = helper("summed_exp")(away).astype(np.float64).sum(-1), np.exp(away.astype(np.float64)).sum(-1)
    assert np.abs(got / want - 1).max() < np.log2(32000) * 2.0**-24
    np.testing.assert_array_equal(helper("summed_exp")(np.array([0, -np.inf, np.inf, np.nan])), [1, 0, np.inf, np.nan])


def test_infinite_maxima() -> None:
    inf = np.inf
    for name in ("half_exp_difference", "summed_exp_difference"):
        got = helper(name)(
            np.array([1.0, -inf, inf, inf, -inf, np.nan, 1.0]), np.array([inf, inf, inf, 0, -inf, 0, np.nan])
        )
        np.testing.assert_array_equal(got, [0, 0, np.nan, inf, np.nan, np.nan, np.nan])


def text_of(function: Any, *types: ArrayType) -> str:
    (source, *_) = fuser.jit(function, backend="triton").lower(*types).sources
    return str(source.text)


def test_which_exponentials_are_of_differences_and_which_may_vanish() -> None:
    rows = ArrayType((4096, 4096), bfloat16)
    softmax = text_of(lambda x: fuser.nn.softmax(x, -1), rows)
    assert "half_exp_difference(" in softmax and "summed" not in softmax  # results may be subnormal
    assert "summed_exp_difference(" in text_of(lambda x: fuser.nn.logsumexp(x, -1), rows)
    assert "summed_exp(" in text_of(lambda x: fuser.nn.logsumexp(x.astype("float32"), -1), rows)
    assert "libdevice.exp(" in text_of(lambda x: fuser.nn.softmax(x.astype("float32"), -1), rows)
    scaled = text_of(lambda x: fuser.nn.logsumexp(x * 0.3, -1), rows)  # a product is kept with more digits than 8
    assert "summed_exp(" in scaled and "difference" not in scaled
    other = text_of(lambda x: fnp.exp(x - x.min(-1, keepdims=True)).sum(-1), rows)
    assert "half_exp_difference(" in other and "summed" not in other  # all of them may be large
