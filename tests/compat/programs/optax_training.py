"""Optax: a perceptron trained by Adam with a schedule, many optimisers, losses, gradient accumulation, L-BFGS."""

import jax
import jax.numpy as jnp
import optax


def _data(key, n=64):
    x = jax.random.normal(key, (n, 8))
    return x, jnp.sin(x[:, :1]) + 0.5 * x[:, 1:2] ** 2


def _init(key):
    k1, k2 = jax.random.split(key)
    return {
        "w1": jax.random.normal(k1, (8, 16)) * 0.3,
        "b1": jnp.zeros(16),
        "w2": jax.random.normal(k2, (16, 1)) * 0.3,
        "b2": jnp.zeros(1),
    }


def _loss(params, x, y):
    h = jax.nn.gelu(x @ params["w1"] + params["b1"])
    return optax.l2_loss(h @ params["w2"] + params["b2"], y).mean()


def _train(optimizer, steps=20):
    params = _init(jax.random.key(1))
    x, y = _data(jax.random.key(0))
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        loss, grads = jax.value_and_grad(_loss)(params, x, y)
        updates, state = optimizer.update(
            grads, state, params, value=loss, grad=grads, value_fn=lambda p: _loss(p, x, y)
        )
        return optax.apply_updates(params, updates), state, loss

    losses = []
    for _ in range(steps):
        params, state, loss = step(params, state)
        losses.append(loss)
    return params, jnp.stack(losses)


def adamw_with_schedule():
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 5, 20)
    return _train(optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-3)))


def optimizers():
    """One step of each, evaluated operation by operation."""
    params = _init(jax.random.key(1))
    grads = jax.tree.map(jnp.sin, params)
    chosen = [
        optax.sgd(1e-2, momentum=0.9, nesterov=True), optax.rmsprop(1e-3), optax.adagrad(1e-2), optax.lion(1e-3),
        optax.lamb(1e-3), optax.adafactor(1e-3), optax.radam(1e-3), optax.adabelief(1e-3),
    ]  # fmt: skip
    return [o.update(grads, o.init(params), params)[0] for o in chosen]


def lbfgs():
    return _train(optax.lbfgs(), 6)


def accumulation():
    return _train(optax.with_extra_args_support(optax.MultiSteps(optax.adam(1e-2), 3).gradient_transformation()), 7)


def losses():
    k1, k2 = jax.random.split(jax.random.key(5))
    logits, labels = jax.random.normal(k1, (10, 4)), jax.random.randint(k2, (10,), 0, 4)
    one_hot = jax.nn.one_hot(labels, 4)
    return [
        optax.softmax_cross_entropy_with_integer_labels(logits, labels),
        optax.sigmoid_binary_cross_entropy(logits, one_hot),
        optax.huber_loss(logits, one_hot), optax.cosine_similarity(logits, one_hot), optax.log_cosh(logits, one_hot),
    ]  # fmt: skip


def noise():
    drawn = optax.tree.random_like(jax.random.key(3), {"w": jnp.ones((2, 3)), "b": jnp.ones(2)}, jax.random.normal)
    noisy = optax.chain(optax.add_noise(0.01, 0.55, jax.random.key(4)), optax.sgd(0.1))
    return drawn, _train(noisy, 5)
