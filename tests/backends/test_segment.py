"""Native launches: segments over a driver whose kernels are C functions, and parameters against what Triton compiles."""

import ctypes
import pathlib
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from fuser.backends.triton import segment as segments  # noqa: E402
from fuser.backends.triton.emitter import Launch  # noqa: E402
from fuser.runtime import toolchain  # noqa: E402
from fuser.runtime.core import native  # noqa: E402
from fuser.runtime.executable import Allocation, Executable, KernelStep  # noqa: E402

pytestmark = pytest.mark.skipif(native is None, reason="the native core is not built, or turned off")

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZE = 1000
F32 = np.dtype(np.float32)


@pytest.fixture(scope="module")
def driver():
    path = toolchain.compile_shared((ROOT / "runtime" / "tests" / "recording_cuda.c").read_text()).path
    native.cuda_open(str(path))
    return ctypes.CDLL(str(path))


@pytest.fixture
def count(driver):
    names = ("launches", "graphs", "instantiated", "destroyed", "is_capturing", "fails")
    counters = {name: ctypes.c_int.in_dll(driver, name) for name in names}
    for counter in counters.values():
        counter.value = 0
    return SimpleNamespace(**counters)


def axpy(driver, x, y, out, a=3, n=SIZE):
    """A launch of out = a x + y, whose arrays are (tensor, offset in bytes)."""
    function = ctypes.addressof(ctypes.c_char.in_dll(driver, "axpy"))
    addresses = [("address", tensor, offset) for tensor, offset in (x, y, out)]
    return function, -(-n // 128), 128, 0, (*addresses, ("i32", 0, a), ("i64", 0, n), ("i64", 0, 0), ("i64", 0, 0))


def prepared(launches, tensors, fallback=None, graph_from=2, device=0):
    made = native.Segment(tensors, fallback or (lambda arrays: pytest.fail("the fallback was called")), graph_from)
    made.prepare(tuple(launches), device, lambda: 0, lambda device: 77 + device, ())
    return made


def arrays(*sizes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=generator) for size in sizes]


def test_a_segment_launches_in_order_on_the_current_stream(driver, count):
    x, y, out = arrays(SIZE, SIZE, SIZE)
    block = torch.empty(2 * 4096, dtype=torch.uint8)
    made = prepared(
        [axpy(driver, (0, 0), (1, 0), (3, 4096)), axpy(driver, (3, 4096), (0, 0), (2, 0), a=-2)], 4, graph_from=9
    )
    made([x, y, out, block])
    torch.testing.assert_close(out, -2 * (3 * x + y) + x)
    assert (count.launches.value, count.graphs.value) == (2, 0)
    assert ctypes.c_uint64.in_dll(driver, "last_stream").value == 77


def test_addresses_that_come_back_are_replayed_as_a_graph(driver, count):
    x, y, out = arrays(SIZE, SIZE, SIZE)
    made = prepared([axpy(driver, (0, 0), (1, 0), (2, 0)), axpy(driver, (2, 0), (1, 0), (2, 0), a=1)], 3)
    for call in range(5):
        x += 1
        made([x, y, out])
        torch.testing.assert_close(out, 3 * x + y + y)
        assert count.graphs.value == max(call, 0)
    assert made.counts == {"launched": 2, "replayed": 4}
    assert count.instantiated.value == 1
    del made
    assert count.destroyed.value == 1


def test_alternating_memory_gets_a_graph_each_and_wandering_memory_none(driver, count):
    x, y, one, two = arrays(SIZE, SIZE, SIZE, SIZE)
    made = prepared([axpy(driver, (0, 0), (1, 0), (2, 0)), axpy(driver, (2, 0), (1, 0), (2, 0), a=1)], 3)
    for call in range(8):
        made([x, y, (one, two)[call % 2]])
    assert (count.instantiated.value, made.counts) == (2, {"launched": 4, "replayed": 6})
    kept = [torch.empty(SIZE) for _ in range(20)]
    for out in kept:
        made([x, y, out])
        torch.testing.assert_close(out, 3 * x + y + y)
    assert count.instantiated.value == 2


def test_a_captured_stream_gets_launches(driver, count):
    x, y, out = arrays(SIZE, SIZE, SIZE)
    made = prepared([axpy(driver, (0, 0), (1, 0), (2, 0))] * 3, 3)
    count.is_capturing.value = 1
    for _ in range(4):
        made([x, y, out])
    assert (count.launches.value, count.instantiated.value) == (12, 0)


def test_unaligned_tensors_other_devices_and_unprepared_segments_go_to_the_fallback(driver, count):
    x, y, out = arrays(SIZE + 1, SIZE, SIZE)
    taken = []
    made = prepared([axpy(driver, (0, 0), (1, 0), (2, 0))], 3, taken.append)
    made([x[1:], y, out])
    prepared([axpy(driver, (0, 0), (1, 0), (2, 0))], 3, taken.append, device=1)([x, y, out])
    native.Segment(1, taken.append, 2)([x])
    assert [len(tensors) for tensors in taken] == [3, 3, 1]
    assert count.launches.value == 0


