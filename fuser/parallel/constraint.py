"""`with_sharding_constraint` and `reshard`: how a value is to be laid out, within a program and outside."""

from __future__ import annotations

from typing import Any

from fuser.api.placement import Said, constrain
from fuser.errors import ShardingTypeError, UnsupportedError
from fuser.ir.source import current_source, through
from fuser.lax.layouts import _laid_over, install_layout
from fuser.lax.values import as_value
from fuser.ops.sharding import sharding_constraint_p
from fuser.parallel import explicit  # noqa: F401  (says what types know of layouts)
from fuser.parallel.arrays import as_sharding, device_put, laid_out
from fuser.parallel.mesh import Mesh, get_abstract_mesh, mesh_in_scope, mesh_to_follow
from fuser.parallel.sharding import NamedSharding, Sharding, SingleDeviceSharding, unchecked
from fuser.parallel.spec import PartitionSpec, names
from fuser.runtime.array import Array
from fuser.runtime.device import own_cpu
from fuser.runtime.shards import Shards
from fuser.trace import tree
from fuser.trace.batch import batch_axes, manual_axes
from fuser.trace.core import Tracer, type_of
from fuser.trace.tangent import as_array


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The tree `x`, laid out so: a tree prefix of NamedShardings, or of PartitionSpecs over the mesh in scope.

    Along axes of type Explicit this computes nothing: AssertionError where the type says that a value lies otherwise.
    """
    return _each(x, shardings, _constrained)


def reshard(xs: Any, out_shardings: Any) -> Any:
    """The tree `xs`, laid out so: a tree prefix of NamedShardings, or of PartitionSpecs over the mesh in scope.

    The result's types say so along axes of type Explicit. With `P(unreduced=...)` a value becomes, or stays, a sum of which
    each device along those axes has a term; from such a one, sums are completed.
    """
    return _each(xs, out_shardings, _resharded)


def _each(x: Any, shardings: Any, lay: Any) -> Any:
    leaves, structure = tree.flatten(x)
    targets = tree.broadcast_prefix(shardings, x)
    return tree.unflatten(structure, [lay(leaf, target) for leaf, target in zip(leaves, targets)])


def _placed(leaf: Any, target: Any, function: str) -> Any:
    """A result laid out as `out_sharding`, or put on the device, that its function was given."""
    if function == "device":
        return _on_device(leaf, target)
    if (
        isinstance(target, NamedSharding) and target.mesh.empty
    ):  # the sharding in the type of a value that no mesh divides
        return leaf
    _check_sum(target, function)
    if isinstance(leaf, Tracer):
        _check_explicit(target, function)
    return _resharded(leaf, target)


def _on_device(leaf: Any, target: Any) -> Any:
    """A result put where the argument `device` says; ValueError for what was put on other devices before."""
    if isinstance(leaf, Tracer):
        return with_sharding_constraint(leaf, target) if isinstance(target, (NamedSharding, PartitionSpec)) else leaf
    own, wanted = leaf._data.sharding if leaf.committed else None, as_sharding(target, "device")  # type: ignore[attr-defined]
    if own is not None and own.device_set != wanted.device_set:
        raise ValueError(
            f"Received incompatible devices for jitted computation. Got an array on device ids {[d.id for d in own.devices]} and device= with "
            f"device ids {[d.id for d in wanted.devices]} ({current_source().short}); device_put moves arrays"
        )
    return device_put(leaf, target)


def _check_sum(target: Any, function: str) -> None:
    """An error where a function's result cannot be laid out so: as terms of what is no sum, or in parts that it does not have."""
    spec = getattr(target, "spec", target)
    unreduced = getattr(spec, "unreduced", ())
    if unreduced and function in _NO_SUMS:
        raise UnsupportedError(
            f"unreduced rule for {function} is not implemented: its result is no sum, and {target} wants the terms of one "
            f"({current_source().short})"
        )
    if function == "bincount" and any(e is not None for e in getattr(spec, "partitions", ())):
        raise ShardingTypeError(
            f"out_sharding of bincount can only be fully replicated or fully unreduced along all mesh axes, got {target} "
            f"({current_source().short}); reshard the result"
        )


_NO_SUMS = ("segment_prod", "segment_max", "segment_min")


def _check_explicit(target: Any, function: str) -> None:
    """ValueError for an `out_sharding` along axes that are the compiler's."""
    mesh: Any = mesh_in_scope() or getattr(target, "mesh", None)
    entries = getattr(getattr(target, "spec", target), "partitions", ())
    for name in (n for e in entries for n in names(e)) if mesh is not None else ():
        if name in mesh.auto_axes and name not in manual_axes():
            raise ValueError(
                f"PartitionSpec passed to {function} cannot contain axis names that are of type Auto or Manual. Got {target} with axis name "
                f"{name!r} of type Auto ({current_source().short}); use lax.with_sharding_constraint, or an axis of type Explicit"
            )


install_layout(_placed)


def _over_devices(sharding: Any) -> Any:
    """A NamedSharding over devices: its own, or those of the mesh in scope with these axes; None where there are none."""
    if not isinstance(sharding, NamedSharding) or isinstance(sharding.mesh, Mesh):
        return sharding
    mesh = mesh_in_scope()
    return (
        NamedSharding(mesh, sharding.spec)
        if mesh is not None and mesh.shape_tuple == sharding.mesh.shape_tuple
        else None
    )


_laid_over[:] = [_over_devices]


