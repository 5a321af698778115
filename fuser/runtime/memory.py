"""CPU memory for arrays: a pool of blocks that are reused while their pages are still mapped.

In: a shape and a dtype. Out: a C-contiguous ndarray of undefined contents, whose block returns to the pool with its last
view. Arrays under 64 KiB come from malloc, which recycles by itself. The pool is that of the native core, or the one in
pool.py, which does the same. `FUSER_MEMORY_LIMIT` bounds the bytes in use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.config import config
from fuser.errors import OutOfMemoryError
from fuser.runtime import pool
from fuser.runtime.core import native
from fuser.runtime.pool import ASK_WHEN_FRESH, HUGE_PAGE, LARGEST, available_memory, physical_memory

SMALL = 64 << 10  # bytes; below, np.empty
LINE = 64  # bytes of a line of the cache
SHOWN = 5  # lines of live arrays in an error
_chosen: Any = native or pool
# The bases of arrays from the pool: memory that nothing else refers to.
OWNERS: tuple[type, ...] = (pool.Lease,) if native is None else (pool.Lease, native.Block)


def python_empty(shape: tuple[int, ...], dtype: np.dtype[Any], label: str = "") -> np.ndarray[Any, Any]:
    """`empty` over the pool in Python."""
    size = math.prod(shape) * dtype.itemsize
    if size < SMALL:
        return np.empty(shape, dtype)
    lease = pool.lease(size, (shape, dtype, label))
    if lease is None:
        raise refusal(size, shape, dtype, label)
    return np.ndarray(shape, dtype, lease)


def block(size: int, label: str) -> np.ndarray[Any, Any]:
    """So many bytes for the temporaries of one call, without the native core."""
    if size < SMALL:
        return np.empty(size, np.uint8)
    lease = pool.lease(size, (None, None, label))
    if lease is None:
        raise refusal(size, None, None, label)
    return np.ndarray((size,), np.uint8, lease)


# empty(shape, dtype, label=""): a C-contiguous array of undefined contents. Raises OutOfMemoryError; `label` says in such
# errors whose it is: the line of the user's program.
empty: Callable[..., np.ndarray[Any, Any]] = python_empty if native is None else native.empty


def copied(array: np.ndarray[Any, Any] | np.generic, dtype: np.dtype[Any] | None = None) -> np.ndarray[Any, Any]:
    """A C-contiguous copy, in another `dtype` where one is given. Its elements begin where a line of the cache does, if it has 64 KiB or more: vectors that kernels load
    from memory of NumPy's own, which begins anywhere, lie across two lines."""
    result = empty(array.shape, array.dtype if dtype is None else dtype)
    result[...] = array
    return result


def on_lines(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, or a copy where it has 64 KiB or more and does not begin where a line of the cache does: an array that is kept is
    read more than once, and up to a half slower across lines."""
    return copied(array) if array.nbytes >= SMALL and array.ctypes.data % LINE else array


def memory_stats() -> dict[str, int]:
    """Bytes and counts of the CPU's pool: arrays of 64 KiB and more, each counted with its whole block.

    `bytes_in_use` and the highest value of it since the last reset, `peak_bytes_in_use`; `pool_bytes`, which lie idle for
    the next arrays; `limit_bytes`, 0 if there is none; `allocations`, and how many of them were `reuses` of a block.
    """
    return _chosen.memory_stats()  # type: ignore[no-any-return]


def trim() -> int:
    """Give every idle block back to the system; returns how many bytes that were."""
    return _chosen.trim()  # type: ignore[no-any-return]


def reset_peak() -> None:
    """Let peak_bytes_in_use start again from what is in use now."""
    _chosen.reset_peak()


def block_size(size: int) -> int:
    """Bytes of the block that serves `size` bytes: quarter steps of a power of two, eighths from 2 MiB on."""
    return _chosen.block_size(size)  # type: ignore[no-any-return]


def counted_size(size: int) -> int:
    """Bytes by which an array of `size` bytes changes `bytes_in_use`."""
    return 0 if size < SMALL else block_size(size)


def refusal(size: int, shape: tuple[int, ...] | None, dtype: Any, label: str | None) -> OutOfMemoryError:
    """The error of an array (without shape, of a block) that could not be had: why, and the largest that are alive."""
    stats, limit = memory_stats(), config.memory_limit
    rounded = size if size > LARGEST else block_size(size)
    if size > LARGEST:
        reason = "no machine addresses that much"
    elif limit and stats["bytes_in_use"] + rounded > limit:
        reason = f"the limit is {_words(limit)} (FUSER_MEMORY_LIMIT)"
    elif rounded >= ASK_WHEN_FRESH and rounded > (left := available_memory()):
        reason = f"the system has {_words(left)} left"
    else:
        reason = "the system refused it"
    return OutOfMemoryError(
        f"no memory for {_described(size, shape, dtype, label)}: {_words(stats['bytes_in_use'])} in use by arrays, "
        f"and {reason}; {_way_out()}"
    )


def refusal_in_step(error: MemoryError, name: str, label: str, unnamed: bool = False) -> MemoryError:
    """The error of a step or an operation of NumPy that found no memory: its own words, the user's line, and the largest arrays alive.
    `unnamed`: the memory was asked for without the line."""
    if isinstance(error, OutOfMemoryError):
        return OutOfMemoryError(f"in {name} of {label}: {error}") if unnamed and label else error
    better = OutOfMemoryError(
        f"no memory in {name}{f' of {label}' if label else ''}: {str(error) or 'it does not say for what'}; "
        f"{_words(memory_stats()['bytes_in_use'])} in use by arrays; {_way_out()}"
    )
    better.__cause__ = error
    return better


def _way_out() -> str:
    """What to do, and the largest arrays alive; those alike are one line."""
    alike: dict[Any, list[int]] = {}
    for size, shape, dtype, label in _chosen.live():
        alike.setdefault((shape, dtype, label), []).append(size)
    largest = sorted(alike.items(), key=lambda entry: -sum(entry[1]))[:SHOWN]
    lines = [_described(max(s), shape, dtype, label, len(s)) for (shape, dtype, label), s in largest]
    text = "free arrays (del x, or x.delete()), donate inputs (donate_argnums), or work on smaller pieces"
    return "\n  ".join([f"{text}; the largest arrays alive are", *lines]) if lines else text


def _described(size: int, shape: tuple[int, ...] | None, dtype: Any, label: str | None, count: int = 1) -> str:
    """float32[3,4] (48 bytes) of mlp.py:12 (loss)"""
    what = "a block" if shape is None else f"{dtype}[{','.join(map(str, shape))}]"
    label = "the temporaries of one call" if shape is None and not label else label
    many, each = (f"{count} times ", " each") if count > 1 else ("", "")
    return f"{many}{what} ({_words(size)}{each}){f' of {label}' if label else ''}"


def _words(size: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


if native is not None:
    native.set_memory_bounds(physical_memory(), physical_memory() // 4)
    config.watch("memory_limit", native.set_memory_limit)

__all__ = [
    "HUGE_PAGE",
    "OWNERS",
    "SMALL",
    "available_memory",
    "block",
    "block_size",
    "counted_size",
    "empty",
    "memory_stats",
    "physical_memory",
    "refusal",
    "refusal_in_step",
    "reset_peak",
    "trim",
]
