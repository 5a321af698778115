"""Every distribution against jax.random: integers and uniform numbers to the bit, the rest up to rounding.

Results in half precision and near a zero of the distribution's formula are compared relative to 1: kernels round half
precision once at the end, and XLA after every step.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from scipy import special, stats

import fuser
from fuser.config import config
from fuser.ir.scalar import fused
from fuser.runtime import toolchain
from tests.random.agreement import SEED, WAYS, assert_alike, expected, found, precision

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
COVARIANCE = np.array([[2, 0.5, 0.1], [0.5, 1, 0.2], [0.1, 0.2, 0.7]], np.float32)
LOGITS = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
MATRIX = np.arange(12).reshape(4, 3)


def case(name: str, *args: Any, **kwargs: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    return name, args, kwargs


def compare(x64: bool, tolerance: float, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with precision(x64):
        want = expected(name, *args, **kwargs)
        for way in WAYS:
            got = found(way, name, *args, **kwargs)
            assert_alike(got, want, (name, args, kwargs, way, x64), tolerance)


def label(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        name, args, kwargs = value
        texts = [str(a.shape) if isinstance(a, np.ndarray) else str(a) for a in (*args, *kwargs.values())]
        return f"{name}({', '.join(texts)})"
    return ""


EXACT = [
    *(case("bits", (33, 5), dtype) for dtype in INTEGERS if dtype[0] == "u"),
    case("bits"),
    case("bits", (0, 3)),
    *(case("uniform", (33, 5), dtype) for dtype in FLOATS),
    case("uniform"),
    case("uniform", 5),
    *(case("randint", (100,), 0, 100, dtype) for dtype in INTEGERS),
    *(case("randint", (100,), 3, 2**31 - 1, dtype) for dtype in INTEGERS),
    *(case("randint", (100,), 0, 256, dtype) for dtype in ("uint8", "int16")),
    case("randint", (10,), 5, 5),
    case("randint", (10,), 7, 5),
    case("randint", (3, 20), np.arange(3)[:, None], 77),
    case("randint", (20,), -(2**31), 2**31 - 1),
    case("bernoulli"),
    case("bernoulli", 0.3, (100,)),
    case("bernoulli", 0.3, (100,), "high"),
    case("bernoulli", np.linspace(0, 1, 100, dtype=np.float32)),
    *(case("rademacher", (50,), dtype) for dtype in ("int8", "int32", "float32", "bfloat16")),
    case("permutation", 10),
    case("permutation", 70000),  # two rounds
    case("permutation", np.arange(5.0, dtype=np.float32)),
    case("permutation", MATRIX),
    case("permutation", MATRIX, 1),
    case("permutation", MATRIX, -1, True),
    case("choice", 10),
    case("choice", 10, (3, 4)),
    case("choice", 10, (3,), False),
    case("choice", MATRIX, (2,), axis=1),
    case("choice", MATRIX, (2,), False, axis=1),
    case("choice", 10, (0,)),
    case("choice", 10, (100,), p=np.arange(10, dtype=np.float32) / 45),
    case("choice", 10, (5,), False, p=np.arange(1, 11, dtype=np.float32) / 55),
    case("categorical", LOGITS[0]),
    case("categorical", LOGITS),
    case("categorical", LOGITS, 0, (3, 7)),
    case("categorical", LOGITS, -1, (3, 5), False),
    case("categorical", LOGITS, mode="high"),
    case("geometric", 0.3, (100,)),
    case("geometric", np.linspace(0.1, 0.9, 50, dtype=np.float32)),
]


@pytest.mark.parametrize("call", EXACT, ids=label)
def test_to_the_bit(call: Any) -> None:
    compare(False, 0, *call)


@pytest.mark.parametrize(
    "call",
    [
        case("bits"),
        case("bits", (7,), "uint64"),
        case("uniform", (50,)),
        case("randint", (50,), 0, 10**12),
        case("randint", (50,), -(2**63), 2**63 - 1),
        case("randint", (50,), 0, 7, "int8"),
        case("rademacher", (50,)),
        case("permutation", 10),
        case("choice", 10, (3, 4)),
        case("categorical", LOGITS),
        case("geometric", 0.3, (100,)),
    ],
    ids=label,
)
def test_to_the_bit_with_64_bits(call: Any) -> None:
    compare(True, 0, *call)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bounds", [(-3.3, 7.7), (0.1, 0.7), (-0.999, 1.0)])
def test_uniform_between_bounds(dtype: str, bounds: tuple[float, float]) -> None:
    """JAX's unit numbers, scaled with one rounding (two in half precision)."""
    with precision(True):
        unit = np.asarray(expected("uniform", (200,), dtype))
        low, high = (unit.dtype.type(b) for b in bounds)
        if dtype in ("float32", "float64"):
            want = fused(unit, high - low, low)
        else:
            want = (unit * (high - low)).astype(unit.dtype) + low
        want = np.maximum(want, low)
        for way in WAYS:
            assert np.array_equal(np.asarray(found(way, "uniform", (200,), dtype, *bounds)), want), way
    shifted = np.linspace(0, 1, 200, dtype=np.float32)
    assert np.asarray(found("c", "uniform", (2, 200), minval=shifted, maxval=shifted + 1)).min(0) == pytest.approx(
        shifted, abs=1
    )


