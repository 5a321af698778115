"""Sliding windows of an array, as index arithmetic: what convolutions and reductions over windows are made of.

`sliding_windows` adds one dimension for each window: element (…, o, …, w) of the result is element o·stride + w·dilation
of the operand. Windows overlap, so a copy of them would be much larger than the array; kernels read them where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.index import Affine
from fuser.ir.primitive import Movement, Primitive
from fuser.ir.scalar import Scalar
from fuser.ir.types import ArrayType
from fuser.ops.movement import Index, Read, movement, pad_p, shifted, slice_p, squeeze_p
from fuser.trace.tangent import full


def dilated(extent: int, dilation: int) -> int:
    """The extent with `dilation` - 1 places between neighbours."""
    return extent and (extent - 1) * dilation + 1


def count(extent: int, window: int, stride: int) -> int:
    """How many windows of that extent, `stride` apart, lie inside."""
    return max(0, (extent - window) // stride + 1)


def _type(x: ArrayType, dimensions: Any, window: Any, strides: Any, dilation: Any) -> ArrayType:
    shape = list(x.shape)
    for d, w, s, apart in zip(dimensions, window, strides, dilation, strict=True):
        if w < 1 or s < 1 or apart < 1:
            raise TypeRuleError(f"sliding_windows of {x} needs positive windows, strides and dilations")
        shape[d] = count(x.shape[d], dilated(w, apart), s)
    return ArrayType((*shape, *window), x.dtype, x.weak_type)


def _eval(x: np.ndarray, dimensions: Any, window: Any, strides: Any, dilation: Any) -> np.ndarray:
    out = _type(ArrayType(x.shape, x.dtype), dimensions, window, strides, dilation)
    if 0 in out.shape:
        return np.empty(out.shape, x.dtype)
    wide = tuple(dilated(w, apart) for w, apart in zip(window, dilation))
    every = [slice(None)] * x.ndim
    for d, s in zip(dimensions, strides):
        every[d] = slice(None, None, s)
    found = np.lib.stride_tricks.sliding_window_view(x, wide, tuple(dimensions))
    return found[(*every, *(slice(None, None, apart) for apart in dilation))]


def _lower(read: Read, index: Index, x: ArrayType, dimensions: Any, window: Any, strides: Any, dilation: Any) -> Scalar:
    inner: list[Affine] = list(index[: x.ndim])
    for n, (d, s, apart) in enumerate(zip(dimensions, strides, dilation)):
        inner[d] = inner[d] * s + index[x.ndim + n] * apart
    return read(0, tuple(inner))


def _transpose(ct: Any, x: Any, dimensions: Any, window: Any, strides: Any, dilation: Any) -> tuple[Any]:
    """The sum over each window's places of what came back, spread to where it was read; the last window first."""
    shape = list(x.aval.shape)
    for d, w, s, apart in reversed(list(zip(dimensions, window, strides, dilation))):
        last, total = ct.ndim - 1, None
        for place in range(w):
            start, limit = [0] * ct.ndim, list(ct.shape)
            start[last], limit[last] = place, place + 1
            part = slice_p.bind(ct, start_indices=tuple(start), limit_indices=tuple(limit), strides=None)
            part = squeezed(part, last)
            taken = dilated(part.shape[d], s)
            config = [(0, 0, 0)] * part.ndim
            config[d] = (place * apart, shape[d] - place * apart - taken, s - 1)
            part = padded(part, tuple(config))
            total = part if total is None else total + part
        ct = total
    return (ct,)


def squeezed(x: Any, dimension: int) -> Any:
    """`x` without a dimension of extent 1."""
    return squeeze_p.bind(x, dimensions=(dimension,))


def padded(x: Any, config: Sequence[tuple[int, int, int]], value: Any = 0) -> Any:
    """`x` with `value` around and between its elements; itself where nothing is added."""
    if all(tuple(c) == (0, 0, 0) for c in config):
        return x
    return pad_p.bind(x, full(ArrayType((), x.dtype), value), padding_config=tuple(config))


def _batch(operands: Any, dims: Any, dimensions: Any, window: Any, strides: Any, dilation: Any) -> tuple[Any, int]:
    inner = shifted(dimensions, dims[0])
    params = {"window": window, "strides": strides, "dilation": dilation}
    return sliding_windows_p.bind(*operands, dimensions=inner, **params), dims[0]


sliding_windows_p: Primitive = movement(
    "sliding_windows",
    type=_type,
    eval=_eval,
    lower=_lower,
    transpose=_transpose,
    batch=_batch,
    samples=[
        (((9,),), {"dimensions": (0,), "window": (3,), "strides": (1,), "dilation": (1,)}),
        (((9, 4),), {"dimensions": (0,), "window": (3,), "strides": (2,), "dilation": (2,)}),
        (((2, 7, 8),), {"dimensions": (1, 2), "window": (3, 2), "strides": (2, 1), "dilation": (1, 3)}),
        (((5,),), {"dimensions": (0,), "window": (5,), "strides": (1,), "dilation": (1,)}),
    ],
    form=Movement.WINDOWS,
)


def places(x: Any, window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> list[Any]:
    """For each place in the windows over all of a padded array, in row-major order, the elements there: strided slices."""
    counts = [count(e, dilated(w, a), s) for e, w, s, a in zip(x.shape, window, strides, dilation)]
    found = []
    for place in np.ndindex(*window):
        start = tuple(p * a for p, a in zip(place, dilation))
        limit = tuple(a + (c - 1) * s + 1 if c else a for a, c, s in zip(start, counts, strides))
        found.append(slice_p.bind(x, start_indices=start, limit_indices=limit, strides=tuple(strides)))
    return found
