"""One run of a NumPy function on traced values: its constants, what it must refuse, and which values are equal.

A value inside is either *known* (an ndarray made while tracing, such as `np.zeros(n)`) or *traced* (a tracer). Known
values enter the graph here when they first meet a traced one: scalars as literals, uniform arrays as broadcasts.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.interop.numpy.checks import Checks, in_numpy, notice_unrepresentable
from fuser.ir.graph import Var
from fuser.ir.source import current_source
from fuser.ir.types import ALL_DTYPES
from fuser.lax.values import broadcast_to, convert
from fuser.runtime.array import Array
from fuser.trace.core import Tracer
from fuser.trace.stage import StageTracer

FALL_BACK = 'or run the function in NumPy with fuser.accelerate(f, fallback="warn")'
_DTYPES = frozenset(ALL_DTYPES)
_serial = itertools.count(1)


def untraceable(what: str, way_out: str = "", line: str = "") -> UnsupportedError:
    """The error for something that tracing cannot follow: what, the user's line (the one that runs now), and the way out."""
    return UnsupportedError(f"{what} ({line or current_source().short}); {way_out}{', ' if way_out else ''}{FALL_BACK}")


def supported(dtype: np.dtype, what: str = "an array") -> np.dtype:
    """`dtype`, or UnsupportedError where no kernel can hold it (objects, strings, dates, long doubles)."""
    if dtype not in _DTYPES or not dtype.isnative:
        raise untraceable(f"{what} of dtype {dtype} cannot be traced", "use numbers of at most 64 bits (complex: 128)")
    return dtype


class TooManyOperations(UnsupportedError):
    """A trace has grown so long, in a loop of Python's as a rule, that to compile it would take longer than it could save."""


