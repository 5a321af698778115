"""Kernels of a program compiled by several processes at once, before its first launch.

In: sources and how their buffers are passed. What the processes leave is Triton's own cache on disk, from which this process then takes the
code; which kernels are there already, a mark in fuser's cache says. A worker compiles what it is given and prints nothing; where one
fails, the compiler's words come when this process compiles the kernel itself.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from fuser.backends.base import KernelSource
from fuser.config import config
from fuser.runtime.cache import default_cache
from fuser.runtime.device import cpu_count

ROOT = pathlib.Path(__file__).resolve().parents[4]
FEWEST = 2  # kernels from which a further process, which takes a second to start, is worth it
LONGEST_SECONDS = 600
_WORKER = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from fuser.backends.triton.device.compilation import work; work(sys.stdin.buffer.read())"
)


@dataclass(frozen=True)
class Job:
    """One launch of a source, compiled for a GPU; `values` and `loose` as in `aot.compile_launch`."""

    source: KernelSource
    number: int
    platform: str
    arch: int | str
    values: frozenset[int] = frozenset()
    loose: frozenset[int] = frozenset()

    @property
    def key(self) -> str:
        """Under which it is known to be compiled."""
        code = self.source.launch["launches"][self.number].code
        how = self.platform, self.arch, sorted(self.values), sorted(self.loose)
        return f"compiled {importlib.metadata.version('triton')} {self.source.key} {code} {how}"


def compile_together(jobs: Iterable[Job], processes: int = 0) -> int:
    """Compile what is not on disk yet in so many processes (0: one a processor); gives the number of processes started."""
    unique = {job.key: job for job in jobs}
    missing = [job for key, job in unique.items() if default_cache().get(key) is None]
    count = min(processes or cpu_count(), len(missing))
    if count < FEWEST or len(missing) < FEWEST:
        return 0
    workers = [_started(missing[n::count]) for n in range(count)]
    for worker in workers:
        try:
            worker.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    return count


def _started(jobs: list[Job]) -> subprocess.Popen[bytes]:
    """A process that compiles these."""
    settings = {"cache_dir": config.cache_dir, "override": config.override}
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(ROOT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert worker.stdin is not None
    with contextlib.suppress(BrokenPipeError), worker.stdin as pipe:
        pipe.write(pickle.dumps((settings, jobs)))
    return worker


def work(pickled: bytes) -> None:
    """What a worker does."""
    from fuser.backends.triton.aot import fitted

    settings, jobs = pickle.loads(pickled)
    for name, value in settings.items():
        config.update(name, value)
    for job in jobs:
        launch = job.source.launch["launches"][job.number]
        try:
            fitted(job.source, launch, job.platform, job.arch, values=job.values, loose=job.loose)
        except Exception:
            continue
        default_cache().put(job.key, ".txt", b"compiled")
