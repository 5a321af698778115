"""Handlers: functions of shared libraries, registered under names."""

from __future__ import annotations

import ctypes
import pathlib
from typing import Any

from fuser.errors import UnsupportedError
from fuser.runtime import foreign

_api = ctypes.pythonapi
_kept: list[Any] = []  # what handlers come from, so that their libraries stay


def include_dir() -> str:
    """The folder to give to a C compiler with -I, in which `fuser/ffi.h` lies."""
    return str(pathlib.Path(__file__).parent / "include")


def pycapsule(funcptr: Any) -> Any:
    """A PyCapsule around a function of a library that ctypes has loaded, for `register_ffi_target`."""
    builder = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", _api)
    )
    _kept.append(funcptr)
    return builder(ctypes.cast(funcptr, ctypes.c_void_p), None, None)


def register_ffi_target(name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any) -> None:
    """Let `ffi_call(name, ...)` call a handler: a PyCapsule, a function of ctypes', or a dict {"execute": one of these}.

    ValueError for a name that stands for another one, TypeError for what is no function of C, UnsupportedError for another
    platform than "cpu", another version than 1, or other stages.
    """
    if platform.lower() not in ("cpu", "host"):
        raise UnsupportedError(
            f"foreign functions are called on the CPU, got platform={platform!r}; on a GPU call a kernel of your own with "
            "fuser.triton_call"
        )
    if api_version != 1:
        raise UnsupportedError(f"foreign functions have api_version 1 (fuser/ffi.h), got {api_version}")
    if isinstance(fn, dict):
        if other := set(fn) - {"execute"}:
            raise UnsupportedError(f"a foreign function has the stage 'execute' alone, got {', '.join(sorted(other))}")
        fn = fn["execute"]
    _kept.append(fn)
    foreign.register(name, _address(fn))


def _address(fn: Any) -> int:
    if isinstance(fn, ctypes._CFuncPtr):
        return ctypes.cast(fn, ctypes.c_void_p).value or 0
    if type(fn).__name__ != "PyCapsule":
        raise TypeError(
            f"a foreign function is a PyCapsule or a function of ctypes', got a {type(fn).__name__}; wrap it with fuser.ffi.pycapsule"
        )
    name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", _api))
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
    return int(pointer(fn, name(fn)))
