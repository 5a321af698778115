"""Every primitive with all its rules beside it, one file per family."""

from fuser.ops import cumulative, dot, elementwise, movement, reduce

__all__ = ["cumulative", "dot", "elementwise", "movement", "reduce"]
