"""`Array` against real JAX (printing, conversions, errors), NumPy and torch (exchange of memory)."""

import copy
import hashlib
import operator
import pickle
import weakref

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import fuser
import fuser.numpy
from fuser.runtime import array as array_module
from fuser.runtime import memory
from fuser.runtime.array import Array, from_dlpack, from_torch, to_numpy
from fuser.runtime.device import CPU

CASES = [
    np.float32(3),
    np.array(2.5, np.float16),
    np.array([1, 2.5, np.nan, np.inf, -0.0], np.float32),
    np.arange(12, dtype=np.int32).reshape(3, 4),
    np.zeros((0,), np.float32),
    np.zeros((3, 0), np.int8),
    np.array(True),
    np.array([[True], [False]]),
    np.linspace(-1e10, 1e-10, 30).astype(np.float32).reshape(5, 6),
    np.arange(2000, dtype=np.int32),
    np.arange(9, dtype=ml_dtypes.bfloat16).reshape(3, 3),
    np.arange(4, dtype=ml_dtypes.float8_e4m3fn),
    np.array([1 + 2j, -0.5j], np.complex64),
    np.arange(25, dtype=np.uint8),
    np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32),
]
EXCHANGED = [
    np.bool_,
    np.int8,
    np.int64,
    np.uint8,
    np.float16,
    np.float32,
    np.float64,
    np.complex64,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
]


def pairs():
    return [(Array(np.array(case)), jnp.asarray(case)) for case in CASES]


@pytest.mark.parametrize("mine, theirs", pairs(), ids=lambda x: f"{x.dtype}{list(x.shape)}")
def test_prints_as_jax_does(mine, theirs):
    assert repr(mine) == repr(theirs)
    assert str(mine) == str(theirs)
    assert f"{mine}" == f"{theirs}"
    with np.printoptions(linewidth=30, precision=2):
        assert repr(mine) == repr(theirs)


def test_weak_types_and_formats_print_as_jax_does():
    assert repr(Array(np.array(3.0, np.float32), weak_type=True)) == repr(jnp.asarray(3.0))
    assert repr(Array(np.array([1, 2], np.int32), weak_type=True)) == "Array([1, 2], dtype=int32, weak_type=True)"
    assert f"{Array(np.array(2.0, np.float32)):.3f}" == "2.000"
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{Array(np.zeros(3)):.3f}"


def outcome(function, value):
    try:
        result = function(value)
    except Exception as error:
        return type(error), str(error)
    return type(result), result


CONVERSIONS = [
    bool,
    int,
    float,
    complex,
    len,
    operator.index,
    lambda x: x.item(),
    lambda x: x.tolist(),
    lambda x: x.tobytes(),
    lambda x: x.item(1),
    lambda x: [1, 2, 3, 4][x],
    lambda x: (x.shape, x.dtype, x.ndim, x.size, x.nbytes, x.itemsize, x.weak_type),
]


@pytest.mark.parametrize("function", range(len(CONVERSIONS)))
@pytest.mark.parametrize(
    "case",
    [np.float32(1.5), np.int32(2), np.array(True), np.zeros((1,), np.int32), np.zeros((1, 1), np.float32),
     np.arange(3, dtype=np.int32), np.zeros((0,), np.float32), np.array(2, ml_dtypes.bfloat16)],
    ids=lambda x: f"{x.dtype}{list(x.shape)}",
)  # fmt: skip
def test_converts_as_jax_does(function, case):
    mine = outcome(CONVERSIONS[function], Array(np.array(case)))
    theirs = outcome(CONVERSIONS[function], jnp.asarray(case))
    assert mine == theirs


def test_iterates_as_jax_does():
    for mine, theirs in pairs():
        if mine.ndim and mine.size < 100:
            assert [repr(x) for x in mine] == [repr(x) for x in theirs]
    with pytest.raises(TypeError, match=r"^iteration over a 0-d array$"):
        iter(Array(np.array(1.0)))


def test_rows_outlive_the_array():
    array = Array(np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]))
    rows = list(array)
    data, alone = array.donate()
    assert alone
    data[...] = -1
    assert rows[1].tolist() == [3.0, 4.0, 5.0]


def test_is_immutable_and_unhashable():
    x = Array(np.zeros(3))
    with pytest.raises(TypeError) as error:
        x[0] = 1
    assert str(error.value) == (
        "fuser arrays are immutable: x[index] = value cannot run; use x = x.at[index].set(value)"
    )
    with pytest.raises(TypeError, match=r"^unhashable type: 'Array'$"):
        hash(x)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[0] = 1


