"""The threads of the BLAS and LAPACK behind NumPy and SciPy: one while matrices that are not large are factorised.

More take many times as long for these, longest where others need the processors too, and round in another order than
native code does, which has the same limits (runtime/kernels/lapack.c).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

# How libraries name the function that says how many threads they may have, and returns how many they had.
SETTERS = ("scipy_openblas_set_num_threads_local", "openblas_set_num_threads_local", "MKL_Set_Num_Threads_Local")
_NAMES = (*SETTERS, *(f"{name}64_" for name in SETTERS[:2]))
_MODULES = ("numpy.linalg._umath_linalg", "scipy.linalg.cython_lapack")
ALONE = 1 << 25  # rows times columns times the lesser: up to which there is one thread
ALONE_IN_STEPS = 1 << 28  # the same for what takes many steps that must wait for each other


_IMPORTING = threading.Lock()


def imported(module: str) -> Any:
    """An extension module of NumPy or SciPy, imported by one thread at a time: the parts of SciPy import each other, and two threads
    that begin with different ones would wait for each other."""
    with _IMPORTING:
        return importlib.import_module(module)


@functools.cache
def setter(module: str) -> Callable[[int], int] | None:
    """The function of the library behind an extension module; None where it has none that is known."""
    library = ctypes.CDLL(imported(module).__file__)
    return next((found for name in _NAMES if (found := getattr(library, name, None)) is not None), None)


class _Holders:
    """How many are at work now, and the threads that each library had before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.before: dict[str, int] = {}

    def enter(self) -> None:
        with self.lock:
            if not self.count:
                self.before.clear()  # others may have set the threads since
            self.count += 1
            for module in _MODULES:
                limit = setter(module) if module in sys.modules else None
                if limit is not None:
                    self.before.setdefault(module, limit(1))

    def leave(self) -> None:
        with self.lock:
            self.count -= 1
            if not self.count:
                for module, threads in self.before.items():
                    limit = setter(module)
                    assert limit is not None
                    limit(threads)


_holders = _Holders()


@contextlib.contextmanager
def one_thread(work: int, most: int) -> Iterator[None]:
    """One thread for the libraries in this block, if a matrix's `work`, rows times columns times the lesser, is up to `most`."""
    if work > most:
        yield
        return
    _holders.enter()
    try:
        yield
    finally:
        _holders.leave()
