"""Equinox: a perceptron trained with filtered transforms, layers with state, checks at run time, a checkpointed loop."""

import io

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import optax


def perceptron():
    model = eqx.nn.MLP(3, 1, 16, 2, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (32, 3))
    y = (x**2).sum(-1, keepdims=True)
    optimizer = optax.adam(1e-2)
    state = optimizer.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def step(model, state):
        loss, grads = eqx.filter_value_and_grad(lambda m: ((jax.vmap(m)(x) - y) ** 2).mean())(model)
        updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, updates), state, loss

    losses = []
    for _ in range(4):
        model, state, loss = step(model, state)
        losses.append(loss)
    return jnp.stack(losses), eqx.filter(model, eqx.is_array)


def layers_with_state():
    class _Net(eqx.Module):
        conv: eqx.nn.Conv2d
        norm: eqx.nn.BatchNorm
        attention: eqx.nn.MultiheadAttention

        def __init__(self, key):
            k1, k2 = jax.random.split(key)
            self.conv = eqx.nn.Conv2d(2, 4, 3, padding=1, key=k1)
            self.norm = eqx.nn.BatchNorm(4, axis_name="batch", mode="batch")
            self.attention = eqx.nn.MultiheadAttention(2, 4, key=k2)

        def __call__(self, x, state):
            x, state = self.norm(self.conv(x), state)
            x = jax.nn.relu(x).reshape(4, -1).T
            return self.attention(x, x, x), state

    net, state = eqx.nn.make_with_state(_Net)(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (3, 2, 4, 4))

    @eqx.filter_jit
    def forward(net, state, x):
        return jax.vmap(net, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)

    out, state = forward(net, state, x)
    return out, jax.tree.leaves(eqx.filter(state, eqx.is_array))


def errors():
    @eqx.filter_jit
    def checked(x):
        x = eqx.error_if(x, x < 0, "x must be positive")
        return jnp.sqrt(x)

    fine = checked(jnp.array(4.0))
    try:
        checked(jnp.array(-1.0)).block_until_ready()
        said = 0
    except Exception as error:
        said = int("x must be positive" in str(error))
    batched = jax.jit(jax.vmap(lambda x: eqx.error_if(x, x > 9, "too large") * 2))(jnp.arange(3.0))
    return fine, jnp.array(said), batched


def checkpointed_loop():
    @jax.jit
    @jax.grad
    def gradient(x):
        def body(carry):
            step, y = carry
            return step + 1, jnp.sin(y) * 1.1

        return eqxi.while_loop(lambda c: c[0] < 7, body, (0, x), kind="checkpointed", checkpoints=3, max_steps=16)[1]

    return gradient(0.7)


def leaves_saved_and_read_back():
    class Net(eqx.Module):
        width: int
        cell: eqx.nn.GRUCell

        def __init__(self, key):
            self.width = 4
            self.cell = eqx.nn.GRUCell(2, self.width, key=key)

    saved = io.BytesIO()
    eqx.tree_serialise_leaves(saved, Net(jax.random.key(0)))
    saved.seek(0)
    return eqx.filter(eqx.tree_deserialise_leaves(saved, Net(jax.random.key(1))), eqx.is_array_like)
