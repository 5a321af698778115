"""The small modules of jax.experimental and their neighbours beside JAX: values, dtypes and errors."""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any

import jax
import jax.experimental.ode
import jax.experimental.random
import jax.experimental.rnn
import jax.extend.random
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import ad_checkpoint
from fuser.experimental import layout, mesh_utils, multihost_utils, ode, rnn, shard_alike
from fuser.experimental import random as stateful
from fuser.extend import backend
from fuser.extend import random as extend_random

RANDOM = np.random.default_rng(0)


def test_a_generator_with_state_draws_what_jax_draws() -> None:
    theirs, ours = jax.experimental.random.stateful_rng(42), stateful.stateful_rng(42)
    for draw in (
        lambda g: g.random((2,)),
        lambda g: g.uniform(1, 3, (2, 2)),
        lambda g: g.normal(2.0, size=3),
        lambda g: g.integers(7, size=4),
        lambda g: g.spawn(2)[1].random(),
    ):
        a, b = draw(theirs), draw(ours)
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), rtol=1e-6, atol=1e-6)
    split = fuser.vmap(lambda g, x: x + g.uniform())(ours.split(3), fnp.zeros(3))
    expected = jax.vmap(lambda g, x: x + g.uniform())(theirs.split(3), jnp.zeros(3))
    np.testing.assert_allclose(np.asarray(split), np.asarray(expected), rtol=1e-6)
    with pytest.raises(ValueError, match="cannot operate on split stateful generator"):
        ours.split(2).random()


def test_a_generator_of_ones_own() -> None:
    made = extend_random.define_prng_impl(
        key_shape=(1,),
        seed=lambda s: fnp.asarray(s, np.uint32).reshape(1),
        split=lambda k, shape: fnp.broadcast_to(k, (*shape, 1)) + fnp.arange(np.prod(shape), dtype=np.uint32).reshape(*shape, 1),
        random_bits=lambda k, width, shape: fnp.broadcast_to(k[0], shape).astype(f"uint{width}"),
        fold_in=lambda k, data: k + data,
        name="counting",
        tag="cnt",
    )  # fmt: skip
    key = fuser.random.key(5, impl=made)
    assert np.asarray(fuser.random.bits(key, (3,))).tolist() == [5, 5, 5]
    assert np.asarray(fuser.random.key_data(fuser.random.split(key, 2))).ravel().tolist() == [5, 6]
    assert fuser.random.key_impl(extend_random.random_seed(1, extend_random.rbg_prng_impl)) == "rbg"


@pytest.mark.parametrize("bidirectional", [False, True])
def test_lstm(bidirectional: bool) -> None:
    batch, steps, inputs, hidden, layers = 3, 5, 4, 6, 2
    sizes = (inputs, hidden, layers, bidirectional)
    assert rnn.get_num_params_in_lstm(*sizes) == jax.experimental.rnn.get_num_params_in_lstm(*sizes)
    weights = np.array(jax.experimental.rnn.init_lstm_weight(jax.random.key(0), *sizes))
    np.testing.assert_allclose(
        np.asarray(rnn.init_lstm_weight(fuser.random.key(0), *sizes)), weights, rtol=1e-6, atol=1e-7
    )
    swapped = jax.experimental.rnn.swap_lstm_gates(weights, *sizes)
    np.testing.assert_array_equal(np.asarray(rnn.swap_lstm_gates(weights, *sizes)), np.asarray(swapped))
    x = RANDOM.standard_normal((batch, steps, inputs)).astype(np.float32)
    h, c = RANDOM.standard_normal((2, layers * (1 + bidirectional), batch, hidden)).astype(np.float32)
    lengths = np.array([5, 3, 1], np.int32)
    parts = jax.experimental.rnn.unpack_lstm_weights(weights, *sizes)
    expected = jax.experimental.rnn.lstm_ref(x, h, c, *parts, lengths, inputs, hidden, layers, 0.0, bidirectional)
    got = rnn.lstm(x, h, c, weights, lengths, inputs, hidden, layers, 0.0, bidirectional)
    for a, b in zip(expected, got, strict=True):
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), rtol=1e-5, atol=1e-6)
    with pytest.raises(NotImplementedError, match="dropout"):
        rnn.lstm(x, h, c, weights, lengths, inputs, hidden, layers, 0.5, bidirectional)


def test_the_parts_of_odeint() -> None:
    theirs: Any = jax.experimental.ode
    y, k = RANDOM.standard_normal((2, 3)).astype(np.float32), RANDOM.standard_normal((7, 3)).astype(np.float32)
    for call in (
        lambda m, np_: m.abs2(np_.asarray(y + 1j)),
        lambda m, np_: m.runge_kutta_step(lambda y, t: -y * t, np_.asarray(y[0]), np_.asarray(y[1]), np_.asarray(0.5), np_.asarray(0.1)),
        lambda m, np_: m.interp_fit_dopri(np_.asarray(y[0]), np_.asarray(y[1]), np_.asarray(k), np_.asarray(0.1)),
        lambda m, np_: m.initial_step_size(lambda y, t: -y, 0.0, np_.asarray(y[0]), 4, 1e-6, 1e-6, np_.asarray(-y[0])),
        lambda m, np_: m.mean_error_ratio(np_.asarray(y[0]), 1e-3, 1e-3, np_.asarray(y[0]), np_.asarray(y[1])),
        lambda m, np_: [m.optimal_step_size(0.1, np_.asarray(r)) for r in (0.0, 0.5, 3.0)],
    ):  # fmt: skip
        for a, b in zip(jax.tree.leaves(call(theirs, jnp)), fuser.tree.leaves(call(ode, fnp)), strict=True):
            np.testing.assert_allclose(np.asarray(b), np.asarray(a), rtol=2e-4, atol=1e-6)


