"""Guards of transfers, the default device, and what is alive, beside JAX on the same eight devices."""

from __future__ import annotations

import functools
import gc
import logging
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fuser
from fuser.errors import JaxRuntimeError
from fuser.parallel.transport import _guard

LIBRARIES = {"jax": jax, "fuser": fuser}


def _actions(lib: Any) -> dict[str, Callable[[], Any]]:
    """Transfers of every kind, prepared outside of the guard."""
    numpy, device = lib.numpy, lib.devices("cpu")
    x, there = numpy.ones(3), lib.device_put(np.ones(3, np.float32), device[2])
    jitted, two = lib.jit(lambda v: v + 1), lib.jit(lambda a, b: a + b)
    mesh = lib.make_mesh((2,), ("x",), devices=device[:2])
    split = lib.sharding.NamedSharding(mesh, lib.sharding.PartitionSpec(None))
    reversed_mesh = lib.make_mesh((2,), ("x",), devices=device[:2][::-1])
    rows, columns = (
        lib.sharding.NamedSharding(mesh, lib.P("x")),
        lib.sharding.NamedSharding(reversed_mesh, lib.P(None, "x")),
    )
    parted = lib.device_put(np.ones((2, 2), np.float32), rows)
    for warm in (lambda: jitted(x), lambda: jitted(np.ones(3, np.float32)), lambda: jitted(1.0), lambda: two(x, x)):
        warm()
    return {
        "device_put of an ndarray": lambda: lib.device_put(np.ones(3)),
        "array of a list": lambda: numpy.array([1.0, 2.0]),
        "asarray of an ndarray": lambda: numpy.asarray(np.ones(3)),
        "ones": lambda: numpy.ones(3),
        "a number beside": lambda: x + 1,
        "an ndarray beside": lambda: x + np.ones(3, np.float32),
        "jit of an ndarray": lambda: jitted(np.ones(3, np.float32)),
        "jit of a number": lambda: jitted(1.0),
        "jit of an array": lambda: jitted(x),
        "arrays alone": lambda: numpy.exp(x + x),
        "key": lambda: lib.random.key(0),
        "asarray to NumPy": lambda: np.asarray(x + x),
        "device_get": lambda: lib.device_get(x + x),
        "device_put to another": lambda: lib.device_put(x, device[1]),
        "device_put to its own": lambda: lib.device_put(x, device[0]),
        "device_put to a mesh": lambda: lib.device_put(x, split),
        "device_put among the same": lambda: lib.device_put(parted, columns),
        "jit over devices": lambda: two(there, x),
    }


WAYS = (
    "transfer_guard",
    "transfer_guard_host_to_device",
    "transfer_guard_device_to_device",
    "transfer_guard_device_to_host",
)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("level", ["allow", "disallow", "disallow_explicit"])
def test_the_same_transfers_are_refused(way: str, level: str) -> None:
    refused: dict[str, dict[str, str]] = {}
    for name, lib in LIBRARIES.items():
        found = refused[name] = {}
        for action, run in _actions(lib).items():
            try:
                with getattr(lib, way)(level):
                    run()
                    run()
            except (jax.errors.JaxRuntimeError, JaxRuntimeError) as error:
                found[action] = str(error).partition(" transfer")[0]
    assert refused["fuser"] == refused["jax"]
    assert bool(refused["fuser"]) == (level != "allow" and way != "transfer_guard_device_to_host")


def test_the_line_is_named_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    x = fuser.numpy.ones(3)
    jitted = fuser.jit(lambda v: v * 2)
    jitted(np.ones(3, np.float32))
    with caplog.at_level(logging.WARNING, "fuser"), fuser.transfer_guard("log"):
        for _ in range(3):
            jitted(np.ones(3, np.float32))
        fuser.device_put(np.ones(3))
    assert [
        ("host-to-device transfer: float32[3]" in r.getMessage(), "test_guards.py:" in r.getMessage())
        for r in caplog.records
    ] == [(True, True)] * 3
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fuser"), fuser.transfer_guard("log_explicit"):
        fuser.device_put(np.ones(3))
        jitted(x)
    assert len(caplog.records) == 1
    with fuser.transfer_guard("disallow"), pytest.raises(JaxRuntimeError, match=r"test_guards\.py:\d+.*device_put"):
        _ = x + np.ones(3, np.float32)
    with fuser.transfer_guard("disallow"), fuser.transfer_guard_host_to_device("allow"):
        _ = x + 1
    with pytest.raises(ValueError, match="disallow_explicit"), fuser.transfer_guard("never"):
        pass


