"""The machine a run happened on: its name, versions of what ran, and the copy bandwidth that the rows are held against."""

from __future__ import annotations

import concurrent.futures
import datetime
import importlib.metadata
import importlib.util
import pathlib
import platform
import re
import subprocess
import time
from typing import Any

import numpy as np

from bench.systems import cores

PACKAGES = ("fuser", "numpy", "jax", "jaxlib", "torch", "triton", "numba", "numexpr")
COPY_BYTES = 256 << 20


def describe(gpu: bool) -> dict[str, Any]:
    """CPU model, cores, GPU (if the run uses one), system, Python and package versions, commit and date."""
    return {
        "cpu": _cpu_model(),
        "cores": cores(),
        "gpu": _gpu_name() if gpu else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {package: version for package in PACKAGES if (version := _version(package))},
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def slug(machine: dict[str, Any]) -> str:
    """A file name's worth of the machine: "amd-epyc-2-cores", "nvidia-h200"."""
    text = machine["gpu"] or f"{machine['cpu']} {machine['cores']} cores"
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _cpu_model() -> str:
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpu_name() -> str | None:
    try:
        import torch
    except ImportError:
        return None
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the working tree, with "+" where it has changes; None outside a checkout."""
    folder = pathlib.Path(__file__).parent
    try:
        command = ["git", "describe", "--always", "--abbrev=10", "--dirty=+"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def copy_bandwidth(gpu: bool, repeats: int = 9) -> float:
    """Bytes per second (read plus written) of copying 256 MiB (1 GiB on a GPU) between warm buffers, best of `repeats`.

    On a CPU the faster of NumPy on one thread per core and torch counts, so that no system is held to a slow copy.
    """
    if gpu:
        return _torch_copy("cuda", 4 * COPY_BYTES, repeats)
    best = _numpy_copy(repeats)
    return max(best, _torch_copy("cpu", COPY_BYTES, repeats)) if importlib.util.find_spec("torch") else best


def _numpy_copy(repeats: int) -> float:
    workers = cores()
    source, target = np.ones(COPY_BYTES // 4, np.float32), np.zeros(COPY_BYTES // 4, np.float32)
    parts = list(zip(np.array_split(target, workers), np.array_split(source, workers), strict=True))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(*pair), parts))
            times.append(time.perf_counter() - start)
    return 2 * COPY_BYTES / min(times)


def _torch_copy(device: str, size: int, repeats: int) -> float:
    import torch

    source, target = (torch.full((size // 4,), value, device=device) for value in (1.0, 0.0))
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        target.copy_(source)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 2 * size / min(times)
