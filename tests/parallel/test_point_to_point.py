"""psend and precv, which JAX has on GPUs alone: in the place of JAX's own stands its ppermute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from parallel_agreement import agree, mesh_of

import fuser
import fuser.numpy as fnp
from fuser import P, lax
from fuser.errors import DeviceError

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
FORWARD = [(n, n + 1) for n in range(7)]


def moved(lib: Any, x: Any, axis: Any, perm: Any) -> Any:
    """The value sent and received at once; by ppermute in JAX."""
    if lib is not fuser:
        return lib.lax.ppermute(x, axis, perm)
    token = lax.psend(x, axis, perm)
    return lax.precv(token, fuser.ShapeDtypeStruct(x.shape, x.dtype), axis, perm)


@pytest.mark.parametrize("check", [True, False])
def test_a_pipeline_there_and_back(check: bool) -> None:
    """JAX's test_psend_precv_basic_with_no_deadlock_cycle: what has come decides what is sent, behind a barrier."""

    def program(lib: Any, mesh: Any) -> Any:
        def one(a: Any, w: Any) -> Any:
            data = moved(lib, a, "x", FORWARD)
            w, _ = lib.lax.optimization_barrier((w, data))
            return moved(lib, lib.numpy.tanh(data * w), ("x",), [(7, 0)]), data

        step = lib.shard_map(one, mesh=mesh, in_specs=(lib.P("x"), lib.P()), out_specs=lib.P("x"), check_vma=check)
        return lib.jit(step)(X, X[0]), lib.grad(lambda a: (step(a, X[0])[0] ** 2).sum())(X)

    agree(program, 1e-5, x=8)


def test_tokens_go_through_barriers_loops_and_vmap() -> None:
    def program(lib: Any, mesh: Any) -> Any:
        def one(a: Any) -> Any:
            if lib is fuser:
                token = lax.psend(a, "x", FORWARD)
                token, a = lax.optimization_barrier((token, a))
                got = lax.precv(token, a, "x", FORWARD)
            else:
                got = lib.lax.ppermute(a, "x", FORWARD)
            turn = lambda c, _: (moved(lib, c + 1, "x", FORWARD), None)
            return lib.lax.scan(turn, got, None, length=3)[0]

        lanes = lib.vmap(lib.shard_map(one, mesh=mesh, in_specs=lib.P("x"), out_specs=lib.P("x")), in_axes=1)
        return lanes(X)

    agree(program, x=8)


def test_several_values_and_none_received() -> None:
    mesh = mesh_of(fuser, x=8)

    def one(a: Any) -> Any:
        tokens = lax.psend({"a": a, "b": a * 2}, "x", [(0, 3)])
        assert repr(tokens["a"]) == "SendToken(axis=('x',), perm=((0, 3),))"
        return lax.precv(tokens["b"], a, "x", [(0, 3)])

    f = fuser.jit(fuser.shard_map(one, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
    wanted = np.zeros_like(X)
    wanted[3] = 2 * X[0]
    np.testing.assert_array_equal(np.asarray(f(X)), wanted)
    names = [e.primitive.name for e in f.lower(X).graph.eqns]
    assert sum("permute" in name for name in names) == 1


@pytest.mark.parametrize(
    ("send", "receive", "error", "words"),
    [
        ([(0, 1), (1, 0)], [(0, 1), (1, 0)], DeviceError, "non-cyclical source-target pairs, got .* use ppermute"),
        ([(2, 2)], [(2, 2)], DeviceError, "non-cyclical"),
        ([(0, 1)], [(1, 0)], DeviceError, r"Deadlock detected: psend .*test_point_to_point.py:\d+"),
        ([(0, 1), (0, 1)], [(1, 0)], ValueError, "psend sources and destinations must be unique"),
        ([(0, 8)], [(0, 8)], ValueError, "of size 8 has sources and destinations below it"),
        (None, [(0, 1)], DeviceError, r"Expected send to match recv: precv over \('x',\) got Token\(\)"),
    ],
)
def test_what_would_hang_is_an_error(send: Any, receive: Any, error: Any, words: str) -> None:
    def one(a: Any) -> Any:
        token = lax.create_token() if send is None else lax.psend(a, "x", send)
        return lax.precv(token, a, "x", receive)

    with pytest.raises(error, match=words):
        fuser.shard_map(one, mesh=mesh_of(fuser, x=8), in_specs=P("x"), out_specs=P("x"))(X)


def test_what_is_received_has_the_type_of_what_was_sent() -> None:
    def one(a: Any) -> Any:
        return lax.precv(lax.psend(a, "x", [(0, 1)]), fnp.ones(3, np.float32), "x", [(0, 1)])

    with pytest.raises(ValueError, match=r"precv is to receive f32\[3\], and f32\[1,4\] was sent"):
        fuser.shard_map(one, mesh=mesh_of(fuser, x=8), in_specs=P("x"), out_specs=P("x"))(X)
    with pytest.raises(NameError, match=r"psend under `jax.shard_map`"):
        lax.psend(X, "nowhere", [(0, 1)])
