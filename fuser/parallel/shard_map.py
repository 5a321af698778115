"""`shard_map`: a function of one device's parts of arrays, made a function of whole arrays over a mesh."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.frames import hide
from fuser.ir.names import function_name
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.ops.shard_map import Layout, Spec, shard_map_p, whole
from fuser.ops.unreduced import preduced_p, vary_unreduced_cast_p
from fuser.parallel import run  # noqa: F401  (says how the primitive runs)
from fuser.parallel.arrays import relabelled
from fuser.parallel.eager_reader import EagerReader
from fuser.parallel.mesh import AbstractMesh, Mesh, mesh_in_scope, within
from fuser.parallel.sharding import NamedSharding, check_spec
from fuser.parallel.spec import PartitionSpec, names, split_axes
from fuser.runtime.array import Array
from fuser.runtime.shards import Shards
from fuser.trace import tree
from fuser.trace.batch import checked_axes, manual_axes
from fuser.trace.body import Body, staged_body
from fuser.trace.core import Tracer, current, trace_state_clean, type_of
from fuser.transforms.arguments import check_callable, leaf_values
from fuser.transforms.vmap import prefix


class _Infer:
    """In the place of in_specs: each argument as it is laid out."""

    def __repr__(self) -> str:
        return "Infer"


Infer = _Infer()


def shard_map(
    f: Callable[..., Any] | None = None,
    /,
    *,
    out_specs: Any,
    in_specs: Any = Infer,
    mesh: Mesh | AbstractMesh | None = None,
    axis_names: Iterable[Any] = frozenset(),
    check_vma: bool = True,
) -> Any:
    """`f`, a function of one device's parts of arrays, as a function of whole arrays over `mesh` (that in scope if None).

    `in_specs` and `out_specs` are tree prefixes of PartitionSpecs: the mesh axes that split each dimension of an argument,
    or along which a result's parts are put together. An argument whose spec leaves an axis out is the same for all devices
    along it; so must be such a result. With `check_vma` that is checked, and derivatives know what is the same for all
    (`fuser.lax.pvary`, the rule of psum); without, psum's transpose is psum. `axis_names` are the mesh axes that
    collectives in `f` may name, all if empty; along the others the compiler divides `f`.
    """
    if f is None:
        return functools.partial(
            shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names, check_vma=check_vma
        )
    check_callable(f, "shard_map")

    @functools.wraps(f)
    def mapped(*args: Any) -> Any:
        try:
            layout = _layout(mesh, axis_names, check_vma, args)
            return _mapped(f, args, in_specs, out_specs, layout)
        except Exception as error:
            raise hide(error)  # noqa: B904

    return mapped


def smap(
    f: Callable[..., Any] | None = None, /, *, in_axes: Any = Infer, out_axes: Any, axis_name: Any
) -> Callable[..., Any]:
    """`shard_map` over one axis of the mesh in scope: `in_axes` and `out_axes` are trees of the dimensions that it splits.

    None is for what is the same for all. TypeError for axes that are no integers, or several names.
    """
    if f is None:
        return functools.partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if isinstance(axis_name, (tuple, list)):
        raise TypeError(f"smap axis_name should be a `str` or a `Hashable`, but got {axis_name}")
    if in_axes is not Infer and not (in_axes is None or isinstance(in_axes, (int, tuple))):
        raise TypeError(
            "smap in_axes must be an int, None, jax.sharding.Infer, or a tuple of entries corresponding to the positional "
            f"arguments passed to the function, but got {in_axes}."
        )

    def spec(axis: Any) -> PartitionSpec:
        if axis is not None and not isinstance(axis, int):
            raise TypeError(f"smap takes integers and None as axes, got {axis!r}")
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, axis_name)

    specs = lambda axes: tree.map(spec, axes, is_leaf=lambda a: a is None)
    given = in_axes if in_axes is Infer else specs(in_axes)
    return shard_map(f, in_specs=given, out_specs=specs(out_axes), axis_names={axis_name})  # type: ignore[no-any-return]


def _layout(mesh: Any, axis_names: Iterable[Any], check_vma: bool, args: Any) -> Layout:
    found = mesh_in_scope() if mesh is None else mesh
    if isinstance(mesh, AbstractMesh):
        found = _of_arguments(mesh, args)
    if found is None or found.empty:
        raise ValueError(
            f"shard_map needs a mesh of devices, and none is in scope ({current_source().short}); "
            "give it mesh=..., or call it within `with fuser.set_mesh(mesh):`"
        )
    names = {axis_names} if isinstance(axis_names, str) else set(axis_names)
    for name in names:
        if name not in found.axis_names:
            raise ValueError(
                f"axis_names of shard_map has {name!r}, which is not in the mesh; its axes are {found.axis_names}"
            )
    free = set(found.axis_names) - manual_axes() or set(
        found.axis_names
    )  # an inner one takes what the outer one has left
    layout = Layout(found, tuple(n for n in found.axis_names if n in (names or free)), check_vma)
    if manual_axes():
        _check_within(layout)
    return layout


def _of_arguments(mesh: AbstractMesh, args: Any) -> Any:
    """A mesh with these axes that has devices: that in scope, or that of the arguments; `mesh` itself where those are traced."""
    scope, values = mesh_in_scope(), tree.leaves(args)
    if scope is not None and scope.shape_tuple == mesh.shape_tuple:
        return scope
    if any(isinstance(v, Tracer) for v in values):
        return mesh
    lying = [v._data.sharding for v in values if isinstance(v, Array) and isinstance(v._data, Shards)]
    meshes = [s.mesh for s in lying if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh)]
    if not meshes:
        raise ValueError(
            "Please pass `jax.Array`s with a `NamedSharding` as input to `shard_map` when passing `AbstractMesh` to the mesh argument. "
            f"No argument lies over {mesh} ({current_source().short}); lay one out with device_put, or give shard_map a Mesh"
        )
    for other in meshes:
        if other.shape_tuple != mesh.shape_tuple:
            raise ValueError(
                f"Mesh shape of the input {other.shape_tuple} does not match the mesh shape passed to shard_map {mesh.shape_tuple} "
                f"({current_source().short})"
            )
    return meshes[0]


def _check_within(layout: Layout) -> None:
    """ValueError unless a shard_map in the function of another goes over other axes of the same mesh."""
    outer = mesh_in_scope()
    inner = layout.mesh
    if (
        outer is None
        or outer.shape_tuple != inner.shape_tuple
        or (isinstance(inner, Mesh) and outer.flat != inner.flat)
    ):
        raise ValueError(
            f"a shard_map over {layout.mesh} stands within one over {outer}, another mesh ({current_source().short}); name the "
            "axes of both in one mesh, and give each its axis_names"
        )
    taken = [n for n in layout.manual_axes if n in manual_axes()]
    if taken:
        raise ValueError(
            f"a shard_map over the axes {layout.manual_axes} stands within one that has divided {', '.join(map(repr, taken))} "
            f"already ({current_source().short}); give it axis_names without what the outer one names"
        )


def _mapped(f: Callable[..., Any], args: tuple[Any, ...], in_specs: Any, out_specs: Any, layout: Layout) -> Any:
    name = function_name(f)
    leaves, structure = tree.flatten(args)
    specs = None if in_specs is Infer else _specs(in_specs, args, "in_specs", layout, name)
    opaque = {
        n: _Same(v)
        for n, (v, s) in enumerate(zip(leaves, specs or ()))
        if s is None and not isinstance(v, (Array, Tracer, np.ndarray, np.generic))
    }
    values = leaf_values([0 if n in opaque else v for n, v in enumerate(leaves)], f"the arguments of {name}")
    if specs is None:
        specs = _specs(_inferred(args, values, layout), args, "in_specs", layout, name)
    shown = lambda n: f"argument {tree.paths(args)[n].lstrip('[').split(']')[0]} of {name}"
    given = [
        _split(_some(s), type_of(v), functools.partial(shown, n), layout) for n, (s, v) in enumerate(zip(specs, values))
    ]
    for spec, value in zip(specs, values):
        _check_sets(_some(spec), type_of(value))
    avals = [layout.local(type_of(v), s) for v, s in zip(values, given)]
    convert = lambda results, result: leaf_values(results, f"the result of {name}")
    eager = trace_state_clean() and isinstance(layout.mesh, Mesh) and not any(isinstance(v, Tracer) for v in values)
    reader = EagerReader(values, tuple(given), layout) if eager else None

    def function(*inner: Any) -> Any:
        if reader is not None:
            reader.attach(current(), tree.leaves(inner))
        return _in_terms(f(*_with_opaque(inner, opaque)), out_specs)

    with within(layout.mesh), layout.scope():
        sums = tuple(s for s in tree.leaves(out_specs) if isinstance(s, PartitionSpec) and (s.unreduced or s.reduced))
        setting = layout, tuple(opaque.items()), sums
        kept = lambda: reader is None or not reader.used
        body = staged_body(function, structure, avals, convert, f, "shard_map", setting, kept)
    results = tree.unflatten(body.structure, body.out_avals)
    wanted = _specs(out_specs, results, "out_specs", layout, name)
    put = tuple(_joined(_some(s), n, body, layout) for n, s in enumerate(wanted))
    outs = shard_map_p.bind(
        *body.consts,
        *values,
        jaxpr=body.graph,
        in_specs=(*(whole(type_of(c).ndim) for c in body.consts), *given),
        out_specs=put,
        **layout._asdict(),
    )
    as_written = [_as_written(o, NamedSharding(layout.mesh, _some(s))) for o, s in zip(outs, wanted)]
    return tree.unflatten(body.structure, as_written)


def _as_written(result: Any, sharding: NamedSharding) -> Any:
    """A result that lies by the spec that was given, with that spec; along axes that are free, or in types, it may be split further."""
    lying = result._data.sharding if isinstance(result, Array) and isinstance(result._data, Shards) else sharding
    if not lying.is_equivalent_to(sharding, len(result.shape)):
        return result
    return relabelled(result, sharding)


def _some(spec: PartitionSpec | None) -> PartitionSpec:
    return PartitionSpec() if spec is None else spec


def _check_sets(spec: PartitionSpec, aval: ArrayType) -> None:
    """ValueError unless a spec says the same of sums that are not completed as the argument's type."""
    own = aval.explicit
    for what in ("unreduced", "reduced"):
        found = frozenset() if own is None else getattr(own.spec, what)
        if getattr(spec, what) != found:
            raise ValueError(
                f"in_specs passed to shard_map: {spec} does not match the specs of the input: in_specs containing {what} should be equal to the "
                f"{what} present on the in_aval {aval}, which is {set(found) or 'none'} ({current_source().short}); reshard the argument, "
                "change the spec, or leave in_specs out"
            )


