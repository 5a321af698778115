"""Programs on the GPU against the driver's stand-in: results as the C backend's, and what the driver is asked for them."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.api.eager import go_home, open_gpu
from fuser.backends.triton.device import code
from fuser.config import config
from fuser.errors import OutOfMemoryError
from fuser.parallel.arrays import follow_devices
from fuser.runtime.array import Array, from_torch
from fuser.runtime.core import native
from fuser.runtime.executable import KernelStep, LibraryStep
from fuser.trace.core import EVALUATION
from tests import cuda_stand_in
from tests.backends.reduced_product_cases import assigned
from tests.pallas import one_kernel_cases

pytestmark = pytest.mark.skipif(native is None, reason="the native core is not built, or turned off")


def put(*shape: int, seed: int = 0) -> Array:
    """A float32 array on the device."""
    return Array(native.device_upload(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)))


def on_device(function: Any, **options: Any) -> Any:
    return fuser.jit(function, backend="triton", **options)


def mlp(x: Any, ws: Any) -> Any:
    for w in ws:
        x = fnp.maximum(x @ w, 0) * 0.2
    return x


def recurrent(h: Any, w: Any, xs: Any) -> Any:
    def body(c: Any, x: Any) -> Any:
        c = fnp.tanh(c @ w * 0.1 + x)
        return c, (c, x)

    return lax.scan(body, h, xs, reverse=True)


def counted(x: Any) -> Any:
    return lax.fori_loop(0, 7, lambda i, c: fnp.tanh(c @ c) * 0.1 + i, x)


def until(x: Any) -> Any:
    step = lambda c: (c[0] + 1, fnp.abs(c[1] @ c[1]) * 0.5 + c[0])
    return lax.while_loop(lambda c: c[1].sum() < 1e3, step, (0, x))


def branch(x: Any, limit: Any) -> Any:
    return lax.cond(x.sum() > limit, lambda x: x @ x, lambda x: fnp.flip(x, 0) * 2, x)


def exchange(x: Any, y: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, c: (c[1] @ c[1] * 0.1, c[0], c[2]), (x, y, x * 2))


def nested(x: Any) -> Any:
    inner = lambda c: lax.while_loop(lambda d: d.sum() < 10, lambda d: d @ d * 0 + d + 1, c) - 5
    return lax.fori_loop(0, 3, lambda i, c: inner(c), x)


def choices(x: Any, which: Any) -> Any:
    branches = [lambda x: x @ x, lambda x: x * 3, lambda x: x.T]
    return lax.scan(lambda c, k: (lax.switch(k, branches, c) * 0.3, c.sum()), x, which)


def with_sorts(x: Any, places: Any) -> Any:
    """What was torch's or the host's in the body of a loop that the device ends."""

    def step(c: tuple[Any, Any]) -> tuple[Any, Any]:
        y = fnp.sort(c[1] @ c[1] * 0.05, axis=-1)
        y = y.at[places].add(y[:4] * 0.5)
        top = lax.top_k(y, 3)[0].sum()
        return c[0] + 1, y + lax.igamma(abs(y) + 1, abs(y)) + top * 1e-3

    return lax.while_loop(lambda c: (c[0] < 4) | (c[1].sum() < -1e9), step, (0, x))


def with_library(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, c: c * 0.1 + lax.linalg.eig(c)[0].real.sum(), x)


SQUARE = (16, 16)
PROGRAMS: dict[str, tuple[Any, Any]] = {
    "mlp": (mlp, lambda: (put(16, 128), [put(128, 128, seed=n) for n in range(8)])),
    "rows": (lambda x: fuser.nn.softmax(x) @ x.T, lambda: (put(40, 3000),)),
    "rows and sums of columns": (
        lambda x, ct: fuser.vjp(lambda x, w: fuser.nn.softmax(x) * w, x, x[0])[1](ct),
        lambda: (put(300, 200), put(300, 200, seed=1)),
    ),
    "attention with gradients": (
        lambda q, k, v: fuser.grad(lambda *a: (fuser.nn.dot_product_attention(*a) ** 2).sum(), (0, 1, 2))(q, k, v),
        lambda: tuple(put(1, 40, 2, 16, seed=n) for n in range(3)),
    ),
    "nearest and its distance": (
        lambda x, y: assigned(x.astype("bfloat16"), y.astype("bfloat16")),
        lambda: (put(90, 24), put(40, 24, seed=1)),
    ),
    "recurrent": (recurrent, lambda: (put(4, 80), put(80, 80), put(9, 4, 80))),
    "counted": (counted, lambda: (put(*SQUARE),)),
    "until": (until, lambda: (put(*SQUARE),)),
    "branch taken": (branch, lambda: (put(*SQUARE), -1e5)),
    "branch not taken": (branch, lambda: (put(*SQUARE), 1e5)),
    "exchange": (exchange, lambda: (put(*SQUARE), put(*SQUARE, seed=1))),
    "nested": (nested, lambda: (put(*SQUARE),)),
    "groups": (
        lambda x, w, sizes: fnp.tanh(lax.ragged_dot(x, w, sizes)) @ w[0].T,
        lambda: (put(40, 16), put(4, 16, 24, seed=1), np.array([5, 0, 20, 9], np.int32)),
    ),
    "sorts": (with_sorts, lambda: (put(*SQUARE), np.array([3, 1, 3, 15], np.int32))),
    "choices": (choices, lambda: (put(*SQUARE), np.array([0, 2, 1, 5, -1], np.int32))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_one_step_that_neither_copies_nor_waits(device: Any, name: str) -> None:
    function, arguments = PROGRAMS[name]
    args = arguments()
    placed = fuser.tree_util.tree_map(
        lambda a: Array(native.device_upload(a)) if isinstance(a, np.ndarray) else a, args
    )
    host = fuser.tree_util.tree_map(np.asarray, args)
    want = fuser.tree_util.tree_leaves(fuser.jit(function, backend="c")(*host))
    run = on_device(function)
    assert [type(s) for s in run.lower(*placed).compile().executable.joined] == [KernelStep]
    for call in range(4):  # launched, seen again, replayed
        device.reset()
        got = fuser.tree_util.tree_leaves(run(*placed))
        assert not {"to_host", "host_waits", *(["to_device"] if call else [])} & set(device.counts())
        for a, b in zip(got, want, strict=True):
            b = np.asarray(b)
            np.testing.assert_allclose(np.asarray(a), b, 2e-4, 2e-4 * np.abs(b).max())
        alive = [*got]  # so that the next call's results have other addresses
    del alive, got
    for _ in range(3):
        device.reset()
        run(*placed)
    asked = device.counts()
    assert (
        asked["calls"] == sum(asked.get(name, 0) for name in ("graphs", "launches", "products")) <= 2
    )  # one replay, or short


def test_library_calls_stand_between_programs(device: Any) -> None:
    x = put(*SQUARE)
    run = on_device(lambda x: abs(lax.linalg.eig(x * 2)[0]).sum() * x @ x + 1)
    steps = run.lower(x).compile().executable.joined
    assert [type(s) for s in steps] == [KernelStep, LibraryStep, KernelStep]
    host = np.asarray(x)
    np.testing.assert_allclose(
        np.asarray(run(x)), np.abs(np.linalg.eigvals(host * 2)).sum() * host @ host + 1, 1e-3, 1e-3
    )
    want = fuser.jit(with_library, backend="c")(host)
    np.testing.assert_allclose(np.asarray(on_device(with_library)(x)), want, 1e-4, 1e-4)


def test_without_conditional_nodes_python_asks_the_predicate(device: Any) -> None:
    x = put(*SQUARE)
    want = np.asarray(fuser.jit(until, backend="c")(np.asarray(x))[1])
    device.switch.version.value = 12030
    try:
        native.cuda_open(device.path, 0, None)
        run = on_device(lambda x: until(x))
        assert LibraryStep in [type(s) for s in run.lower(x).compile().executable.joined]
        np.testing.assert_allclose(np.asarray(run(x)[1]), want, 1e-4, 1e-4)
    finally:
        device.switch.version.value = 12080
        native.cuda_open(device.path, 0, None)


def test_numbers_are_parameters_of_kernels(device: Any) -> None:
    x = put(50)
    host = np.asarray(x)
    run = on_device(lambda x, a, n: x * a + n)
    gc.collect()  # graphs of programs of other tests
    for a, n in ((2.0, 3), (0.5, -7), (np.float32(4), 1), (fnp.asarray(8.0), 2)):
        device.reset()
        got = run(x, a, n)
        assert set(device.counts()) <= {"launches", "programs", "calls", "allocations"}
        np.testing.assert_allclose(np.asarray(got), host * np.float32(a) + n, 1e-6)
    on_it = Array(native.device_upload(np.array(2, np.float32)))
    np.testing.assert_allclose(np.asarray(run(x, on_it, 3)), host * 2 + 3, 1e-6)  # a variant that loads it
    passed = on_device(lambda x, a: (x, a))(x, 2.5)
    assert float(passed[1]) == 2.5
    loop = on_device(lambda x, a: lax.fori_loop(0, 3, lambda i, c: c * a, a))
    assert float(loop(x, 3.0)) == 81.0


def test_alternating_memory_gets_graphs_that_stay(device: Any) -> None:
    """Six sets of addresses in turn, then ever new ones, then others that come back."""
    run = on_device(lambda x, ws: mlp(x, ws))
    ws = [put(70, 70, seed=n) for n in range(3)]
    sets = [put(8, 70, seed=n) for n in range(6)]
    outs = [np.asarray(run(x, ws)) for x in sets]
    for turn in range(5):
        device.reset()
        for x, want in zip(sets, outs):
            np.testing.assert_array_equal(np.asarray(run(x, ws)), want)
        assert (device.counts().get("instantiated", 0) == 0) or turn < 3
    assert device.counts()["graphs"] == 6
    device.reset()
    kept = [put(8, 70, seed=n) for n in range(40)]
    for x in kept:
        run(x, ws)
    assert device.counts().get("graphs", 0) == 0
    program = run.lower(sets[0], ws).compile().executable
    del program


def test_a_graph_that_is_not_used_any_more_takes_other_addresses(device: Any) -> None:
    run = on_device(lambda x: until(x))
    sets = [put(*SQUARE, seed=n) for n in range(20)]
    kept = [run(x) for x in sets]
    counts = device.counts()
    assert counts["graphs"] == 20
    assert (counts["instantiated"], counts["updated"]) == (16, 4)
    device.switch.graph_cannot_update.value = 1
    kept += [run(x) for x in sets]
    assert device.counts()["destroyed"] > 0
    for x, a in zip([*sets, *sets], kept):
        want = fuser.jit(until, backend="c")(np.asarray(x))
        np.testing.assert_allclose(np.asarray(a[1]), np.asarray(want[1]), 1e-4, 1e-4)


def test_donated_memory_becomes_the_result(device: Any) -> None:
    run = on_device(lambda x: fnp.tanh(x) + 1, donate_argnums=0)
    x = put(300, 40)
    host, address = np.asarray(x), x._data.address
    out = run(x)
    assert out._data.address == address and x.is_deleted()
    np.testing.assert_allclose(np.asarray(out), np.tanh(host) + 1, 1e-5, 1e-6)
    alias = fuser.runtime.array.alias(out)
    assert run(out)._data.address != address
    np.testing.assert_allclose(np.asarray(alias), np.tanh(host) + 1, 1e-5, 1e-6)


def test_arrays_come_and_go(device: Any) -> None:
    import torch

    x = put(5, 7)
    assert x.device.platform == "cuda" and x.device.device_kind == "stand-in"
    np.testing.assert_array_equal(np.stack([np.asarray(row) for row in x]), np.asarray(x))
    np.testing.assert_array_equal(x.torch().numpy(), np.asarray(x))
    np.testing.assert_array_equal(torch.from_dlpack(x).numpy(), np.asarray(x))
    assert x.block_until_ready() is x and x.is_ready()
    half = Array(native.device_upload(np.asarray(x).astype(fuser.dtypes.bfloat16)))
    assert half.torch().dtype == torch.bfloat16 and from_torch(half.torch()).dtype == half.dtype
    large = np.random.default_rng(0).standard_normal((1500, 2000)).astype(np.float32)  # three pieces of pinned memory
    back = native.device_upload(large)
    large_was = large.copy()
    large[:] = 0  # the caller's again as soon as the call is over
    np.testing.assert_array_equal(native.device_download(back), large_was)
    copy = x.__copy__()
    assert copy._data.address != x._data.address
    np.testing.assert_array_equal(np.asarray(copy), np.asarray(x))


def test_memory_is_reused_refused_and_found_again(device: Any) -> None:
    x = put(1000)
    address = x._data.address
    del x
    assert put(1000)._data.address == address
    held = native.device_empty((1 << 20,), np.dtype(np.uint8), "")
    native.device_trim()
    device.memory_limit.value = 8 << 20
    with pytest.raises(OutOfMemoryError, match=r"the GPU has no 16777216 bytes left for a.py:1"):
        native.device_empty((1 << 24,), np.dtype(np.uint8), "a.py:1")
    del held
    parts = [native.device_empty((2 << 20,), np.dtype(np.uint8), "") for _ in range(3)]
    del parts
    native.device_empty((7 << 20,), np.dtype(np.uint8), "")  # what the pool keeps is given back for it
    assert native.device_memory()["peak"] >= 7 << 20


def test_streams_wait_for_each_other(device: Any) -> None:
    """Torch's current stream changes between calls: an event orders what one wrote before what the other reads."""
    library, streams = device.library, [ctypes.c_void_p() for _ in range(2)]
    for stream in streams:
        library.cuStreamCreate(ctypes.byref(stream), 0)
    current = [streams[0].value]
    native.cuda_open(device.path, 0, lambda number: current[0])
    try:
        run = on_device(lambda x: fnp.cos(x) * 2)
        y = run(put(100))
        device.reset()
        current[0] = streams[1].value
        z = run(y)
        assert device.counts()["waits"] == 1
        want = np.cos(np.asarray(y)) * 2
        np.testing.assert_allclose(np.asarray(z), want, 1e-5)
    finally:
        native.cuda_open(device.path, 0, None)


