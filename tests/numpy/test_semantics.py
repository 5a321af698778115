"""Corner cases in which NumPy, JAX and a plain formula differ: masks, initial values, integer powers, weak types.

JAX's types come from `jax.eval_shape`, which compiles nothing, so that each function is asked for all pairs of kinds.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import agree, compare, ours, precision, same, theirs

import fuser
import fuser.lax
import fuser.numpy as fnp
import fuser.scipy.special

KINDS = {name: np.array([1, 2, 3], name) for name in ("bool", "i1", "u4", "i4", "i8", "f2", "f4", "f8", "c8")}
KINDS |= {"0-d i1": np.array(2, "i1"), "0-d f4": np.array(2, "f4"), "int": 2, "float": 2.5, "complex": 1j, "numpy": np.float32(2)}  # fmt: skip
BINARY = [
    "equal", "less", "logical_and", "logical_xor", "divmod", "floor_divide", "remainder", "fmod", "true_divide", "hypot", "heaviside",
    "logaddexp", "logaddexp2", "arctan2", "copysign", "gcd", "left_shift", "inner", "correlate", "polyval", "trapezoid", "cov", "average",
    "histogram", "clip", "interp", "setdiff1d", "union1d", "insert", "float_power",
]  # fmt: skip


def _call(numpy, name, x, y):
    if name == "average":
        return numpy.average(x, weights=y)
    if name == "interp":
        return numpy.interp(x, y, y)
    if name == "insert":
        return numpy.insert(x, 1, y)
    return getattr(numpy, name)(x, y)


def _type(value):
    if isinstance(value, (tuple, list)):
        return [_type(v) for v in value]
    return str(value.dtype), tuple(value.shape), bool(value.weak_type)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", BINARY)
def test_types_of_results(name, x64):
    """Shape, dtype and weak type of every pair of kinds; what JAX refuses or knows only with values is left out."""
    with precision(x64):
        for (first, x), (second, y) in itertools.product(KINDS.items(), repeat=2):
            arrays = [v for v in (x, y) if isinstance(v, np.ndarray)]

            def jax_call(*given, x=x, y=y):
                it = iter(given)
                return _call(jnp, name, *(next(it) if isinstance(v, np.ndarray) else v for v in (x, y)))

            try:
                expected = _type(jax.eval_shape(jax_call, *arrays))
            except Exception:
                continue
            assert _type(_call(fnp, name, ours(x), ours(y))) == expected, (first, second)


@pytest.mark.parametrize(
    "name", ["rint", "angle", "nanvar", "nanstd", "nanmean", "log2", "log10", "median", "unique_values"]
)
def test_types_of_functions_of_one(name):
    for x64 in (False, True):
        with precision(x64):
            for key, x in KINDS.items():
                if isinstance(x, np.ndarray) and not (name in ("median", "unique_values") and x.dtype.kind == "c"):
                    same(name, x)
                    assert key


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanmean", "sum", "prod", "nansum", "cumsum"])
def test_dtypes_asked_for(name):
    for dtype, wanted in itertools.product(("bool", "i4", "f2", "f4", "c8"), ("f4", "f2", "i4", "c8", "bool")):
        if wanted == "bool" and name not in ("sum", "prod"):
            continue
        if name == "std" and wanted == "i4":
            continue
        same(name, np.array([[1, 0, 3], [2, 2, 1]], dtype), dtype=np.dtype(wanted))


@pytest.mark.parametrize("name", ["nanmax", "nanmin"])
def test_initial_values_where_all_is_nan(name):
    for x in (
        np.array([np.nan, np.nan], "f4"),
        np.array([np.nan, 1], "f4"),
        np.array([], "f4"),
        np.array([2, 1], "i4"),
    ):
        for initial in (None, 0, 5):
            same(name, x, initial=initial)
            if initial is not None:
                same(name, x, initial=initial, where=x == x)


def test_products_and_sums_of_bools_are_logical():
    for name, x in itertools.product(
        ("sum", "prod"), (np.array([0, 0.5, 2], "f4"), np.array([True, True]), np.zeros(2, "i4"))
    ):
        found = fuser.jit(lambda v, name=name: getattr(fnp, name)(v, dtype=bool), backend="reference")(x)
        compare(found, getattr(jnp, name)(x, dtype=bool))


def test_integer_powers_of_zero():
    """Only the six low bits of an exponent are read, and 0 to a power of 64 or 128 is 0 all the same."""
    power = fuser.jit(fnp.power, backend="reference")
    assert int(power(0, 128)) == int(jax.jit(jnp.power)(0, 128)) == 0
    for dtype in ("i1", "u1", "i4"):
        base, exponent = np.array([0, 0, 0, 0, 1, 2, 3], dtype), np.array([0, 1, 64, 127, 64, 3, 0], dtype)
        same("power", base, exponent)


def test_remainders_by_zero_and_false():
    for name in ("fmod", "remainder", "floor_divide"):
        for dtype in ("bool", "i4", "u1", "f4"):
            x, y = np.array([1, 1, 0, 0], dtype), np.array([1, 0, 1, 0], dtype)
            same(name, x, y)


def test_rounding_beyond_the_digits_of_a_dtype():
    for dtype, decimals in itertools.product(("f2", "f4", "c8", "i4"), (100, 39, 30, 5, 4, 2, 0, -2)):
        if dtype == "i4" and decimals < 0:
            continue
        same("round", np.array([1.256, -3.1, 120, 0], dtype), decimals)


def test_sign_of_gamma():
    x = np.array([np.nan, 0, -0.0, -1, -1.5, -2.5, 2, -np.inf, np.inf], np.float32)
    agree(fuser.scipy.special.gammasgn, jax.scipy.special.gammasgn, x)


def test_quantiles_over_nothing_and_of_numbers():
    same("median", np.array(1.0, "f4"), axis=None, keepdims=True)
    same("quantile", np.array(1.0, "f4"), np.array([0.5, 0.1], "f4"), axis=None, keepdims=True)
    same("median", np.ones((3, 0), "f4"), axis=-2)
    same("median", np.ones((3, 0), "f4"), axis=-2, keepdims=True)
    same("median", np.ones((3, 0), "f4"), axis=-1)


def test_insert_several_values_at_one_place():
    x = np.arange(12).reshape(3, 4)
    same("insert", x, 1, np.arange(4), axis=0)
    same("insert", x, 1, np.arange(3), axis=1)
    same("insert", x, np.array([3, 0, -1]), np.array([[7], [8], [9]]), axis=0)
    same("insert", np.arange(4), 2, np.array([7, 8, 9]))
    same("insert", np.arange(4), slice(0, 4, 2), 5)
    same("insert", np.arange(4), np.array([3, 1, 1]), np.array([7, 8, 9]))


def test_shifts_and_diagonals_that_are_traced():
    x = np.arange(12.0, dtype="f4").reshape(3, 4)
    for shift, axis in ((2, None), (-1, 0), (np.array([1, 2]), (0, 1)), (1, (0, 1)), (np.array([1, 2]), 0), (9, -1)):
        found = fuser.jit(lambda s, a=axis: fnp.roll(ours(x), s, a), backend="reference")(shift)
        compare(found, jnp.roll(x, shift, axis))
        same("roll", x, shift, axis)
    for k in (0, 1, -2, 7):
        for name in ("eye", "tri"):
            found = fuser.jit(lambda k, n=name: getattr(fnp, n)(3, 4, k=k), backend="reference")(k)
            compare(found, getattr(jnp, name)(3, 4, k=k))
    same("eye", 3, k=2**40)
    agree(lambda: fnp.eye(3, k=1.0), lambda: jnp.eye(3, k=1.0))
    with pytest.raises(TypeError):
        fuser.jit(lambda k: fnp.triu(ours(x), k))(1)


def test_roll_compiled():
    x = np.arange(12.0, dtype="f4").reshape(3, 4)
    found = fuser.jit(lambda x, s: fnp.roll(x, s, (0, 1)))(x, np.array([1, -1]))
    compare(found, jnp.roll(x, np.array([1, -1]), (0, 1)))
    compare(theirs(x), theirs(x))


@pytest.mark.parametrize("name", ["sum", "max", "mean", "var", "nanmean", "nanvar", "all", "any"])
def test_masks_are_bools(name):
    initial = {"initial": 0} if name == "max" else {}
    for mask in (np.ones(3, bool), np.ones(3, "i4"), np.ones(3, "f4"), True, 1):
        same(name, np.arange(3.0, dtype="f4"), where=mask, **initial)
