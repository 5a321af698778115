"""distrax and TensorFlow Probability: a normalising flow trained, variational inference, a chain of states, log-determinants."""

import distrax
import jax
import jax.numpy as jnp
import optax
from tensorflow_probability.substrates import jax as tfp


def _data(n=128):
    x = jax.random.normal(jax.random.key(0), (n, 2))
    return jnp.stack([x[:, 0], 0.5 * x[:, 1] + x[:, 0] ** 2], -1)


def _conditioner(params):
    def apply(x):
        h = jnp.tanh(x @ params["w1"] + params["b1"])
        return (h @ params["w2"] + params["b2"]).reshape(*x.shape, 2)

    return apply


def _flow(params):
    def affine(p):
        return distrax.ScalarAffine(p[..., 0], log_scale=jnp.tanh(p[..., 1]))

    layers = [distrax.MaskedCoupling(jnp.arange(2) % 2 == n % 2, _conditioner(p), affine) for n, p in enumerate(params)]
    base = distrax.Independent(distrax.Normal(jnp.zeros(2), jnp.ones(2)), 1)
    return distrax.Transformed(base, distrax.Inverse(distrax.Chain(layers)))


def flow():
    keys = jax.random.split(jax.random.key(1), 4)
    params = [
        {
            "w1": jax.random.normal(k, (2, 8)) * 0.5, "b1": jnp.zeros(8),
            "w2": jax.random.normal(k, (8, 4)) * 0.1, "b2": jnp.zeros(4),
        }
        for k in keys
    ]  # fmt: skip
    x, optimizer = _data(), optax.adam(1e-2)

    @jax.jit
    def step(params, state):
        loss, grads = jax.value_and_grad(lambda p: -_flow(p).log_prob(x).mean())(params)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state, loss

    state, losses = optimizer.init(params), []
    for _ in range(5):
        params, state, loss = step(params, state)
        losses.append(loss)
    draws, log_prob = jax.jit(lambda p, k: _flow(p).sample_and_log_prob(seed=k, sample_shape=(6,)))(params, keys[0])
    return losses, draws, log_prob


def variational():
    """A Gaussian fitted to a posterior by the reparametrised evidence bound, its prior given by TFP."""
    prior = tfp.distributions.MultivariateNormalDiag(jnp.zeros(3), jnp.full(3, 2.0))
    x = jax.random.normal(jax.random.key(2), (40, 3))
    y = x @ jnp.array([1.0, -2.0, 0.5]) > 0

    @jax.jit
    def step(params, key):
        def bound(params):
            q = distrax.MultivariateNormalDiag(params["mean"], jnp.exp(params["log_scale"]))
            w, log_q = q.sample_and_log_prob(seed=key, sample_shape=(8,))
            likelihood = distrax.Bernoulli(logits=jnp.einsum("sd,nd->sn", w, x)).log_prob(y).sum(-1)
            return (log_q - prior.log_prob(w) - likelihood).mean()

        value, grads = jax.value_and_grad(bound)(params)
        return jax.tree.map(lambda p, g: p - 0.02 * g, params, grads), value

    params, values = {"mean": jnp.zeros(3), "log_scale": jnp.zeros(3)}, []
    for key in jax.random.split(jax.random.key(3), 6):
        params, value = step(params, key)
        values.append(value)
    return params, values


def hidden_markov():
    model = distrax.HMM(
        distrax.Categorical(probs=jnp.array([0.6, 0.4])),
        distrax.Categorical(probs=jnp.array([[0.9, 0.1], [0.3, 0.7]])),
        distrax.Normal(jnp.array([-1.0, 1.0]), jnp.array([0.5, 1.0])),
    )
    states, seen = model.sample(seed=jax.random.key(4), seq_len=10)
    return states, seen, model.forward(seen), model.viterbi(seen)


def densities_and_bijectors():
    key, value = jax.random.key(5), jnp.array([0.2, 0.7])
    tfd, tfb = tfp.distributions, tfp.bijectors
    chosen = [
        distrax.Gamma(2.0, 1.5), distrax.Beta(2.0, 3.0), distrax.Laplace(0.0, 1.0), distrax.Logistic(0.0, 1.0),
        distrax.Gumbel(0.0, 1.0), distrax.Uniform(0.0, 1.0), distrax.LogStddevNormal(0.0, 0.3),
        tfd.StudentT(4.0, 0.0, 1.0), tfd.Kumaraswamy(2.0, 3.0), tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), tfb.Softplus()),
    ]  # fmt: skip
    mixture = distrax.MixtureSameFamily(
        distrax.Categorical(logits=jnp.array([0.1, 0.7])), distrax.Normal(jnp.array([0.0, 2.0]), jnp.ones(2))
    )
    inferred = distrax.Lambda(lambda x: jnp.tanh(2 * x + 1))  # its inverse is found from its jaxpr
    spline = distrax.RationalQuadraticSpline(jax.random.normal(key, (13,)), 0.0, 1.0)
    return (
        [d.log_prob(value) for d in chosen],
        [d.sample(seed=key, sample_shape=(2,)) for d in chosen],
        (mixture.log_prob(value), mixture.sample(seed=key, sample_shape=(3,))),
        (inferred.forward_and_log_det(value), inferred.inverse_and_log_det(value)),
        (spline.forward_and_log_det(value), spline.inverse(value)),
        distrax.Categorical(logits=value).kl_divergence(distrax.Categorical(logits=2 * value)),
    )