def _constrained(leaf: Any, target: Any, padding: bool = True) -> Any:
    value = as_value(leaf, "with_sharding_constraint")
    if target is None:
        return value
    if manual_axes():
        return _part_constrained(value, target, padding)
    sharding = as_sharding(target, "with_sharding_constraint")
    if isinstance(value, Tracer) and isinstance(target, PartitionSpec) and mesh_to_follow() is not None:
        sharding = NamedSharding(sharding.mesh.abstract_mesh, target)  # type: ignore[attr-defined]
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
    return _laid(value, sharding, "with_sharding_constraint", padding)


def _part_constrained(value: Any, target: Any, padding: bool) -> Any:
    """A device's part of a value in a shard_map, laid out along the Auto axes that this leaves free."""
    spec = getattr(target, "spec", target)
    named = [n for e in getattr(spec, "partitions", ()) for n in names(e) if n in manual_axes()]
    if named:
        raise ValueError(
            f"with_sharding_constraint got {spec}, which names the manual axes {', '.join(map(repr, named))} of the shard_map that it "
            f"stands in ({current_source().short}); leave them out"
        )
    mesh = mesh_in_scope()
    if not isinstance(spec, PartitionSpec) or mesh is None or not set(manual_axes()) < set(mesh.axis_names):
        return value
    own = mesh if isinstance(target, PartitionSpec) else target.mesh
    if mesh.explicit_axes or own.shape_tuple != mesh.shape_tuple:
        return value
    return _laid(value, NamedSharding(mesh, spec), "with_sharding_constraint", padding)


def _resharded(leaf: Any, target: Any) -> Any:
    value = as_value(leaf, "reshard")
    if target is None:
        return value
    if manual_axes():
        return _within(value, target)
    sharding = as_sharding(target, "reshard")
    if isinstance(sharding, NamedSharding):
        rank, entries = type_of(value).ndim, sharding.spec.partitions
        if all(e is None for e in entries[rank:]):
            entries = entries[:rank]
        sharding = sharding.with_entries((*entries, *[None] * (rank - len(entries))))
    return _laid(value, sharding, "reshard")


def _within(value: Any, target: Any) -> Any:
    """A part of a value in a shard_map: types say how it lies along the axes that are left; every device has all of it."""
    spec, mesh = as_sharding(target, "reshard").spec, get_abstract_mesh()  # type: ignore[attr-defined]
    named = [n for n in (*(n for e in spec.partitions for n in names(e)), *spec.unreduced) if n in manual_axes()]
    if named:
        raise ValueError(
            f"reshard got {spec}, which names the manual axes {', '.join(map(repr, named))} of the shard_map that it stands in "
            f"({current_source().short}); a collective changes how values lie along them"
        )
    if not mesh.explicit_axes:
        return value
    own = type_of(value).explicit
    sets = {} if own is None else {"unreduced": own.spec.unreduced, "reduced": own.spec.reduced}
    entries = (*spec.partitions, *[None] * (type_of(value).ndim - len(spec)))
    return sharding_constraint_p.bind(value, sharding=unchecked(mesh, PartitionSpec(*entries, **sets)))


def _laid(value: Any, sharding: Sharding, function: str, padding: bool = False) -> Any:
    """The value laid out so; with `padding`, of a traced one, also along dimensions that the devices do not divide."""
    if isinstance(sharding, NamedSharding) and sharding.mesh.empty:
        raise ValueError(
            f"{function} needs a sharding over a mesh with axes, got {sharding}, whose mesh is empty ({current_source().short}); leave the "
            "call out, or give a NamedSharding over a Mesh"
        )
    try:
        if isinstance(value, Tracer) and isinstance(sharding, NamedSharding) and padding:
            sharding.check_compatible_aval(type_of(value).shape)
        else:
            sharding.shard_shape(type_of(value).shape)
    except ValueError as error:
        raise ValueError(f"One of {function} arguments was given a sharding that does not fit: {error}") from None
    if isinstance(value, Array):
        return laid_out(
            value, _over_devices(sharding) or sharding
        )  # an AbstractMesh is the mesh in scope, where that fits
    if not isinstance(sharding, NamedSharding) and batch_axes():
        raise ValueError(
            "If you are using spmd_axis_name parameter of jax.vmap, please make sure to run your jitted function inside the mesh context "
            f"manager, so that a PartitionSpec will do. Got {sharding} ({current_source().short})"
        )
    if isinstance(sharding, SingleDeviceSharding) and sharding.devices[0] == own_cpu():
        return value
    if not isinstance(sharding, NamedSharding):
        raise ValueError(
            f"{function} of a traced value takes a NamedSharding or a PartitionSpec, got {sharding} ({current_source().short})"
        )
    return sharding_constraint_p.bind(value, sharding=sharding)


INNER_JIT = "jit"  # what constraints came through that a jitted function within a program is told


def _of_inner_jit(value: Any, target: Any, what: str) -> Any:
    """An argument or a result of a jitted function within another program, as its `in_shardings` or `out_shardings` say.

    ValueError where a type says that an argument lies otherwise. One device says nothing: the program around decides where it runs.
    """
    sharding = as_sharding(PartitionSpec() if target is Said.WHOLE else target, "pjit", what)
    if isinstance(sharding, SingleDeviceSharding):
        return value
    found = type_of(value).explicit
    if manual_axes() or found is None or not found.mesh.are_all_axes_explicit:
        with through(INNER_JIT):
            return _constrained(value, sharding, padding=False)
    wanted = sharding.in_type(type_of(value).ndim)
    if what == "in_shardings" and wanted is not None and found.spec != wanted.spec:
        raise ValueError(
            f"Sharding passed to jit does not match the sharding on the respective arg. Got jit sharding: {wanted}, arg sharding: {found} "
            f"({current_source().short}); reshard it, or leave it free in in_shardings"
        )
    return _resharded(value, sharding)


constrain[:] = [_of_inner_jit]


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
