"""`with_sharding_constraint` and `reshard`: how a value is to be laid out, within a program and outside."""

from __future__ import annotations

from typing import Any

from fuser.ir.source import current_source
from fuser.lax.layouts import install_layout
from fuser.lax.values import as_value
from fuser.ops.sharding import sharding_constraint_p
from fuser.parallel import explicit  # noqa: F401  (says what types know of layouts)
from fuser.parallel.arrays import as_sharding, device_put, laid_out
from fuser.parallel.mesh import Mesh, mesh_in_scope
from fuser.parallel.sharding import NamedSharding, Sharding
from fuser.parallel.spec import PartitionSpec
from fuser.runtime.array import Array
from fuser.runtime.device import Device
from fuser.runtime.shards import Shards
from fuser.trace import tree
from fuser.trace.batch import manual_axes
from fuser.trace.core import type_of
from fuser.trace.tangent import as_array


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The tree `x`, laid out so: a tree prefix of NamedShardings, or of PartitionSpecs over the mesh in scope.

    Along axes of type Explicit this computes nothing: AssertionError where the type says that a value lies otherwise.
    """
    return _each(x, shardings, _constrained)


def reshard(x: Any, out_shardings: Any) -> Any:
    """The tree `x`, laid out so: a tree prefix of NamedShardings, or of PartitionSpecs over the mesh in scope.

    The result's types say so along axes of type Explicit. With `P(unreduced=...)` a value becomes, or stays, a sum of which
    each device along those axes has a term; from such a one, sums are completed.
    """
    return _each(x, out_shardings, _resharded)


def _each(x: Any, shardings: Any, lay: Any) -> Any:
    leaves, structure = tree.flatten(x)
    targets = tree.broadcast_prefix(shardings, x)
    return tree.unflatten(structure, [lay(leaf, target) for leaf, target in zip(leaves, targets)])


def _placed(leaf: Any, target: Any) -> Any:
    """A result laid out as `out_sharding`, or put on the device, that its function was given."""
    return device_put(leaf, target) if isinstance(target, Device) else _resharded(leaf, target)


install_layout(_placed)


def _constrained(leaf: Any, target: Any) -> Any:
    value = as_value(leaf, "with_sharding_constraint")
    if target is None or manual_axes():  # each device has its part
        return value
    sharding = as_sharding(target, "with_sharding_constraint")
    if isinstance(sharding, NamedSharding) and sharding.mesh.are_all_axes_explicit and not sharding.mesh.empty:
        rank = type_of(value).ndim
        found, wanted = type_of(value).sharding.spec, sharding.in_type(rank).spec  # type: ignore[union-attr]
        if found != wanted:
            raise AssertionError(
                "`with_sharding_constraint` acts as an assert when all axes of mesh are of type `Explicit`. The array sharding: "
                f"{found} did not match the sharding provided: {wanted}. Please use `reshard` to reshard your input to the sharding "
                f"you want ({current_source().short})"
            )
        return value
    return _laid(value, sharding, "with_sharding_constraint")


def _resharded(leaf: Any, target: Any) -> Any:
    value = as_value(leaf, "reshard")
    if target is None or manual_axes():
        return value
    sharding = as_sharding(target, "reshard")
    if isinstance(sharding, NamedSharding):
        missing = type_of(value).ndim - len(sharding.spec)
        sharding = sharding.with_entries((*sharding.spec.partitions, *[None] * missing))
    return _laid(value, sharding, "reshard")


def _laid(value: Any, sharding: Sharding, function: str) -> Any:
    sharding.shard_shape(type_of(value).shape)
    if isinstance(value, Array):
        return laid_out(value, sharding)
    if not isinstance(sharding, NamedSharding):
        raise ValueError(
            f"{function} of a traced value takes a NamedSharding or a PartitionSpec, got {sharding} ({current_source().short})"
        )
    return sharding_constraint_p.bind(value, sharding=sharding)


def _run(x: Any, sharding: Any) -> Any:
    """Outside of programs: the array, laid out so; along dimensions that are free, as it lies."""
    x = as_array(x)
    mesh = None if sharding is None else _concrete(sharding.mesh, x)
    if mesh is None:
        return x
    own = x._data.sharding if isinstance(x._data, Shards) else None
    same = isinstance(own, NamedSharding) and own.mesh.shape_tuple == mesh.shape_tuple
    lying = own.spec.partitions if same and own is not None else ()
    free = PartitionSpec.UNCONSTRAINED
    entries = [
        (lying[n] if n < len(lying) else None) if e is free else e for n, e in enumerate(sharding.spec.partitions)
    ]
    return laid_out(x, NamedSharding(mesh, sharding.spec.update(entries)))


def _concrete(mesh: Any, x: Array) -> Mesh | None:
    """The devices of a mesh: its own, or those of the array or the mesh in scope with these axes."""
    if isinstance(mesh, Mesh):
        return mesh
    own = x._data.sharding.mesh if isinstance(x._data, Shards) and isinstance(x._data.sharding, NamedSharding) else None
    for found in (own, mesh_in_scope()):
        if found is not None and found.shape_tuple == mesh.shape_tuple:
            return found  # type: ignore[no-any-return]
    return None


sharding_constraint_p.run = _run
