"""jax.experimental.pjit: `jit`, whose shardings may be specs over the mesh in scope, as older programs import it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.api.jitted import jit
from fuser.api.placement import Said
from fuser.trace import tree

__all__ = ["pjit"]

_UNSAID = object()


def pjit(
    fun: Callable[..., Any] | None = None, in_shardings: Any = _UNSAID, out_shardings: Any = _UNSAID, **options: Any
) -> Any:
    """`jit` with these options. Within `with mesh:`, None says that each device has the whole value; elsewhere, nothing."""
    said = {"in_shardings": in_shardings, "out_shardings": out_shardings}
    given = {what: _whole(shardings) for what, shardings in said.items() if shardings is not _UNSAID}
    return jit(fun, **given, **options)


def _whole(shardings: Any) -> Any:
    return tree.map(lambda s: Said.WHOLE if s is None else s, shardings, is_leaf=lambda s: s is None)
