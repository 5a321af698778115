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


class KernelError(FuserError):
    """A kernel breaks a rule of its form; only a defect in fuser raises it."""


class PlanError(FuserError):
    """A plan breaks a rule of its form; only a defect in fuser raises it."""


class ToolchainError(FuserError, RuntimeError):
    """A compiler is missing or refused generated code; carries the compiler's own words."""


class OutOfMemoryError(FuserError, MemoryError):
    """Memory for an array could not be had."""


class DuplicateSpecError(FuserError, ValueError):
    """A PartitionSpec uses a mesh axis for two dimensions."""


class MeshError(FuserError, ValueError, RuntimeError):
    """A spec names axes of a mesh where no mesh is in scope."""


class ShardingTypeError(FuserError, TypeError, ValueError):
    """Operands whose types say that they lie so that no one layout of the result follows."""


class DeviceError(FuserError, RuntimeError):
    """Devices that run one program together do not agree on it, or one of them failed."""


class UnsupportedError(FuserError, NotImplementedError):
    """fuser does not do this; the text gives the reason and the way out."""


class PerformanceWarning(UserWarning):
    """Something costs time or memory that the program could save."""


class AbsentError(UnsupportedError, AttributeError):
    """A name of JAX that fuser leaves out on purpose; the text says why and what to use instead."""


class DeserializationError(FuserError, ValueError):
    """Bytes that are no saved function, or one that this version cannot load."""


class InconclusiveDimensionOperation(FuserError):
    """A comparison of symbolic extents that holds for some of their values only."""


class JAXIndexError(FuserError, IndexError):
    """An index that JAX's rules of indexing do not allow."""


class JAXTypeError(FuserError, TypeError):
    """A type that JAX's rules do not allow."""


class JaxRuntimeError(FuserError, RuntimeError):
    """A compiled program failed while it ran."""


class JaxprTypeError(FuserError, TypeError):
    """A graph whose types do not fit together."""


class KeyReuseError(FuserError, RuntimeError):
    """A random key was used twice."""
