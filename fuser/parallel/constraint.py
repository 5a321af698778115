"""`with_sharding_constraint` and `reshard`: how a value is to be laid out, within a program and outside."""

from __future__ import annotations

from typing import Any

from fuser.ir.source import current_source
from fuser.lax.layouts import install_layout
from fuser.lax.values import as_value
from fuser.ops.sharding import sharding_constraint_p
from fuser.parallel.arrays import as_sharding, device_put, laid_out
from fuser.parallel.sharding import NamedSharding
from fuser.runtime.array import Array
from fuser.runtime.device import Device
from fuser.trace import tree
from fuser.trace.batch import manual_axes
from fuser.trace.core import type_of


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The tree `x`, laid out so: a tree prefix of NamedShardings, or of PartitionSpecs over the mesh in scope."""
    leaves, structure = tree.flatten(x)
    targets = tree.broadcast_prefix(shardings, x)
    return tree.unflatten(structure, [_laid(leaf, target) for leaf, target in zip(leaves, targets)])


reshard = with_sharding_constraint


def _placed(leaf: Any, target: Any) -> Any:
    """A result laid out as `out_sharding`, or put on the device, that its function was given."""
    return device_put(leaf, target) if isinstance(target, Device) else _laid(leaf, target)


install_layout(_placed)


def _laid(leaf: Any, target: Any) -> Any:
    value = as_value(leaf, "with_sharding_constraint")
    if target is None or manual_axes():  # each device has its part
        return value
    sharding = as_sharding(target, "with_sharding_constraint")
    if isinstance(value, Array):
        sharding.shard_shape(value.shape)
        return laid_out(value, sharding)
    if not isinstance(sharding, NamedSharding):
        raise ValueError(
            f"with_sharding_constraint of a traced value takes a NamedSharding or a PartitionSpec, got {sharding} ({current_source().short})"
        )
    sharding.shard_shape(type_of(value).shape)
    return sharding_constraint_p.bind(value, sharding=sharding)
