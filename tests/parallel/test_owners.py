"""Reads and writes at computed places along split dimensions: what JAX gives, and no device needs the others' parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from parallel_agreement import mesh_of

import fuser

T = np.random.default_rng(0).normal(size=(32, 24, 4)).astype(np.float32)
IDS = np.array([3, 31, 0, 40, -1, 7, 8, -50], np.int32)  # some are out of bounds
PAIRS = np.array([[1, 2], [31, 5], [17, 3]], np.int32)

PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "rows": lambda lib, t, n: t[n + IDS],
    "fill": lambda lib, t, n: lib.numpy.take(t, n + IDS, 0),
    "fill with": lambda lib, t, n: t.at[n + IDS].get(mode="fill", fill_value=7.0),
    "both": lambda lib, t, n: t[n + PAIRS[:, 0], n + PAIRS[:, 1]],
    "integers": lambda lib, t, n: (t * 100).astype(np.int8)[n + IDS],
    "row": lambda lib, t, n: t[n + 9] + lib.lax.dynamic_index_in_dim(t, n + 40, 0, keepdims=False),
    "drop": lambda lib, t, n: t.at[n + IDS].set(1.0),
    "add": lambda lib, t, n: t.at[n + IDS].add(1.0),
    "clip": lambda lib, t, n: t.at[n + IDS].set(2.0, mode="clip"),
    "multiply": lambda lib, t, n: t.at[n + PAIRS].multiply(2.0),
    "window": lambda lib, t, n: lib.lax.dynamic_update_slice(t, t[:3] * 2, (n + 10, n, n)),
    "end": lambda lib, t, n: lib.lax.dynamic_update_slice(t, t[:2, :3, :1], (n - 3, n + 23, n + 7)),
    "cache": lambda lib, t, n: lib.lax.fori_loop(
        0, 32, lambda i, c: lib.lax.dynamic_update_index_in_dim(c, c[i] * i, i, 0), t
    ),
    "slopes": lambda lib, t, n: lib.grad(lambda t: (t[n + IDS] ** 2).sum() + (t[n + 9] ** 3).sum())(t),
    "slopes of a window": lambda lib, t, n: lib.grad(
        lambda t: (lib.lax.dynamic_update_slice(t, t[:2], (n + 9, n, n)) ** 2).sum()
    )(t),
}


def _arguments(lib: Any) -> tuple[Any, Any]:
    return lib.device_put(T, lib.NamedSharding(mesh_of(lib, x=4, y=2), lib.P("x", "y"))), lib.numpy.int32(0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_owners_read_and_write(name: str) -> None:
    found, wanted = (lib.jit(lambda t, n, lib=lib: PROGRAMS[name](lib, t, n))(*_arguments(lib)) for lib in (fuser, jax))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert str(found.sharding) == str(wanted.sharding)


@pytest.mark.parametrize("name", ["rows", "fill", "both", "row", "drop", "cache"])
def test_nothing_of_the_table_is_sent(name: str) -> None:
    program = fuser.jit(lambda t, n: PROGRAMS[name](fuser, t, n)).lower(*_arguments(fuser)).spread
    assert "all_gather" not in [c.name for c in program.collectives], program.collectives
