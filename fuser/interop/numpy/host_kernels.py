"""C kernels that NumPy's own functions are answered with where their results have sizes, or need orders, that depend on values.

In: contiguous ndarrays. Out: ndarrays, or None where there is no kernel for them and NumPy is to answer. One thread runs them.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from fuser.errors import ToolchainError
from fuser.runtime import sources, toolchain
from fuser.runtime.memory import empty

FEWEST = 1 << 14  # elements, below which NumPy's call costs less than what a kernel saves
SAMPLE = 2048  # of select.c
LEAST_ROOM = 64  # elements between the pivots of a selection
TABLES = 4  # of histogram.c
MOST_COLUMNS = 40  # of tall_factor.c
LEAST_SCALE = 1e-120  # of a column whose squares neither overflow nor vanish
MOST_BINS = 1 << 14  # whose tables stay in a near cache
_FLOATS = (np.dtype("float32"), np.dtype("float64"))


@functools.cache
def _selection(dtype: np.dtype) -> Any:
    """`order_statistics` of select.c; None where nothing compiles it."""
    wide = dtype.itemsize == 8
    names = f"#define T {'double' if wide else 'float'}\n#define WIDE {int(wide)}\n#define INFINITY __builtin_inf{'' if wide else 'f'}()\n"
    return _compiled(names + sources.read("select.c"), "order_statistics")


@functools.cache
def _histogram(dtype: np.dtype) -> Any:
    return _compiled(
        f"#define T {'double' if dtype.itemsize == 8 else 'float'}\n{sources.read('histogram.c')}", "histogram"
    )


@functools.cache
def _tall_factor() -> Any:
    return _compiled(sources.read("tall_factor.c"), "tall_factor")


@functools.cache
def _compaction(itemsize: int, name: str) -> Any:
    text = f"#include <stdint.h>\n#define T uint{8 * itemsize}_t\n{sources.read('compact.c')}"
    return _compiled(text, name)


def _compiled(text: str, name: str) -> Any:
    try:
        function = getattr(toolchain.load_shared(toolchain.compile_shared(text).path), name)
    except ToolchainError:
        return None
    function.restype = ctypes.c_int64
    return function


def _pointer(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


def neighbours(x: np.ndarray, ranks: list[int]) -> list[tuple[Any, Any]] | None:
    """For each rank k the elements at positions k and k + 1 of the sorted x (the last one twice); None where x has nans."""
    kernel = _selection(x.dtype) if x.dtype in _FLOATS and x.flags.c_contiguous and x.size >= FEWEST else None
    if kernel is None:
        return None
    room = max(x.size // 4, LEAST_ROOM)
    scratch, found = np.empty(SAMPLE + room + 16, x.dtype), np.empty(2, x.dtype)
    results = []
    for rank in ranks:
        if kernel(
            _pointer(x),
            ctypes.c_int64(x.size),
            ctypes.c_int64(rank),
            _pointer(scratch),
            ctypes.c_int64(room),
            _pointer(found),
        ):
            return None
        results.append((found[0], found[1]))
    return results


def counts(x: np.ndarray, edges: np.ndarray) -> np.ndarray | None:
    """How many elements of x, all of which lie between the outer edges, each bin of equal width has."""
    fits = x.dtype in _FLOATS and x.dtype == edges.dtype and x.flags.c_contiguous and len(edges) <= MOST_BINS
    kernel = _histogram(x.dtype) if fits else None
    if kernel is None:
        return None
    bins = len(edges) - 1
    found = np.zeros((TABLES, bins), np.int64)
    kernel(
        _pointer(x),
        ctypes.c_int64(x.size),
        _pointer(_scale(edges)),
        ctypes.c_int64(bins),
        _pointer(edges),
        _pointer(found),
    )
    return found.sum(axis=0)


def _scale(edges: np.ndarray) -> np.ndarray:
    """What histogram.c knows of bins: how near an edge a computed index may be wrong follows from the edges' own rounding."""
    first, last, bins = float(edges[0]), float(edges[-1]), len(edges) - 1
    width = last - first
    near = 16 * float(np.finfo(edges.dtype).eps) * bins * (1 + max(abs(first), abs(last)) / width)
    return np.array([edges[0], edges[-1] - edges[0], bins / width, near if near < 1 / 16 else 1.0], edges.dtype)


def positions(mask: np.ndarray) -> np.ndarray | None:
    """Where a mask of one dimension, or one read in C order, holds."""
    kernel = _compaction(8, "positions") if _is_large_mask(mask) else None
    if kernel is None:
        return None
    found = empty((int(np.count_nonzero(mask)),), np.dtype(np.int64))
    kernel(_pointer(mask), ctypes.c_int64(mask.size), _pointer(found))
    return found


def selected(x: np.ndarray, mask: np.ndarray) -> np.ndarray | None:
    """`x[mask]`."""
    fits = x.shape == mask.shape and x.itemsize in (4, 8) and x.flags.c_contiguous and x.dtype.kind in "iufM"
    kernel = _compaction(x.itemsize, "selected") if fits and _is_large_mask(mask) else None
    if kernel is None:
        return None
    found = empty((int(np.count_nonzero(mask)),), x.dtype)
    kernel(_pointer(mask), ctypes.c_int64(mask.size), _pointer(x), _pointer(found))
    return found


def _is_large_mask(mask: np.ndarray) -> bool:
    return mask.dtype == np.bool_ and mask.flags.c_contiguous and mask.size >= FEWEST


def tall_factor(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """R of [a b] = Q R for matrices of float64 with many more rows than columns; None where it has no finite one."""
    columns = a.shape[1] + b.shape[1]
    fits = a.dtype == b.dtype == np.float64 and a.shape[0] >= 4 * columns and 0 < columns <= MOST_COLUMNS
    steps = np.array([step // 8 for step in (*a.strides, *b.strides)], np.int64)
    kernel = _tall_factor() if fits and a.flags.aligned and b.flags.aligned else None
    if kernel is None or any(step % 8 for step in (*a.strides, *b.strides)):
        return None
    factor = np.zeros((columns, columns))
    sizes = (a.shape[0], a.shape[1], b.shape[1])
    kernel(_pointer(a), _pointer(b), _pointer(factor), *map(ctypes.c_int64, sizes), _pointer(steps))
    scales = np.abs(factor).max(axis=0)
    return factor if ((scales > LEAST_SCALE) & (scales < 1 / LEAST_SCALE)).all() else None
