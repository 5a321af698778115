"""Options priced by simulation, with their sensitivities to the market as gradients through the simulation.

A European call (compared with Black and Scholes's formula), an Asian call on the mean over the path, and an up-and-in
barrier. The price is a function of (spot, volatility, rate); `value_and_grad` gives it with delta, vega and rho.

    python examples/option_pricing.py --paths 1000000 --days 64
"""

from __future__ import annotations

import argparse
import math
import time

import fuser
import fuser.numpy as jnp

STRIKE, YEARS, BARRIER = 100.0, 1.0, 120.0


def walk(key, market, paths, days):
    """Of each path: the last price, the mean price and the highest price, by one loop over the days."""
    spot, volatility, rate = market["spot"], market["volatility"], market["rate"]
    step = YEARS / days
    drift, spread = (rate - 0.5 * volatility**2) * step, volatility * math.sqrt(step)

    def day(number, state):
        log_price, total, highest = state
        shock = fuser.random.normal(fuser.random.fold_in(key, number), (paths,))
        log_price = log_price + drift + spread * shock
        return log_price, total + jnp.exp(log_price), jnp.maximum(highest, log_price)

    start = jnp.log(spot) + jnp.zeros(paths)
    log_price, total, highest = fuser.lax.fori_loop(0, days, day, (start, jnp.zeros(paths), start))
    return jnp.exp(log_price), total / days, jnp.exp(highest)


def european(last, mean, highest):
    """The right to buy at the strike."""
    return jnp.maximum(last - STRIKE, 0)


def asian(last, mean, highest):
    """The same right on the mean over the path."""
    return jnp.maximum(mean - STRIKE, 0)


def barrier(last, mean, highest, width=0.5):
    """The same right, which exists only once the price has been above the barrier.

    The knock-in is smoothed over `width`, since a jump has no useful gradient.
    """
    return fuser.nn.sigmoid((highest - BARRIER) / width) * jnp.maximum(last - STRIKE, 0)


def payoffs(key, market, payoff, paths, days):
    """What each path pays, discounted to today."""
    return jnp.exp(-market["rate"] * YEARS) * payoff(*walk(key, market, paths, days))


def price(key, market, payoff, paths, days):
    """The mean over paths, and its standard error."""
    paid = payoffs(key, market, payoff, paths, days)
    return paid.mean(), paid.std() / math.sqrt(paths)


def black_scholes(market):
    """Price, delta, vega and rho of the European call by formula."""
    spot, volatility, rate = (float(market[name]) for name in ("spot", "volatility", "rate"))
    normal = lambda x: 0.5 * math.erfc(-x / math.sqrt(2))
    root = volatility * math.sqrt(YEARS)
    d1 = (math.log(spot / STRIKE) + (rate + 0.5 * volatility**2) * YEARS) / root
    discounted = STRIKE * math.exp(-rate * YEARS)
    value = spot * normal(d1) - discounted * normal(d1 - root)
    vega = spot * math.sqrt(YEARS) * math.exp(-0.5 * d1 * d1) / math.sqrt(2 * math.pi)
    rho = discounted * YEARS * normal(d1 - root)
    return value, {"spot": normal(d1), "volatility": vega, "rate": rho}


def main(arguments=None):
    """Price the three; returns {name: (price, standard error, greeks)}."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--paths", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=64, help="steps of a path")
    options = parser.parse_args(arguments)
    market = {"spot": jnp.float32(100.0), "volatility": jnp.float32(0.25), "rate": jnp.float32(0.03)}
    key, results = fuser.random.key(7), {}
    for payoff in (european, asian, barrier):

        @fuser.jit
        def valued(key, market, payoff=payoff):
            run = lambda market: price(key, market, payoff, options.paths, options.days)
            return fuser.value_and_grad(run, has_aux=True)(market)

        valued(key, market)[0][0].block_until_ready()
        began = time.perf_counter()
        (value, error), greeks = valued(key, market)
        value, error, greeks = float(value), float(error), {name: float(g) for name, g in greeks.items()}
        seconds = time.perf_counter() - began
        results[payoff.__name__] = value, error, greeks
        print(
            f"{payoff.__name__}: {value:.4f} ± {error:.4f}; delta {greeks['spot']:.4f}, vega {greeks['volatility']:.3f}, "
            f"rho {greeks['rate']:.3f}; {options.paths:,} paths of {options.days} steps in {seconds * 1e3:.0f} ms"
        )
    value, greeks = black_scholes(market)
    print(
        f"Black-Scholes: {value:.4f}; delta {greeks['spot']:.4f}, vega {greeks['volatility']:.3f}, rho {greeks['rate']:.3f}"
    )
    return results


if __name__ == "__main__":
    main()