def test_refusals_are_raised(driver, count):
    x, y, out = arrays(SIZE, SIZE, SIZE)
    made = prepared([axpy(driver, (0, 0), (1, 0), (2, 0))], 3)
    count.fails.value = 1
    with pytest.raises(
        RuntimeError, match=r"the CUDA driver refused a launch: unspecified launch failure \(error 719\)"
    ):
        made([x, y, out])
    with pytest.raises(TypeError, match="a segment takes a list of its 3 tensors"):
        made([x, y])
    with pytest.raises(ValueError, match="there is no tensor 7 among 3"):
        prepared([axpy(driver, (7, 0), (1, 0), (2, 0))], 3)
    with pytest.raises(OSError):
        native.cuda_open("libno-such-driver.so")


class Fake(segments.Launcher):
    """A launcher whose kernels are those of the test's driver: out = a x + y."""

    def __init__(self, function, a, scratch=()):
        self.function, self.a, self.scratch = function, a, scratch

    def launch(self, arrays, scratch):
        x, y, out = arrays
        torch.add(y, x, alpha=self.a, out=out)
        signature = {
            "x": "*fp32",
            "y": "*fp32",
            "out": "*fp32",
            "a": "i32",
            "n": "i64",
            "one": "constexpr",
            "BLOCK": "constexpr",
        }
        metadata = SimpleNamespace(num_warps=4, shared=0, target=SimpleNamespace(warp_size=32))
        kernel = SimpleNamespace(metadata=metadata, function=self.function, src=SimpleNamespace(signature=signature))
        return [(Launch("axpy", (0, 1, 2), (self.a, SIZE, 1), {"BLOCK": 128}, -(-SIZE // 128), 4), kernel)]


def test_steps_are_joined_and_temporaries_share_a_block(driver, count, monkeypatch):
    monkeypatch.setattr(segments, "driver_opened", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 5, raising=False)
    function = ctypes.addressof(ctypes.c_char.in_dll(driver, "axpy"))

    def step(name, a, arguments, slot, scratch=()):
        return KernelStep(name, Fake(function, a, scratch), arguments, (Allocation(slot, (SIZE,), F32),))

    steps = [step("a", 2, (0, 1), 2, ((10, F32),)), step("b", 3, (2, 0), 3), step("c", 4, (3, 2), 4)]
    [joined] = segments.joined(steps, [4])
    assert joined.name == "a + b + c"
    assert [output.shape for output in joined.outputs] == [(SIZE,), (2 * 4032,)]
    made = []

    def allocate(shape, dtype, label):
        made.append(shape)
        return torch.empty(shape, dtype=getattr(torch, dtype.name))

    run = Executable((0, 1), {}, steps, (4,), allocate, joined=[joined])
    x, y = arrays(SIZE, SIZE)
    for _ in range(4):
        (out,) = run.call(x, y)
        torch.testing.assert_close(out, 4 * (3 * (2 * x + y) + x) + 2 * x + y)
    assert count.launches.value + 3 * count.graphs.value == 9  # the first call went through Triton
    assert made == [(SIZE,), (8064,)] * 4


AHEAD = """
import fuser, json, re
from fuser.backends.triton import segment
from fuser.backends.triton.aot import compile_ahead
from tests.backends import triton_cases
for name, (function, types) in list(triton_cases.pairs())[::4]:
    for source in fuser.jit(function, backend="triton").lower(*types).sources:
        dtypes = source.launch["dtypes"]
        places = tuple(segment.Place(n, -1, (), d) for n, d in enumerate(dtypes))
        scratch = tuple(segment.Place(99, 0, (size,), d) for size, d in source.launch["scratch"])
        for launch, kernel in zip(source.launch["launches"], compile_ahead(source, "cuda", 90)):
            part = segment.Part(None, places, scratch)
            parameters = list(segment.native_parameters(part, launch, kernel.src.signature))
            entry = kernel.asm["ptx"].split(".entry")[1].split(")")[0]
            print(json.dumps([name, parameters, re.findall(r"\\.param \\.(\\w+)", entry)]))
"""


@pytest.mark.slow
def test_parameters_are_those_of_the_compiled_kernels():
    """As PTX declares them: ours, then two pointers of Triton's own."""
    import json
    import os

    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    output = subprocess.run([sys.executable, "-c", AHEAD], capture_output=True, text=True, env=environment, check=False)
    assert output.returncode == 0, output.stderr
    lines = [json.loads(line) for line in output.stdout.splitlines()]
    assert len(lines) > 5
    spelled = {"address": "u64", "i64": "u64", "i32": "u32"}
    for name, parameters, declared in lines:
        assert [re.sub("^[bs]", "u", kind) for kind in declared] == [spelled[p[0]] for p in parameters] + [
            "u64",
            "u64",
        ], name
