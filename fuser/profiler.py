"""jax.profiler's names: spans of time that the program names, and compiled programs' runs, as a trace that browsers show.

Between `start_trace` and `stop_trace` calls of jitted functions go through Python, which notes when each began and ended. The file is
of the Trace Event Format: chrome://tracing and Perfetto read it. What a program's kernels cost is for `fuser.profile` to say.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import os
import pathlib
import platform
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from fuser.api import jitted
from fuser.config import config
from fuser.gaps import absent

__all__ = ["StepTraceAnnotation", "TraceAnnotation", "annotate_function", "start_trace", "stop_trace", "trace"]


class _Session:
    """One trace: where it goes, and what was noted."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.start = time.perf_counter_ns()
        self.events: list[dict[str, Any]] = []

    def note(self, name: str, start: int, arguments: dict[str, Any]) -> None:
        """A span that ends now."""
        microseconds = lambda ns: ns / 1000
        self.events.append(
            {
                "name": name,
                "ph": "X",
                "pid": os.getpid(),
                "tid": threading.get_native_id(),
                "ts": microseconds(start - self.start),
                "dur": microseconds(time.perf_counter_ns() - start),
                "args": {key: str(value) for key, value in arguments.items()},
            }
        )

    def write(self) -> pathlib.Path:
        """The file, in a folder of its own."""
        folder = pathlib.Path(self.folder) / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{platform.node() or 'host'}.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": self.events, "displayTimeUnit": "ns"}).encode()))
        return path


_session: _Session | None = None


class TraceAnnotation(contextlib.ContextDecorator):
    """`with TraceAnnotation(name):` is a span of the trace, with what else is given; nothing where none is under way."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name, self.arguments = name, kwargs

    def __enter__(self) -> TraceAnnotation:
        self._start = time.perf_counter_ns()
        return self

    def __exit__(self, *_: Any) -> None:
        if _session is not None:
            _session.note(self.name, self._start, self.arguments)

    def set_metadata(self, **kwargs: Any) -> None:
        """Add to what is noted."""
        self.arguments.update(kwargs)


class StepTraceAnnotation(TraceAnnotation):
    """A span that is one step of a program; `step_num` says which."""


def annotate_function(func: Callable[..., Any], name: str | None = None, **decorator_kwargs: Any) -> Callable[..., Any]:
    """`func`, each call of which is a span of the trace."""
    label: str = name or str(getattr(func, "__name__", repr(func)))

    @functools.wraps(func)
    def called(*args: Any, **kwargs: Any) -> Any:
        with TraceAnnotation(label, **decorator_kwargs):
            return func(*args, **kwargs)

    return called


def start_trace(
    log_dir: Any, create_perfetto_link: bool = False, create_perfetto_trace: bool = False, profiler_options: Any = None
) -> None:
    """Begin to note spans, which `stop_trace` writes to a folder in `log_dir`. RuntimeError where a trace is under way."""
    global _session
    if _session is not None:
        raise RuntimeError("Profile has already been started. Only one profile may be run at a time.")
    _session = _Session(os.fspath(log_dir))
    jitted.observers.append(_ran)
    config.update("profiling", True)


def _ran(name: str, start: int) -> None:
    if _session is not None:
        _session.note(f"jit({name})", start, {})


def stop_trace() -> pathlib.Path:
    """End the trace and write it; gives the file. RuntimeError where none is under way."""
    global _session
    if _session is None:
        raise RuntimeError("No profile started")
    session, _session = _session, None
    jitted.observers.remove(_ran)
    config.update("profiling", False)
    return session.write()


@contextlib.contextmanager
def trace(
    log_dir: Any, create_perfetto_link: bool = False, create_perfetto_trace: bool = False, profiler_options: Any = None
) -> Iterator[None]:
    """`start_trace`, and `stop_trace` at the end of the block."""
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


__getattr__ = absent(__name__)