SCALED = """
import os, sys
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
drawn = [jax.random.uniform(jax.random.key(7), (1000,), dtype, *bounds)
         for dtype in ("float16", "bfloat16", "float32", "float64") for bounds in ((-3.3, 7.7), (0.1, 0.7))]
np.savez(sys.argv[1], *[np.asarray(d).view(f"u{d.dtype.itemsize}") for d in drawn])
"""


def test_uniform_between_bounds_is_that_of_jax_as_users_run_it(tmp_path: Any) -> None:
    """In a process of its own: the suite runs JAX unoptimised, where products and sums are not contracted."""
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    subprocess.run([sys.executable, "-c", SCALED, str(tmp_path / "drawn.npz")], env=environment, check=True)
    theirs = iter(np.load(tmp_path / "drawn.npz").values())
    native = "avx512_fp16" in toolchain.processor()
    with precision(True):
        for dtype in FLOATS:
            for bounds in ((-3.3, 7.7), (0.1, 0.7)):
                ours, wanted = np.asarray(found("c", "uniform", (1000,), dtype, *bounds)), next(theirs)
                if dtype == "float16" and native:  # there JAX rounds the product to a half
                    near = np.abs(ours.astype(np.float32) - wanted.view(np.float16).astype(np.float32))
                    assert near.max() <= np.finfo(np.float16).eps * (bounds[1] - bounds[0])
                    continue
                assert np.array_equal(ours.view(f"u{ours.dtype.itemsize}"), wanted), (dtype, bounds)


