"""Settings by JAX's names: what each does, and those that have one value here."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import random
from fuser.config import config

X = np.arange(3, dtype=np.float32)


def test_a_tracer_that_outlives_its_trace_is_an_error() -> None:
    kept: list = []

    def keep(x):
        kept.append(x)
        return x + 1

    for transform in (fuser.jit, fuser.vmap):
        transform(keep)(X)
        kept.clear()
        with fuser.checking_leaks(), pytest.raises(Exception, match=r"(?s)Leaked trace .*is referred to by <list"):
            transform(keep)(X)
        kept.clear()


def test_no_tracer_is_held_by_fuser_itself() -> None:
    with fuser.checking_leaks():
        fuser.grad(fuser.jit(lambda x: fnp.sum(fuser.vmap(fnp.sin)(x))))(X)
        fuser.lax.scan(lambda c, x: (c + x, c), 0.0, X)
        fuser.jvp(fuser.checkpoint(lambda x: fuser.nn.relu(x)), (X,), (X,))
        fuser.vmap(lambda x: fuser.lax.cond(x > 1, fnp.sin, fnp.cos, x))(X)
        custom = fuser.custom_jvp(lambda x: x * 2)
        custom.defjvp(lambda primals, tangents: (custom(*primals), tangents[0]))
        fuser.jit(custom)(X)
        fuser.jit(lambda x: fuser.vjp(fuser.checkpoint(lambda y: fnp.maximum(y * 2, 0)), x))(X)


def test_tracing_and_execution_can_be_forbidden() -> None:
    known, unknown = fuser.jit(lambda x: x + 1), fuser.jit(lambda x: x + 2)
    known(X)
    with fuser.no_tracing():
        assert known(X)[0] == 1
        with pytest.raises(RuntimeError, match="no_tracing"):
            unknown(X)
    with fuser.no_execution(), pytest.raises(RuntimeError, match="no_execution"):
        known(X)
    assert known(X)[0] == 1


def test_a_users_context_is_part_of_the_signature() -> None:
    context, traced = fuser.make_user_context(1), []

    @fuser.jit
    def f(x):
        traced.append(context.value)
        return x * context.value

    assert f(2.0) == 2 and f(3.0) == 3
    with context(5):
        assert f(2.0) == 10 and f(2.0) == 10
    context.set_global(7)
    try:
        assert f(1.0) == 7 and context.get_global() == 7
    finally:
        context.set_global(1)
    assert f(1.0) == 1 and traced == [1, 5, 7, 1]


def test_64_bit_dtypes_asked_for_by_name() -> None:
    with fuser.config.using(explicit_x64_dtypes="allow"), jax.enable_x64(False):
        before = jax.config.jax_explicit_x64_dtypes
        jax.config.update("jax_explicit_x64_dtypes", "allow")
        try:
            for m in (fuser, jax):
                x, i = m.numpy.ones(3, np.float64), m.numpy.arange(3, dtype=np.int64)
                found = (x, x + 1, x @ x, i + x, i / 2, m.numpy.where(x > 1, x, 0), m.numpy.array([1.0, x[0]]))
                assert {v.dtype.name for v in found} == {"float64"}
                others = (m.numpy.asarray(np.arange(3.0)), m.numpy.arange(3, dtype=float), x.astype(float))
                assert {v.dtype.name for v in others} == {"float32"}
        finally:
            jax.config.update("jax_explicit_x64_dtypes", before)
    with fuser.config.using(explicit_x64_dtypes="error"):
        with pytest.raises(ValueError, match="Explicitly requested dtype float64 requested in ones is not available"):
            fnp.ones(3, np.float64)
        assert fnp.ones(3, float).dtype == np.float32


def test_random_settings_as_jax() -> None:
    with fuser.config.using(jax_random_seed_offset=3):
        shifted = random.key_data(random.key(4))
    np.testing.assert_array_equal(shifted, jax.random.key_data(jax.random.key(7)))
    with fuser.enable_custom_prng(True):
        assert random.PRNGKey(1).dtype == random.key(1).dtype
    words = np.zeros(2, np.uint32)
    with fuser.legacy_prng_key("warn"), pytest.warns(UserWarning, match="Legacy uint32 key array"):
        random.uniform(words)
    with fuser.legacy_prng_key("error"), pytest.raises(ValueError, match="Legacy uint32 key array"):
        random.uniform(words)


def test_settings_with_one_value() -> None:
    assert fuser.config.jax_debug_key_reuse is False
    fuser.config.update("jax_debug_key_reuse", False)
    with pytest.raises(ValueError, match="always False"):
        fuser.config.update("jax_debug_key_reuse", True)
    with fuser.config.using(jax_custom_vjp3=True):  # a choice between two implementations that JAX has
        assert fuser.config.jax_custom_vjp3 is True
    assert fuser.config.jax_custom_vjp3 is False
    with fuser.default_prng_impl("threefry2x32"):
        pass
    with pytest.raises(AttributeError, match="no setting"):
        fuser.config.update("jax_no_such_thing", 1)


def test_known_indices_out_of_bounds() -> None:
    assert fuser.jit(lambda x: x[5])(X) == 2
    with fuser.config.using(jax_check_static_indices=True):
        for call in (lambda x: x[5], fuser.jit(lambda x: x[-4])):
            with pytest.raises(IndexError, match="out of bounds for axis 0 with size 3"):
                call(fnp.asarray(X))


def test_ranks_are_checked_for_users_and_not_within_library_functions() -> None:
    matrix = np.eye(3, dtype=np.float32)
    with fuser.numpy_rank_promotion("raise"), jax.numpy_rank_promotion("raise"):
        for m in (fuser, jax):
            numpy = m.numpy
            with pytest.raises(ValueError, match="numpy_rank_promotion"):
                numpy.add(numpy.ones((3, 3)), numpy.ones(3))
            numpy.where(matrix > 0, X, 0), numpy.cov(matrix), numpy.linalg.det(numpy.stack([matrix, matrix]))
            numpy.histogramdd(matrix), numpy.polyfit(X, X, 1), m.scipy.special.multigammaln(X[:, None] + 3, 2)
        for name in ("diag", "setdiff1d", "trapezoid"):
            given = (X, X[:2]) if name == "setdiff1d" else (X,)
            np.testing.assert_array_equal(getattr(fnp, name)(*given), getattr(jax.numpy, name)(*given))


ENUMERATED = "jax_explicit_x64_dtypes"  # JAX gives an enumeration; here it is its words
OTHERWISE = {  # settings of JAX whose value at the start is another here, or what the tests set
    *(
        "jax_platforms",
        "jax_platform_name",
        "jax_num_cpu_devices",
        "jax_enable_checks",
        "jax_captured_constants_warn_bytes",
    ),
    *("jax_compilation_cache_dir", "jax_compilation_cache_max_size", "jax_default_matmul_precision", "jax_enable_x64"),
    *("jax_transfer_guard_host_to_device", "jax_transfer_guard_device_to_device", "jax_transfer_guard_device_to_host"),
    "jax_array_garbage_collection_guard",
}


def test_every_setting_of_jax_can_be_read_and_set() -> None:
    for name, value in jax.config.values.items():
        found = getattr(config, name)
        if name != ENUMERATED and name not in OTHERWISE:
            assert found == value, name
        with config.using(**{name: found}):
            assert getattr(config, name) == found, name


def test_settings_of_jax_under_other_names() -> None:
    with config.using(jax_platforms="cuda,cpu"):
        assert (config.backend, config.jax_platform_name) == ("triton", "cuda")
    with config.using(jax_platform_name="cpu", jax_dump_ir_to="/tmp/x", jax_compilation_cache_max_size=-1):
        assert (config.backend, config.dump, config.cache_limit) == ("c", "/tmp/x", 1 << 62)
        assert config.jax_compilation_cache_max_size == -1
    for name, value in (("jax_platforms", "metal"), ("jax_debug_key_reuse", True), ("jax_cuda_visible_devices", "0")):
        with pytest.raises(ValueError, match="got"):
            config.update(name, value)


def test_gumbel_by_the_setting() -> None:
    wanted = random.gumbel(random.key(0), (4,), mode="high")
    with config.using(jax_high_dynamic_range_gumbel=True):
        assert random.gumbel(random.key(0), (4,)).tolist() == wanted.tolist()


def test_environment_variables_of_jax() -> None:
    code = (
        "from fuser.compat import install_as_jax; install_as_jax(); import jax; "
        "print(jax.numpy.ones(1).dtype, jax.config.jax_platforms, jax.config.jax_debug_nans)"
    )
    own = {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu", "JAX_DEBUG_NANS": "1", "FUSER_DEBUG_NANS": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | own, check=True
    )
    assert done.stdout.split() == ["float64", "cpu", "False"]
