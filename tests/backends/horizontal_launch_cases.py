"""Programs of several small elementwise kernels, which share a launch on GPUs."""

from __future__ import annotations

from typing import Any

import fuser.numpy as fnp
from tests.backends.product_cases import Form, f32, of


def adam(parameters: Any, slopes: Any, means: Any, squares: Any, rate: Any = 1e-3) -> Any:
    results = []
    for p, g, m, v in zip(parameters, slopes, means, squares):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        results.append((p - rate * m / (fnp.sqrt(v) + 1e-8), m, v))
    return results


def different(x: Any, y: Any, z: Any) -> Any:
    """Parts with one axis and two, complex and wide, transposed and broadcast."""
    return x.T + y, fnp.exp(z) * 1j + z, (x[:, :1] + y[0]).astype("float16"), fnp.flip(z) * 2, z > 0


def of_flat(*arrays: Any) -> Any:
    """`adam` of arrays one after the other."""
    count = len(arrays) // 4
    found = adam(*(arrays[n * count : (n + 1) * count] for n in range(4)))
    return [x for several in found for x in several]


def with_rates(*arrays: Any) -> Any:
    """Arrays of several ranks, each with a rate of its own, which is of rank 0."""
    count = len(arrays) // 2
    return [x * rate + 1 for x, rate in zip(arrays[:count], arrays[count:])]


HORIZONTAL: dict[str, Form] = {
    "adam": (of_flat, tuple(f32(*shape) for shape in 4 * ((8, 8), (8,), (7, 3), (1,)))),
    "many": (of_flat, tuple(f32(*shape) for shape in 4 * (5 * ((8, 8), (8,), (40,), (7, 3), (1,))))),
    "rates": (with_rates, (*(f32(3 + n) for n in range(9)), f32(4, 6), f32(), *11 * (f32(),))),
    "different": (different, (f32(20, 20), f32(20, 20), f32(300))),
    "narrow": (lambda x, y: (x + 1, y * 2), (of("bfloat16", 100), of("int8", 33, 5))),
}