def test_contexts_of_threads_and_of_other_libraries(device: Any) -> None:
    """A thread gets the device's context where it has none, and another library's is current again after each call."""
    library = device.library
    library.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
    run, x = on_device(lambda x, w: fnp.tanh(x @ w) + 1), put(6, 80)
    w = put(80, 80, seed=1)
    want = np.asarray(run(x, w))
    host, found = np.asarray(x), ctypes.c_void_p()
    own = ctypes.c_void_p()
    library.cuCtxGetCurrent(ctypes.byref(own))

    def work() -> list[np.ndarray]:
        y = run(Array(native.device_upload(host)), w)
        y.block_until_ready()
        fresh = on_device(lambda x: fnp.sort(x, axis=0) * 3)(x)  # compiled and loaded here
        return [np.asarray(y), np.asarray(y.__copy__()), np.asarray(fresh) / 3]

    with ThreadPoolExecutor(1) as threads:
        results = [threads.submit(work).result()]
    try:
        for other in (4096, 8192):  # of another device
            library.cuCtxSetCurrent(other)
            results.append(work())
            library.cuCtxGetCurrent(ctypes.byref(found))
            assert found.value == other
    finally:
        library.cuCtxSetCurrent(own)
    for first, copied, ordered in results:
        np.testing.assert_array_equal(first, want)
        np.testing.assert_array_equal(copied, want)
        np.testing.assert_allclose(ordered, np.sort(host, axis=0), rtol=1e-6)


