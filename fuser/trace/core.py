"""The current Trace and `bind`, through which every operation goes.

Traces are stackless: one Trace is current; it is given every primitive that is bound and decides what to do. The
outermost Trace evaluates; `stage` makes one that records a Graph; transforms make theirs around the one before.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fuser.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from fuser.ir.primitive import Fusion, Primitive
from fuser.ir.references import AbstractRef
from fuser.ir.source import Source, current_source
from fuser.ir.types import ArrayType
from fuser.runtime.array import Array, install, to_numpy
from fuser.runtime.core import native
from fuser.runtime.memory import refusal_in_step
from fuser.runtime.reference import Ref
from fuser.runtime.shards import Shards
from fuser.trace.explicit import rules


class Trace:
    """What happens to each primitive while this trace is current."""

    name = "trace"
    closed = False

    @property
    def main(self) -> Trace:
        """What tells one transformation's values from another's (`x._trace.main is main`, in Equinox's `filter_jvp`)."""
        return self

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The result of the primitive (a list of results with `multiple_results`) for values of any kind."""
        raise NotImplementedError

    def origin(self, tracer: Tracer) -> Source | None:
        """Where a value of this trace was made, if that is known."""
        return None

    def read(self, tracer: Tracer) -> np.ndarray | None:
        """The value, where this trace can compute it now; None where only its type is known."""
        return None

    def shown(self, tracer: Tracer) -> str:
        """The values for print; empty where only the type is known."""
        return ""


class Tracer:
    """A value that a Trace follows. It has a type but no contents; operators are installed by fuser.numpy."""

    __slots__ = ("__weakref__", "_trace", "aval")
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: Trace, aval: ArrayType) -> None:
        self._trace = trace
        self.aval = aval

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the dimensions, outermost first."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the elements."""
        return self.aval.dtype

    @property
    def weak_type(self) -> bool:
        return self.aval.weak_type

    @property
    def sharding(self) -> Any:
        raise AttributeError(
            f"The 'sharding' attribute is not available on a traced {self.aval}. To query sharding information on tracers, use "
            f"`typeof(x)` ({current_source().short})"
        )

    @property
    def ndim(self) -> int:
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.aval.size

    @property
    def nbytes(self) -> int:
        return self.aval.nbytes

    @property
    def itemsize(self) -> int:
        return self.aval.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d array")
        return self.shape[0]

    def __repr__(self) -> str:
        return self._trace.shown(self) or f"Traced<{self.aval}>"

    def __bool__(self) -> bool:
        if (value := self._trace.read(self)) is not None:
            return bool(value)
        raise TracerBoolConversionError(
            f"Attempted boolean conversion of a traced {self.aval}, which "
            f"{self._why('`if` cannot read it', 'use fuser.lax.cond, or fuser.numpy.where')}"
        )

    def _why(self, what: str, way_out: str) -> str:
        """Why there is no value, what cannot be done without, where that was tried, and what to do instead."""
        if self._trace.closed:
            why = f"has no value: it was traced in {self._trace.name}, which has ended, so"
            way_out = "return the value from the traced function instead of storing it outside"
        else:
            why = "has no value yet, so"
        return f"{why} {what} ({current_source().short}); {way_out}"

    def _refuse(self, what: str, hint: str = "") -> ConcretizationTypeError:
        way_out = f"{hint or 'keep it an array'}, or make the argument static with static_argnums"
        return ConcretizationTypeError(
            "Abstract tracer value encountered where concrete value is expected: "
            f"a traced {self.aval} {self._why(f'{what} cannot read it', way_out)}"
        )

    def __float__(self) -> float:
        if (value := self._trace.read(self)) is not None:
            return float(value)
        raise self._refuse("float()", "try using `x.astype(float)`")

    def __int__(self) -> int:
        if (value := self._trace.read(self)) is not None:
            return int(value)
        raise self._refuse("int()", "try using `x.astype(int)`")

    def __complex__(self) -> complex:
        if (value := self._trace.read(self)) is not None:
            return complex(value)
        raise self._refuse("complex()", "try using `x.astype(complex)`")

    def item(self) -> Any:
        if (value := self._trace.read(self)) is not None:
            return value.item()
        raise self._refuse(".item()")

    def tolist(self) -> Any:
        if (value := self._trace.read(self)) is not None:
            return value.tolist()
        raise self._refuse(".tolist()", "The tolist() method was called on traced array; keep it an array")

    def tobytes(self, order: Any = "C") -> Any:
        raise self._refuse(".tobytes()", "The tobytes() method was called on traced array; keep it an array")

    def __index__(self) -> int:
        raise TracerIntegerConversionError(
            "The __index__() method was called on traced array: "
            f"a traced {self.aval} "
            + self._why(
                "Python cannot use it as an integer",
                "make the argument static with static_argnums, or use fuser.lax.fori_loop or fuser.lax.dynamic_slice",
            )
        )

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TracerArrayConversionError(
            "The numpy.ndarray conversion method __array__() was called on traced array: "
            f"a traced {self.aval} "
            + self._why(
                "NumPy cannot read it",
                "use fuser.numpy inside a jitted function, or fuser.accelerate for functions written with NumPy",
            )
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("fuser arrays are immutable: x[index] = value cannot run; use x = x.at[index].set(value)")

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))  # type: ignore[index]

    def block_until_ready(self) -> Tracer:
        return self


