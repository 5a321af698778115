"""Library functions that were compiled with the package, for x86-64-v4 or v3, so that no program waits for them.

In: a function, as `on_demand.address` takes it. Out: its symbol, or None: `runtime/kernels/prebuilt` has no such, the package
was built elsewhere, or from other files than are here now, or for a processor that has more than this one; then the
function is compiled when it is first wanted, from the same text.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.machinery
import pathlib
import platform
from typing import Any

from fuser.backends.c.control_flow import interrupt
from fuser.errors import ToolchainError
from fuser.runtime import sources, toolchain
from fuser.runtime.core import native
from fuser.runtime.flags import flags

PACKAGE = pathlib.Path(sources.__file__).parents[1]
# What of /proc/cpuinfo each level of x86-64 needs; the first that fits is taken.
_V3 = {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"}
LEVELS = {"v4": _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}, "v3": _V3}


def function(name: str, *types: Any) -> Any | None:
    """The function of this name for these types (`gemm_float32_float32`, `lu_float64`, `sort_float32_4`), or None."""
    library = None if native is None else _library()
    return library and getattr(library, "_".join((name, *map(str, types))), None)


def digest() -> str:
    """The SHA-256 of all files of kernels and of the compiler's flags."""
    files = sorted(sources.FOLDER.rglob("*.[ch]"))
    parts = [*(file.read_bytes() for file in files), " ".join(flags("")).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


@functools.cache
def _library() -> ctypes.CDLL | None:
    features = set(toolchain.processor().split()) if platform.machine() in ("x86_64", "AMD64") else set()
    for level, needed in LEVELS.items():
        path = next(
            (p for p in map(_place(level).format, importlib.machinery.EXTENSION_SUFFIXES) if pathlib.Path(p).is_file()),
            None,
        )
        if path and needed <= features:
            return _current(path)
    return None


def _place(level: str) -> str:
    return f"{PACKAGE}/_prebuilt_{level}{{}}"


def _current(path: str) -> ctypes.CDLL | None:
    """The library, if it was built from the files that are here."""
    try:
        library = toolchain.load_shared(path)
        built = (ctypes.c_char * 65).in_dll(library, "prebuilt_digest").value.decode()
    except (ToolchainError, ValueError):
        return None
    if built != digest():
        return None
    interrupt.connect_library(library)
    return library