class Context:
    """What all traced arrays of one run share."""

    def __init__(self, name: str, layout_known: bool = True) -> None:
        self.name = name
        self.checks = Checks()
        self.layout_known = layout_known  # whether every argument is C-contiguous, so that reshapes of it are views
        self.outside: Any = None  # what the function reads from outside (fuser.interop.outside)
        self.arguments: list[tuple[Any, Any]] = []  # arrays of the caller's, by where they are (fuser.interop.writes)
        self.functions: dict[Any, Any] = {}  # what stands for each of NumPy's functions, one each
        self.most_operations: int | None = None  # that a trace may have; None: as many as there are
        self.excess: Exception | None = None  # that there were more, which the function may have caught
        self.on_host = True  # whether NumPy's functions read the program's memory as it is
        self.draws: list[Any] | None = (
            None  # random numbers, inputs of the program; None where there is no call to draw them
        )
        self.writes: tuple[Any, ...] = ()  # to those arrays, once the function has run
        self.write_results = 0  # values that the program computes for them
        self.logs: list[Any] = []  # of writes in loops and branches that are being staged, the innermost last
        self.holders: list[dict[str, Any]] = []  # of variables' values, made to stage those
        # What loops and branches left, and arrays whose memory it may be, by their numbers.
        self.may_share: list[tuple[int, list[int]]] = []
        self._arrays: dict[int, tuple[Any, int]] = {}
        self.parts: list[Any] = []  # arrays of items of lists that are parts of other arrays in NumPy
        self.scope = 0  # tells apart the blocks in which views were read (fuser.interop.control.state)
        self.precise = False  # whether inputs may hold infinities and nans
        self._constants: dict[tuple[int, np.dtype], tuple[Any, Array]] = {}
        self._numbers: dict[Var, Any] = {}
        self._numbered: dict[Any, int] = {}  # equations of each trace that have numbers

    def held(self, values: dict[str, Any]) -> dict[str, Any]:
        """Note a dict that holds values of the traced function's variables, beside the function itself."""
        self.holders.append(values)
        return values

    def number_of(self, array: Any) -> int:
        """A number of an array's own, which does not keep it: who else has an array is counted (`Variables.alone`)."""
        known, number = self._arrays.get(id(array), (None, 0))
        if known is None or known() is not array:
            number = next(_serial)
            self._arrays[id(array)] = weakref.ref(array), number
        return number

    def argument(self, where: Any, array: Any) -> Any:
        """Enter an array of the caller's, which sees what is written to it."""
        array.assignments = []
        self.arguments.append((where, array))
        return array

    def count(self, tracer: Any) -> None:
        """Raise TooManyOperations where the trace of a new value is longer than it may be."""
        most = self.most_operations
        trace: Any = tracer._trace if isinstance(tracer, StageTracer) else None
        if most is not None and trace is not None and len(trace.eqns) > most:
            line = current_source().short
            self.excess = TooManyOperations(
                f"{self.name} has more than {most} operations by {line}, most likely of a loop in Python; "
                f"use operations on whole arrays, {FALL_BACK}"
            )
            raise self.excess

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """A block that raises TooManyOperations once there were too many, whatever the traced function makes of that."""
        try:
            yield
        except Exception:
            if self.excess is not None:
                raise self.excess from None
            raise

    def written(self) -> list[tuple[Any, Any]]:
        """The caller's arrays that the function has written to."""
        return [(number, array) for number, array in self.arguments if array._version]

    def constant(self, value: Any, dtype: np.dtype) -> Any:
        """A NumPy array or scalar, converted to `dtype`, as a value that primitives take."""
        array = np.asarray(value)
        supported(array.dtype)
        with in_numpy():
            return self._constant(value, array, dtype)

    def _constant(self, value: Any, array: np.ndarray, dtype: np.dtype) -> Any:
        if not array.ndim:
            return Array(np.asarray(array.astype(dtype)))
        if array.size and all(stride == 0 or extent == 1 for stride, extent in zip(array.strides, array.shape)):
            return broadcast_to(Array(np.asarray(array[(0,) * array.ndim], dtype)), array.shape)
        key = (id(value), dtype)
        if key not in self._constants:
            dense = np.ascontiguousarray(array.astype(dtype))
            self._constants[key] = (value, Array(dense.copy() if dense is array else dense))
        return self._constants[key][1]

    def lift(self, value: Any, dtype: np.dtype) -> Any:
        """A known or traced value of `dtype`, as primitives take it."""
        if isinstance(value, Tracer):
            return to_dtype(value, dtype)
        if isinstance(value, Array):
            return value if value.dtype == dtype else self.constant(np.asarray(value), dtype)
        return self.constant(value, dtype)

    def same(self, a: Any, b: Any) -> bool:
        """Whether two values are surely equal: one tracer, or tracers that the same operations made."""
        if a is b:
            return True
        if not (isinstance(a, StageTracer) and isinstance(b, StageTracer)) or a._trace is not b._trace:
            return False
        trace: Any = a._trace
        return bool(self._number(trace, trace.operand(a)) == self._number(trace, trace.operand(b)))

    def _number(self, trace: Any, operand: Any) -> Any:
        """A value number: equal for operands that the same primitives made of the same operands."""
        eqns = trace.eqns
        for eqn in eqns[self._numbered.get(trace, 0) :]:
            key = (eqn.primitive.name, repr(eqn.params), *(self._key(v) for v in eqn.invars))
            for position, out in enumerate(eqn.outvars):
                self._numbers[out] = self._numbers.setdefault((key, position), len(self._numbers))  # type: ignore[call-overload]
        self._numbered[trace] = len(eqns)
        return self._key(operand)

    def _key(self, operand: Any) -> Any:
        if isinstance(operand, Var):
            return self._numbers.get(operand, operand)
        return (np.asarray(operand.val).tobytes(), operand.aval.dtype)


def to_dtype(value: Any, dtype: np.dtype) -> Any:
    """`value` converted as NumPy converts: floats that leave a small integer's range wrap around."""
    if value.dtype.kind == "f" and dtype.kind in "iu":
        notice_unrepresentable(value, dtype)
    if value.dtype.kind == "f" and dtype.kind in "iu" and dtype.itemsize < 8 and dtype != np.dtype("int32"):
        value = convert(value, np.dtype("int64" if dtype.itemsize == 4 else "int32"))
    return convert(value, dtype)
