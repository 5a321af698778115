"""Complex numbers as pairs of reals: which kernels, and results against the rules' own definitions in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.ir.types import is_complex
from fuser.kernel.complex_parts import split_complex
from fuser.kernel.kernel import Kernel
from fuser.kernel.lower import lower
from fuser.kernel.lower_loop import lower_loop
from fuser.partition.group import FUSIBLE, Kind
from tests.jax_oracle import AS_USERS_RUN_IT

RNG = np.random.default_rng(0)
PARTS = (0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-30, 3e19, 2.5)
SPECIAL = np.array([complex(a, b) for a in PARTS for b in PARTS], np.complex64)


def numbers(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(np.complex64)


def kernels(function: Callable[..., Any], *args: Any) -> list[Kernel]:
    groups = [g for g in fuser.jit(function).lower(*args).plan.kernels if g.kind in (*FUSIBLE, Kind.LOOP)]
    return [split_complex((lower_loop if g.kind is Kind.LOOP else lower)(g)) for g in groups]


def whole(kernel: Kernel) -> bool:
    """Whether no complex number is left."""
    return not any(is_complex(n.dtype) for n in kernel.nodes) and not any(is_complex(p.dtype) for p in kernel.params)


def newton(z: Any) -> Any:
    return lax.fori_loop(0, 6, lambda i, z: z - (z * z * z - 1) / (3 * z * z + 1e-3), z)


def escape(c: Any) -> Any:
    def step(i: Any, carry: Any) -> Any:
        z, n = carry
        inside = abs(z) < 2
        return fnp.where(inside, z * z + c, z), n + inside

    return lax.fori_loop(0, 20, step, (fnp.zeros_like(c), fnp.zeros(c.shape, "int32")))[1]


CIRCULAR = ("sin", "cos", "tan", "sinh", "cosh", "tanh")
PROGRAMS: dict[str, Callable[..., Any]] = {
    "abs": lambda z, w: abs(z) * 2,
    "sqrt": lambda z, w: fnp.sqrt(z),
    "exp": lambda z, w: fnp.exp(z),
    "log": lambda z, w: fnp.log(z),
    "quotient": lambda z, w: z / w,
    "power": lambda z, w: z**w,
    "real power": lambda z, w: z**3.5,
    **{name: lambda z, w, name=name: getattr(fnp, name)(z) for name in CIRCULAR},  # type: ignore[misc]
    **{name: lambda z, w, name=name: getattr(fnp, name)(z * 0.3) for name in ("expm1", "log1p")},  # type: ignore[misc]
    "polynomial": lambda z, w: (z * w + 1) * fnp.conj(z) - w,
    "sum": lambda z, w: (z * w).sum(),
    "running sum": lambda z, w: fnp.cumsum(z),
    "choice": lambda z, w: fnp.where(z == w, z, fnp.where(z.real > 0, w, 2j)),
    "casts": lambda z, w: (z.real.astype("complex64") * w).imag + (z != 0),
    "padded": lambda z, w: fnp.pad(z, (1, 2))[::-1] * 2,
    "gathered": lambda z, w: z[fnp.argsort(w.real)] + w,
    "interleaved": lambda z, w: fnp.stack([z, w * 1j], -1),
    "newton": lambda z, w: newton(z),
    "escape": lambda z, w: escape(z),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_the_reference(name: str) -> None:
    program, z, w = PROGRAMS[name], numbers(500), numbers(500)
    found, expected = fuser.jit(program)(z, w), fuser.jit(program, backend="reference")(z, w)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=5e-4 if name == "newton" else 3e-6, atol=1e-5)
    assert all(whole(k) for k in kernels(program, z, w))


@pytest.mark.parametrize("name", ["abs", "sqrt", "exp", "log"])
def test_zeros_infinities_and_nan(name: str) -> None:
    z = w = SPECIAL
    program = PROGRAMS[name]
    with np.errstate(all="ignore"):
        found, expected = fuser.jit(program)(z, w), fuser.jit(program, backend="reference")(z, w)
    for a, b in ((np.real(found), np.real(expected)), (np.imag(found), np.imag(expected))):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-44)
        finite = ~np.isnan(b)
        if name in ("sqrt", "log"):
            np.testing.assert_array_equal(np.signbit(a)[finite], np.signbit(b)[finite])


@pytest.mark.parametrize("name", ["sinh", "cosh", "tanh"])
def test_hyperbolic_functions_of_zeros_infinities_and_nan(name: str) -> None:
    """Beside NumPy, but for a direction that nothing says (C17, G.6.2): the real part along an imaginary one without end."""
    with np.errstate(all="ignore"):
        found, expected = np.asarray(fuser.jit(getattr(fnp, name))(SPECIAL)), getattr(np, name)(SPECIAL)
    open_real = ~np.isfinite(SPECIAL.imag)
    real, wanted = (
        np.where(open_real, abs(found.real), found.real),
        np.where(open_real, abs(expected.real), expected.real),
    )
    known = ~(open_real & (SPECIAL.real == 0)) if name == "tanh" else np.ones(SPECIAL.shape, bool)
    np.testing.assert_allclose(real[known], wanted[known], rtol=1e-6, atol=1e-44)
    np.testing.assert_allclose(found.imag, expected.imag, rtol=1e-6, atol=1e-44)


def test_quotients_at_the_ends_are_those_of_jax() -> None:
    z, w = (x.ravel() for x in np.meshgrid(SPECIAL, SPECIAL))
    for program in (lambda z, w: z / w, lambda z, w: z / w.real, lambda z, w: 2.0 / w):
        found = fuser.jit(program)(z, w)
        expected = jax.jit(program, compiler_options=AS_USERS_RUN_IT)(z, w)
        for a, b in ((np.real(found), np.real(expected)), (np.imag(found), np.imag(expected))):
            np.testing.assert_allclose(a, b, rtol=3e-7, atol=1e-37)  # JAX flushes subnormal numbers


EXTREMES: dict[str, tuple[float, ...]] = {
    "complex64": (3e38, 1e30, 2e19, 1.0, 0.7, 1e-19, 3e-30, 2e-38, 1e-42, 0.0),
    "complex128": (1.5e308, 1e200, 3e150, 1.0, 0.7, 1e-150, 1e-200, 3e-308, 1e-320, 0.0),
}


@pytest.mark.parametrize("dtype", EXTREMES)
def test_nothing_overflows_or_vanishes_on_the_way(dtype: str) -> None:
    parts = np.array(EXTREMES[dtype])
    z = np.array([complex(s * a, b) for a in parts for b in parts for s in (1, -1)]).astype(dtype)
    wide = z.astype(np.clongdouble)
    tolerance = 4 * np.finfo(z.dtype).eps
    least = 2 * float(np.finfo(z.dtype).smallest_subnormal)
    with fuser.config.using(enable_x64=dtype == "complex128"), np.errstate(all="ignore"):
        for program, oracle in ((fnp.abs, np.abs), (fnp.sqrt, np.sqrt)):
            found = np.asarray(fuser.jit(program)(z))
            expected = oracle(wide)
            np.testing.assert_allclose(found.real, expected.real.astype(found.real.dtype), rtol=tolerance, atol=least)
            np.testing.assert_allclose(found.imag, expected.imag.astype(found.real.dtype), rtol=tolerance, atol=least)
        like = z[np.abs(wide) > 0]
        found = np.asarray(fuser.jit(lambda z, w: z / w)(like, like))
        np.testing.assert_allclose(found.real, 1, rtol=tolerance)
        np.testing.assert_allclose(found.imag, 0, atol=tolerance)


def test_exponentials_whose_size_alone_overflows() -> None:
    for dtype, large in (("complex64", (85.0, 89.5, 92.0)), ("complex128", (705.0, 711.0, 720.0))):
        z = np.array([complex(a, b) for a in large for b in (0.0, 1.5707963, 1.57, 3.0, -1.5707)], dtype)
        with fuser.config.using(enable_x64=dtype == "complex128"), np.errstate(over="ignore"):
            found, expected = np.asarray(fuser.jit(fnp.exp)(z)), np.exp(z.astype(np.clongdouble)).astype(dtype)
            epsilon = np.finfo(dtype).eps
            for a, b in ((found.real, expected.real), (found.imag, expected.imag)):
                np.testing.assert_allclose(a, b, rtol=6 * epsilon)


@pytest.mark.parametrize("dtype", EXTREMES)
@pytest.mark.parametrize("name", CIRCULAR)
def test_circular_and_hyperbolic_functions_near_poles_zeros_and_overflow(name: str, dtype: str) -> None:
    large = (20.5, 60.0, 85.0, 89.5) if dtype == "complex64" else (41.0, 600.0, 705.0, 711.0)
    parts = [0.0, 1e-30, 1e-4, 0.3, 1.0, 1.5707963, 1.57, 3.1415927, 4.0, *large]
    z = np.array([complex(s * a, t * b) for a in parts for b in parts for s in (1, -1) for t in (1, -1)], dtype)
    with fuser.config.using(enable_x64=dtype == "complex128"), np.errstate(all="ignore"):
        found = np.asarray(fuser.jit(getattr(fnp, name))(z))
        expected = getattr(np, name)(z.astype(np.clongdouble)).astype(dtype)
        least = float(np.finfo(dtype).smallest_normal)
        for a, b in ((found.real, expected.real), (found.imag, expected.imag)):
            np.testing.assert_allclose(a, b, rtol=16 * np.finfo(dtype).eps, atol=least)


def test_powers_of_zero_and_by_zero() -> None:
    z = np.array([0, 0, 0, 2 + 1j, 1j], np.complex64)
    w = np.array([0, 2, 1 + 3j, 0, 0], np.complex64)
    np.testing.assert_array_equal(fuser.jit(lambda z, w: z**w)(z, w), np.array([1, 0, 0, 1, 1], np.complex64))


def test_logarithms_of_numbers_of_size_one() -> None:
    angle = RNG.uniform(-3, 3, 2000)
    z = (np.exp(1j * angle) * (1 + RNG.choice([0, 1e-7, 3e-4], 2000))).astype(np.complex64)
    found, expected = np.asarray(fuser.jit(fnp.log)(z)), np.log(z.astype(np.clongdouble))
    np.testing.assert_allclose(found.real, expected.real.astype(np.float64), rtol=4e-7, atol=1e-15)


def test_what_has_no_rule_is_left_whole() -> None:
    z, w = numbers(100), numbers(100)
    for program in (lambda z: fnp.arcsin(z) + 1, lambda z: fnp.arctanh(z) * w):
        (kernel,) = kernels(program, z)
        assert not whole(kernel)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(fuser.jit(program)(z), fuser.jit(program, backend="reference")(z), rtol=1e-4)


def test_double_precision() -> None:
    with fuser.config.using(enable_x64=True):
        z, w = numbers(300).astype(np.complex128), numbers(300).astype(np.complex128)
        for program, split in (
            (lambda z, w: z * w - z.conj(), True),
            (lambda z, w: abs(z) * fnp.sqrt(w) / (z - 3), True),
            (lambda z, w: fnp.exp(z / w.real), True),
            (lambda z, w: fnp.sin(z) + fnp.tanh(w), True),
            (lambda z, w: fnp.log(z), False),
            (lambda z, w: z**w, False),
        ):
            assert all(whole(k) is split for k in kernels(program, z, w))
            np.testing.assert_allclose(
                fuser.jit(program)(z, w), fuser.jit(program, backend="reference")(z, w), rtol=1e-12
            )
