"""Workloads with gradients and random numbers: cross-entropy with its gradient, a train step, simulated prices.

JAX and fuser run `program` with `value_and_grad` and keys; torch its own autograd; NumPy and the loops the gradient by hand.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import Workload
from bench.workloads.rows import logits_and_labels

RATE = 0.1  # of learning
STRIKE, INTEREST, VOLATILITY, STEPS = 100.0, 0.03, 0.25, 64


def _mean_loss(np: Any, logits: Any, labels: Any) -> Any:
    """The mean over rows of log-sum-exp minus the label's logit."""
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    picked = np.take_along_axis(shifted, labels[:, None], axis=-1)[:, 0]
    return np.mean(np.log(np.sum(np.exp(shifted), axis=-1)) - picked)


def cross_entropy_gradient(np: Any, logits: Any, labels: Any) -> Any:
    """The mean loss and its gradient by the formula."""
    e = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    share = e / np.sum(e, axis=-1, keepdims=True)
    is_label = labels[:, None] == np.arange(logits.shape[-1], dtype=labels.dtype)[None, :]
    return _mean_loss(np, logits, labels), (share - is_label) / np.asarray(len(logits), logits.dtype)


def _cross_entropy(library: Any, logits: Any, labels: Any) -> Any:
    """The mean loss as users of JAX write it."""
    log_share = library.nn.log_softmax(logits, axis=-1)
    return -library.numpy.mean(library.numpy.take_along_axis(log_share, labels[:, None], axis=-1))


def _cross_entropy_program(library: Any, logits: Any, labels: Any) -> Any:
    return library.value_and_grad(lambda x: _cross_entropy(library, x, labels))(logits)


def _cross_entropy_torch(logits: Any, labels: Any) -> Any:
    import torch
    from torch.nn import functional

    gradient, loss = torch.func.grad_and_value(functional.cross_entropy)(logits, labels)
    return loss, gradient


def _cross_entropy_numba() -> Callable[..., Any]:
    import numba

    @numba.njit(parallel=True, fastmath={"reassoc", "contract"})
    def run(logits, labels):  # type: ignore[no-untyped-def]
        out = np.empty_like(logits)
        losses = np.empty(logits.shape[0], logits.dtype)
        rows = np.float32(logits.shape[0])
        for i in numba.prange(logits.shape[0]):
            top = logits[i, 0]
            for j in range(logits.shape[1]):
                top = max(top, logits[i, j])
            total = np.float32(0.0)
            for j in range(logits.shape[1]):
                e = math.exp(logits[i, j] - top)
                out[i, j] = e
                total += e
            losses[i] = math.log(total) - (logits[i, labels[i]] - top)
            scale = np.float32(1.0) / (total * rows)
            for j in range(logits.shape[1]):
                out[i, j] *= scale
            out[i, labels[i]] -= np.float32(1.0) / rows
        return losses.mean(), out

    return run


def _network(random: np.random.Generator, batch: int, inputs: int, hidden: int, classes: int) -> tuple[np.ndarray, ...]:
    sizes = (inputs, hidden, hidden, classes)
    layers = [
        (random.standard_normal((a, b)) / a**0.5, random.standard_normal(b) * 0.1) for a, b in itertools.pairwise(sizes)
    ]
    labels = random.integers(0, classes, batch, dtype=np.int32)
    return random.standard_normal((batch, inputs)), labels, *(array for layer in layers for array in layer)


def mlp_train_step(np: Any, x: Any, labels: Any, *parameters: Any) -> Any:
    """The mean loss of a three-layer network, and its parameters after a step down the gradient, by hand."""
    w1, b1, w2, b2, w3, b3 = parameters
    h1 = np.maximum(x @ w1 + b1, 0.0)
    h2 = np.maximum(h1 @ w2 + b2, 0.0)
    loss, d3 = cross_entropy_gradient(np, h2 @ w3 + b3, labels)
    d2 = (d3 @ w3.T) * (h2 > 0)
    d1 = (d2 @ w2.T) * (h1 > 0)
    slopes = (x.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ d3, d3.sum(0))
    return loss, *(p - np.asarray(RATE, p.dtype) * slope for p, slope in zip(parameters, slopes))


def _mlp_program(library: Any, x: Any, labels: Any, *parameters: Any) -> Any:
    np = library.numpy
    layers = [parameters[at : at + 2] for at in range(0, len(parameters), 2)]

    def loss(layers: Any) -> Any:
        hidden = x
        for w, b in layers[:-1]:
            hidden = np.maximum(hidden @ w + b, 0.0)
        w, b = layers[-1]
        return _cross_entropy(library, hidden @ w + b, labels)

    value, slopes = library.value_and_grad(loss)(layers)
    moved = library.tree.map(lambda p, slope: p - RATE * slope, layers, slopes)
    return value, *library.tree.leaves(moved)


