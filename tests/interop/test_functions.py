"""NumPy's functions, operators and methods under `accelerate` against NumPy: values, dtypes, and types of scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy import linalg, mean
from numpy.linalg import norm

import fuser
from fuser.interop.numpy.traced import TracedArray
from fuser.interop.numpy.ufuncs import SHORT_POWERS
from tests.interop.oracle import agree

REALS = ("float32", "float64")
NUMBERS = ("int32", "int64", "uint8", *REALS)
ALL = ("bool", "int8", *NUMBERS, "float16", "complex64", "complex128")
rng = np.random.default_rng(0)


def sample(dtype: str, shape: tuple[int, ...] = (4, 5), low: float = -4, high: float = 5) -> np.ndarray:
    """Values within a small range, so that integers do not overflow where it would not be the point."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith("complex"):
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype)
    if dtype.startswith("u"):
        low = max(low, 0)
    return rng.uniform(low, high, shape).astype(dtype)


UNARY: dict[str, tuple[tuple[str, ...], tuple[float, float]]] = {
    **dict.fromkeys(("negative", "absolute", "square", "sign", "conjugate", "positive"), (NUMBERS, (-4, 5))),
    **dict.fromkeys(
        ("exp", "exp2", "expm1", "sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh", "arcsinh", "cbrt"),
        (NUMBERS, (-4, 5)),
    ),
    **dict.fromkeys(("log", "log2", "log10", "log1p", "sqrt", "reciprocal"), (NUMBERS, (1, 9))),
    **dict.fromkeys(("arcsin", "arccos", "arctanh"), (REALS, (-0.9, 0.9))),
    "arccosh": (REALS, (1, 5)),
    **dict.fromkeys(
        ("floor", "ceil", "trunc", "rint", "fabs", "isnan", "isinf", "isfinite", "signbit", "deg2rad", "rad2deg"),
        (NUMBERS, (-4, 5)),
    ),
    **dict.fromkeys(("logical_not",), (ALL, (-2, 2))),
    "invert": (("bool", "int8", "int64", "uint8"), (-4, 5)),
    "spacing": ((), (0, 1)),
}


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary_ufuncs(name: str) -> None:
    dtypes, (low, high) = UNARY[name]
    for dtype in dtypes:
        agree(getattr(np, name), sample(dtype, low=low, high=high))


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize(
    "name", ("add", "subtract", "multiply", "true_divide", "maximum", "equal", "less", "logical_and", "power")
)
def test_binary_ufuncs_promote_as_numpy_does(name: str, dtype: str) -> None:
    ufunc = getattr(np, name)
    for other in ALL:
        x, y = sample(dtype, low=1), sample(other, (5,), low=1, high=3)
        try:
            with np.errstate(all="ignore"):
                ufunc(x, y)
        except TypeError:
            with pytest.raises(TypeError):
                agree(lambda a, b: ufunc(a, b), x, y)
            continue
        except ValueError:
            continue  # integers to negative powers
        agree(ufunc, x, y)


@pytest.mark.parametrize(
    "name",
    (
        "floor_divide",
        "remainder",
        "fmod",
        "arctan2",
        "hypot",
        "fmin",
        "fmax",
        "copysign",
        "logaddexp",
        "heaviside",
        "float_power",
        "nextafter",
    ),
)
def test_real_binary_ufuncs(name: str) -> None:
    for dtype in NUMBERS:
        agree(getattr(np, name), sample(dtype, low=1), sample(dtype, low=1))