# (tolerance in eps, call); where JAX's own formula loses digits, the tolerance is JAX's.
CLOSE = [
    (64, case("normal", (300,), "float32")),
    (4, case("normal", (50,), "float16")),
    (4, case("normal", (50,), "bfloat16")),
    (64, case("normal", (50,), "complex64")),
    (4, case("normal")),
    (8, case("truncated_normal", -1.0, 2.0, (100,))),
    (8, case("truncated_normal", np.linspace(-2, 0, 20, dtype=np.float32), 1.0)),
    (4, case("exponential", (300,))),
    (4, case("laplace", (300,))),
    (8, case("logistic", (300,))),
    (8, case("cauchy", (300,))),
    (8, case("gumbel", (300,))),
    (8, case("gumbel", (300,), None, "high")),
    (8, case("gumbel", (300,), None, "highest")),
    (8, case("pareto", 2.0, (100,))),
    (8, case("pareto", np.linspace(1, 5, 20, dtype=np.float32))),
    (8, case("rayleigh", np.float32(2), (100,))),
    (8, case("triangular", -1.0, 0.5, 2.0, (100,))),
    (64, case("wald", np.linspace(0.5, 3, 100, dtype=np.float32))),
    (64, case("lognormal", 0.5, (100,))),
    (64, case("lognormal")),
    (64, case("maxwell", (50,))),
    (64, case("double_sided_maxwell", 1.0, 2.0, (50,))),
    (64, case("double_sided_maxwell", np.zeros(2, np.float32), 2.0)),
    (8, case("weibull_min", 2.0, 1.5, (100,))),
    *((8, case("multivariate_normal", np.arange(3, dtype=np.float32), COVARIANCE, method=m)) for m in ("cholesky", "svd")),
    (64, case("multivariate_normal", np.arange(3, dtype=np.float32), COVARIANCE, (10,), method="eigh")),
    (8, case("multivariate_normal", np.zeros((4, 3), np.float32), np.stack([COVARIANCE] * 4))),
    (8, case("multivariate_normal", np.arange(3, dtype=np.float32), -COVARIANCE)),
    (8, case("orthogonal", 4)),
    (8, case("orthogonal", 3, (2,), None, 5)),
    (8, case("orthogonal", 5, (), None, 3)),
    (8, case("orthogonal", 3, (), "complex64")),
    (16, case("gamma", np.linspace(0.05, 5, 200, dtype=np.float32))),
    (16, case("gamma", 0.3, (10, 10))),
    (16, case("gamma", 2.5)),
    (16, case("loggamma", 0.3, (200,))),
    (16, case("beta", 0.5, 2.0, (100,))),
    (16, case("dirichlet", np.ones(5, np.float32), (20,))),
    (64, case("t", 3.0, (100,))),
    (16, case("chisquare", 3.0, (100,))),
    (128, case("f", 3.0, np.array([[4.0], [5.0]], np.float32), (2, 50))),
    (16, case("generalized_normal", 1.5, (100,))),
    (16, case("ball", 3, shape=(50,))),
    (16, case("ball", 3, 1.5, (10,))),
    (0, case("poisson", 3.0, (200,))),
    (0, case("poisson", np.array([2, 30, 5, 80], np.float32))),
    (0, case("poisson", 30.0, (17,))),
    (0, case("poisson", np.linspace(0, 100, 200, dtype=np.float32))),
    (0, case("poisson", 30.0, (100,), "int16")),
    (0, case("binomial", 10, 0.3, (200,))),
    (0, case("binomial", np.linspace(0, 1000, 200, dtype=np.float32), 0.3)),
    (0, case("binomial", 100, np.linspace(-0.1, 1.1, 200, dtype=np.float32))),
    (0, case("binomial", np.array([np.nan, np.inf, -1, 5], np.float32), 0.5)),
    (0, case("multinomial", 100.0, np.array([0.1, 0.2, 0.3, 0.4], np.float32))),
]  # fmt: skip


@pytest.mark.parametrize("tolerance, call", CLOSE, ids=label)
def test_up_to_rounding(tolerance: float, call: Any) -> None:
    compare(False, tolerance, *call)


@pytest.mark.parametrize(
    "name, args",
    [
        ("normal", ()),
        ("exponential", ()),
        ("cauchy", ()),
        ("gumbel", ()),
        ("truncated_normal", (-1.0, 2.0)),
        ("gamma", (2.5,)),
    ],
)
def test_float64_against_exact_formulas(name: str, args: Any) -> None:
    """JAX's float64 functions are off by up to a hundred eps; here the oracle is SciPy on the same uniform numbers."""
    with precision(True):
        drawn = {way: np.asarray(found(way, name, *args, (500,), "float64")) for way in WAYS}
        want = np.asarray(expected(name, *args, (500,), "float64"))
        for way, got in drawn.items():
            assert got == pytest.approx(want, rel=1e-12, abs=1e-13), (name, way)
        if name == "normal":
            low = np.nextafter(-1.0, 0.0)
            u = fused(np.asarray(expected("uniform", (500,), "float64")), 1 - low, low)
            assert drawn["c"] == pytest.approx(np.sqrt(2) * special.erfinv(u), rel=4e-15, abs=4e-16)


