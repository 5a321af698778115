"""jax.extend.core's names: the data of graphs, and what libraries ask of the current trace.

A Graph is both Jaxpr and ClosedJaxpr: it holds its constants and has the fields of both.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fuser.errors import ConcretizationTypeError, InconclusiveDimensionOperation, JaxprTypeError
from fuser.extend.core import primitives
from fuser.gaps import absent
from fuser.ir.check import check
from fuser.ir.graph import Eqn as JaxprEqn
from fuser.ir.graph import Graph as ClosedJaxpr
from fuser.ir.graph import Graph as Jaxpr
from fuser.ir.graph import Literal, Var, graphs_in
from fuser.ir.primitive import Primitive
from fuser.ir.types import ALL_DTYPES, ArrayType, float0, is_inexact
from fuser.lax.tokens import Token
from fuser.lax.values import as_value
from fuser.trace.batch import BatchTrace
from fuser.trace.core import Trace, Tracer, _state, current
from fuser.trace.replay import replay
from fuser.trace.stage import StageTrace

__all__ = [
    "ClosedJaxpr",
    "DebugInfo",
    "DropVar",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "JaxprEqn",
    "JaxprTypeError",
    "Literal",
    "Primitive",
    "Token",
    "Var",
    "array_types",
    "check_jaxpr",
    "concrete_or_error",
    "find_top_trace",
    "gensym",
    "get_opaque_trace_state",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "mapped_aval",
    "nonempty_axis_env_DO_NOT_USE",
    "primal_dtype_to_tangent_dtype",
    "primitives",
    "set_current_trace",
    "subjaxprs",
    "take_current_trace",
    "unmapped_aval",
    "unsafe_am_i_under_a_jit_DO_NOT_USE",
    "unsafe_am_i_under_a_vmap_DO_NOT_USE",
    "unsafe_get_axis_names_DO_NOT_USE",
    "valid_jaxtype",
]


def check_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """The graph; JaxprTypeError where it is not well formed: a value used before it is made, a type that is not its rule's."""
    return check(jaxpr)


class DropVar(Var):
    """A result that nothing reads. Graphs of fuser's have variables alone, so nothing is one."""


array_types = {np.ndarray, *(d.type for d in ALL_DTYPES)}


class DebugInfo(NamedTuple):
    """What a function is traced for, where it is, and the names of its arguments and results."""

    traced_for: str
    func_src_info: str
    arg_names: tuple[str, ...] | None
    result_paths: tuple[str, ...] | None


def jaxpr_as_fun(closed_jaxpr: ClosedJaxpr, *args: Any) -> Any:
    """The graph as a function that gives a list; its results, where `args` are given."""
    run: Callable[..., list[Any]] = lambda *values: replay(closed_jaxpr, *map(as_value, values))
    return run(*args) if args else run


def jaxprs_in_params(params: dict[str, Any]) -> Iterator[Jaxpr]:
    """The graphs among an equation's params."""
    return graphs_in(params)


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The graphs that the equations of a graph hold."""
    return itertools.chain.from_iterable(graphs_in(eqn.params) for eqn in jaxpr.eqns)


def gensym() -> Callable[[ArrayType], Var]:
    """A function that makes new variables."""
    return Var


def mapped_aval(size: int, axis: int | None, aval: ArrayType) -> ArrayType:
    """The type without one dimension, which must have this extent (AssertionError); itself for None."""
    if axis is None:
        return aval
    assert aval.shape[axis] == size
    return aval.without(axis)


def unmapped_aval(size: int, axis: int | None, aval: ArrayType, explicit_mesh_axis: Any = None) -> ArrayType:
    """The type with one dimension more, of this extent; itself for None."""
    if axis is None:
        return aval
    axis = axis % (aval.ndim + 1)
    return aval.along(axis, size)


def primal_dtype_to_tangent_dtype(primal_dtype: Any) -> np.dtype:
    """The dtype of tangents: float0 for integers and bools."""
    return np.dtype(primal_dtype) if is_inexact(np.dtype(primal_dtype)) else float0


def valid_jaxtype(x: Any) -> bool:
    """Whether a value can be an array of fuser's."""
    try:
        as_value(x)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def concrete_or_error(force: Any, val: Any, context: str = "") -> Any:
    """`force(val)` (or `val` for None) of a known value; ConcretizationTypeError with `context` for a traced one."""
    if isinstance(val, Tracer):
        raise ConcretizationTypeError(f"a traced {val.aval} has no value yet. {context}".strip())
    return val if force is None else force(val)


# The current trace.


class _OpaqueTraceState:
    """Equal to another one of the same trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OpaqueTraceState) and self._trace is other._trace

    def __hash__(self) -> int:
        return id(self._trace)


def get_opaque_trace_state(convention: Any = None) -> Any:
    """An object that equals another exactly where the same trace was current."""
    return _OpaqueTraceState(current())


def take_current_trace() -> Any:
    """A context manager that gives the current trace, and meanwhile leaves none current but evaluation."""
    import contextlib

    from fuser.trace.core import EVALUATION, using

    @contextlib.contextmanager
    def taken() -> Iterator[Trace]:
        trace = current()
        with using(EVALUATION):
            yield trace

    return taken()


def set_current_trace(trace: Trace, check_leaks: bool = False) -> Any:
    """A context manager in which `trace` is current."""
    from fuser.trace.core import using

    return using(trace)


def find_top_trace(_: Any) -> Trace:
    """The current trace."""
    return current()


def _traces() -> Iterator[Any]:
    trace: Any = _state.trace
    while trace is not None:
        yield trace
        trace = getattr(trace, "parent", None)


def unsafe_am_i_under_a_jit_DO_NOT_USE() -> bool:
    """Whether a graph is being recorded."""
    return any(isinstance(trace, StageTrace) for trace in _traces())


def unsafe_am_i_under_a_vmap_DO_NOT_USE() -> bool:
    """Whether the function is being batched."""
    return any(isinstance(trace, BatchTrace) for trace in _traces())


def unsafe_get_axis_names_DO_NOT_USE() -> list[Any]:
    """The names of the axes that are mapped over, the innermost first."""
    return [t.axis_name for t in _traces() if isinstance(t, BatchTrace) and t.axis_name is not None]


def nonempty_axis_env_DO_NOT_USE() -> bool:
    """Whether a named axis is mapped over."""
    return bool(unsafe_get_axis_names_DO_NOT_USE())


__getattr__ = absent(__name__)
