"""jax.experimental.shard_map's function: `shard_map` with the arguments that older programs give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.parallel.shard_map import shard_map as _shard_map


def shard_map(
    f: Callable[..., Any],
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    check_rep: bool = True,
    auto: frozenset[Any] = frozenset(),
    **options: Any,
) -> Callable[..., Any]:
    """`fuser.shard_map` with its `check_vma` as `check_rep`, and over the axes of the mesh that are not `auto`."""
    named = set(mesh.axis_names) - auto
    given: dict[str, Any] = {"check_vma": check_rep, "axis_names": named} | options
    return _shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **given)
