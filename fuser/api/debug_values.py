"""`debug_nans` and `debug_infs`: a nan or infinity is a FloatingPointError that names the operation and the user's line.

A compiled program's results are looked at; where one is bad, its graph runs again in NumPy up to the operation at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.api import compiler
from fuser.api.stages import Compiled
from fuser.config import config
from fuser.ir.graph import Graph, Literal, Var
from fuser.ir.primitive import Primitive
from fuser.ir.source import Source, current_source
from fuser.ir.types import is_inexact
from fuser.runtime.array import Array, to_numpy
from fuser.trace.core import EVALUATION


def fault(values: Sequence[Any]) -> str:
    """ "nan" or "inf" where one of the values has such a number that is looked for; else ""."""
    for value in values:
        array = to_numpy(value) if isinstance(value, (Array, np.ndarray, np.generic)) else np.empty(0, bool)
        if not is_inexact(array.dtype):
            continue
        wide = array if array.dtype.kind in "fc" else array.astype(np.float32)
        if config.debug_nans and np.isnan(wide).any():
            return "nan"
        if config.debug_infs and np.isinf(wide).any():
            return "inf"
    return ""


def refusal(found: str, name: str, source: Source | None) -> FloatingPointError:
    """The error for a bad value that an operation gave."""
    where = f" ({source.short})" if source is not None else ""
    return FloatingPointError(f"invalid value ({found}) encountered in {name}{where}")


def checked(compiled: Compiled) -> Callable[..., Any]:
    """The program's `run`, which looks at the results."""
    traced = compiled.traced

    def run(values: list[Any], foreign: tuple[int, ...] = ()) -> Any:
        kept = [np.array(to_numpy(v)) for v in values] if traced.donated else values
        result = compiled._run(values, foreign)
        if found := fault(_leaves(result)):
            _search(compiler.inline_calls(traced.graph), kept)
            raise refusal(found, f"jit({traced.graph.name})", current_source())
        return result

    return run


def _leaves(result: Any) -> list[Any]:
    from fuser.trace import tree

    return tree.leaves(result)


def _search(graph: Graph, values: Sequence[Any]) -> None:
    """Run the graph's operations one by one; FloatingPointError at the first with a bad result."""
    known: dict[Var, Any] = dict(zip((*graph.constvars, *graph.invars), (*graph.consts, *values)))
    for eqn in graph.eqns:
        operands = [np.asarray(v.val) if isinstance(v, Literal) else to_numpy(known[v]) for v in eqn.invars]
        with np.errstate(all="ignore"):
            result = eqn.primitive.rule("eval")(*operands, **eqn.params)
        results = result if eqn.primitive.multiple_results else (result,)
        known.update(zip(eqn.outvars, map(np.asarray, results)))
        if found := fault([known[v] for v in eqn.outvars]):
            raise refusal(found, eqn.primitive.name, eqn.source)


def _examine(primitive: Primitive, operands: Sequence[Any], params: dict[str, Any], results: Any) -> None:
    """What an operation gave outside of compiled programs, those of control flow and of transformed functions included."""
    if not (config.debug_nans or config.debug_infs):
        return
    if found := fault(results if primitive.multiple_results else (results,)):
        graph = params.get("jaxpr")
        if isinstance(graph, Graph) and len(graph.invars) == len(operands):
            _search(compiler.inline_calls(graph), operands)
        raise refusal(found, primitive.name, current_source())


def install() -> None:
    """Look at the results of single operations from the first time that a setting asks for it."""

    def setting_changed(value: Any, of_thread: bool) -> None:
        if value:
            EVALUATION.examine = _examine

    for name in ("debug_nans", "debug_infs"):
        config.watch(name, setting_changed)
