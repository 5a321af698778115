"""ShapeDtypeStruct: as JAX's in text, length, equality and errors; taken by eval_shape and lower, given by eval_shape."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import Any

import jax
import numpy as np
import pytest

import fuser
from fuser.ir.types import ArrayType


def test_like_jax():
    for shape in ((2, 3), (1,), ()):
        ours, theirs = (m.ShapeDtypeStruct(shape, np.float32) for m in (fuser, jax))
        assert str(ours) == str(theirs) and ours.shape == theirs.shape and ours.ndim == len(shape)
        assert ours == fuser.ShapeDtypeStruct(shape, "float32") == pickle.loads(pickle.dumps(ours))
        assert hash(ours) == hash(fuser.ShapeDtypeStruct(shape, "float32"))
        assert ours == ArrayType(shape, np.dtype("float32")) and ours != fuser.ShapeDtypeStruct(shape, "int32")
    assert len(fuser.ShapeDtypeStruct((4, 2), "int32")) == 4
    with pytest.raises(TypeError, match="unsized object"):
        len(fuser.ShapeDtypeStruct((), "int32"))
    with pytest.raises(ValueError, match="dtype must be specified"):
        fuser.ShapeDtypeStruct((), None)
    assert fuser.ShapeDtypeStruct.like(fuser.numpy.ones((2, 3))).shape == (2, 3)


def test_in_and_out_of_eval_shape():
    spec = fuser.ShapeDtypeStruct((2, 3), "float32")
    found = fuser.eval_shape(lambda x: {"a": x.sum(0), "b": 2.0}, spec)
    assert found["a"] == fuser.ShapeDtypeStruct((3,), "float32") and found["b"].weak_type
    assert isinstance(found["a"], fuser.ShapeDtypeStruct) and fuser.jit(lambda x: x).lower(spec).in_avals[0][0] == spec


def test_results_are_described_by_structs_as_in_jax() -> None:
    function = lambda x: {"sum": x.sum(), "x": x}
    x = np.ones((2, 3), np.float32)
    for library in (fuser, jax):
        described = [library.make_jaxpr(function, return_shape=True)(x)[1], library.jit(function).trace(x).out_info]
        described += [library.jit(function).lower(x).out_info, library.eval_shape(function, x)]
        for tree in described:
            assert all(isinstance(leaf, library.ShapeDtypeStruct) for leaf in tree.values())
            assert tree["sum"].shape == () and tree["x"].shape == (2, 3)


def test_libraries_name_types_of_values_and_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuser.custom_derivatives import SymbolicZero, zero_from_primal
    from fuser.interpreters.xla import canonicalize_dtype_handlers
    from fuser.lax.values import CONVERSIONS

    zeros = zero_from_primal((np.float32(1), {"n": np.int32(2)}))
    assert zeros[0] == 0 and zeros[1]["n"].dtype == fuser.dtypes.float0
    assert isinstance(zero_from_primal([np.ones(2)], symbolic_zeros=True)[0], SymbolicZero)

    class Boxed:
        def __init__(self, value: Any) -> None:
            self.value = value

    monkeypatch.setitem(CONVERSIONS, Boxed, lambda box: canonicalize_dtype_handlers[np.ndarray](box.value))
    np.testing.assert_array_equal(np.asarray(fuser.numpy.sin(Boxed(np.zeros(2)))), [0, 0])
    np.testing.assert_array_equal(np.asarray(fuser.jit(lambda x: x + 1)(Boxed(np.zeros(2)))), [1, 1])
    assert fuser.random.normal(fuser.random.key(0), np.array([2, 3])).shape == (2, 3)
    device = fuser.devices()[0]
    assert [memory.kind for memory in device.addressable_memories()] == ["device"]
    assert device.client.platform == "cpu" and device.memory("device") == device.default_memory()
    with pytest.raises(ValueError, match="has no memory of kind 'pinned_host'"):
        device.memory("pinned_host")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3 --xla_other")
    assert len(fuser.devices()) == 3


def test_executables_that_caches_hold_are_live() -> None:
    client, f = fuser.devices()[0].client, fuser.jit(lambda x, y: x - 3 * y)
    before = {id(e): e for e in client.live_executables()}
    f(1, 2)
    [made] = [weakref.ref(e) for e in client.live_executables() if id(e) not in before]
    f.clear_cache()
    gc.collect()
    assert made() is None and hasattr(jax.devices()[0].client, "live_executables")


def test_numbers_are_given_to_a_jaxpr_as_arrays() -> None:
    graph = fuser.make_jaxpr(lambda x, n: (fuser.numpy.sin(x), n + 1))(1.0, 2)
    found = fuser.core.eval_jaxpr(graph, graph.consts, 3.0, 4)
    assert [x.dtype.name for x in found] == ["float32", "int32"]
    np.testing.assert_allclose(found[0], np.sin(np.float32(3)), rtol=1e-6)