def test_numpy_sees_the_same_memory_and_copies_on_request():
    x = Array(np.arange(3, dtype=np.float32))
    assert np.shares_memory(np.asarray(x), x._data)
    assert not np.shares_memory(np.array(x), x._data)
    assert np.array(x, copy=True).flags.writeable
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.asarray(x, dtype=np.float32, copy=False).dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        np.asarray(x, dtype=np.int32, copy=False)
    with pytest.raises(ValueError) as error:
        x.__array__(np.int32, copy=False)
    assert str(error.value) == "a view of a float32 array as int32 needs a copy, and copy=False forbids it"
    assert to_numpy([1, 2]).tolist() == [1, 2]


@pytest.mark.parametrize("dtype", EXCHANGED, ids=lambda d: np.dtype(d).name)
def test_torch_both_ways_shares_memory(dtype):
    data = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = Array(data).torch()
    assert tensor.data_ptr() == data.ctypes.data and tuple(tensor.shape) == (2, 3)
    assert str(tensor.dtype) == f"torch.{np.dtype(dtype).name}"
    back = from_torch(tensor)
    assert back.dtype == dtype and np.shares_memory(to_numpy(back), data)
    assert to_numpy(back).tobytes() == data.tobytes()


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("dtype", EXCHANGED, ids=lambda d: np.dtype(d).name)
def test_dlpack_both_ways_shares_memory(dtype, writable):
    data = np.arange(6).reshape(2, 3).astype(dtype)
    data.flags.writeable = writable
    array = Array(data)
    assert array.__dlpack_device__() == (1, 0)
    tensor = torch.from_dlpack(array)
    assert tensor.data_ptr() == data.ctypes.data
    assert to_numpy(from_torch(tensor)).tobytes() == data.tobytes()
    back = from_dlpack(tensor)
    assert back.dtype == dtype and to_numpy(back).ctypes.data == data.ctypes.data
    assert to_numpy(from_dlpack(array)).ctypes.data == data.ctypes.data


def test_dlpack_with_numpy_and_jax():
    array = Array(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert np.shares_memory(np.from_dlpack(array), to_numpy(array))
    assert jax.dlpack.from_dlpack(array).tolist() == array.tolist()
    for dtype in (jnp.float32, jnp.bfloat16, jnp.int8):
        source = jnp.arange(5).astype(dtype)
        assert from_dlpack(source).dtype == dtype
        assert from_dlpack(source).tolist() == source.tolist()
    strided = np.arange(12.0).reshape(3, 4)[:, ::2]
    assert from_dlpack(strided).tolist() == strided.tolist()
    assert to_numpy(from_dlpack(strided)).flags.c_contiguous
    with pytest.raises(TypeError, match=r"^from_dlpack needs an object with __dlpack__, got list$"):
        from_dlpack([1, 2])


def test_torch_tensors_that_are_views_or_need_gradients():
    base = torch.arange(6.0).reshape(2, 3)
    assert from_torch(base.T).tolist() == base.T.tolist()
    assert to_numpy(from_torch(base.T)).flags.c_contiguous
    assert from_torch(base.requires_grad_()).tolist() == base.tolist()
    assert from_torch(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]
    assert from_torch(torch.tensor(3)).shape == ()


@pytest.mark.parametrize("case", CASES, ids=lambda x: f"{x.dtype}{list(x.shape)}")
@pytest.mark.parametrize("weak", [True, False])
def test_pickles_and_copies(case, weak):
    array = Array(np.array(case), weak)
    for other in (pickle.loads(pickle.dumps(array)), copy.copy(array), copy.deepcopy(array)):
        assert repr(other) == repr(array)
        assert other.size == 0 or not np.shares_memory(to_numpy(other), to_numpy(array))


def test_a_deleted_array_says_so():
    x = Array(np.zeros((2, 4), np.float32))
    assert not x.is_deleted()
    x.delete()
    x.delete()
    assert x.is_deleted()
    assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes) == ((2, 4), np.float32, 2, 8, 32)
    text = "Array has been deleted with shape=float32[2,4]; x.delete() was called"
    uses = [repr, str, iter, np.asarray, np.from_dlpack, pickle.dumps, copy.copy, Array.torch, Array.tolist,
            Array.block_until_ready, lambda x: x.device, lambda x: np.add(x._data, 1), lambda x: x._data.view()]  # fmt: skip
    for use in uses:
        with pytest.raises(RuntimeError) as error:
            use(x)
        assert str(error.value) == text
    empty = Array(np.zeros((0,)))
    empty.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        repr(empty)


