"""Gradients of fuser.numpy, fuser.nn and fuser.scipy.special against JAX: at random points, ties, zeros and infinities.

Each row is a function of a namespace with `np`, `nn` and `special`, tried with the modules of fuser and of JAX, in 64 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.nn
import fuser.numpy
import fuser.scipy.special
from fuser.config import config

OURS = SimpleNamespace(np=fuser.numpy, nn=fuser.nn, special=fuser.scipy.special, lax=fuser.lax, grad=fuser.grad)
INF, NAN = np.inf, np.nan

# Where functions have kinks, poles and ties, and where exponentials overflow or vanish.
POINTS = np.array([-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0, 1e3, -1e3, INF, -INF, NAN])
FINITE = np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0])
INSIDE = np.array([-0.75, -0.25, 0.0, 0.25, 0.75])
POSITIVE = np.array([0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 1e3])
COMPLEX = np.array([0.5 + 0.25j, -1.5 + 2j, 2 - 1j, -0.25 - 0.75j, 1.0, 1j])


def random(low: float, high: float, count: int = 9) -> np.ndarray:
    return np.random.default_rng(0).uniform(low, high, count)


def pairs(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of points, ties among them."""
    x, y = np.meshgrid(points, points)
    return x.ravel(), y.ravel()


def _three() -> tuple[np.ndarray, ...]:
    """Bounds and values in every order, equal ones too; the lower bound is not above the upper one."""
    low, x, high = (g.ravel() for g in np.meshgrid(FINITE[::2], FINITE, FINITE[1::2]))
    return np.minimum(low, high), x, high


Row = tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]


def _unary(module: str, names: str, points: np.ndarray, low: float, high: float) -> Iterator[Row]:
    for name in names.split():
        function = functools.partial(_apply, module, name)
        yield f"{module}.{name}", function, (np.concatenate([points, random(low, high)]),)


def _binary(module: str, names: str, points: np.ndarray) -> Iterator[Row]:
    for name in names.split():
        yield f"{module}.{name}", functools.partial(_apply, module, name), pairs(np.append(points, [1.7, 0.3]))


def _apply(module: str, name: str, m: Any, *args: Any) -> Any:
    return getattr(getattr(m, module), name)(*args)


ELEMENTWISE: list[Row] = [
    *_unary(
        "np",
        "abs fabs negative positive sign floor ceil rint trunc exp exp2 expm1 sin cos sinh cosh tanh arctan arcsinh square "
        "reciprocal cbrt sinc i0 deg2rad rad2deg nan_to_num real imag conj angle tan modf frexp",
        POINTS,
        -3,
        3,
    ),
    *_unary("np", "log log2 log10 log1p sqrt", POINTS, 0.1, 3),
    *_unary("np", "arcsin arccos arctanh", POINTS, -0.9, 0.9),
    *_unary("np", "arccosh", POINTS, 1, 9),
    *_unary(
        "np",
        "abs negative exp exp2 expm1 log log2 log10 log1p sqrt square reciprocal sin cos tan sinh cosh tanh arcsin arccos "
        "arctan arcsinh arccosh arctanh real imag conj sinc rint",
        COMPLEX,
        1,
        1.5,
    ),
    *_unary(
        "nn",
        "relu relu6 softplus sparse_plus sparse_sigmoid soft_sign silu mish log_sigmoid elu leaky_relu hard_tanh celu selu "
        "gelu squareplus hard_sigmoid hard_silu sigmoid identity log1mexp",
        POINTS[:-1],
        -4,
        8,
    ),
    *_unary("special", "erf erfc expit i0 i1 i0e i1e ndtr log_ndtr entr", POINTS, -4, 4),
    *_unary("special", "erfinv", INSIDE, -0.99, 0.99),
    *_unary("special", "logit ndtri", np.array([0.0, 0.25, 0.5, 0.75, 1.0, -0.5, 1.5, 1e-3, 0.1353, 0.87]), 0, 1),
    *_unary("special", "gammaln gamma digamma factorial gammasgn", np.array([0.5, 1.0, 2.0, 3.0]), 0.1, 9),
    *_binary(
        "np",
        "add subtract multiply divide maximum minimum fmax fmin hypot logaddexp logaddexp2 copysign heaviside",
        POINTS[[0, 1, 2, 4, 5, 6, 8, 12, 13, 14]],
    ),
    *_binary("np", "power float_power arctan2 remainder fmod floor_divide mod divmod", FINITE),
    *_binary("special", "xlogy xlog1py rel_entr kl_div", FINITE),
    *_binary("special", "betaln beta gammainc gammaincc", np.array([0.5, 1.0, 2.0, 3.0, 12.0])),
]


