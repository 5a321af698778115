"""`auto_axes` and `explicit_axes`: functions within which axes of the mesh in scope are of another type."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fuser.api.jitted import jit
from fuser.ops.sharding import sharding_constraint_p
from fuser.parallel.constraint import reshard
from fuser.parallel.mesh import AxisType, Mesh, mesh_in_scope, within
from fuser.parallel.sharding import NamedSharding, unchecked
from fuser.parallel.spec import PartitionSpec, names
from fuser.trace import tree
from fuser.trace.core import EVALUATION, current, type_of

FREE = PartitionSpec.UNCONSTRAINED


def auto_axes(f: Callable[..., Any] | None = None, /, *, axes: Any = None, out_sharding: Any = None) -> Any:
    """`f`, within which the compiler shards along `axes` of the mesh in scope (all of them if None) and types say nothing of them.

    Its results lie as `out_sharding` says, a tree prefix of shardings or PartitionSpecs; a call may give it instead.
    TypeError without one.
    """
    if f is None:
        return lambda function: auto_axes(function, axes=axes, out_sharding=out_sharding)
    return _retyped(f, axes, AxisType.Auto, "out_sharding", out_sharding)


def explicit_axes(f: Callable[..., Any] | None = None, /, *, axes: Any = None, in_sharding: Any = None) -> Any:
    """`f`, within which types say how values lie along `axes` of the mesh in scope (all of them if None).

    Its arguments lie as `in_sharding` says, a tree prefix of shardings or PartitionSpecs; a call may give it instead.
    ValueError without a mesh in scope, TypeError without `in_sharding`.
    """
    if f is None:
        return lambda function: explicit_axes(function, axes=axes, in_sharding=in_sharding)
    return _retyped(f, axes, AxisType.Explicit, "in_sharding", in_sharding)


def _retyped(f: Callable[..., Any], axes: Any, kind: AxisType, keyword: str, given: Any) -> Callable[..., Any]:
    run = _in_auto if kind is AxisType.Auto else _in_explicit

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        if given is None and keyword not in kwargs:
            raise TypeError(f"Missing required keyword argument: '{keyword}'")
        shardings = kwargs.pop(keyword) if given is None else given
        outer = _mesh(shardings)
        if outer is None:
            if kind is AxisType.Explicit:
                raise ValueError(
                    "Context mesh cannot be empty. Please use `set_mesh` to enter into a mesh context when using `explicit_axes`"
                )
            return f(*args, **kwargs)
        named = outer.axis_names if axes is None else axes if isinstance(axes, tuple) else (axes,)
        if kind is AxisType.Auto and set(outer.auto_axes) == set(named):
            return f(*args, **kwargs)
        inner = outer.update_axis_types(dict.fromkeys(named, kind))
        body = lambda *inputs: run(f, inputs, kwargs, outer, inner, shardings)
        return jit(body)(*args) if current() is EVALUATION else body(*args)

    return call


def _mesh(shardings: Any) -> Mesh | None:
    """The mesh in scope, or the one that shardings name."""
    named = [s.mesh for s in tree.leaves(shardings) if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh)]
    found = mesh_in_scope()
    if found is not None and named and named[0].shape_tuple != found.shape_tuple:
        raise ValueError(f"Context mesh {found} must match the mesh passed to shardings {named[0]}; use set_mesh")
    return found or (named[0] if named else None)


def _in_auto(f: Any, args: Any, kwargs: Any, outer: Mesh, inner: Mesh, shardings: Any) -> Any:
    with within(inner):
        result = f(*tree.map(lambda x: cast(x, inner), args), **kwargs)
    with within(outer):
        return reshard(result, shardings)


def _in_explicit(f: Any, args: Any, kwargs: Any, outer: Mesh, inner: Mesh, shardings: Any) -> Any:
    with within(inner):
        result = f(*reshard(args, _prefix(shardings, args)), **kwargs)
    with within(outer):
        return tree.map(lambda x: cast(x, outer), result)


def _prefix(shardings: Any, args: tuple[Any, ...]) -> Any:
    return shardings if isinstance(shardings, (tuple, list)) else (shardings,) * len(args)


def cast(x: Any, mesh: Mesh) -> Any:
    """The value as it lies, with the type that it has where these axes of the mesh are of type Explicit."""
    explicit = type_of(x).explicit
    rank = type_of(x).ndim
    entries = (None,) * rank if explicit is None else explicit.spec.partitions
    kept = [tuple(n for n in names(e) if n in mesh.explicit_axes) or FREE for e in entries]
    sets = (
        {}
        if explicit is None
        else {what: getattr(explicit.spec, what) & set(mesh.explicit_axes) for what in ("unreduced", "reduced")}
    )
    return sharding_constraint_p.bind(x, sharding=unchecked(mesh, PartitionSpec(*kept, **sets)))
