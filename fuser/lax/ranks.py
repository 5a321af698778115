"""Whose broadcasts the setting `numpy_rank_promotion` is about: the user's, not those that library functions make inside.

A ufunc checks the ranks of its operands. Any other public function promotes its operands by rules of its own, and may then
broadcast as it likes.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from fuser.config import config

_checked = False  # whether anybody has ever asked for the check: until then a call costs nothing more


def _setting_changed(value: Any, of_thread: bool) -> None:
    global _checked
    _checked = _checked or value not in (None, "allow")


config.watch("numpy_rank_promotion", _setting_changed)


def lenient(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, within which operands of different ranks broadcast whatever `numpy_rank_promotion` is."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _checked or config.numpy_rank_promotion == "allow":
            return function(*args, **kwargs)
        with config.using(numpy_rank_promotion="allow"):
            return function(*args, **kwargs)

    return call


def install(module: dict[str, Any], package: str) -> None:
    """Make every public function that the module's package defines a `lenient` one."""
    for name, value in module.items():
        own = isinstance(value, types.FunctionType) and value.__module__.startswith(package)
        if own and not name.startswith("_"):
            module[name] = lenient(value)
            module[name].__module__ = module["__name__"]  # where pickle finds it
