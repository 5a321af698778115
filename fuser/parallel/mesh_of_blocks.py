"""A mesh over several processes whose functions take and give each process's own blocks of arrays, as pmap's do.

Types and rules see the blocks, so that derivatives and vmap are those of any shard_map; collectives are over all devices. Only where
it runs are the blocks put together, which all processes do at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuser.ops.shard_map import Specs
from fuser.parallel.mesh import Mesh
from fuser.parallel.multihost import global_array_to_host_local_array, host_local_array_to_global_array
from fuser.parallel.spec import spec_of
from fuser.runtime.array import Array


class MeshOfBlocks(Mesh):
    """The same devices; equal to no other kind of mesh."""

    @functools.cached_property
    def split_shape(self) -> Mapping[Any, int]:  # type: ignore[override]
        """Along each axis, how many of the devices are this process's."""
        return self.local_mesh.shape

    @functools.cached_property
    def whole(self) -> Mesh:
        """The mesh of whole arrays."""
        return Mesh(self.devices, self.axis_names, self.axis_types)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MeshOfBlocks) and super().__eq__(other)

    def __hash__(self) -> int:
        return hash((MeshOfBlocks, self._hash))


def on_blocks(
    mesh: MeshOfBlocks,
    run: Callable[[Mesh, Sequence[Array]], Sequence[Array]],
    blocks: Sequence[Array],
    in_specs: Specs,
    out_specs: Specs,
) -> list[Array]:
    """The blocks of the results of `run` on whole arrays, of which `blocks` are those here."""
    own = [spec_of(s) for s in in_specs]
    whole = [host_local_array_to_global_array(b, mesh.whole, s) for b, s in zip(blocks, own, strict=True)]
    results = run(mesh.whole, whole)
    return [
        global_array_to_host_local_array(r, mesh.whole, spec_of(s)) for r, s in zip(results, out_specs, strict=True)
    ]
