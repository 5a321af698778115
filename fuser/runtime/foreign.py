"""Foreign functions by name, and what C reads of their attributes: memory that stays for the life of the process.

`address` answers for the size arguments of a call (`runtime/core/ffi.c`): ("target", name), ("attributes", pairs),
("name", text) and ("run",).
"""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.runtime.core import native

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)  # in the order of fuser/ffi.h, from 1 on
TEXT = len(DTYPES) + 1

Attribute = tuple[str, int, bool, int, bytes]  # name, dtype, whether it is an array, elements, their bytes

_targets: dict[str, int] = {}
_lock = threading.Lock()


def register(name: str, handler: int) -> None:
    """Let `name` stand for a handler at this address. ValueError for a name that stands for another."""
    with _lock:
        if _targets.setdefault(name, handler) != handler:
            raise ValueError(f"a foreign function is registered as {name!r} already; choose another name")


def registered(name: str) -> bool:
    """Whether a handler is registered under the name."""
    return name in _targets


def dtype_code(dtype: np.dtype) -> int:
    """The number of a dtype in fuser/ffi.h. UnsupportedError for one that it has none for."""
    if dtype.name not in DTYPES:
        raise UnsupportedError(
            f"foreign functions take no arrays of {dtype}; convert them to one of {', '.join(DTYPES)} first"
        )
    return DTYPES.index(dtype.name) + 1


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("is_array", ctypes.c_int32),
        ("count", ctypes.c_int64),
        ("data", ctypes.c_void_p),
    )


_kept: list[Any] = []


@functools.cache
def address(kind: str, what: Any = None) -> int:
    """The address of a part of a call. UnsupportedError for a function that is not registered, or without the native core."""
    if kind == "run":
        if native is None:
            raise UnsupportedError(
                "foreign functions need the native core; build it with `python setup.py build_ext --inplace`"
            )
        return int(native.run_foreign)
    if kind == "target":
        raise UnsupportedError(
            f"no foreign function is registered as {what!r}; call fuser.ffi.register_ffi_target first"
        )
    if kind == "name":
        return _memory(what.encode() + b"\0")
    block = (_Attribute * max(1, len(what)))()
    for n, (name, dtype, is_array, count, data) in enumerate(what):
        block[n] = _Attribute(name.encode(), dtype, is_array, count, _memory(data + b"\0"))
    _kept.append(block)
    return ctypes.addressof(block)


def target(name: str) -> int:
    """The address of a registered handler; UnsupportedError where there is none."""
    return _targets[name] if name in _targets else address("target", name)


def _memory(data: bytes) -> int:
    buffer = np.zeros(-(-len(data) // 16) * 2, np.complex128)  # aligned for every dtype
    buffer.view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
    _kept.append(buffer)
    return int(buffer.ctypes.data)