def test_default_device() -> None:
    found: dict[str, list[Any]] = {}
    for name, lib in LIBRARIES.items():
        device, numpy = lib.devices("cpu"), lib.numpy
        old, there = numpy.ones(3), lib.device_put(np.ones(3, np.float32), device[2])
        with lib.default_device(device[1]):
            made = numpy.ones(3)
            arrays = [
                made, lib.jit(functools.partial(numpy.arange, 3))(), lib.jit(lambda v: v + 1)(np.ones(3)), lib.device_put(np.ones(3)),
                lib.random.normal(lib.random.key(0), (2,)), numpy.asarray(np.ones(3)), made + there, old + made, numpy.sort(made),
                lib.jit(lambda a, b: a + b)(there, made), lib.lax.fori_loop(0, 3, lambda i, v: v + 1, made), lib.nn.softmax(made),
                lib.grad(lambda v: (v**2).sum())(made), lib.vmap(lambda v: v * 2)(made),
            ]  # fmt: skip
        arrays += [numpy.ones(3), old + made, made + 1, lib.jit(lambda v: v * 2)(made), lib.device_put(made, device[1])]
        found[name] = [(sorted(d.id for d in a.devices()), a.committed) for a in arrays]
        with lib.default_device("cpu"):
            assert {d.id for d in numpy.ones(2).devices()} == {0}
        for bad in ("tpuu", 5):
            with pytest.raises(ValueError, match="must be passed either a Device object"), lib.default_device(bad):
                pass
        lib.config.update("jax_default_device", device[3])
        try:
            assert {d.id for d in numpy.ones(2).devices()} == {3}
        finally:
            lib.config.update("jax_default_device", None)
        made = [
            numpy.zeros(3, device=device[1]), numpy.asarray([1.0], device=device[2]), numpy.eye(2, device=device[1]),
            numpy.full_like(old, 2, device=device[4]), numpy.arange(4, device=device[5]), numpy.fft.fftfreq(4, device=device[1]),
        ]  # fmt: skip
        found[name] += [sorted(d.id for d in a.devices()) for a in made]
    assert found["fuser"] == found["jax"]


def test_live_arrays() -> None:
    gc.collect()
    before = len(fuser.live_arrays())
    held = [fuser.numpy.zeros(3), fuser.numpy.arange(4) + 1]
    held.append(fuser.device_put(held[0], fuser.devices("cpu")[1]))
    assert len(fuser.live_arrays()) == before + 3 == len(fuser.live_arrays("cpu"))
    assert any(x is held[0] for x in fuser.live_arrays())
    held[0].delete()
    assert len(fuser.live_arrays()) == before + 2
    held.clear()
    assert len(fuser.live_arrays()) == before
    with pytest.raises(RuntimeError, match="no platform 'tpu'"):
        fuser.live_arrays("tpu")


def test_arrays_that_the_garbage_collector_frees(caplog: pytest.LogCaptureFixture) -> None:
    def leave_a_cycle() -> None:
        ring: list[Any] = [fuser.numpy.ones(3)]
        ring.append(ring)

    with caplog.at_level(logging.ERROR, "fuser"):
        leave_a_cycle()
        gc.collect()
        assert not caplog.records
        with fuser.array_garbage_collection_guard("log"):
            fuser.numpy.ones(3)
            gc.collect()
            assert not caplog.records
            leave_a_cycle()
            gc.collect()
    assert "deleted by the Python garbage collector instead of reference counting" in caplog.text
    with pytest.raises(ValueError, match="'fatal'"), fuser.array_garbage_collection_guard("never"):
        pass


def test_the_thread_that_set_the_guard_runs_programs_of_several_processes() -> None:
    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            _guard(str)
        except JaxRuntimeError as error:
            errors.append(error)

    with fuser.thread_guard(True):
        _guard(str)
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
    assert len(errors) == 1 and "thread guard" in str(errors[0])
    other = threading.Thread(target=elsewhere)
    other.start()
    other.join()
    assert len(errors) == 1


def test_why_a_function_is_traced_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    function = fuser.jit(lambda x: x * 2)
    with caplog.at_level(logging.WARNING, "fuser"), fuser.explain_cache_misses(True):
        function(np.ones(2, np.float32))
        function(np.ones(2, np.float32))
        function(np.ones(3, np.float32))
        with fuser.numpy_rank_promotion("warn"):
            function(np.ones(3, np.float32))
    first, second, third = (r.getMessage() for r in caplog.records)
    assert "TRACING CACHE MISS at test_guards.py" in first and "never seen function" in first
    assert "x is f32[3], before f32[2]" in second
    assert "the tracing context differs: numpy_rank_promotion is now warn and before allow" in third


def test_processes() -> None:
    assert fuser.process_indices() == jax.process_indices() == [0]
    for name in ("host_id", "host_count", "host_ids"):
        with pytest.warns(DeprecationWarning):
            assert getattr(fuser, name)() == getattr(jax, name)()
