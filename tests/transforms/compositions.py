"""Programs and transforms of them for the fuzz tests.

A program maps vectors of WIDTH float64 numbers to such vectors, and so does each transform of it; hence any composition
is a program again. Both are lists of names, so a failure shrinks to the shortest one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

WIDTH = 5
MATRIX = np.cos(np.arange(WIDTH * WIDTH, dtype=np.float64)).reshape(WIDTH, WIDTH) / 2
DIRECTION = np.linspace(-1, 1, WIDTH)
POINT = np.array([0.3, -0.7, 1.1, -0.2, 0.6])

Function = Callable[[Any], Any]

# Steps of a program: (library, vector) -> vector. None has a kink or a tie near what POINT leads to.
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "sin": lambda m, x: m.numpy.sin(x),
    "square": lambda m, x: x * x,
    "matrix": lambda m, x: m.numpy.asarray(MATRIX) @ x,
    "softmax": lambda m, x: m.nn.softmax(x),
    "logsumexp": lambda m, x: x - m.nn.logsumexp(x),
    "where": lambda m, x: m.numpy.where(x > 0.05, x, m.numpy.exp(x)),
    "reverse": lambda m, x: x[::-1] * m.numpy.arange(WIDTH, dtype=x.dtype),
    "gather": lambda m, x: x[m.numpy.asarray([0, 2, 2, 4, 1])],
    "scatter": lambda m, x: x.at[m.numpy.asarray([0, 3, 3])].add(x[:3]),
    "cumsum": lambda m, x: m.numpy.cumsum(x) / WIDTH,
    "cumprod": lambda m, x: m.numpy.cumprod(x),
    "sort": lambda m, x: m.numpy.sort(x),
    "max": lambda m, x: x * m.numpy.max(x),
    "norm": lambda m, x: x / m.numpy.sqrt(m.numpy.sum(x * x) + 1),
    "concatenate": lambda m, x: m.numpy.concatenate([x[2:], x[:2] * 3]),
    "outer": lambda m, x: (x[:, None] * m.numpy.cos(x)[None, :]).mean(0),
    "scan": lambda m, x: m.lax.scan(lambda c, a: (c * 0.5 + a, c.sum()), x, m.numpy.stack([x, 2 * x]))[0],
    "fori": lambda m, x: m.lax.fori_loop(0, 3, lambda i, c: m.numpy.tanh(c + i) * x, x),
    "cond": lambda m, x: m.lax.cond(x[0] > 0, lambda y: y * y, lambda y: y + 1, x),
    "custom": lambda m, x: _scaled(m)(x),
}


def _scaled(m: Any) -> Function:
    """A custom_jvp with the true derivative."""

    @m.custom_jvp
    def cube(x: Any) -> Any:
        return x**3 / 3

    cube.defjvp(lambda primals, tangents: (cube(primals[0]), primals[0] ** 2 * tangents[0]))
    return cube  # type: ignore[no-any-return]


def _pushed(m: Any, f: Function) -> Function:
    return lambda x: m.jvp(f, (x,), (m.numpy.asarray(DIRECTION),))[1]


# Transforms: (library, vector function) -> vector function.
TRANSFORMS: dict[str, Callable[[Any, Function], Function]] = {
    "jit": lambda m, f: m.jit(f),
    "checkpoint": lambda m, f: m.checkpoint(f),
    "grad": lambda m, f: m.grad(lambda x: f(x).sum()),
    "jvp": _pushed,
    "vjp": lambda m, f: lambda x: m.vjp(f, x)[1](m.numpy.asarray(DIRECTION))[0],
    "linearize": lambda m, f: lambda x: m.linearize(f, x)[1](m.numpy.asarray(DIRECTION)),
    "vmap": lambda m, f: lambda x: m.vmap(f)(m.numpy.stack([x, x + 0.1, 0.9 * x])).mean(0),
    "vmap columns": lambda m, f: lambda x: m.vmap(f, 1, 1)(m.numpy.stack([x, 0.9 * x], 1)).mean(1),
    "jacfwd": lambda m, f: lambda x: m.jacfwd(f)(x).sum(0),
    "jacrev": lambda m, f: lambda x: m.jacrev(f)(x).sum(1),
    "scan": lambda m, f: lambda x: m.lax.scan(lambda c, _: (0.5 * f(c), None), x, None, length=2)[0],
    "cond": lambda m, f: lambda x: m.lax.cond(x.sum() > 0, f, lambda y: 2 * y, x),
}


def build(m: Any, steps: list[str], transforms: list[str]) -> Function:
    def program(x: Any) -> Any:
        for name in steps:
            x = STEPS[name](m, x)
        return m.numpy.tanh(x)

    function: Function = program
    for name in transforms:
        function = TRANSFORMS[name](m, function)
    return function


def drawn(seed: int, count: int) -> Iterator[tuple[list[str], list[str]]]:
    """Random compositions, the same for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        steps = [rng.choice(sorted(STEPS)) for _ in range(rng.randint(1, 4))]
        yield steps, [rng.choice(sorted(TRANSFORMS)) for _ in range(rng.randint(1, 3))]
