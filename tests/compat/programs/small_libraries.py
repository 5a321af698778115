"""chex, einops, jaxtyping and jmp: assertions, rearrangements, types of arrays, mixed precision."""

import chex
import einops
import jax
import jax.numpy as jnp
import jmp
from jaxtyping import Array, Float, jaxtyped


@chex.dataclass
class _State:
    position: jax.Array
    velocity: jax.Array


def dataclasses_of_chex():
    @jax.jit
    def step(state):
        chex.assert_rank(state.position, 1)
        chex.assert_equal_shape([state.position, state.velocity])
        return state.replace(position=state.position + 0.1 * state.velocity)

    state = _State(position=jnp.arange(4.0), velocity=jnp.ones(4))
    try:
        chex.assert_shape(state.position, (5,))
    except AssertionError:
        chex.assert_trees_all_close(state, state.replace(position=jnp.arange(4.0)))
    return step(step(state))


def images_by_einops():
    x = jnp.arange(2 * 4 * 4 * 3.0).reshape(2, 4, 4, 3)

    @jax.jit
    def patches(x):
        p = einops.rearrange(x, "b (h i) (w j) c -> b (h w) (i j c)", i=2, j=2)
        return (
            p,
            einops.reduce(x, "b h w c -> b c", "mean"),
            einops.repeat(x[:, 0, 0], "b c -> b k c", k=3),
            einops.einsum(p, p, "b n d, b m d -> b n m"),
        )

    return patches(x)


def annotations():
    @jaxtyped(typechecker=None)
    def norm(x: Float[Array, "batch dim"]) -> Float[Array, "batch"]:
        assert isinstance(x, Float[Array, "batch dim"]) and not isinstance(x, Float[Array, "batch"])
        return jnp.sqrt((x**2).sum(-1))

    return norm(jnp.ones((3, 4))), jax.jit(norm)(jnp.ones((2, 4)))


def mixed_precision():
    policy = jmp.get_policy("params=float32,compute=float16,output=float32")
    scale = jmp.DynamicLossScale(jnp.float32(2.0**10), period=2)

    @jax.jit
    def step(w, x, scale):
        def loss(w):
            w, h = policy.cast_to_compute((w, x))
            return scale.scale(policy.cast_to_output(jnp.tanh(h @ w)).sum())

        grads = scale.unscale(jax.grad(loss)(w))
        finite = jmp.all_finite(grads)
        return jmp.select_tree(finite, w - 0.1 * grads, w), scale.adjust(finite)

    w, scale = step(jnp.full((3, 2), 0.1), jnp.ones((4, 3)), scale)
    return step(w, jnp.full((4, 3), 1e6), scale)
