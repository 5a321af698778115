"""The native core where it was built and is wanted (FUSER_NATIVE=0 turns it off); else None, and Python does the same."""

from __future__ import annotations

from typing import Any

from fuser.config import config


def _load() -> Any:
    if not config.native:
        return None
    try:
        from fuser.runtime import _native  # type: ignore[attr-defined]
    except ImportError:
        return None
    config.listen(_native.set_settings)
    return _native


native: Any = _load()
