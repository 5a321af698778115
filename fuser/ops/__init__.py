"""Every primitive with all its rules beside it, one file per family."""

from fuser.ops import (
    calls,
    collective,
    control,
    cumulative,
    dot,
    dynamic,
    elementwise,
    incomplete,
    indexing,
    jit,
    movement,
    reduce,
    remat,
    scatter,
    sorting,
    special,
)

__all__ = [
    "calls",
    "collective",
    "control",
    "cumulative",
    "dot",
    "dynamic",
    "elementwise",
    "incomplete",
    "indexing",
    "jit",
    "movement",
    "reduce",
    "remat",
    "scatter",
    "sorting",
    "special",
]
