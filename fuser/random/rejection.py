"""Distributions by loops that draw until a number is accepted: gamma and what is made of it, Poisson and binomial.

Algorithms and the splitting of keys are those of JAX, so that the same key gives the same numbers up to rounding.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from fuser import dtypes, lax
from fuser import numpy as fnp
from fuser.ir.types import is_integer
from fuser.lax.values import as_value, broadcast_to, promote_inexact
from fuser.lax.values import convert as converted
from fuser.nn import softmax
from fuser.random.continuous import exponential, standard
from fuser.random.discrete import _arraylike
from fuser.random.keys import castable, check_shape, common_shape, float_dtype, shape_of, split_key, typed
from fuser.random.uniform import draw, rademacher

# Gamma.


def _gamma_one(key: Any, alpha: Any, log_space: bool) -> Any:
    """One number of the gamma distribution, or its logarithm.

    Marsaglia and Tsang, "A simple method for generating gamma variables" (2000). For alpha < 1 it is a number for
    alpha + 1 times a uniform one to the power 1 / alpha.
    """
    dtype = alpha.dtype
    one, third = dtype.type(1), dtype.type(1.0 / 3.0)
    large = alpha >= one
    raised = lax.select(large, alpha, alpha + one)
    d = raised - third
    c = third / lax.sqrt(d)

    def going_on(state: Any) -> Any:
        *_, too_low, x, v, u = state
        squeeze = u >= one - dtype.type(0.0331) * (x * x)
        return too_low | (squeeze & (lax.log(u) >= x * dtype.type(0.5) + d * ((one - v) + lax.log(v))))

    def step(state: Any) -> Any:
        """One normal number; where the one before was too low, under the key that goes on from it."""
        key, x_key, u_key, too_low, *_ = state
        fresh = split_key(key, 3)
        key, x_key, u_key = (lax.select(too_low, k, fresh[n]) for n, k in enumerate((key, x_key, u_key)))
        again = split_key(x_key)
        x = standard(again[1], (), dtype)
        v = one + x * c
        return key, again[0], u_key, v <= 0, x * x, (v * v) * v, draw(u_key, (), dtype)

    pair = split_key(key)
    start = (pair[0], pair[0], pair[0], False, dtype.type(0), one, dtype.type(2))  # is not accepted
    v = lax.while_loop(going_on, step, start)[5]
    if log_space:
        drawn = -exponential(pair[1], (), dtype)
        boost = lax.select(large | (drawn == 0), fnp.zeros_like(drawn), drawn * (one / alpha))
        return (lax.log(d) + lax.log(v)) + boost
    drawn = 1 - draw(pair[1], (), dtype)
    return (d * v) * lax.select(large, fnp.ones_like(drawn), lax.pow(drawn, one / alpha))


def _three(key: Any) -> tuple[Any, Any, Any]:
    keys = split_key(key, 3)
    return keys[0], keys[1], keys[2]


def _gamma(name: str, key: Any, a: Any, shape: Any, dtype: Any, log_space: bool) -> Any:
    key, _ = typed(name, key)
    found = float_dtype(name, dtype)
    whole = common_shape("gamma", shape, a)
    return sample_gamma(key, broadcast_to(converted(as_value(a, name), found), whole), log_space)


def sample_gamma(key: Any, a: Any, log_space: bool = False) -> Any:
    """A number of the gamma distribution for each parameter, each with a key of its own."""
    keys = split_key(key, (math.prod(a.shape),))
    return fnp.reshape(_sampler(log_space)(keys, fnp.ravel(a)), a.shape)


@functools.cache
def _sampler(log_space: bool) -> Any:
    """A function of keys and parameters; its derivative is that of the inverse distribution function."""
    from fuser.transforms.custom_jvp import custom_jvp
    from fuser.transforms.vmap import vmap

    def random_gamma(keys: Any, a: Any) -> Any:
        return vmap(lambda key, alpha: _gamma_one(key, alpha, log_space))(keys, a)

    def derivative(t: Any, sample: Any, keys: Any, a: Any) -> Any:
        if not log_space:
            return t * lax.random_gamma_grad(a, sample)
        sample = lax.exp(sample)
        sample = fnp.where(sample == 0, dtypes.finfo(sample.dtype).tiny, sample)
        return t * (lax.random_gamma_grad(a, sample) / sample)

    sampler = custom_jvp(random_gamma)
    sampler.defjvps(None, derivative)
    return sampler


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of a density proportional to x^(a - 1)·exp(-x), x ≥ 0."""
    return _gamma("gamma", key, a, shape, dtype, False)


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Logarithms of the numbers that `gamma` gives, precise where those are tiny."""
    return _gamma("loggamma", key, a, shape, dtype, True)


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers in [0, 1] of a density proportional to x^(a - 1)·(1 - x)^(b - 1)."""
    key, _ = typed("beta", key)
    found = float_dtype("beta", dtype)
    castable("beta", found, a, b)
    whole = common_shape("beta", shape, a, b)
    a, b = (broadcast_to(converted(as_value(v, "beta"), found), whole) for v in (a, b))
    keys = split_key(key)
    log_a, log_b = sample_gamma(keys[0], a, True), sample_gamma(keys[1], b, True)
    largest = lax.max(log_a, log_b)
    part_a, part_b = lax.exp(log_a - largest), lax.exp(log_b - largest)
    return part_a / (part_a + part_b)


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Vectors with elements ≥ 0 that add up to 1, of a density proportional to Π x[i]^(alpha[i] - 1)."""
    key, _ = typed("dirichlet", key)
    found = float_dtype("dirichlet", dtype)
    if np.ndim(alpha) < 1:
        raise ValueError(f"dirichlet requires alpha.ndim >= 1, got alpha.ndim == {np.ndim(alpha)}")
    batch = tuple(np.shape(alpha)[:-1]) if shape is None else shape_of(shape)
    check_shape("dirichlet", batch, tuple(np.shape(alpha)[:-1]))
    whole = (*batch, np.shape(alpha)[-1])
    return softmax(sample_gamma(key, broadcast_to(converted(as_value(alpha), found), whole), True), -1)


def t(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Student's t numbers with `df` degrees of freedom."""
    key, whole, found, df = _degrees("t", key, shape, dtype, df)
    keys = split_key(key)
    normal = standard(keys[0], whole, found)
    half = df / found.type(2)
    return normal * lax.sqrt(half / sample_gamma(keys[1], broadcast_to(half, whole)))


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Sums of squares of `df` normal numbers."""
    key, whole, _, df = _degrees("chisquare", key, shape, dtype, df)
    return _chisquare(key, broadcast_to(df, whole))


def _chisquare(key: Any, df: Any) -> Any:
    two = df.dtype.type(2)
    return lax.exp(sample_gamma(key, df / two, True)) * two


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Quotients of two chi-square numbers, each divided by its degrees of freedom."""
    key, whole, _, dfnum, dfden = _degrees("f", key, shape, dtype, dfnum, dfden)
    keys = split_key(key)
    dfnum, dfden = broadcast_to(dfnum, whole), broadcast_to(dfden, whole)
    return (_chisquare(keys[1], dfnum) / dfnum) / (_chisquare(keys[0], dfden) / dfden)


