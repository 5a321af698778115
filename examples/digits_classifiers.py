"""Two networks trained on scikit-learn's handwritten digits: a plain MLP by SGD with momentum, and one with layer norm and
residuals by Adam. Parameters are trees of arrays; the optimisers are a few lines of `fuser.tree.map`.

python examples/digits_classifiers.py --epochs 30
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits

import fuser
import fuser.numpy as jnp

PIXELS, CLASSES = 64, 10


def dense(key, inputs, outputs):
    """Weights and bias of one layer, scaled so that activations keep their variance (He et al., 2015)."""
    scale = (2 / inputs) ** 0.5
    return {"w": scale * fuser.random.normal(key, (inputs, outputs)), "b": jnp.zeros(outputs)}


def mlp_parameters(key, width):
    first, second, last = fuser.random.split(key, 3)
    return [dense(first, PIXELS, width), dense(second, width, width), dense(last, width, CLASSES)]


def mlp(layers, x):
    """Logits of a multi-layer perceptron."""
    for layer in layers[:-1]:
        x = fuser.nn.relu(x @ layer["w"] + layer["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def residual_parameters(key, width, blocks=2):
    first, last, *keys = fuser.random.split(key, 2 + 2 * blocks)
    norm = lambda: {"gain": jnp.ones(width), "shift": jnp.zeros(width)}
    return {
        "first": dense(first, PIXELS, width),
        "blocks": [
            {"norm": norm(), "up": dense(up, width, 2 * width), "down": dense(down, 2 * width, width)}
            for up, down in zip(keys[::2], keys[1::2])
        ],
        "norm": norm(),
        "last": dense(last, width, CLASSES),
    }


def layer_norm(norm, x):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return centred / jnp.sqrt(variance + 1e-5) * norm["gain"] + norm["shift"]


def residual(network, x):
    """Logits of a network whose blocks each add to what they are given."""
    x = x @ network["first"]["w"] + network["first"]["b"]
    for block in network["blocks"]:
        hidden = fuser.nn.gelu(layer_norm(block["norm"], x) @ block["up"]["w"] + block["up"]["b"])
        x = x + hidden @ block["down"]["w"] + block["down"]["b"]
    return layer_norm(network["norm"], x) @ network["last"]["w"] + network["last"]["b"]


def cross_entropy(logits, labels):
    """The mean of minus the log of the label's probability."""
    log_probabilities = fuser.nn.log_softmax(logits)
    return -jnp.take_along_axis(log_probabilities, labels[:, None], axis=-1).mean()


def sgd(rate=0.05, momentum=0.9):
    """Stochastic gradient descent with momentum: (first state, update)."""

    def update(state, gradients, parameters):
        state = fuser.tree.map(lambda v, g: momentum * v + g, state, gradients)
        return state, fuser.tree.map(lambda p, v: p - rate * v, parameters, state)

    return lambda parameters: fuser.tree.map(jnp.zeros_like, parameters), update


def adam(rate=2e-3, b1=0.9, b2=0.999, epsilon=1e-8):
    """Adam (Kingma and Ba, 2015): (first state, update)."""

    def start(parameters):
        zeros = fuser.tree.map(jnp.zeros_like, parameters)
        return {"mean": zeros, "square": zeros, "step": jnp.zeros(())}

    def update(state, gradients, parameters):
        step = state["step"] + 1
        mean = fuser.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["mean"], gradients)
        square = fuser.tree.map(lambda s, g: b2 * s + (1 - b2) * g * g, state["square"], gradients)
        scale = rate * jnp.sqrt(1 - b2**step) / (1 - b1**step)
        moved = lambda p, m, s: p - scale * m / (jnp.sqrt(s) + epsilon)
        parameters = fuser.tree.map(moved, parameters, mean, square)
        return {"mean": mean, "square": square, "step": step}, parameters

    return start, update


def train_step(network, update):
    """One jitted step: (parameters, state, images, labels) -> (parameters, state, loss)."""

    def loss(parameters, x, labels):
        return cross_entropy(network(parameters, x), labels)

    @fuser.jit
    def step(parameters, state, x, labels):
        value, gradients = fuser.value_and_grad(loss)(parameters, x, labels)
        state, parameters = update(state, gradients, parameters)
        return parameters, state, value

    return step


def digits(size):
    """Images scaled to 0..1 with their digits, shuffled: four fifths to train on, one fifth held out."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))[:size]
    x, labels = data.data[order].astype(np.float32) / 16, data.target[order].astype(np.int32)
    held = size // 5
    return (x[held:], labels[held:]), (x[:held], labels[:held])


def train(network, parameters, optimiser, data, epochs, batch):
    """The parameters after so many passes over the data, and the mean loss of the last pass."""
    start, update = optimiser
    step, state = train_step(network, update), start(parameters)
    x, labels = data
    rng = np.random.default_rng(1)
    losses = []
    for _ in range(epochs):
        order = rng.permutation(len(x))
        losses = []
        for at in range(0, len(x) - batch + 1, batch):
            rows = order[at : at + batch]
            parameters, state, loss = step(parameters, state, x[rows], labels[rows])
            losses.append(loss)
    return parameters, float(np.mean([float(loss) for loss in losses]))


def accuracy(network, parameters, data):
    """The share of images whose largest logit is that of their digit."""
    x, labels = data
    found = fuser.jit(lambda parameters, x: jnp.argmax(network(parameters, x), axis=-1))(parameters, x)
    return float((np.asarray(found) == labels).mean())


def main(arguments=None):
    """Train both; returns the held-out accuracy of each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=1797, help="number of digits, at most 1797")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=128, help="of the hidden layers")
    options = parser.parse_args(arguments)
    training, held_out = digits(options.size)
    key = fuser.random.key(0)
    models = {
        "mlp by sgd": (mlp, mlp_parameters(key, options.width), sgd()),
        "residual network by adam": (residual, residual_parameters(key, options.width // 2), adam()),
    }
    scores = {}
    for name, (network, parameters, optimiser) in models.items():
        began = time.perf_counter()
        parameters, loss = train(network, parameters, optimiser, training, options.epochs, options.batch)
        seconds = time.perf_counter() - began
        scores[name] = accuracy(network, parameters, held_out)
        print(
            f"{name}: {scores[name]:.1%} of {len(held_out[1])} held-out digits right; "
            f"training loss {loss:.4f}, {options.epochs} epochs in {seconds:.2f} s"
        )
    return scores


if __name__ == "__main__":
    main()
