"""The processes that run one program together: which of them this is, and how many devices of the CPU each has.

One process alone unless `fuser.distributed.initialize` says otherwise; devices are numbered process after process.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class Processes:
    """The number of this process, and for each process how many devices it has; of one alone, as many as it likes."""

    index: int = 0
    counts: tuple[int, ...] | None = None
    # Of each process the GPUs of its machine that are its own, where there are several processes.
    gpus: tuple[tuple[int, ...], ...] = ()

    @property
    def count(self) -> int:
        return 1 if self.counts is None else len(self.counts)

    @property
    def firsts(self) -> tuple[int, ...]:
        """The number of each process's first device."""
        return (0,) if self.counts is None else (0, *itertools.accumulate(self.counts[:-1]))


class _Here:
    processes = Processes()


_here = _Here()


def processes() -> Processes:
    """The processes of this program."""
    return _here.processes


def set_processes(found: Processes) -> None:
    """This process is one of these from now on."""
    _here.processes = found
