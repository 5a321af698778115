"""Devices and what they can do: names, processors this process may use, copy bandwidth and peak FLOP/s.

In: the system's own descriptions and short measurements. Out: `Device` values and figures for a roofline.
torch is imported only where a driver shows that there is a GPU.
"""

from __future__ import annotations

import functools
import os
import pathlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """One place where arrays live and kernels run."""

    platform: str  # "cpu" or "cuda"
    id: int = 0
    kind: str = "cpu"  # the model's name

    @property
    def device_kind(self) -> str:
        return self.kind

    def __repr__(self) -> str:
        return f"{'Cpu' if self.platform == 'cpu' else 'Cuda'}Device(id={self.id})"

    __str__ = __repr__


CPU = Device("cpu")


@functools.cache
def cuda(index: int) -> Device:
    """The CUDA device of that number."""
    import torch

    return Device("cuda", index, torch.cuda.get_device_name(index))


def cpu_count() -> int:
    """How many processors this process may use: its affinity and its control group's quota, at least 1."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        count = os.cpu_count() or 1
    return max(1, min(count, _quota() or count))


def _quota() -> int | None:
    """Processors that the control group grants, rounded up; None where it sets no limit."""
    try:
        quota, period = pathlib.Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else -(-int(quota) // int(period))
    except (OSError, ValueError):
        pass
    try:
        group = pathlib.Path("/sys/fs/cgroup/cpu")
        granted = int((group / "cpu.cfs_quota_us").read_text())
        return -(-granted // int((group / "cpu.cfs_period_us").read_text())) if granted > 0 else None
    except (OSError, ValueError):
        return None
