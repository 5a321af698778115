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
import re
from dataclasses import dataclass
from typing import Any

from fuser.config import config, environment
from fuser.runtime.core import native
from fuser.runtime.processes import processes


@dataclass(frozen=True)
class Client:
    """What runs the devices of one platform, as libraries ask for it."""

    platform: str
    runtime_type: str = "fuser"

    @property
    def process_index(self) -> int:
        """The number of this process."""
        return processes().index

    def live_executables(self) -> list[Any]:
        """The compiled programs of this process that somebody holds, as caches do."""
        from fuser.runtime.executable import LIVING  # which stands above

        return list(LIVING)


@dataclass(frozen=True)
class DeviceMemory:
    """A memory of a device; `kind` is as in `sharding.memory_kind`, and every device has one, "device"."""

    device: Device
    kind: str = "device"

    @property
    def platform(self) -> str:
        """The platform of the device."""
        return self.device.platform

    @property
    def process_index(self) -> int:
        """The number of the process that the device belongs to."""
        return self.device.process

    def addressable_by_devices(self) -> list[Device]:
        """The devices that reach it."""
        return [self.device]


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
        if self.platform == "cpu":
            return self.id - found.firsts[self.process]
        if self.platform != "cuda" or not found.gpus:
            return self.id
        return found.gpus[self.process][self.id - sum(map(len, found.gpus[: self.process]))]

    @property
    def client(self) -> Client:
        """What runs this device and the others of its platform."""
        return Client(self.platform)

    def default_memory(self) -> DeviceMemory:
        """The memory that arrays of the device lie in."""
        return DeviceMemory(self)

    def addressable_memories(self) -> list[DeviceMemory]:
        """The memories that the device reaches."""
        return [self.default_memory()]

    def memory(self, kind: str) -> DeviceMemory:
        """Its memory of that kind; ValueError for any kind but "device"."""
        if kind != "device":
            raise ValueError(f"{self!r} has no memory of kind {kind!r}; its memories: 'device'")
        return self.default_memory()

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
    count = config.num_cpu_devices if config.num_cpu_devices != 1 else _asked_of_xla()
    if count < 1:
        raise ValueError(f"num_cpu_devices is the number of devices that the CPU is divided into, got {count}")
    return [CPU, *(Device("cpu", n) for n in range(1, count))]


def several() -> bool:
    """Whether this process has several devices of the CPU, so that it matters on which of them an array was put."""
    return processes().counts is not None or len(cpu_devices()) > 1


def _asked_of_xla() -> int:
    """What `--xla_force_host_platform_device_count` in XLA_FLAGS says, which programs set before they use a device; else 1."""
    flags = environment("XLA_FLAGS")
    found = re.search(r"--xla_force_host_platform_device_count=(\d+)", flags) if flags else None
    return int(found[1]) if found else 1


# Platforms whose number of devices is settled, as libraries ask before they set it: none, it may change at any time.
SETTLED: dict[str, Client] = {}


@functools.cache
def cuda(index: int) -> Device:
    """The CUDA device of that number."""
    if native is not None and native.cuda_name() is not None and index < native.cuda_count():
        before = native.cuda_use(index)
        try:
            return Device("cuda", index, native.cuda_name())
        finally:
            native.cuda_use(before)
    import torch

    return Device("cuda", index, torch.cuda.get_device_name(index))


def local_gpus() -> list[int]:
    """The numbers of the GPUs that this process can use."""
    if not has_cuda():
        return []
    import torch

    return list(range(torch.cuda.device_count()))


def cuda_devices() -> list[Device]:
    """The GPUs of all processes, process after process; those of this machine where there is one process."""
    found = processes()
    if not found.gpus:
        return [cuda(index) for index in local_gpus()]
    owners = [p for p, own in enumerate(found.gpus) for _ in own]
    kind = cuda(found.gpus[found.index][0]).kind if found.gpus[found.index] else "cuda"
    return [Device("cuda", n, kind, owner) for n, owner in enumerate(owners)]


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
    return has_driver() and _torch_cuda()


def own_platform() -> str:
    """ "cuda" where there is a GPU, else "cpu"."""
    return "cuda" if has_cuda() else "cpu"


def default_platform() -> str:
    """Where operations run whose operands lie nowhere else: as the setting `default_device` says, else the machine's own."""
    wanted = config.default_device
    if wanted is None:
        return own_platform()
    platform = getattr(wanted, "platform", wanted)
    return "cuda" if platform == "gpu" else str(platform)


def devices(platform: str | None = None) -> list[Device]:
    """The devices of a platform, of the default one if none is named."""
    platform = platform or own_platform()
    if platform == "cpu":
        return cpu_devices()
    if platform in ("cuda", "gpu") and (gpus := cuda_devices()):
        return gpus
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


@functools.cache
def has_driver() -> bool:
    """Whether this machine has an NVIDIA driver, which it does not get while a process runs; each eager operation asks."""
    return any(pathlib.Path(path).exists() for path in ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"))


@functools.cache
def _torch_cuda() -> bool:
    try:
        import torch

        return bool(torch.cuda.is_available())
    except ImportError:
        return False
