"""Flax nnx: a perceptron with dropout and batch statistics trained by nnx.Optimizer; modules split, merged, batched."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class _Model(nnx.Module):
    def __init__(self, rngs):
        self.linear1 = nnx.Linear(4, 8, use_bias=False, rngs=rngs)  # a bias has no gradient before the norm
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.linear2 = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x):
        return self.linear2(self.dropout(nnx.relu(self.norm(self.linear1(x)))))


def trained():
    model = _Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    x = jax.random.normal(jax.random.key(1), (16, 4))
    y = jnp.stack([x.sum(-1), x[:, 0] ** 2], -1)

    @nnx.jit
    def step(model, optimizer, x, y):
        loss, grads = nnx.value_and_grad(lambda m: ((m(x) - y) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    losses = [step(model, optimizer, x, y) for _ in range(4)]
    model.eval()
    return jnp.stack(losses), model(x), nnx.state(model, nnx.Param), nnx.state(model, nnx.BatchStat)


def split_and_merged():
    model = nnx.Linear(3, 3, rngs=nnx.Rngs(7))
    graphdef, state = nnx.split(model)

    @jax.jit
    def forward(state, x):
        return nnx.merge(graphdef, state)(x)

    @nnx.vmap(in_axes=(0, None), out_axes=0)
    def ensemble(key, x):
        return nnx.Linear(3, 2, rngs=nnx.Rngs(key))(x)

    x = jnp.ones((2, 3))
    return forward(state, x), ensemble(jax.random.split(jax.random.key(0), 3), x)


def scanned():
    @nnx.split_rngs(splits=3)
    @nnx.vmap(in_axes=0, out_axes=0)
    def create(rngs):
        return nnx.Linear(4, 4, rngs=rngs)

    layers = create(nnx.Rngs(0))

    @nnx.jit
    @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
    def forward(layer, x):
        return nnx.tanh(layer(x))

    return forward(layers, jnp.ones((2, 4)))
