"""Random elementwise programs over pieces, transposes, odd strides and functions of functions: NumPy's numbers for every schedule.

`python -m tests.backends.test_schedule_fuzz --programs 200 --seed 7` runs more of them.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

import fuser
import fuser.numpy as fnp
from fuser import Schedule
from fuser.backends.c.schedules import register_tiling

FUNCTIONS = ("sin", "exp", "tanh", "abs", "square", "negative", "cos")
EXTENTS = (1, 2, 3, 5, 7, 16, 17, 30, 64, 65, 130, 257)
FORBIDDEN = (
    "index_set_splitting",
    "tiling",
    "coalescing",
    "staging",
    "fission",
    "unroll_and_jam",
    "register_tiling",
    "masking",
    "strip_mining",
)


def _function(np: Any, random: np.random.Generator, x: Any) -> Any:
    for name in random.choice(FUNCTIONS, random.integers(0, 4)):
        x = getattr(np, str(name))(np.clip(x, -3, 3))
    return x


def _moved(np: Any, random: np.random.Generator, x: Any) -> Any:
    """What is read from elsewhere, of the same rank."""
    axis = int(random.integers(x.ndim))
    kind = random.integers(10)
    if kind == 9 and min(x.shape) > 3:  # windows
        shifted = lambda n: x[tuple(slice(n * (d != axis), e - 3 + n * (d != axis)) for d, e in enumerate(x.shape))]
        return (shifted(0) + shifted(1) * 2 + shifted(2) - shifted(3)) / 4
    if kind == 0:
        return np.pad(x, [(int(random.integers(3)), int(random.integers(3))) for _ in x.shape])
    if kind == 1:
        return np.concatenate([x, _function(np, random, x)] * int(random.integers(1, 4)), axis)
    if kind == 2:
        return x.T if x.ndim < 3 or random.integers(2) else np.swapaxes(x, 0, 1)
    if kind == 3:
        return np.roll(x, int(random.integers(1, 4)), axis)
    if kind == 4:
        return np.flip(x, axis)
    if kind == 5 and x.shape[axis] > 4:
        return x[(slice(None),) * axis + (slice(1, None, int(random.integers(1, 4))),)]
    if kind == 6 and x.shape[-1] % 5 == 0:
        y = x.reshape(-1, x.shape[-1] // 5, 5)
        y = np.stack([y[..., n] + y[..., (n + 1) % 5] for n in range(5)], -1)
        return y.reshape(x.shape)
    if kind == 7:  # positions divided by extents
        return np.concatenate([np.swapaxes(x, 0, -1).reshape(-1)[3:], x.reshape(-1)[:3]]).reshape(x.shape)
    length = np.arange(x.shape[axis]).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    return np.where(length < x.shape[axis] // 2, x, _function(np, random, x))


def program(np: Any, seed: int, x: Any) -> Any:
    """A few moves, with functions between."""
    random = default_rng(seed)
    for _ in range(int(random.integers(1, 4))):
        x = _function(np, random, _moved(np, random, x))
        if x.size > 200_000:
            break
    row = np.arange(x.shape[-1]).astype(x.dtype) / 7
    return (x + row, x[..., ::-1] * 2) if random.integers(2) else x * row


def check(seed: int) -> None:
    random = np.random.default_rng(seed + 10**6)
    shape = tuple(int(e) for e in random.choice(EXTENTS, random.integers(1, 4)))
    x = random.uniform(-2, 2, shape).astype(np.float32)
    without = {name: 0 for name in FORBIDDEN if random.integers(3) == 0}
    ours = fuser.jit(lambda x: program(fnp, seed, x), schedule=Schedule(**without) if seed % 2 else None)
    with np.errstate(all="ignore"):
        wanted = program(np, seed, x.astype(np.float64))
    for found, exact in zip(fuser.tree.leaves(ours(x)), fuser.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(found, exact, rtol=3e-4, atol=3e-4, err_msg=f"seed {seed}, {shape}")


@pytest.mark.parametrize("seed", range(24))
def test_random_schedules(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", range(24))
def test_random_register_tiles(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever there may be tiles of neighbours, as if they always paid."""
    monkeypatch.setattr(register_tiling, "_pays", lambda *_: True)
    check(seed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.programs):
        try:
            check(seed)
        except Exception as error:  # what fails is told, and the others go on
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:600]}", flush=True)
    print("done")
