"""Devices and what they can do: names, processors this process may use, copy bandwidth and peak FLOP/s.

In: the system's own descriptions and short measurements. Out: `Device` values and figures for a roofline.
torch is imported only where a driver shows that there is a GPU.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import platform as platform_module
from dataclasses import dataclass
from typing import Any

from fuser.config import config
from fuser.runtime.core import native
from fuser.runtime.processes import processes


@dataclass(frozen=True)
class Device:
    """One place where arrays live and kernels run."""

    platform: str  # "cpu", "cuda" or "tpu"
    id: int = 0
    kind: str = "cpu"  # the model's name
    process: int = 0  # that it belongs to

    @property
    def device_kind(self) -> str:
        return self.kind

    @property
    def process_index(self) -> int:
        """The number of the process that the device belongs to."""
        return self.process

    host_id = task_id = process_index

    @property
    def local_hardware_id(self) -> int:
        found = processes()
        return self.id - found.firsts[self.process] if self.platform == "cpu" else self.id

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id={self.id})"

    __str__ = __repr__


CPU = Device("cpu")


def own_cpu() -> Device:
    """The first device of this process."""
    found = processes()
    return CPU if not found.index else Device("cpu", found.firsts[found.index], process=found.index)


def cpu_devices() -> list[Device]:
    """The devices that the CPU is divided into, those of all processes: as many as the setting `num_cpu_devices` says."""
    counts = processes().counts
    if counts is not None:
        owners = [p for p, count in enumerate(counts) for _ in range(count)]
        return [Device("cpu", n, process=owner) for n, owner in enumerate(owners)]
    count = config.num_cpu_devices
    if count < 1:
        raise ValueError(f"num_cpu_devices is the number of devices that the CPU is divided into, got {count}")
    return [CPU, *(Device("cpu", n) for n in range(1, count))]


@functools.cache
def cuda(index: int) -> Device:
    """The CUDA device of that number."""
    if native is not None and (name := native.cuda_name()) is not None and index == native.cuda_device():
        return Device("cuda", index, name)
    import torch

    return Device("cuda", index, torch.cuda.get_device_name(index))


def of_jax(array: Any) -> Device:
    """The device that holds a jax.Array."""
    found = next(iter(array.devices()))
    return Device(found.platform, found.id, found.device_kind)


def cpu_count() -> int:
    """How many processors this process may use: its affinity and its control group's quota, at least 1."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        count = os.cpu_count() or 1
    return max(1, min(count, _quota() or count))


def _quota(root: pathlib.Path = pathlib.Path("/sys/fs/cgroup"), own: str = "/proc/self/cgroup") -> int | None:
    """Processors that the control groups of this process grant, rounded up; None where they set no limit.

    A group's limit binds all groups below it. `own` names the process's group in each hierarchy (cgroups(7)).
    """
    found = []
    for hierarchy, path in _groups(own):
        top = root if hierarchy == "" else root / "cpu"
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(top):
                found.append(_granted(folder))
    return min((count for count in found if count), default=None)


def _groups(own: str) -> list[tuple[str, str]]:
    """(hierarchy, path) of the groups that may limit processors: "" is version 2's only hierarchy; the roots where unknown."""
    try:
        lines = [line.split(":", 2) for line in pathlib.Path(own).read_text().splitlines()]
        return [(names, path) for _, names, path in lines if not names or "cpu" in names.split(",")]
    except (OSError, ValueError):
        return [("", "/"), ("cpu", "/")]


def _granted(group: pathlib.Path) -> int | None:
    """Processors that one group grants, by its files of either version."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else -(-int(quota) // int(period))
    with contextlib.suppress(OSError, ValueError):
        granted = int((group / "cpu.cfs_quota_us").read_text())
        return -(-granted // int((group / "cpu.cfs_period_us").read_text())) if granted > 0 else None
    return None


def has_cuda() -> bool:
    """Whether there is an NVIDIA GPU that torch can use; torch is imported only where a driver is."""
    return _driver() and _torch_cuda()


def default_platform() -> str:
    """ "cuda" where there is a GPU, else "cpu"."""
    return "cuda" if has_cuda() else "cpu"


def devices(platform: str | None = None) -> list[Device]:
    """The devices of a platform, of the default one if none is named."""
    platform = platform or default_platform()
    if platform == "cpu":
        return cpu_devices()
    if platform in ("cuda", "gpu") and has_cuda():
        import torch

        return [cuda(index) for index in range(torch.cuda.device_count())]
    known = "cpu, cuda" if has_cuda() else "cpu"
    raise RuntimeError(f"there is no platform {platform!r} on this machine; it has {known}")


@functools.cache
def cpu_name() -> str:
    """The processor's model name."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith(("model name", "Model\t")):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform_module.processor() or platform_module.machine()


def last_level_cache() -> int:
    """Bytes of the largest cache of the first processor; 32 MiB where the system does not say."""
    sizes = []
    for path in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            text = path.read_text().strip()
            sizes.append(int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0))
    return max(sizes, default=32 << 20)


def _driver() -> bool:
    return any(pathlib.Path(path).exists() for path in ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"))


@functools.cache
def _torch_cuda() -> bool:
    try:
        import torch

        return bool(torch.cuda.is_available())
    except ImportError:
        return False
