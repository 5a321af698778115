"""A photograph denoised, tone-mapped and sharpened: plain NumPy functions, and the same functions accelerated.

In: the photograph of an astronaut that scikit-image ships, repeated to the wanted size, with noise added. Out: the result
of both, compared, the speed-up, and a picture of before and after.

    python examples/image_pipeline.py --size 1024 --save before_after.png
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from skimage import data

import fuser


def denoise(image, rounds=8, strength=0.2, edge=0.1):
    """Edges kept, noise smoothed: Perona and Malik's anisotropic diffusion (IEEE PAMI 12, 1990)."""
    image = image.copy()
    for _ in range(rounds):
        centre = image[:, 1:-1, 1:-1]
        north, south = image[:, :-2, 1:-1] - centre, image[:, 2:, 1:-1] - centre
        west, east = image[:, 1:-1, :-2] - centre, image[:, 1:-1, 2:] - centre
        flow = sum(step * np.exp(-((step / edge) ** 2)) for step in (north, south, west, east))
        image[:, 1:-1, 1:-1] += strength * flow
    return image


def tone_map(image, exposure=0.9):
    """Light made linear, mapped by an S-shaped film curve (Narkowicz's fit of ACES), and encoded for a screen."""
    light = image**2.2 * exposure
    mapped = (light * (2.51 * light + 0.03)) / (light * (2.43 * light + 0.59) + 0.14)
    return np.clip(mapped, 0.0, 1.0) ** (1 / 2.2)


def blur(image):
    """The mean with neighbours, weighted 1 4 6 4 1, down and across."""
    rows = np.pad(image, ((0, 0), (2, 2), (0, 0)), mode="edge")
    image = (rows[:, :-4] + 4 * rows[:, 1:-3] + 6 * rows[:, 2:-2] + 4 * rows[:, 3:-1] + rows[:, 4:]) / 16
    columns = np.pad(image, ((0, 0), (0, 0), (2, 2)), mode="edge")
    left, right = columns[:, :, :-4] + 4 * columns[:, :, 1:-3], 4 * columns[:, :, 3:-1] + columns[:, :, 4:]
    return (left + 6 * columns[:, :, 2:-2] + right) / 16


def unsharp_mask(image, amount=0.8):
    """Contrast added where the image differs from its blurred self."""
    return np.clip(image + amount * (image - blur(image)), 0.0, 1.0)


def develop(raw):
    """Bytes in, bytes out: the whole pipeline, on one plane a colour."""
    image = np.moveaxis(raw, -1, 0).astype(np.float32) / np.float32(255)
    image = unsharp_mask(tone_map(denoise(image)))
    return np.moveaxis((image * 255 + 0.5).astype(np.uint8), 0, -1)


def photograph(size):
    """The astronaut, tiled to size × size, with noise."""
    image = data.astronaut()
    times = -(-size // image.shape[0])
    image = np.tile(image, (times, times, 1))[:size, :size].astype(np.float64)
    noisy = image + np.random.default_rng(0).normal(scale=12, size=image.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def best_of(function, argument, rounds):
    """The shortest of several runs, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function(argument)
        times.append(time.perf_counter() - start)
    return min(times)


def save(path, before, after):
    """One picture with both images side by side."""
    from skimage import io

    io.imsave(path, np.concatenate([before, after], axis=1), check_contrast=False)
    print(f"before and after are in {path}")


def main(arguments=None):
    """Run both, compare, time, save; returns the largest difference in grey levels."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=1024, help="pixels a side")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each")
    parser.add_argument("--save", default="", help="a PNG file for before and after")
    options = parser.parse_args(arguments)
    raw = photograph(options.size)
    fast = fuser.accelerate(develop)
    start = time.perf_counter()
    found = fast(raw)
    first = time.perf_counter() - start
    wanted = develop(raw)
    difference = int(np.abs(found.astype(int) - wanted.astype(int)).max())
    assert difference <= 1, f"the accelerated pipeline differs from NumPy's by {difference} grey levels"
    numpy_time, fuser_time = best_of(develop, raw, options.rounds), best_of(fast, raw, options.rounds)
    kernels = len(fast.lower(raw).plan.groups)
    print(
        f"{options.size} x {options.size} pixels: NumPy {numpy_time * 1e3:.1f} ms, accelerated {fuser_time * 1e3:.1f} ms"
    )
    print(
        f"{numpy_time / fuser_time:.1f} times as fast, in {kernels} kernels; the first call took {first:.2f} s; results differ by at most {difference} grey level"
    )
    if options.save:
        save(options.save, raw, found)
    return difference


if __name__ == "__main__":
    main()
