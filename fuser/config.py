"""Settings: the only reader of `os.environ`.

Each flag has one entry in `FLAGS`: its environment variable, how to read it and its default. `config.update(name,
value)` changes a flag for the process, and `with config.using(name=value)` for the current thread.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any


def _boolean(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on")


def _cache_home() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
    return str(pathlib.Path(base) / "fuser")


# name: (environment variable, reader, default)
FLAGS: dict[str, tuple[str, Callable[[str], Any], Any]] = {
    "enable_x64": ("FUSER_ENABLE_X64", _boolean, False),
    "backend": ("FUSER_BACKEND", str, ""),  # "" = triton where there is a GPU, else c
    "check": ("FUSER_CHECK", _boolean, False),
    "dump": ("FUSER_DUMP", str, ""),
    "fuel": ("FUSER_FUEL", int, -1),
    "override": ("FUSER_OVERRIDE", str, ""),
    "cache": ("FUSER_CACHE", _boolean, True),
    "cache_dir": ("FUSER_CACHE_DIR", str, None),  # None = $XDG_CACHE_HOME/fuser
    "cache_limit": ("FUSER_CACHE_LIMIT", int, 1 << 30),  # bytes
    "cc": ("FUSER_CC", str, ""),  # "" = cc, gcc or clang, the first found
    "native": ("FUSER_NATIVE", _boolean, True),  # False: run in Python even where the native core was built
    "tpu_interpret": (
        "FUSER_TPU_INTERPRET",
        _boolean,
        False,
    ),  # True: kernels of the tpu backend run in Pallas' interpreter
    "threads": ("FUSER_THREADS", int, 0),  # 0 = the CPUs this process may use
    "memory_limit": ("FUSER_MEMORY_LIMIT", int, 0),  # bytes of the CPU pool; 0 = none
    "captured_constants_warn_bytes": ("FUSER_CAPTURED_CONSTANTS_WARN_BYTES", int, 256 << 20),  # -1: never
    "traceback": ("FUSER_TRACEBACK", str, "short"),  # "full" shows fuser's own frames
}


class Config:
    """The flags, as attributes. Values set with `using` belong to the thread that set them."""

    def __init__(self) -> None:
        self._values = {name: self._initial(name) for name in FLAGS}
        self._local = threading.local()
        self._watchers: dict[str, Callable[[Any, bool], object]] = {}

    @staticmethod
    def _initial(name: str) -> Any:
        variable, read, default = FLAGS[name]
        text = os.environ.get(variable)
        if text is None:
            return _cache_home() if name == "cache_dir" else default
        try:
            return read(text)
        except ValueError:
            raise ValueError(f"{variable}={text!r} is not {read.__name__.strip('_')}; unset it or correct it") from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        override = self._local.__dict__.get(name, self)
        if override is not self:
            return override
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"no setting {name!r}; the settings are {', '.join(FLAGS)}") from None

    def update(self, name: str, value: Any) -> None:
        """Set a flag for the whole process. JAX's names ("jax_enable_x64") are taken too."""
        name = name.removeprefix("jax_").removeprefix("fuser_")
        if name not in FLAGS:
            raise AttributeError(f"no setting {name!r}; the settings are {', '.join(FLAGS)}")
        old, self._values[name] = self._values[name], value
        try:
            self._announce(name, value, False)
        except Exception:
            self._values[name] = old
            raise

    def watch(self, name: str, told: Callable[[Any, bool], object]) -> None:
        """Call `told(value, for_this_thread)` now and whenever the flag changes; None where a thread has no own value.

        What it raises refuses the value.
        """
        self._watchers[name] = told
        told(self._values[name], False)

    @contextlib.contextmanager
    def using(self, **values: Any) -> Iterator[None]:
        """Set flags for the current thread while the block runs."""
        for name in values:
            if name not in FLAGS:
                raise AttributeError(f"no setting {name!r}; the settings are {', '.join(FLAGS)}")
        saved = dict(self._local.__dict__)
        self._local.__dict__.update(values)
        try:
            for name, value in values.items():
                self._announce(name, value, True)
            yield
        finally:
            self._local.__dict__.clear()
            self._local.__dict__.update(saved)
            for name in values:
                self._announce(name, saved.get(name), True)

    def _announce(self, name: str, value: Any, of_thread: bool) -> None:
        if name in self._watchers:
            self._watchers[name](value, of_thread)


config = Config()


def environment(name: str) -> str | None:
    """A variable of the surrounding system (PATH, DISPLAY, ...) that is no setting of fuser."""
    return os.environ.get(name)


def extend_environment(values: dict[str, str]) -> None:
    """Set variables for libraries that read them when they are loaded; those that are there stay as they are."""
    for name, value in values.items():
        os.environ.setdefault(name, value)
