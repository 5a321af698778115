"""jax.extend.core.primitives' names: the primitives that graphs are made of."""

from __future__ import annotations

from typing import Any

from fuser.lax.primitives import PRIMITIVES

__all__ = sorted(PRIMITIVES)


def __getattr__(name: str) -> Any:
    if name in PRIMITIVES:
        return PRIMITIVES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(PRIMITIVES)
