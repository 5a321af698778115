"""Reductions over devices of reductions over others are one; those over the same axes, in groups or read elsewhere stay."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from parallel_agreement import agree, mesh_of

import fuser
from fuser import NamedSharding, P
from fuser.parallel.traffic import messages

X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)


def both(lib: types.ModuleType, x: Any) -> Any:
    inner = lib.lax.psum(x, "x")
    return lib.lax.psum(inner, "y") + inner


PROGRAMS = {
    "sums": (lambda lib, x: lib.lax.psum(lib.lax.psum(x * 2, "x"), "y"), [("x", "y")]),
    "extremes": (lambda lib, x: lib.lax.pmin(lib.lax.pmin(x, "y"), ("z", "x")), [("x", "y", "z")]),
    "three": (lambda lib, x: lib.lax.psum(lib.lax.psum(lib.lax.psum(x, "z"), "x"), "y"), [("x", "y", "z")]),
    "the same axis again": (lambda lib, x: lib.lax.psum(lib.lax.psum(lib.lax.psum(x, "x"), "y"), "x"), [("x", "y"), ("x",)]),
    "another kind": (lambda lib, x: lib.lax.pmax(lib.lax.psum(x, "x"), "y"), [("x",), ("y",)]),
    "read elsewhere": (both, [("x",), ("y",)]),
    "in groups": (lambda lib, x: lib.lax.psum(lib.lax.psum(x, "x", axis_index_groups=[[0, 1]]), "y"), [("x",), ("y",)]),
    "in a loop": (lambda lib, x: lib.lax.fori_loop(0, 3, lambda _, v: lib.lax.psum(lib.lax.psum(v, "x"), "y") / 4, x), [("x", "y")]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_sums_of_sums_are_one(name: str) -> None:
    program, wanted = PROGRAMS[name]

    def mapped(lib: types.ModuleType, mesh: Any) -> Any:
        specs = {"in_specs": lib.P("x", "z"), "out_specs": lib.P(("x", "y"), "z")}
        return lib.jit(lib.shard_map(lambda x: program(lib, x), mesh=mesh, check_vma=False, **specs))(X)

    with fuser.config.using(backend="reference"):
        agree(mapped, x=2, y=2, z=2)
        mesh = mesh_of(fuser, x=2, y=2, z=2)
        specs = {"in_specs": P("x", "z"), "out_specs": P(("x", "y"), "z")}
        f = fuser.jit(fuser.shard_map(lambda x: program(fuser, x), mesh=mesh, check_vma=False, **specs))
        assert [m.axes for m in messages(f.lower(X).graph, dict(mesh.shape))] == wanted


def test_a_reduction_along_several_axes_meets_once() -> None:
    mesh = mesh_of(fuser, x=4, y=2)
    x = fuser.device_put(X[:, :4], NamedSharding(mesh, P("x", "y")))
    for f, exact in (
        (lambda v: (v * v).sum(), (X[:, :4].astype(np.float64) ** 2).sum()),
        (lambda v: v.max(), X[:, :4].max()),
    ):
        f = fuser.jit(f)
        assert [m.axes for m in messages(f.lower(x).graph, dict(mesh.shape))] == [("x", "y")]
        np.testing.assert_allclose(float(f(x)), exact, rtol=1e-6)


def test_a_sum_whose_parts_are_kept_comes_before_the_others() -> None:
    """What the scatter leaves to each device is a quarter of the product: the other sum is of that."""
    mesh = mesh_of(fuser, x=4, y=2)
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=(8, 8, 8)).astype(np.float32) for _ in range(2))
    given = [fuser.device_put(v, NamedSharding(mesh, P("x", "y"))) for v in (a, b)]
    product = lambda a, b: fuser.lax.dot_general(a, b, (((0, 1), (0, 1)), ((), ())))
    f = fuser.jit(product, out_shardings=NamedSharding(mesh, P("x")))
    found = [(m.name, m.axes, m.operand_bytes) for m in messages(f.lower(*given).graph, dict(mesh.shape))]
    assert found == [("psum_scatter", ("x",), 256), ("psum", ("y",), 64)]
    exact = np.einsum("ijk,ijl->kl", a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(np.asarray(f(*given)), exact, rtol=1e-5, atol=1e-5 * 64)