def _case(label: str, function: Callable[..., Any], *args: Any) -> Row:
    return label, function, tuple(np.asarray(a) for a in args)


MATRIX = np.random.default_rng(1).uniform(-2, 2, (4, 5))
OTHER = np.random.default_rng(2).uniform(-2, 2, (4, 5))
VECTOR = np.random.default_rng(3).uniform(-2, 2, 7)
TIES = np.array([[1.0, 2.0, 2.0, 0.0], [3.0, 3.0, 3.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
ZEROS = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 4.0], [0.0, 0.0, 0.0]])
HOLES = np.array([[1.0, NAN, 2.0, 2.0], [NAN, NAN, 3.0, 0.5], [1.0, 2.0, 3.0, 4.0]])
LOGITS = np.array([[1.0, 2.0, 2.0, -INF], [1e3, -1e3, 0.0, 999.0], [0.0, 0.0, 0.0, 0.0]])
MASK = np.array([[True, False, True, True], [True, True, False, True], [False, True, True, True]])

REDUCTIONS: list[Row] = [
    *(
        _case(f"{name} of ties {axis}", lambda m, x, n=name, a=axis: getattr(m.np, n)(x, axis=a), TIES)
        for name in (
            "max",
            "min",
            "ptp",
            "sum",
            "mean",
            "prod",
            "var",
            "std",
            "median",
            "nanmax",
            "nanmin",
            "nanmedian",
        )
        for axis in (None, 0, 1)
    ),
    *(
        _case(f"{name} of a matrix", lambda m, x, n=name: getattr(m.np, n)(x, axis=1), MATRIX)
        for name in [
            "max",
            "min",
            "sum",
            "mean",
            "prod",
            "var",
            "std",
            "median",
            "cumsum",
            "cumprod",
            "nansum",
            "nanprod",
            "nanvar",
            "nanstd",
            "nancumsum",
            "sort",
        ]
    ),
    *(
        _case(f"{name} of zeros", lambda m, x, n=name: getattr(m.np, n)(x, axis=1), ZEROS)
        for name in ("prod", "cumprod", "nanprod", "nancumprod", "std", "var", "sort")
    ),
    *(
        _case(f"{name} of holes", lambda m, x, n=name: getattr(m.np, n)(x, axis=1), HOLES)
        for name in ("nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "nanmedian")
    ),
    *(
        _case(f"quantile {method}", lambda m, x, k=method: m.np.quantile(x, np.array([0.2, 0.5]), 1, method=k), MATRIX)
        for method in ("linear", "lower", "higher", "midpoint", "nearest")
    ),
    _case("percentile", lambda m, x: m.np.percentile(x, 30.0), VECTOR),
    _case("std ddof", lambda m, x: m.np.std(x, ddof=1), VECTOR),
    _case("var complex", lambda m, x: m.np.var(x), COMPLEX),
    _case("average", lambda m, x, w: m.np.average(x, axis=0, weights=w), MATRIX, np.abs(OTHER)),
    _case("sum where", lambda m, x: m.np.sum(x, 1, where=MASK), TIES),
    _case("max where", lambda m, x: m.np.max(x, 1, where=MASK, initial=0.0), TIES),
    _case("prod where", lambda m, x: m.np.prod(x, 1, where=MASK), TIES),
    _case("sort ties", lambda m, x: m.np.sort(x, 1), TIES),
    _case("partition", lambda m, x: m.np.sum(m.np.partition(x, 2)[:, :2], 1), MATRIX),
    _case("cov", lambda m, x: m.np.cov(x), MATRIX),
    _case("corrcoef", lambda m, x: m.np.corrcoef(x), MATRIX),
]

FUNCTIONS: list[Row] = [
    # Where: what is not chosen passes nothing, but nan times nothing is nan.
    _case("where sqrt", lambda m, x: m.np.where(x > 0, m.np.sqrt(x), 0.0), POINTS),
    _case("where guarded", lambda m, x: m.np.where(x > 0, m.np.sqrt(m.np.where(x > 0, x, 1.0)), 0.0), POINTS),
    _case("clip", lambda m, x: m.np.clip(x, -1.0, 2.0), POINTS),
    _case("clip by arrays", lambda m, x, a, b: m.np.clip(x, a, b), TIES, TIES - 1, TIES),
    _case("lax.clamp", lambda m, a, x, b: m.lax.clamp(a, x, b), *_three()),
    *(_case(f"x ** {n}", lambda m, x, n=n: x**n, FINITE) for n in (0, 1, 2, 3, -1, -2, 0.5, 2.0, -0.5)),
    *(_case(f"{n} ** x", lambda m, x, n=n: n**x, FINITE) for n in (0.0, 2.0, -1.0, 1)),
    _case("integer exponents", lambda m, x: m.np.power(x, np.arange(-3, 5)), FINITE),
    _case("ldexp", lambda m, x: m.np.ldexp(x, np.array([3, -2, 0, 1, 1, 2, 3, 4])), FINITE),
    _case("complex abs", lambda m, z: m.np.abs(z), np.append(COMPLEX, 0)),
    _case("complex sign", lambda m, z: m.np.sign(z), COMPLEX),
    _case("complex angle", lambda m, z: m.np.angle(z), COMPLEX),
    _case("complex power", lambda m, z, w: m.np.power(z, w), COMPLEX, COMPLEX[::-1].copy()),
    _case("complex logaddexp", lambda m, z, w: m.np.logaddexp(z, w), COMPLEX, COMPLEX[::-1].copy()),
    _case("complex logaddexp of ties", lambda m, z, w: m.np.logaddexp(z, w), COMPLEX, COMPLEX),
    _case("complex from real", lambda m, x: m.np.abs(x * (1 + 2j)) ** 2, FINITE),
    _case("astype", lambda m, x: x.astype("complex128") * 1j, FINITE),
    _case("select", lambda m, x: m.np.select([x > 1, x > 0], [x * x, m.np.exp(x)], -x), FINITE),
    _case("interp", lambda m, x, y: m.np.interp(x, np.arange(7.0), y), np.array([-1.0, 0.0, 2.5, 3.0, 9.0]), VECTOR),
    _case("gradient", lambda m, x: m.np.gradient(x), VECTOR),
    _case("diff", lambda m, x: m.np.diff(x, 2), VECTOR),
    _case("trapezoid", lambda m, x: m.np.trapezoid(x), VECTOR),
    _case("convolve", lambda m, x, y: m.np.convolve(x, y), VECTOR, VECTOR[:3]),
    _case("polyval", lambda m, c, x: m.np.polyval(c, x), VECTOR[:4], FINITE),
    _case("cross", lambda m, x, y: m.np.cross(x, y), MATRIX[:, :3], OTHER[:, :3]),
    _case("matmul", lambda m, x, y: m.np.matmul(x, y.T), MATRIX, OTHER),
    _case("einsum", lambda m, x, y: m.np.einsum("ij,ij,kj->ki", x, y, x), MATRIX, OTHER),
    _case("vdot", lambda m, x, y: m.np.vdot(x, y), COMPLEX, COMPLEX[::-1].copy()),
    _case("kron", lambda m, x, y: m.np.kron(x, y), MATRIX[:2, :2], OTHER[:2, :2]),
    *(
        _case(f"pad {mode}", lambda m, x, k=mode: m.np.pad(x, 2, k), MATRIX)
        for mode in ("constant", "edge", "reflect", "wrap", "symmetric", "mean", "maximum", "linear_ramp")
    ),
    _case("take", lambda m, x: m.np.take(x, np.array([1, 1, -1, 0]), 1), MATRIX),
    _case("take_along_axis", lambda m, x: m.np.take_along_axis(x, np.array([[1], [0], [3], [3]]), 1), MATRIX),
    _case("index", lambda m, x: x[::2, np.array([0, 0, 3])] * x[1, 1], MATRIX),
    _case("at set", lambda m, x, y: x.at[np.array([1, 3])].set(y[:2]), MATRIX, OTHER),
    _case("at add", lambda m, x, y: x.at[np.array([1, 1])].add(y[:2]), MATRIX, OTHER),
    _case("at max", lambda m, x, y: x.at[np.array([1, 2])].max(y[:2]), MATRIX, OTHER),
    _case("repeat", lambda m, x: m.np.repeat(x, 3, 0), MATRIX),
    _case("tile", lambda m, x: m.np.tile(x, (2, 3)), MATRIX),
    _case("roll", lambda m, x: m.np.roll(x, 2, 1), MATRIX),
    _case("stack", lambda m, x, y: m.np.stack([x, y, x], 1), MATRIX, OTHER),
    _case("tril", lambda m, x: m.np.tril(x, 1) @ m.np.diag(x[0]), MATRIX),
    _case("piecewise", lambda m, x: m.np.piecewise(x, [x < 0, x >= 1], [lambda v: v * v, 2.0, lambda v: v]), FINITE),
    *(
        _case(f"{name} {axis}", lambda m, x, n=name, a=axis: getattr(m.nn, n)(x, axis=a), array)
        for name in ("softmax", "log_softmax", "logmeanexp", "standardize")
        for axis in (0, 1)
        for array in (MATRIX, LOGITS)
    ),
    _case("softmax where", lambda m, x: m.nn.softmax(x, where=MASK), TIES),
    _case("log_softmax where", lambda m, x: m.np.where(MASK, m.nn.log_softmax(x, where=MASK), 0.0), TIES),
    _case("glu", lambda m, x: m.nn.glu(x, 0), MATRIX),
    _case("gelu exact", lambda m, x: m.nn.gelu(x, approximate=False), POINTS),
    *(
        _case(f"logsumexp {axis}", lambda m, x, a=axis: m.special.logsumexp(x, axis=a), array)
        for axis in (None, 0, 1)
        for array in (MATRIX, LOGITS, TIES)
    ),
    _case("logsumexp of -inf", lambda m, x: m.special.logsumexp(x), np.array([-INF, -INF])),
    _case("logsumexp of inf", lambda m, x: m.special.logsumexp(x), np.array([INF, 1.0])),
    _case("logsumexp b", lambda m, x, b: m.special.logsumexp(x, 1, b), MATRIX, np.abs(OTHER)),
    _case("logsumexp sign", lambda m, x, b: m.special.logsumexp(x, 1, b, return_sign=True), MATRIX, OTHER),
    _case("logsumexp where", lambda m, x: m.special.logsumexp(x, 1, where=MASK), TIES),
    _case("logsumexp complex", lambda m, x: m.special.logsumexp(x), COMPLEX),
    _case("poch", lambda m, z, n: m.special.poch(z, n), *pairs(np.array([0.0, 0.5, 1.0, 2.0, 3.5]) + 0.25)),
    _case("poch of 0", lambda m, z, n: m.special.poch(z, n), np.array([0.5, 2.0]), np.array([0.0, 0.0])),
    _case("betainc", lambda m, x: m.special.betainc(2.0, 3.0, x), np.array([0.1, 0.5, 0.9])),
    _case("polygamma", lambda m, x: m.special.polygamma(np.array([0, 1, 2]), x), np.array([0.5, 1.0, 2.5])),
    _case("zeta", lambda m, s, q: m.special.zeta(s, q), np.array([1.5, 2.0, 4.0]), np.array([0.5, 1.0, 3.0])),
]


def _gradient(function: Callable[..., Any], m: Any, *args: Any) -> Any:
    """The gradient of a function's results, weighted so that none cancels."""

    def scalar(x: Any) -> Any:
        out = function(m, x, *args[1:])
        return m.np.sum(out * m.np.cos(m.np.arange(out.size, dtype="float64")).reshape(out.shape))

    return m.grad(scalar)(args[0])


def _second(label: str, function: Callable[..., Any], *args: Any) -> Row:
    return _case(f"second {label}", functools.partial(_gradient, function), *args)


SECOND: list[Row] = [
    *(
        _second(f"{module}.{name}", functools.partial(_apply, module, name), VECTOR)
        for module, names in (
            ("np", "exp tanh sinc i0 square abs arctan cbrt cumsum cumprod sort"),
            ("np", "sum prod max min mean var std median"),
            ("nn", "relu silu gelu mish softplus elu celu log_sigmoid softmax log_softmax standardize"),
            ("special", "erf i1 i0e i1e ndtr log_ndtr logsumexp expit"),
        )
        for name in names.split()
    ),
    *(
        _second(f"np.{name}", functools.partial(_apply, "np", name), np.abs(VECTOR), np.abs(VECTOR[::-1]) + 0.1)
        for name in ("logaddexp", "logaddexp2", "hypot", "arctan2", "power", "divide", "remainder")
    ),
    *(
        _second(f"special.{name}", functools.partial(_apply, "special", name), np.abs(VECTOR) / 3 + 0.1)
        for name in ("entr", "gammaln", "digamma", "logit", "ndtri", "erfinv")
    ),
    *(
        _second(
            f"special.{name}", functools.partial(_apply, "special", name), np.abs(VECTOR) + 0.1, np.abs(VECTOR) + 0.3
        )
        for name in ("xlogy", "xlog1py", "rel_entr", "betaln")
    ),
    _second("sinc at 0", lambda m, x: m.np.sinc(x), np.array([0.0, 1e-3, 0.5])),
    _second("norm", lambda m, x: m.np.sqrt(m.np.sum(x * x)), VECTOR),
    _second("matmul", lambda m, x: m.np.tanh(x @ x.T), MATRIX),
]


@functools.cache
def theirs(index: int) -> list[np.ndarray]:
    return _all_of_jax()[index]


def cotangent(n: int, shape: tuple[int, ...], complex_: bool) -> np.ndarray:
    rng = np.random.default_rng(n)
    values = rng.uniform(0.5, 1.5, shape)
    return np.asarray(values + 1j * rng.uniform(0.5, 1.5, shape) if complex_ else values)


@functools.cache
def _all_of_jax() -> list[list[np.ndarray]]:
    """JAX's gradients of all rows, compiled as one program."""
    import jax

    namespace = SimpleNamespace(np=jax.numpy, nn=jax.nn, special=jax.scipy.special, lax=jax.lax, grad=jax.grad)

    def one(row: Row) -> Any:
        _, function, args = row
        results, pull = jax.vjp(functools.partial(function, namespace), *map(jax.numpy.asarray, args))
        given = [
            jax.numpy.asarray(cotangent(n, r.shape, r.dtype.kind == "c"))
            if r.dtype.kind in "fc"
            else np.zeros(r.shape, jax.dtypes.float0)
            for n, r in enumerate(jax.tree.leaves(results))
        ]
        return pull(jax.tree.unflatten(jax.tree.structure(results), given))

    with jax.enable_x64(True):
        found = jax.jit(lambda: [one(row) for row in ROWS])()
    return [[np.asarray(g) for g in gradients] for gradients in found]


def ours(row: Row) -> list[np.ndarray]:
    """The gradients with respect to each argument, of all results weighted by the cotangents that JAX is given."""
    _, function, args = row
    results, pull = fuser.vjp(functools.partial(function, OURS), *map(fuser.numpy.asarray, args))
    leaves, structure = fuser.tree.flatten(results)
    given = [
        fuser.numpy.asarray(cotangent(n, r.shape, r.dtype.kind == "c"))
        if r.dtype.kind in "fc"
        else np.zeros(r.shape, [("float0", np.void, 0)])
        for n, r in enumerate(leaves)
    ]
    return [np.asarray(g) for g in pull(fuser.tree.unflatten(structure, given))]


ROWS: list[Row] = [*ELEMENTWISE, *REDUCTIONS, *FUNCTIONS, *SECOND]
# Where JAX's own values are less exact.
LOOSER = {"special.betaln": 1e-6, "second special.betaln": 1e-6, "special.beta": 1e-5}


@pytest.mark.parametrize("index", range(len(ROWS)), ids=[f"{n}-{row[0]}" for n, row in enumerate(ROWS)])
def test_gradients_agree_with_jax(index: int) -> None:
    label, _, args = ROWS[index]
    with config.using(enable_x64=True):
        found = ours(ROWS[index])
    for number, (x, y) in enumerate(zip(found, theirs(index), strict=True)):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        bad = ~np.isclose(x, y, rtol=LOOSER.get(label, 1e-9), atol=1e-9, equal_nan=True)
        if x.dtype.kind == "c":  # in which direction a complex number is infinite, and where nan, is chance
            bad &= np.isfinite(x) | np.isfinite(y)
        if bad.any():
            places = [np.asarray(a)[bad][:12] if a.shape == bad.shape else a for a in args]
            pytest.fail(f"{label}, argument {number}, at {places}: {x[bad][:12]}, JAX {y[bad][:12]}")
