"""jax.experimental.pallas.tpu's names that say where scratch buffers lie and how kernels are compiled or interpreted."""

from __future__ import annotations

import enum
from typing import Any

from fuser.gaps import absent
from fuser.numpy import roll as _roll
from fuser.pallas.language import load, store
from fuser.pallas.specs import CompilerParams, InterpretParams, MemorySpace

ANY, HBM, SMEM, VMEM = MemorySpace.ANY, MemorySpace.ANY, MemorySpace.SMEM, MemorySpace.VMEM


class GridDimensionSemantics(enum.Enum):
    """Whether programs along a dimension of the grid may run at once."""

    PARALLEL = "parallel"
    ARBITRARY = "arbitrary"


PARALLEL, ARBITRARY = GridDimensionSemantics.PARALLEL, GridDimensionSemantics.ARBITRARY


def roll(x: Any, shift: Any, axis: int, **strides: Any) -> Any:
    """`x` with its elements along `axis` moved on by `shift`, the last ones to the front. ValueError for a strided roll."""
    if any(value is not None for value in strides.values()):
        raise ValueError(
            f"roll moves all rows alike, got {strides}; index with ref[...] for a shift that depends on the row"
        )
    return _roll(x, shift, axis)


__all__ = [
    "ANY",
    "ARBITRARY",
    "HBM",
    "PARALLEL",
    "SMEM",
    "VMEM",
    "CompilerParams",
    "GridDimensionSemantics",
    "InterpretParams",
    "MemorySpace",
    "load",
    "roll",
    "store",
]
__getattr__ = absent(__name__)
