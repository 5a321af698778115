"""Reductions by segment: elements that carry the same number are combined. Reached as `fuser.ops.segment_sum` and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.errors import ConcretizationTypeError
from fuser.ir.dim import Dim
from fuser.ir.types import BOOL, is_inexact
from fuser.lax.layouts import sharded
from fuser.lax.slicing import GatherScatterMode
from fuser.lax.values import as_value
from fuser.numpy import maths as M
from fuser.numpy import movement as V
from fuser.numpy import reductions as R
from fuser.numpy.creation import full
from fuser.trace.core import Tracer

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]


def _least(dtype: np.dtype, sign: int) -> Any:
    if dtype == BOOL:
        return sign > 0
    if is_inexact(dtype):
        return sign * np.inf
    limits = np.iinfo(dtype)
    return limits.max if sign > 0 else limits.min


def _segments(
    name: str, method: str, start: Callable[[np.dtype], Any], whole: Callable[..., Any], text: str
) -> Callable[..., Any]:
    def function(
        data: Any,
        segment_ids: Any,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode: Any = None,
        out_sharding: None = None,
    ) -> Any:
        x, ids = as_value(data, name), as_value(segment_ids, name)
        count = _count(name, ids, num_segments)
        clip = mode is not None and GatherScatterMode.from_any(mode) == GatherScatterMode.CLIP
        ids = M.clip(ids, 0, max(count - 1, 0)) if clip else ids
        sizes = (count, *x.shape[1:])
        step = ids.shape[0] if bucket_size is None or not ids.ndim else bucket_size
        parts = []
        for first in range(0, max(ids.shape[0], 1), max(step, 1)):
            empty = full(sizes, start(x.dtype), x.dtype)
            piece = slice(first, first + step)
            update = getattr(empty.at[ids[piece]], method)
            options = {
                "indices_are_sorted": indices_are_sorted,
                "unique_indices": unique_indices,
                "wrap_negative_indices": False,
            }
            parts.append(update(x[piece], mode="clip" if clip else "drop", **options))
        return parts[0] if len(parts) == 1 else whole(V.stack(parts), 0).astype(x.dtype)

    function.__name__ = function.__qualname__ = name
    function = sharded(function)
    function.__doc__ = f"""{text} of the rows of `data` that have one segment number: shape (num_segments, ...), the dtype of `data`.

    Numbers outside [0, num_segments) drop their rows, or count as the nearest with mode="clip". Without `num_segments` it is
    the greatest number plus 1, which a traced array does not tell: ConcretizationTypeError. With `bucket_size`, that many
    rows at a time are combined first. ValueError for a negative `num_segments`.
    """
    return function


def _count(name: str, ids: Any, num_segments: int | None) -> int:
    if num_segments is None:
        if isinstance(ids, Tracer):
            raise ConcretizationTypeError(
                f"{name} of traced segment numbers needs num_segments, which the shape of the result depends on"
            )
        return max(int(np.max(np.asarray(ids), initial=-1)) + 1, 0)
    if num_segments < 0:
        raise ValueError("num_segments must be non-negative.")
    return num_segments if type(num_segments) is Dim else int(num_segments)


segment_sum = _segments("segment_sum", "add", lambda dtype: 0, R.sum, "The sums")
segment_prod = _segments("segment_prod", "multiply", lambda dtype: 1, R.prod, "The products")
segment_max = _segments("segment_max", "max", lambda dtype: _least(dtype, -1), R.max, "The greatest")
segment_min = _segments("segment_min", "min", lambda dtype: _least(dtype, 1), R.min, "The least")
