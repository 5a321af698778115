"""k-means on scikit-learn's handwritten digits: the steps in NumPy, accelerated; and how well the clusters match the digits.

python examples/kmeans_digits.py --size 1797 --clusters 10
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits

import fuser


def nearest(points, centres):
    """The nearest centre of each point, and the squared distance to it: |p|² - 2 p·c + |c|²."""
    products = points @ centres.T
    distances = (points**2).sum(axis=1, keepdims=True) - 2 * products + (centres**2).sum(axis=1)
    return distances.argmin(axis=1), np.maximum(distances.min(axis=1), 0)


def lloyd(points, centres):
    """One step of Lloyd's algorithm: the centres moved to the mean of their points, and the total squared distance before."""
    labels, distances = nearest(points, centres)
    member = (labels[:, None] == np.arange(len(centres))).astype(points.dtype)
    counts = member.sum(axis=0)[:, None]
    moved = np.where(counts > 0, (member.T @ points) / np.maximum(counts, 1), centres)
    return moved, distances.sum()


def first_centres(points, clusters):
    """k-means++: each further centre drawn in proportion to its squared distance from those that are there."""
    rng = np.random.default_rng(3)
    centres = points[rng.integers(len(points), size=1)]
    while len(centres) < clusters:
        distances = ((points[:, None] - centres[None]) ** 2).sum(axis=2).min(axis=1)
        centres = np.concatenate([centres, points[rng.choice(len(points), size=1, p=distances / distances.sum())]])
    return centres


def fit(step, points, centres, rounds):
    """Centres after so many steps, the total squared distance before the last one, and the seconds it took."""
    start = time.perf_counter()
    total = 0.0
    for _ in range(rounds):
        centres, total = step(points, centres)
    return centres, total, time.perf_counter() - start


def purity(labels, digits, clusters):
    """The share of points whose cluster is mostly of their own digit."""
    return sum(np.bincount(digits[labels == k]).max() for k in range(clusters) if np.any(labels == k)) / len(digits)


def main(arguments=None):
    """Cluster with both, compare, time; returns the purity."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=1797, help="number of digits, at most 1797")
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=30, help="steps of Lloyd's algorithm")
    options = parser.parse_args(arguments)
    digits = load_digits()
    points, names = digits.data[: options.size] / 16, digits.target[: options.size]
    centres = first_centres(points, options.clusters)
    fast = fuser.accelerate(lloyd)
    fast(points, centres)
    wanted, total, numpy_time = fit(lloyd, points, centres, options.rounds)
    found, fast_total, fuser_time = fit(fast, points, centres, options.rounds)
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(fast_total, total, rtol=1e-8)
    labels, _ = fuser.accelerate(nearest)(points, found)
    score = purity(labels, names, options.clusters)
    print(
        f"{len(points)} digits, {options.clusters} clusters, {options.rounds} steps: NumPy {numpy_time * 1e3:.1f} ms, accelerated {fuser_time * 1e3:.1f} ms"
    )
    print(
        f"{numpy_time / fuser_time:.1f} times as fast; total squared distance {total:.1f}; {score:.0%} of the digits lie in a cluster of their own digit"
    )
    return score


if __name__ == "__main__":
    main()
