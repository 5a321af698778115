"""What jit needs of the compiler, by name: a module is loaded when something of it is first asked for, with the first program.

So `import fuser` loads neither passes, nor partition, nor a backend.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {
    "HostMemory": "fuser.backends.base",
    "NOTHING_ASKED": "fuser.kernel.schedule",
    "Schedule": "fuser.kernel.schedule",
    "inline_calls": "fuser.passes.inline",
    "load": "fuser.compile",
    "lower": "fuser.compile",
    "moved_bytes": "fuser.partition.explain",
    "require_values": "fuser.kernel.schedule",
    "unused": "fuser.partition.donation",
    "with_schedule": "fuser.backends.base",
    "with_tuning": "fuser.backends.base",
    "with_tokens": "fuser.passes.tokens",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value
