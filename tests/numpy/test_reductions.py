"""Reductions and prefix scans against JAX: axes, keepdims, dtype, where, initial, nan, small dtypes, empty axes."""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from agreement import Weak, numbers, precision, same

import fuser.numpy as fnp
from fuser import lax
from fuser.ir.types import ArrayType
from fuser.trace.stage import stage

DTYPES = ["bool", "int8", "uint8", "int32", "float16", "bfloat16", "float32", "complex64"]
REDUCTIONS = ["sum", "prod", "max", "min", "all", "any", "mean", "var", "std", "ptp", "count_nonzero"]
NANS = ["nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd"]


def dtype_of(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def holes(shape=(3, 4)):
    x = numbers(np.float32, shape)
    x[0, 1] = x[2, 2] = np.nan
    x[:, 3] = np.nan
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_by_name(name, dtype):
    x = numbers(dtype_of(dtype), (3, 4), low=-2, high=2)
    if name == "ptp" and dtype == "bool":  # bools do not subtract
        for library in (jnp, fnp):
            with pytest.raises(TypeError, match="sub does not accept dtype bool"):
                library.ptp(x)
        return
    tolerance = 4 if dtype in ("float16", "bfloat16") else 1
    for axis in (None, 0, (0, 1)):
        same(name, x, axis=axis, tolerance=tolerance)


@pytest.mark.parametrize("name", [*REDUCTIONS, *NANS])
@pytest.mark.parametrize(
    "axis, keepdims", [(None, True), (0, False), (-1, True), ((0, 2), False), ((2, 0), True), ((), False)]
)
def test_axes(name, axis, keepdims):
    same(name, numbers(np.float32, (2, 3, 4)), axis=axis, keepdims=keepdims, tolerance=4)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4", "uint4", "int2"])
def test_small_dtypes(dtype):
    """They are computed in wider ones, and rounded once."""
    small = np.dtype(getattr(ml_dtypes, dtype))
    exact = np.array([[1, 0, 1], [0, 1, 1]], np.float64)
    x = fnp.asarray(exact.astype(small))
    for name in ("sum", "prod", "max", "min", "mean", "cumsum", "cumprod", "sort"):
        for axis in (0, 1, -1):
            found, wanted = getattr(fnp, name)(x, axis=axis), getattr(np, name)(exact, axis=axis)
            integers = dtype.endswith(("int4", "int2"))
            expected = small if not (integers and name in ("sum", "prod", "mean")) else np.dtype(found.dtype)
            assert found.dtype == expected
            if name not in ("cumsum", "cumprod") or dtype != "int2":  # whose greatest number is 1
                np.testing.assert_array_equal(np.asarray(found).astype("f8"), wanted.astype(found.dtype).astype("f8"))
    for name in ("argmax", "argmin", "argsort"):
        options = {"kind": "stable"} if name == "argsort" else {}
        np.testing.assert_array_equal(getattr(fnp, name)(x, 1), getattr(np, name)(exact, 1, **options))
    values, positions = lax.top_k(x, 2)
    assert values.dtype == small and positions.tolist() == [[0, 2], [1, 2]]
    assert lax.sort(x).dtype == lax.cummax(x).dtype == lax.reduce_max(x, (0,)).dtype == small
    np.testing.assert_array_equal(np.asarray(fnp.unique(x)).astype("f8"), [0, 1])
    assert float(fnp.max(x, where=x > 1, initial=0)) == 0


def test_the_least_and_the_greatest_together():
    x = numbers(np.float32, (3, 4))
    for options in (
        {},
        {"axis": 0},
        {"axis": 1, "keepdims": True},
        {"initial": 0},
        {"where": x > 0, "initial": (9.0, -9.0)},
    ):
        low, high = (
            options.get("initial") if isinstance(options.get("initial"), tuple) else (options.get("initial"),) * 2
        )
        found = fnp.minmax(x, **options)
        for value, function, initial in zip(found, (jnp.min, jnp.max), (low, high)):
            np.testing.assert_array_equal(value, function(x, **{**options, "initial": initial}))


@pytest.mark.parametrize("name", [*NANS, "nanargmax", "nanargmin", "nancumsum", "nancumprod"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_nan_is_left_out(name, axis):
    same(name, holes(), axis=axis)
    same(name, numbers(np.int32), axis=axis)


@pytest.mark.parametrize("name", ["sum", "max", "mean", "var", "prod", "argmax", "argmin", "all", "any", "cumsum"])
def test_nan_is_taken_along(name):
    same(name, holes(), axis=1)


def test_variance_of_complex_numbers():
    same("var", numbers(np.complex64), axis=0)
    same("std", numbers(np.complex64))


@pytest.mark.parametrize("ddof", [0, 1, 12])
def test_degrees_of_freedom(ddof):
    same("var", numbers(np.float32), ddof=ddof)
    same("std", numbers(np.float32), axis=0, ddof=1)
    same("nanvar", holes(), ddof=ddof)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min", "all", "any", "var", "std", "nansum", "nanmean"])
def test_where(name):
    x, mask = numbers(np.float32), np.arange(12).reshape(3, 4) % 3 > 0
    initial = {"initial": -1.0} if name in ("max", "min") else {}
    same(name, x, where=mask, **initial)
    same(name, x, axis=0, where=mask[:1], **initial)
    if name in ("max", "min"):
        same(name, x, where=mask)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("initial", [3, 2.5])
def test_initial(name, initial):
    same(name, numbers(np.float32), axis=0, initial=initial)
    same(name, numbers(np.int32), axis=0, initial=3)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", ["int32", "float32", "float16", "complex64", "int8"])
def test_dtype(name, dtype):
    same(name, numbers(np.int32, low=0, high=2), dtype=np.dtype(dtype), tolerance=2)
    same(name, numbers(np.float32, low=0, high=2), dtype=np.dtype(dtype), tolerance=2)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "all", "any", "argmax", "argmin"])
def test_empty_axes(name):
    same(name, np.zeros((0, 3), np.float32), axis=0)
    same(name, np.zeros((0, 3), np.float32), axis=1)
    same(name, np.zeros((0,), np.int32))


@pytest.mark.parametrize("name", ["sum", "mean", "max", "argmax", "cumsum"])
def test_scalars_and_weak_types(name):
    same(name, Weak(2.5), **({"axis": None} if name == "cumsum" else {}))
    same(name, 3) if name != "cumsum" else None
    same(name, np.float32(2))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "bfloat16", "float32"])
