"""Elementwise workloads over one or a few long vectors: polynomial, transcendental chain, Black-Scholes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import VECTOR, Workload

RATE, VOLATILITY = 0.02, 0.30


def _two_vectors(random: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return random.uniform(-2.0, 2.0, n), random.uniform(-2.0, 2.0, n)


def polynomial(np: Any, x: Any, y: Any) -> Any:
    return 0.5 * x * x * x + 2.0 * x * x * y - 3.0 * x * y * y + y * y * y + 1.5 * x - y + 0.25


def _polynomial_numba() -> Callable[..., Any]:
    import numba

    @numba.njit(parallel=True)
    def run(x, y):  # type: ignore[no-untyped-def]
        out = np.empty_like(x)
        for i in numba.prange(x.size):
            a, b = x[i], y[i]
            out[i] = (
                np.float32(0.5) * a * a * a
                + np.float32(2.0) * a * a * b
                - np.float32(3.0) * a * b * b
                + b * b * b
                + np.float32(1.5) * a
                - b
                + np.float32(0.25)
            )
        return out

    return run


def _polynomial_numexpr(evaluate: Callable[..., Any], x: Any, y: Any) -> Any:
    expression = "half*x*x*x + two*x*x*y - three*x*y*y + y*y*y + more*x - y + quarter"
    return evaluate(expression, x=x, y=y, half=0.5, two=2.0, three=3.0, more=1.5, quarter=0.25)


def chain(np: Any, x: Any) -> Any:
    return np.log(2.0 + np.sin(np.sqrt(1.0 + np.exp(np.tanh(x)))))


def _chain_numba() -> Callable[..., Any]:
    import numba

    @numba.njit(parallel=True)
    def run(x):  # type: ignore[no-untyped-def]
        out = np.empty_like(x)
        one, two = np.float32(1.0), np.float32(2.0)
        for i in numba.prange(x.size):
            out[i] = math.log(two + math.sin(math.sqrt(one + math.exp(math.tanh(x[i])))))
        return out

    return run


def _chain_numexpr(evaluate: Callable[..., Any], x: Any) -> Any:
    return evaluate("log(two + sin(sqrt(one + exp(tanh(x)))))", x=x, one=1.0, two=2.0)


def _options(random: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    return random.uniform(5.0, 30.0, n), random.uniform(1.0, 100.0, n), random.uniform(0.25, 10.0, n)


def cumulative_normal(np: Any, d: Any) -> Any:
    """Abramowitz and Stegun, formula 26.2.17; error below 7.5e-8."""
    k = 1.0 / (1.0 + 0.2316419 * np.abs(d))
    series = k * (0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    tail = 0.3989422804014327 * np.exp(-0.5 * d * d) * series
    return np.where(d > 0.0, 1.0 - tail, tail)


def black_scholes(np: Any, spot: Any, strike: Any, years: Any) -> Any:
    spread = VOLATILITY * np.sqrt(years)
    d1 = (np.log(spot / strike) + (RATE + 0.5 * VOLATILITY * VOLATILITY) * years) / spread
    d2 = d1 - spread
    n1, n2 = cumulative_normal(np, d1), cumulative_normal(np, d2)
    discounted = strike * np.exp(-RATE * years)
    call = spot * n1 - discounted * n2
    put = discounted * (1.0 - n2) - spot * (1.0 - n1)
    return call, put


def _black_scholes_numba() -> Callable[..., Any]:
    import numba

    f32 = np.float32
    a1, a2, a3, a4, a5 = (f32(a) for a in (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429))
    slope, root, half, one = f32(0.2316419), f32(0.3989422804014327), f32(0.5), f32(1.0)
    rate, volatility, drift = f32(RATE), f32(VOLATILITY), f32(RATE + 0.5 * VOLATILITY * VOLATILITY)

    @numba.njit
    def normal(d):  # type: ignore[no-untyped-def]
        k = one / (one + slope * abs(d))
        tail = root * math.exp(-half * d * d) * (k * (a1 + k * (a2 + k * (a3 + k * (a4 + k * a5)))))
        return one - tail if d > 0 else tail

    @numba.njit(parallel=True)
    def run(spot, strike, years):  # type: ignore[no-untyped-def]
        call, put = np.empty_like(spot), np.empty_like(spot)
        for i in numba.prange(spot.size):
            spread = volatility * math.sqrt(years[i])
            d1 = (math.log(spot[i] / strike[i]) + drift * years[i]) / spread
            n1, n2 = normal(d1), normal(d1 - spread)
            discounted = strike[i] * math.exp(-rate * years[i])
            call[i] = spot[i] * n1 - discounted * n2
            put[i] = discounted * (one - n2) - spot[i] * (one - n1)
        return call, put

    return run


def _black_scholes_numexpr(evaluate: Callable[..., Any], spot: Any, strike: Any, years: Any) -> Any:
    """Three passes, as numexpr has one output: d1, then a call and a put that repeat the common terms."""
    half = {"volatility": VOLATILITY, "one": 1.0, "drift": RATE + 0.5 * VOLATILITY * VOLATILITY, "rate": RATE}
    d1 = evaluate("(log(s / x) + drift * t) / (volatility * sqrt(t))", s=spot, x=strike, t=years, **half)
    coefficients = {
        "p": 0.2316419,
        "a": 0.319381530,
        "b": -0.356563782,
        "c": 1.781477937,
        "d": -1.821255978,
        "e": 1.330274429,
        "r": 0.3989422804,
        "h": 0.5,
    }

    def normal(argument: Any) -> Any:
        k = f"(one / (one + p * abs({argument})))"
        tail = f"(r * exp(-h * {argument} * {argument}) * {k}*(a + {k}*(b + {k}*(c + {k}*(d + {k}*e)))))"
        return f"where({argument} > zero, one - {tail}, {tail})"

    n1 = evaluate(normal("d1"), d1=d1, one=1.0, zero=0.0, **coefficients)
    n2 = evaluate(normal("(d1 - v * sqrt(t))"), d1=d1, t=years, v=VOLATILITY, one=1.0, zero=0.0, **coefficients)
    both = {"s": spot, "x": strike, "t": years, "n1": n1, "n2": n2, "rate": RATE}
    call = evaluate("s * n1 - x * exp(-rate * t) * n2", **both)
    put = evaluate("x * exp(-rate * t) * (one - n2) - s * (one - n1)", one=1.0, **both)
    return call, put


WORKLOADS = (
    Workload(
        "polynomial",
        "a cubic polynomial of two arrays",
        VECTOR,
        _two_vectors,
        polynomial,
        flops=lambda n: 17 * n,
        numba=_polynomial_numba,
        numexpr=_polynomial_numexpr,
        rows=2,
        floor=10.0,
    ),
    Workload(
        "chain",
        "tanh, exp, sqrt, sin and log, one after the other",
        VECTOR,
        lambda random, n: (random.standard_normal(n) * 2.0,),
        chain,
        flops=lambda n: 7 * n,
        numba=_chain_numba,
        numexpr=_chain_numexpr,
        rows=1,
    ),
    Workload(
        "black_scholes",
        "prices of calls and puts",
        VECTOR,
        _options,
        black_scholes,
        flops=lambda n: 58 * n,
        numba=_black_scholes_numba,
        numexpr=_black_scholes_numexpr,
        rows=3,
        floor=10.0,
        slack=2.0,
    ),
)
