"""Devices, the machine's limits and clocks."""

import itertools
import os
import pathlib
import subprocess
import sys

import pytest

from fuser.config import config
from fuser.runtime import device, profiler, roofline, toolchain


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


def groups(folder, own, **files):
    """A fake tree of control groups, and the file that says which one the process is in."""
    for path, text in files.items():
        file = folder / path.replace("__", "/").replace("cpu_", "cpu.")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "own").write_text(own)
    return device._quota(folder, str(folder / "own"))


@pytest.mark.parametrize("text, expected", [("150000 100000\n", 2), ("max 100000\n", None), ("50000 100000", 1)])
def test_quotas(tmp_path, text, expected):
    assert groups(tmp_path, "0::/\n", cpu_max=text) == expected
    assert device._quota(tmp_path, str(tmp_path / "there is none")) == expected


def test_a_quota_of_a_group_above_binds(tmp_path):
    """The process is in /pod/app; the pod may use 3 processors, the app 5."""
    own = "0::/pod/app\n"
    assert groups(tmp_path, own, pod__cpu_max="300000 100000", pod__app__cpu_max="500000 100000") == 3
    assert groups(tmp_path, own, pod__cpu_max="max 100000") == 5
    assert groups(tmp_path, own, pod__app__cpu_max="garbage") is None


def test_quotas_of_the_first_version(tmp_path):
    own = "12:memory:/app\n5:cpu,cpuacct:/app\n"
    files = {"cpu__app__cpu_cfs_quota_us": "250000", "cpu__app__cpu_cfs_period_us": "100000"}
    assert groups(tmp_path, own, **files) == 3
    assert groups(tmp_path, own, cpu__app__cpu_cfs_quota_us="-1") is None


def test_nothing_imports_torch_without_need():
    code = (
        "import sys\nfrom fuser.runtime import array, cache, device, executable, roofline, memory, profiler, toolchain\n"
        "import numpy as np\nx = array.Array(np.zeros(3)); repr(x), x.device, array.from_dlpack(x._data)\n"
        "device.default_platform() == 'cpu' and sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    )
    root = pathlib.Path(device.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_fuser_imports_what_programs_need():
    """Families of functions and what only some programs use are imported when they are first asked for."""
    later = (
        "nn",
        "random",
        "scipy",
        "ref",
        "export",
        "pallas",
        "passes",
        "partition",
        "backends.c",
        "transforms.checkpoint",
    )
    code = f"""import fuser, sys
loaded = [m for m in {later!r} if "fuser." + m in sys.modules]
assert not loaded, loaded
assert fuser.nn.relu is not None and fuser.random.key is not None and fuser.checkpoint is not None and fuser.tree.map is not None
assert fuser.Ref is fuser.ref.Ref and fuser.custom_batching.custom_vmap is not None and fuser.ad_checkpoint.checkpoint is fuser.checkpoint
"""
    root = pathlib.Path(device.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_limits_are_measured_by_compiled_code_and_remembered(monkeypatch):
    assert toolchain.compile_shared(roofline._SOURCE).path.exists()
    monkeypatch.setattr(roofline, "_BUDGET", 0.05)
    monkeypatch.setattr(roofline, "_LARGEST_COPY", 8 << 20)
    bandwidth, flops = roofline.copy_bandwidth(), roofline.peak_flops()
    assert 1e6 < bandwidth < 1e13 and 1e6 < flops < 1e14
    assert (roofline.copy_bandwidth(), roofline.peak_flops()) == (bandwidth, flops)
    now = roofline.time.time()
    monkeypatch.setattr(roofline.time, "time", lambda: now + 2 * 86400)
    assert roofline.copy_bandwidth() != bandwidth


def test_limits_without_a_compiler(monkeypatch):
    monkeypatch.setattr(roofline, "_BUDGET", 0.05)
    monkeypatch.setattr(roofline, "_LARGEST_COPY", 8 << 20)
    with config.using(cc="no-such-compiler"):
        assert 1e6 < roofline.copy_bandwidth() < 1e13
        assert 1e6 < roofline.peak_flops() < 1e14


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