def test_positions(name, dtype):
    x = numbers(dtype_of(dtype), (4, 5), low=-2, high=2)
    for axis in (None, 0, 1, -1):
        same(name, x, axis=axis)
        same(name, x, axis=axis, keepdims=True)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_prefix_scans(name, dtype):
    x = numbers(dtype_of(dtype), (3, 4), low=-2, high=2)
    for axis in (0, 1):
        same(name, x, axis=axis, tolerance=4)
    if name in ("cumulative_sum", "cumulative_prod"):
        same(name, x, axis=1, include_initial=True, tolerance=4)
    else:
        same(name, x, tolerance=4)


def test_average():
    x, weights = numbers(np.float32), np.array([1, 2, 3, 4], np.float32)
    same("average", x)
    same("average", x, axis=1, weights=weights)
    same("average", x, axis=1, weights=weights, returned=True)
    same("average", x, weights=np.abs(x))
    same("average", x, weights=weights)


def test_double_precision():
    with precision(True):
        for dtype in (np.int64, np.float64, np.int8, np.uint8):
            for name in ("sum", "mean", "prod", "argmax", "cumsum"):
                same(name, numbers(dtype, low=0, high=3), axis=0)


@pytest.mark.parametrize("name", ["sum", "max", "mean", "argmax", "cumsum"])
def test_wrong_axes(name):
    same(name, numbers(np.float32), axis=2)
    same(name, numbers(np.float32), axis=-3)
    if name not in ("argmax", "cumsum"):
        same(name, numbers(np.float32), axis=(0, 0))


def test_a_mean_divides_by_a_literal():
    graph = stage(lambda x: [fnp.mean(x, 1)], [ArrayType((3, 4), np.dtype("float32"))])
    assert [e.primitive.name for e in graph.eqns] == ["reduce_sum", "div"]
    assert graph.eqns[1].invars[1].val == 4.0


def test_mean_of_halves_sums_in_single_precision():
    x = np.full(70000, 1.0, np.float16)
    assert float(fnp.mean(fnp.asarray(x))) == 1.0
    same("mean", x)


@pytest.mark.parametrize("name", NANS)
def test_a_mask_of_integers_is_refused_in_the_name_of_the_function(name):
    x, initial = fnp.ones(4), {"initial": 0} if name in ("nanmax", "nanmin") else {}
    for module in (jnp, fnp):
        with pytest.raises(ValueError, match=rf"jnp\.{name}: where must be None or a boolean array"):
            getattr(module, name)(np.asarray(x), where=np.ones(4, np.int32), **initial)


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_running_totals_of_scalars_are_refused(name):
    for module in (jnp, fnp):
        for options in ({}, {"axis": 0}):
            with pytest.raises(ValueError, match="The input must be non-scalar to take a cumulative"):
                getattr(module, name)(np.float32(1), **options)
