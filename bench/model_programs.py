"""Whole programs of statistics, simulation, images and training, drawn by a seed as those of `bench.trap_programs` are.

In: a library with JAX's names. Out: by name, a `Line` of programs of one kind, which differ in sizes, forms and layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.trap_programs import Library, Line, Program, near, normal, of

LIMIT = 1.0  # of each; their geometric mean is to be half of it
RATE = 1e-3


def lines(module: str) -> dict[str, Line]:
    """The whole programs of the issue."""
    library = Library(module)
    kinds: dict[str, Callable[[Library, np.random.Generator, int], Program]] = {
        "Gaussian process": _gaussian_process,
        "Newton for logistic regression": _logistic_newton,
        "mixture gradients": _mixture,
        "Kalman filter": _kalman,
        "Kalman filters, vmapped": _kalman_filters,
        "leapfrog": _leapfrog,
        "neural ODE": _neural_ode,
        "PDE adjoint": _pde_adjoint,
        "k-means": _k_means,
        "PCA": _pca,
        "PageRank": _page_rank,
        "bilateral filter": _bilateral,
        "ResNet step": _resnet,
        "U-Net step": _unet,
        "LSTM step": _lstm,
    }
    made = [Line(name, LIMIT, lambda r, n, kind=kind: kind(library, r, n)) for name, kind in kinds.items()]  # type: ignore[misc]
    made.append(Line("transformer step", 0.45, lambda r, n: _transformer(library, r, n)))
    return {line.name: line for line in made}


def _gaussian_process(l: Library, random: np.random.Generator, number: int) -> Program:
    n, d = near(random, of(number, (150, 300, 500))), of(number, (1, 3, 6, 2))
    x, y = normal(random, n, d), normal(random, n)
    kernels: list[tuple[str, Callable[[Any], Any]]] = [
        ("squared exponential", lambda s: l.np.exp(-0.5 * s)),
        ("Matern 3/2", lambda s: (1 + l.np.sqrt(3 * s + 1e-6)) * l.np.exp(-l.np.sqrt(3 * s + 1e-6))),
        ("rational quadratic", lambda s: (1 + s / 4) ** -2.0),
    ]
    name, kernel = of(number, kernels)

    def loss(theta: Any, x: Any, y: Any) -> Any:
        z = x / l.np.exp(theta[: x.shape[1]])
        squares = l.np.sum((z[:, None, :] - z[None, :, :]) ** 2, -1)
        k = l.np.exp(theta[-2]) * kernel(squares) + l.np.exp(theta[-1]) * l.np.eye(x.shape[0], dtype=x.dtype)
        factor = l.np.linalg.cholesky(k)
        if number % 2:
            alpha = l.root.scipy.linalg.cho_solve((factor, True), y)
            return 0.5 * y @ alpha + l.np.sum(l.np.log(l.np.diagonal(factor)))
        white = l.root.scipy.linalg.solve_triangular(factor, y, lower=True)
        return 0.5 * l.np.sum(white**2) + l.np.sum(l.np.log(l.np.diagonal(factor)))

    theta = np.concatenate([np.zeros(d), [0.2, -1.0]]).astype(np.float32)
    return Program(f"{name}, {n} points of {d}", l.root.value_and_grad(loss), (theta, x, y))


def _logistic_newton(l: Library, random: np.random.Generator, number: int) -> Program:
    n, d = near(random, of(number, (500, 2_000, 8_000))), of(number, (5, 20, 50, 10))
    x, w = normal(random, n, d), normal(random, d)
    y = (random.random(n) < 1 / (1 + np.exp(-x @ w))).astype(np.float32)
    steps = of(number, (5, 8))

    def fit(x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            z = x @ w
            if number % 3 == 2:
                return l.np.mean(l.nn.softplus(z) - y * z) + 0.01 * l.np.sum(w * w)
            return l.np.mean(l.np.logaddexp(0.0, z) - y * z) + 0.01 * l.np.sum(w * w)

        def step(i: Any, w: Any) -> Any:
            return w - l.np.linalg.solve(l.root.hessian(loss)(w), l.root.grad(loss)(w))

        return l.lax.fori_loop(0, steps, step, l.np.zeros(d, "float32"))

    return Program(f"{n}×{d}, {steps} steps", fit, (x, y))


def _mixture(l: Library, random: np.random.Generator, number: int) -> Program:
    n, d, k = near(random, of(number, (5_000, 20_000, 60_000))), of(number, (2, 5, 1, 8)), of(number, (3, 8, 5))
    x, means = normal(random, n, d), normal(random, k, d)
    scales, weights = normal(random, k, d) * np.float32(0.1), normal(random, k)

    def loss(means: Any, scales: Any, weights: Any, x: Any) -> Any:
        z = (x[:, None, :] - means) * l.np.exp(-scales)
        if number % 2:
            each = -0.5 * l.np.sum(z**2, -1) - l.np.sum(scales, -1)
        else:
            each = l.np.sum(-0.5 * z**2 - scales - 0.919, axis=-1)
        return -l.np.mean(l.nn.logsumexp(each + l.nn.log_softmax(weights), axis=1))

    program = l.root.value_and_grad(loss, (0, 1, 2))
    return Program(f"{k} of {d} on {n}", program, (means, scales, weights, x))


def _kalman_program(l: Library, number: int) -> Callable[..., Any]:
    def run(ys: Any, f: Any, h: Any) -> Any:
        n, m = f.shape[0], h.shape[0]
        q, r = 0.1 * l.np.eye(n, dtype="float32"), 0.5 * l.np.eye(m, dtype="float32")

        def step(carry: Any, y: Any) -> Any:
            x, p = carry
            x, p = f @ x, f @ p @ f.T + q
            s = h @ p @ h.T + r
            gain = p @ h.T @ l.np.linalg.inv(s) if number % 2 else l.np.linalg.solve(s, h @ p).T
            x = x + gain @ (y - h @ x)
            p = (l.np.eye(n, dtype="float32") - gain @ h) @ p
            return (x, p), x

        return l.lax.scan(step, (l.np.zeros(n, "float32"), l.np.eye(n, dtype="float32")), ys)[1]

    return run


def _kalman_arguments(random: np.random.Generator, number: int, *lead: int) -> tuple[np.ndarray, ...]:
    n, m = of(number, ((4, 2), (2, 1), (6, 3), (8, 4), (3, 3)))
    f = np.eye(n) + 0.1 * random.standard_normal((n, n)) / n
    # An expanding f multiplies what rounding makes asymmetric in the covariance, in any float32, until no digit is left.
    f = (f * min(1, 0.98 / np.abs(np.linalg.eigvals(f)).max())).astype(np.float32)
    return normal(random, *lead, near(random, 300), m), f, normal(random, m, n)


def _kalman(l: Library, random: np.random.Generator, number: int) -> Program:
    ys, f, h = _kalman_arguments(random, number)
    return Program(f"{f.shape[0]} from {h.shape[0]}, {len(ys)} steps", _kalman_program(l, number), (ys, f, h))


def _kalman_filters(l: Library, random: np.random.Generator, number: int) -> Program:
    ys, f, h = _kalman_arguments(random, number, near(random, of(number, (50, 200))))
    program = l.vmap(_kalman_program(l, number), (0, None, None))
    return Program(f"{f.shape[0]} from {h.shape[0]}, {ys.shape[1]} steps of {len(ys)}", program, (ys, f, h))


def _leapfrog(l: Library, random: np.random.Generator, number: int) -> Program:
    n, steps, chains = near(random, of(number, (100, 250, 50))), of(number, (50, 100)), of(number, (1, 8, 1, 32))
    a = normal(random, n, n) * np.float32(n**-0.5)
    a = a @ a.T + np.eye(n, dtype=np.float32)
    q, p = normal(random, chains, n), normal(random, chains, n)

    def potential(q: Any, a: Any) -> Any:
        return 0.5 * l.np.sum(q * (q @ a)) + 0.1 * l.np.sum(l.np.log1p(q**2) if number % 2 else q**4)

    def run(q: Any, p: Any, a: Any) -> Any:
        force, dt = l.root.grad(potential), 0.01

        def step(carry: Any, _: Any) -> Any:
            q, p = carry
            p = p - 0.5 * dt * force(q, a)
            q = q + dt * p
            p = p - 0.5 * dt * force(q, a)
            return (q, p), 0.5 * l.np.sum(p * p) + potential(q, a)

        return l.lax.scan(step, (q, p), None, length=steps)

    return Program(f"{chains}×{n}, {steps} steps", run, (q, p, a))


def _neural_ode(l: Library, random: np.random.Generator, number: int) -> Program:
    d, hidden, batch = of(number, (2, 4, 8)), of(number, (32, 64, 50, 128)), near(random, of(number, (64, 256)))
    steps = near(random, 20)
    weights = [normal(random, d, hidden), normal(random, hidden, hidden), normal(random, hidden, d)]
    weights = [w * np.float32(len(w) ** -0.5) for w in weights]
    x, target = normal(random, batch, d), normal(random, batch, d)
    activation = of(number, (l.np.tanh, l.nn.softplus) if l.module != "numpy" else (np.tanh,))

    def loss(weights: Any, x: Any, target: Any) -> Any:
        def field(y: Any) -> Any:
            return activation(activation(y @ weights[0]) @ weights[1]) @ weights[2]

        def step(y: Any, _: Any) -> Any:
            dt = 1 / steps
            a = field(y)
            b = field(y + 0.5 * dt * a)
            if number % 3 == 1:
                return y + dt * b, None
            c = field(y + 0.5 * dt * b)
            return y + dt / 6 * (a + 2 * b + 2 * c + field(y + dt * c)), None

        return l.np.mean((l.lax.scan(step, x, None, length=steps)[0] - target) ** 2)

    return Program(f"{batch}×{d}, {hidden} hidden, {steps} steps", l.root.value_and_grad(loss), (weights, x, target))


def _pde_adjoint(l: Library, random: np.random.Generator, number: int) -> Program:
    steps, side = near(random, 50), near(random, of(number, (100, 200, 50)))
    line, target = normal(random, side * 50), normal(random, side * 50)
    plane, wanted = normal(random, side, side), normal(random, side, side)

    def burgers(u: Any, _: Any) -> Any:
        slope = (l.np.roll(u, -1) - l.np.roll(u, 1)) * 0.5
        return u - 0.01 * u * slope + 0.1 * (l.np.roll(u, -1) - 2 * u + l.np.roll(u, 1)), None

    def heat(u: Any, _: Any) -> Any:
        v = l.np.pad(u, 1, mode="edge")
        return u + 0.2 * (v[2:, 1:-1] + v[:-2, 1:-1] + v[1:-1, 2:] + v[1:-1, :-2] - 4 * u), None

    def reaction(u: Any, _: Any) -> Any:
        inner = u[1:-1, 1:-1]
        laplace = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * inner
        return u.at[1:-1, 1:-1].add(0.1 * laplace + 0.01 * inner * (1 - inner**2)), None

    name, step, start, end = of(
        number,
        [("Burgers", burgers, line, target), ("heat", heat, plane, wanted), ("reaction", reaction, plane, wanted)],
    )

    def loss(u: Any, target: Any) -> Any:
        return l.np.mean((l.lax.scan(step, u, None, length=steps)[0] - target) ** 2)

    label = f"{name} on {'×'.join(map(str, start.shape))}, {steps} steps"
    return Program(label, l.root.value_and_grad(loss), (start, end))


def _k_means(l: Library, random: np.random.Generator, number: int) -> Program:
    n, d, k = near(random, of(number, (3_000, 20_000))), of(number, (2, 8, 32, 3)), of(number, (5, 16, 10))
    x = normal(random, n, d)

    def run(x: Any) -> Any:
        def step(i: Any, c: Any) -> Any:
            if number % 2:
                distance = l.np.sum((x[:, None] - c[None]) ** 2, -1)
            else:
                distance = l.np.sum(c**2, -1) - 2 * x @ c.T
            nearest = l.np.argmin(distance, 1)
            if number % 3:
                own = l.nn.one_hot(nearest, k, dtype=x.dtype)
                return own.T @ x / l.np.maximum(l.np.sum(own, 0), 1)[:, None]
            sums = l.root.ops.segment_sum(x, nearest, k)
            counts = l.root.ops.segment_sum(l.np.ones(n, x.dtype), nearest, k)
            return sums / l.np.maximum(counts, 1)[:, None]

        return l.lax.fori_loop(0, 10, step, x[:k])

    return Program(f"{k} of {n}×{d}", run, (x,))


def _pca(l: Library, random: np.random.Generator, number: int) -> Program:
    n, d, k = near(random, of(number, (1_000, 5_000))), near(random, of(number, (30, 100, 60))), of(number, (2, 5))
    x = normal(random, n, d) * np.linspace(0.5, 3, d, dtype=np.float32)

    def whole(x: Any) -> Any:
        y = x - x.mean(0)
        values, vectors = l.np.linalg.eigh(y.T @ y / (n - 1))
        return values[-k:], l.np.abs(y @ vectors[:, -k:])

    def singular(x: Any) -> Any:
        y = (x - x.mean(0)) / x.std(0)
        return l.np.linalg.svd(y, compute_uv=False)[:k] ** 2 / n

    def power(x: Any) -> Any:
        y = x - x.mean(0)

        def step(i: Any, v: Any) -> Any:
            return l.np.linalg.qr(y.T @ (y @ v))[0]

        v = l.lax.fori_loop(0, 30, step, l.np.eye(d, k, dtype="float32") + 0.1)
        return l.np.sum((y @ v) ** 2, 0) / n

    name, program = of(
        number, [("eigenvectors of", whole), ("power iteration on", power), ("singular values of", singular)]
    )
    return Program(f"{name} {n}×{d}, {k}", program, (x,))


def _page_rank(l: Library, random: np.random.Generator, number: int) -> Program:
    n, steps = near(random, of(number, (300, 1_000, 2_000))), of(number, (20, 50))
    if number % 2 == 0:
        links = (random.random((n, n)) < 0.05).astype(np.float32)

        def dense(links: Any) -> Any:
            m = links / l.np.maximum(links.sum(0), 1)
            return l.lax.fori_loop(0, steps, lambda i, r: 0.85 * (m @ r) + 0.15 / n, l.np.ones(n, "float32") / n)

        return Program(f"dense, {n}, {steps} steps", dense, (links,))
    edges = n * 20
    sources, targets = (random.integers(0, n, edges).astype(np.int32) for _ in range(2))

    def sparse(sources: Any, targets: Any) -> Any:
        degree = l.np.maximum(l.np.zeros(n, "float32").at[sources].add(1.0), 1)

        def step(i: Any, r: Any) -> Any:
            return 0.85 * l.root.ops.segment_sum((r / degree)[sources], targets, n) + 0.15 / n

        return l.lax.fori_loop(0, steps, step, l.np.ones(n, "float32") / n)

    return Program(f"{edges} edges, {n}, {steps} steps", sparse, (sources, targets))


def _bilateral(l: Library, random: np.random.Generator, number: int) -> Program:
    side, radius = near(random, of(number, (300, 600))), of(number, (2, 1, 3))
    channels = of(number, ((), (), (3,)))
    image = random.random((side, near(random, side), *channels)).astype(np.float32)

    def run(image: Any) -> Any:
        wide = [(radius, radius)] * 2 + [(0, 0)] * len(channels)
        padded = l.np.pad(image, wide, mode="reflect" if number % 2 else "edge")
        total, weights = l.np.zeros_like(image), l.np.zeros(image.shape[:2] + (1,) * len(channels), "float32")
        for dy in range(2 * radius + 1):
            for dx in range(2 * radius + 1):
                shifted = padded[dy : dy + image.shape[0], dx : dx + image.shape[1]]
                difference = (shifted - image) ** 2
                if channels:
                    difference = l.np.sum(difference, -1, keepdims=True)
                far = ((dy - radius) ** 2 + (dx - radius) ** 2) / (2.0 * radius**2)
                weight = l.np.exp(-difference / 0.02 - far)
                total, weights = total + weight * shifted, weights + weight
        return total / weights

    return Program(f"{'×'.join(map(str, image.shape))}, radius {radius}", run, (image,))


def _convolution(l: Library, channels_last: bool) -> Callable[..., Any]:
    layout = ("NHWC", "HWIO", "NHWC") if channels_last else ("NCHW", "OIHW", "NCHW")

    def convolve(x: Any, w: Any, stride: int = 1) -> Any:
        return l.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=layout)

    return convolve


def _filters(random: np.random.Generator, channels_last: bool, inputs: int, outputs: int, size: int = 3) -> np.ndarray:
    shape = (size, size, inputs, outputs) if channels_last else (outputs, inputs, size, size)
    return normal(random, *shape) * np.float32((inputs * size * size) ** -0.5)


def _sgd(l: Library, loss: Callable[..., Any]) -> Callable[..., Any]:
    def step(parameters: Any, *data: Any) -> Any:
        value, gradient = l.root.value_and_grad(loss)(parameters, *data)
        return value, [p - RATE * g for p, g in zip(parameters, gradient)]

    return step


def _resnet(l: Library, random: np.random.Generator, number: int) -> Program:
    last, width, side, batch = (
        number % 2 == 0,
        of(number, (16, 32, 8)),
        of(number, (16, 32, 24)),
        of(number, (8, 4, 16)),
    )
    blocks, convolve = of(number, (2, 3)), _convolution(l, last)
    image = (batch, side, side, 3) if last else (batch, 3, side, side)
    x, labels = normal(random, *image), random.integers(0, 10, batch).astype(np.int32)
    parameters = [_filters(random, last, 3, width)]
    parameters += [_filters(random, last, width, width) for _ in range(2 * blocks)]
    parameters += [_filters(random, last, width, 2 * width), normal(random, 2 * width, 10) * np.float32(0.1)]

    def norm(x: Any) -> Any:
        axes = (0, 1, 2) if last else (0, 2, 3)
        mean = x.mean(axes, keepdims=True)
        return (x - mean) * l.lax.rsqrt(l.np.mean((x - mean) ** 2, axes, keepdims=True) + 1e-5)

    def loss(parameters: Any, x: Any, labels: Any) -> Any:
        h = l.nn.relu(norm(convolve(x, parameters[0])))
        for block in range(blocks):
            inner = l.nn.relu(norm(convolve(h, parameters[1 + 2 * block])))
            h = l.nn.relu(h + norm(convolve(inner, parameters[2 + 2 * block])))
        h = l.nn.relu(convolve(h, parameters[-2], 2)).mean((1, 2) if last else (2, 3))
        share = l.nn.log_softmax(h @ parameters[-1])
        return -l.np.mean(l.np.take_along_axis(share, labels[:, None], 1))

    label = f"{blocks} blocks of {width} on {batch}×{side}², {'NHWC' if last else 'NCHW'}"
    return Program(label, _sgd(l, loss), (parameters, x, labels))


def _unet(l: Library, random: np.random.Generator, number: int) -> Program:
    last, width, side, batch = number % 2 == 1, of(number, (8, 16)), of(number, (32, 16, 24)), of(number, (4, 2, 8))
    convolve = _convolution(l, last)
    image = (batch, side, side, 1) if last else (batch, 1, side, side)
    x, target = normal(random, *image), normal(random, *image)
    sizes = ((1, width), (width, 2 * width), (2 * width, 2 * width), (3 * width, width))
    parameters = [_filters(random, last, *size) for size in sizes] + [_filters(random, last, width, 1, 1)]
    window = (1, 2, 2, 1) if last else (1, 1, 2, 2)

    def down(x: Any) -> Any:
        return l.lax.reduce_window(x, -np.inf, l.lax.max, window, window, "VALID")

    def up(x: Any) -> Any:
        first = 1 if last else 2
        return l.np.repeat(l.np.repeat(x, 2, first), 2, first + 1)

    def loss(parameters: Any, x: Any, target: Any) -> Any:
        a = l.nn.relu(convolve(x, parameters[0]))
        b = l.nn.relu(convolve(down(a), parameters[1]))
        b = l.nn.relu(convolve(b, parameters[2]))
        joined = l.np.concatenate([a, up(b)], 3 if last else 1)
        out = convolve(l.nn.relu(convolve(joined, parameters[3])), parameters[4])
        return l.np.mean((out - target) ** 2)

    label = f"{width} on {batch}×{side}², {'NHWC' if last else 'NCHW'}"
    return Program(label, _sgd(l, loss), (parameters, x, target))


def _lstm(l: Library, random: np.random.Generator, number: int) -> Program:
    steps, batch, hidden = of(number, ((30, 16, 64), (50, 8, 128), (20, 32, 32), (40, 4, 100)))
    width, names = of(number, (16, 64, 8)), of(number, (10, 30))
    xs, labels = normal(random, steps, batch, width), random.integers(0, names, (steps, batch)).astype(np.int32)
    parameters = [
        normal(random, width, 4 * hidden) * np.float32(width**-0.5),
        normal(random, hidden, 4 * hidden) * np.float32(hidden**-0.5),
        np.zeros(4 * hidden, np.float32),
        normal(random, hidden, names) * np.float32(hidden**-0.5),
    ]

    def loss(parameters: Any, xs: Any, labels: Any) -> Any:
        w, u, b, v = parameters

        def step(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, g, o = l.np.split(x @ w + h @ u + b, 4, axis=-1)
            c = l.nn.sigmoid(f + 1) * c + l.nn.sigmoid(i) * l.np.tanh(g)
            h = l.nn.sigmoid(o) * l.np.tanh(c)
            return (h, c), h

        zero = l.np.zeros((batch, hidden), "float32")
        share = l.nn.log_softmax(l.lax.scan(step, (zero, zero), xs)[1] @ v)
        return -l.np.mean(l.np.take_along_axis(share, labels[..., None], -1))

    return Program(f"{steps} steps of {batch}×{hidden}", _sgd(l, loss), (parameters, xs, labels))


def _transformer(l: Library, random: np.random.Generator, number: int) -> Program:
    layers, width, batch, length = of(number, ((2, 256, 8, 128), (6, 256, 8, 128), (2, 128, 4, 96), (3, 192, 2, 200)))
    heads, names = of(number, (4, 8, 4, 6)), of(number, (1_000, 500))
    shapes = [(names, width), *[(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)] * layers]
    parameters = [normal(random, *shape) * np.float32(shape[0] ** -0.5) for shape in shapes]
    tokens = random.integers(0, names, (batch, length + 1)).astype(np.int32)

    def norm(x: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * l.lax.rsqrt(l.np.mean((x - mean) ** 2, -1, keepdims=True) + 1e-5)

    def attention(x: Any, w: Any, out: Any) -> Any:
        parts = l.np.split(x @ w, 3, -1)
        q, k, v = (p.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for p in parts)
        scores = q @ k.transpose(0, 1, 3, 2) * (width // heads) ** -0.5
        mask = l.np.tril(l.np.ones((length, length), bool))
        share = l.nn.softmax(l.np.where(mask, scores, -1e9), axis=-1)
        return (share @ v).transpose(0, 2, 1, 3).reshape(batch, length, width) @ out

    def loss(parameters: Any, tokens: Any) -> Any:
        x = parameters[0][tokens[:, :-1]]
        for layer in range(layers):
            a, b, c, d = parameters[1 + 4 * layer : 5 + 4 * layer]
            x = x + attention(norm(x), a, b)
            x = x + l.nn.gelu(norm(x) @ c) @ d
        share = l.nn.log_softmax(norm(x) @ parameters[0].T)
        return -l.np.mean(l.np.take_along_axis(share, tokens[:, 1:, None], -1))

    def step(parameters: Any, first: Any, second: Any, tokens: Any) -> Any:
        value, gradient = l.root.value_and_grad(loss)(parameters, tokens)
        first = [0.9 * m + 0.1 * g for m, g in zip(first, gradient)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, gradient)]
        moved = [p - RATE * m / (l.np.sqrt(v) + 1e-8) for p, m, v in zip(parameters, first, second)]
        return value, moved, first, second

    zeros = [np.zeros_like(p) for p in parameters]
    label = f"{layers} layers of {width}, batch {batch}×{length}"
    return Program(label, step, (parameters, zeros, zeros, tokens))
