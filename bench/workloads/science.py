"""Scientific code on lists of things: a histogram, a sparse matrix, particles, clusters, images, attention.

The mathematics of well-known kernels of scientific benchmark suites: indexed sums, all pairs, products of matrices between
other things.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import Workload

BINS = 1000
NEIGHBOURS = 16  # entries in a row of the sparse matrix, on average
PARTICLE_STEPS, PARTICLE_STEP, SOFTENING = 200, 0.01, 0.1
CLUSTERS, CLUSTER_STEPS = 16, 10
CHANNELS, FEATURES, KERNEL = 3, 16, 5
HEADS = 8


def histogram(np: Any, radius: Any, values: Any) -> Any:
    """The mean of the values in each of 1000 rings (azimuthal integration)."""
    ring = (radius * BINS).astype(np.int32)
    counts = np.bincount(ring, minlength=BINS)
    sums = np.bincount(ring, values, minlength=BINS)
    return (sums / counts).astype(values.dtype)


def _histogram_program(library: Any, radius: Any, values: Any) -> Any:
    np = library.numpy
    ring = (radius * BINS).astype(np.int32)
    counts = np.zeros(BINS, np.int32).at[ring].add(1)
    return np.zeros(BINS, values.dtype).at[ring].add(values) / counts


def _histogram_numba() -> Callable[..., Any]:
    import numba

    @numba.njit
    def run(radius, values):  # type: ignore[no-untyped-def]
        counts, sums = np.zeros(BINS, np.int32), np.zeros(BINS, np.float64)
        for i in range(radius.size):
            ring = int(radius[i] * np.float32(BINS))
            counts[ring] += 1
            sums[ring] += values[i]
        return (sums / counts).astype(np.float32)

    return run


def _sparse(random: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    rows = np.sort(random.integers(0, n, NEIGHBOURS * n)).astype(np.int32)
    columns = random.integers(0, n, NEIGHBOURS * n).astype(np.int32)
    return rows, columns, random.standard_normal(NEIGHBOURS * n), random.standard_normal(n)


def sparse_product(np: Any, rows: Any, columns: Any, entries: Any, x: Any) -> Any:
    """A sparse matrix times a vector; the entries are in order of their rows."""
    return np.bincount(rows, entries * x[columns], minlength=len(x)).astype(x.dtype)


def _sparse_program(library: Any, rows: Any, columns: Any, entries: Any, x: Any) -> Any:
    return library.numpy.zeros_like(x).at[rows].add(entries * x[columns], indices_are_sorted=True)


def _sparse_numba() -> Callable[..., Any]:
    import numba

    @numba.njit
    def run(rows, columns, entries, x):  # type: ignore[no-untyped-def]
        out = np.zeros_like(x)
        for i in range(rows.size):
            out[rows[i]] += entries[i] * x[columns[i]]
        return out

    return run


def particles(np: Any, place: Any, speed: Any, mass: Any) -> Any:
    """Where bodies are after 200 leapfrog steps under each other's gravity, and the kinetic energy after each step."""
    state, energies = (place, speed, _pull(np, place, mass)), []
    for _ in range(PARTICLE_STEPS):
        state, energy = _leap(np, state, mass)
        energies.append(energy)
    return state[0], state[1], np.stack(energies)


def _pull(np: Any, place: Any, mass: Any) -> Any:
    """The acceleration of each body; `place` is (3, n)."""
    apart = place[:, None, :] - place[:, :, None]
    inverse = (np.sum(apart * apart, axis=0) + SOFTENING**2) ** -1.5
    return np.sum(apart * (mass * inverse), axis=2)


def _leap(np: Any, state: Any, mass: Any) -> Any:
    place, speed, pull = state
    speed = speed + 0.5 * PARTICLE_STEP * pull
    place = place + PARTICLE_STEP * speed
    pull = _pull(np, place, mass)
    speed = speed + 0.5 * PARTICLE_STEP * pull
    return (place, speed, pull), 0.5 * np.sum(mass * speed * speed)


def _particles_program(library: Any, place: Any, speed: Any, mass: Any) -> Any:
    np = library.numpy
    begin = (place, speed, _pull(np, place, mass))
    (place, speed, _), energies = library.lax.scan(lambda s, _: _leap(np, s, mass), begin, None, length=PARTICLE_STEPS)
    return place, speed, energies


def k_means(np: Any, points: Any, centres: Any) -> Any:
    """The centres of 16 clusters after 10 rounds of Lloyd's method."""
    for _ in range(CLUSTER_STEPS):
        centres = _centred(np, points, centres)
    return centres


def _centred(np: Any, points: Any, centres: Any) -> Any:
    distance = np.sum(centres * centres, axis=1) - 2.0 * (points @ centres.T)
    member = (np.argmin(distance, axis=1)[:, None] == np.arange(CLUSTERS)).astype(points.dtype)
    return (member.T @ points) / np.maximum(np.sum(member, axis=0), 1.0)[:, None]


def _k_means_program(library: Any, points: Any, centres: Any) -> Any:
    np = library.numpy
    return library.lax.fori_loop(0, CLUSTER_STEPS, lambda _, centres: _centred(np, points, centres), centres)


