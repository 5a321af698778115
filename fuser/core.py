"""jax.core's names: types of values, traces, and running a graph."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from fuser import dtypes
from fuser.api.scopes import ensure_compile_time_eval
from fuser.gaps import absent
from fuser.ir.dim import Dim, maximum, minimum
from fuser.ir.graph import Graph, Literal, Var
from fuser.ir.types import ArrayType
from fuser.lax.values import as_value
from fuser.trace.core import EVALUATION, Trace, Tracer, using
from fuser.trace.replay import replay

__all__ = [
    "AbstractValue",
    "Atom",
    "ParamDict",
    "ShapedArray",
    "Trace",
    "Tracer",
    "Value",
    "ensure_compile_time_eval",
    "eval_context",
    "eval_jaxpr",
    "is_constant_shape",
    "max_dim",
    "min_dim",
]

# There is one kind of abstract value: an array's type.
AbstractValue = ArrayType


class _Made(type):
    """Instances are ArrayTypes, and so are what calls give."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, ArrayType)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return ArrayType in subclass.__mro__

    def __call__(
        cls,
        shape: Sequence[int],
        dtype: Any,
        weak_type: bool = False,
        *,
        sharding: Any = None,
        vma: Any = frozenset(),
        **_: Any,
    ) -> ArrayType:
        explicit = None
        if sharding is not None:
            for extent, parts in zip(shape, sharding.axes(len(tuple(shape)))):
                count = math.prod(sharding.mesh.shape[n] for n in parts)
                if extent % count:
                    raise ValueError(
                        f"a type of shape {tuple(shape)} cannot lie as {sharding.spec}: the {count} devices along {parts} does not evenly divide "
                        f"the dimension size {extent}"
                    )
            explicit = sharding.in_type(len(tuple(shape)))
        return ArrayType(tuple(shape), dtypes._dtype(dtype), bool(weak_type), frozenset(vma), explicit)


class ShapedArray(metaclass=_Made):
    """`ShapedArray(shape, dtype)` is an ArrayType, and every ArrayType is an instance; types say how arrays lie along Explicit axes."""


Atom = Var | Literal
ParamDict = dict[str, Any]
Value = Any


@contextlib.contextmanager
def eval_context() -> Iterator[None]:
    """While the block runs, every operation is evaluated at once; operands must have values."""
    with using(EVALUATION):
        yield


def eval_jaxpr(jaxpr: Graph, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True) -> list[Any]:
    """The results of a graph for `args`, with these values for its `constvars`."""
    values = [as_value(a, "eval_jaxpr") for a in args]
    return replay(dataclasses.replace(jaxpr, consts=tuple(consts)), *values)


def max_dim(d1: int, d2: int) -> int:
    """The greater of two extents."""
    return maximum(d1, d2)  # type: ignore[no-any-return]


def min_dim(d1: int, d2: int) -> int:
    """The lesser of two extents."""
    return minimum(d1, d2)  # type: ignore[no-any-return]


def is_constant_shape(s: Sequence[Any]) -> bool:
    """Whether no extent is symbolic."""
    return all(map(is_constant_dim, s))


def is_constant_dim(d: Any) -> bool:
    """Whether the extent is not symbolic."""
    return not isinstance(d, Dim)


# Names that have moved on to fuser.extend.core, as in JAX: there still, with a DeprecationWarning.
_MOVED = frozenset(
    [
        "DebugInfo",
        "DropVar",
        "InconclusiveDimensionOperation",
        "JaxprTypeError",
        "check_jaxpr",
        "concrete_or_error",
        "find_top_trace",
        "gensym",
        "get_opaque_trace_state",
        "jaxprs_in_params",
        "nonempty_axis_env_DO_NOT_USE",
        "primal_dtype_to_tangent_dtype",
        "unsafe_am_i_under_a_jit_DO_NOT_USE",
        "unsafe_am_i_under_a_vmap_DO_NOT_USE",
        "unsafe_get_axis_names_DO_NOT_USE",
        "valid_jaxtype",
    ]
)
_absent = absent(__name__)


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        return _absent(name)
    warnings.warn(f"fuser.core.{name} is deprecated. Use fuser.extend.core.{name}.", DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module("fuser.extend.core"), name)
