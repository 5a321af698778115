"""What only transforms and the compiler look at: `stop_gradient`, `optimization_barrier` and `dce_sink`."""

from __future__ import annotations

from typing import Any

from fuser.ir.types import is_inexact
from fuser.lax.values import as_value
from fuser.ops.conversion import stop_gradient_p
from fuser.ops.remat import dce_sink_p, optimization_barrier_p, scopes
from fuser.trace import tree
from fuser.trace.cells import is_ref
from fuser.trace.core import bind


def stop_gradient(x: Any) -> Any:
    """`x`, a tree of arrays, as a constant for every derivative."""

    def stopped(leaf: Any) -> Any:
        value = as_value(leaf, "stop_gradient")
        return bind(stop_gradient_p, value) if is_inexact(value.dtype) else value

    return tree.map(stopped, x)


def optimization_barrier(operand: Any, /) -> Any:
    """`operand`, a tree of arrays, through which the compiler neither merges nor moves anything.

    A Ref among them is handed on: its reads and writes keep their order in any case.
    """
    scope = next(scopes)

    def barred(leaf: Any) -> Any:
        value = as_value(leaf, "optimization_barrier")
        return value if is_ref(value) else bind(optimization_barrier_p, value, scope=scope)

    return tree.map(barred, operand)


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Have the arrays of `val`, a tree, computed although nothing uses them; `prevent_mlir_dce` is taken and means nothing."""
    for leaf in tree.leaves(val):
        bind(dce_sink_p, as_value(leaf, "dce_sink"), prevent_mlir_dce=prevent_mlir_dce)