def _degrees(name: str, key: Any, shape: Any, dtype: Any, *degrees: Any) -> Any:
    key, _ = typed(name, key)
    found = float_dtype(name, dtype)
    whole = common_shape(name, shape, *degrees)
    castable(name, found, *degrees)
    return key, whole, found, *(converted(as_value(d, name), found) for d in degrees)


def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of a density proportional to exp(-|x|^p)."""
    key, _ = typed("generalized_normal", key)
    return _generalized(key, p, shape_of(shape), float_dtype("generalized_normal", dtype))


def _generalized(key: Any, p: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    keys = split_key(key)
    size = gamma(keys[0], 1 / p, shape, dtype)
    return rademacher(keys[1], shape, dtype) * size ** (1 / p)


def ball(key: Any, d: int, p: Any = 2, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Points in the unit ball of the p-norm in `d` dimensions, all parts of it equally likely."""
    key, _ = typed("ball", key)
    found, shape = float_dtype("ball", dtype), shape_of(shape)
    keys = split_key(key)
    g = _generalized(keys[0], p, (*shape, d), found)
    e = exponential(keys[1], shape, found)
    return g / ((fnp.abs(g) ** p).sum(-1) + e)[..., None] ** (1 / p)


# Poisson.


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """How many events happen where `lam` are expected, int32 by default."""
    key, _ = typed("poisson", key)
    found = dtypes.requested(int if dtype is None else dtype, "poisson")
    whole = tuple(np.shape(lam)) if shape is None else shape_of(shape)
    lam = converted(broadcast_to(as_value(lam, "poisson"), whole), np.dtype("float32"))
    most = found.type(dtypes.iinfo(found).max) if is_integer(found) else found.type(dtypes.finfo(found).max)
    knuth = (lam != lam) | (lam < 10)
    small = _poisson_knuth(key, fnp.where(knuth, lam, 0), whole, found, most)
    large = _poisson_rejection(key, fnp.where(knuth, 1e5, lam), whole, found, most)
    return fnp.where(lam == 0, found.type(0), fnp.where(knuth, small, large))


