"""Updates of donated arrays on a GPU: the values are JAX's, the part alone is written, in the memory that was given away.

Through the stand-in, whose twins of kernels write what the kernels write, and in Triton's interpreter.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.backends.triton import BACKEND as TRITON
from fuser.partition.changed_operands import changed
from fuser.partition.explain import moved_bytes
from fuser.runtime.array import Array
from fuser.runtime.core import native
from tests.backends.update_cases import CACHE, CASES, COPIED, ROW, X, leaves

pytestmark = pytest.mark.skipif(native is None, reason="the native core is not built, or turned off")


def put(array: np.ndarray) -> Array:
    return Array(native.device_upload(array))


def donated(name: str) -> tuple[int, ...]:
    return (0, 1) if name == "a step of decoding" else (0,)


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_jax_and_lie_in_the_memory_given_away(device: Any, name: str) -> None:
    make, (x, *others) = CASES[name]
    expected = leaves(jax.jit(make(jnp, jax.lax))(x, *others))
    compiled = fuser.jit(make(fnp, lax), donate_argnums=donated(name), backend="triton")
    arrays = [put(a) if a.ndim and n >= len(donated(name)) else a for n, a in enumerate((x, *others))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that memory is given away in vain
        for call in range(3):  # the third replays a graph
            given = [put(a) for a in (x, *others)[: len(donated(name))]]
            places = [a.unsafe_buffer_pointer() for a in given]
            results = compiled(*given, *arrays[len(given) :])
            found = results if isinstance(results, tuple) else (results,)
            assert [r.unsafe_buffer_pointer() for r in found[: len(given)]] == places, call
            for a, b in zip(leaves(results), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert not device.fault


@pytest.mark.parametrize("name", [*CASES, *COPIED])
def test_an_array_that_is_not_given_away_after_all_is_copied(device: Any, name: str) -> None:
    make, (x, *others) = {**CASES, **COPIED}[name]
    expected = leaves(jax.jit(make(jnp, jax.lax))(x, *others))
    compiled = fuser.jit(make(fnp, lax), donate_argnums=donated(name), backend="triton")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for how in ("another view is left", "NumPy's", "it is passed twice"):
            given = put(x)
            left = Array(given._data.reshape(given._data.shape)) if how == "another view is left" else None
            results = compiled(x if how == "NumPy's" else given, *others)
            for a, b in zip(leaves(results), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4, err_msg=how)
            if left is not None:
                np.testing.assert_array_equal(np.asarray(left), x)
    assert not device.fault


def test_an_array_that_another_argument_is_too_stays_as_it_is(device: Any) -> None:
    update = fuser.jit(lambda x, y, i: (x.at[i].set(0.0), y[i] * 1.0), donate_argnums=0, backend="triton")
    given = put(X)
    same = Array(given._data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        changed, row = update(given, same, 3)
    np.testing.assert_array_equal(np.asarray(row), X[3])
    np.testing.assert_array_equal(np.asarray(same), X)
    assert not np.asarray(changed)[3].any()


def test_a_step_of_decoding_moves_what_it_reads_and_writes_and_copies_no_cache(device: Any) -> None:
    make, arguments = CASES["a step of decoding"]
    step = fuser.jit(make(fnp, lax), donate_argnums=(0, 1), backend="triton")
    keys, values, *rest = map(put, (*arguments[:2], *(a for a in arguments[3:])))
    for i in range(5):  # the results are given away again
        device.reset()
        keys, values, _ = step(keys, values, i, *rest)
        np.asarray(keys)
        assert device.counts().get("copies", 0) == 0
    plan = step.lower(*arguments).plan
    assert sum(map(moved_bytes, plan.groups)) < 3 * CACHE.nbytes  # both are read once


def test_writes_of_several_arrays_share_a_launch(device: Any) -> None:
    def both(keys: Any, values: Any, i: Any, k: Any, v: Any) -> Any:
        return tuple(lax.dynamic_update_slice(c, n[:, None] * 2, (0, i, 0, 0)) for c, n in ((keys, k), (values, v)))

    step = fuser.jit(both, donate_argnums=(0, 1), backend="triton")
    arguments = CACHE, CACHE, np.int32(3), CACHE[:, 0], CACHE[:, 1]
    assert ["write_window" in group.ops for group in step.lower(*arguments).plan.groups] == [
        False,
        True,
    ]  # the index before
    step(put(CACHE), put(CACHE), 3, put(CACHE[:, 0]), put(CACHE[:, 1]))
    assert device.counts()["launches"] == 2 and "copies" not in device.counts()


def test_a_loop_that_keeps_its_start_copies_it_once(device: Any) -> None:
    make, (x, m) = CASES["by a while"]
    compiled = fuser.jit(make(fnp, lax), backend="triton")
    given = put(x)
    result = compiled(given, put(m))
    expected = jax.jit(make(jnp, jax.lax))(x, m)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(np.asarray(given), x)
    assert moved_bytes(compiled.lower(x, m).plan.groups[-1]) < x.nbytes + 4 * m.nbytes  # of an iteration


def test_only_what_is_given_away_is_written_in_part() -> None:
    of = lambda **how: fuser.jit(lambda x, i, y: x.at[i].set(y), backend="triton", **how).lower(X, np.int32(3), ROW)
    assert "write_window" in of(donate_argnums=0).plan.groups[0].ops
    assert "write_window" not in of().plan.groups[0].ops


def test_what_a_kernel_writes_no_other_iteration_of_it_reads() -> None:
    """Iterations run at any time: in one kernel, the column would be written before others have read it."""
    make, (x, y) = CASES["column that all iterations read"]
    plan = fuser.jit(make(fnp, lax), donate_argnums=0, backend="triton").lower(x, y).plan
    (writer,) = (group for group in plan.groups if "write_window" in group.ops)
    assert "reduce_sum" not in writer.ops and writer.parallel != () == writer.reduced
    (narrow,) = (eqn for eqn in writer.graph.eqns if eqn.primitive.name == "write_window")
    assert [pair[1] for pair in changed(writer, TRITON.limits)] == [narrow.outvars[0]]


def test_values_are_those_of_jax_in_the_interpreter() -> None:
    """In a process of its own, where TRITON_INTERPRET is set before Triton is imported."""
    run = subprocess.run([sys.executable, "-m", "tests.backends.update_worker"], capture_output=True, text=True)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(rows) == len(CASES) + len(COPIED), run.stderr[-2000:]
    wrong = {row["case"]: row["error"] for row in rows if row["error"]}
    assert not wrong, wrong
