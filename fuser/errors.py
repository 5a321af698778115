"""Every error that fuser raises on purpose.

In: what went wrong, in words a user of NumPy, JAX or PyTorch knows. Out: an exception whose class is the one that
those libraries' users already catch (`TypeError`, `ValueError`, ...), and whose text says what, where, expected
against found, and what to do.
"""

from __future__ import annotations


class FuserError(Exception):
    """Base of every error of this project."""


class TypeRuleError(FuserError, TypeError, ValueError):
    """An operation was given shapes or dtypes that it does not take; NumPy's users catch ValueError, JAX's TypeError."""


class ConcretizationTypeError(FuserError, TypeError):
    """Python asked a traced array for its value."""


class TracerBoolConversionError(ConcretizationTypeError):
    """`if`, `while`, `and`, `or` or `not` read a traced array."""


class TracerIntegerConversionError(ConcretizationTypeError):
    """A traced array was used where Python needs an integer, as in `range(x)`."""


class TracerArrayConversionError(ConcretizationTypeError):
    """NumPy asked a traced array for its memory, as in `np.asarray(x)`."""


class NonConcreteBooleanIndexError(FuserError, IndexError):
    """A traced boolean mask indexes an array, so that the shape of the result depends on values."""


class UnexpectedTracerError(FuserError):
    """A traced array was used after its trace had ended."""


class MissingRuleError(FuserError, NotImplementedError):
    """A primitive lacks the rule that a transform needs."""


class GraphError(FuserError):
    """The checker found a graph that breaks a rule of the IR: a bug of a pass, never of the user."""


class ToolchainError(FuserError, RuntimeError):
    """A compiler is missing or refused generated code; carries the compiler's own words."""


class OutOfMemoryError(FuserError, MemoryError):
    """Memory for an array could not be had."""


class UnsupportedError(FuserError, NotImplementedError):
    """fuser does not do this; the text gives the reason and the way out."""


class PerformanceWarning(UserWarning):
    """Something costs time or memory that the program could save."""
