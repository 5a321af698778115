"""Families of programs that grow with one number, as fuser and JAX both trace them: what compiling must take in proportion.

In: a library, its NumPy and its lax. Out: by name, a `Family`: a function of the size that gives a program and its
arguments. `tests/test_growth.py` holds the work of each stage against the size; `bench.compiletime` holds the seconds
against JAX's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Program = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Family:
    """`make(size)` is a program with its arguments; `sizes` a small one, four times it and sixteen times it."""

    name: str
    make: Callable[[int], Program]
    sizes: tuple[int, int, int]

    @property
    def largest(self) -> int:
        return self.sizes[-1]


def families(module: str) -> dict[str, Family]:
    """The families, traced with `module` ("fuser" or "jax")."""
    library, xnp, lax = (importlib.import_module(name) for name in (module, f"{module}.numpy", f"{module}.lax"))
    made = np.random.default_rng(0)
    array = lambda *shape: xnp.asarray(made.standard_normal(shape).astype(np.float32))
    found = [
        *_straight(xnp, array),
        *_written(xnp, array),
        *_pieces(library, xnp, array),
        *_nested(library, xnp, lax, array),
        *_wholes(library, xnp, array),
    ]
    return {family.name: family for family in found}


def _straight(xnp: Any, array: Callable[..., Any]) -> list[Family]:
    """Equations one after another, side by side, with results of their own, of several dtypes."""
    functions = [xnp.sin, xnp.cos, xnp.tanh, xnp.exp, xnp.abs, lambda a: a * 0.5 + 1.0]

    def chain(size: int) -> Program:
        def program(x: Any) -> Any:
            for i in range(size):
                x = functions[i % 6](x) * 0.5 + i
            return x

        return program, (array(64, 64),)

    def wide(size: int) -> Program:
        return lambda x: sum(functions[i % 6](x * (i + 1)) for i in range(size)), (array(64, 64),)

    def outputs(size: int) -> Program:
        return lambda x: [functions[i % 6](x * (i + 1)) for i in range(size)], (array(64, 64),)

    def scalars(size: int) -> Program:
        def program(x: Any) -> Any:
            a, b = x[0], x[1]
            for i in range(size):
                a, b = a * 0.9 + b * 0.1, xnp.sin(a) - b * (0.5 + i)
            return a + b

        return program, (array(2),)

    def mixed(size: int) -> Program:
        dtypes = ["float32", "int32", "bool", "int8", "float16", "uint8", "int16", "float32"]

        def program(x: Any) -> Any:
            total = x
            for i in range(size):
                part = (x * (i + 1)).astype(dtypes[i % 8])
                total = total + (part + part.max()).astype("float32") * 0.1
            return total

        return program, (array(32, 64),)

    return [
        Family("chain", chain, (40, 160, 640)),
        Family("wide", wide, (30, 120, 480)),
        Family("outputs", outputs, (19, 75, 300)),
        Family("scalars", scalars, (20, 80, 320)),
        Family("mixed dtypes", mixed, (8, 32, 128)),
    ]


def _written(xnp: Any, array: Callable[..., Any]) -> list[Family]:
    """Arrays written element by element, each from one that was written before."""

    def at_set(size: int) -> Program:
        def program(v: Any) -> Any:
            for i in range(size):
                v = v.at[i % 64].set(v[(7 * i) % 64] * 0.5 + 1)
            return v

        return program, (array(64),)

    def at_add(size: int) -> Program:
        def program(v: Any) -> Any:
            for i in range(size):
                v = v.at[i % 64].add(v[(7 * i) % 64] * 0.5 + 1)
            return v

        return program, (array(64),)

    def at_rows(size: int) -> Program:
        def program(m: Any) -> Any:
            for i in range(size):
                m = m.at[i % 32, 1:-1].set(m[(5 * i + 1) % 32, 2:] * 0.5 + m[(3 * i + 2) % 32, :-2])
            return m

        return program, (array(32, 64),)

    def stencil(size: int) -> Program:
        def program(a: Any, b: Any) -> Any:
            for _ in range(size):
                b = b.at[1:-1].set((a[:-2] + a[1:-1] + a[2:]) * 0.33)
                a = a.at[1:-1].set((b[:-2] + b[1:-1] + b[2:]) * 0.33)
            return a, b

        return program, (array(400), array(400))

    def rolled(size: int) -> Program:
        def program(x: Any) -> Any:
            for i in range(size):
                x = xnp.roll(x, i + 1) + xnp.roll(x, -i - 1) * 0.5
            return x

        return program, (array(512),)

    def eliminations(size: int) -> Program:
        def program(m: Any) -> Any:
            for k in (step % 15 for step in range(size)):
                m = m.at[k + 1 :, k].divide(m[k, k])
                m = m.at[k + 1 :, k + 1 :].add(-xnp.outer(m[k + 1 :, k], m[k, k + 1 :]))
            return m

        return program, (array(16, 16),)

    return [
        Family(".at[i].set", at_set, (4, 16, 64)),
        Family(".at[i].add", at_add, (4, 16, 64)),
        Family(".at[row].set", at_rows, (4, 16, 64)),
        Family("stencil steps", stencil, (3, 12, 48)),
        Family("rolls", rolled, (4, 16, 64)),
        Family("eliminations", eliminations, (4, 16, 64)),
    ]


def _pieces(library: Any, xnp: Any, array: Callable[..., Any]) -> list[Family]:
    """Arrays put together from many pieces, and cut into many."""

    def concatenated(axis: int) -> Callable[[int], Program]:
        def make(size: int) -> Program:
            cut = (lambda x, i: x[i : i + 1]) if axis == 0 else (lambda x, i: x[:, i : i + 1])
            shape = (size, 500) if axis == 0 else (500, size)
            return lambda x: xnp.concatenate([cut(x, i) * (i + 1) for i in range(size)], axis), (array(*shape),)

        return make

    def flat(size: int) -> Program:
        return lambda x: xnp.concatenate([x[i] * i for i in range(size)]), (array(size, 500),)

    def stack(axis: int) -> Callable[[int], Program]:
        return lambda size: (
            lambda x: xnp.stack([xnp.sin(x[i]) + i for i in range(size)], axis),
            (array(size, 500),),
        )

    def slices(size: int) -> Program:
        return lambda x: sum(x[i : i + 300] * (i + 1) for i in range(size)), (array(300 + size),)

    def reduced(size: int) -> Program:
        def program(x: Any) -> Any:
            return xnp.stack([xnp.sum(x[i : i + 200]) * i for i in range(size)])

        return program, (array(200 + size),)

    def elements(size: int) -> Program:
        def program(x: Any) -> Any:
            y = [x[i] for i in range(size)]
            return xnp.stack([y[i] * y[(3 * i + 1) % size] + y[i - 1] for i in range(size)])

        return program, (array(size),)

    def fft(size: int) -> Program:
        def transform(real: Any, imag: Any) -> Any:
            n = real.shape[0]
            if n == 1:
                return real, imag
            (a, b), (c, d) = transform(real[::2], imag[::2]), transform(real[1::2], imag[1::2])
            angle = -2 * np.pi * np.arange(n // 2) / n
            cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
            e, f = c * cos - d * sin, c * sin + d * cos
            return xnp.concatenate([a + e, a - e]), xnp.concatenate([b + f, b - f])

        return transform, (array(size), array(size))

    return [
        Family("concatenate, axis 0", concatenated(0), (13, 50, 200)),
        Family("concatenate, axis 1", concatenated(1), (13, 50, 200)),
        Family("concatenate, flat", flat, (13, 50, 200)),
        Family("stack, axis 0", stack(0), (13, 50, 200)),
        Family("stack, axis 1", stack(1), (13, 50, 200)),
        Family("slices", slices, (13, 50, 200)),
        Family("sums of slices", reduced, (6, 25, 100)),
        Family("elements", elements, (13, 50, 200)),
        Family("recursive fft", fft, (16, 64, 256)),
    ]


def _convolutions(xnp: Any, lax: Any, array: Callable[..., Any]) -> Callable[[int], Program]:
    """Convolutions as loops within loops."""

    def convolutions(size: int) -> Program:
        """`size` convolutions one after another, each two nested scans over windows."""

        def convolve(x: Any, w: Any) -> Any:
            n = x.shape[0] - 2

            def row(out: Any, i: Any) -> Any:
                def column(out: Any, j: Any) -> Any:
                    window = lax.dynamic_slice(x, (i, j, 0), (3, 3, x.shape[2]))
                    value = xnp.sum(window[..., None] * w, (0, 1, 2))
                    return lax.dynamic_update_slice(out, value[None, None], (i, j, 0)), None

                return lax.scan(column, out, xnp.arange(n))

            return lax.scan(row, xnp.zeros((n, n, w.shape[3]), "float32"), xnp.arange(n))[0]

        def program(x: Any, w: Any) -> Any:
            for _ in range(size):
                x = xnp.pad(xnp.maximum(convolve(x, w), 0.0), ((1, 1), (1, 1), (0, 0)))
            return x

        return program, (array(10, 10, 4), array(3, 3, 4, 4))

    return convolutions


def _nested(library: Any, xnp: Any, lax: Any, array: Callable[..., Any]) -> list[Family]:
    """Control flow and transforms within each other."""

    def scans(size: int) -> Program:
        def level(depth: int) -> Callable[[Any], Any]:
            if depth == 0:
                return lambda x: xnp.sin(x) * 0.5
            inner = level(depth - 1)

            def run(x: Any) -> Any:
                def step(carry: Any, _: Any) -> Any:
                    carry = inner(carry + 1.0)
                    return carry, xnp.sum(carry)

                out, sums = lax.scan(step, x, None, length=2)
                return out * 0.5 + sums[0]

            return run

        return level(size), (array(8),)

    def conds(size: int) -> Program:
        def level(depth: int, x: Any) -> Any:
            if depth == 0:
                return xnp.sin(x)
            return lax.cond(xnp.sum(x) > depth, lambda y: level(depth - 1, y * 0.5), lambda y: y + depth, x)

        return lambda x: level(size, x), (array(8),)

    def whiles(size: int) -> Program:
        def level(depth: int) -> Callable[[Any], Any]:
            if depth == 0:
                return lambda x: xnp.sin(x) * 0.5
            inner = level(depth - 1)
            test = lambda state: state[0] < 2
            return lambda x: lax.while_loop(test, lambda state: (state[0] + 1, inner(state[1] + 1.0)), (0, x))[1]

        return level(size), (array(8),)

    def vmaps(size: int) -> Program:
        function = lambda x: xnp.sin(x) * x + 1.0
        for _ in range(size):
            function = library.vmap(function)
        return function, (array(*((2,) * min(size, 12) + (1,) * max(size - 12, 0))),)

    return [
        Family("nested scan", scans, (1, 4, 16)),
        Family("nested cond", conds, (1, 4, 16)),
        Family("nested while", whiles, (1, 4, 16)),
        Family("nested vmap", vmaps, (1, 4, 16)),
        Family("scanned convolutions", _convolutions(xnp, lax, array), (1, 4, 16)),
    ]


def _wholes(library: Any, xnp: Any, array: Callable[..., Any]) -> list[Family]:
    """Derivatives, products, many axes, networks."""

    def gradient(size: int) -> Program:
        def loss(x: Any) -> Any:
            for i in range(size):
                x = xnp.sin(x * 1.01 + i) * x
            return xnp.sum(x)

        return library.grad(loss), (array(64, 64),)

    def axes(size: int) -> Program:
        order = (3, 0, 5, 1, 7, 2, 6, 4)

        def program(x: Any) -> Any:
            for i in range(size):
                y = xnp.transpose(x, order) * 0.5 + i
                y = xnp.reshape(xnp.reshape(y, (4, 2, 8, 4)), x.shape)
                x = y + xnp.broadcast_to(xnp.sum(x, 3, keepdims=True), x.shape)
            return x

        return program, (array(2, 2, 2, 2, 2, 2, 2, 2),)

    def products(size: int) -> Program:
        def program(x: Any, w: Any) -> Any:
            for i in range(size):
                x = xnp.tanh(x @ w[i % 4]) + x * 0.1
            return x

        return program, (array(16, 16), array(4, 16, 16))

    def network(size: int) -> Program:
        def loss(w: Any, x: Any) -> Any:
            for i in range(size):
                x = x + xnp.tanh(x @ w[i % 4] + i) * 0.5
                x = x - xnp.mean(x, axis=1, keepdims=True)
                x = x / xnp.sqrt(xnp.mean(x * x, axis=1, keepdims=True) + 1e-5)
            return xnp.sum(x * x)

        return library.grad(loss), (array(4, 32, 32), array(8, 32))

    def residual(size: int) -> Program:
        def program(x: Any) -> Any:
            kept = [x]
            for _ in range(size):
                y = xnp.tanh(kept[-1]) - kept[len(kept) // 2]
                kept.append(y - xnp.sum(y, axis=1, keepdims=True))
            return kept[-1]

        return program, (array(64, 64),)

    return [
        Family("gradient of a chain", gradient, (31, 125, 500)),
        Family("many axes", axes, (3, 12, 48)),
        Family("small products", products, (8, 32, 128)),
        Family("network", network, (4, 16, 64)),
        Family("residual", residual, (12, 50, 200)),
    ]
