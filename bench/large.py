"""Programs of 2,000 equations and more, as fuser and JAX both trace them: what compiling them takes is measured side by side.

In: a library and its NumPy. Out: by name, a function and its arguments. `python -m bench.large fuser residual` prints the
seconds from nothing to a program that is ready to run; the process has compiled something small before.
"""

from __future__ import annotations

import importlib
import itertools
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def programs(library: Any, xnp: Any) -> dict[str, Program]:
    """Each with its arguments, arrays of the library."""
    made = np.random.default_rng(0)
    arrays = lambda *shapes: tuple(xnp.asarray(made.standard_normal(s).astype(np.float32)) for s in shapes)
    widths = [32 + 8 * (n * 7 % 23) for n in range(46)]
    layers = [arrays((a, b), (b,)) for a, b in itertools.pairwise(widths)]
    return {
        "residual": (_residual(xnp), arrays((64, 64), (64, 64))),
        "network": (_network(library, xnp), arrays((64, 64), (4, 64, 64))),
        "perceptron": (_perceptron(library, xnp), (*arrays((64, widths[0])), layers)),
        "chain": (_chain(xnp), arrays((128, 128), (128, 128))),
        "waves": (_waves(xnp), arrays((96, 96), (96, 96), (96, 96))),
        "bodies": (_bodies(xnp), arrays((64, 3), (64, 3), (64,))),
    }


NAMES = ("residual", "network", "perceptron", "chain", "waves", "bodies")


def _residual(xnp: Any) -> Callable[..., Any]:
    """A deep network of elementwise operations and reductions; each layer reads one from half way back."""

    def residual(x: Any, w: Any) -> Any:
        kept = [x]
        for _ in range(200):
            y = xnp.tanh(kept[-1] * w + 0.5) - kept[len(kept) // 2]
            y = y - xnp.sum(y, axis=1, keepdims=True)
            kept.append(xnp.maximum(y, 0.1 * y) * xnp.exp(-y))
        return kept[-1]

    return residual


def _network(library: Any, xnp: Any) -> Callable[..., Any]:
    """The gradient of a deep network of products of one shape."""

    def loss(w: Any, x: Any) -> Any:
        for i in range(50):
            x = xnp.tanh(x @ w[i % 4] + i) * 0.5 + x
            x = x - xnp.mean(x, axis=1, keepdims=True)
            x = x / xnp.sqrt(xnp.mean(x * x, axis=1, keepdims=True) + 1e-5)
        return xnp.sum(x * x)

    return lambda x, w: library.grad(loss)(w, x)


def _perceptron(library: Any, xnp: Any) -> Callable[..., Any]:
    """A training step of a deep network whose every layer has a shape of its own."""

    def loss(layers: Any, x: Any) -> Any:
        for weight, bias in layers:
            x = xnp.maximum(x @ weight + bias, 0.01)
            x = (x - xnp.mean(x, 1, keepdims=True)) / (xnp.std(x, 1, keepdims=True) + 1e-3)
        return xnp.mean(x**2)

    def step(x: Any, layers: Any) -> Any:
        value, slopes = library.value_and_grad(loss)(layers, x)
        return value, [(a - 0.1 * da, b - 0.1 * db) for (a, b), (da, db) in zip(layers, slopes)]

    return step


def _chain(xnp: Any) -> Callable[..., Any]:
    """Elementwise operations drawn at random, each of values that came shortly before."""
    unary = [
        xnp.tanh,
        xnp.sin,
        xnp.cos,
        xnp.abs,
        xnp.arctan,
        lambda a: xnp.exp(-a * a),
        lambda a: xnp.sqrt(a * a + 1.0),
        lambda a: xnp.log1p(a * a),
        lambda a: 1.0 / (1.0 + a * a),
    ]
    binary = [
        xnp.add,
        xnp.subtract,
        xnp.multiply,
        xnp.maximum,
        xnp.arctan2,
        lambda a, b: xnp.where(a > b, a, -b),
    ]

    def chain(x: Any, y: Any) -> Any:
        pick, values = random.Random(0), [x, y]
        for _ in range(1000):
            values.append(pick.choice(unary)(pick.choice(values[-8:])))
            values.append(pick.choice(binary)(pick.choice(values[-8:]), pick.choice(values[-8:])))
        return sum(values[-4:])

    return chain


def _waves(xnp: Any) -> Callable[..., Any]:
    """Shallow water on a torus, its steps unrolled."""

    def slope(a: Any, axis: int) -> Any:
        return (xnp.roll(a, -1, axis) - xnp.roll(a, 1, axis)) * 0.5

    def waves(h: Any, u: Any, v: Any) -> Any:
        for _ in range(40):
            du = -9.81 * slope(h, 1) - u * slope(u, 1) - v * slope(u, 0) + 0.1 * v
            dv = -9.81 * slope(h, 0) - u * slope(v, 1) - v * slope(v, 0) - 0.1 * u
            u, v = u + 0.01 * du, v + 0.01 * dv
            h = h - 0.01 * (slope(h * u, 1) + slope(h * v, 0))
        return h, u, v

    return waves


def _bodies(xnp: Any) -> Callable[..., Any]:
    """The motion of many bodies by Runge and Kutta's method, its steps unrolled."""

    def pull(p: Any, m: Any) -> Any:
        d = p[None] - p[:, None]
        r = xnp.sqrt(xnp.sum(d * d, -1) + 1e-3)
        return xnp.sum(d * (m[None, :] / (r * r * r))[..., None], 1)

    def bodies(p: Any, v: Any, m: Any) -> Any:
        for _ in range(25):
            v1, a1 = v, pull(p, m)
            v2, a2 = v + 0.005 * a1, pull(p + 0.005 * v1, m)
            v3, a3 = v + 0.005 * a2, pull(p + 0.005 * v2, m)
            v4, a4 = v + 0.01 * a3, pull(p + 0.01 * v3, m)
            p = p + 0.01 / 6 * (v1 + 2 * v2 + 2 * v3 + v4)
            v = v + 0.01 / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
        return p, v

    return bodies


def main(module: str, name: str) -> None:
    library, xnp = importlib.import_module(module), importlib.import_module(f"{module}.numpy")
    function, arguments = programs(library, xnp)[name]
    library.jit(lambda x: xnp.tanh(x) + 1)(xnp.asarray(np.ones((64, 64), np.float32))).block_until_ready()
    start = time.perf_counter()
    library.jit(function).trace(*arguments).lower().compile()
    print(json.dumps(time.perf_counter() - start))


if __name__ == "__main__":
    main(*sys.argv[1:])