def _in_terms(result: Any, out_specs: Any) -> Any:
    """A function's result of which what differs from device to device is a term of a sum, where its spec says so.

    Without types that say so themselves, what is to be reduced is taken so too.
    """
    leaves, structure = tree.flatten(result)
    try:
        wanted = prefix(out_specs, result, "out_specs")
    except (ValueError, TypeError):
        return result  # the error follows where all specs are read

    def one(value: Any, spec: Any) -> Any:
        if not isinstance(spec, PartitionSpec) or not (spec.unreduced or spec.reduced):
            return value
        mat = type_of(value).mat
        terms, same = spec.unreduced - mat.unreduced, spec.reduced - mat.reduced
        if terms <= mat.varying or not checked_axes():
            value = _over(vary_unreduced_cast_p, value, terms)
        return value if checked_axes() else _over(preduced_p, value, same)

    return tree.unflatten(structure, [one(v, s) for v, s in zip(leaves, wanted)])


def _over(primitive: Any, value: Any, axes: frozenset[Any]) -> Any:
    return primitive.bind(value, axes=tuple(sorted(axes, key=str))) if axes else value


class _Same:
    """An argument that is no array and goes to the function as it is: known by what it is, not by its value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _with_opaque(args: tuple[Any, ...], opaque: dict[int, _Same]) -> Any:
    """The arguments with those that are no arrays in their places."""
    leaves, structure = tree.flatten(args)
    return tree.unflatten(structure, [opaque[n].value if n in opaque else v for n, v in enumerate(leaves)])


def _inferred(args: Any, values: Any, layout: Layout) -> Any:
    """The specs by which the arguments are laid out already."""
    found = []
    for value in values:
        explicit = type_of(value).explicit
        if not isinstance(value, Array) or explicit is not None:
            if not layout.mesh.explicit_axes:
                raise TypeError(
                    f"shard_map in_specs argument was not specified: smap or shard_map in_axes was not specified, and no types say how "
                    f"a {type_of(value)} lies: the mesh has axes of type Auto ({current_source().short}); give it in_specs"
                )
            entries = () if explicit is None else explicit.spec.partitions
            kept = (tuple(n for n in names(e) if n in layout.manual_axes) or None for e in entries)
            sets = {} if explicit is None else {w: getattr(explicit.spec, w) for w in ("unreduced", "reduced")}
            found.append(PartitionSpec(*kept, **sets))
            continue
        data = value._present()
        if not isinstance(data, Shards):
            raise TypeError(
                "shard_map in_specs argument was not specified: smap or shard_map in_axes was not specified, and an array of type "
                f"{type_of(value)} does not lie over the mesh ({current_source().short}); give it in_specs"
            )
        placed = data.sharding if isinstance(data, Shards) else None
        own = isinstance(placed, NamedSharding) and placed.mesh == layout.mesh
        found.append(placed.spec if own and placed is not None else PartitionSpec())
    return tuple(tree.unflatten(tree.structure(args), found))


def _specs(specs: Any, full: Any, what: str, layout: Layout, name: str) -> list[PartitionSpec | None]:
    """One spec for each leaf of `full`, None where that is said; ValueError where `specs` is no tree prefix of it, TypeError for
    what is no spec."""
    specs = tuple(specs) if what == "in_specs" and isinstance(specs, list) else specs
    try:
        found = prefix(specs, full, what)
    except ValueError as error:
        raise ValueError(
            f"shard_map applied to the function '{name}' needs {what} to be a tree prefix of what it describes, got {specs!r} for "
            f"{tree.structure(full)}: {error} ({current_source().short})"
        ) from None
    for spec in found:
        if spec is None:
            continue
        if not isinstance(spec, PartitionSpec):
            raise TypeError(
                f"shard_map takes PartitionSpecs in {what}, got {spec!r} ({current_source().short}); P() is what all devices share"
            )
        check_spec(layout.mesh, spec)
        if (spec.unreduced or spec.reduced) and set(layout.manual_axes) != set(layout.mesh.axis_names):
            raise UnsupportedError(
                f"unreduced/reduced can only be passed to {what} when shard_map is in full manual mode: {spec} stands beside axes of "
                f"the mesh that axis_names leaves out ({current_source().short}); name all axes"
            )
        for axis in (n for axes in split_axes(spec, len(spec)) for n in axes):
            if axis not in layout.manual_axes:
                raise ValueError(
                    f"{what} refers to {axis!r}: {what} of shard_map has {spec}, and that is not among axis_names "
                    f"{layout.manual_axes}"
                )
    return found


def _split(spec: PartitionSpec, aval: ArrayType, shown: Callable[[], str], layout: Layout) -> Spec:
    """The axes by which an argument's dimensions are split; ValueError where that does not fit."""
    if len(spec) > aval.ndim:
        raise ValueError(
            f"shard_map applied to the function '{shown().split(' of ')[-1]}' got {spec} in in_specs for {shown()}, which is {aval}: "
            f"{len(spec)} entries for {aval.ndim} dimensions "
            f"({current_source().short})"
        )
    axes = split_axes(spec, aval.ndim)
    for dimension, (size, axes_of) in enumerate(zip(aval.shape, axes)):
        if size % layout.extent(axes_of):
            raise ValueError(
                f"shard_map got {spec} in in_specs for {shown()}, which is {aval}: dimension {dimension} of extent {size} is "
                f"split over {', '.join(map(repr, axes_of))}, {layout.extent(axes_of)} devices, which do not divide it; pad it, or "
                f"split another ({current_source().short})"
            )
    return axes


