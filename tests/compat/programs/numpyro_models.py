"""NumPyro: NUTS on a regression, variational inference, and what distributions say of values."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

X = jnp.linspace(-1, 1, 20)
Y = 0.5 + 2 * X


def _model(x, y=None):
    a = numpyro.sample("a", dist.Normal(0, 1))
    b = numpyro.sample("b", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(a + b * x, sigma + 0.1), obs=y)


def nuts():
    sampler = MCMC(NUTS(_model, max_tree_depth=4), num_warmup=10, num_samples=5, progress_bar=False)
    sampler.run(jax.random.PRNGKey(0), X, Y)
    return sampler.get_samples()


def variational():
    guide = AutoNormal(_model)
    svi = SVI(_model, guide, numpyro.optim.Adam(0.05), Trace_ELBO())
    result = svi.run(jax.random.PRNGKey(1), 15, X, Y, progress_bar=False)
    return result.params, result.losses


def predictive():
    return Predictive(_model, num_samples=3)(jax.random.PRNGKey(2), X)["y"]


def densities():
    value = jnp.array([0.2, 0.7])
    chosen = [
        dist.Beta(2.0, 3.0), dist.Gamma(2.0, 1.5), dist.StudentT(3.0), dist.LogNormal(0.0, 1.0), dist.Uniform(0.0, 1.0),
        dist.TruncatedNormal(0.0, 1.0, low=0.0), dist.Gumbel(), dist.Cauchy(), dist.Exponential(2.0), dist.Weibull(1.0, 2.0),
    ]  # fmt: skip
    return [d.log_prob(value) for d in chosen], [d.sample(jax.random.PRNGKey(3), (2,)) for d in chosen]
