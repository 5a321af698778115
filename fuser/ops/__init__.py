"""Every primitive with all its rules beside it, one file per family."""

from fuser.ops import calls, control, cumulative, dot, elementwise, incomplete, jit, movement, reduce, special

__all__ = ["calls", "control", "cumulative", "dot", "elementwise", "incomplete", "jit", "movement", "reduce", "special"]