@pytest.mark.parametrize("dtype", ("int8", "int32", "int64", "uint8", "uint64", "float32", "float64"))
def test_division_and_remainder_have_numpys_signs_and_zeros(dtype: str) -> None:
    values = (
        np.array([-7, -6, -1, 0, 1, 6, 7], dtype)
        if not dtype.startswith("u")
        else np.array([0, 1, 6, 7, 9, 2, 3], dtype)
    )
    x, y = (np.ascontiguousarray(v) for v in np.meshgrid(values, values))
    for function in (lambda a, b: a // b, lambda a, b: a % b, lambda a, b: np.fmod(a, b), lambda a, b: divmod(a, b)):
        agree(function, x, y)


@pytest.mark.parametrize("dtype", ("bool", "int8", "int32", "uint8", "uint64"))
def test_bits(dtype: str) -> None:
    x, y = sample(dtype, low=0, high=100), sample(dtype, low=0, high=100)
    agree(lambda a, b: (a & b, a | b, a ^ b, ~a), x, y)
    if dtype != "bool":
        agree(lambda a, b: (a << (b % 4), a >> (b % 4)), x, y)


@pytest.mark.parametrize("dtype", ("int8", "uint8", "int64", "float16", "float32", "float64", "complex64"))
@pytest.mark.parametrize(
    "number", (2, 3.0, True, np.float32(3), np.float64(3), np.int64(3)), ids=lambda n: f"{type(n).__name__}{n}"
)
def test_scalars_promote_as_nep_50_says(dtype: str, number: Any) -> None:
    agree(lambda x: (x + number, number - x, x * number, number / (x + 10), x**number), sample(dtype, low=0))
    agree(lambda x, n: (x + n, n - x, x * n), sample(dtype, low=0), number)


def test_python_ints_must_fit() -> None:
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for uint8"):
        agree(lambda x: x + 300, sample("uint8"))
    agree(lambda x: (x < 300, x == 300, x > -1, x > 1000), sample("uint8"))


def test_python_numbers_stay_python_numbers() -> None:
    agree(lambda x, a, b: (x * (a + b), x.astype("f4") * (a * 2), -a), sample("float64"), 1.5, 2.5)


REDUCTIONS = (
    "sum",
    "prod",
    "max",
    "min",
    "mean",
    "std",
    "var",
    "all",
    "any",
    "argmax",
    "argmin",
    "ptp",
    "count_nonzero",
    "median",
)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize(
    "dtype", ("bool", "int8", "int32", "uint8", "uint64", "float16", "float32", "float64", "complex128")
)
def test_reductions(name: str, dtype: str) -> None:
    function = getattr(np, name)
    x = sample(dtype, (3, 4, 5), low=0.5, high=2)
    axes: tuple[Any, ...] = (None, 0, -1) if name in ("argmax", "argmin") else (None, 0, -1, (0, 2))
    if name in ("ptp", "median") and dtype in ("bool", "complex128"):
        return
    if dtype == "complex128" and name in ("argmax", "argmin"):
        return
    for axis in axes:
        for keepdims in (False, True):
            agree(lambda a, axis=axis, keepdims=keepdims: function(a, axis=axis, keepdims=keepdims), x)


def test_reduction_options() -> None:
    x, mask = sample("float32"), sample("bool")
    agree(
        lambda a: (
            a.sum(dtype=np.float64),
            a.sum(0, initial=3),
            a.max(initial=2),
            a.std(ddof=1),
            a.var(axis=1, ddof=1),
        ),
        x,
    )
    agree(
        lambda a, m: (
            a.sum(where=m),
            a.mean(axis=0, where=m | (a > 0)),
            a.max(where=m, initial=-9),
            np.any(a > 0, where=m),
        ),
        x,
        mask,
    )
    agree(lambda a: (a.mean(dtype="f8"), a.sum(axis=(0, 1)), np.add.reduce(a), np.maximum.reduce(a, axis=1)), x)
    agree(
        lambda a: (
            np.average(a),
            np.average(a, axis=0, weights=a[:, 0] ** 2),
            np.linalg.norm(a),
            np.linalg.norm(a, axis=1),
        ),
        x,
    )


@pytest.mark.parametrize("name", ("nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanstd", "nanvar", "nanargmax"))
def test_reductions_without_nan(name: str) -> None:
    for dtype in ("float32", "float64", "int32"):
        x = sample(dtype)
        if dtype != "int32":
            x[1, 2] = np.nan
        agree(lambda a: (getattr(np, name)(a), getattr(np, name)(a, axis=1)), x)


def test_prefix_scans() -> None:
    for dtype in ("bool", "int8", "uint8", "float32", "float64", "complex64"):
        agree(
            lambda a: (np.cumsum(a), a.cumsum(axis=0), np.cumprod(a, axis=1), np.add.accumulate(a, axis=1)),
            sample(dtype, low=1, high=2),
        )
    agree(lambda a: (np.maximum.accumulate(a), np.minimum.accumulate(a, axis=1)), sample("float64"))


def test_order_statistics_and_sorting() -> None:
    x = sample("float32")
    agree(lambda a: (np.sort(a), np.sort(a, axis=0), a.argsort(), np.median(a, axis=1)), x)
    agree(
        lambda a: (np.percentile(a, 30), np.quantile(a, [0.1, 0.5], axis=0), np.percentile(a.astype("i4"), 50)),
        x,
        tolerance=1e-5,
    )
    agree(lambda a: np.searchsorted(np.array([-1.0, 0.0, 2.0]), a), x)
    agree(lambda a: np.digitize(a, [-1.0, 0.0, 2.0]), x)


@pytest.mark.parametrize("bins", [[-1.0, 0.0, 0.0, 2.0], [0.5], [2.0, 0.0, -1.0], [0.0, np.nan], [0.0, np.inf]])
def test_digitize_with_bins_of_the_callers(bins: list[float]) -> None:
    x, edges = np.append(sample("float64").ravel(), [0.0, np.nan, 2.0]), np.array(bins)
    for right in (False, True):
        agree(lambda a, b, right=right: np.digitize(a, b, right), x, edges, backend="c")
    traced = fuser.accelerate(np.digitize, fallback="error")
    traced(x, edges)
    assert "compiled whole" in traced.explain()


def test_digitize_with_bins_in_no_order_is_numpys_error() -> None:
    with pytest.raises(ValueError, match="monotonically"):
        fuser.accelerate(lambda a, b: np.digitize(a, b) + 1)(np.ones(3), np.array([1.0, 0.0, 2.0]))


MOVEMENT: dict[str, Callable[..., Any]] = {
    "transpose": lambda a: (
        a.T,
        a.transpose(2, 0, 1),
        np.transpose(a, (1, 0, 2)),
        a.swapaxes(0, 1),
        np.moveaxis(a, 0, -1),
    ),
    "reshape": lambda a: (
        a.reshape(-1),
        a.reshape(2, -1),
        a.ravel(),
        a.flatten(),
        a.reshape((4, 3, 2)),
        a.reshape(6, 4, order="F"),
    ),
    "squeeze": lambda a: (np.expand_dims(a, 1).squeeze(1), a[None], np.squeeze(a[:1]), np.atleast_3d(a[0, 0])),
    "join": lambda a: (
        np.concatenate([a, a], axis=1),
        np.stack([a[0], a[1]]),
        np.vstack([a[0], a[1]]),
        np.hstack([a[0], a[1]]),
    ),
    "split": lambda a: (np.split(a, 2), np.array_split(a, 3, axis=2), np.hsplit(a, [1, 2])),
    "flip": lambda a: (
        np.flip(a),
        a[::-1],
        np.flip(a, (0, 2)),
        np.fliplr(a),
        np.flipud(a),
        np.rot90(a),
        np.rot90(a, 3, (1, 2)),
    ),
    "repeat": lambda a: (
        np.tile(a, 2),
        np.tile(a, (2, 1, 3)),
        np.repeat(a, 2, axis=1),
        np.repeat(a, 3),
        np.resize(a, (3, 3)),
    ),
    "roll": lambda a: (np.roll(a, 1), np.roll(a, -2, axis=2), np.roll(a, (1, 2), axis=(0, 1))),
    "broadcast": lambda a: (np.broadcast_to(a[0, 0], (3, 4)), *np.broadcast_arrays(a[:1], a)),
    "pad": lambda a: (
        np.pad(a, 1),
        np.pad(a, ((0, 0), (1, 2), (2, 1)), mode="edge"),
        np.pad(a, 1, mode="reflect"),
        np.pad(a, 1, mode="wrap"),
    ),
    "index": lambda a: (
        a[0],
        a[1, 2, 3],
        a[..., 1],
        a[:, ::2],
        a[0, [2, 0, 1]],
        a[:, np.array([1, 0])],
        a[1:, None, 0],
        a[-1, -2:],
    ),
    "mask": lambda a: (a[:, np.array([True, False, True])], a[np.array([False, True])]),
    "diagonal": lambda a: (np.diagonal(a[0]), np.trace(a[0]), np.diag(a[0, 0]), np.tril(a), np.triu(a, 1)),
    "take": lambda a: (np.take(a, 3), np.take(a, [0, 2], axis=1), np.take_along_axis(a, np.argsort(a, axis=2), axis=2)),
    "iterate": lambda a: [row.sum() for plane in a for row in plane],
    "attributes": lambda a: (
        a.shape,
        a.ndim,
        a.size,
        len(a),
        a.dtype,
        a.itemsize,
        a.nbytes,
        np.shape(a),
        np.size(a, 1),
    ),
    "like": lambda a: (
        np.zeros_like(a),
        np.ones_like(a, dtype=int),
        np.full_like(a, 3),
        np.zeros_like(a, shape=(2,)),
        a.copy(),
    ),
    "append": lambda a: (np.append(a, a[0, 0]), np.delete(a, 1, axis=1), np.insert(a, 1, 7, axis=2)),
}


@pytest.mark.parametrize("name", sorted(MOVEMENT))
def test_movement(name: str) -> None:
    for dtype in ("float32", "int64", "bool"):
        if name == "diagonal" and dtype == "bool":
            continue
        agree(MOVEMENT[name], sample(dtype, (2, 3, 4)))


OTHERS: dict[str, Callable[..., Any]] = {
    "where": lambda a: (
        np.where(a > 0, a, 0),
        np.where(a > 0, 1, -1),
        np.where(a > 0, a, np.float64(2)),
        np.where(a[0] > 0, a, a.T[0, 0]),
    ),
    "clip": lambda a: (np.clip(a, 0, 2), a.clip(1), np.clip(a, None, 2.5), a.clip(max=3)),
    "round": lambda a: (np.round(a), a.round(1), np.around(a * 100, -1), np.fix(a)),
    "diff": lambda a: (np.diff(a), np.diff(a, n=2, axis=0), np.ediff1d(a), np.diff(a, prepend=0)),
    "gradient": lambda a: (np.gradient(a, axis=0), *np.gradient(a), type(np.gradient(a)) is tuple),
    "integrate": lambda a: (
        np.trapezoid(a, axis=0),
        np.trapezoid(a, dx=0.5),
        np.interp(a, [0.0, 1.0, 3.0], [2.0, 5.0, 1.0]),
    ),
    "close": lambda a: (np.isclose(a, 0), np.allclose(a, a), np.nan_to_num(a), np.sinc(a)),
    "select": lambda a: np.select([a > 2, a > 0], [a, a * 10], default=-1),
    "convolve": lambda a: (
        np.convolve(a[0], [1, 2, 1]),
        np.convolve(a[0], a[1], "same"),
        np.correlate(a[0], np.array([0.5, 1]), "valid"),
    ),
    "polyval": lambda a: np.polyval([1.0, -2.0, 3.0], a),
    "isin": lambda a: np.isin(a.astype(int), [1, 2]),
    "cov": lambda a: (np.cov(a), np.corrcoef(a)),
    "array": lambda a: (
        np.array([a.sum(), a.max(), 1.0]),
        np.array([a[0], a[1]]),
        np.asarray(a),
        np.asarray([a[0, 0], 2]),
    ),
    "meshgrid": lambda a: np.meshgrid(a[0], a[:, 0], indexing="ij")[0] + np.arange(5)[:, None],
    "linspace": lambda a: np.linspace(a.min(), a.max(), 7),
    "outer": lambda a: (np.add.outer(a[0], a[1]), np.outer(a[0], a[1]), np.multiply.outer(a[:, 0], a[0])),
    "complex": lambda a: (
        a.real,
        a.imag,
        (a + 2j).real,
        (a * 1j).imag,
        np.abs(a + 1j),
        np.angle(a + 1j),
        np.conj(a + 1j),
    ),
    "histogram": lambda a: np.histogram(a, bins=5, range=(-4.0, 5.0)),
}


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_other_functions(name: str) -> None:
    for dtype in REALS:
        agree(OTHERS[name], sample(dtype), tolerance=2e-5 if dtype == "float32" else 1e-11)


def test_products() -> None:
    for dtype in ("int32", "float32", "float64", "complex128"):
        a, b, v = sample(dtype, (3, 4)), sample(dtype, (4, 5)), sample(dtype, (4,))
        agree(
            lambda a, b, v: (a @ b, a @ v, v @ b, v @ v, a.dot(b), np.dot(v, v), np.matmul(a, b)),
            a,
            b,
            v,
            tolerance=1e-4,
        )
        agree(
            lambda a, b, v: (
                np.einsum("ij,jk->ik", a, b),
                np.einsum("ij,j", a, v),
                np.tensordot(a, b, 1),
                np.inner(a, v),
            ),
            a,
            b,
            v,
            tolerance=1e-4,
        )
        agree(lambda a, b, v: (np.vdot(v, v), np.kron(a, v), np.einsum("ii->i", b[:, :4])), a, b, v, tolerance=1e-4)
    agree(lambda a, b: a @ b, sample("float32", (2, 3, 4)), sample("float64", (4, 3)))
    agree(lambda a, b: np.cross(a, b), sample("float64", (5, 3)), sample("float64", (5, 3)))


def test_ufunc_dtype_and_out() -> None:
    def in_place(x: np.ndarray) -> tuple[Any, ...]:
        total = np.zeros_like(x)
        np.multiply(x, 2, out=total)
        np.add(total, 1, out=total, where=x > 0)
        ratio = np.divide(1.0, x, out=np.zeros_like(x), where=x != 0)
        return total, ratio, np.add(x, x, dtype=np.float64)

    agree(in_place, np.array([[1.0, 0.0, -2.0]], np.float32))


def test_ufunc_at() -> None:
    def counts(x: np.ndarray) -> np.ndarray:
        total = np.zeros(5)
        np.add.at(total, np.array([0, 1, 1, 4]), x)
        return total

    agree(counts, sample("float64", (4,)))


def test_astype_converts_as_numpy_does() -> None:
    x = np.array([0.0, 1.7, -1.7, 200.9, 255.0])
    agree(lambda a: tuple(a.astype(d) for d in ("f4", "i8", "i4", "i2", bool, "c16", np.float16)), x)
    agree(lambda a: a.astype(np.uint8), np.abs(x))
    agree(lambda a: (a.astype(np.uint8), a.astype("i1")), np.array([300, -1, 5]))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 61, reason="long doubles hold no sum of such products")
