"""Large draws outside `jit` run compiled: NumPy would take some hundred passes over memory for each of them."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from fuser.config import config
from fuser.trace.core import EVALUATION, Tracer, current

LARGE = 1 << 18  # elements from which the compiler, which is needed once for all sizes, is worth waiting for


def compiled_when_large(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(key, shape, dtype)`, jitted for a large shape; with more arguments than these it is left alone."""

    @functools.wraps(function)
    def draw(key: Any, shape: Any = (), dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or isinstance(key, Tracer) or current() is not EVALUATION or not _large(shape):
            return function(key, shape, dtype, *args, **kwargs)
        return _jitted(function, tuple(map(operator.index, shape)), dtype, config.enable_x64)(key)

    return draw


def _large(shape: Any) -> bool:
    try:
        return math.prod(shape) >= LARGE
    except TypeError:
        return False


@functools.lru_cache(256)
def _jitted(function: Callable[..., Any], shape: tuple[int, ...], dtype: Any, x64: bool) -> Callable[[Any], Any]:
    from fuser.api.jitted import jit

    return jit(lambda key: function(key, shape, dtype))  # type: ignore[no-any-return]