def _clusters(random: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    true = 10.0 * random.standard_normal((CLUSTERS, 8))
    return true[np.arange(n) % CLUSTERS] + random.standard_normal((n, 8)), true + 0.5


def image_layer(np: Any, images: Any, weights: Any, bias: Any) -> Any:
    """A layer of 5 × 5 convolutions over images of 3 channels, and a bias: patches side by side, one product (im2col)."""
    height, width = images.shape[1] - KERNEL + 1, images.shape[2] - KERNEL + 1
    patches = [images[:, i : i + height, j : j + width, :] for i in range(KERNEL) for j in range(KERNEL)]
    return np.concatenate(patches, axis=-1) @ weights.reshape(-1, FEATURES) + bias


def _image_layer_program(library: Any, images: Any, weights: Any, bias: Any) -> Any:
    if not hasattr(library.lax, "conv_general_dilated"):
        return image_layer(library.numpy, images, weights, bias)
    layout = ("NHWC", "HWIO", "NHWC")
    return library.lax.conv_general_dilated(images, weights, (1, 1), "VALID", dimension_numbers=layout) + bias


def attention(np: Any, queries: Any, keys: Any, values: Any) -> Any:
    """Softmax attention of several heads, each array (heads, length, 64)."""
    scores = queries @ np.swapaxes(keys, 1, 2) / 8.0
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return (weights @ values) / np.sum(weights, axis=-1, keepdims=True)


_FLOATS = ("float32", "float64")

WORKLOADS = (
    Workload(
        "histogram",
        f"counts and means in {BINS} bins",
        {"tiny": (20_000,), "small": (50_000,), "medium": (200_000,), "full": (1_000_000,), "large": (1 << 24,)},
        lambda random, n: (random.uniform(0.0, 1.0, n) * (1.0 - 1e-6), random.uniform(0.0, 1.0, n)),
        histogram,
        flops=lambda n: 3 * n,
        program=_histogram_program,
        numba=_histogram_numba,
        dtypes=("float32",),
        slack=400.0,
        numpy_alone=True,
    ),
    Workload(
        "sparse_product",
        "a sparse matrix times a vector, entries in order of their rows",
        {"tiny": (50,), "small": (4096,), "medium": (16_384,), "full": (65_536,), "large": (1 << 20,)},
        _sparse,
        sparse_product,
        flops=lambda n: 2 * NEIGHBOURS * n,
        program=_sparse_program,
        numba=_sparse_numba,
        dtypes=_FLOATS,
        slack=4.0,
        numpy_alone=True,
    ),
    Workload(
        "particles",
        f"{PARTICLE_STEPS} leapfrog steps of bodies under gravity",
        {"tiny": (10,), "small": (25,), "medium": (50,), "full": (100,), "large": (400,)},
        lambda random, n: (*random.standard_normal((2, 3, n)), random.uniform(0.5, 1.5, n) * 20.0 / n),
        particles,
        flops=lambda n: 20 * PARTICLE_STEPS * n * n,
        program=_particles_program,
        dtypes=_FLOATS,
        slack=1000.0,
        iterations=PARTICLE_STEPS,
        numpy_alone=True,
    ),
    Workload(
        "k_means",
        f"{CLUSTER_STEPS} rounds of Lloyd's method, {CLUSTERS} clusters in 8 dimensions",
        {"tiny": (100,), "small": (1000,), "medium": (10_000,), "full": (100_000,), "large": (1_000_000,)},
        _clusters,
        k_means,
        flops=lambda n: CLUSTER_STEPS * n * CLUSTERS * 32,
        program=_k_means_program,
        dtypes=_FLOATS,
        slack=40.0,
        iterations=CLUSTER_STEPS,
        numpy_alone=True,
    ),
    Workload(
        "image_layer",
        f"a layer of {FEATURES} convolutions of {KERNEL} × {KERNEL} over images",
        {"tiny": (2, 9), "small": (8, 32), "medium": (8, 64), "full": (8, 128), "large": (8, 256)},
        lambda random, n, extent: (
            random.standard_normal((n, extent, extent, CHANNELS)),
            random.standard_normal((KERNEL, KERNEL, CHANNELS, FEATURES)) / KERNEL,
            random.standard_normal(FEATURES),
        ),
        image_layer,
        flops=lambda n, extent: 2 * n * (extent - KERNEL + 1) ** 2 * CHANNELS * FEATURES * KERNEL**2,
        program=_image_layer_program,
        dtypes=_FLOATS,
        slack=4.0,
        numpy_alone=True,
    ),
    Workload(
        "attention",
        f"softmax attention, {HEADS} heads of 64",
        {"tiny": (12,), "small": (64,), "medium": (256,), "full": (1024,), "large": (4096,)},
        lambda random, n: tuple(random.standard_normal((3, HEADS, n, 64))),
        attention,
        flops=lambda n: HEADS * n * n * (4 * 64 + 5),
        dtypes=_FLOATS,
        slack=4.0,
        numpy_alone=True,
    ),
)
