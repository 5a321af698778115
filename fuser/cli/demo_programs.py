"""What the demo runs: two functions as people write them with NumPy, and one with JAX's names; with their input.

The demo prints the functions' own source, so they stand here as a user would write them.
"""

from __future__ import annotations

import numpy as np

import fuser.numpy as jnp


def develop(photo):  # type: ignore[no-untyped-def]
    """A photograph, tone-mapped, made more vivid and sharpened; height × width × 3, values from 0 to 1."""
    height, width, _ = photo.shape
    light = 1.6 * photo**2.2
    mapped = light * (2.51 * light + 0.03) / (light * (2.43 * light + 0.59) + 0.14)
    grey = 0.2126 * mapped[..., 0:1] + 0.7152 * mapped[..., 1:2] + 0.0722 * mapped[..., 2:3]
    vivid = grey + 1.3 * (mapped - grey)
    wide = np.pad(vivid, ((1, 1), (1, 1), (0, 0)), mode="edge")
    blurred = sum(wide[i : i + height, j : j + width] for i in range(3) for j in range(3)) / 9
    sharp = vivid + 0.7 * (vivid - blurred)
    return np.clip(sharp, 0.0, 1.0) ** (1 / 2.2)


def black_scholes(spot, strike, years, rate=0.03, volatility=0.25):  # type: ignore[no-untyped-def]
    """Prices of European call options."""
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / spread

    def normal(x):  # type: ignore[no-untyped-def]  # the distribution function; Abramowitz and Stegun, 26.2.17
        t = 1 / (1 + 0.2316419 * np.abs(x))
        tail = t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
        tail = tail * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
        return np.where(x > 0, 1 - tail, tail)

    return spot * normal(d1) - strike * np.exp(-rate * years) * normal(d1 - spread)


def softmax(x):  # type: ignore[no-untyped-def]
    """Each row turned into probabilities."""
    e = jnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_in_numpy(x):  # type: ignore[no-untyped-def]
    """What `softmax` is compared with."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def photograph(tiles: int) -> np.ndarray:
    """The portrait that scikit-image ships (512 × 512), repeated in both directions, float32 from 0 to 1."""
    from skimage import data

    return np.tile(data.astronaut().astype(np.float32) / 255, (tiles, tiles, 1))


def options(count: int) -> tuple[np.ndarray, ...]:
    """Spot and strike prices and years to expiry, float64."""
    generator = np.random.default_rng(0)
    return generator.uniform(50, 150, count), generator.uniform(50, 150, count), generator.uniform(0.1, 2, count)


def scores(rows: int) -> np.ndarray:
    """A square matrix of normal random numbers, float32."""
    return np.random.default_rng(0).standard_normal((rows, rows), np.float32)
