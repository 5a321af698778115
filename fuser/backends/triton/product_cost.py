"""What a product of matrices costs on a GPU, which block of its result a program computes, and whether cuBLASLt is faster.

In: a product's extents. Out: a `Choice`, the tile and the parts of the contracted axis that take least by the estimate, and seconds. A
product takes the longest of its arithmetic (blocks in rounds over the multiprocessors), bytes from memory, bytes from the second cache,
and of waiting for the tiles of each step. `RATES` are estimates of the share of the stated rate that such tiles reach, not
measured; tuning (`fuser/backends/triton/tuning.py`) measures instead.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fuser.backends.triton.target import MACHINES, Machine

REFERENCE = MACHINES["cuda:90"]  # one program has one plan on all GPUs
CACHE_BANDWIDTH = 9e12  # bytes a second from the second cache to all multiprocessors
LATENCY = 0.9e-6  # seconds from asking for a tile in memory to having it
START = 2e-6  # seconds of a launch within a graph, its first tiles included
LIBRARY = 1.08  # cuBLASLt's rate over that of a generated kernel with the same tile
MOST_SPLITS = 32


@dataclass(frozen=True)
class DotTile:
    """The block of a product's result that one program computes, the piece of the contracted axis a step takes."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Extents:
    """A product: `batch` matrices of m × k times k × n, of numbers of `itemsize` bytes; `out`: bytes of a result's number;
    `tensor_float`: whether numbers of float32 may be rounded to TF32."""

    batch: int
    m: int
    n: int
    k: int
    itemsize: int
    out: int
    tensor_float: bool = False

    @property
    def on_matrix_units(self) -> bool:
        return self.itemsize <= 2 or self.tensor_float


@dataclass(frozen=True)
class Choice:
    """A tile, in how many parts the contracted axis is summed, and the estimate in seconds."""

    tile: DotTile
    splits: int
    seconds: float


# Tiles of products on matrix units, by rows and columns: warps, stages of tiles of 128 bytes along k, share of the stated rate.
RATES = {
    (128, 256): (8, 3, 0.72),
    (128, 128): (8, 4, 0.66),
    (64, 256): (8, 4, 0.6),
    (128, 64): (4, 4, 0.52),
    (64, 128): (4, 4, 0.52),
    (64, 64): (4, 4, 0.36),
    (32, 128): (4, 4, 0.2),
    (32, 64): (4, 4, 0.14),
    (16, 128): (4, 4, 0.1),
    (16, 64): (4, 4, 0.07),
}
PRODUCT_TILE = (128, 256)  # the tile of most products
# Those of float32, on the other units: warps, elements along k, share of the stated rate that one block on a multiprocessor reaches. Small
# results are in small blocks, as one multiprocessor alone takes microseconds for a large one.
SINGLES = {(16, 16): (4, 128, 0.16), (16, 32): (4, 64, 0.22), (32, 32): (4, 32, 0.31), (64, 64): (8, 16, 0.5)}
SINGLE_STAGES = 2
SINGLE_LIBRARY = 1.7  # cuBLASLt reaches 0.85 where its kernels, which have no smaller blocks than 32 × 32, fill the GPU
SMALLEST_OF_LIBRARY = 32 * 32


def choose(extents: Extents, machine: Machine = REFERENCE) -> Choice:
    """The fastest tile and number of parts."""
    return min(candidates(extents, machine), key=lambda c: c.seconds)


@functools.lru_cache(maxsize=4096)
def candidates(extents: Extents, machine: Machine = REFERENCE) -> tuple[Choice, ...]:
    """All tiles and parts that are worth a try, the fastest by the estimate first."""
    found = []
    for tile, rate in _tiles(extents):
        for splits in _splits(extents, tile, machine):
            found.append(Choice(tile, splits, seconds(extents, tile, splits, rate, machine)))
    return tuple(sorted(found, key=lambda c: c.seconds))


def library_seconds(extents: Extents) -> float:
    """What cuBLASLt is expected to take, which is called for exact products."""
    extents = replace(extents, tensor_float=False)
    faster, smallest = (LIBRARY, 0) if extents.on_matrix_units else (SINGLE_LIBRARY, SMALLEST_OF_LIBRARY)
    return min(
        seconds(extents, tile, splits, rate * faster, REFERENCE)
        for tile, rate in _tiles(extents)
        if tile.m * tile.n >= smallest
        for splits in _splits(extents, tile, REFERENCE, True)
    )


def epilogue_seconds(extents: Extents) -> float:
    """What a kernel of its own takes that reads a product's result and writes as many numbers."""
    return START + 2 * extents.batch * extents.m * extents.n * extents.out / REFERENCE.copy


def seconds(extents: Extents, tile: DotTile, splits: int, rate: float, machine: Machine) -> float:
    """The estimate of one tile and number of parts, at a share of the stated rate of arithmetic."""
    e = extents
    blocks = e.batch * -(-e.m // tile.m) * -(-e.n // tile.n) * splits
    steps = -(-e.k // (tile.k * splits))
    rounds = -(-blocks // machine.units)
    rate *= machine.tensor_float if e.tensor_float else machine.products(e.itemsize)
    arithmetic = rounds * steps * 2 * tile.m * tile.n * tile.k * machine.units / rate
    memory = e.batch * ((e.m * e.k + e.k * e.n) * e.itemsize + e.m * e.n * e.out) / machine.copy
    cache = blocks * steps * (tile.m + tile.n) * tile.k * e.itemsize / CACHE_BANDWIDTH
    together = max(1, min(rounds, machine.shared // max(1, _shared(tile, e.itemsize))))  # blocks that wait at once
    waiting = rounds / together * steps * LATENCY / tile.stages
    partial = 4 * e.batch * e.m * e.n * splits
    combined = START + 2 * partial / CACHE_BANDWIDTH if splits > 1 else 0.0
    return START + max(arithmetic, memory, cache, waiting) + combined


def _shared(tile: DotTile, itemsize: int) -> int:
    return tile.stages * (tile.m + tile.n) * tile.k * itemsize


def _tiles(extents: Extents) -> Iterator[tuple[DotTile, float]]:
    """The tiles that suit a product, each with its rate: those not much larger than its result."""
    power = lambda extent: 1 << max(extent - 1, 0).bit_length()
    if not extents.on_matrix_units:
        for (m, n), (warps, k, rate) in SINGLES.items():
            yield DotTile(m, n, min(k, max(16, power(extents.k))), warps, SINGLE_STAGES), rate
        return
    for (m, n), (warps, stages, rate) in RATES.items():
        if m <= max(16, power(extents.m)) and n <= max(64, power(extents.n)):
            yield DotTile(m, n, 128 // extents.itemsize, warps, stages), rate


def _splits(extents: Extents, tile: DotTile, machine: Machine, library: bool = False) -> Iterator[int]:
    """Parts of the contracted axis: one, and powers of two while there are multiprocessors without work and steps to share; kernels of
    ours for float32 have one."""
    blocks = extents.batch * -(-extents.m // tile.m) * -(-extents.n // tile.n)
    steps, splits = -(-extents.k // tile.k), 1
    while splits == 1 or (
        splits <= MOST_SPLITS
        and 4 * splits <= steps
        and blocks * splits <= 2 * machine.units
        and (library or extents.on_matrix_units)
    ):
        yield splits
        splits *= 2
