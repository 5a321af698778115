"""Two arrays laid out alike: jax.experimental.shard_alike's function."""

from __future__ import annotations

from typing import Any

from fuser.lax.values import as_value
from fuser.parallel.arrays import laid_out, sharding_of
from fuser.trace.core import Tracer


def shard_alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Both arrays, of one shape (ValueError for others); y is laid out as x is. Traced ones are left to how they are used."""
    x, y = as_value(x, "shard_alike"), as_value(y, "shard_alike")
    if x.shape != y.shape:
        raise ValueError(
            f"The leaves shapes of `x` and `y` should match. Got `x` leaf shape={x.shape} and `y` leaf shape={y.shape}"
        )
    if isinstance(x, Tracer) or isinstance(y, Tracer):
        return x, y
    return x, laid_out(y, sharding_of(x))
