"""Per-example gradients by `vmap(grad(...))`: each clipped to a norm, summed, and noise added (DP-SGD, Abadi et al., 2016),
to train a classifier of scikit-learn's digits that no single image can move far.

python examples/private_gradients.py --steps 300 --clip 1.0 --noise 0.5
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_digits

import fuser
import fuser.numpy as jnp


def logits(parameters, x):
    """Softmax regression on a hidden layer of tanh units."""
    return jnp.tanh(x @ parameters["w1"] + parameters["b1"]) @ parameters["w2"] + parameters["b2"]


def loss(parameters, x, label):
    """Minus the log probability of one image's label."""
    return -fuser.nn.log_softmax(logits(parameters, x))[label]


def example_gradients(parameters, x, labels):
    """The gradient of each example by itself: the tree of the parameters with a leading dimension."""
    return fuser.vmap(fuser.grad(loss), in_axes=(None, 0, 0))(parameters, x, labels)


def norms(gradients):
    """The length of each example's gradient over all parameters together."""
    squares = [(g * g).reshape(g.shape[0], -1).sum(axis=1) for g in fuser.tree.leaves(gradients)]
    return jnp.sqrt(sum(squares))


def clipped_sum(gradients, clip):
    """The sum over examples of gradients no longer than `clip`, and the norms before."""
    lengths = norms(gradients)
    factors = jnp.minimum(1, clip / jnp.maximum(lengths, 1e-12))
    return fuser.tree.map(lambda g: jnp.tensordot(factors, g, axes=1), gradients), lengths


def noisy(key, tree, scale):
    """The tree with normal noise added to every leaf."""
    leaves, structure = fuser.tree.flatten(tree)
    keys = fuser.random.split(key, len(leaves))
    return fuser.tree.unflatten(structure, [x + scale * fuser.random.normal(k, x.shape) for k, x in zip(keys, leaves)])


@fuser.jit
def step(key, parameters, x, labels, rate, clip, noise):
    """One private step; also the share of gradients that were clipped."""
    total, lengths = clipped_sum(example_gradients(parameters, x, labels), clip)
    gradients = fuser.tree.map(lambda g: g / len(x), noisy(key, total, noise * clip))
    parameters = fuser.tree.map(lambda p, g: p - rate * g, parameters, gradients)
    return parameters, (lengths > clip).mean()


def digits():
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    x, labels = data.data[order].astype(np.float32) / 16, data.target[order].astype(np.int32)
    return (x[360:], labels[360:]), (x[:360], labels[:360])


def main(arguments=None):
    """Train with clipped and noisy gradients; returns the held-out accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--clip", type=float, default=1.0, help="longest gradient of one example")
    parser.add_argument("--noise", type=float, default=0.5, help="standard deviation of the noise, in clips")
    options = parser.parse_args(arguments)
    (x, labels), held_out = digits()
    key = fuser.random.key(0)
    parameters = {
        "w1": fuser.random.normal(fuser.random.fold_in(key, 1), (64, options.hidden)) / 8,
        "b1": jnp.zeros(options.hidden),
        "w2": fuser.random.normal(fuser.random.fold_in(key, 2), (options.hidden, 10)) / options.hidden**0.5,
        "b2": jnp.zeros(10),
    }
    rng, clipped = np.random.default_rng(1), 0.0
    for number in range(options.steps):
        rows = rng.choice(len(x), options.batch, replace=False)
        step_key = fuser.random.fold_in(key, 100 + number)
        rate, clip, noise = options.rate, options.clip, options.noise
        parameters, share = step(step_key, parameters, x[rows], labels[rows], rate, clip, noise)
        clipped += float(share) / options.steps
    found = np.asarray(logits(parameters, held_out[0])).argmax(axis=1)
    score = float((found == held_out[1]).mean())
    print(
        f"{options.steps} steps of {options.batch} examples: {clipped:.0%} of the gradients were clipped; "
        f"{score:.1%} of {len(found)} held-out digits right"
    )
    return score


if __name__ == "__main__":
    main()