def _mlp_torch(x: Any, labels: Any, *parameters: Any) -> Any:
    import torch
    from torch.nn import functional

    def loss(parameters: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = parameters
        hidden = torch.relu(torch.addmm(b1, x, w1))
        return functional.cross_entropy(torch.addmm(b3, torch.relu(torch.addmm(b2, hidden, w2)), w3), labels)

    slopes, value = torch.func.grad_and_value(loss)(parameters)
    return value, *(p - RATE * slope for p, slope in zip(parameters, slopes))


def _mlp_flops(batch: int, inputs: int, hidden: int, classes: int) -> int:
    forward = 2 * batch * (inputs * hidden + hidden * hidden + hidden * classes)
    return 3 * forward - 2 * batch * inputs * hidden


def _paths(random: np.random.Generator, paths: int) -> tuple[np.ndarray, ...]:
    return np.full(paths, 100.0), np.array([0, 17], np.uint32)


def monte_carlo_paths(np: Any, spots: Any, seed: Any) -> Any:
    """The price of a call on the mean over a path of 64 random steps, one path a spot."""
    generator, (drift, spread) = np.random.default_rng(int(seed[1])), _moves()
    x, total = np.log(spots), np.zeros_like(spots)
    for _ in range(STEPS):
        x = x + (drift + spread * generator.standard_normal(x.shape, x.dtype))
        total = total + np.exp(x)
    return math.exp(-INTEREST) * np.mean(np.maximum(total / STEPS - STRIKE, 0.0))


def _moves() -> tuple[float, float]:
    """Mean and standard deviation of a step of the logarithm."""
    return (INTEREST - 0.5 * VOLATILITY**2) / STEPS, VOLATILITY / STEPS**0.5


def _paths_program(library: Any, spots: Any, seed: Any) -> Any:
    """All steps of all paths as one array."""
    np, random, (drift, spread) = library.numpy, library.random, _moves()
    shocks = random.normal(random.wrap_key_data(seed), (STEPS, *spots.shape), spots.dtype)
    prices = np.exp(np.log(spots) + np.cumsum(drift + spread * shocks, axis=0))
    return math.exp(-INTEREST) * np.mean(np.maximum(np.mean(prices, axis=0) - STRIKE, 0.0))


def _paths_loop(library: Any, spots: Any, seed: Any) -> Any:
    """A loop over the steps, which keeps no more of the paths than their sums."""
    np, random, (drift, spread) = library.numpy, library.random, _moves()
    key = random.wrap_key_data(seed)

    def body(number: Any, state: Any) -> Any:
        x, total = state
        x = x + (drift + spread * random.normal(random.fold_in(key, number), x.shape, x.dtype))
        return x, total + np.exp(x)

    _, total = library.lax.fori_loop(0, STEPS, body, (np.log(spots), np.zeros_like(spots)))
    return math.exp(-INTEREST) * np.mean(np.maximum(total / STEPS - STRIKE, 0.0))


def _paths_torch(spots: Any, seed: Any) -> Any:
    import torch

    drift, spread = _moves()
    shocks = torch.randn((STEPS, *spots.shape), dtype=spots.dtype, device=spots.device)
    prices = torch.exp(torch.log(spots) + torch.cumsum(drift + spread * shocks, 0))
    return math.exp(-INTEREST) * torch.mean(torch.clamp(torch.mean(prices, 0) - STRIKE, min=0.0))


def _paths_numba() -> Callable[..., Any]:
    import numba

    drift, spread = (np.float32(value) for value in _moves())
    strike, zero, discount = np.float32(STRIKE), np.float32(0.0), math.exp(-INTEREST)

    @numba.njit(parallel=True, fastmath={"reassoc", "contract"})
    def run(spots, seed):  # type: ignore[no-untyped-def]
        total = 0.0
        for i in numba.prange(spots.size):
            x, mean = math.log(spots[i]), zero
            for _ in range(STEPS):
                x += drift + spread * np.float32(np.random.standard_normal())
                mean += math.exp(x)
            total += max(mean / STEPS - strike, zero)
        return discount * total / spots.size

    return run


_PATHS = {"tiny": (1 << 16,), "small": (1 << 16,), "medium": (1 << 18,), "full": (1 << 20,), "large": (1 << 24,)}
WORKLOADS = (
    Workload(
        "cross_entropy_gradient",
        "the mean loss of rows of logits, and its gradient",
        {"tiny": (33, 65), "small": (256, 256), "medium": (1024, 1024), "full": (8192, 4096), "large": (16384, 8192)},
        logits_and_labels,
        cross_entropy_gradient,
        flops=lambda n, m: 7 * n * m,
        program=_cross_entropy_program,
        torch=_cross_entropy_torch,
        numba=_cross_entropy_numba,
        dtypes=("float32", "float64"),
        floor=1e-8,
        slack=4.0,
    ),
    Workload(
        "mlp_train_step",
        "a step of gradient descent of a three-layer network",
        {
            "tiny": (16, 24, 16, 5),
            "small": (32, 64, 64, 10),
            "medium": (64, 784, 256, 10),
            "full": (256, 784, 512, 10),
            "large": (4096, 784, 2048, 10),
        },
        _network,
        mlp_train_step,
        flops=_mlp_flops,
        program=_mlp_program,
        torch=_mlp_torch,
        dtypes=("float32", "float64"),
        slack=4.0,
    ),
    *(
        Workload(
            name,
            f"the price of a call on the mean over paths of {STEPS} random steps, {words}",
            _PATHS,
            _paths,
            monte_carlo_paths,
            flops=lambda paths: 50 * STEPS * paths,
            program=program,
            torch=_paths_torch,
            numba=_paths_numba,
            dtypes=("float32",),
            slack=8000.0,  # 4 %: five standard errors of the smallest run, in both results
            random=True,
        )
        for name, words, program in (
            ("monte_carlo_paths", "an array of all steps", _paths_program),
            ("monte_carlo_loop", "a loop over the steps", _paths_loop),
        )
    ),
)
