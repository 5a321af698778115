"""Whole NumPy programs, as people write them, compiled to C and compared with NumPy; and how few kernels they become."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.interop import accelerate
from fuser.partition.group import Kind
from tests.interop.oracle import agree

rng = np.random.default_rng(1)


def softmax(x: np.ndarray) -> np.ndarray:
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def normalise(x: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    return (x - x.mean(axis=0, keepdims=True)) / np.sqrt(x.var(axis=0, keepdims=True) + epsilon)


def mandelbrot(c: np.ndarray, steps: int) -> np.ndarray:
    z = np.zeros_like(c)
    count = np.zeros(c.shape, dtype=int)
    for _ in range(steps):
        inside = np.abs(z) <= 2
        z[inside] = z[inside] ** 2 + c[inside]
        count[inside] += 1
    return count


def life(board: np.ndarray, steps: int) -> np.ndarray:
    board = board.copy()
    for _ in range(steps):
        neighbours = sum(np.roll(board, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
        board = np.where((neighbours == 3) | ((board == 1) & (neighbours == 2)), 1, 0)
    return board


def heat(u: np.ndarray, steps: int, k: float) -> np.ndarray:
    u = u.copy()
    for _ in range(steps):
        u[1:-1, 1:-1] += k * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
        u[0, :] = 0.0
        u[:, -1] = 1.0
    return u


def nearest(points: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    labels = np.argmin(distances, axis=1)
    moved = np.empty_like(centres)
    for k in range(len(centres)):
        mine = (labels == k)[:, None]
        moved[k] = (points * mine).sum(axis=0) / np.maximum(mine.sum(), 1)
    return labels, moved


def principal(x: np.ndarray, rounds: int) -> tuple[np.ndarray, float]:
    centred = x - x.mean(axis=0)
    covariance = centred.T @ centred / (len(x) - 1)
    vector = np.ones(x.shape[1]) / np.sqrt(x.shape[1])
    for _ in range(rounds):
        vector = covariance @ vector
        vector /= np.linalg.norm(vector)
    return centred @ vector, vector @ covariance @ vector


def sobel(image: np.ndarray) -> np.ndarray:
    padded = np.pad(image.astype(np.float32), 1, mode="edge")
    horizontal = (
        padded[:-2, 2:]
        + 2 * padded[1:-1, 2:]
        + padded[2:, 2:]
        - padded[:-2, :-2]
        - 2 * padded[1:-1, :-2]
        - padded[2:, :-2]
    )
    vertical = (
        padded[2:, :-2]
        + 2 * padded[2:, 1:-1]
        + padded[2:, 2:]
        - padded[:-2, :-2]
        - 2 * padded[:-2, 1:-1]
        - padded[:-2, 2:]
    )
    strength = np.hypot(horizontal, vertical)
    return (strength / strength.max() * 255).astype(np.uint8)


def moving_average(x: np.ndarray, width: int) -> np.ndarray:
    sums = np.cumsum(x)
    sums[width:] = sums[width:] - sums[:-width]
    return sums[width - 1 :] / width


def cumulative_normal(x: np.ndarray) -> np.ndarray:
    t = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    poly = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi) * poly
    return np.where(x >= 0, 1 - tail, tail)


def option_price(
    spot: np.ndarray, strike: np.ndarray, years: np.ndarray, rate: float, volatility: float
) -> dict[str, np.ndarray]:
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / spread
    d2 = d1 - spread
    discounted = strike * np.exp(-rate * years)
    call = spot * cumulative_normal(d1) - discounted * cumulative_normal(d2)
    return {"call": call, "put": call - spot + discounted}


def bodies(position: np.ndarray, velocity: np.ndarray, mass: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    apart = position[None, :, :] - position[:, None, :]
    cubed = (np.sum(apart**2, axis=-1) + 0.01) ** 1.5
    acceleration = (apart * (mass[None, :] / cubed)[:, :, None]).sum(axis=1)
    velocity = velocity + step * acceleration
    return position + step * velocity, velocity


def relu_layers(x: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    for w in weights:
        x = x @ w
        x[x < 0] = 0
    return x


def energy(x: np.ndarray) -> dict[str, Any]:
    total = 0.0
    for row in x:
        total += (row**2).sum()
    return {"total": total, "rows": len(x), "peak": x.max(), "name": "energy"}


def checkerboard(x: np.ndarray) -> np.ndarray:
    out = np.empty((len(x), len(x)))
    out[::2, ::2] = x[::2]
    out[1::2, 1::2] = -x[1::2]
    out[::2, 1::2] = 0
    out[1::2, ::2] = np.arange(len(x) // 2)
    out[-1, ::-1] += x
    return out


image = (rng.random((16, 17)) * 255).astype(np.uint8)
grid = np.add.outer(1j * np.linspace(-1, 1, 9), np.linspace(-2, 1, 11))
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "softmax": (softmax, (rng.normal(size=(6, 9)),)),
    "softmax in float32": (softmax, (rng.normal(size=(6, 9)).astype("f4"),)),
    "normalise": (normalise, (rng.normal(size=(8, 5)),)),
    "normalise integers": (normalise, (rng.integers(0, 9, (8, 5)), 0.5)),
    "mandelbrot": (mandelbrot, (grid, 8)),
    "life": (life, (rng.integers(0, 2, (8, 9)), 3)),
    "heat": (heat, (rng.random((9, 8)), 3, 0.1)),
    "nearest": (nearest, (rng.normal(size=(20, 3)), rng.normal(size=(4, 3)))),
    "principal": (principal, (rng.normal(size=(30, 4)), 5)),
    "sobel": (sobel, (image,)),
    "moving average": (moving_average, (rng.normal(size=50), 5)),
    "option price": (
        option_price,
        (rng.uniform(10, 50, 40), rng.uniform(10, 50, 40), rng.uniform(0.2, 2, 40), 0.02, 0.3),
    ),
    "bodies": (bodies, (rng.normal(size=(12, 3)), rng.normal(size=(12, 3)), rng.random(12), 0.01)),
    "relu layers": (
        relu_layers,
        (rng.normal(size=(4, 6)).astype("f4"), [rng.normal(size=(6, 6)).astype("f4") for _ in range(2)]),
    ),
    "energy": (energy, (rng.normal(size=(3, 4)),)),
    "checkerboard": (checkerboard, (rng.normal(size=8),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_numpy_gives(name: str) -> None:
    function, arguments = PROGRAMS[name]
    agree(function, *arguments, backend="c")


def kinds(function: Any, *arguments: Any) -> list[Kind]:
    """The kernels of a program, without its watch on floating-point errors."""

    def silent(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return [group.kind for group in accelerate(silent).lower(*arguments).plan.groups]


def blur(u: np.ndarray) -> np.ndarray:
    out = np.zeros_like(u)
    out[1:-1] = (u[2:] + u[1:-1] + u[:-2]) / 3
    return out


def test_programs_fuse() -> None:
    assert kinds(softmax, rng.normal(size=(6, 9))) == [Kind.REDUCTION]
    assert kinds(*(lambda f, a: (f, *a))(*PROGRAMS["option price"])) == [Kind.ELEMENTWISE]


def test_assignment_to_slices_fuses_with_the_arithmetic() -> None:
    assert kinds(blur, rng.random(100)) == [Kind.ELEMENTWISE]


@pytest.mark.parametrize(
    "function, arguments",
    [
        (softmax, (rng.normal(size=(6, 9)),)),
        PROGRAMS["option price"],
        (blur, (rng.random(100),)),
        PROGRAMS["normalise"],
    ],
    ids=["softmax", "option price", "blur", "normalise"],
)
def test_the_watch_on_floating_point_errors_takes_no_launch_of_its_own(function: Any, arguments: Any) -> None:
    assert len(accelerate(function).lower(*arguments).plan.groups) == 1
