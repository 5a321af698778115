"""BlackJAX: NUTS on a hierarchical model with window adaptation, HMC, and effective sample sizes."""

import blackjax
import jax
import jax.numpy as jnp

Y = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SIGMA = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def _logdensity(p):
    prior = jax.scipy.stats.norm.logpdf(p["mu"], 0, 5) + jax.scipy.stats.norm.logpdf(p["log_tau"], 0, 1)
    theta = p["mu"] + jnp.exp(p["log_tau"]) * p["eta"]
    return prior + jax.scipy.stats.norm.logpdf(p["eta"]).sum() + jax.scipy.stats.norm.logpdf(Y, theta, SIGMA).sum()


START = {"mu": jnp.array(1.0), "log_tau": jnp.array(0.0), "eta": jnp.zeros(8)}


def _chain(step, state, key, count):
    @jax.jit
    def run(state, key):
        def one(state, key):
            state, info = step(key, state)
            return state, (state.position, info.acceptance_rate)

        return jax.lax.scan(one, state, jax.random.split(key, count))[1]

    return run(state, key)


def nuts():
    sampler = blackjax.nuts(_logdensity, step_size=0.3, inverse_mass_matrix=jnp.ones(10), max_num_doublings=5)
    return _chain(sampler.step, sampler.init(START), jax.random.key(0), 5)


def hmc():
    sampler = blackjax.hmc(_logdensity, 0.2, jnp.ones(10), 4)
    positions, rates = _chain(sampler.step, sampler.init(START), jax.random.key(1), 20)
    draws = positions["mu"].reshape(2, 10)
    return positions, rates, blackjax.ess(draws, 0, 1), blackjax.rhat(draws, 0, 1)


def random_walk():
    sampler = blackjax.additive_step_random_walk(_logdensity, blackjax.mcmc.random_walk.normal(jnp.ones(10) * 0.2))
    return _chain(sampler.step, sampler.init(START), jax.random.key(2), 20)[0]
