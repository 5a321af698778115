"""Elementwise functions against JAX: values at ordinary points and at the edges, dtypes, weak types, broadcasting, errors."""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import mpmath
import numpy as np
import pytest
from agreement import Weak, agree, numbers, precision, same

import fuser
import fuser.numpy as fnp

DTYPES = ["bool", "int8", "uint32", "float16", "bfloat16", "float32", "complex64"]
UNARY_ANY = [
    "negative",
    "sign",
    "square",
    "bitwise_not",
    "floor",
    "ceil",
    "trunc",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "cbrt",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "absolute",
    "fabs",
    "positive",
    "rint",
    "round",
    "reciprocal",
    "log2",
    "log10",
    "logical_not",
    "isnan",
    "isinf",
    "isfinite",
    "isposinf",
    "isneginf",
    "signbit",
    "sinc",
    "deg2rad",
    "rad2deg",
    "nan_to_num",
    "bitwise_count",
    "real",
    "imag",
    "conjugate",
    "angle",
    "isreal",
    "iscomplex",
    "modf",
    "frexp",
]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
    "arctan2",
    "nextafter",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "power",
    "float_power",
    "floor_divide",
    "remainder",
    "fmod",
    "divmod",
    "fmax",
    "fmin",
    "hypot",
    "logaddexp",
    "logaddexp2",
    "heaviside",
    "copysign",
    "ldexp",
    "isclose",
]


def dtype_of(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY_ANY)
def test_unary(name, dtype):
    x = numbers(dtype_of(dtype), (2, 3), low=-0.95, high=0.95)
    if name == "arccosh":
        x = x + np.asarray(2, x.dtype) if dtype != "bool" else x
    tolerance = 20 if dtype == "complex64" else 4 if dtype in ("float16", "bfloat16") else 1
    agree(getattr(fnp, name), getattr(__import__("jax").numpy, name), x, tolerance=tolerance)


EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30], np.float32
)


@pytest.mark.parametrize("name", [n for n in UNARY_ANY if n not in ("bitwise_not", "bitwise_count")])
def test_unary_at_the_edges(name):
    same(name, EDGES, tolerance=2)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    x, y = numbers(dtype_of(dtype), (2, 3), 1, 0.2, 3), numbers(dtype_of(dtype), (2, 3), 2, 0.2, 3)
    if name == "ldexp":
        y = np.abs(numbers(np.int32, (2, 3), 3))
    if name in ("power", "float_power") and dtype in ("int8", "uint8", "int32"):
        y = np.abs(y) % 4
    same(name, x, y, tolerance=8 if dtype in ("bfloat16", "complex64") else 1)


@pytest.mark.parametrize(
    "name",
    [n for n in BINARY if n not in ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "ldexp")],
)
def test_binary_at_the_edges(name):
    edges = EDGES[:12]
    same(name, edges[:, None] + np.zeros_like(edges), edges[None, :] + np.zeros_like(edges))


@pytest.mark.parametrize(
    "name", ["floor_divide", "remainder", "fmod", "divmod", "power", "left_shift", "right_shift", "add", "multiply"]
)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32"])
def test_integers_at_the_edges(name, dtype):
    info = np.iinfo(dtype)
    values = np.array([0, 1, 2, 7, info.max, info.min, info.max - 1, info.min + 1, 5], dtype)
    if name == "power":
        same(name, values[:, None] + np.zeros_like(values), np.array([[0, 1, 2, 3, 4, 5, 6, 7, 40]], dtype))
    elif name in ("left_shift", "right_shift"):
        same(name, values[:, None] + np.zeros_like(values), np.array([[0, 1, 2, 3, 4, 5, 6, 7, 31]], dtype))
    else:
        same(name, values[:, None] + np.zeros_like(values), values[None, :] + np.zeros_like(values))


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 1), (1, 4)),
        ((4,), (3, 4)),
        ((), (3,)),
        ((1,), ()),
        ((0,), (1,)),
        ((2, 1, 3), (4, 1)),
        ((3,), (4,)),
        ((2, 3), (3, 2)),
    ],
)
def test_broadcasting(shapes):
    x, y = (numbers(np.float32, s) for s in shapes)
    same("add", x, y)
    same("where", x > 0, x, y)
    same("logaddexp", x, y)


def test_broadcasting_error_names_the_types():
    with pytest.raises(TypeError, match=r"add cannot broadcast f32\[3\] and f32\[4\]; extents must be equal or 1"):
        fnp.ones(3) + fnp.ones(4)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 7, np.int32(2), np.array(3), 2.0, 0.5])
