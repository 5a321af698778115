"""What a product of matrices costs on a GPU, which block of its result a program computes, and whether cuBLASLt is faster.

In: a product's extents. Out: a `Choice`, the tile and the division of the work that take least by the estimate, and seconds. A
product takes the longest of its arithmetic (blocks in rounds over the multiprocessors), bytes from memory, bytes from the second cache,
and of waiting for the tiles of each step; partial sums are written and read besides. `RATES` are estimates of the share of the stated rate that such tiles reach, not
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
MOST_SPLITS = 256
LIBRARY_SPLITS = 32
UNSURE = 1.05  # what an estimate may be wrong by
LEAST_STEPS = 4  # of a part, or of a stream


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
class Division:
    """Who does the steps along the contracted axis. Blocks up to number `whole` are a program's alone. The steps of the `shared` ones behind
    them, `steps` each, are one row of steps, of which each of `streams` programs takes as many as the next (stream-K: Osama et al. 2023);
    where a stream ends with a block this is split-K."""

    whole: int
    shared: int
    steps: int
    streams: int

    @property
    def share(self) -> int:
        """Steps of a stream, no more than a block has."""
        return -(-self.shared * self.steps // self.streams) if self.streams else 0

    @property
    def pieces(self) -> int:
        """Blocks of which a stream has steps, at most."""
        return 0 if not self.streams else 1 if self.steps % self.share == 0 else 2

    @property
    def items(self) -> int:
        """What programs do one after another: blocks, then pieces of shared ones, of which some are empty."""
        return self.whole + self.streams * self.pieces

    def longest(self, units: int) -> int:
        """Steps of the program that has most, with so many at once."""
        return -(-self.whole // units) * self.steps + -(-self.streams // units) * self.share

    @property
    def written(self) -> int:
        """Blocks of partial sums that are written and read again."""
        return 0 if not self.streams else self.streams if self.pieces == 1 else self.streams + self.shared


@dataclass(frozen=True)
class Choice:
    """A tile, in how many parts the contracted axis of each block is summed or how many streams share out the last blocks, and the estimate
    in seconds."""

    tile: DotTile
    splits: int
    streams: int
    division: Division
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
SINGLE_STAGES = 2  # a product of 256 in a loop's step takes an H100 4.98 µs, 4.72 with three or four, which no estimate here tells from larger ones
LIBRARY_STAGES = 2  # of cuBLASLt's, by the times of small products
SINGLE_LIBRARY = 1.7  # cuBLASLt reaches 0.85 where its kernels, which have no smaller blocks than 32 × 32, fill the GPU
SMALLEST_OF_LIBRARY = 32 * 32


def choose(extents: Extents, machine: Machine = REFERENCE) -> Choice:
    """The fastest tile and number of parts."""
    return candidates(extents, machine)[0]


@functools.lru_cache(maxsize=4096)
def candidates(extents: Extents, machine: Machine = REFERENCE) -> tuple[Choice, ...]:
    """All tiles and divisions that are worth a try, the fastest by the estimate first; streams where they gain more than it may be wrong by."""
    found = []
    for tile, rate in _tiles(extents):
        for splits, streams, division in _divisions(extents, tile, machine):
            found.append(Choice(tile, splits, streams, division, seconds(extents, tile, division, rate, machine)))
    return tuple(sorted(found, key=lambda c: c.seconds * (UNSURE if c.streams else 1)))


def library_seconds(extents: Extents) -> float:
    """What cuBLASLt is expected to take, which is called for exact products."""
    extents = replace(extents, tensor_float=False)
    faster, smallest = (LIBRARY, 0) if extents.on_matrix_units else (SINGLE_LIBRARY, SMALLEST_OF_LIBRARY)
    staged = lambda tile: tile if extents.on_matrix_units else replace(tile, stages=LIBRARY_STAGES)
    return min(
        seconds(extents, staged(tile), division, rate * faster, REFERENCE)
        for tile, rate in _tiles(extents)
        if tile.m * tile.n >= smallest
        for division in (_split(extents, tile, splits) for splits in _splits(extents, tile, REFERENCE, True))
    )


def epilogue_seconds(extents: Extents) -> float:
    """What a kernel of its own takes that reads a product's result and writes as many numbers."""
    return START + 2 * extents.batch * extents.m * extents.n * extents.out / REFERENCE.copy


def seconds(extents: Extents, tile: DotTile, division: Division, rate: float, machine: Machine) -> float:
    """The estimate of one tile and division of the work, at a share of the stated rate of arithmetic."""
    e = extents
    blocks, units = division.whole + division.shared, machine.units
    longest = division.longest(units)
    rate *= machine.tensor_float if e.tensor_float else machine.products(e.itemsize)
    arithmetic = longest * 2 * tile.m * tile.n * tile.k * units / rate
    memory = e.batch * ((e.m * e.k + e.k * e.n) * e.itemsize + e.m * e.n * e.out) / machine.copy
    cache = blocks * division.steps * (tile.m + tile.n) * tile.k * e.itemsize / CACHE_BANDWIDTH
    rounds = -(-(division.whole + division.streams) // units)
    together = max(1, min(rounds, machine.shared // max(1, _shared(tile, e.itemsize))))  # blocks that wait at once
    waiting = longest / together * LATENCY / tile.stages
    partial = 4 * tile.m * tile.n * division.written
    combined = START + 2 * partial / CACHE_BANDWIDTH if division.streams else 0.0
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


def _blocks(extents: Extents, tile: DotTile) -> tuple[int, int]:
    """The blocks of a result, and the steps of each."""
    return extents.batch * -(-extents.m // tile.m) * -(-extents.n // tile.n), -(-extents.k // tile.k)


def _divisions(extents: Extents, tile: DotTile, machine: Machine) -> Iterator[tuple[int, int, Division]]:
    """The ways to divide the work of a tile, by parts of each block and by streams."""
    for splits in _splits(extents, tile, machine):
        yield splits, 0, _split(extents, tile, splits)
    blocks, steps = _blocks(extents, tile)
    division = Division(blocks - blocks % machine.units, blocks % machine.units, steps, machine.units)
    if extents.on_matrix_units and division.share >= LEAST_STEPS:
        yield 1, machine.units, division


def _split(extents: Extents, tile: DotTile, splits: int) -> Division:
    """The division in which each block's contracted axis has so many parts."""
    blocks, steps = _blocks(extents, tile)
    return Division(blocks, 0, steps, 0) if splits == 1 else Division(0, blocks, steps, blocks * splits)


def _splits(extents: Extents, tile: DotTile, machine: Machine, library: bool = False) -> Iterator[int]:
    """Parts of the contracted axis: one, and powers of two while there are multiprocessors without work and steps to share."""
    (blocks, steps), splits = _blocks(extents, tile), 1
    most = LIBRARY_SPLITS if library else MOST_SPLITS
    while splits == 1 or (splits <= most and LEAST_STEPS * splits <= steps and blocks * splits <= 2 * machine.units):
        yield splits
        splits *= 2
