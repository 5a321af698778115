"""Runs along a row that are cut where a test turns at a computed place: what is cut, and JAX's numbers at every place."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import fuser
import fuser.numpy as jnp
from fuser.backends.c.emit import writer_of
from fuser.backends.c.schedules.runtime_splitting import SplitPoint, split_point
from fuser.kernel.loops import arrange
from fuser.kernel.lower import lower

COUNT = 300


def shifted(np, lax, x, k):
    """What follows place k, then zeros, scaled by the whole: a window of x behind which zeros lie."""
    wide = np.concatenate([x, np.zeros_like(x)])
    return lax.dynamic_slice(wide, (k,), (len(x),)) * (x @ x)


def turned(np, lax, x, k):
    """The first k of x backwards, then zeros."""
    wide = np.concatenate([np.flip(x), np.zeros_like(x)])
    return x + lax.dynamic_slice(wide, (len(x) - k,), (len(x),)) * np.sum(x)


def twice(np, lax, x, k):
    """Two places: nothing is cut."""
    return shifted(np, lax, x, k) + shifted(np, lax, x, 2 * k)


def found(function) -> list[SplitPoint]:
    run = fuser.jit(lambda x, k: function(jnp, fuser.lax, x, k))
    (group,) = (g for g in run.lower(numbers(), np.int32(3)).plan.kernels if g.kind.value == "reduction")
    kernel = lower(group)
    loops = arrange(kernel)
    writer = writer_of(kernel, loops)
    return [t for stage in kernel.sweeps if (t := split_point(writer, stage))]


def numbers() -> np.ndarray:
    return np.random.default_rng(0).standard_normal(COUNT).astype(np.float32)


def test_what_is_cut() -> None:
    for function in (shifted, turned):
        [cut] = found(function)
        assert set(cut.answers.values()) == {True} or set(cut.answers.values()) == {False}
    assert found(twice) == []


def test_pieces_do_not_ask() -> None:
    run = fuser.jit(lambda x, k: turned(jnp, fuser.lax, x, k))
    kernel = lower(next(g for g in run.lower(numbers(), np.int32(3)).plan.kernels if g.kind.value == "reduction"))
    loops = arrange(kernel)
    writer = writer_of(kernel, loops)
    stage = kernel.sweeps[-1]
    cut = split_point(writer, stage)
    assert cut is not None
    for before in (True, False):
        nodes, _ = cut.piece(stage, before)
        varying = [n for n in nodes if writer.follows(n, loops.vector)]
        assert not [n for n in varying if n.op in ("lt", "ge", "select") or (n.op == "load" and n.args)]


@pytest.mark.parametrize("function", [shifted, turned, twice])
@pytest.mark.parametrize("k", [-700, -1, 0, 1, 17, COUNT - 1, COUNT, COUNT + 1, 1000])
def test_every_place(function, k) -> None:
    x, k = numbers(), np.int32(k)
    ours = fuser.jit(lambda x, k: function(jnp, fuser.lax, x, k))(x, k)
    theirs = jax.jit(lambda x, k: function(jax.numpy, jax.lax, x, k))(x, k)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
