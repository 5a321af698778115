"""Bayesian linear regression on scikit-learn's diabetes data by Hamiltonian Monte Carlo (Neal, 2011), against the formula.

The log density is an ordinary function, its gradient comes from `grad`, the leapfrog steps are a `fori_loop`, the chain is a
`scan`, several chains are a `vmap`, and all of it is one `jit`.

    python examples/hamiltonian_monte_carlo.py --draws 1000 --chains 4
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.datasets import load_diabetes

import fuser
import fuser.numpy as jnp

PRIOR_SCALE, NOISE = 1.0, 0.7  # standard deviations: of the weights before the data, of the target given the weights


def regression(size):
    """Ten standardised features (and a one for the intercept) of 442 patients, and the standardised target."""
    data = load_diabetes()
    x = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    y = (data.target - data.target.mean()) / data.target.std()
    x = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    return x[:size].astype(np.float32), y[:size].astype(np.float32), ["intercept", *data.feature_names]


def log_density(weights, x, y):
    """The log of the posterior density of the weights, up to a constant."""
    residuals = y - x @ weights
    return -0.5 * (residuals**2).sum() / NOISE**2 - 0.5 * (weights**2).sum() / PRIOR_SCALE**2


def exact_posterior(x, y):
    """Mean and standard deviation of each weight by the formula for normal distributions."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    covariance = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(x.shape[1]) / PRIOR_SCALE**2)
    return covariance @ x.T @ y / NOISE**2, np.sqrt(np.diag(covariance))


def leapfrog(density, position, momentum, step, steps):
    """The trajectory's end: position, momentum."""
    gradient = fuser.grad(density)

    def move(_, state):
        position, momentum = state
        momentum = momentum + 0.5 * step * gradient(position)
        position = position + step * momentum
        return position, momentum + 0.5 * step * gradient(position)

    return fuser.lax.fori_loop(0, steps, move, (position, momentum))


def chain(key, density, start, draws, step, steps):
    """Draws from the density, and of each the probability with which it was accepted."""

    def draw(position, key):
        kick, coin = fuser.random.split(key)
        momentum = fuser.random.normal(kick, position.shape)
        moved, turned = leapfrog(density, position, momentum, step, steps)
        energy = lambda position, momentum: density(position) - 0.5 * (momentum**2).sum()
        chance = jnp.exp(jnp.minimum(energy(moved, turned) - energy(position, momentum), 0))
        position = jnp.where(fuser.random.uniform(coin) < chance, moved, position)
        return position, (position, chance)

    return fuser.lax.scan(draw, start, fuser.random.split(key, draws))[1]


def sampler(x, y, draws, step, steps):
    """A jitted function from one key a chain to draws (chain, draw, weight) and chances (chain, draw)."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    density = lambda weights: log_density(weights, x, y)
    one = lambda key: chain(key, density, jnp.zeros(x.shape[1]), draws, step, steps)
    return fuser.jit(fuser.vmap(one))


def spread_between_chains(draws):
    """Gelman and Rubin's statistic of each weight: near 1 when the chains agree."""
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    between = draws.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt((draws.shape[1] - 1) / draws.shape[1] + between / within)


def main(arguments=None):
    """Sample, compare with the formula; returns (largest error of a mean in posterior deviations, mean acceptance)."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=442, help="number of patients, at most 442")
    parser.add_argument("--draws", type=int, default=1000, help="of each chain, a quarter of them to settle down")
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--step", type=float, default=0.02, help="length of a leapfrog step")
    parser.add_argument("--steps", type=int, default=48, help="leapfrog steps a draw")
    options = parser.parse_args(arguments)
    x, y, names = regression(options.size)
    run = sampler(x, y, options.draws, options.step, options.steps)
    keys = fuser.random.split(fuser.random.key(5), options.chains)
    run(keys)[0].block_until_ready()
    began = time.perf_counter()
    draws, chances = (np.asarray(each) for each in run(keys))
    seconds = time.perf_counter() - began
    settled = draws[:, options.draws // 4 :].astype(np.float64)
    mean, deviation = exact_posterior(x, y)
    found, acceptance = settled.mean(axis=(0, 1)), float(chances.mean())
    for name, *row in zip(names, found, settled.std(axis=(0, 1)), mean, deviation):
        print("{:>9}: {:+.3f} ± {:.3f}, by the formula {:+.3f} ± {:.3f}".format(name, *row))
    worst = float(np.abs((found - mean) / deviation).max())
    print(
        f"{options.chains} chains of {options.draws} draws in {seconds:.2f} s; accepted {acceptance:.0%}; the means are within "
        f"{worst:.2f} posterior deviations, and the chains agree within {spread_between_chains(settled).max():.3f}"
    )
    return worst, acceptance


if __name__ == "__main__":
    main()
