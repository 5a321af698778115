"""Extents of slices and broadcast shapes, symbolic or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.ir.dim import Dim, known_at_least, maximum, minimum


def slice_bounds(start: Any, stop: Any, step: int, extent: Any) -> tuple[Any, Any]:
    """(first, count) of a slice of so many elements, as `slice.indices` has them; None for bounds that are left out."""
    lowest, highest = (0, extent) if step > 0 else (-1, extent - 1)

    def inside(bound: Any, otherwise: Any) -> Any:
        if bound is None:
            return otherwise
        bound = bound if known_at_least(bound, 0) else bound + extent
        return maximum(lowest, minimum(bound, highest))

    first = inside(start, lowest if step > 0 else highest)
    last = inside(stop, highest if step > 0 else lowest)
    distance = last - first if step > 0 else first - last
    return first, maximum(0, -(-distance // abs(step)))


def common_shape(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """`np.broadcast_shapes`, of symbolic extents too. ValueError for shapes that do not go together."""
    if not any(type(d) is Dim for shape in shapes for d in shape):
        return np.broadcast_shapes(*shapes)
    result: list[Any] = []
    for n in range(max(map(len, shapes))):
        extents = {
            shape[-1 - n]: None
            for shape in shapes
            if n < len(shape) and not (type(shape[-1 - n]) is int and shape[-1 - n] == 1)
        }
        if len(extents) > 1:
            raise ValueError(f"shapes {', '.join(map(str, shapes))} cannot be broadcast together")
        result.append(next(iter(extents), 1))
    return tuple(reversed(result))
