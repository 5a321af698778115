"""Statistics: moments, distributions, groups, resampling."""

from __future__ import annotations

import numpy as np
import scipy.special

from bench.corpus.case import Case


def standard_scores(x):
    return (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)


def covariance(x):
    centred = x - x.mean(axis=0)
    return centred.T @ centred / (len(x) - 1)


def correlations(x):
    return np.corrcoef(x, rowvar=False)


def histogram_of(x, bins):
    return np.histogram(x, bins=bins)


def count_labels(labels):
    return np.unique(labels, return_counts=True)


def group_means(values, groups, count):
    totals = np.zeros(count)
    sizes = np.zeros(count, int)
    np.add.at(totals, groups, values)
    np.add.at(sizes, groups, 1)
    return totals / np.maximum(sizes, 1)


def weighted_histogram(x, weights, low, high):
    position = ((x - low) / (high - low) * 64).astype(int)
    return np.bincount(np.clip(position, 0, 63), weights=weights, minlength=64)


def skew_and_kurtosis(x):
    centred = x - np.mean(x)
    variance = np.mean(centred**2)
    return np.mean(centred**3) / variance**1.5, np.mean(centred**4) / variance**2 - 3


def bootstrap_means(x, rng, repeats):
    picks = rng.integers(0, len(x), (repeats, len(x)))
    means = x[picks].mean(axis=1)
    return np.quantile(means, [0.025, 0.975])


def kmeans_step(points, centres):
    distance = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    label = distance.argmin(axis=1)
    sums = np.zeros_like(centres)
    np.add.at(sums, label, points)
    counts = np.bincount(label, minlength=len(centres))
    centres[:] = sums / np.maximum(counts, 1)[:, None]
    return label


def least_squares(x, y):
    design = np.column_stack([np.ones(len(x)), x])
    solution, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    return solution, rank


def principal_components(x, k):
    centred = x - x.mean(axis=0)
    _, s, vt = np.linalg.svd(centred, full_matrices=False)
    return centred @ vt[:k].T, s[:k] ** 2 / (s**2).sum()


def mahalanobis(x, mean, covariance):
    d = x - mean
    return np.sqrt(np.einsum("ij,ij->i", d, np.linalg.solve(covariance, d.T).T))


def softmax_loss(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -logs[np.arange(len(labels)), labels].mean()


def density(samples, points, width):
    z = (points[:, None] - samples[None, :]) / width
    return np.exp(-0.5 * z * z).sum(axis=1) / (len(samples) * width * np.sqrt(2 * np.pi))


def winsorise(x, share):
    low, high = np.quantile(x, [share, 1 - share])
    x[x < low] = low
    x[x > high] = high


def empirical_distribution(x, points):
    return np.searchsorted(np.sort(x), points, side="right") / len(x)


def label_entropy(labels):
    _, counts = np.unique(labels, return_counts=True)
    p = counts / counts.sum()
    return -(p * np.log(p)).sum()


def ranks(x):
    order = x.argsort()
    result = np.empty(len(x), int)
    result[order] = np.arange(len(x))
    return result


def trimmed_mean(x, limit):
    far = np.abs(x - x.mean()) > limit * x.std()
    if far.any():
        x = x[~far]
    return x.mean()


def gamma_log_likelihood(x, shape, scale):
    return np.sum((shape - 1) * np.log(x) - x / scale - scipy.special.gammaln(shape) - shape * np.log(scale))


def fill_missing(table):
    missing = np.isnan(table)
    means = np.nanmean(table, axis=0)
    table[missing] = np.take(means, np.nonzero(missing)[1])


def pairwise_distances(a, b):
    return np.sqrt(np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T, 0))


def estimate_pi(rng, n):
    x, y = rng.random(n), rng.random(n)
    return 4 * np.count_nonzero(x * x + y * y < 1) / n


def _table(random, size, columns=8):
    return random.standard_normal((size // columns, columns)) + np.arange(columns)


def _groups(random, size):
    return random.random(size), random.integers(0, 50, size), 50


def _points(random, size):
    return random.standard_normal((size // 2, 2)), random.standard_normal((8, 2))


def _gaussian(random, size):
    x = _table(random, size, 4)
    return x, x.mean(axis=0), np.cov(x, rowvar=False)


def _logits(random, size):
    return random.standard_normal((size // 10, 10)), random.integers(0, 10, size // 10)


def _missing(random, size):
    table = _table(random, size)
    table[random.random(table.shape) < 0.05] = np.nan
    table[0] = 0
    return (table,)


def _regression(random, size):
    x = random.standard_normal((size // 5, 5))
    return x, x @ np.arange(5.0) + 0.1 * random.standard_normal(len(x))


def _pairs(random, size):
    return random.random((size // 32, 16)), random.random((size // 32 + 3, 16))


CASES = [
    Case(standard_scores, lambda random, size: (_table(random, size),), 800_000),
    Case(covariance, lambda random, size: (_table(random, size),), 400_000),
    Case(correlations, lambda random, size: (_table(random, size),), 200_000),
    Case(histogram_of, lambda random, size: (random.standard_normal(size), 50), 300_000),
    Case(count_labels, lambda random, size: (random.integers(0, 100, size),), 200_000),
    Case(group_means, _groups, 500_000),
    Case(weighted_histogram, lambda random, size: (random.random(size), random.random(size), 0.1, 0.9), 500_000),
    Case(skew_and_kurtosis, lambda random, size: (random.standard_normal(size),), 1_000_000),
    Case(bootstrap_means, lambda random, size: (random.random(size), np.random.default_rng(3), 200), 2_000),
    Case(kmeans_step, _points, 100_000),
    Case(least_squares, _regression, 50_000),
    Case(principal_components, lambda random, size: (_table(random, size), 3), 80_000),
    Case(mahalanobis, _gaussian, 200_000),
    Case(softmax_loss, _logits, 500_000),
    Case(density, lambda random, size: (random.standard_normal(size), np.linspace(-3, 3, 200), 0.2), 5_000),
    Case(winsorise, lambda random, size: (random.standard_normal(size), 0.05), 200_000),
    Case(empirical_distribution, lambda random, size: (random.random(size), random.random(500)), 100_000),
    Case(label_entropy, lambda random, size: (random.integers(0, 20, size),), 100_000),
    Case(ranks, lambda random, size: (random.random(size),), 100_000),
    Case(trimmed_mean, lambda random, size: (random.standard_normal(size), 2.5), 500_000),
    Case(gamma_log_likelihood, lambda random, size: (random.gamma(2.0, 1.5, size), 2.0, 1.5), 500_000),
    Case(fill_missing, _missing, 200_000),
    Case(pairwise_distances, _pairs, 20_000),
    Case(estimate_pi, lambda random, size: (np.random.default_rng(5), size), 500_000),
]
