"""Arrays that TPU programs give: they stay on JAX's device, here the CPU, until NumPy asks for them."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import jit
from fuser.runtime import device
from fuser.runtime.array import Array

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.tpu


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with fuser.config.using(tpu_interpret=True):
        yield


def on_device(*arrays: Array) -> bool:
    return all(isinstance(array._data, jax.Array) for array in arrays)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def tpu(function: Callable[..., Any], **options: Any) -> Any:
    return jit(function, backend="tpu", **options)


def test_results_stay_on_the_device_and_feed_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    step = tpu(lambda w, x: (w - 0.1 * x, fnp.sum(w * x)))
    x = numbers(6, 40)
    first, total = step(np.ones((6, 40), np.float32), x)
    assert on_device(first, total) and total.shape == ()
    moved: list[Any] = []
    original = jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda value, **how: (moved.append(value), original(value, **how))[1])
    second, total = step(first, first)
    assert on_device(second, total) and moved == []
    step(x, first)
    assert len(moved) == 1 and moved[0] is x
    np.testing.assert_allclose(second, 0.9 * (1 - 0.1 * x), rtol=1e-6)


def test_what_is_traced_in_is_placed_once() -> None:
    table = numbers(5000)
    added = tpu(lambda x: x + fnp.asarray(table))
    program = added.lower(table).compile().executable
    (constant,) = program.consts.values()
    assert isinstance(constant, jax.Array)
    np.testing.assert_array_equal(added(table), table + table)


def test_a_result_does_not_change_with_the_callers_memory() -> None:
    x = numbers(4, 5)
    kept = x.copy()
    same, flat = tpu(lambda x: (x, x.reshape(-1)))(x)
    x[...] = 0
    np.testing.assert_array_equal(same, kept)
    np.testing.assert_array_equal(flat, kept.reshape(-1))


def test_arrays_on_the_device_do_what_arrays_do() -> None:
    x = numbers(3, 4)
    made = tpu(lambda x: x + 0)(x)
    assert (made.shape, made.dtype, made.ndim, made.nbytes) == ((3, 4), np.float32, 2, 48)
    assert made.device == device.Device("cpu", 0, "cpu") and made.block_until_ready() is made
    assert not np.asarray(made).flags.writeable
    for other in (pickle.loads(pickle.dumps(made)), copy.copy(made), made.torch(), np.from_dlpack(made), made + 0):
        np.testing.assert_array_equal(other, x)
    assert made[1, 2].item() == x[1, 2] and made.tolist() == x.tolist()
    for row, wanted in zip(made, x, strict=True):
        assert on_device(row)
        np.testing.assert_array_equal(row, wanted)
    made.delete()
    with pytest.raises(RuntimeError, match="Array has been deleted with shape=float32"):
        np.asarray(made)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8", "bool"])
def test_types_of_elements_come_back(dtype: str) -> None:
    x = fnp.asarray(np.arange(6) % 2).astype(dtype)
    made = tpu(lambda x: fnp.concatenate([x, x]))(x)
    assert on_device(made) and made.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(made), np.concatenate([np.asarray(x)] * 2))
    again = tpu(lambda x: x[:6])(made)
    np.testing.assert_array_equal(np.asarray(again), np.asarray(x))


def test_other_backends_take_them() -> None:
    x = numbers(7)
    made = tpu(lambda x: x * 2)(x)
    for backend in ("c", "reference"):
        np.testing.assert_array_equal(jit(lambda x: x * 3, backend=backend)(made), 6 * x)


def test_random_keys_and_numbers() -> None:
    draw = tpu(lambda key: (fuser.random.split(key, 3), fuser.random.normal(key, (40,))))
    keys, drawn = draw(fuser.random.key(5))
    wanted, same = jit(lambda key: (fuser.random.split(key, 3), fuser.random.normal(key, (40,))), backend="reference")(
        fuser.random.key(5)
    )
    np.testing.assert_array_equal(fuser.random.key_data(keys), fuser.random.key_data(wanted))
    np.testing.assert_allclose(drawn, same, rtol=1e-5, atol=1e-6)
    draw(keys[1])


def test_keys_move_as_other_values_do() -> None:
    key = fuser.random.key(7)

    def move(key):
        keys = fuser.random.split(key, (2, 3))
        moved = fnp.transpose(keys), fnp.concatenate([keys, keys[::-1]], axis=1), fnp.reshape(keys, (6,))[1:5]
        return tuple(map(fuser.random.key_data, moved))

    for ours, wanted in zip(tpu(move)(key), jit(move, backend="reference")(key)):
        np.testing.assert_array_equal(ours, wanted)


def test_donation_gives_memory_up_without_a_warning() -> None:
    step = tpu(lambda x: x + 1, donate_argnums=0)
    x = tpu(lambda x: x * 2)(np.ones((600, 600), np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = step(step(x))
    assert x.is_deleted()
    assert result[3, 4].item() == 4


def test_gradients_through_a_jitted_call() -> None:
    x = tpu(lambda x: x * 1)(numbers(9))
    gradient = fuser.grad(tpu(lambda x: fnp.sum(fnp.sin(x) ** 2)))(x)
    np.testing.assert_allclose(gradient, np.sin(2 * np.asarray(x)), rtol=1e-5, atol=1e-6)