def test_normal_is_nearer_to_the_exact_value_than_that_of_jax() -> None:
    """Where the two differ by more than a few ulps, in the tails, it is JAX's erf_inv that is off."""
    low = np.nextafter(np.float32(-1), np.float32(0))
    u = fused(np.asarray(expected("uniform", (20000,))), np.float32(2), low).astype(np.float64)
    exact = np.sqrt(2) * special.erfinv(u)
    eps = np.finfo(np.float32).eps
    for way in WAYS:
        got = np.asarray(found(way, "normal", (20000,))).astype(np.float64)
        assert (np.abs(got - exact) / np.abs(exact)).max() < 4 * eps
    theirs = np.asarray(expected("normal", (20000,))).astype(np.float64)
    assert (np.abs(theirs - exact) / np.abs(exact)).max() < 64 * eps


def test_half_precision_agrees_in_distribution() -> None:
    """Half-precision formulas round where the kernel does; uniform numbers are exact, so quantiles are."""
    for dtype in ("float16", "bfloat16"):
        for name in ("exponential", "laplace", "gumbel", "logistic"):
            got = np.asarray(found("c", name, (400,), dtype)).astype(np.float64)
            want = np.asarray(expected(name, (400,), dtype)).astype(np.float64)
            eps = float(ml_dtypes.finfo(dtype).eps)
            assert np.abs(got - want).max() < 16 * eps * max(1, np.abs(want).max()), (name, dtype)


def test_numbers_of_arrays_larger_than_a_block_of_numpy() -> None:
    """NumPy hashes counters in blocks; several keys share one run."""
    want = np.asarray(jax.random.bits(jax.random.key(SEED), (40000, 3), "uint16"))
    assert np.array_equal(np.asarray(found("eager", "bits", (40000, 3), "uint16")), want)
    keys = fuser.random.split(fuser.random.key(SEED), 3)
    rows = fuser.vmap(lambda k: fuser.random.bits(k, (20000,)))(keys)
    theirs = jax.vmap(lambda k: jax.random.bits(k, (20000,)))(jax.random.split(jax.random.key(SEED), 3))
    assert np.array_equal(np.asarray(rows), np.asarray(theirs))


def test_large_draws_outside_jit_run_compiled() -> None:
    """Bits and uniform numbers are the same; normal ones agree up to the rounding of functions."""
    key, shape = fuser.random.key(SEED), (600, 500)
    assert np.array_equal(
        np.asarray(fuser.random.uniform(key, shape)), np.asarray(jax.random.uniform(jax.random.key(SEED), shape))
    )
    small = np.asarray(fuser.random.normal(key, (1000,)))
    assert np.asarray(fuser.random.normal(key, shape)).ravel()[:1000] == pytest.approx(small, rel=1e-6)
    assert fuser.random.bits(key, shape, np.uint8).dtype == np.uint8
    assert fuser.random.normal(fuser.random.PRNGKey(SEED), shape).shape == shape


def test_signatures_are_those_of_jax() -> None:
    """Names, kinds and defaults of all parameters; and no function of jax.random is missing."""
    for name in dir(jax.random):
        function = getattr(jax.random, name)
        if name.startswith("_") or not callable(function):
            continue
        ours, theirs = (inspect.signature(f).parameters.values() for f in (getattr(fuser.random, name), function))
        assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs], name


def test_counters_beyond_32_bits() -> None:
    """The last numbers of an array with more than 2^32 elements, of which only these are computed."""
    shape = (3, 1 << 31)
    for backend in ("reference", "c") if os.environ.get("FUSER_TEST_LARGE") else ("c",):
        with config.using(backend=backend):
            tail = fuser.jit(lambda k: fuser.random.bits(k, shape)[2, -5:])(fuser.random.key(SEED))
    words = np.array(jax.random.key_data(jax.random.key(SEED)))
    from fuser.ir.scalar import threefry

    place = np.arange(3 * (1 << 31) - 5, 3 * (1 << 31), dtype=np.uint64)
    first, second = threefry(words[0], words[1], (place >> np.uint64(32)).astype(np.uint32), place.astype(np.uint32))
    assert np.array_equal(np.asarray(tail), first ^ second)


def test_moments() -> None:
    """A check of the checks: what agrees with the oracle is also distributed as its name says."""
    drawn = np.asarray(found("c", "normal", (100_000,)))
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    drawn = np.asarray(found("c", "gumbel", (100_000,)))
    assert stats.kstest(drawn, "gumbel_r").pvalue > 1e-3
