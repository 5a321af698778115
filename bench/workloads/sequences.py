"""Scientific code that walks along a sequence: checksums of one message and of many packets, an alignment.

Integers, a table, and a loop over small states; NumPy runs the loop in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import Workload

POLYNOMIAL = 0xEDB88320
MATCH, MISMATCH, GAP = 2.0, -1.0, -1.0


def checksum(np: Any, message: Any) -> Any:
    """The CRC-32 of a message, byte by byte through a table of 256 remainders."""
    table, crc = _remainders(np), np.uint32(0xFFFFFFFF)
    for byte in message:
        crc = table[(crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return np.stack([crc ^ np.uint32(0xFFFFFFFF)])


def _remainders(np: Any) -> Any:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(
            table & np.uint32(1) != 0, (table >> np.uint32(1)) ^ np.uint32(POLYNOMIAL), table >> np.uint32(1)
        )
    return table


def _checksum_program(library: Any, message: Any) -> Any:
    np = library.numpy
    table = _remainders(np)

    def step(crc: Any, byte: Any) -> Any:
        return table[(crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8)), None

    crc, _ = library.lax.scan(step, np.uint32(0xFFFFFFFF), message)
    return np.stack([crc ^ np.uint32(0xFFFFFFFF)])


def _checksum_numba() -> Callable[..., Any]:
    import numba

    table = _remainders(np)

    @numba.njit
    def run(message):  # type: ignore[no-untyped-def]
        crc = np.uint32(0xFFFFFFFF)
        for byte in message:
            crc = table[(crc ^ byte) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        return np.array([crc ^ np.uint32(0xFFFFFFFF)], np.uint32)

    return run


def packets(np: Any, messages: Any) -> Any:
    """The CRC-32 of many packets of 64 bytes, bit by bit, for all packets at once."""
    crc = np.full(messages.shape[1:], np.uint32(0xFFFFFFFF))
    for row in messages:
        crc = _eight_bits(np, crc ^ row)
    return crc ^ np.uint32(0xFFFFFFFF)


def _eight_bits(np: Any, crc: Any) -> Any:
    for _ in range(8):
        crc = (crc >> np.uint32(1)) ^ (np.uint32(POLYNOMIAL) * (crc & np.uint32(1)))
    return crc


def _packets_program(library: Any, messages: Any) -> Any:
    np = library.numpy
    crc = np.full(messages.shape[1:], np.uint32(0xFFFFFFFF))
    crc, _ = library.lax.scan(lambda crc, row: (_eight_bits(np, crc ^ row), None), crc, messages)
    return crc ^ np.uint32(0xFFFFFFFF)


def alignment(np: Any, first: Any, second: Any) -> Any:
    """The best score of a local alignment of two sequences (Smith, Waterman), one antidiagonal after the other."""
    count = len(first)
    before, last = np.zeros(count + 1, np.float32), np.zeros(count + 1, np.float32)
    best, turned = np.zeros(count, np.float32), _turned(np, second, count)
    for step in range(2 * count - 1):
        before, last = last, _diagonal(np, before, last, first, turned[2 * count - 1 - step :][:count])
        best = np.maximum(best, last[1:])
    return np.max(best)


def _turned(np: Any, second: Any, count: int) -> Any:
    """The second sequence backwards, between places that match nothing."""
    nothing = np.full(count, -1, dtype=np.int32)
    return np.concatenate([nothing, np.flip(second), nothing])


def _diagonal(np: Any, before: Any, last: Any, first: Any, facing: Any) -> Any:
    """The scores along an antidiagonal, behind a 0; a place outside the table stays 0."""
    match = np.where(first == facing, np.float32(MATCH), np.float32(MISMATCH))
    score = np.maximum(before[:-1] + match, np.maximum(last[:-1], last[1:]) + np.float32(GAP))
    score = np.where(facing >= 0, np.maximum(score, np.float32(0.0)), np.float32(0.0))
    return np.concatenate([np.zeros(1, np.float32), score])


def _alignment_program(library: Any, first: Any, second: Any) -> Any:
    np, lax = library.numpy, library.lax
    count = len(first)
    turned = _turned(np, second, count)

    def step(number: Any, state: Any) -> Any:
        before, last, best = state
        facing = lax.dynamic_slice(turned, (2 * count - 1 - number,), (count,))
        score = _diagonal(np, before, last, first, facing)
        return last, score, np.maximum(best, score[1:])

    empty = np.zeros(count + 1, np.float32)
    return np.max(lax.fori_loop(0, 2 * count - 1, step, (empty, empty, np.zeros(count, np.float32)))[2])


WORKLOADS = (
    Workload(
        "checksum",
        "the CRC-32 of a message through a table, byte by byte",
        {"tiny": (100,), "small": (10_000,), "medium": (100_000,), "full": (1_000_000,), "large": (10_000_000,)},
        lambda random, n: (random.integers(0, 256, n, dtype=np.uint8),),
        checksum,
        flops=lambda n: 4 * n,
        program=_checksum_program,
        numba=_checksum_numba,
        dtypes=("float32",),
        iterations=1_000_000,
        numpy_alone=True,
    ),
    Workload(
        "packets",
        "the CRC-32 of many packets of 64 bytes, bit by bit",
        {"tiny": (30,), "small": (1000,), "medium": (10_000,), "full": (100_000,), "large": (1_000_000,)},
        lambda random, n: (random.integers(0, 256, (64, n), dtype=np.uint8),),
        packets,
        flops=lambda n: 64 * 33 * n,
        program=_packets_program,
        dtypes=("float32",),
        iterations=64,
        numpy_alone=True,
    ),
    Workload(
        "alignment",
        "the best local alignment of two sequences, by antidiagonals",
        {"tiny": (30,), "small": (200,), "medium": (500,), "full": (2000,), "large": (10_000,)},
        lambda random, n: tuple(random.integers(0, 4, (2, n), dtype=np.int32)),
        alignment,
        flops=lambda n: 14 * n * n,
        program=_alignment_program,
        dtypes=("float32",),
        iterations=4000,
        numpy_alone=True,
    ),
)
