"""What tracing knows of explicit sharding, the types that say how values lie: where layouts are left open, and fuser.parallel's rules.

Nothing is asked of the rules before a value has such a type.
"""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Openness(enum.IntEnum):
    """What becomes of a dimension whose layout does not follow from the operands' types."""

    STRICT = 0  # an error, with the way out
    AMBIGUOUS = 1  # the compiler decides; of all others the types do: replays of what was recorded
    OPEN = 2  # the compiler decides, of all dimensions of such a result: the function is told how its result is to lie


class _State(threading.local):
    openness = Openness.STRICT


_state = _State()


def openness() -> Openness:
    return _state.openness


@contextlib.contextmanager
def resolving(openness: Openness = Openness.OPEN) -> Iterator[None]:
    """Within the block, types leave at least so much to the compiler."""
    saved = _state.openness
    _state.openness = max(saved, openness)
    try:
        yield
    finally:
        _state.openness = saved


class Rules:
    """Set by fuser.parallel."""

    results: Callable[..., Any]  # (primitive, result type, operand types, params): the result type, with how it lies
    cotangent: Callable[[Any, Any], Any]  # (cotangent, type of the primal): laid out as cotangents of that type are
    split: Callable[[Any, int, Any, Any], Any]  # (value, dimension, mesh, entry): with that dimension laid out so
    sets: Callable[
        ..., Any
    ]  # (type, new dimension or None, result type, unreduced=, reduced=): how values with these sets lie
    local: Callable[
        [Any, Any, Any], Any
    ]  # (layout of a shard_map, type, spec): how one device's parts of such values lie
    joined: Callable[[Any, Any, Any], Any]  # (layout of a shard_map, type, spec): how a result of such parts lies


rules = Rules()
