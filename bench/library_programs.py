"""Programs on libraries of the JAX ecosystem, written for `jax`: each gives `(step, state)`, and `step(state)` the next state.

`bench.libraries` runs them once with fuser as `jax` and once with JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Made = tuple[Callable[[Any], Any], Any]


def optax_mlp() -> Made:
    """A perceptron of three layers trained by AdamW with clipping and a schedule."""
    import optax

    keys = jax.random.split(jax.random.key(0), 4)
    sizes = (32, 128, 128, 1)
    params = [
        {"w": jax.random.normal(k, (m, n)) * m**-0.5, "b": jnp.zeros(n)} for k, m, n in zip(keys, sizes[:-1], sizes[1:])
    ]
    x = jax.random.normal(keys[3], (256, 32))
    y = jnp.sin(x.sum(-1, keepdims=True))
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 1000)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    def loss(params: Any) -> Any:
        h = x
        for layer in params[:-1]:
            h = jax.nn.gelu(h @ layer["w"] + layer["b"])
        return optax.l2_loss(h @ params[-1]["w"] + params[-1]["b"], y).mean()

    @jax.jit
    def step(state: Any) -> Any:
        params, inner, _ = state
        value, grads = jax.value_and_grad(loss)(params)
        updates, inner = optimizer.update(grads, inner, params)
        return optax.apply_updates(params, updates), inner, value

    return step, (params, optimizer.init(params), jnp.float32(0))


def flax_transformer() -> Made:
    """Two blocks of a causal transformer (linen) trained by Adam."""
    import optax
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            h = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=4, use_bias=False)(
                h, h, mask=nn.make_causal_mask(x[..., 0])
            )
            h = nn.LayerNorm()(x)
            return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(128)(h)))

    class Model(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(64, 32)(tokens)
            for _ in range(2):
                x = Block()(x)
            return nn.Dense(64)(x)

    tokens = jax.random.randint(jax.random.key(0), (8, 33), 0, 64)
    model, optimizer = Model(), optax.adam(1e-3)
    params = model.init(jax.random.key(1), tokens[:, :-1])

    @jax.jit
    def step(state: Any) -> Any:
        def loss(params: Any) -> Any:
            logits = model.apply(params, tokens[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        params, inner, _ = state
        value, grads = jax.value_and_grad(loss)(params)
        updates, inner = optimizer.update(grads, inner)
        return optax.apply_updates(params, updates), inner, value

    return step, (params, optimizer.init(params), jnp.float32(0))


def flax_resnet() -> Made:
    """A residual block with batch statistics (linen) trained by SGD."""
    import optax
    from flax import linen as nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(16, (3, 3))(x)
            h = nn.relu(nn.BatchNorm(use_running_average=False)(nn.Conv(16, (3, 3), use_bias=False)(x)))
            h = nn.BatchNorm(use_running_average=False)(nn.Conv(16, (3, 3), use_bias=False)(h))
            return nn.Dense(10)(nn.relu(x + h).mean((1, 2)))

    x = jax.random.normal(jax.random.key(0), (8, 16, 16, 3))
    labels = jnp.arange(8) % 10
    model, optimizer = Model(), optax.sgd(1e-2, momentum=0.9)
    variables = model.init(jax.random.key(1), x)

    @jax.jit
    def step(state: Any) -> Any:
        params, stats, inner, _ = state

        def loss(params: Any) -> Any:
            logits, new = model.apply({"params": params, "batch_stats": stats}, x, mutable=["batch_stats"])
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new["batch_stats"]

        (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, inner = optimizer.update(grads, inner)
        return optax.apply_updates(params, updates), stats, inner, value

    params = variables["params"]
    return step, (params, variables["batch_stats"], optimizer.init(params), jnp.float32(0))


def nnx_mlp() -> Made:
    """A perceptron (nnx) with batch statistics trained by nnx.Optimizer."""
    import optax
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.linear1 = nnx.Linear(16, 64, use_bias=False, rngs=rngs)
            self.norm = nnx.BatchNorm(64, rngs=rngs)
            self.linear2 = nnx.Linear(64, 4, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.linear2(nnx.relu(self.norm(self.linear1(x))))

    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    x = jax.random.normal(jax.random.key(1), (128, 16))
    y = jnp.tanh(x[:, :4])

    @nnx.jit
    def train(model: Any, optimizer: Any) -> Any:
        loss, grads = nnx.value_and_grad(lambda m: ((m(x) - y) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    return lambda _: train(model, optimizer), None


def nnx_cnn() -> Made:
    """Two convolutions with batch statistics, dropout and average pools (nnx), trained by AdamW as Flax's first tutorial does."""
    import optax
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.conv1 = nnx.Conv(1, 32, (3, 3), rngs=rngs)
            self.norm1 = nnx.BatchNorm(32, rngs=rngs)
            self.dropout1 = nnx.Dropout(0.025, rngs=rngs)
            self.conv2 = nnx.Conv(32, 64, (3, 3), rngs=rngs)
            self.norm2 = nnx.BatchNorm(64, rngs=rngs)
            self.linear1 = nnx.Linear(3136, 256, rngs=rngs)
            self.dropout2 = nnx.Dropout(0.025, rngs=rngs)
            self.linear2 = nnx.Linear(256, 10, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = nnx.avg_pool(nnx.relu(self.norm1(self.dropout1(self.conv1(x)))), (2, 2), (2, 2))
            x = nnx.avg_pool(nnx.relu(self.norm2(self.conv2(x))), (2, 2), (2, 2)).reshape(x.shape[0], -1)
            return self.linear2(nnx.relu(self.dropout2(self.linear1(x))))

    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-4, 0.9), wrt=nnx.Param)
    images = jax.random.normal(jax.random.key(1), (16, 28, 28, 1))
    labels = jnp.arange(16) % 10

    @nnx.jit
    def train(model: Any, optimizer: Any) -> Any:
        def loss(model: Any) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value

    return lambda _: train(model, optimizer), None


