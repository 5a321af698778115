"""Haiku: a perceptron trained; a convolutional net with batch statistics; an LSTM unrolled; a multi-transform."""

import haiku as hk
import jax
import jax.numpy as jnp
import optax


def perceptron():
    net = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([16, 8, 1], activation=jnp.tanh)(x)))
    x = jax.random.normal(jax.random.PRNGKey(0), (32, 4))
    y = x.sum(-1, keepdims=True)
    params = net.init(jax.random.PRNGKey(1), x)
    optimizer = optax.adam(1e-2)

    @jax.jit
    def step(params, state):
        loss, grads = jax.value_and_grad(lambda p: ((net.apply(p, x) - y) ** 2).mean())(params)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state, loss

    state = optimizer.init(params)
    for _ in range(4):
        params, state, loss = step(params, state)
    return params, loss


def convolutional():
    def forward(x, train):
        x = hk.Conv2D(4, 3)(x)
        x = hk.BatchNorm(True, True, 0.9)(x, train)
        x = hk.MaxPool(2, 2, "SAME")(jax.nn.relu(x))
        x = hk.dropout(hk.next_rng_key(), 0.3, x) if train else x
        return hk.Linear(3)(hk.Flatten()(x))

    net = hk.transform_with_state(forward)
    x = jax.random.normal(jax.random.PRNGKey(0), (2, 6, 6, 2))
    params, state = net.init(jax.random.PRNGKey(1), x, True)

    @jax.jit
    def gradient(params, state, key):
        def loss(p):
            out, new = net.apply(p, state, key, x, True)
            return (out**2).mean(), new

        return jax.value_and_grad(loss, has_aux=True)(params)

    return gradient(params, state, jax.random.PRNGKey(2))


def recurrent():
    def forward(sequence):
        core = hk.LSTM(6)
        outs, state = hk.dynamic_unroll(core, sequence, core.initial_state(sequence.shape[1]))
        return hk.BatchApply(hk.Linear(2))(outs), state

    net = hk.without_apply_rng(hk.transform(forward))
    sequence = jax.random.normal(jax.random.PRNGKey(0), (5, 2, 3))
    params = net.init(jax.random.PRNGKey(1), sequence)
    return params, jax.jit(net.apply)(params, sequence)


def attention():
    def forward(x):
        attended = hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling(1.0))(x, x, x)
        return hk.LayerNorm(-1, True, True)(x + hk.Linear(x.shape[-1])(attended))

    net = hk.without_apply_rng(hk.transform(forward))
    x = jax.random.normal(jax.random.PRNGKey(0), (2, 5, 8))
    return net.apply(net.init(jax.random.PRNGKey(1), x), x)
