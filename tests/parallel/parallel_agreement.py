"""Programs over a mesh of devices, compared with JAX's results."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import fuser

Program = Callable[[types.ModuleType, Any], Any]


def mesh_of(lib: types.ModuleType, **axes: int) -> Any:
    """A mesh of these axes, of the kind that leaves shardings to the compiler."""
    kind = lib.sharding.AxisType.Auto
    return lib.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(kind,) * len(axes))


def agree(program: Program, tolerance: float = 1e-5, **axes: int) -> Any:
    """fuser's results of `program(library, mesh)`, which are JAX's: values, shapes, dtypes and who holds what."""
    axes = axes or {"x": 4, "y": 2}
    found, wanted = program(fuser, mesh_of(fuser, **axes)), program(jax, mesh_of(jax, **axes))
    leaves = jax.tree_util.tree_leaves_with_path(wanted)
    own = fuser.tree.leaves(found)
    assert len(own) == len(leaves), (jax.tree.structure(wanted), fuser.tree.structure(found))
    for a, (path, b) in zip(own, leaves):
        where = jax.tree_util.keystr(path)
        a = a if hasattr(a, "dtype") else np.asarray(a)
        assert (a.shape, a.dtype) == (np.shape(b), np.asarray(b).dtype), where
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance, err_msg=where)
    return found