def _poisson_knuth(key: Any, lam: Any, shape: tuple[int, ...], dtype: np.dtype, most: Any) -> Any:
    """Uniform numbers are multiplied until the product falls below exp(-lam)."""

    def going_on(state: Any) -> Any:
        return (state[3] > -lam).any() & (state[0] < most)

    def step(state: Any) -> Any:
        i, k, key, log_product = state
        keys = split_key(key)
        k = fnp.where(log_product > -lam, k + 1, k)
        return i + 1, k, keys[0], log_product + lax.log(draw(keys[1], shape, np.dtype("float32")))

    start = (0, fnp.zeros(shape, dtype), key, fnp.zeros(shape, np.float32))
    return (lax.while_loop(going_on, step, start)[1] - 1).astype(dtype)


def _poisson_rejection(key: Any, lam: Any, shape: tuple[int, ...], dtype: np.dtype, most: Any) -> Any:
    """Transformed rejection: Hörmann, "The transformed rejection method for generating Poisson random variables" (1993)."""
    log_lam = lax.log(lam)
    b = 0.931 + 2.53 * lax.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def step(state: Any) -> Any:
        i, out, accepted, key = state
        key, u_key, v_key = _three(key)
        u = draw(u_key, shape, lam.dtype) - 0.5
        v = draw(v_key, shape, lam.dtype)
        shifted = 0.5 - fnp.abs(u)
        k = lax.floor((2 * a / shifted + b) * u + lam + 0.43)
        s = lax.log(v * inverse_alpha / (a / (shifted * shifted) + b))
        at_once = (shifted >= 0.07) & (v <= v_r)
        never = (k < 0) | ((shifted < 0.013) & (v > shifted))
        accept = at_once | (~never & (s <= -lam + k * log_lam - lax.lgamma(k + 1)))
        return i + 1, fnp.where(accept, k, out), accepted | accept, key

    return _until_accepted(step, shape, lam.dtype, key, most).astype(dtype)


def _until_accepted(step: Any, shape: tuple[int, ...], dtype: np.dtype, key: Any, most: Any) -> Any:
    """What `step` has accepted everywhere; its state counts steps, and holds numbers, which are accepted, and the key."""

    def going_on(state: Any) -> Any:
        return (~state[2]).any() & (state[0] < most)

    start = (0, fnp.full(shape, -1, dtype), fnp.zeros(shape, bool), key)
    return lax.while_loop(going_on, step, start)[1]


# Binomial.


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """How many of `n` trials of probability `p` succeed, as floats; nan where n < 0 or p is no probability."""
    key, _ = typed("binomial", key)
    _arraylike("binomial", n)
    _arraylike("binomial", p)
    found = float_dtype("binomial", dtype)
    whole = common_shape("binomial", shape, n, p)
    (p,) = promote_inexact("binomial", p)
    count = broadcast_to(converted(as_value(n), p.dtype), whole)
    p = broadcast_to(p, whole)
    small = p < 0.5
    q = fnp.where(small, p, 1.0 - p)
    no_count, infinite = (count != count) | (count < 0), fnp.isinf(count)
    no_number, negative = q != q, q < 0
    q = fnp.where(no_number | negative, 0.01, q)
    inversion = no_count | (count * q <= 10.0)
    count = lax.floor(count)
    most = found.type(dtypes.finfo(found).max)
    few = _binomial_inversion(key, fnp.where(inversion, count, 0.0), q, whole, found, most)
    many = _binomial_rejection(key, fnp.where(inversion, 1e4, count), fnp.where(inversion, 0.5, q), whole, found, most)
    samples = fnp.where(inversion, few, many)
    invalid = negative | no_number | no_count
    samples = fnp.where(invalid, found.type(np.nan), samples)
    samples = fnp.where(infinite & ~invalid, found.type(np.inf), samples)
    return fnp.where(small | no_count | no_number | infinite, samples, count.astype(found) - samples)


