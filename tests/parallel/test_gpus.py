"""Meshes of GPUs against the stand-ins of the driver and of NCCL: the bits of the CPU's devices, what travels, and what fails."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import processes_on_gpus

import fuser
import fuser.numpy as fnp
from bench.gpus import over
from bench.sharded_programs import PROGRAMS
from fuser import NamedSharding, P, config, lax
from fuser.errors import DeviceError, UnsupportedError
from fuser.parallel import gpus
from fuser.runtime.array import Array
from fuser.runtime.core import native
from fuser.runtime.executable import KernelStep
from tests import cuda_stand_in

pytestmark = [
    pytest.mark.xdist_group("triton"),
    pytest.mark.skipif(native is None, reason="the native core is not built, or turned off"),
]
COUNT = 8
AUTO = fuser.sharding.AxisType.Auto


@pytest.fixture(scope="module")
def opened() -> Iterator[cuda_stand_in.Device]:
    with cuda_stand_in.opened(COUNT) as device:
        yield device


@pytest.fixture
def device(opened: cuda_stand_in.Device) -> Iterator[cuda_stand_in.Device]:
    with config.using(num_cpu_devices=COUNT):
        opened.reset()
        yield opened
    opened.switch.refuse_launches.value = 0
    opened.memory_limit.value = 2**62


def mesh_of(count: int = 4, platform: str = "cuda") -> Any:
    return fuser.make_mesh((count,), ("x",), axis_types=(AUTO,), devices=fuser.devices(platform)[:count])


def put(value: Any, mesh: Any, *spec: Any) -> Any:
    return fuser.device_put(np.asarray(value), NamedSharding(mesh, P(*spec)))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_collectives_have_the_bits_of_the_cpu(device: Any) -> None:
    """All of them, in loops and branches too; launched, captured and replayed."""
    found = processes_on_gpus.results(4, "cuda")
    wanted = processes_on_gpus.results(4, "cpu")
    for name, x in found.items():
        assert x.dtype == wanted[name].dtype
        assert np.asarray(x).tobytes() == np.asarray(wanted[name]).tobytes(), name


def test_collectives_of_one_device_go_through_its_communicator(device: Any) -> None:
    for name, (found, wanted) in processes_on_gpus.of_one("cuda").items():
        np.testing.assert_array_equal(np.asarray(found), wanted, name)
    assert any(each.mesh.size == 1 and each.made for each in gpus._known)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("count", [2, 8])
def test_programs_agree_with_the_cpu(device: Any, name: str, count: int) -> None:
    """Each call is one step a device, which neither copies nor waits, graphs included."""
    function, args = PROGRAMS[name](over(fuser, fuser.devices("cuda")[:count]), count)
    on_host, host_args = PROGRAMS[name](over(fuser, fuser.devices("cpu")[:count]), count)
    wanted = fuser.tree.leaves(on_host(*host_args))
    program = function.lower(*args).compile()
    one_step = [type(step) for step in program.executable.joined] == [KernelStep]
    assert one_step or name == "Megatron attention"  # some of whose products torch computes, on one GPU too
    for call in range(4):
        device.reset()
        got = fuser.tree.leaves(function(*args))
        copies = {"to_host", "host_waits"} if call and one_step else set()  # communicators are made in the first
        assert not copies & set(device.counts())
        for a, b in zip(got, wanted, strict=True):
            b = np.asarray(b)
            assert a.sharding.is_equivalent_to(NamedSharding(a.sharding.mesh, a.sharding.spec), a.ndim)
            np.testing.assert_allclose(np.asarray(a), b, 1e-5, 1e-5 * max(np.abs(b).max(), 1e-3))


def test_a_sum_sends_what_a_ring_sends(device: Any) -> None:
    """Each of p devices 2 (p - 1) / p of the bytes, in two meetings; a short one all of it to all, in one."""
    sent = ctypes.c_long.in_dll(device.library, "message_bytes")
    mesh = mesh_of(4)
    total = fuser.jit(fuser.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
    for rows, each in ((8192, 2 * 3 / 4 * 8192), (64, 3 * 64)):  # a device has a quarter of the elements, of 4 bytes
        x = put(numbers(rows), mesh, "x")
        total(x).block_until_ready()
        before = sent.value
        y = total(x).block_until_ready()
        np.testing.assert_allclose(np.asarray(y), np.asarray(x).reshape(4, -1).sum(0), 1e-5, 1e-5)
        fuser.block_until_ready([s.data for s in y.addressable_shards])
        assert sent.value - before == 4 * each
        device.reset()
        for _ in range(6):
            total(x).block_until_ready()
        assert device.counts()["graphs"] > 0  # of transfers and a sum


def test_more_devices_than_one_expression_adds(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser.parallel import transfers

    monkeypatch.setattr(transfers, "MOST_UNROLLED", 3)
    shape, add = (2000,), lambda x: lax.psum(x * 1.5, "x")
    results = []
    for platform in ("cuda", "cpu"):
        mesh = mesh_of(8, platform)
        program = fuser.jit(fuser.shard_map(add, mesh=mesh, in_specs=P("x"), out_specs=P()))
        results.append(np.asarray(program(put(numbers(8 * shape[0]), mesh, "x"))))
    assert results[0].tobytes() == results[1].tobytes()


def test_arrays_lie_where_they_are_put(device: Any) -> None:
    first, second, *_ = cards = fuser.devices("cuda")
    assert [d.id for d in cards] == list(range(COUNT)) and cards[0].device_kind == "stand-in"
    x = fuser.device_put(numbers(6), second)
    assert x.device == second and isinstance(x._data.arrays[0], native.DeviceArray)
    assert x._data.arrays[0].device == 1
    y = x * 2 + 1
    z = fuser.jit(lambda a: fnp.sort(fnp.tanh(a)) @ a)(y)
    assert y.device == z.device == second
    host = numbers(6) * 2 + 1
    np.testing.assert_allclose(float(z), np.sort(np.tanh(host)) @ host, 1e-5)
    assert fuser.device_put(y, first).device == first
    back = fuser.device_put(y, fuser.devices("cpu")[0])
    np.testing.assert_allclose(np.asarray(back), host, 1e-6)
    with pytest.raises(ValueError, match="Received incompatible devices"):
        _ = x + fuser.device_put(numbers(6), cards[3])
    mesh = mesh_of(4)
    parts = put(numbers(8, 4), mesh, "x")
    assert [s.data.device for s in parts.addressable_shards] == list(cards[:4])
    turned = fuser.device_put(parts, NamedSharding(mesh, P(None, "x")))
    np.testing.assert_array_equal(np.asarray(turned.addressable_shards[1].data), numbers(8, 4)[:, 1:2])
    on_cpu = fuser.device_put(parts, NamedSharding(mesh_of(2, "cpu"), P("x")))
    np.testing.assert_array_equal(np.asarray(on_cpu), numbers(8, 4))
    whole = fuser.make_array_from_single_device_arrays(
        (8, 4), parts.sharding, [s.data for s in parts.addressable_shards]
    )
    np.testing.assert_array_equal(np.asarray(whole), numbers(8, 4))


def test_operations_outside_of_jit_follow_their_operands(device: Any) -> None:
    mesh = mesh_of(4)
    x, host = put(numbers(8, 4), mesh, "x"), numbers(8, 4)
    y = fnp.tanh(x) * 2 + x.sum()
    assert y.sharding.is_equivalent_to(x.sharding, 2) and y.block_until_ready().is_ready()
    np.testing.assert_allclose(np.asarray(y), np.tanh(host) * 2 + host.sum(), 1e-5, 1e-5)
    mapped = fuser.pmap(lambda v: lax.psum(v, "i"), axis_name="i", devices=fuser.devices("cuda")[:4])
    np.testing.assert_array_equal(np.asarray(mapped(np.ones((4, 3), np.float32))), np.full((4, 3), 4))
    factored = fuser.jit(lambda a: fnp.linalg.qr(a)[1].sum() + a.sum())(x)  # torch's, on every device
    np.testing.assert_allclose(abs(float(factored) - host.sum()), abs(np.linalg.qr(host)[1].sum()), 1e-3)
    donated = fuser.jit(lambda a: a + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    np.testing.assert_allclose(np.asarray(donated), host + 1, 1e-6)


def test_a_device_that_fails_is_an_error_and_the_next_call_runs(device: Any) -> None:
    mesh = mesh_of(4)
    x = put(numbers(8, 4), mesh, "x")
    program = fuser.jit(lambda x: x / (x * x).sum())
    wanted = np.asarray(program(x))
    device.switch.refuse_launches.value = 1
    with pytest.raises(RuntimeError, match="the CUDA driver refused a launch"):
        program(x)
    device.switch.refuse_launches.value = 0
    device.reset()
    np.testing.assert_array_equal(np.asarray(program(x)), wanted)


def test_refusals(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = put(numbers(8), mesh_of(2), "x")
    mixed = fuser.sharding.Mesh(np.array([fuser.devices("cuda")[0], fuser.devices("cpu")[0]], object), ("x",))
    with pytest.raises(UnsupportedError, match="arrays are laid out over devices of the CPU, or over GPUs"):
        put(numbers(8), mixed, "x")
    with (
        config.using(backend="c"),
        pytest.raises(UnsupportedError, match="devices of cuda in one mesh do not run programs of the c"),
    ):
        fuser.jit(lambda x: x * 3)(x)
    gpus.open_nccl.cache_clear()
    monkeypatch.setattr(gpus, "LIBRARIES", ("libno-such-nccl.so",))
    monkeypatch.setattr(gpus, "_packaged", lambda: [])
    with pytest.raises(UnsupportedError, match=r"needs NCCL 2.18 or later: libno-such-nccl.so"):
        fuser.jit(lambda x: (x * 5).sum())(put(numbers(4), mesh_of(2), "x"))
    gpus.open_nccl.cache_clear()


def test_arrays_of_another_gpu_do_not_reach_a_program(device: Any) -> None:
    arrays = []
    for ordinal in (0, 1):
        with gpus.on_gpu(ordinal):
            arrays.append(native.device_upload(numbers(4)))
    add = fuser.jit(lambda a, b: a + b, backend="triton")
    executable = add.lower(*map(Array, arrays[:1] * 2)).compile().executable
    with pytest.raises(ValueError, match="an array on cuda:1 reaches a program on cuda:0; move it with device_put"):
        executable.call(*arrays)


def test_a_communicator_that_nobody_else_joins_ends_in_time(device: Any) -> None:
    gpus.open_nccl()
    with pytest.raises(RuntimeError, match="the other devices did not come in time"):
        native.nccl_communicators(native.nccl_unique_id(), 2, ((0, 0),), 0.2)
    with pytest.raises(RuntimeError, match="NCCL refused a collective: invalid argument"):
        native.nccl_communicators(native.nccl_unique_id(), 2, ((2, 0),), 0.2)


def test_what_nccl_says_ends_the_wait(device: Any) -> None:
    """A communicator that was given up is an error of what waits for it, and of what would use it."""
    mesh = mesh_of(2)
    x = put(numbers(8), mesh, "x")
    program = fuser.jit(lambda x: x - x.sum())
    program(x).block_until_ready()
    for communicator in gpus.gpus_of(mesh).living():
        native.nccl_abort(communicator)
    with pytest.raises((DeviceError, RuntimeError), match=r"the other devices did not come in time|failed"):
        program(x).block_until_ready()
    host = numbers(8)
    np.testing.assert_allclose(np.asarray(program(x)), host - host.sum(), 1e-5, 1e-5)


def _peers(device: Any) -> int:
    return ctypes.c_long.in_dll(device.library, "peer_copies").value


def _from_gpus(device: Any, x: Any, target: Any) -> tuple[Any, int]:
    """The array elsewhere, and how many copies between devices that took; the host has no part in it."""
    device.reset()
    before = _peers(device)
    moved = fuser.device_put(x, target)
    assert not {"to_host", "to_device", "host_waits"} & set(device.counts())
    return moved, _peers(device) - before


def test_arrays_go_from_gpu_to_gpu_without_the_host(device: Any) -> None:
    """Ordered by events: the copy comes after what computes the values, and what uses the memory next after the copy."""
    cards = fuser.devices("cuda")
    x = fuser.device_put(numbers(64, 8), cards[0])
    y = fnp.tanh(x) * 2
    moved, copies = _from_gpus(device, y, cards[3])
    assert copies == 1 and moved.device == cards[3] and moved._data.arrays[0].device == 3
    reaches = device.library.reaches
    assert reaches(3, 0) and not reaches(0, 3)
    del y
    again = fnp.tanh(x) * 3  # takes the memory that the copy reads
    np.testing.assert_allclose(np.asarray(moved + 1), np.tanh(numbers(64, 8)) * 2 + 1, 1e-6, 1e-6)
    np.testing.assert_allclose(np.asarray(again), np.tanh(numbers(64, 8)) * 3, 1e-6, 1e-6)
    back, copies = _from_gpus(device, moved, cards[3])
    assert back is moved and copies == 0
    whole, copies = _from_gpus(device, moved, NamedSharding(mesh_of(4), P()))
    assert copies == 3 and whole.is_fully_replicated
    rows, copies = _from_gpus(device, moved, NamedSharding(mesh_of(4), P("x")))
    assert copies == 3 and [s.data.device for s in rows.addressable_shards] == list(cards[:4])
    np.testing.assert_array_equal(np.asarray(fnp.sin(rows)), np.asarray(fnp.sin(whole)))
    others = fuser.sharding.Mesh(np.array(cards[4:8], object), ("y",))
    elsewhere, copies = _from_gpus(device, rows, NamedSharding(others, P("y")))
    assert copies == 4 and [s.data.device for s in elsewhere.addressable_shards] == list(cards[4:8])
    np.testing.assert_array_equal(np.asarray(elsewhere), np.asarray(moved))
    np.testing.assert_array_equal(np.asarray(fuser.device_put(rows, cards[7])), np.asarray(moved))  # by the host


def test_gpus_of_one_mesh_change_layouts_by_themselves(device: Any) -> None:
    mesh = mesh_of(4)
    rows = put(numbers(8, 4), mesh, "x") * 2
    turned = fuser.device_put(rows, NamedSharding(mesh, P(None, "x")))
    device.reset()
    turned = fuser.device_put(rows, NamedSharding(mesh, P(None, "x")))
    assert not {"to_host", "host_waits"} & set(device.counts())
    np.testing.assert_array_equal(np.asarray(turned), numbers(8, 4) * 2)
    assert turned.addressable_shards[1].data.shape == (8, 1)


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_copy_between_gpus_out_of_order_is_caught(device: Any, lost: str) -> None:
    """The stand-in refuses it without either of its two events."""
    cards = fuser.devices("cuda")
    y = fnp.tanh(fuser.device_put(numbers(64, 8), cards[0])) * 2
    x = fuser.device_put(numbers(64, 8), cards[0])
    ctypes.c_int.in_dll(device.library, "lost_wait").value = {"before": 1, "after": 2}[lost]
    with pytest.raises(RuntimeError, match=r"does not wait for the stream that wrote|another stream still reads"):
        moved = fuser.device_put(y, cards[3])
        del y
        _ = fnp.tanh(x) * 3  # takes the memory that the copy reads
        moved.block_until_ready()
    device.abandon()
