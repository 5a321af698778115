"""pmap against JAX: axes, static and donated arguments, collectives, derivatives; and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from parallel_agreement import agree

import fuser
import fuser.numpy as fnp

X = np.random.default_rng(0).normal(size=(8, 4, 8)).astype(np.float32)


def test_axes_and_collectives() -> None:
    def program(lib: Any, mesh: Any) -> Any:
        lax, np_ = lib.lax, lib.numpy
        scaled = lib.pmap(
            lambda a, b: {"s": a * b["k"], "t": a.sum()}, in_axes=(2, {"k": None}), out_axes={"s": 1, "t": 0}
        )
        normal = lib.pmap(lambda a: a / lax.psum(np_.abs(a).sum(), "i") + lax.axis_index("i"), axis_name="i")
        same = lib.pmap(lambda a, *, b: lax.pmean(a + b, "i"), axis_name="i", out_axes=None)
        few = lib.pmap(lambda a: lib.vmap(np_.sin)(a), devices=None)
        return scaled(X, {"k": np.float32(3)}), normal(X), same(X, b=X), few(X[:3])

    agree(program)


def test_derivatives_around_and_within() -> None:
    def program(lib: Any, mesh: Any) -> Any:
        lax, np_ = lib.lax, lib.numpy
        f = lib.pmap(lambda a, w: lax.psum(np_.sin(a * w), "i") * a, axis_name="i", in_axes=(0, None))
        within = lib.pmap(lib.grad(lambda a: lax.psum((a**3).sum(), "i")), axis_name="i")
        return lib.grad(lambda a, w: (f(a, w) ** 2).sum(), (0, 1))(X, X[0]), within(X)

    agree(program, 1e-4)


def test_static_and_donated_arguments() -> None:
    f = fuser.pmap(lambda a, n, b: a * n if b else a, static_broadcasted_argnums=(1, 2), donate_argnums=0)
    x = fuser.pmap(lambda a: a + 0)(X)
    np.testing.assert_allclose(f(x, 3, True), X * 3)
    with pytest.raises(RuntimeError, match="it was donated to a call of pmap"):
        _ = x + 1
    elsewhere = fnp.asarray(X)  # on one device, from where its elements were copied
    np.testing.assert_allclose(f(elsewhere, 3, True), X * 3)
    np.testing.assert_allclose(elsewhere + 1, X + 1)
    with pytest.raises(ValueError, match="a static argument of <lambda> cannot be hashed"):
        fuser.pmap(lambda a, n: a, static_broadcasted_argnums=1)(X, [1])


def test_results_stay_on_their_devices() -> None:
    y = fuser.pmap(lambda a: a + 1)(X)
    assert [s.device.id for s in y.addressable_shards] == list(range(8))
    assert y.sharding.shard_shape(y.shape) == (1, 4, 8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fuser.pmap(lambda a: a)(np.ones(9)), "maps 9 elements and there are 8 devices"),
        (lambda: fuser.pmap(lambda a, b: a)(np.ones(4), np.ones(2)), "needs one size along the mapped axes, got 4 along axis 0 of a; 2 along axis 0 of b"),
        (lambda: fuser.pmap(lambda a: a, in_axes=2)(np.ones(4)), "maps axis 2 of argument a, which is f32"),
        (lambda: fuser.pmap(fuser.pmap(lambda a: a))(X), "a pmap within a pmap or shard_map is not supported"),
    ],
)  # fmt: skip
def test_what_does_not_fit_says_so(call: Any, words: str) -> None:
    with pytest.raises((ValueError, NotImplementedError), match=words):
        call()
