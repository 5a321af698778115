"""How long the stages of a compilation take: records of the logger `fuser`, and the durations of jax.monitoring.

The records are of level DEBUG, of WARNING under the setting `log_compiles`. The events have JAX's names, by which
listeners know them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from fuser import monitoring
from fuser.config import config

TRACING = "/jax/core/compile/jaxpr_trace_duration"
LOWERING = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILATION = "/jax/core/compile/backend_compile_duration"
# Words that programs search logs for, as JAX has them; no XLA is involved.
_ENDED = {TRACING: "tracing {} for jit", LOWERING: "lowering {}", COMPILATION: "XLA compilation of jit({})"}


@contextlib.contextmanager
def stage(event: str, name: str) -> Iterator[None]:
    """Log and report how long the block took, which is that stage of the program called `name`; nothing if it raises."""
    start = time.time()
    monitoring.record_scalar(event, start, fun_name=name)
    yield
    end = time.time()
    by = " (fuser's own, without XLA)" if event == COMPILATION else ""
    _log("Finished %s in %.6f sec%s", _ENDED[event].format(name), end - start, by)
    monitoring.record_event_duration_secs(event, end - start, fun_name=name)
    monitoring.record_event_time_span(event, start, end, fun_name=name)


def compiling(name: str, types: Sequence[Any]) -> None:
    """Log that a program is compiled for arguments of these types."""
    _log("Compiling jit(%s) with argument types %s", name, lambda: ", ".join(map(str, types)))


def _level(level: str | None, of_thread: bool) -> None:
    """The setting `logging_level`: the logger's level, and a handler once it is set."""
    if of_thread or level == "NOTSET":
        return
    import logging

    logger = logging.getLogger("fuser")
    logger.setLevel(level or "NOTSET")
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())


config.watch("logging_level", _level)


def _log(words: str, *values: Any) -> None:
    import logging  # here: `import fuser` does without

    level, logger = logging.WARNING if config.log_compiles else logging.DEBUG, logging.getLogger("fuser")
    if logger.isEnabledFor(level):
        logger.log(level, words, *[v() if callable(v) else v for v in values])
