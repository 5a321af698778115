"""CUDA's libraries as the native core opens them: by the name that a process with torch knows, or from NVIDIA's packages."""

from __future__ import annotations

import functools
import importlib.util
import pathlib
from collections.abc import Iterator

from fuser.runtime.core import native

# The library's file, without what differs between releases, and the native core's function that opens it.
OPENERS = {
    "libcublasLt": "blas_open",
    "libcublas": "triangular_open",
    "libcusolver": "solver_open",
    "libcufft": "fft_open",
}
RELEASES = {"libcublasLt": (13, 12), "libcublas": (13, 12), "libcusolver": (12, 11), "libcufft": (12, 11)}


def candidates(name: str) -> Iterator[str]:
    """Where a library may be, the best first."""
    files = [f"{name}.so.{release}" for release in RELEASES[name]]
    yield from files
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        for file in files:
            yield from map(str, sorted(pathlib.Path(folder).glob(f"*/lib/{file}")))


@functools.cache
def opened(name: str) -> bool:
    """Whether a library is there."""
    for path in candidates(name):
        try:
            getattr(native, OPENERS[name])(path)
        except OSError:
            continue
        return True
    return False