def _joined(spec: PartitionSpec, number: int, body: Body, layout: Layout) -> Spec:
    """The axes along which a result's parts are put together; ValueError where that does not fit."""
    aval = body.out_avals[number]
    path = (body.paths or [""] * (number + 1))[number]
    shown = f"the result{f' at {path}' if path else ''} of {body.name}, {aval} on each device,"
    if len(spec) > aval.ndim:
        raise ValueError(
            f"shard_map got {spec} in out_specs for {shown} which has {aval.ndim} dimensions ({current_source().short})"
        )
    axes = split_axes(spec, aval.ndim)
    for what in ("unreduced", "reduced"):
        own = getattr(aval.mat, what)
        if getattr(spec, what) != own:
            raise ValueError(
                f"out_specs passed to shard_map should be equal to the {what} present on the out_aval. Got out_specs={spec} for {shown} "
                f"which is {what} along {', '.join(map(repr, own)) or 'no axis'} ({current_source().short})"
            )
    left = (aval.vma & set(layout.manual_axes)) - {n for names in axes for n in names}
    if left:
        names = ", ".join(repr(n) for n in layout.manual_axes if n in left)
        raise ValueError(
            f"shard_map applied to the function '{body.name}' was given out_specs which require replication which can't be "
            f"statically inferred given the mesh: it got {spec} in out_specs for {shown} which differs from device to device along {names}; name the axis in "
            f"out_specs, make the values the same for all with psum, pmax or the like, or, where you know that they are, give "
            f"shard_map check_vma=False ({current_source().short})"
        )
    return axes
