"""Strings of in-place updates: optimisers, buffers, tables."""

from __future__ import annotations

import numpy as np

from bench.corpus.case import Case, grid, side


class Momentum:
    """An optimiser with a state of its own."""

    def __init__(self, like: np.ndarray, rate: float, decay: float) -> None:
        self.velocity, self.rate, self.decay = np.zeros_like(like), rate, decay

    def step(self, weights: np.ndarray, gradient: np.ndarray) -> None:
        self.velocity *= self.decay
        self.velocity += gradient
        weights -= self.rate * self.velocity


def adam_step(weights, gradient, m, v, step):
    m *= 0.9
    m += 0.1 * gradient
    v *= 0.999
    v += 0.001 * gradient**2
    weights -= 0.001 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)


def momentum_step(optimiser, weights, gradient):
    optimiser.step(weights, gradient)


def relu_in_place(x):
    x[x < 0] = 0


def count_events(table, rows, columns):
    np.add.at(table, (rows, columns), 1)
    return table.sum(axis=1)


def swap_rows(matrix, i, j):
    matrix[[i, j]] = matrix[[j, i]]
    matrix[i] *= -1


def chain_into(a, b, out):
    np.multiply(a, b, out=out)
    np.add(out, a, out=out)
    np.sqrt(np.abs(out, out=out), out=out)
    return out


def normalise_rows(x):
    x /= np.maximum(np.abs(x).sum(axis=1, keepdims=True), 1e-12)


def regularise(matrix, ridge):
    matrix += matrix.T
    matrix /= 2
    np.fill_diagonal(matrix, matrix.diagonal() + ridge)


def push_samples(buffer, new):
    count = len(new)
    buffer[:-count] = buffer[count:]
    buffer[-count:] = new
    return buffer.mean()


def running_total(x):
    np.add.accumulate(x, out=x)


def update_extremes(low, high, x):
    np.minimum(low, x, out=low)
    np.maximum(high, x, out=high)


def divide_where(a, b, out):
    out[...] = 0
    np.divide(a, b, out=out, where=b != 0)


def overwrite(x, mask, replacement):
    np.copyto(x, replacement, where=mask)
    np.putmask(x, x > 0.9, 0.9)


def scatter_rows(table, index, rows):
    table[index] = rows
    table[index, 0] += 1


def shift_levels(levels):
    upper, lower = levels[1:], levels[:-1]
    upper[...] = 0.5 * (upper + lower)
    lower -= upper
    return levels


def clear_border(image, width):
    edges = [image[:width], image[-width:], image[:, :width], image[:, -width:]]
    for edge in edges:
        edge[...] = 0


def decode_pixels(pixels, table, out):
    np.take(table, pixels, axis=0, out=out)
    out[..., 3] = 255


def sort_and_rank(scores, top):
    scores.sort()
    best = scores[::-1][:top]
    best -= best[-1]
    return best.copy()


def fade(frames, start, stop):
    ramp = np.linspace(start, stop, len(frames), dtype=frames.dtype)
    for frame, gain in zip(frames, ramp):
        frame *= gain


def _weights(random, size):
    return *(random.standard_normal(size).astype(np.float32) for _ in range(3)), np.full(size, 0.1, np.float32), 10


def _optimiser(random, size):
    weights = random.standard_normal(size)
    return Momentum(weights, 0.01, 0.9), weights, random.standard_normal(size)


def _events(random, size):
    return np.zeros((24, 100), int), random.integers(0, 24, size), random.integers(0, 100, size)


def _quotient(random, size):
    return random.random(size), random.integers(0, 5, size).astype(float), np.empty(size)


def _rows(random, size):
    count = size // 16
    index = random.permutation(count)[: count // 4]
    return random.random((count, 16)), index, random.random((len(index), 16))


def _pixels(random, size):
    shape = (side(size), side(size))
    table = random.integers(0, 256, (256, 4)).astype(np.uint8)
    return random.integers(0, 256, shape), table, np.empty((*shape, 4), np.uint8)


CASES = [
    Case(adam_step, _weights, 1_000_000),
    Case(momentum_step, _optimiser, 500_000),
    Case(relu_in_place, lambda random, size: (random.standard_normal(size),), 1_000_000),
    Case(count_events, _events, 100_000),
    Case(swap_rows, lambda random, size: (grid(random, size), 1, 5), 250_000),
    Case(chain_into, lambda random, size: (*(random.random(size) for _ in range(2)), np.empty(size)), 1_000_000),
    Case(normalise_rows, lambda random, size: (random.standard_normal((size // 50, 50)),), 500_000),
    Case(regularise, lambda random, size: (grid(random, size), 0.1), 250_000),
    Case(push_samples, lambda random, size: (random.random(size), random.random(64)), 4_096),
    Case(running_total, lambda random, size: (random.random(size),), 500_000),
    Case(update_extremes, lambda random, size: tuple(random.random(size) for _ in range(3)), 1_000_000),
    Case(divide_where, _quotient, 500_000),
    Case(overwrite, lambda random, size: (random.random(size), random.random(size) < 0.3, 0.25), 500_000),
    Case(scatter_rows, _rows, 500_000),
    Case(shift_levels, lambda random, size: (random.random((20, size // 20)),), 500_000),
    Case(clear_border, lambda random, size: (grid(random, size), 3), 250_000),
    Case(decode_pixels, _pixels, 250_000),
    Case(sort_and_rank, lambda random, size: (random.random(size), 20), 50_000),
    Case(fade, lambda random, size: (random.random((12, size // 12)).astype(np.float32), 1.0, 0.2), 300_000),
]