@pytest.mark.parametrize("extents", [(500, 3, 3), (500, 2, 4), (500, 4, 3)])
def test_small_products_add_in_order(extents: tuple[int, int, int]) -> None:
    """As BLAS does: a chain of fused multiply-adds; bytes times doubles, so that a long double holds each step."""
    rows, depth, columns = extents
    random = np.random.default_rng(3)
    pixels, weights = random.integers(0, 256, (rows, depth)).astype(float), random.random((depth, columns))
    wanted = np.zeros((rows, columns))
    for k in range(depth):
        exact = pixels[:, k, None].astype(np.longdouble) * weights[k] + wanted
        wanted = exact.astype(float)
    found = fuser.accelerate(lambda a, b: a @ b, backend="c", measure=False)(pixels, weights)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", sorted(SHORT_POWERS))
def test_short_powers_within_three_eps_and_numpys_at_the_ends(dtype: type, exponent: float) -> None:
    info = np.finfo(dtype)
    most = 0.99 * np.log(float(info.max))
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, info.tiny, info.smallest_subnormal, info.max, -3.5]
    x = np.concatenate([np.exp(np.linspace(-most, most, 3001)), -np.linspace(0.1, 9, 50), ends]).astype(dtype)
    with np.errstate(all="ignore"):
        found, wanted = fuser.accelerate(lambda x: x**exponent, measure=False)(x), x**exponent
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
    normal = np.isfinite(wanted) & (np.abs(wanted) >= info.tiny)
    np.testing.assert_allclose(found[normal], wanted[normal], rtol=4 * float(info.eps))
    np.testing.assert_allclose(found[~normal], wanted[~normal], rtol=0, atol=4 * float(info.smallest_subnormal))


