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
    config.watch("enable_x64", _native.set_x64)
    config.watch("backend", lambda name, of_thread: _native.set_backend(_number(name), of_thread))
    return _native


def _number(backend: str | None) -> int:
    """A number for each name, by which programs are told apart; -1 for None."""
    return -1 if backend is None else _backends.setdefault(backend, len(_backends))


_backends: dict[str, int] = {}
native: Any = _load()