def _binomial_inversion(key: Any, count: Any, p: Any, shape: tuple[int, ...], dtype: np.dtype, most: Any) -> Any:
    """Geometric numbers are added until they exceed the number of trials."""
    log_rest = lax.log1p(-p)

    def going_on(state: Any) -> Any:
        return (state[2] <= count).any() & (state[0] < most)

    def step(state: Any) -> Any:
        i, number, total, key = state
        keys = split_key(key)
        number = fnp.where(total <= count, number + 1, number)
        trials = lax.ceil(lax.log(draw(keys[0], shape, p.dtype)) / log_rest)
        return i + 1, number, total + trials, keys[1]

    start = (0, fnp.zeros(shape, p.dtype), fnp.zeros(shape, p.dtype), key)
    return (lax.while_loop(going_on, step, start)[1] - 1).astype(dtype)


def _binomial_rejection(key: Any, count: Any, p: Any, shape: tuple[int, ...], dtype: np.dtype, most: Any) -> Any:
    """Transformed rejection: Hörmann, "The generation of binomial random variates" (1993), algorithm BTRS."""
    deviation = lax.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = count * p + 0.5
    v_r = 0.92 - 4.2 / b
    r = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    m = lax.floor((count + 1) * p)

    def step(state: Any) -> Any:
        i, out, accepted, key = state
        key, u_key, v_key = _three(key)
        u, v = draw(u_key, shape, p.dtype), draw(v_key, shape, p.dtype)
        u = u - 0.5
        us = 0.5 - fnp.abs(u)
        at_once = (us >= 0.07) & (v <= v_r)
        k = lax.floor((2 * a / us + b) * u + c)
        never = (k < 0) | (k > count)
        v = lax.log(v * alpha / (a / (us * us) + b))
        bound = (
            (m + 0.5) * lax.log((m + 1) / (r * (count - m + 1)))
            + (count + 1) * lax.log((count - m + 1) / (count - k + 1))
            + (k + 0.5) * lax.log(r * (count - k + 1) / (k + 1))
            + _stirling_tail(m)
            + _stirling_tail(count - m)
            - _stirling_tail(k)
            - _stirling_tail(count - k)
        )
        accept = at_once | (~never & (v <= bound))
        return i + 1, fnp.where(accept, k, out), accepted | accept, key

    return _until_accepted(step, shape, p.dtype, key, most).astype(dtype)


_STIRLING = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def _stirling_tail(k: Any) -> Any:
    """log k! less Stirling's formula."""
    known = k <= 9
    k = lax.clamp(k.dtype.type(0), k, k.dtype.type(9))
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    value = fnp.asarray(np.array(_STIRLING, k.dtype))[lax.floor(k).astype(np.int32)]
    return fnp.where(known, value, series)


def multinomial(key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: int | bool = 1) -> Any:
    """How often each outcome along the last axis of `p` comes up in `n` trials."""
    key, _ = typed("multinomial", key)
    _arraylike("multinomial", n)
    _arraylike("multinomial", p)
    n, p = promote_inexact("multinomial", n, p)
    whole = p.shape if shape is None else shape_of(shape)
    n, p = broadcast_to(n, whole[:-1]), broadcast_to(p, whole)
    p = fnp.moveaxis(p, -1, 0)
    left = lax.cumsum(p, 0, reverse=True)
    ratios = p / fnp.where(left == 0, 1, left)

    def step(rest: Any, ratio_and_key: Any) -> Any:
        ratio, own = ratio_and_key
        count = binomial(own, rest, fnp.clip(ratio, 0, 1), dtype=rest.dtype)
        return rest - count, count

    _, counts = lax.scan(step, n, (ratios, split_key(key, ratios.shape[0])), unroll=unroll)
    counts = fnp.moveaxis(counts, 0, -1)
    return counts if dtype is None else counts.astype(dtypes.requested(dtype, "multinomial"))