def test_half_powers_bring_no_infinities_of_their_own() -> None:
    """What is computed with them need not be told apart from infinities that belong there."""

    def pulls(x: np.ndarray) -> np.ndarray:
        return 1.0 / (x * x + 1.0) ** 1.5

    graph = fuser.accelerate(pulls, measure=False).trace(np.ones(10)).graph
    assert not any(eqn.primitive.name == "ne" for eqn in graph.eqns)  # nans are told apart from infinities


OF_LISTS: dict[str, Callable[[np.ndarray], Any]] = {
    "a norm": lambda x: np.linalg.norm([x[0], x[1]]),
    "a system": lambda x: np.linalg.solve([[x[0], x[1]], [2.0, x[2]]], [x[0], 1.0]),
    "a determinant": lambda x: np.linalg.det([[x[0], x[1]], [2.0, x[2]]]),
    "a transform": lambda x: np.fft.fft([x[0], x[1], 0.0]),
    "a ufunc": lambda x: np.sqrt([x[0], x[1]]),
    "a ufunc's method": lambda x: np.maximum.reduce([x[0], x[1], x[2]]),
    "by name": lambda x: np.sum(a=[x[0], x[1]]),
    "a choice": lambda x: np.where(x[:2] > 1, [x[0], x[1]], 0.0),
    "rows of one value": lambda x: np.full((2, 2), [x[0], x[1]]) + np.full_like(x[:2], [x[1], x[2]]),
    "a grid": lambda x: np.meshgrid([x[0], x[1]], [1.0, 2.0])[0],
    "a sequence of arrays": lambda x: np.concatenate([x, x[:1]]),
    "a choice among arrays": lambda x: np.select([x > 1, x > 2], [x, x * 2], 0.0),
    "imported by name": lambda x: norm([x[0], x[1]]) + mean([x[0], x[1]]),
    "in a submodule's name": lambda x: linalg.det([[x[0], x[1]], [2.0, x[2]]]),
}


