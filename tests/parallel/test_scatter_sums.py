"""Sums of which each device keeps a part are reduce-scatters; those of which it keeps another part, or more, stay sums."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from parallel_agreement import agree, mesh_of

import fuser
from fuser import P

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