def test_a_donated_array_says_so():
    x = Array(np.zeros(4, np.float32))
    x.donate()
    with pytest.raises(RuntimeError) as error:
        np.asarray(x)
    assert str(error.value) == "Array has been deleted with shape=float32[4]; it was donated to a jitted call"


@pytest.mark.parametrize(
    "look",
    [np.asarray, lambda x: np.asarray(x)[1:], torch.from_dlpack, Array.torch, lambda x: Array(x._data), memoryview],
    ids=["numpy", "numpy view", "dlpack", "torch", "array", "buffer"],
)
@pytest.mark.parametrize("make", [np.zeros, lambda n: memory.empty((n,), np.dtype(float))], ids=["small", "pool"])
def test_donated_memory_is_reused_only_if_nobody_sees_it(make, look):
    array = Array(make(40_000))
    view = look(array if look is not memoryview else array._data)
    data, alone = array.donate()
    assert not alone
    del view, data
    assert Array(make(40_000)).donate()[1]


def test_memory_of_others_is_never_reused():
    assert not from_torch(torch.zeros(4)).donate()[1]
    base = np.zeros((4, 4))
    assert not Array(base[:2]).donate()[1]
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    assert not Array(fixed).donate()[1]


def test_device_and_weak_references():
    x = Array(np.zeros(3))
    assert x.device == CPU and x.devices() == {CPU}
    assert x.block_until_ready() is x
    assert weakref.ref(x)() is x


def test_the_api_layer_installs_methods(monkeypatch):
    monkeypatch.setattr(Array, "double", None, raising=False)
    array_module.install("double", lambda self: Array(self._data * 2))
    assert Array(np.array([1.0, 2.0])).double().tolist() == [2.0, 4.0]


@pytest.mark.parametrize("order", ["C", "F"])
def test_copies_begin_at_a_line_of_the_cache(order):
    """Vectors of a misaligned matrix lie across two lines each: products with it took twice the time."""
    x = np.asarray(np.arange(200 * 300.0).reshape(200, 300), order=order)[1:]
    for copied in (fuser.device_put(x), fuser.device_put(x).__copy__(), fuser.numpy.array(x)):
        np.testing.assert_array_equal(copied, x)
    assert np.asarray(fuser.device_put(x)).ctypes.data % 64 == 0


@pytest.mark.skipif(array_module.native is None, reason="up to Python 3.11 only C types have buffers")
def test_buffers_are_those_of_jax():
    def found(module, function):
        try:
            return function(module)
        except BufferError:
            return BufferError

    for function in (
        lambda m: memoryview(m.arange(12.0).reshape(3, 4)).tobytes(),
        lambda m: [getattr(memoryview(m.arange(12.0).reshape(3, 4)), n) for n in ("shape", "readonly", "nbytes")],
        lambda m: hashlib.sha256(m.arange(5)).hexdigest(),
        lambda m: bytearray(m.ones((2, 0))),
        lambda m: memoryview(m.asarray(True)).tolist(),
        lambda m: memoryview(m.ones(3, "bfloat16")),
        lambda m: np.frombuffer(m.arange(3), np.int32).tolist(),
    ):
        assert found(fuser.numpy, function) == found(jnp, function)
    x = fuser.numpy.arange(64.0).reshape(8, 8)
    view = memoryview(x)
    before = view.tobytes()
    assert np.shares_memory(np.asarray(view), np.asarray(x))
    fuser.jit(lambda v: v + 1, donate_argnums=0)(x)
    assert view.tobytes() == before, "memory that a view holds is not donated"
    deleted = fuser.numpy.ones(3)
    deleted.delete()
    for wrong in (deleted, fuser.random.key(0)):
        with pytest.raises(BufferError, match="cannot be read as a buffer"):
            memoryview(wrong)


def test_dlpack_to_a_device():
    data = np.arange(4, dtype=np.float32)
    for device in (CPU, fuser.sharding.SingleDeviceSharding(CPU)):
        shared = fuser.numpy.from_dlpack(data, device=device, copy=False)
        assert np.shares_memory(to_numpy(shared), data) and shared.devices() == {CPU}
        assert not np.shares_memory(to_numpy(fuser.dlpack.from_dlpack(data, device=device, copy=True)), data)
    with pytest.raises(ValueError, match=r"requires a copy since the source device is .*, however copy=False"):
        fuser.numpy.from_dlpack(data, device=type(CPU)("cpu", 1), copy=False)