@pytest.mark.parametrize("name", OF_LISTS)
def test_lists_of_traced_values_are_arrays_for_every_function(name: str) -> None:
    function, x = OF_LISTS[name], np.array([1.5, 2.0, 4.0])
    fuser.accelerate(function, measure=False).trace(x)  # as one program
    agree(function, x)


def test_methods_are_those_of_numpys_arrays() -> None:
    """`x.ptp()` is an error where this NumPy's arrays have no such method."""
    assert hasattr(TracedArray, "ptp") == hasattr(np.ndarray, "ptp")


def test_tuples_of_indices_and_of_results_are_no_arrays():
    def counted(table, rows, columns, values):
        np.add.at(table, (rows, columns), values)
        np.maximum.at(table, (rows[:2], columns[1]), [values[0], 2 * values[1]])
        quotient, remainder = np.empty_like(values), np.empty_like(values)
        np.divmod(values, 0.3, out=(quotient, remainder))
        return table.sum(axis=1), quotient, remainder

    rng = np.random.default_rng(0)
    arguments = rng.random((3, 3)), rng.integers(0, 3, 50), rng.integers(0, 3, 50), rng.random(50)
    ours, theirs = ([a.copy() for a in arguments] for _ in range(2))
    accelerated = fuser.accelerate(counted, fallback="error")
    for _ in range(2):
        for found, wanted in zip(accelerated(*ours), counted(*theirs), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-14)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-14)


FUNCTIONS = {np.sum: 1.0, np.mean: 2.0, np.exp: 3.0}


@pytest.mark.parametrize("given", [(), (np.mean,), (np.sum,), (np.exp,)])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, f=np.mean: f(x) * 2 if f is np.mean else f(x),
        lambda x, f=np.exp: x * FUNCTIONS[f] if f != np.sum else x - FUNCTIONS[np.mean],
        lambda x, f=np.exp: x * 2 if isinstance(f, np.ufunc) and f.nin == 1 else f(x) - 1,
    ],
)
def test_functions_of_numpys_are_told_apart(function: Any, given: tuple[Any, ...]) -> None:
    """By identity, as keys and by type, whether they are named, defaults or arguments: something stands for them in a trace."""
    x = np.random.default_rng(0).random(7)
    accelerated = fuser.accelerate(function, measure=False)
    for _ in range(2):
        np.testing.assert_allclose(accelerated(x, *given), function(x, *given), rtol=1e-14)
    assert "compiled whole" in accelerated.explain()
