"""Flax linen: a small transformer trained; a residual block with batch statistics; scanned layers; a recurrent cell."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state


class _Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(h, h, mask=nn.make_causal_mask(x[..., 0]))
        h = nn.LayerNorm()(x)
        return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(32)(h)))


class _Transformer(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, 16)(tokens)
        return nn.Dense(11)(_Block()(x))


def transformer():
    tokens = jax.random.randint(jax.random.key(0), (4, 9), 0, 11)
    model = _Transformer()
    params = model.init(jax.random.key(1), tokens[:, :-1])["params"]
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-2))

    @jax.jit
    def step(state):
        def loss(params):
            logits = state.apply_fn({"params": params}, tokens[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), value

    losses = []
    for _ in range(4):
        state, value = step(state)
        losses.append(value)
    return jnp.stack(losses), params


class _Residual(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        h = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(nn.Conv(4, (3, 3))(x)))
        h = nn.Dropout(0.5, deterministic=not train)(h)
        return nn.avg_pool(nn.relu(x + nn.Conv(4, (3, 3))(h)), (2, 2), (2, 2))


def residual_block():
    x = jax.random.normal(jax.random.key(0), (2, 6, 6, 4))
    model = _Residual()
    variables = model.init({"params": jax.random.key(1), "dropout": jax.random.key(2)}, x, True)

    @jax.jit
    def step(variables, key):
        def loss(params):
            y, state = model.apply(
                {**variables, "params": params}, x, True, rngs={"dropout": key}, mutable=["batch_stats"]
            )
            return (y**2).mean(), state

        (value, state), grads = jax.value_and_grad(loss, has_aux=True)(variables["params"])
        return value, state, grads

    return step(variables, jax.random.key(3)), model.apply(variables, x, False)


class _Scanned(nn.Module):
    @nn.compact
    def __call__(self, x):
        layer = nn.scan(
            lambda mdl, c, _: (nn.tanh(nn.Dense(8)(c)), None),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=3,
        )
        return layer(self, x, None)[0]


def scanned_layers_and_lstm():
    x = jnp.ones((2, 8))
    variables = _Scanned().init(jax.random.key(0), x)
    grads = jax.jit(jax.grad(lambda v: _Scanned().apply(v, x).sum()))(variables)
    cell = nn.RNN(nn.LSTMCell(5))
    sequence = jax.random.normal(jax.random.key(1), (2, 6, 3))
    lstm = cell.init(jax.random.key(2), sequence)
    return variables, grads, jax.jit(cell.apply)(lstm, sequence)


def recurrent_cells_computed_again():
    class Cell(nn.Module):
        @nn.compact
        def __call__(self, carry, x):
            carry, y = nn.LSTMCell(6)(carry, x)
            return carry, nn.Dense(2)(y)

    class Sequence(nn.Module):
        @nn.compact
        def __call__(self, xs):
            scanned = nn.scan(
                nn.remat(Cell), variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1
            )
            start = nn.LSTMCell(6, parent=None).initialize_carry(jax.random.key(1), xs[:, 0].shape)
            return scanned()(start, xs)[1]

    xs = jax.random.normal(jax.random.key(0), (3, 7, 4))
    model = Sequence()
    params = model.init(jax.random.key(2), xs)
    return jax.jit(jax.value_and_grad(lambda p: (model.apply(p, xs) ** 2).sum()))(params)