def test_arrays_of_another_gpu_are_refused(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from fuser.backends.triton import memory

    there = SimpleNamespace(device=SimpleNamespace(type="cuda", index=1), data_ptr=lambda: 4096, is_cuda=True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    words = "an array on cuda:1 reaches a program on cuda:0; move it with device_put"
    for place in (memory.DEVICE.place, memory.TENSORS.place):
        with pytest.raises(ValueError, match=words):
            place(there)


def test_the_stand_in_tells_races_early_reads_and_foreign_memory(device: Any) -> None:
    library, streams = device.library, [ctypes.c_void_p() for _ in range(2)]
    for stream in streams:
        library.cuStreamCreate(ctypes.byref(stream), 0)
    a, b = (native.device_empty((64,), np.dtype(np.uint8), "").address for _ in range(2))
    library.cuMemsetD8Async.argtypes = [ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_void_p]
    library.cuMemcpyDtoDAsync_v2.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
    held = [native.device_empty((64,), np.dtype(np.uint8), "") for _ in range(2)]
    a, b = (array.address for array in held)
    native.cuda_synchronize()
    assert library.cuMemsetD8Async(a, 7, 64, streams[0]) == 0
    assert ctypes.c_ubyte.from_address(a).value != 7  # nobody has waited
    assert library.cuMemcpyDtoDAsync_v2(b, a, 64, streams[1]) == 719
    assert device._fault.value == b"a copy does not wait for the stream that wrote its memory"
    device.reset()
    library.cuStreamSynchronize(streams[0])
    assert library.cuMemcpyDtoDAsync_v2(b, a, 64, streams[1]) == 0
    assert library.cuMemsetD8Async(a, 1, 64, streams[0]) == 719
    assert device._fault.value == b"a memset writes what another stream still reads"
    device.reset()
    assert library.cuMemsetD8Async(12345, 1, 64, streams[0]) == 719
    library.cuStreamSynchronize(streams[1])


def test_refusals_are_raised(device: Any) -> None:
    run, x = on_device(lambda x: x * 5), put(30)
    run(x)
    device.switch.refuse_launches.value = 1
    with pytest.raises(
        RuntimeError, match=r"the CUDA driver refused a launch: unspecified launch failure \(error 719\)"
    ):
        run(x)
    device.switch.refuse_launches.value = 0
    make = native.DeviceProgram
    with pytest.raises(ValueError, match="there is no entry 9 among 3"):
        make(1, 1, 3, 0, 0, None, 3, 9).add_variant(0, (("copy", (9, 0), (0, 0), 4),), ())
    with pytest.raises(ValueError, match="a parameter is an address, a value, a map, i32 or i64, not f16"):
        make(1, 1, 3, 0, 0, None, 3, 9).add_variant(0, (("launch", 1, 1, 32, 0, (("f16", 0, 1),)),), ())
    with pytest.raises(OSError):
        native.cuda_open("libno-such-driver.so", 0, None)
    native.cuda_open(device.path, 0, None)


AHEAD = """
import json, re, sys, fuser
from fuser.backends.triton.aot import compile_launch
from fuser.backends.triton.device import code
for source in fuser.jit(lambda x, a, n: fuser.nn.softmax(x) * a + n, backend="triton").lower(
    fuser.ShapeDtypeStruct((64, 300), "float32"), 1.0, 2).sources:
    for values in (frozenset(), frozenset(source.launch["scalars"])):
        for launch in source.launch["launches"]:
            kernel = compile_launch(source, launch, "cuda", 90, values)
            entry = kernel.asm["ptx"].split(".entry")[1].split(")")[0]
            kinds = ["value" if n in values else "address" for n in launch.buffers] + [k for k, _ in code._sizes(launch)]
            print(json.dumps([kinds, re.findall(r"\\.param \\.(\\w+)", entry)]))
"""


def test_parameters_are_those_of_the_compiled_kernels() -> None:
    """As PTX declares them: ours, then two pointers of Triton's own; numbers as numbers."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    output = subprocess.run([sys.executable, "-c", AHEAD], capture_output=True, text=True, env=environment, check=False)
    assert output.returncode == 0, output.stderr
    lines = [json.loads(line) for line in output.stdout.splitlines()]
    assert any("value" in kinds for kinds, _ in lines) and len(lines) >= 2
    width = {"address": "64", "i64": "64", "i32": "32", "value": "32"}
    for kinds, declared in lines:
        assert [re.sub("^[a-z]", "", kind) for kind in declared] == [*(width[k] for k in kinds), "64", "64"]


def test_results_that_nobody_uses_and_carries_that_begin_as_slices(device: Any) -> None:
    def rows(w: Any, xs: Any) -> Any:
        def outer(total: Any, x: Any) -> Any:  # rows of 5 floats: carries begin where no kernel with wide accesses may
            inner = lambda c, k: (fnp.tanh(c * w + k), c.sum())
            end, sums = lax.scan(inner, x, fnp.arange(3.0))
            return total + end, sums

        return lax.scan(outer, w, xs)[1]

    args = put(5), put(6, 5)
    want = np.asarray(fuser.jit(rows, backend="c")(*map(np.asarray, args)))
    np.testing.assert_allclose(np.asarray(on_device(rows)(*args)), want, 1e-4, 1e-4)


def test_corners_agree_with_the_c_backend(device: Any) -> None:
    """Loops in lanes, of no iterations and that pass carries on; products over strided views; constants; dtypes."""
    x, lanes = (
        put(7, 9),
        lambda r: lax.while_loop(lambda c: c[0].sum() < 50, lambda c: (c[0] * c[0] + r @ r, c[1] + 1), (r, 0)),
    )
    eye = np.eye(9, dtype=np.float32)
    programs: list[tuple[Any, tuple[Any, ...]]] = [
        (lambda x: fuser.vmap(lanes)(x), (x,)),
        (lambda x: lax.scan(lambda c, k: (c @ c.T @ c, c.sum()), x, fnp.zeros((0, 2))), (x,)),
        (
            lambda x, y: lax.fori_loop(0, 3, lambda i, c: (c[1], c[1], c[0] @ c[0].T @ c[1]), (x, y, x)),
            (x, put(7, 9, seed=1)),
        ),
        (lambda x: lax.fori_loop(0, 3, lambda i, c: c @ fnp.asarray(eye), x), (x,)),
        (
            lambda x, n: lax.cond(
                n > 2, lambda x: lax.fori_loop(0, n, lambda i, c: c @ c.T @ c * 0.01, x), lambda x: x, x
            ),
            (x, 4),
        ),
        (lambda a, b: a[1:, 3:] @ b[3:], (put(70, 99), put(99, 70))),
        (lambda a, b: fnp.einsum("bji,kbj->bik", a, b), (put(3, 90, 5), put(4, 3, 90))),
        (lambda x: (x * 2, fnp.ones(3), 5.0), (x,)),
        (lambda x, z: (x + z) * z, (x, 2j)),
        (lambda x, h: fnp.where(h > 1, x, h), (x, np.float16(2))),
        (lambda x: x + fuser.random.normal(fuser.random.key(3), x.shape), (x,)),
        (lambda t, i: fuser.grad(lambda t: (t[i] ** 2).sum())(t), (put(50, 8), np.array([1, 4, 1, 49], np.int32))),
    ]
    for function, args in programs:
        host = [np.asarray(a) if isinstance(a, Array) else a for a in args]
        got, want = (
            fuser.tree_util.tree_leaves(r)
            for r in (on_device(function)(*args), fuser.jit(function, backend="c")(*host))
        )
        for a, b in zip(got, want, strict=True):
            assert (np.shape(a), np.asarray(a).dtype) == (np.shape(b), np.asarray(b).dtype)
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-4, 1e-4)


def test_device_put_goes_to_the_gpu_and_back(device: Any) -> None:
    gpu, cpu = put(1).device, fuser.devices("cpu")[0]
    host = np.arange(6.0, dtype=np.float32)
    there = fuser.device_put(host, gpu)
    assert there.device == gpu and fuser.device_put(there, gpu) is there
    device.reset()
    y = on_device(lambda x: x + 1)(there)
    assert "to_device" not in device.counts()
    back = fuser.device_put(y, cpu)
    assert back.device == cpu and isinstance(back._data, np.ndarray)
    np.testing.assert_array_equal(np.asarray(back), host + 1)


@pytest.mark.parametrize("over_devices", [False, True])
def test_operations_outside_of_jit_stay_on_the_device(device: Any, over_devices: bool) -> None:
    """The first one too, before any program was loaded, and where there have been arrays over several devices."""
    EVALUATION.on_gpu = open_gpu
    if over_devices:
        follow_devices()
    x = put(6, 7)
    y = fnp.tanh(x * 2 + 1).sum(axis=0)
    assert isinstance(y._data, native.DeviceArray)
    np.testing.assert_allclose(np.asarray(y), np.tanh(np.asarray(x) * 2 + 1).sum(0), 1e-5)
    assert fuser.random.normal(fuser.random.key(0), (3,)).shape == (3,)


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_new_arrays_are_on_the_gpu_where_there_is_one(
    device: Any, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """Once, and not with each call that reads them; numbers stay with the host, and so does everything under another default."""
    on_device(lambda x: x + 1)(put(3))
    monkeypatch.setattr(EVALUATION, "on_gpu", open_gpu if first else EVALUATION.on_gpu)
    monkeypatch.setattr(EVALUATION, "home", go_home)
    monkeypatch.setattr("fuser.runtime.device.has_cuda", lambda: True)
    host = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    made = [
        fnp.asarray(host),
        fnp.array(host.tolist()),
        fnp.ones((5, 4)),
        fnp.zeros_like(fnp.asarray(host)),
        fnp.arange(20.0),
    ]
    made += [
        fnp.full((5, 4), 2.5),
        fnp.eye(5, 4),
        fnp.linspace(0, 1, 20),
        fnp.sin(host),
        fuser.random.normal(fuser.random.key(0), (5, 4)),
    ]
    for x in made:
        assert isinstance(x._data, native.DeviceArray), x
    wanted = [
        host,
        host,
        np.ones((5, 4)),
        np.zeros((5, 4)),
        np.arange(20),
        np.full((5, 4), 2.5),
        np.eye(5, 4),
        np.linspace(0, 1, 20),
        np.sin(host),
    ]
    for x, y in zip(made, wanted):
        np.testing.assert_allclose(np.asarray(x), y, 1e-6, 1e-7)
    assert not isinstance(fnp.float32(3)._data, native.DeviceArray)
    step = on_device(lambda x: x * 2 + 1)
    for _ in range(2):
        step(made[0])
    device.reset()
    step(made[0])
    assert "to_device" not in device.counts()
    with config.using(default_device="cpu"):
        assert not isinstance(fnp.asarray(host)._data, native.DeviceArray)
        assert not isinstance(fnp.ones((5, 4))._data, native.DeviceArray)
    with config.using(backend="c"):
        assert not isinstance(fnp.ones(3)._data, native.DeviceArray)


def test_kernels_of_single_operations_serve_every_shape(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Triton would compile: elementwise kernels once, row kernels once for each class of lengths."""
    compiled, twins = set(), code.images

    class Counting:
        key = staticmethod(twins.key)

        def __call__(self, *launch: Any) -> Any:
            compiled.add(code.Images().key(*launch))
            return twins(*launch)

    monkeypatch.setattr(code, "images", Counting())
    on_device(lambda x: x + 1)(put(3))
    shapes = [(4, 100), (8, 201), (16, 205), (64, 1001), (128, 3000)]
    for function, most in (
        (lambda x: x + x, 1),
        (fnp.tanh, 1),
        (lambda x: x[1:], 2),
        (lambda x: x.sum(-1), len(shapes)),
    ):
        compiled.clear()
        for shape in shapes:
            x = put(*shape)
            np.testing.assert_allclose(np.asarray(function(x)), function(np.asarray(x)), 1e-4, 1e-4)
        assert 0 < len(compiled) <= most
        compiled.clear()
        for rows in (5, 9, 17, 130):
            function(put(rows, 3000))
        assert len(compiled) <= 2  # few rows, and many


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_programs_of_the_host_read_the_gpus_arrays(device: Any, backend: str) -> None:
    x = put(5, 4)
    run = fuser.jit(lambda x, y: (x * 2 + y).sum(0), backend=backend)
    for _ in range(3):
        found = run(x, np.ones((5, 4), np.float32))
        assert isinstance(found._data, np.ndarray)
        np.testing.assert_allclose(np.asarray(found), (np.asarray(x) * 2 + 1).sum(0), 1e-5)
    step = fuser.jit(fuser.grad(lambda x: fnp.tanh(x).sum()), backend=backend)
    np.testing.assert_allclose(np.asarray(step(x)), 1 - np.tanh(np.asarray(x)) ** 2, 1e-5, 1e-6)


def test_code_serves_programs_of_other_sizes_with_their_own(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of a kernel is its code: extents, numbers of programs and tensor maps are those of each program."""
    made: list[Any] = []

    class Counting:
        key = code.Images().key

        def __call__(self, source: Any, number: int, passing: code.Passing) -> code.Image:
            made.append((source, number))
            maps = tuple(code.EncodedMap(9, 3, m.block) for m in source.launch["launches"][number].maps)
            return code.Image(b"", "kernel", 128, 0, most=300, maps=maps)

    monkeypatch.setattr(code, "images", Counting())
    monkeypatch.setattr(code.native, "cuda_module", lambda text: object())
    monkeypatch.setattr(code.native, "cuda_function", lambda *of: 1)
    half = lambda *shape: fuser.ShapeDtypeStruct(shape, fnp.bfloat16)
    product = fuser.jit(lambda a, b: fnp.maximum(a @ b, 0), backend="triton")
    rows = fuser.jit(lambda x: x * 2 + 1, backend="triton")
    for programs in (
        [product.lower(half(4096, n), half(n, 4096)) for n in (4096, 2048, 1024)],
        [rows.lower(fuser.ShapeDtypeStruct((n,), np.float32)) for n in (1 << 24, 1 << 20)],
    ):
        made.clear()
        for program in programs:
            (source,) = program.sources
            found = code.compiled(source, code.Passing())
            for launch, planned in zip(found.launches, source.launch["launches"], strict=True):
                assert tuple(size for _, size in launch.sizes[:-2]) == planned.sizes
                assert launch.grid == min(planned.grid, 300)
                assert [m.encoding[2] for m in launch.maps] == [m.shape[::-1] for m in planned.maps]
        assert len(made) == 1


def test_equal_kernels_are_loaded_once_and_profiles_run_each(device: Any) -> None:
    x, ws = put(4, 70), [put(70, 70, seed=n) for n in range(3)]
    executable = on_device(mlp).lower(x, ws).compile().executable
    arrays = [x._data, *(w._data for w in ws)]
    outputs, times = executable.call_profiled(arrays, lambda: 0.0)
    assert len(times) == len(executable.steps) == 3
    np.testing.assert_allclose(native.device_download(outputs[0]), np.asarray(on_device(mlp)(x, ws)), 1e-5, 1e-5)


@pytest.mark.parametrize("name", ["begun", "one of a pair", "flash"])
def test_kernels_by_hand_are_enqueued_too(device: cuda_stand_in.Device, name: str) -> None:
    """A pallas_call with loops and products is one kernel of the program; what nobody reads of its results is scratch."""
    function, arrays = {**one_kernel_cases.CASES, **one_kernel_cases.SHIPPED}[name]
    compiled = on_device(function)
    steps = compiled.lower(*arrays).compile().executable.steps
    assert [type(step) for step in steps] == [KernelStep]  # what follows the results runs before they are stored
    np.testing.assert_allclose(compiled(*arrays), fuser.jit(function, backend="c")(*arrays), rtol=1e-5, atol=1e-4)
