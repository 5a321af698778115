"""Sums at targets in Triton's interpreter: one JSON line a case, with how often a result was not what it has to be.

`rounded`: elements that differ from the exact sum rounded once; `moved`: elements that differ when updates come in another order.
"""

from __future__ import annotations

import json
import os
import sys
from fractions import Fraction

if __name__ == "__main__":
    os.environ |= {"TRITON_INTERPRET": "1", "FUSER_BACKEND": "triton"}

import numpy as np

import fuser
from fuser.backends.triton import accumulators
from tests.backends.scatter_cases import small_buckets

ROWS = 9


def numbers(random: np.random.Generator, count: int) -> np.ndarray:
    """Float32 of all sizes with signs that cancel, subnormal ones among them."""
    exponents = random.integers(-149, 100, count) if random.random() < 0.5 else random.integers(-4, 30, count)
    values = np.ldexp(random.standard_normal(count), exponents).astype(np.float32)
    values[1::3] = -values[: len(values[1::3])]
    return values


def exact(x: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
    sums = [Fraction(float(v)) for v in x]
    for place, value in zip(i, u, strict=True):
        sums[place] += Fraction(float(value))
    return np.array([np.float32(float(s)) for s in sums])


def main(form: str) -> None:
    if form == "scaled":
        accumulators.EXACT_ELEMENTS = 0
    if form == "buckets":
        small_buckets(1024)
    random = np.random.default_rng(5)
    function = fuser.jit(lambda x, i, u: x.at[i].add(u))
    for seed in range(12):
        x, u = numbers(random, ROWS), numbers(random, 300)
        i = random.integers(0, ROWS, 300).astype(np.int32)
        got = np.asarray(function(x, i, u))
        order = random.permutation(300)
        again = np.asarray(function(x, i[order], u[order]))
        want = exact(x, i, u)
        largest = np.zeros(ROWS)
        np.maximum.at(largest, i, np.abs(u).astype(np.float64))
        beyond = np.abs(got.astype(np.float64) - want) > np.spacing(np.abs(want)) + 300 * largest * 2.0**-50
        print(
            json.dumps(
                {
                    "seed": seed,
                    "rounded": int((got != want).sum()),
                    "beyond": int(beyond.sum()),
                    "moved": int((got.view(np.int32) != again.view(np.int32)).sum()),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[-1])
