"""Devices, the machine's limits and clocks."""

import itertools
import os
import pathlib
import subprocess
import sys

import pytest

from fuser.config import config
from fuser.runtime import device, limits, profiler, toolchain


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    with config.using(cache=True, cache_dir=str(tmp_path / "cache")):
        yield


def test_the_cpu_is_a_device():
    assert device.devices("cpu") == [device.CPU]
    assert repr(device.CPU) == str(device.CPU) == "CpuDevice(id=0)"
    assert device.CPU.platform == "cpu" and device.cpu_name()
    assert device.last_level_cache() >= 1 << 16


@pytest.mark.skipif(device.has_cuda(), reason="for machines without a GPU")
def test_platforms_that_are_not_there():
    assert device.default_platform() == "cpu"
    with pytest.raises(RuntimeError) as error:
        device.devices("cuda")
    assert str(error.value) == "there is no platform 'cuda' on this machine; it has cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not device.has_cuda(), reason="needs an NVIDIA GPU")
def test_cuda_devices():
    first = device.devices("cuda")[0]
    assert first.platform == "cuda" and repr(first) == "CudaDevice(id=0)"
    assert device.default_platform() == "cuda"


def test_processors_follow_affinity_and_quota(monkeypatch):
    monkeypatch.setattr(device, "_quota", lambda: None)
    assert device.cpu_count() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert device.cpu_count() == 8
    monkeypatch.setattr(device, "_quota", lambda: 3)
    assert device.cpu_count() == 3


@pytest.mark.parametrize("text, expected", [("150000 100000", 2), ("max 100000", None), ("50000 100000", 1)])
def test_quotas(monkeypatch, text, expected):
    monkeypatch.setattr(pathlib.Path, "read_text", lambda path: text)
    assert device._quota() == expected


def test_nothing_imports_torch_without_need():
    code = (
        "import sys\nfrom fuser.runtime import array, cache, device, executable, limits, memory, profiler, toolchain\n"
        "import numpy as np\nx = array.Array(np.zeros(3)); repr(x), x.device, array.from_dlpack(x._data)\n"
        "device.default_platform() == 'cpu' and sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    )
    root = pathlib.Path(device.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_limits_are_measured_by_compiled_code_and_remembered(monkeypatch):
    assert toolchain.compile_shared(limits._SOURCE).path.exists()
    monkeypatch.setattr(limits, "_BUDGET", 0.05)
    monkeypatch.setattr(limits, "_LARGEST_COPY", 8 << 20)
    bandwidth, flops = limits.copy_bandwidth(), limits.peak_flops()
    assert 1e6 < bandwidth < 1e13 and 1e6 < flops < 1e14
    assert (limits.copy_bandwidth(), limits.peak_flops()) == (bandwidth, flops)
    now = limits.time.time()
    monkeypatch.setattr(limits.time, "time", lambda: now + 2 * 86400)
    assert limits.copy_bandwidth() != bandwidth


def test_limits_without_a_compiler(monkeypatch):
    monkeypatch.setattr(limits, "_BUDGET", 0.05)
    monkeypatch.setattr(limits, "_LARGEST_COPY", 8 << 20)
    with config.using(cc="no-such-compiler"):
        assert 1e6 < limits.copy_bandwidth() < 1e13
        assert 1e6 < limits.peak_flops() < 1e14


def test_timings(monkeypatch):
    squares = (float(n * n) for n in itertools.count())
    monkeypatch.setattr(profiler.time, "perf_counter", lambda: next(squares))
    calls = []
    timing = profiler.measure(lambda: calls.append(1), repeats=4, warmup=2)
    assert len(calls) == 6
    assert timing.samples == (1.0, 5.0, 9.0, 13.0)
    assert (timing.median, timing.minimum) == (7.0, 1.0)
    assert timing.spread == pytest.approx((12.0 - 2.0) / 2 / 7.0)
    assert profiler.Timing((2.0,)).spread == 0.0
    with pytest.raises(ValueError, match=r"^a measurement needs at least 1 repeat, got 0$"):
        profiler.measure(lambda: None, repeats=0)


def test_the_clock_of_the_cpu_advances():
    clock = profiler.clock_for("cpu")
    assert clock() <= clock()
