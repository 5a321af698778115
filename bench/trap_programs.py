"""Programs one step beside those that a compiler was tuned for, in lines of a kind, drawn by a seed.

In: a library with JAX's names, its NumPy and its lax, and a generator of random numbers. Out: by name, a `Line`, whose
`draw` gives a `Program`: sizes, dtypes, axes and orders differ from one to the next, so that no form fits one of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Program:
    """A function that the library jits, its arguments as NumPy arrays (or lists of them), and what tells it from others of its line.
    One that `donates` gives its first argument away, and its result is the next call's."""

    label: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donates: bool = False


@dataclass(frozen=True)
class Line:
    """`limit`: the most time that fuser may take, as a multiple of the peer's. `peer`: "jax", or "numpy", beside which
    fuser.accelerate runs."""

    name: str
    limit: float
    draw: Callable[[np.random.Generator, int], Program]
    peer: str = "jax"


class Library:
    """The names that programs use, of fuser, JAX or (numpy alone) NumPy."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.np: Any = np if module == "numpy" else importlib.import_module(f"{module}.numpy")
        if module != "numpy":
            self.lax = importlib.import_module(f"{module}.lax")
            self.nn = importlib.import_module(f"{module}.nn")
            self.root = importlib.import_module(module)
            self.vmap, self.grad = self.root.vmap, self.root.grad
            for name in ("scipy.linalg", "ops"):
                importlib.import_module(f"{module}.{name}")


def lines(module: str) -> dict[str, Line]:
    """The lines of issue and review, as programs of `module`; those of the other peer are left out."""
    library = Library(module)
    made = [
        Line("scalar loops before elementwise work", 0.5, lambda r, n: _scalar_loops(library, r, n)),
        Line("convolutions as nested scans", 0.5, lambda r, n: _scanned_convolutions(library, r, n)),
        Line("concatenated and stacked rows", 0.7, lambda r, n: _rows(library, r, n)),
        Line("complex numbers", 0.8, lambda r, n: _complex(library, r, n)),
        Line("short axes", 0.6, lambda r, n: _short_axes(library, r, n)),
        Line("interleaved elements", 0.5, lambda r, n: _interleaved(library, r, n)),
        Line("linear algebra", 1.0, lambda r, n: _linear_algebra(library, r, n)),
        Line("recurrent networks", 0.9, lambda r, n: _recurrent(library, r, n)),
        Line("searches, scans and scatters", 0.9, lambda r, n: _searches(library, r, n)),
        Line("reductions over several axes", 0.9, lambda r, n: _several_axes(library, r, n)),
        Line("histograms and small products in loops", 0.9, lambda r, n: _small_products(library, r, n)),
        Line("nested loops that change arrays", 1.0, lambda r, n: _nested_loops(library, r, n)),
        Line("updates of donated arrays", 1.0, lambda r, n: _donated(library, r, n)),
        Line("signals and updates beside NumPy", 1 / 1.2, lambda r, n: _beside_numpy(library, r, n), "numpy"),
    ]
    return {line.name: line for line in made if module in ("fuser", line.peer)}


def normal(random: np.random.Generator, *shape: int, dtype: str = "float32") -> Array:
    if dtype.startswith("complex"):
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def near(random: np.random.Generator, size: int) -> int:
    """A number about as large, seldom a round one."""
    return max(2, int(size * random.uniform(0.7, 1.4)))


def of(number: int, choices: Sequence[Any]) -> Any:
    return choices[number % len(choices)]


def _scalar_loops(l: Library, random: np.random.Generator, number: int) -> Program:
    steps, rows, columns = near(random, 1_000), near(random, 3_000), near(random, 1_000)
    x = normal(random, rows, columns)
    seed = np.float32(random.uniform(0.1, 0.9))
    logistic = lambda s: 2.9 * s * (1 - s)  # not chaotic: roundings must not grow

    def fori(x: Any, s: Any) -> Any:
        return x * l.lax.fori_loop(0, steps, lambda i, s: logistic(s), s)

    def until(x: Any, s: Any) -> Any:
        _, s = l.lax.while_loop(lambda c: c[0] < steps, lambda c: (c[0] + 1, logistic(c[1])), (0, s))
        return l.np.tanh(x) + s

    def scan(x: Any, s: Any) -> Any:
        s, _ = l.lax.scan(lambda s, i: (logistic(s) + i * 1e-9, None), s, l.np.arange(steps))
        return l.np.exp(x * 0.1) * s + x

    def pair(x: Any, s: Any) -> Any:
        a, b = l.lax.fori_loop(0, steps, lambda i, c: (c[1] * 0.5 + 0.1, l.np.sin(c[0])), (s, s + 1))
        return (x - a) / (l.np.abs(b) + 1)

    def vector(x: Any, s: Any) -> Any:
        v = l.lax.fori_loop(0, steps // 10, lambda i, v: l.np.roll(v, 1) * 0.9 + s, l.np.ones(8) * s)
        return x * v[0] + v[5]

    name, function = of(
        number, list(zip(("fori", "while", "scan", "pair", "vector"), (fori, until, scan, pair, vector)))
    )
    return Program(f"{name} of {steps}, then {rows}×{columns}", function, (x, np.asarray(seed)))


def _scanned_convolutions(l: Library, random: np.random.Generator, number: int) -> Program:
    size, channels, filters = of(number, ((16, 3, 8), (28, 1, 6), (12, 8, 16), (20, 4, 4), (32, 3, 4)))
    window = of(number, (3, 5, 3, 2, 3))
    image, weights = normal(random, channels, size, size), normal(random, filters, channels, window, window)
    out = size - window + 1

    def program(image: Any, weights: Any) -> Any:
        def row(total: Any, i: Any) -> tuple[Any, None]:
            def column(total: Any, j: Any) -> tuple[Any, None]:
                patch = l.lax.dynamic_slice(image, (0, i, j), (channels, window, window))
                value = l.np.sum(weights * patch[None], axis=(1, 2, 3))
                return l.lax.dynamic_update_slice(total, value[:, None, None], (0, i, j)), None

            return l.lax.scan(column, total, l.np.arange(out))[0], None

        total = l.lax.scan(row, l.np.zeros((filters, out, out), image.dtype), l.np.arange(out))[0]
        return l.np.maximum(total, 0)

    return Program(f"{channels}→{filters} of {window}×{window} on {size}×{size}", program, (image, weights))


def _rows(l: Library, random: np.random.Generator, number: int) -> Program:
    count, axis = of(number, (16, 64, 200)), number % 2
    length = near(random, of(number // 2, (5_000, 1_000, 20_000)))
    x = normal(random, count, length)
    row = of(number, (lambda r, i: r * i, lambda r, i: l.np.sin(r) + i, lambda r, i: r[::-1] * 0.5 - i))
    stacked = number % 4 < 2

    def program(x: Any) -> Any:
        rows = [row(x[i], i) for i in range(count)]
        if stacked:
            return l.np.stack(rows, axis)
        return l.np.concatenate([r[None] if axis == 0 else r[:, None] for r in rows], axis)

    return Program(f"{'stack' if stacked else 'concatenate'} {count} of {length}, axis {axis}", program, (x,))


def _complex(l: Library, random: np.random.Generator, number: int) -> Program:
    size = near(random, 1_000_000)
    z, w = normal(random, size, dtype="complex64"), normal(random, size, dtype="complex64") + 1

    def newton(z: Any) -> Any:
        return l.lax.fori_loop(0, 10, lambda i, z: z - (z * z * z - 1) / (3 * z * z + 1e-3), z)

    def mandelbrot(c: Any) -> Any:
        def step(i: Any, carry: Any) -> Any:
            z, n = carry
            inside = l.np.abs(z) < 2
            return l.np.where(inside, z * z + c, z), n + inside

        return l.lax.fori_loop(0, 20, step, (l.np.zeros_like(c), l.np.zeros(c.shape, "int32")))[1]

    side = near(random, 300)
    square = normal(random, side, side, dtype="complex64")
    forms: list[tuple[str, Callable[..., Any], tuple[Array, ...]]] = [
        ("abs", lambda z: l.np.abs(z) * 2, (z,)),
        ("divide", lambda z, w: z / w + 1, (z, w)),
        ("sqrt", lambda z: l.np.sqrt(z) * 2, (z,)),
        ("exp", lambda z: l.np.exp(z * 0.5), (z,)),
        ("log", lambda z: l.np.log(z) + 1, (z,)),
        ("newton", newton, (1 + z[: size // 4] / 8,)),  # near a root: elsewhere its basins' borders double any rounding
        ("mandelbrot", mandelbrot, (z[: size // 4],)),
        ("matmul", lambda a, b: a @ b, (square, square.T.copy())),
        ("contour", lambda z: l.np.sum(l.np.exp(z) / (z - 0.5) * 1j), (z,)),
        ("polynomial", lambda z, w: (z * w + 1) * z - w * l.np.conj(z), (z, w)),
        ("phase", lambda z: z / (l.np.abs(z) + 1e-6), (z,)),
    ]
    name, function, arguments = of(number, forms)
    return Program(f"{name} of {'×'.join(map(str, arguments[0].shape))}", function, arguments)


def _short_axes(l: Library, random: np.random.Generator, number: int) -> Program:
    width = of(number, (2, 4, 3, 8, 16, 10, 5, 7, 12, 6))
    x = normal(random, near(random, 2_000_000 // width), width)
    pooled = normal(random, 1, 1)
    if number % 12 == 11:
        side = near(random, 400) * 4
        pooled = normal(random, side, side)
    names = [
        ("all", lambda x: (x > 0).all(1)),
        ("any", lambda x: (x > 1).any(1)),
        ("count", lambda x: l.np.sum(x > 0, axis=1)),
        ("argmax", lambda x: l.np.argmax(x, 1)),
        ("max", lambda x: x.max(1)),
        ("prod", lambda x: x.prod(1)),
        ("softmax", lambda x: l.nn.softmax(x, axis=1)),
        ("mean", lambda x: x.mean(1)),
        ("norm", lambda x: x / l.np.sqrt(l.np.sum(x * x, 1, keepdims=True) + 1e-6)),
        ("min of absolutes", lambda x: l.np.abs(x).min(1)),
        ("logsumexp", lambda x: l.nn.logsumexp(x, axis=1)),
    ]
    if number % 12 == 11:
        half = pooled.shape[0] // 2
        return Program(f"2×2 max pool of {2 * half}²", lambda p: p.reshape(half, 2, half, 2).max((1, 3)), (pooled,))
    name, function = of(number, names)
    return Program(f"{name} of {x.shape[0]}×{width}", function, (x,))


def _interleaved(l: Library, random: np.random.Generator, number: int) -> Program:
    size = near(random, 500_000)
    x, y, q = normal(random, size), normal(random, size), normal(random, size // 2, 4)
    side = near(random, 700)
    image = random.random((side, side, 3)).astype(np.float32)

    def haar(x: Any, y: Any) -> Any:
        return l.np.stack([(x + y) * 0.7071, (x - y) * 0.7071], -1).reshape(-1)

    def unhaar(x: Any) -> Any:
        pairs = x[: size // 2 * 2].reshape(-1, 2)
        return (pairs[:, 0] + pairs[:, 1]) * 0.5, (pairs[:, 0] - pairs[:, 1]) * 0.5

    def hamilton(q: Any) -> Any:
        p = q
        for _ in range(4):
            a, b, c, d = (q[:, i] for i in range(4))
            e, f, g, h = (p[:, i] for i in range(4))
            p = l.np.stack(
                [
                    a * e - b * f - c * g - d * h,
                    a * f + b * e + c * h - d * g,
                    a * g - b * h + c * e + d * f,
                    a * h + b * g - c * f + d * e,
                ],
                -1,
            )
        return p

    def sepia(image: Any) -> Any:
        r, g, b = image[..., 0], image[..., 1], image[..., 2]
        grey = 0.3 * r + 0.59 * g + 0.11 * b
        return l.np.clip(l.np.stack([grey * 1.1, grey * 0.9 + 0.02, r * 0.2 + grey * 0.7], -1), 0, 1)

    def contrast(image: Any) -> Any:
        grey = image @ l.np.asarray(np.float32([0.3, 0.59, 0.11]))
        return (image - grey[..., None]) * 1.4 + grey[..., None]

    forms: list[tuple[str, Callable[..., Any], tuple[Array, ...]]] = [
        ("haar", haar, (x, y)),
        ("inverse haar", unhaar, (x,)),
        ("quaternions", hamilton, (q,)),
        ("sepia", sepia, (image,)),
        ("contrast", contrast, (image,)),
        ("rotation", lambda x, y: l.np.stack([0.8 * x - 0.6 * y, 0.6 * x + 0.8 * y], -1), (x, y)),
        ("unit quaternions", lambda q: q / l.np.linalg.norm(q, axis=-1, keepdims=True), (q,)),
        (
            "even and odd",
            lambda x: l.np.stack([l.np.sin(x[0::2][: size // 2]), l.np.cos(x[1::2][: size // 2])], 1).ravel(),
            (x,),
        ),
        ("grey", lambda i: i[..., 0] * 0.3 + i[..., 1] * 0.59 + i[..., 2] * 0.11, (image,)),
        ("gamma", lambda i: l.np.where(i <= 0.04, i / 12.92, ((i + 0.055) / 1.055) ** 2.4), (image,)),
    ]
    name, function, arguments = of(number, forms)
    return Program(f"{name} of {'×'.join(map(str, arguments[0].shape))}", function, arguments)


def _linear_algebra(l: Library, random: np.random.Generator, number: int) -> Program:
    n = of(number, (300, 512, 200, 400))
    a = normal(random, n, n) + n**0.5 * 2 * np.eye(n, dtype=np.float32)
    b = normal(random, n, 3)
    many = normal(random, near(random, 1_000), 8, 8) + 6 * np.eye(8, dtype=np.float32)
    right = normal(random, many.shape[0], 8)
    spd = (a @ a.T / n + np.eye(n, dtype=np.float32)).astype(np.float32)
    forms: list[tuple[str, Callable[..., Any], tuple[Array, ...]]] = [
        ("inv", lambda a: l.np.linalg.inv(a), (a,)),
        ("solve", lambda a, b: l.np.linalg.solve(a, b), (a, b)),
        ("qr", lambda a: l.np.abs(l.np.linalg.qr(a)[1]), (a,)),
        ("batched solve", lambda m, r: l.vmap(l.np.linalg.solve)(m, r), (many, right)),
        ("cholesky", lambda s: l.np.linalg.cholesky(s), (spd,)),
        ("batched inv", lambda m: l.np.linalg.inv(m), (many,)),
        ("eigvalsh", lambda s: l.np.linalg.eigvalsh(s), (spd[:150, :150].copy(),)),
        ("singular values", lambda a: l.np.linalg.svd(a, compute_uv=False), (a[:150, :100].copy(),)),
        ("det of many", lambda m: l.np.linalg.det(m), (many,)),
        ("solve one", lambda a, b: l.np.linalg.solve(a, b[:, 0]), (a, b)),
        ("whitened", lambda s, b: l.np.linalg.solve(s, b) * 2 + 1, (spd, b)),
    ]
    name, function, arguments = of(number, forms)
    return Program(f"{name} of {'×'.join(map(str, arguments[0].shape))}", function, arguments)


def _recurrent(l: Library, random: np.random.Generator, number: int) -> Program:
    steps, batch, hidden = of(number, ((100, 32, 256), (100, 16, 128), (60, 8, 64), (50, 64, 128), (200, 4, 96)))
    kind = of(number, ("rnn", "lstm", "gru"))
    gates = {"rnn": 1, "lstm": 4, "gru": 3}[kind]
    xs = normal(random, steps, batch, hidden)
    w, u = (normal(random, hidden, gates * hidden) * np.float32(hidden**-0.5) for _ in range(2))
    sigmoid = lambda v: l.nn.sigmoid(v)

    def program(xs: Any, w: Any, u: Any) -> Any:
        h = l.np.zeros((batch, hidden), "float32")

        def rnn(h: Any, x: Any) -> Any:
            h = l.np.tanh(x @ w + h @ u)
            return h, h

        def lstm(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, g, o = l.np.split(x @ w + h @ u, 4, axis=-1)
            c = sigmoid(f) * c + sigmoid(i) * l.np.tanh(g)
            h = sigmoid(o) * l.np.tanh(c)
            return (h, c), h

        def gru(h: Any, x: Any) -> Any:
            xr, xz, xn = l.np.split(x @ w, 3, axis=-1)
            hr, hz, hn = l.np.split(h @ u, 3, axis=-1)
            z = sigmoid(xz + hz)
            h = (1 - z) * l.np.tanh(xn + sigmoid(xr + hr) * hn) + z * h
            return h, h

        return l.lax.scan({"rnn": rnn, "lstm": lstm, "gru": gru}[kind], (h, h) if kind == "lstm" else h, xs)[1]

    return Program(f"{kind}, {steps} steps of {batch}×{hidden}", program, (xs, w, u))


def _searches(l: Library, random: np.random.Generator, number: int) -> Program:
    size = near(random, 300_000)
    x = random.random(size).astype(np.float32)
    table = np.sort(random.random(near(random, 10_000))).astype(np.float32)
    few, values = np.sort(random.random(near(random, 1_000))).astype(np.float32), normal(random, size)
    rows, width = near(random, 50_000), of(number, (32, 8, 100))
    updates, places = normal(random, rows, width), random.integers(0, 1_000, rows).astype(np.int32)
    matrix = normal(random, near(random, 2_000), near(random, 1_000))
    forms: list[tuple[str, Callable[..., Any], tuple[Array, ...]]] = [
        ("searchsorted", lambda t, x: l.np.searchsorted(t, x), (table, x)),
        ("interp", lambda x, t: l.np.interp(x, t, l.np.sin(t * 9)), (x, few)),
        ("top_k", lambda m: l.lax.top_k(m, 5)[0], (matrix,)),
        ("associative_scan", lambda v: l.lax.associative_scan(lambda a, b: a + b, v), (values,)),
        ("scatter-add of rows", lambda u, p: l.np.zeros((1_000, width), u.dtype).at[p].add(u), (updates, places)),
        ("scatter-max of rows", lambda u, p: l.np.zeros((1_000, width), u.dtype).at[p].max(u), (updates, places)),
        (
            "linear recurrence",
            lambda v: l.lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (l.np.abs(v) * 0.5, v))[1],
            (values,),
        ),
        ("digitize", lambda x, t: l.np.digitize(x, t), (x, few)),
        ("bincount", lambda p: l.np.bincount(p, length=1_000), (places,)),
        ("take rows", lambda u, p: u[p % rows] * 2, (updates, places)),
    ]
    name, function, arguments = of(number, forms)
    return Program(f"{name} of {'×'.join(map(str, arguments[0].shape))}", function, arguments)


def _several_axes(l: Library, random: np.random.Generator, number: int) -> Program:
    shape = of(number, ((100, 60, 200), (32, 64, 28, 28), (16, 128, 14, 14), (300, 20, 100), (8, 32, 56, 56)))
    shape = tuple(near(random, n) for n in shape)
    axes = (0, 2) if len(shape) == 3 else (0, 2, 3)
    x = normal(random, *shape)

    def normalised(x: Any) -> Any:
        mean = x.mean(axes, keepdims=True)
        return (x - mean) / l.np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + 1e-5)

    forms: list[tuple[str, Callable[..., Any]]] = [
        ("sum", lambda x: x.sum(axes)),
        ("mean", lambda x: x.mean(axes)),
        ("max", lambda x: x.max(axes)),
        ("mean of squares", lambda x: (x * x).mean(axes)),
        ("batch norm", normalised),
        ("middle", lambda x: x.sum(1)),
        ("var", lambda x: x.var(axes)),
    ]
    name, function = of(number, forms)
    return Program(f"{name} of {'×'.join(map(str, shape))}", function, (x,))


def _small_products(l: Library, random: np.random.Generator, number: int) -> Program:
    n, steps = of(number, (4, 8, 16, 6, 12)), near(random, 300)
    a, state = normal(random, n, n) * np.float32(n**-0.5), normal(random, n, n)
    batch = normal(random, steps, n, n) * np.float32(n**-0.5)
    x = random.random(near(random, 200_000)).astype(np.float32)
    tall, vector = normal(random, near(random, 2_000), near(random, 500)), normal(random, 1)
    vector = normal(random, tall.shape[1])

    def products(a: Any, s: Any) -> Any:
        return l.lax.fori_loop(0, steps, lambda i, s: l.np.tanh(a @ s) + 0.1 * s @ a, s)

    def chained(batch: Any, s: Any) -> Any:
        return l.lax.scan(lambda s, m: ((m @ s) / (1 + l.np.abs(s).max()), s[0, 0]), s, batch)

    def histogram(x: Any) -> Any:
        return l.np.zeros(50, "float32").at[(x * x * 50).astype("int32")].add(1.0)

    def power(m: Any, v: Any) -> Any:
        def step(i: Any, v: Any) -> Any:
            w = m.T @ (m @ v)
            return w / l.np.sqrt(l.np.sum(w * w))

        return l.lax.fori_loop(0, 10, step, v)

    forms: list[tuple[str, Callable[..., Any], tuple[Array, ...]]] = [
        ("products in a loop", products, (a, state)),
        ("chain of products", chained, (batch, state)),
        ("histogram", histogram, (x,)),
        ("power iteration", power, (tall, vector)),
        ("weighted histogram", lambda x: l.np.zeros(64, "float32").at[(x * 64).astype("int32")].add(x * 2), (x,)),
        ("matrix times vector", lambda m, v: l.np.tanh(m @ v), (tall, vector)),
        ("vector times matrix", lambda m, v: m.T @ l.np.sin(m @ v), (tall, vector)),
    ]
    name, function, arguments = of(number, forms)
    return Program(f"{name} of {'×'.join(map(str, arguments[0].shape))}", function, arguments)


def _sorting_loops(l: Library, n: int) -> tuple[Callable[..., Any], ...]:
    """Insertion sort, pushes into a heap, and passes of bubble sort, of n numbers."""

    def insertion(x: Any) -> Any:
        def insert(i: Any, x: Any) -> Any:
            value = x[i]

            def shift(c: Any) -> Any:
                x, j = c
                return x.at[j].set(x[j - 1]), j - 1

            x, j = l.lax.while_loop(lambda c: (c[1] > 0) & (c[0][c[1] - 1] > value), shift, (x, i))
            return x.at[j].set(value)

        return l.lax.fori_loop(1, n, insert, x)

    def heap(keys: Any) -> Any:
        def push(i: Any, heap: Any) -> Any:
            def up(c: Any) -> Any:
                heap, j = c
                k = (j - 1) // 2
                a, b = heap[j], heap[k]
                return heap.at[j].set(b).at[k].set(a), k

            later = lambda c: (c[1] > 0) & (c[0][c[1]] < c[0][l.np.maximum(c[1] - 1, 0) // 2])
            return l.lax.while_loop(later, up, (heap.at[i].set(keys[i]), i))[0]

        return l.lax.fori_loop(0, n, push, l.np.full(n, np.inf, "float32"))

    def bubbled(x: Any) -> Any:
        def swap(j: Any, x: Any) -> Any:
            a, b = x[j], x[j + 1]
            return x.at[j].set(l.np.minimum(a, b)).at[j + 1].set(l.np.maximum(a, b))

        return l.lax.fori_loop(0, 20, lambda i, x: l.lax.fori_loop(0, n - 1 - i, swap, x), x)

    return insertion, heap, bubbled


def _table_loops(l: Library, n: int, side: int) -> tuple[Callable[..., Any], ...]:
    """Union-find and a sieve of n numbers, elimination by rows and the cheapest path of a square."""

    def joined(pairs: Any) -> Any:
        def root(parents: Any, i: Any) -> Any:
            return l.lax.while_loop(lambda i: parents[i] != i, lambda i: parents[i], i)

        def join(parents: Any, pair: Any) -> tuple[Any, None]:
            return parents.at[root(parents, pair[0])].set(root(parents, pair[1])), None

        return l.lax.scan(join, l.np.arange(n, dtype="int32"), pairs)[0]

    def sieve(x: Any) -> Any:
        def strike(p: Any, alive: Any) -> Any:
            off = lambda c: (c[0].at[c[1]].set(False), c[1] + p)
            marked = l.lax.while_loop(lambda c: c[1] < n, off, (alive, p * p))[0]
            return l.np.where(alive[p], marked, alive)

        return l.lax.fori_loop(2, int(n**0.5) + 1, strike, x > -1)

    def elimination(a: Any) -> Any:
        def column(k: Any, a: Any) -> Any:
            def row(i: Any, a: Any) -> Any:
                factor = a[i, k] / a[k, k]
                return a.at[i].add(-factor * l.np.where(l.np.arange(side) >= k, a[k], 0))

            return l.lax.fori_loop(k + 1, side, row, a)

        return l.lax.fori_loop(0, side - 1, column, a)

    def path(costs: Any) -> Any:
        def row(i: Any, best: Any) -> Any:
            def cell(j: Any, best: Any) -> Any:
                before = l.np.minimum(l.np.minimum(best[i - 1, j], best[i, j - 1]), best[i - 1, j - 1])
                return best.at[i, j].set(costs[i, j] + before)

            return l.lax.fori_loop(1, side, cell, best)

        return l.lax.fori_loop(1, side, row, costs)

    return joined, sieve, elimination, path


def _nested_loops(l: Library, random: np.random.Generator, number: int) -> Program:
    n = near(random, of(number, (1_000, 3_000, 300)))
    sorting = np.arange(n, dtype=np.float32) + normal(random, n) * 3
    pairs = random.integers(0, n, (n // 2, 2)).astype(np.int32)
    keys = random.random(n).astype(np.float32)
    side = near(random, 200)
    a = normal(random, side, side) + side * np.eye(side, dtype=np.float32)
    costs = random.random((side, side)).astype(np.float32)
    insertion, heap, bubbled = _sorting_loops(l, n)
    joined, sieve, elimination, path = _table_loops(l, n, side)
    forms: list[tuple[str, Callable[..., Any], tuple[Array, ...]]] = [
        ("insertion sort", insertion, (sorting,)),
        ("union-find", joined, (pairs,)),
        ("heap", heap, (keys,)),
        ("elimination by rows", elimination, (a,)),
        ("cheapest path", path, (costs,)),
        ("sieve", sieve, (keys,)),
        ("bubble passes", bubbled, (sorting,)),
    ]
    name, function, arguments = of(number, forms)
    return Program(f"{name} of {'×'.join(map(str, arguments[0].shape))}", function, arguments)


def _donated(l: Library, random: np.random.Generator, number: int) -> Program:
    rows, columns = near(random, 2_000), near(random, 2_000)
    x, row, column = normal(random, rows, columns), normal(random, columns), normal(random, rows)
    window, few = normal(random, rows // 3, columns // 4), normal(random, 50, columns)
    place = np.asarray(random.integers(0, rows), np.int32)
    places = random.integers(0, rows, 50).astype(np.int32)

    def walk(x: Any, row: Any) -> Any:
        step = lambda i, x: x.at[i, : columns // 2].set(row[: columns // 2] * i)
        return l.lax.fori_loop(0, 100, step, x)

    forms: list[tuple[str, Callable[..., Any], tuple[Array, ...]]] = [
        ("row", lambda x, r, i: x.at[i].set(r * 2), (row, place)),
        ("column", lambda x, c: x.at[:, 3].set(c + 1), (column,)),
        ("window", lambda x, w: l.lax.dynamic_update_slice(x, w * 2 + 1, (rows // 5, columns // 7)), (window,)),
        ("window at an index", lambda x, w, i: l.lax.dynamic_update_slice(x, w - 1, (i, i)), (window, place)),
        ("rows at indices", lambda x, f, i: x.at[i].set(f), (few, places)),
        ("half of the rows", lambda x, r: x.at[: rows // 2].set(x[: rows // 2] * 0.5 + r), (row,)),
        ("every other column", lambda x, c: x.at[:, ::2].set(c[:, None]), (column,)),
        ("element", lambda x, i: x.at[i, i].set(1.0), (np.minimum(place, columns - 1),)),
        ("rows in a loop", walk, (row,)),
        ("window of its own", lambda x: x.at[10:-10, 10:200].set(l.np.tanh(x[10:-10, 10:200])), ()),
    ]
    name, function, arguments = of(number, forms)
    return Program(f"{name} of {rows}×{columns}", function, (x, *arguments), True)


def _beside_numpy(l: Library, random: np.random.Generator, number: int) -> Program:
    signal, taps = normal(random, near(random, 20_000)), normal(random, of(number, (31, 1_000, 5, 101)))
    table = normal(random, near(random, 300), near(random, 300))
    places = random.permutation(table.shape[0])[: table.shape[0] // 2]

    def alternate(t: Any) -> Any:
        e = t.copy()
        e[:, ::2] *= -1
        return e

    def rows(t: Any, i: Any) -> Any:
        e = t.copy()
        e[i] = t[i] * 2
        return e

    forms: list[tuple[str, Callable[..., Any], tuple[Array, ...]]] = [
        ("convolve", lambda s, t: np.convolve(s, t), (signal, taps)),
        ("correlate", lambda s, t: np.correlate(s, t, "same"), (signal, taps)),
        ("every other column", alternate, (table,)),
        ("rows by number", rows, (table, places)),
        ("valid convolve", lambda s, t: np.convolve(s, t, "valid"), (signal, taps)),
    ]
    name, function, arguments = of(number, forms)
    return Program(f"{name} of {'×'.join(map(str, arguments[0].shape))}, {taps.size} taps", function, arguments)
