"""Every primitive with all its rules beside it, one file per family."""

from fuser.ops import control, cumulative, dot, elementwise, fma, incomplete, linalg, movement, random, reduce, special

__all__ = [
    "control",
    "cumulative",
    "dot",
    "elementwise",
    "fma",
    "incomplete",
    "linalg",
    "movement",
    "random",
    "reduce",
    "special",
]
