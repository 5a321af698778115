"""Every primitive with all its rules beside it, one file per family."""

from fuser.ops import (
    cumulative,
    dot,
    dynamic,
    elementwise,
    incomplete,
    indexing,
    movement,
    reduce,
    scatter,
    sorting,
    special,
)

__all__ = [
    "cumulative",
    "dot",
    "dynamic",
    "elementwise",
    "incomplete",
    "indexing",
    "movement",
    "reduce",
    "scatter",
    "sorting",
    "special",
]
