"""jax.extend.core.primitives' names: the primitives that graphs are made of."""

from __future__ import annotations

from typing import Any

from fuser.gaps import absent
from fuser.lax.primitives import PRIMITIVES

__all__ = sorted(PRIMITIVES)
_absent = absent(__name__)


def __getattr__(name: str) -> Any:
    if name in PRIMITIVES:
        return PRIMITIVES[name]
    return _absent(name)


def __dir__() -> list[str]:
    return sorted(PRIMITIVES)