def test_products_of_scaled_blocks() -> None:
    a, b = RANDOM.standard_normal((2, 4, 64)).astype(np.float32), RANDOM.standard_normal((2, 5, 64)).astype(np.float32)
    low = [x.astype(ml_dtypes.float8_e4m3fn) for x in (a, b)]
    scales = [(2.0 ** RANDOM.integers(-2, 3, (2, n, 2))).astype(np.float32) for n in (4, 5)]
    expected = np.einsum("bmk,bnk->bmn", *(x.astype(np.float32) * np.repeat(s, 32, -1) for x, s in zip(low, scales)))
    got = fuser.nn.scaled_matmul(*map(fnp.asarray, (*low, *scales)))
    assert got.dtype == np.float32
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=1e-5)
    theirs = jax.lax.scaled_dot(jnp.asarray(a[0]), jnp.asarray(b[0].T), lhs_scale=jnp.asarray(scales[0][0]))
    ours = fuser.lax.scaled_dot(a[0], b[0].T, lhs_scale=scales[0][0])
    assert ours.dtype == theirs.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(np.asarray(ours, np.float32), np.asarray(theirs, np.float32), rtol=2e-2, atol=2e-1)
    with pytest.raises(TypeError, match="scaled_dot takes a scale with the operand's extents"):
        fuser.lax.scaled_dot(a[0], b[0].T, lhs_scale=np.ones((4, 3), np.float32))


def test_policies_that_answer_by_name() -> None:
    for answer, kept in ((ad_checkpoint.Saveable, 2), (ad_checkpoint.Recompute, 1)):
        function = fuser.checkpoint(lambda x: fnp.sin(fnp.sin(x)), policy=lambda prim, *_, **__: answer)  # noqa: B023
        assert len(ad_checkpoint.saved_residuals(function, 1.0)) >= kept - 1
        np.testing.assert_allclose(float(fuser.grad(function)(1.0)), np.cos(np.sin(1.0)) * np.cos(1.0), rtol=1e-6)
    assert ad_checkpoint.Offloadable("device", "pinned_host").dst == "pinned_host"


def test_where_arrays_lie() -> None:
    x, y = shard_alike.shard_alike(np.ones(3, np.float32), np.zeros(3, np.float32))
    assert x.sharding == y.sharding
    with pytest.raises(ValueError, match="should match"):
        shard_alike.shard_alike(np.ones(3), np.ones(2))
    kept = layout.with_layout_constraint(fnp.ones((2, 3)), layout.Layout((0, 1)))
    assert kept.shape == (2, 3)
    with pytest.raises(ValueError, match="rank of the value should match"):
        layout.with_layout_constraint(fnp.ones((2, 3)), layout.Layout((0,)))
    assert mesh_utils.create_hybrid_device_mesh((1, 1), (1, 1)).shape == (1, 1)
    mesh = fuser.make_mesh((1,), ("x",))
    whole = multihost_utils.host_local_array_to_global_array(np.arange(4.0), mesh, multihost_utils.P("x"))
    local = multihost_utils.global_array_to_host_local_array(whole, mesh, multihost_utils.P("x"))
    assert np.asarray(local).tolist() == [0, 1, 2, 3]
    assert backend.get_default_device() == fuser.devices()[0]
    assert fuser.device_put(1.0, fuser.memory.Space.Host) == 1
    assert fuser.sharding.AbstractDevice("cpu", None, "cpu").platform == "cpu"


def test_a_trace_of_the_program(tmp_path: pathlib.Path) -> None:
    @fuser.profiler.annotate_function
    def work(x: Any) -> Any:
        return step(x)

    step = fuser.jit(lambda x: x + 1)
    step.__dict__["name"] = "step"
    step(np.ones(3))
    with fuser.profiler.trace(tmp_path):
        with fuser.profiler.StepTraceAnnotation("train", step_num=3):
            work(np.ones(3))
            work(np.ones(3))
        with pytest.raises(RuntimeError, match="Only one profile"):
            fuser.profiler.start_trace(tmp_path)
    (path,) = tmp_path.rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert [e["name"] for e in events] == ["jit(step)", "work", "jit(step)", "work", "train"]
    assert events[-1]["args"] == {"step_num": "3"} and events[-1]["dur"] >= events[0]["dur"] > 0
    with pytest.raises(RuntimeError, match="No profile started"):
        fuser.profiler.stop_trace()
