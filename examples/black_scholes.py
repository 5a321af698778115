"""Prices and sensitivities of 10 million European options by the Black-Scholes formula, in NumPy and accelerated.

python examples/black_scholes.py --size 10000000
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import fuser


def normal_cdf(x):
    """The cumulative normal distribution, error below 7.5e-8: Abramowitz and Stegun, formula 26.2.17."""
    t = 1 / (1 + 0.2316419 * np.abs(x))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-0.5 * x * x) * (1 / np.sqrt(2 * np.pi)) * series
    return np.where(x >= 0, 1 - tail, tail)


def black_scholes(spot, strike, years, rate, volatility):
    """Price of call and put, and the call's delta and vega."""
    root = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / root
    d2 = d1 - root
    discounted = strike * np.exp(-rate * years)
    delta = normal_cdf(d1)
    call = spot * delta - discounted * normal_cdf(d2)
    vega = spot * np.sqrt(years) * np.exp(-0.5 * d1 * d1) * (1 / np.sqrt(2 * np.pi))
    return {"call": call, "put": call - spot + discounted, "delta": delta, "vega": vega}


def market(size):
    """Random spots, strikes, terms and volatilities."""
    rng = np.random.default_rng(0)
    return (
        rng.uniform(10, 50, size),
        rng.uniform(10, 50, size),
        rng.uniform(0.2, 2, size),
        0.02,
        rng.uniform(0.1, 0.6, size),
    )


def best_of(function, arguments, rounds):
    """The shortest of several runs, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)


def main(arguments=None):
    """Price with both, compare, time; returns the largest absolute difference."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=10_000_000, help="number of options")
    parser.add_argument("--rounds", type=int, default=3, help="timed runs of each")
    options = parser.parse_args(arguments)
    inputs = market(options.size)
    fast = fuser.accelerate(black_scholes)
    found, wanted = fast(*inputs), black_scholes(*inputs)
    difference = max(float(np.abs(found[name] - wanted[name]).max()) for name in wanted)
    assert difference < 1e-9, f"the accelerated prices differ from NumPy's by {difference}"
    parity = float(np.abs(found["call"] - found["put"] - inputs[0] + inputs[1] * np.exp(-0.02 * inputs[2])).max())
    numpy_time, fuser_time = best_of(black_scholes, inputs, options.rounds), best_of(fast, inputs, options.rounds)
    kernels = len(fast.lower(*inputs).plan.groups)
    print(f"{options.size:,} options: NumPy {numpy_time * 1e3:.1f} ms, accelerated {fuser_time * 1e3:.1f} ms")
    print(
        f"{numpy_time / fuser_time:.1f} times as fast, in {kernels} kernel{'s' * (kernels != 1)}; results differ by at most {difference:.1e}"
    )
    print(
        f"mean call {found['call'].mean():.4f}, mean put {found['put'].mean():.4f}; put-call parity holds within {parity:.1e}"
    )
    return difference


if __name__ == "__main__":
    main()
