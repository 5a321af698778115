"""SciPy's functions on arrays, under jax.scipy's names; each module is loaded when it is first asked for."""

import importlib
from types import ModuleType

_MODULES = (
    "cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "spatial", "special",
    "stats",
)  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"fuser.scipy.{name}")
    raise AttributeError(f"module 'fuser.scipy' has no attribute {name!r}")
