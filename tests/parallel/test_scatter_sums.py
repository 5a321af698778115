"""Sums of which each device keeps a part are reduce-scatters; those of which it keeps another part, or more, stay sums."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from parallel_agreement import agree, mesh_of

import fuser
from fuser import P
from fuser.parallel.traffic import messages

X = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)


def own(lib: types.ModuleType, x: Any, axes: Any, dim: int, parts: int, shift: int = 0) -> Any:
    """The part along a dimension of the sum of x over these axes that the device's place says."""
    size = x.shape[dim] // parts
    place = lib.lax.axis_index(axes) + shift
    return lib.lax.dynamic_slice_in_dim(lib.lax.psum(x * 2, axes), place * size, size, dim)


PROGRAMS = {
    "rows": (lambda lib, x: own(lib, x, "x", 0, 4), True),
    "columns, several axes": (lambda lib, x: own(lib, x, ("y", "x"), 1, 8), True),
    "the last clamped": (lambda lib, x: lib.lax.dynamic_slice_in_dim(lib.lax.psum(x, "y"), lib.lax.axis_index("y") * 99, 32, 0), True),
    "a neighbour's part": (lambda lib, x: own(lib, x, "x", 0, 4, 1), False),
    "another axis's place": (lambda lib, x: lib.lax.dynamic_slice_in_dim(lib.lax.psum(x, "y"), lib.lax.axis_index("x") % 2 * 32, 32, 0), False),
    "read as a whole too": (lambda lib, x: (lambda t: lib.lax.dynamic_slice_in_dim(t, lib.lax.axis_index("y") * 32, 32, 0) + t[:32])(lib.lax.psum(x, "y")), False),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_ones_own_part_is_scattered(name: str) -> None:
    program, scattered = PROGRAMS[name]

    def mapped(lib: types.ModuleType, mesh: Any) -> Any:
        one = lib.shard_map(
            lambda x: program(lib, x), mesh=mesh, in_specs=P_of(lib), out_specs=lib.P(("x", "y")), check_vma=False
        )
        return lib.jit(one)(np.tile(X, (4, 2)))

    P_of = lambda lib: lib.P("x", "y")
    with fuser.config.using(backend="reference"):
        agree(mapped)
        mesh = mesh_of(fuser, x=4, y=2)
        f = fuser.jit(
            fuser.shard_map(
                lambda x: program(fuser, x), mesh=mesh, in_specs=P("x", "y"), out_specs=P(("x", "y")), check_vma=False
            )
        )
        names = [e.primitive.name for e in f.lower(np.tile(X, (4, 2))).graph.eqns]
    assert ("psum_scatter" in names, "psum" in names) == (scattered, not scattered)


def fully_sharded(lib: types.ModuleType, mesh: Any, *, kept: Any) -> Any:
    """A training step over layers in a scan, and its arguments; each device keeps its part of the weights, rows or columns."""
    lay = lambda value, *spec: lib.device_put(value.astype(np.float32), lib.NamedSharding(mesh, lib.P(*spec)))
    rng = np.random.default_rng(3)
    weights, x = lay(rng.normal(size=(3, 16, 16)) / 4, None, *kept), lay(rng.normal(size=(32, 16)), "x")

    def step(weights: Any, x: Any) -> Any:
        tanh = lib.numpy.tanh
        loss = lambda ws: (lib.lax.scan(lambda h, w: (h + tanh(h @ w), (h @ w).sum(0)), x, ws)[0] ** 2).mean()
        return weights - 0.1 * lib.grad(loss)(weights)

    return lib.jit(step, out_shardings=weights.sharding), (weights, x)


@pytest.mark.parametrize("kept", (("x",), (None, "x")))
def test_gradients_that_a_loop_stacks_are_scattered_in_it(kept: Any) -> None:
    def step(lib: types.ModuleType, mesh: Any) -> Any:
        f, args = fully_sharded(lib, mesh, kept=kept)
        return f(*args)

    with fuser.config.using(backend="reference"):
        agree(step, x=4)
        mesh = mesh_of(fuser, x=4)
        f, args = fully_sharded(fuser, mesh, kept=kept)
        found = [(m.name, m.times) for m in messages(f.lower(*args).graph, dict(mesh.shape))]
    assert ("psum_scatter", 3) in found and "psum" not in dict(found), found


def test_rows_that_lie_otherwise_are_moved_behind_the_loop() -> None:
    """What a loop stacks is preferred to lie as the result is wanted, and does not where devices lack their part of it."""
    x = np.random.default_rng(4).normal(size=(8, 8)).astype(np.float32)

    def turned(lib: types.ModuleType, mesh: Any) -> Any:
        sharding = lambda *spec: lib.NamedSharding(mesh, lib.P(*spec))
        stack = lambda a: lib.lax.scan(lambda c, _: (c * 0.5, lib.numpy.sin(c)), a, None, length=3)[1]
        out = lib.jit(stack, out_shardings=sharding(None, None, "x"))(lib.device_put(x, sharding("x")))
        assert out.sharding.spec == lib.P(None, None, "x")
        return out

    with fuser.config.using(backend="reference"):
        agree(turned, x=4)
