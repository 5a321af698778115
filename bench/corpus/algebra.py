"""Linear algebra, polynomials and small matrices."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import Polynomial, chebyshev

from bench.corpus.case import Case, grid, side


def ridge(x, y, strength):
    return np.linalg.solve(x.T @ x + strength * np.eye(x.shape[1]), x.T @ y)


def power_iteration(matrix, tolerance):
    v = np.ones(len(matrix)) / np.sqrt(len(matrix))
    value, change = 0.0, np.inf
    while change > tolerance:
        w = matrix @ v
        new = v @ w
        v = w / np.linalg.norm(w)
        change, value = abs(new - value), new
    return value, v


def gram_schmidt(a):
    q = np.zeros_like(a)
    for k in range(a.shape[1]):
        v = a[:, k] - q[:, :k] @ (q[:, :k].T @ a[:, k])
        q[:, k] = v / np.linalg.norm(v)
    return q


def sample_gaussian(mean, covariance, rng, count):
    return mean + rng.standard_normal((count, len(mean))) @ np.linalg.cholesky(covariance).T


def gaussian_log_likelihood(x, mean, covariance):
    _, logdet = np.linalg.slogdet(covariance)
    d = x - mean
    quadratic = np.einsum("ij,ij->i", d @ np.linalg.inv(covariance), d)
    return -0.5 * (quadratic + logdet + x.shape[1] * np.log(2 * np.pi))


def fit_polynomial(x, y):
    fitted = Polynomial.fit(x, y, 4)
    return fitted(x) - y


def chebyshev_series(x, coefficients):
    return chebyshev.chebval(x, coefficients)


def kalman(state, covariance, measurement, transition, observation, q, r):
    state = transition @ state
    covariance = transition @ covariance @ transition.T + q
    innovation = measurement - observation @ state
    s = observation @ covariance @ observation.T + r
    gain = covariance @ observation.T @ np.linalg.inv(s)
    return state + gain @ innovation, (np.eye(len(state)) - gain @ observation) @ covariance


def invert_small(matrices):
    return np.linalg.inv(matrices + 3 * np.eye(3))


def low_rank(matrix, k):
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    return (u[:, :k] * s[:k]) @ vt[:k]


def attention(q, k, v):
    scores = np.einsum("hid,hjd->hij", q, k) / q.shape[-1] ** 0.5
    scores -= scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores)
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("hij,hjd->hid", weights, v)


def conjugate_gradient(a, b, tolerance):
    x = np.zeros_like(b)
    r = b - a @ x
    p, rr = r.copy(), r @ r
    for _ in range(len(b)):
        ap = a @ p
        alpha = rr / (p @ ap)
        x += alpha * p
        r -= alpha * ap
        new = r @ r
        if np.sqrt(new) < tolerance:
            break
        p = r + new / rr * p
        rr = new
    return x


def matrix_root(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T


def table_of_differences(x, y):
    return np.abs(np.subtract.outer(x, y)).min(axis=1), np.add.outer(x, y).max()


def random_walk_matrix(weights):
    degree = weights.sum(axis=1)
    if (degree == 0).any():
        raise ValueError("a node without neighbours")
    return weights / degree[:, None]


def affine(points, matrix, offset):
    return points @ matrix.T + offset


def _system(random, size):
    n = side(size)
    a = random.random((n, n))
    return a @ a.T / n + np.eye(n), random.random(n)


def _moments(random, size):
    x = random.standard_normal((size // 6, 6))
    return x, x.mean(axis=0), np.cov(x, rowvar=False)


def _tracking(random, size):
    transition = np.eye(4) + 0.1 * np.eye(4, k=2)
    return random.random(4), np.eye(4), random.random(2), transition, np.eye(2, 4), 0.01 * np.eye(4), 0.1 * np.eye(2)


def _heads(random, size):
    return tuple(random.standard_normal((4, max(4, size // 128), 32)).astype(np.float32) for _ in range(3))


def _curve(random, size):
    x = np.linspace(-3, 3, size)
    return x, np.sin(x) + 0.1 * random.standard_normal(size)


CASES = [
    Case(ridge, lambda random, size: (random.random((size // 16, 16)), random.random(size // 16), 0.1), 64_000),
    Case(power_iteration, lambda random, size: (_system(random, size)[0], 1e-10), 40_000),
    Case(gram_schmidt, lambda random, size: (random.random((size // 10, 10)),), 20_000),
    Case(
        sample_gaussian,
        lambda random, size: (np.zeros(6), _moments(random, 600)[2], np.random.default_rng(4), size // 6),
        120_000,
    ),
    Case(gaussian_log_likelihood, _moments, 240_000),
    Case(fit_polynomial, _curve, 20_000),
    Case(chebyshev_series, lambda random, size: (2 * random.random(size) - 1, random.random(10)), 200_000),
    Case(kalman, _tracking, 4),
    Case(invert_small, lambda random, size: (random.random((size // 9, 3, 3)),), 18_000),
    Case(low_rank, lambda random, size: (grid(random, size), 5), 22_500),
    Case(attention, _heads, 32_768),
    Case(conjugate_gradient, lambda random, size: (*_system(random, size), 1e-8), 40_000),
    Case(matrix_root, lambda random, size: (_system(random, size)[0],), 10_000),
    Case(table_of_differences, lambda random, size: (random.random(side(size)), random.random(side(size))), 500_000),
    Case(random_walk_matrix, lambda random, size: (grid(random, size),), 250_000),
    Case(
        affine, lambda random, size: (random.random((size // 3, 3)), random.random((3, 3)), random.random(3)), 300_000
    ),
]
