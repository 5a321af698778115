"""Tracers that outlive their trace, found when it ends: what the setting `check_tracer_leaks` asks for."""

from __future__ import annotations

import gc
import types
from typing import Any

from fuser.config import config
from fuser.ir.graph import Graph
from fuser.ir.source import current_source
from fuser.trace.core import Trace, Tracer

_KINDS = {"StageTrace": "DynamicJaxprTrace"}  # JAX's name, where it is another


def check(trace: Trace) -> None:
    """Raise an Exception if a tracer of `trace`, which has ended, can still be reached; with the setting off, nothing."""
    if not config.check_tracer_leaks:
        return
    gc.collect()
    found = [holder for holder in gc.get_referrers(trace) if isinstance(holder, Tracer)]
    ours = {id(found)}
    leaked = [n for n in range(len(found)) if _reachable(found[n], ours)]  # enumerate would hold each, too
    if not leaked:
        return
    words = "\n".join(_described(found[n], ours) for n in leaked)
    kind = _KINDS.get(type(trace).__name__, type(trace).__name__)
    types_found = ", ".join(str(found[n].aval) for n in leaked)
    raise Exception(f"Leaked trace {kind} of {trace.name}. Leaked tracer(s): {types_found}.\n\n{words}")


def _referrers(value: Any, ours: set[int]) -> list[Any]:
    """What holds the value, frames and what this search has made excepted."""
    return [r for r in gc.get_referrers(value) if not isinstance(r, types.FrameType) and id(r) not in ours]


def _reachable(tracer: Tracer, ours: set[int]) -> bool:
    """Whether something besides this search, other tracers and constants of graphs, which are kept by type, holds it."""
    return any(
        not isinstance(holder, (Tracer, Trace)) and not _constants(holder) for holder in _referrers(tracer, ours)
    )


def _constants(holder: Any) -> bool:
    return type(holder) is tuple and any(isinstance(r, Graph) for r in gc.get_referrers(holder))


def _described(tracer: Tracer, ours: set[int]) -> str:
    """Where a leaked tracer was found, and the chain of what holds it."""
    kind = type(tracer).__name__
    lines = [f"This {kind} with object id {id(tracer)} was created on line:\n  {current_source()}"]
    value: Any = tracer
    for _ in range(4):
        holders = _referrers(value, ours)
        ours.add(id(holders))
        if not holders:
            break
        holder = holders[0]
        lines.append(f"<{type(value).__name__} {id(value)}> is referred to by <{type(holder).__name__} {id(holder)}>")
        value = holder
    return "\n".join(lines)
