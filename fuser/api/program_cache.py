"""Programs by the user's function: `jit(f)` made anew finds what an earlier one with its options traced and compiled.

Kept for plain functions, which are told apart by identity, as long as they live; for all settings as they were.
"""

from __future__ import annotations

import threading
import types
import weakref
from typing import Any

from fuser.config import config

MOST_PROGRAMS = 1024  # of one function
# The oldest are dropped: a program may hold its function, by a derivative rule that closes over it.
MOST_FUNCTIONS = 4096

_PROGRAMS: weakref.WeakKeyDictionary[types.FunctionType, dict[Any, Any]] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def remembered(function: Any, key: Any) -> Any:
    """What `remember` was told for this function and key under the settings of now; None if nothing."""
    found = _PROGRAMS.get(function) if type(function) is types.FunctionType else None
    if found is None:
        return None
    try:
        return found.get((key, config.all_settings()))
    except Exception:
        return None  # an option that cannot be hashed, a static value of the user's that refuses a comparison


def remember(function: Any, key: Any, value: Any) -> None:
    """Keep `value` while the function lives; nothing for callables that are no plain functions, and keys without a hash."""
    if type(function) is not types.FunctionType:
        return
    with _lock:
        known = _PROGRAMS.setdefault(function, {})
        try:
            known[key, config.all_settings()] = value
        except Exception:
            return
        while len(known) > MOST_PROGRAMS:
            del known[next(iter(known))]
        while len(_PROGRAMS) > MOST_FUNCTIONS:
            _PROGRAMS.pop(next(iter(_PROGRAMS)), None)


def forget(function: Any = None) -> None:
    """Drop the programs of one function, or all."""
    with _lock:
        if function is None:
            _PROGRAMS.clear()
        elif type(function) is types.FunctionType:
            _PROGRAMS.pop(function, None)
