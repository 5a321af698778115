"""Programs with a loop that becomes one kernel: for the partition, the C backend, and Triton's interpreter and compiler.

`ONE_KERNEL[name]` is a function and its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser import lax
from fuser.ir.types import ArrayType
from fuser.ops.control import while_p
from fuser.trace.core import bind
from fuser.trace.stage import stage

F32 = np.float32
RNG = np.random.default_rng(0)
X = RNG.standard_normal(300).astype(F32)
PLANE = RNG.standard_normal((6, 50)).astype(F32)
ROWS = RNG.standard_normal((40, 4)).astype(F32)
EIGHT = RNG.standard_normal(8).astype(F32)
MATRIX = (RNG.standard_normal((8, 8)) / 8).astype(F32)
STEPS = RNG.standard_normal((11, 300)).astype(F32)
SPECIAL = np.tile(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 4.0, 2.0, 1e30, 1.0], F32), 30)


def mandelbrot(x: Any, y: Any) -> Any:
    real = fnp.broadcast_to(x[None, :], (y.shape[0], x.shape[0]))
    imaginary = fnp.broadcast_to(y[:, None], real.shape)

    def step(_: Any, state: Any) -> Any:
        a, b, count = state
        inside = a * a + b * b <= 4
        return fnp.where(inside, a * a - b * b + real, a), fnp.where(inside, 2 * a * b + imaginary, b), count + inside

    zeros = fnp.zeros(real.shape, "float32")
    return lax.fori_loop(0, 30, step, (zeros, zeros, fnp.zeros(real.shape, "int32")))[2].astype("float32") / 30


def newton(target: Any) -> Any:
    """Square roots, by a while whose predicate is one for all."""

    def going(state: Any) -> Any:
        return state[0] < 20

    return lax.while_loop(going, lambda s: (s[0] + 1, 0.5 * (s[1] + abs(target) / s[1])), (0, abs(target) + 1))


def three_bodies(position: Any, velocity: Any) -> Any:
    """Carries of shape (3, 2): every pair of bodies attracts each other."""

    def step(_: Any, state: Any) -> Any:
        place, speed = state
        apart = place[None, :, :] - place[:, None, :]
        square = (apart * apart).sum(-1) + 0.1
        pull = (apart / (square * fnp.sqrt(square))[:, :, None]).sum(1)
        speed = speed + 0.01 * pull
        return place + 0.01 * speed, speed

    return lax.fori_loop(0, 25, step, (position, velocity))


def recurrent(state: Any, matrix: Any, inputs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = fnp.tanh(matrix @ h + x)
        return h, h.sum()

    return lax.scan(step, state, inputs)


def choosing(x: Any) -> Any:
    def step(i: Any, x: Any) -> Any:
        return lax.cond(i % 2 == 0, lambda v: v * 2, lambda v: v - 1, x)

    return lax.fori_loop(0, 7, step, x)


ONE_KERNEL: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "fori over a vector": (lambda x: lax.fori_loop(0, 9, lambda i, v: v * 0.5 + i, x), (X,)),
    "fori with a traced bound": (lambda x, n: lax.fori_loop(0, n, lambda i, v: v * 0.5 + i, x), (X, np.int32(9))),
    "scan with inputs and results": (
        lambda x, xs: lax.scan(lambda c, z: (c * 0.5 + z, c - z), x, xs),
        (X, STEPS),
    ),
    "scan backwards": (lambda x, xs: lax.scan(lambda c, z: (c * 0.5 + z, c), x, xs, reverse=True), (X, STEPS)),
    "mandelbrot": (mandelbrot, (np.linspace(-2, 1, 70).astype(F32), np.linspace(-1, 1, 50).astype(F32))),
    "while with a scalar predicate": (newton, (X,)),
    "scalars alone": (lambda a: lax.while_loop(lambda s: s < 1000, lambda s: s * 1.5 + 1, a), (F32(3),)),
    "a vector of eight": (lambda c, xs: lax.scan(lambda c, z: (c * 0.9 + z, c), c, xs), (EIGHT, STEPS[:, :8])),
    "a small matrix times the carry": (recurrent, (EIGHT, MATRIX, STEPS[:, :8])),
    "a small axis reduced in each lane": (
        lambda x: lax.fori_loop(0, 5, lambda i, v: v / fnp.sqrt((v * v).sum(-1, keepdims=True) + 1), x),
        (ROWS,),
    ),
    "rows times a small matrix": (
        lambda x, w: lax.fori_loop(0, 5, lambda i, v: fnp.sin(v @ w), x),
        (ROWS, MATRIX[:4, :4]),
    ),
    "three bodies": (three_bodies, (RNG.standard_normal((3, 2)).astype(F32), np.zeros((3, 2), F32))),
    "a closed-over array at the counter": (
        lambda x, w: lax.fori_loop(0, 11, lambda i, v: v * 0.5 + w[i], x),
        (X, RNG.standard_normal(11).astype(F32)),
    ),
    "a row at the counter": (lambda x, w: lax.fori_loop(0, 11, lambda i, v: v * 0.5 + w[i], x), (X, STEPS)),
    "the counter's place is written": (
        lambda x: lax.fori_loop(0, 50, lambda i, v: v.at[i].set(i * 2.0) if False else v + (fnp.arange(300) == i), x),
        (X,),
    ),
    "iota over lanes": (lambda x: lax.fori_loop(0, 5, lambda i, v: v + fnp.arange(300) * i, x), (X,)),
    "a choice in the body": (choosing, (X,)),
    "independent carries": (
        lambda x, y: lax.fori_loop(0, 5, lambda i, s: (s[0] * 0.5, s[1] + 1), (x, y)),
        (X, X[::-1].copy()),
    ),
    "carries that change places": (lambda x, y: lax.fori_loop(0, 5, lambda i, s: (s[1], s[0]), (x, y)), (X, 2 * X)),
    "scalars that change places": (
        lambda: lax.fori_loop(0, 20, lambda i, s: (s[1], s[0] + s[1]), (np.int32(0), np.int32(1))),
        (),
    ),
    "a carry along the outer lanes": (
        lambda x, y: lax.fori_loop(0, 5, lambda i, s: (s[0] * 0.5 + s[1][:, None], s[1] + 1), (x, y)),
        (PLANE, PLANE[:, 0].copy()),
    ),
    "a carry along the inner lanes": (
        lambda x, y: lax.fori_loop(0, 5, lambda i, s: (s[0] * 0.5 + s[1], s[1] + 1), (x, y)),
        (PLANE, PLANE[0].copy()),
    ),
    "a short scan in the body": (
        lambda x: lax.fori_loop(0, 5, lambda i, v: lax.scan(lambda c, _: (c * 0.5 + i, None), v, None, length=3)[0], x),
        (X,),
    ),
    "a running sum of a small axis": (lambda x: lax.fori_loop(0, 3, lambda i, v: fnp.cumsum(v, -1) * 0.5, x), (ROWS,)),
    "a small axis rolled": (lambda x: lax.fori_loop(0, 3, lambda i, v: fnp.roll(v, 1, -1) * 0.5, x), (ROWS,)),
    "the place of the largest": (
        lambda x: lax.fori_loop(0, 3, lambda i, v: v + fnp.argmax(v, -1, keepdims=True), x),
        (ROWS,),
    ),
    "a transposed input": (lambda x: lax.fori_loop(0, 3, lambda i, v: v * 0.5 + x, x.T.T), (PLANE,)),
    "work before and after": (
        lambda x: fnp.sqrt(abs(lax.fori_loop(0, 3, lambda i, v: v * 0.5 + 1, fnp.exp(x) * 2))) + x,
        (X,),
    ),
    "inputs computed for each step": (
        lambda x, xs: lax.scan(lambda c, z: (c * 0.5 + z, None), x, fnp.exp(xs) * fnp.sin(xs))[0],
        (X, STEPS),
    ),
    "iterations that need nothing of each other": (
        lambda xs, w: fnp.sqrt(abs(lax.map(lambda x: fnp.sin(x) * 2 + w, xs))),
        (STEPS, X),
    ),
    "a reduction in each iteration of a map": (lambda xs: lax.map(lambda x: (x * x).sum(-1), xs) + 1, (ROWS,)),
    "a map backwards": (
        lambda xs: lax.scan(lambda _, x: ((), x * 2), (), xs, reverse=True)[1] + xs[:, :1],
        (STEPS,),
    ),
    "no lanes but results": (
        lambda: lax.scan(lambda c, _: (c + 1, c * fnp.arange(20)), np.int32(0), None, length=7),
        (),
    ),
}


def while_of(predicate: Callable[..., Any], body: Callable[..., Any], *types: ArrayType) -> Callable[..., Any]:
    """A function that runs a while whose predicate may have a shape, as batching makes them."""
    test = stage(lambda *carry: [predicate(*carry)], types)
    step = stage(lambda *carry: list(body(*carry)), types)
    names = {"cond_nconsts": 0, "cond_jaxpr": test, "body_nconsts": 0, "body_jaxpr": step}
    return lambda *carry: bind(while_p, *carry, **names)


def lane(dtype: str = "float32", *shape: int) -> ArrayType:
    return ArrayType(shape, np.dtype(dtype))


VECTOR, COUNTS = lane("float32", 300), lane("int32", 300)
# Square roots by Newton's method, each lane until it is good or has tried often enough.
roots = while_of(
    lambda a, y, n: (abs(y * y - a) > 1e-5 * a) & (n < 60),
    lambda a, y, n: (a, 0.5 * (y + a / y), n + 1),
    VECTOR,
    VECTOR,
    COUNTS,
)
halve = while_of(lambda x: x > 1, lambda x: (x * 0.5,), VECTOR)
collatz = while_of(
    lambda n, steps: n > 1, lambda n, steps: (fnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1), COUNTS, COUNTS
)
shrink_rows = while_of(  # the predicate has the rows' shape, and looks at all of a row
    lambda x: (x * x).sum(-1) > 1, lambda x: (x * 0.7,), lane("float32", 40, 4)
)
shrink_planes = while_of(
    lambda x, n: n < 5, lambda x, n: (x * 0.5 + n[:, None], n + 1), lane("float32", 6, 50), lane("int32", 6)
)


WITH_LANES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "each lane for as long as it needs": (
        lambda a, y, n: roots(a, y, n)[1:],
        (abs(X) + 0.1, abs(X) + 1, np.zeros(300, np.int32)),
    ),
    "lanes of nan and infinity": (lambda a, y, n: roots(a, y, n)[1:], (SPECIAL, SPECIAL, np.zeros(300, np.int32))),
    "no lane begins": (halve, (-abs(X),)),
    "some lanes begin": (halve, (X * 100,)),
    "a predicate of nan": (halve, (np.where(X > 0, np.nan, X * 8).astype(F32),)),
    "integers in lanes": (collatz, (np.arange(300, dtype=np.int32), np.zeros(300, np.int32))),
    "rows until all of a row is small": (shrink_rows, (ROWS * 9,)),
    "a predicate of the outer lanes": (shrink_planes, (PLANE, np.arange(6, dtype=np.int32))),
}


def mixed(x: Any, n: Any, flag: Any) -> Any:
    def step(i: Any, state: Any) -> Any:
        value, count, odd = state
        return fnp.where(odd, value * 0.5, value + i), count * 3 + i.astype(count.dtype), ~odd

    return lax.fori_loop(0, 9, step, (x, n, flag))


def complex_step(z: Any) -> Any:
    return lax.fori_loop(0, 9, lambda i, v: v * v * 0.5 + 0.1j, z)


FLAGS = X > 0
DTYPES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{
        f"{name} lanes": (lambda x: lax.fori_loop(0, 7, lambda i, v: v * v * 0.25 + x, x), ((X * 0.3).astype(name),))
        for name in ("float16", "float64", "float32")
    },
    "bfloat16 lanes": (
        lambda x: lax.fori_loop(0, 7, lambda i, v: v * v * 0.25 + x, x),
        (np.asarray((X * 0.3).astype(fnp.dtype("bfloat16"))),),
    ),
    **{
        f"{name} lanes": (
            lambda x: lax.fori_loop(0, 7, lambda i, v: v * v + x - i.astype(x.dtype), x),
            (np.arange(300).astype(name),),
        )
        for name in ("int8", "uint8", "int16", "uint32", "int64")
    },
    "bool lanes": (lambda x: lax.fori_loop(0, 7, lambda i, v: v ^ x, x), (FLAGS,)),
    "mixed dtypes": (mixed, (X, np.arange(300, dtype=np.int16), FLAGS)),
    "mixed with float64": (mixed, (X.astype(np.float64), np.arange(300, dtype=np.uint8), FLAGS)),
}
COMPLEX: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "complex64 lanes": (complex_step, ((X + 1j * X[::-1]).astype(np.complex64) * 0.3,)),
    "complex128 lanes": (complex_step, ((X + 1j * X[::-1]).astype(np.complex128) * 0.3,)),
}
EDGES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "no iterations": (lambda x, xs: lax.scan(lambda c, z: (c * 0.5 + z, c), x, xs), (X, STEPS[:0])),
    "no iterations of a fori": (lambda x, n: lax.fori_loop(3, n, lambda i, v: v * 0.5, x), (X, np.int32(2))),
    "one iteration": (lambda x, xs: lax.scan(lambda c, z: (c * 0.5 + z, c), x, xs), (X, STEPS[:1])),
    **{
        f"{n} lanes": (lambda x, xs: lax.scan(lambda c, z: (c * 0.5 + z, c - 1), x, xs), (X[:n], STEPS[:, :n].copy()))
        for n in (1, 2, 3, 5, 7, 63, 64, 65, 127, 129)
    },
    "narrow rows of lanes": (
        lambda x, w: lax.fori_loop(0, 5, lambda i, v: v * w + i, x),
        (RNG.standard_normal((90, 3)).astype(F32), RNG.standard_normal(3).astype(F32)),
    ),
    "three axes of lanes": (
        lambda x, w: lax.fori_loop(0, 5, lambda i, v: v * w[:, None] + w[None, :3], x),
        (RNG.standard_normal((4, 5, 3)).astype(F32), RNG.standard_normal(5).astype(F32)),
    ),
}
