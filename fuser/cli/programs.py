"""The programs of `python -m fuser demo`. This copy is yours to change: the demo runs what stands here.

Each NAME_args() makes the input, which `python -m fuser report programs.py:NAME` uses too.
"""

import numpy as np

import fuser
import fuser.numpy as fnp


@fuser.accelerate
def develop(photo):
    """A photograph, tone-mapped, made more vivid and sharpened; height × width × 3, values from 0 to 1."""
    height, width, _ = photo.shape
    light = 0.8 * photo**2.2
    mapped = light * (2.51 * light + 0.03) / (light * (2.43 * light + 0.59) + 0.14)
    grey = 0.2126 * mapped[..., 0:1] + 0.7152 * mapped[..., 1:2] + 0.0722 * mapped[..., 2:3]
    vivid = grey + 1.3 * (mapped - grey)
    wide = np.pad(vivid, ((1, 1), (1, 1), (0, 0)), mode="edge")
    blurred = sum(wide[i : i + height, j : j + width] for i in range(3) for j in range(3)) / 9
    sharp = vivid + 0.7 * (vivid - blurred)
    return np.clip(sharp, 0.0, 1.0) ** (1 / 2.2)


def develop_args(tiles=4):
    """The portrait that scikit-image ships (512 × 512), repeated in both directions, float32."""
    from skimage import data

    return (np.tile(data.astronaut().astype(np.float32) / 255, (tiles, tiles, 1)),)


@fuser.accelerate
def black_scholes(spot, strike, years, rate=0.03, volatility=0.25):
    """Prices of European call options."""

    def normal(x):  # the normal distribution function, after Abramowitz and Stegun, 26.2.17
        t = 1 / (1 + 0.2316419 * np.abs(x))
        tail = t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
        tail = tail * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
        return np.where(x > 0, 1 - tail, tail)

    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / spread
    return spot * normal(d1) - strike * np.exp(-rate * years) * normal(d1 - spread)


def black_scholes_args(count=2_000_000):
    """Spot and strike prices and years to expiry, float64."""
    generator = np.random.default_rng(0)
    return generator.uniform(50, 150, count), generator.uniform(50, 150, count), generator.uniform(0.1, 2, count)


@fuser.jit
def softmax(x):
    """Each row turned into probabilities; written with fuser.numpy, which has JAX's names."""
    e = fnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_args(rows=4096):
    """A square matrix of normal random numbers, float32."""
    return (np.random.default_rng(0).standard_normal((rows, rows), np.float32),)


def softmax_in_numpy(x):
    """What softmax is compared with."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
