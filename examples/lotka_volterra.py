"""Predators and prey (Lotka and Volterra) from 100,000 starting points at once, by Runge and Kutta's fourth-order method.

The whole integration is one `fori_loop`; it becomes one kernel with the loop inside, in which each core follows its own
starting points in registers. Along every orbit a quantity is conserved, and how well it is says how right the result is.

    python examples/lotka_volterra.py --size 100000 --steps 1000
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import fuser
import fuser.numpy as jnp

BIRTH, EATEN, GROWTH, DEATH = 1.1, 0.4, 0.1, 0.4


def rates(prey, predators):
    """How fast both populations change."""
    return BIRTH * prey - EATEN * prey * predators, GROWTH * prey * predators - DEATH * predators


def runge_kutta(step, prey, predators):
    """Both populations one time step later."""
    a1, b1 = rates(prey, predators)
    a2, b2 = rates(prey + 0.5 * step * a1, predators + 0.5 * step * b1)
    a3, b3 = rates(prey + 0.5 * step * a2, predators + 0.5 * step * b2)
    a4, b4 = rates(prey + step * a3, predators + step * b3)
    return prey + step / 6 * (a1 + 2 * a2 + 2 * a3 + a4), predators + step / 6 * (b1 + 2 * b2 + 2 * b3 + b4)


def conserved(prey, predators):
    """The quantity that is constant along an orbit."""
    return GROWTH * prey - DEATH * jnp.log(prey) + EATEN * predators - BIRTH * jnp.log(predators)


def ensemble(years, steps):
    """A jitted function from starting points to the populations after so many years."""

    @fuser.jit
    def run(prey, predators):
        step = years / steps
        return fuser.lax.fori_loop(0, steps, lambda _, state: runge_kutta(step, *state), (prey, predators))

    return run


def starting_points(size):
    rng = np.random.default_rng(0)
    return rng.uniform(2, 12, size).astype(np.float32), rng.uniform(0.5, 5, size).astype(np.float32)


def main(arguments=None):
    """Integrate, time, and check; returns the largest drift of the conserved quantity."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=100_000, help="number of starting points")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--years", type=float, default=20.0)
    options = parser.parse_args(arguments)
    prey, predators = (jnp.asarray(each) for each in starting_points(options.size))
    run = ensemble(options.years, options.steps)
    plan = run.lower(prey, predators).plan
    run(prey, predators)[0].block_until_ready()
    began = time.perf_counter()
    last = run(prey, predators)
    last[0].block_until_ready()
    seconds = time.perf_counter() - began
    before, after = (np.asarray(conserved(*state)) for state in ((prey, predators), last))
    drift = float(np.abs(after - before).max())
    print(
        f"{options.size:,} starting points, {options.steps} steps: {seconds * 1e3:.1f} ms in {len(plan.groups)} "
        f"kernel{'s' * (len(plan.groups) != 1)}; {options.size * options.steps / seconds / 1e6:.0f} million steps a second"
    )
    print(
        f"the conserved quantity drifts by at most {drift:.1e}; at the end there are between "
        f"{float(last[0].min()):.2f} and {float(last[0].max()):.2f} prey"
    )
    return drift


if __name__ == "__main__":
    main()