@pytest.mark.parametrize("dtype", ["int32", "float32", "complex64", "bool"])
def test_power_of_known_exponents(exponent, dtype):
    same("power", numbers(dtype, (3,)) + np.ones(3, dtype), exponent)


@pytest.mark.parametrize("decimals", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "complex64"])
def test_round(decimals, dtype):
    same("round", numbers(dtype, (8,), 0, -30, 30), decimals, tolerance=4)


@pytest.mark.parametrize(
    "x, y",
    [
        (1, 2.0),
        (np.arange(3), 2.5),
        (np.float32(1), np.int32(2)),
        (Weak(1), np.ones(3, np.float16)),
        (True, np.ones(3, np.int8)),
        (1, 2),
    ],
)
def test_where_promotes(x, y):
    same("where", np.array([True, False, True]), x, y)


@pytest.mark.parametrize(
    "low, high", [(0, 1), (None, 1), (0, None), (-0.5, 0.5), (1, 0), (np.zeros(4, np.float32), 1), (None, None)]
)
@pytest.mark.parametrize("dtype", ["int32", "float32", "uint8"])
def test_clip(low, high, dtype):
    same("clip", numbers(dtype), low, high)


def test_clip_refuses_complex():
    same("clip", numbers(np.complex64), 0, 1)


@pytest.mark.parametrize("equal_nan", [False, True])
def test_closeness(equal_nan):
    x = np.array([1.0, np.nan, np.inf, 0.0, -np.inf], np.float32)
    y = np.array([1.0 + 1e-6, np.nan, np.inf, 1e-9, np.inf], np.float32)
    same("isclose", x, y, equal_nan=equal_nan)
    same("allclose", x, x, equal_nan=equal_nan)
    same("array_equal", x, x, equal_nan)
    same("array_equal", x, x[:2])
    same("array_equiv", np.ones((3, 2)), np.ones(2))
    same("array_equiv", np.ones((3, 2)), np.ones(3))


@pytest.mark.parametrize(
    "name", ["exp", "sin", "sqrt", "add", "power", "true_divide", "floor_divide", "hypot", "log10"]
)
def test_double_precision(name):
    with precision(True):
        x, y = np.linspace(0.5, 3, 7), np.linspace(1, 2, 7)
        args = (x, y) if name in ("add", "power", "true_divide", "floor_divide", "hypot") else (x,)
        same(name, *args)
        same(name, *(a.astype(np.int64) for a in args))


def test_nan_to_num_takes_replacements():
    same("nan_to_num", EDGES, nan=7.0, posinf=1.0, neginf=-2.0)
    same("nan_to_num", np.array([1 + np.nan * 1j, np.inf - 1j], np.complex64))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_complex_numbers_near_zero_keep_their_digits(name: str, wide: bool) -> None:
    """Against mpmath, of sizes from 1e-6 to 10: as they stand, and in a kernel with other operations."""
    rng = np.random.default_rng(0)
    sizes = np.repeat(10.0 ** np.arange(-6, 2), 20)
    dtype = np.complex128 if wide else np.complex64
    z = (sizes * (rng.standard_normal(160) + 1j * rng.standard_normal(160))).astype(dtype)
    exact = np.array([complex(getattr(mpmath, name)(mpmath.mpc(complex(v)))) for v in z])
    with fuser.config.using(enable_x64=wide):
        function = getattr(fnp, name)
        for found in (function(z), fuser.jit(lambda z: function(z * 1.0) * 2.0)(z) / 2.0):
            error = np.abs(np.asarray(found) - exact) / np.abs(exact)
            assert error.max() < (2e-13 if wide else 4e-7), error.max()


def test_expm1_is_real_on_the_real_axis() -> None:
    z = np.array([np.inf, -np.inf, np.nan, 0, 2], np.complex64)
    for found in (fnp.expm1(z), fuser.jit(fnp.expm1)(z)):
        np.testing.assert_array_equal(np.asarray(found).imag, 0)
        np.testing.assert_allclose(np.asarray(found).real, np.expm1(z.real), rtol=1e-6)


@pytest.mark.parametrize("backend", ["eager", "c", "reference"])
def test_signs_of_complex_numbers_are_those_of_jax_part_by_part(backend: str) -> None:
    parts = (0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan)
    x = np.array([complex(a, b) for a in parts for b in parts], np.complex64)
    found = np.asarray((fnp.sign if backend == "eager" else fuser.jit(fnp.sign, backend=backend))(x))
    wanted = np.asarray(jnp.sign(x))
    for part in ("real", "imag"):
        np.testing.assert_allclose(getattr(found, part), getattr(wanted, part), rtol=1e-6)
    zero = x == 0
    np.testing.assert_array_equal(np.signbit(found.imag[zero]), np.signbit(x.imag[zero]))