def haiku_convnet() -> Made:
    """A convolutional net with batch statistics trained by Adam."""
    import haiku as hk
    import optax

    def forward(x: Any) -> Any:
        x = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(hk.Conv2D(8, 3, with_bias=False)(x), True))
        return hk.Linear(10)(hk.Flatten()(hk.MaxPool(2, 2, "SAME")(x)))

    net = hk.without_apply_rng(hk.transform_with_state(forward))
    x = jax.random.normal(jax.random.key(0), (8, 12, 12, 3))
    labels = jnp.arange(8) % 10
    params, stats = net.init(jax.random.PRNGKey(1), x)
    optimizer = optax.adam(1e-3)

    @jax.jit
    def step(state: Any) -> Any:
        params, stats, inner, _ = state

        def loss(params: Any) -> Any:
            logits, new = net.apply(params, stats, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), new

        (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, inner = optimizer.update(grads, inner)
        return optax.apply_updates(params, updates), stats, inner, value

    return step, (params, stats, optimizer.init(params), jnp.float32(0))


def equinox_mlp() -> Made:
    """A perceptron trained by filtered transforms."""
    import equinox as eqx
    import optax

    model = eqx.nn.MLP(8, 1, 64, 3, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (128, 8))
    y = (x**2).sum(-1, keepdims=True)
    optimizer = optax.adam(1e-3)

    @eqx.filter_jit
    def step(state: Any) -> Any:
        model, inner, _ = state
        loss, grads = eqx.filter_value_and_grad(lambda m: ((jax.vmap(m)(x) - y) ** 2).mean())(model)
        updates, inner = optimizer.update(grads, inner, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, updates), inner, loss

    return step, (model, optimizer.init(eqx.filter(model, eqx.is_array)), jnp.float32(0))


def blackjax_nuts() -> Made:
    """Ten draws of NUTS from a hierarchical model a step."""
    import blackjax

    y = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def logdensity(p: Any) -> Any:
        normal = jax.scipy.stats.norm.logpdf
        theta = p["mu"] + jnp.exp(p["log_tau"]) * p["eta"]
        prior = normal(p["mu"], 0, 5) + normal(p["log_tau"]) + normal(p["eta"]).sum()
        return prior + normal(y, theta, sigma).sum()

    sampler = blackjax.nuts(logdensity, step_size=0.3, inverse_mass_matrix=jnp.ones(10), max_num_doublings=5)

    @jax.jit
    def step(state: Any) -> Any:
        inner, key = state
        key, *keys = jax.random.split(key, 11)
        inner, _ = jax.lax.scan(lambda s, k: (sampler.step(k, s)[0], None), inner, jnp.stack(keys))
        return inner, key

    start = {"mu": jnp.array(1.0), "log_tau": jnp.array(0.0), "eta": jnp.zeros(8)}
    return step, (sampler.init(start), jax.random.key(0))


def _regression(x: Any, y: Any = None) -> Any:
    import numpyro
    import numpyro.distributions as dist

    mu = numpyro.sample("mu", dist.Normal(0, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("groups", 8):
        slope = numpyro.sample("slope", dist.Normal(mu, tau))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(slope[jnp.arange(x.shape[0]) % 8] * x, 0.5), obs=y)


def _points() -> tuple[Any, Any]:
    x = jax.random.normal(jax.random.key(0), (64,))
    return x, x * 1.5 + 0.1


def numpyro_svi() -> Made:
    """A step of variational inference on a hierarchical regression."""
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    svi = SVI(_regression, AutoNormal(_regression), numpyro.optim.Adam(0.01), Trace_ELBO())
    points = _points()
    update = jax.jit(lambda state: svi.update(state, *points)[0])
    return update, svi.init(jax.random.PRNGKey(0), *points)


def numpyro_nuts() -> Made:
    """A draw of NUTS from a hierarchical regression."""
    from numpyro.infer import NUTS

    kernel, points = NUTS(_regression, max_tree_depth=5, adapt_step_size=False, step_size=0.2), _points()
    state = kernel.init(jax.random.PRNGKey(0), 0, None, points, {})
    return jax.jit(lambda state: kernel.sample(state, points, {})), state


def distrax_flow() -> Made:
    """A normalising flow of four affine couplings trained by Adam."""
    import distrax
    import optax

    def conditioner(p: Any) -> Any:
        return lambda x: (jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"]).reshape(*x.shape, 2)

    def affine(p: Any) -> Any:
        return distrax.ScalarAffine(p[..., 0], log_scale=jnp.tanh(p[..., 1]))

    def log_prob(params: Any) -> Any:
        layers = [
            distrax.MaskedCoupling(jnp.arange(4) % 2 == n % 2, conditioner(p), affine) for n, p in enumerate(params)
        ]
        base = distrax.Independent(distrax.Normal(jnp.zeros(4), jnp.ones(4)), 1)
        return distrax.Transformed(base, distrax.Inverse(distrax.Chain(layers))).log_prob(x)

    keys = jax.random.split(jax.random.key(1), 4)
    params = [
        {"w1": jax.random.normal(k, (4, 16)) * 0.5, "b1": jnp.zeros(16), "w2": jax.random.normal(k, (16, 8)) * 0.1}
        for k in keys
    ]
    x = jnp.cumsum(jax.random.normal(jax.random.key(2), (128, 4)), -1)
    optimizer = optax.adam(1e-3)

    @jax.jit
    def step(state: Any) -> Any:
        params, inner, _ = state
        value, grads = jax.value_and_grad(lambda p: -log_prob(p).mean())(params)
        updates, inner = optimizer.update(grads, inner)
        return optax.apply_updates(params, updates), inner, value

    return step, (params, optimizer.init(params), jnp.float32(0))


def diffrax_adjoint() -> Made:
    """The gradient of an oscillator's path by adaptive steps, through the checkpointed adjoint."""
    import diffrax

    def solve(k: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, k: jnp.stack([y[1], -k * y[0]])), diffrax.Tsit5(), 0.0, 1.0, 0.1,
            jnp.array([1.0, 0.0]), args=k, stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
            saveat=diffrax.SaveAt(ts=jnp.linspace(0, 1, 4)), max_steps=32,
        ).ys  # fmt: skip

    return jax.jit(lambda k: k - 1e-3 * jax.grad(lambda k: (solve(k) ** 2).sum())(k)), jnp.float32(2.0)


def diffrax_stiff() -> Made:
    """Robertson's reactions, softened, by an implicit method with Newton's iteration inside."""
    import diffrax

    def field(t: Any, y: Any, args: Any) -> Any:
        a, b, c = 0.04 * y[0], 10.0 * y[1] * y[2], 30.0 * y[1] ** 2
        return jnp.stack([b - a, a - b - c, c])

    def solve(y: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Kvaerno3(), 0.0, 1.0, 0.05, y, max_steps=64,
            stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
        ).ys[-1]  # fmt: skip

    return jax.jit(solve), jnp.array([1.0, 0.0, 0.0])


def optimistix_fit() -> Made:
    """Least squares by Levenberg and Marquardt, started anew from what was found."""
    import optimistix

    t = jnp.linspace(0, 1, 32)

    def fit(p: Any) -> Any:
        solver = optimistix.LevenbergMarquardt(1e-5, 1e-5)
        target = 2 * jnp.exp(-t)
        found = optimistix.least_squares(lambda p, _: p[0] * jnp.exp(p[1] * t) - target, solver, p, max_steps=64)
        return 0.5 * found.value + jnp.array([0.5, 0.0])

    return jax.jit(fit), jnp.array([1.0, 0.0])


def lineax_solves() -> Made:
    """Linear solves by Cholesky and conjugate gradients, and the gradient of one."""
    import lineax as lx

    root = jax.random.normal(jax.random.key(0), (24, 24))
    operator = lx.MatrixLinearOperator(root @ root.T + 24 * jnp.eye(24), lx.positive_semidefinite_tag)

    def step(b: Any) -> Any:
        iterated = lx.linear_solve(operator, b, lx.CG(rtol=1e-5, atol=1e-5)).value
        slope = jax.grad(lambda b: (lx.linear_solve(operator, b, lx.Cholesky()).value ** 2).sum())(b)
        return b + 0.1 * iterated - slope

    return jax.jit(step), jnp.ones(24)


def jaxopt_lbfgs() -> Made:
    """Ten iterations of L-BFGS with line searches."""
    import jaxopt

    def rosenbrock(x: Any) -> Any:
        return ((1 - x[:-1]) ** 2).sum() + 5 * ((x[1:] - x[:-1] ** 2) ** 2).sum()

    solver = jaxopt.LBFGS(fun=rosenbrock, maxiter=10, tol=0.0)
    return jax.jit(lambda x: 0.5 * solver.run(x).params), jnp.full(16, 0.3)


def small_libraries() -> Made:
    """Patches by einops under mixed precision by jmp, with chex's and jaxtyping's assertions."""
    import chex
    import einops
    import jmp
    from jaxtyping import Array, Float, jaxtyped

    policy = jmp.get_policy("params=float32,compute=float16,output=float32")
    images = jax.random.normal(jax.random.key(0), (8, 16, 16, 3))

    @jaxtyped(typechecker=None)
    def norm(x: Float[Array, "batch dim"]) -> Float[Array, " batch"]:
        return jnp.sqrt((x**2).sum(-1))

    @jax.jit
    def step(state: Any) -> Any:
        w, scale = state
        chex.assert_shape(w, (48, 16))

        def loss(w: Any) -> Any:
            patches = einops.rearrange(images, "b (h i) (w j) c -> (b h w) (i j c)", i=4, j=4)
            w, patches = policy.cast_to_compute((w, patches))
            return scale.scale(norm(policy.cast_to_output(jnp.tanh(patches @ w))).mean())

        grads = scale.unscale(jax.grad(loss)(w))
        finite = jmp.all_finite(grads)
        return jmp.select_tree(finite, w - 0.1 * grads, w), scale.adjust(finite)

    return step, (jnp.full((48, 16), 0.05), jmp.DynamicLossScale(jnp.float32(2.0**10)))


def evolution() -> Made:
    """Evolution strategies: a population of networks, each of which steers a cart in a scan, ranked and averaged by Optax's Adam."""
    import optax
    from jax.flatten_util import ravel_pytree

    weights = {"w1": jnp.zeros((4, 16)), "b1": jnp.zeros(16), "w2": jnp.zeros((16, 1))}
    flat, unravel = ravel_pytree(weights)
    optimizer = optax.adam(3e-2)

    def steer(weights: Any, state: Any) -> Any:
        force = 10 * jnp.tanh(jnp.tanh(state @ weights["w1"] + weights["b1"]) @ weights["w2"])[0]
        _, dx, angle, spin = state
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        pull = (force + 0.05 * spin**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * pull) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        push = pull - 0.05 * turn * cosine / 1.1
        return state + 0.02 * jnp.stack([dx, push, spin, turn])

    def reward(weights: Any, key: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            state, alive = carry
            state = steer(weights, state)
            alive = alive & (jnp.abs(state[0]) < 2.4) & (jnp.abs(state[2]) < 0.2)
            return (jnp.where(alive, state, 0.0), alive), alive

        start = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05), jnp.array(True)
        return jax.lax.scan(body, start, None, length=200)[1].sum()

    @jax.jit
    def step(state: Any) -> Any:
        mean, inner, key = state
        key, noise_key, start_key = jax.random.split(key, 3)
        noise = jax.random.normal(noise_key, (64, mean.size))
        population = jnp.concatenate([mean + 0.1 * noise, mean - 0.1 * noise])
        rewards = jax.vmap(lambda w, k: reward(unravel(w), k))(population, jax.random.split(start_key, 128))
        ranks = jnp.argsort(jnp.argsort(rewards)) / 127 - 0.5
        gradient = -(ranks[:64] - ranks[64:]) @ noise / 128
        updates, inner = optimizer.update(gradient, inner)
        return optax.apply_updates(mean, updates), inner, key

    return step, (flat, optimizer.init(flat), jax.random.key(7))


PROGRAMS: dict[str, Callable[[], Made]] = {
    made.__name__: made
    for made in (
        optax_mlp, flax_transformer, flax_resnet, nnx_mlp, nnx_cnn, haiku_convnet, equinox_mlp, blackjax_nuts, numpyro_svi,
        numpyro_nuts, distrax_flow, diffrax_adjoint, diffrax_stiff, optimistix_fit, lineax_solves, jaxopt_lbfgs, evolution,
        small_libraries,
    )
}  # fmt: skip
