"""chex, einops, jaxtyping and jmp inside of training: checks on values, patches with attention, annotated layers, half precision."""

import chex
import einops
import jax
import jax.numpy as jnp
import jmp
from jaxtyping import Array, Float, Int, PyTree, jaxtyped


@chex.dataclass(frozen=True)
class _Learner:
    params: chex.ArrayTree
    momentum: chex.ArrayTree
    step: chex.Array


def checked_training():
    x = jax.random.normal(jax.random.key(0), (16, 4))

    @chex.chexify
    @jax.jit
    @chex.assert_max_traces(n=2)
    def update(learner):
        grads = jax.grad(lambda p: ((jnp.tanh(x @ p["w"]) - x[:, :2]) ** 2).mean())(learner.params)
        chex.assert_tree_all_finite(grads)
        chex.assert_trees_all_equal_shapes(grads, learner.params)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, learner.momentum, grads)
        params = jax.tree.map(lambda p, m: p - 0.1 * m, learner.params, momentum)
        return learner.replace(params=params, momentum=momentum, step=learner.step + 1)

    params = {"w": jax.random.normal(jax.random.key(1), (4, 2)) * 0.3}
    learner = _Learner(params=params, momentum=jax.tree.map(jnp.zeros_like, params), step=jnp.int32(0))
    for _ in range(3):
        learner = update(learner)
    try:
        update(learner.replace(params={"w": jnp.full((4, 2), jnp.nan)}))
        update.wait_checks()
        caught = jnp.array(False)
    except AssertionError:
        caught = jnp.array(True)
    return learner, caught


def patches_attended():
    images = jax.random.normal(jax.random.key(0), (3, 8, 8, 2))
    keys = jax.random.split(jax.random.key(1), 3)
    params = {name: jax.random.normal(k, (8, 8)) * 0.3 for name, k in zip("qkv", keys)}

    @jax.jit
    def step(params):
        def loss(params):
            x = einops.rearrange(images, "b (h i) (w j) c -> b (h w) (i j c)", i=2, j=2)
            q, k, v = (einops.rearrange(x @ params[n], "b t (heads d) -> b heads t d", heads=2) for n in "qkv")
            weights = jax.nn.softmax(einops.einsum(q, k, "b h t d, b h s d -> b h t s") / 2.0)
            mixed = einops.rearrange(einops.einsum(weights, v, "b h t s, b h s d -> b h t d"), "b h t d -> b t (h d)")
            packed, sizes = einops.pack([x, mixed], "b * d")
            one, two = einops.unpack(packed, sizes, "b * d")
            return ((einops.reduce(two - one, "b t d -> b d", "mean")) ** 2).sum()

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    for _ in range(3):
        params, value = step(params)
    return params, value


def annotated_layers():
    @jaxtyped(typechecker=None)
    def embed(table: Float[Array, "vocab dim"], tokens: Int[Array, "batch time"]) -> Float[Array, "batch time dim"]:
        assert isinstance(tokens, Int[Array, "batch time"]) and not isinstance(table, Int[Array, "..."])
        return table[tokens]

    tokens = jnp.arange(6).reshape(2, 3)
    params = {"table": jax.random.normal(jax.random.key(0), (6, 4)), "bias": jnp.zeros(4)}
    assert isinstance(params, PyTree[Float[Array, "..."]])
    gradient = jax.jit(jax.grad(lambda p: (jnp.sin(embed(p["table"], tokens) + p["bias"]) ** 2).sum()))
    return gradient(params), jax.vmap(embed, (None, 0))(params["table"], tokens[:, None])


def half_precision():
    policy = jmp.Policy(param_dtype=jnp.float32, compute_dtype=jnp.bfloat16, output_dtype=jnp.float32)
    x = jax.random.normal(jax.random.key(0), (16, 8))
    scale = jmp.StaticLossScale(jnp.float32(128.0))

    @jax.jit
    def step(w):
        def loss(w):
            w, h = policy.cast_to_compute((w, x))
            return scale.scale(policy.cast_to_output(h @ w).mean() ** 2)

        grads = scale.unscale(jax.grad(loss)(w))
        return jmp.select_tree(jmp.all_finite(grads), policy.cast_to_param(w - 0.01 * grads), w)

    w = jnp.full((8, 3), 0.1)
    for _ in range(3):
        w = step(w)
    return w
