"""jax.experimental.pjit: `jit`, whose shardings may be specs over the mesh in scope, as older programs import it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fuser.api.jitted import jit
from fuser.api.placement import Said
from fuser.trace import tree

__all__ = ["pjit"]

_UNSAID = object()


def pjit(
    fun: Callable[..., Any],
    in_shardings: Any = _UNSAID,
    out_shardings: Any = _UNSAID,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: Any = None,
) -> Any:
    """`jit` with these options. Within `with mesh:`, None says that each device has the whole value; elsewhere, nothing."""
    options = {name: value for name, value in locals().items() if name not in ("fun", "in_shardings", "out_shardings")}
    said = {"in_shardings": in_shardings, "out_shardings": out_shardings}
    given = {what: _whole(shardings) for what, shardings in said.items() if shardings is not _UNSAID}
    return jit(fun, **given, **options)


def _whole(shardings: Any) -> Any:
    return tree.map(lambda s: Said.WHOLE if s is None else s, shardings, is_leaf=lambda s: s is None)