class _State(threading.local):
    trace: Trace | None = None


_state: Any = _State() if native is None else native.ThreadState()  # there the dispatcher reads it


def current() -> Trace:
    """The Trace that now receives every bound primitive."""
    return _state.trace or EVALUATION


def trace_state_clean() -> bool:
    """Whether no transform and no recording is under way."""
    return current() is EVALUATION


@contextlib.contextmanager
def using(trace: Trace) -> Iterator[Trace]:
    """Make `trace` current while the block runs."""
    saved = _state.trace
    _state.trace = trace
    try:
        yield trace
    finally:
        _state.trace = saved


def forwarded(parent: Trace, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """What the parent of the current trace makes of the primitive; the parent is current meanwhile."""
    saved, _state.trace = _state.trace, parent
    try:
        return parent.process(primitive, args, params)
    finally:
        _state.trace = saved


def bind(primitive: Primitive, *args: Any, **params: Any) -> Any:
    """Apply a primitive to arrays, NumPy values or tracers under the current Trace."""
    return (_state.trace or EVALUATION).process(primitive, args, params)


Primitive.binder = staticmethod(bind)


def type_of(value: Any) -> ArrayType:
    """The ArrayType of a tracer, an Array, or a NumPy array or scalar."""
    if isinstance(value, Tracer):
        return value.aval
    if isinstance(value, Array):
        if type(value._data) is Shards and (explicit := value._data.sharding.in_type(len(value.shape))) is not None:
            return ArrayType(value.shape, value.dtype, value.weak_type, frozenset(), explicit)
        return ArrayType(value.shape, value.dtype, value.weak_type)
    if type(value) is Ref:
        return AbstractRef(type_of(value.value).update(weak_type=value.weak_type), value.memory_space, value.kind)  # type: ignore[return-value]
    if isinstance(value, ArrayType):  # what describes an array has its own type
        return ArrayType(value.shape, value.dtype, value.weak_type, value.vma, getattr(value, "explicit", None))
    value = np.asarray(value)
    return ArrayType(value.shape, value.dtype, False)


def infer(primitive: Primitive, avals: tuple[ArrayType, ...], params: dict[str, Any]) -> Any:
    """The primitive's output type; errors of its type rule gain the user's line."""
    try:
        if primitive.discharge is None and not primitive.calls:  # functions may take Refs
            for aval in avals:
                if type(aval) is AbstractRef:
                    raise _no_array(primitive, aval)
        result = _varying(primitive, primitive.rule("type")(*avals, **params), avals, params)
        for aval in avals:
            if aval.explicit is not None:
                return rules.results(primitive, result, avals, params)
        return result
    except (TypeError, ValueError) as error:
        source = current_source()
        if source.file and error.args and isinstance(error.args[0], str) and source.short not in error.args[0]:
            error.args = (f"{error.args[0]} ({source.short})", *error.args[1:])
        raise


def _no_array(primitive: Primitive, aval: AbstractRef) -> ValueError:
    return ValueError(
        f"Attempting to pass a Ref {aval} to a primitive: {primitive} -- did you forget to unpack ([...]) the ref?"
    )


def _varying(primitive: Primitive, result: Any, avals: tuple[ArrayType, ...], params: dict[str, Any]) -> Any:
    """The output type with the mesh axes along which it varies; graphs among the params say it themselves."""
    if primitive.varying is None:
        for aval in avals:
            if aval.vma:
                break
        else:
            return result
        if primitive.fusion is Fusion.CONTROL:
            return result
    axes = frozenset[Any]().union(*(a.vma for a in avals))
    if primitive.varying is not None:
        own = primitive.varying(axes, **params)
        if own is None:  # the type rule has said it
            return result
        axes = own
    if primitive.multiple_results:
        return tuple(r.update(vma=axes) for r in result)
    return result.update(vma=axes)


def leaked(tracer: Tracer, source: Source | None = None) -> UnexpectedTracerError:
    """The error for a tracer whose trace has ended."""
    made = tracer._trace.origin(tracer)
    return UnexpectedTracerError(
        f"Encountered an unexpected tracer: a traced {tracer.aval} of {tracer._trace.name} was used after its trace had ended "
        f"({(source or current_source()).short}); return the value from the traced function instead of storing it outside. "
        f"An intermediate value with type {tracer.aval.str_long()} was saved to global state by a side effect of the function"
        f"{f'; it was created on line {made.short}' if made is not None else ''}."
    )


class EvalTrace(Trace):
    """Runs each primitive at once: where its operands lie over devices or on a GPU there, else by NumPy's eval rule."""

    name = "evaluation"
    # What runs operations on arrays over devices, and on a GPU's, once there may be such; NotImplemented leaves them.
    over_devices: Callable[[Primitive, tuple[Any, ...], dict[str, Any]], Any] | None = None
    on_gpu: Callable[[Primitive, tuple[Any, ...], dict[str, Any]], Any] | None = None
    default: Callable[[Any], Any] | None = None  # puts an array on the default device, once there has been one
    # Puts a new array of the host's where arrays are unless they are told where to: on a GPU.
    home: Callable[[Any], Any] | None = None
    # Is told of operations, operands and results, and may refuse these.
    examine: Callable[[Primitive, tuple[Any, ...], dict[str, Any], Any], None] | None = None

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        for arg in args:
            if isinstance(arg, Tracer):
                raise leaked(arg)
        if primitive.discharge is not None and any(type(a) is Ref for a in args):
            return primitive.discharge(*args, **params)
        result = self._result(primitive, args, params)
        if self.examine is not None:
            self.examine(primitive, args, params, result)
        return result

    def elsewhere(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """What the operation gives where its operands lie; NotImplemented where that is this machine's memory."""
        if self.over_devices is not None:
            result = self.over_devices(primitive, args, params)
            if result is not NotImplemented:
                return result
        return NotImplemented if self.on_gpu is None else self.on_gpu(primitive, args, params)

    def _result(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if primitive.run is not None:
            return primitive.run(*args, **params)
        result = self.elsewhere(primitive, args, params)
        if result is not NotImplemented:
            return result
        avals = tuple(type_of(a) for a in args)
        result_type = infer(primitive, avals, params)
        try:
            with np.errstate(all="ignore"):
                result = primitive.rule("eval")(*(host(a) for a in args), **params)
            if primitive.multiple_results:
                return [_wrap(r, t) for r, t in zip(result, result_type)]
            return _wrap(result, result_type)
        except MemoryError as error:
            raise refusal_in_step(error, primitive.name, str(current_source()))  # noqa: B904


def host(value: Any) -> np.ndarray:
    """The NumPy array behind an Array, or the value itself as one; bfloat16 and float8 included."""
    return to_numpy(value)


def _wrap(result: Any, aval: ArrayType) -> Array:
    result = np.asarray(result)
    if result.dtype != aval.dtype:
        result = result.astype(aval.dtype)
    if result.shape != aval.shape:
        result = result.reshape(aval.shape)
    if not result.flags.c_contiguous:
        result = np.ascontiguousarray(result)
    return Array(result, aval.weak_type)


class KnownTrace(Trace):
    """Evaluates what has values for all its operands at once; the parent, which may record, is given the rest."""

    name = "compile-time evaluation"

    def __init__(self, parent: Trace) -> None:
        self.parent = parent

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        known = not any(isinstance(a, Tracer) for a in args)
        return forwarded(EVALUATION if known else self.parent, primitive, args, params)


EVALUATION = EvalTrace()
install("aval", property(type_of, doc="The array's type: shape, dtype, weakness."))
if native is not None:
    native.set_evaluation(EVALUATION)
