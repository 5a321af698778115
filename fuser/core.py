"""jax.core's names: types of values, traces, and running a graph."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from fuser.ir.graph import Graph, Literal, Var
from fuser.ir.types import ArrayType
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
    "max_dim",
    "min_dim",
]

# There is one kind of abstract value: an array's type.
AbstractValue = ShapedArray = ArrayType
Atom = Var | Literal
ParamDict = dict[str, Any]
Value = Any


@contextlib.contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """While the block runs, operations on known arrays are evaluated at once, also inside a traced function."""
    with using(EVALUATION):
        yield


eval_context = ensure_compile_time_eval


def eval_jaxpr(jaxpr: Graph, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True) -> list[Any]:
    """The results of a graph for `args`, with these values for its `constvars`."""
    return replay(dataclasses.replace(jaxpr, consts=tuple(consts)), *args)


def max_dim(d1: int, d2: int) -> int:
    """The greater of two extents."""
    return max(d1, d2)


def min_dim(d1: int, d2: int) -> int:
    """The lesser of two extents."""
    return min(d1, d2)
