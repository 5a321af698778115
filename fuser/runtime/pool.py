"""The pool of memory blocks in Python: what runs without the native core, and what the pool in C is compared with.

In: a number of bytes. Out: a Lease over a block of that many. Once it and all its views are gone, the block returns to
the pool, because faulting in fresh pages costs several times a memory-bound kernel's arithmetic. Blocks are 64-byte
aligned, from 2 MiB on they are huge pages. Safe in threads, in the garbage collector and after fork.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import mmap
import os
from typing import Any

import numpy as np

from fuser.config import config

HUGE_PAGE = 2 << 20
ASK_WHEN_FRESH = 256 << 20  # bytes from which a fresh block is first compared with the memory that the system has left
LARGEST = (1 << 63) - 1
_PAGE = mmap.PAGESIZE
_BYTE = np.dtype(np.uint8)

# What is known of a block on loan: shape, dtype and label of the array that it was made for; of the temporaries of a
# call, the label alone.
Purpose = tuple[tuple[int, ...] | None, "np.dtype[Any] | None", str]


def memory_stats() -> dict[str, int]:
    """See fuser.runtime.memory, as of the functions that follow."""
    return {
        "bytes_in_use": _pool.in_use,
        "peak_bytes_in_use": _pool.peak,
        "pool_bytes": _pool.idle,
        "limit_bytes": config.memory_limit,
        "allocations": _pool.allocations,
        "reuses": _pool.reuses,
    }


def trim() -> int:
    return _pool.shrink(0)


def reset_peak() -> None:
    _pool.peak = _pool.in_use


def block_size(size: int) -> int:
    if size <= HUGE_PAGE:
        step = max(1 << max((size - 1).bit_length() - 3, 0), _PAGE)
    else:
        step = max(1 << ((size - 1).bit_length() - 4), HUGE_PAGE)
    return -(-size // step) * step


def live() -> list[tuple[int, tuple[int, ...] | None, Any, str | None]]:
    return [(block.usable, *block.purpose) for block in _pool.live.copy().values()]


class _Block(mmap.mmap):
    """A mapping, with the place of its aligned part."""

    usable: int  # bytes
    start: int  # where they begin in the mapping
    purpose: Purpose


class _Pool:
    """Idle blocks by size, newest last, and the counters.

    Counters change in statements that call nothing, so neither another thread nor the collector can interrupt them.
    """

    __slots__ = ("allocations", "bound", "clock", "free", "idle", "in_use", "live", "peak", "reuses")

    def __init__(self) -> None:
        self.free: dict[int, collections.deque[tuple[int, _Block]]] = {}
        self.live: dict[int, _Block] = {}  # on loan, by id
        self.idle = self.in_use = self.peak = self.allocations = self.reuses = self.clock = 0
        self.bound = physical_memory() // 4  # bytes that may lie idle

    def take(self, size: int) -> _Block | None:
        """The block of this size that was released last, so that it is the warmest, or None."""
        blocks = self.free.get(size)
        if not blocks:
            return None
        try:
            block = blocks.pop()[1]
        except IndexError:  # another thread, or a collection in this one, was faster
            return None
        self.idle -= size
        return block

    def put(self, block: _Block, size: int) -> None:
        """Take an idle block in; the oldest ones go back to the system if too much lies idle."""
        blocks = self.free.get(size)
        if blocks is None:
            blocks = self.free.setdefault(size, collections.deque())
        self.clock += 1
        blocks.append((self.clock, block))
        self.idle += size
        if self.idle > self.bound:
            self.shrink(self.bound)

    def shrink(self, target: int) -> int:
        """Release idle blocks, oldest first, until at most `target` bytes are idle; returns the bytes released."""
        released = 0
        while self.idle > target:
            stamps = self.stamps()
            if not stamps:
                break
            _, size = min(stamps)
            try:
                self.free[size].popleft()
            except IndexError:  # taken meanwhile
                continue
            self.idle -= size
            released += size
        return released

    def stamps(self) -> list[tuple[int, int]]:
        """(stamp of the oldest idle block, size) of each size that has one."""
        found = []
        for size, blocks in list(self.free.items()):
            try:
                found.append((blocks[0][0], size))
            except IndexError:
                continue
        return found


class Lease(np.ndarray[Any, Any]):
    """A block on loan: the base of every array made from it. Its death, the last view's, returns the block."""

    __slots__ = ()

    def __del__(self) -> None:
        block: object = self.base
        if type(block) is _Block and _pool is not None:  # a view of a lease is no lease; None while Python shuts down
            size = block.usable
            _pool.live.pop(id(block), None)
            _pool.in_use -= size
            _pool.put(block, size)


def lease(size: int, purpose: Purpose) -> Lease | None:
    """A block for so many bytes; None where there is none, even without garbage and idle blocks."""
    if size > LARGEST:
        return None
    rounded = block_size(size)
    limit = config.memory_limit
    if limit and _pool.in_use + rounded > limit:
        gc.collect()
        if _pool.in_use + rounded > limit:
            return None
    block = _pool.take(rounded)
    if block is None:
        if limit and _pool.in_use + _pool.idle + rounded > limit:
            trim()
        block = _fresh(rounded)
        if block is None:
            return None
    else:
        _pool.reuses += 1
    block.purpose = purpose
    _pool.live[id(block)] = block
    _pool.allocations += 1
    result = Lease(rounded, _BYTE, block, block.start)
    _pool.in_use += rounded
    if _pool.in_use > _pool.peak:
        _pool.peak = _pool.in_use
    return result


def _fresh(rounded: int) -> _Block | None:
    """A new block from the system; retried once after all idle blocks and garbage are gone."""
    if rounded >= ASK_WHEN_FRESH and rounded > available_memory():
        gc.collect()
        trim()
        if rounded > available_memory():
            return None
    try:
        return _map(rounded)
    except (OSError, MemoryError, OverflowError):
        gc.collect()
        trim()
    try:
        return _map(rounded)
    except (OSError, MemoryError, OverflowError):
        return None


def _map(size: int) -> _Block:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # private: a forked child must not write into its parent's arrays
    huge = size >= HUGE_PAGE
    block = _Block(-1, size + HUGE_PAGE if huge else size, flags=flags)  # the excess allows for alignment, untouched
    block.usable = size
    block.start = 0
    if huge:
        block.start = -np.frombuffer(block, _BYTE, 1).ctypes.data % HUGE_PAGE
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without huge pages
                block.madvise(mmap.MADV_HUGEPAGE)
    return block


def physical_memory() -> int:
    """Bytes of memory that this process may have: the machine's, or its control group's limit if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                total = min(total, int(file.read()))
        except (OSError, ValueError):
            continue
    return total


def available_memory() -> int:
    """Bytes that the system can still hand out without swapping; the physical memory where it does not say."""
    try:
        with open("/proc/meminfo") as file:
            fields = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file}
        return min(fields["MemAvailable"] + fields.get("SwapFree", 0), physical_memory())
    except (OSError, KeyError, ValueError, IndexError):
        return physical_memory()


_pool = _Pool()
