"""Collectives over named axes, under jax.lax's names: sums, gathers and exchanges between the lanes of a `vmap`, or devices.

`axis_name` is the name given to `vmap(..., axis_name=...)` or `pmap`, or that of an axis of the mesh of a `shard_map`, or
a tuple of names; NameError where none is in scope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.ir.names import described
from fuser.ir.primitive import Primitive
from fuser.ir.source import current_source
from fuser.lax.movement import reshape, transpose
from fuser.lax.values import as_value, axis_of, python_scalar
from fuser.ops import collective as C
from fuser.ops import unreduced as U
from fuser.ops.elementwise import convert_element_type_p
from fuser.trace import tree
from fuser.trace.batch import axis_names, checked_axes, manual_axes, named_axes
from fuser.trace.core import infer, type_of


def _names(axis_name: Any, function: str) -> tuple[Any, ...]:
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    known = named_axes()
    for name in names:
        if name not in known:
            found, shown = ", ".join(map(described, known)) or "none", described(name)
            raise NameError(
                f"Found an unbound axis name: {name}. To fix this, please call {function} under `jax.shard_map`: "
                f"{function}: no axis is named {shown} here; the axes in scope are {found}; "
                f"call it under vmap(..., axis_name={shown}), pmap(..., axis_name={shown}) or a shard_map over a mesh with it "
                f"({current_source().short})"
            )
    return names


def _groups(axis_index_groups: Any, names: Sequence[Any], function: str) -> tuple[tuple[int, ...], ...] | None:
    """The groups as tuples; UnsupportedError for lanes of a vmap, ValueError where they do not divide the axis."""
    if axis_index_groups is None:
        return None
    if not set(names) <= manual_axes():
        raise UnsupportedError(
            f"{function} over groups of a vmapped axis is not supported; nest two vmaps and name the inner axis ({current_source().short})"
        )
    if set(names) & checked_axes() and function in ("psum", "pmax", "pmin"):
        raise UnsupportedError(
            f"{function} over groups of an axis is not supported where shard_map checks along which axes values vary; give "
            f"shard_map check_vma=False, or make a mesh with two axes in the place of this one ({current_source().short})"
        )
    groups = tuple(tuple(map(int, g)) for g in axis_index_groups)
    size = math.prod(named_axes()[n] for n in names)
    if sorted(i for g in groups for i in g) != list(range(size)):
        raise ValueError(
            f"{function} needs axis_index_groups that hold each index below {size} once, got {groups} ({current_source().short})"
        )
    return groups


def _equal(groups: tuple[tuple[int, ...], ...] | None, size: int, function: str) -> int:
    """The size of a group, or that of the axis where there are none."""
    sizes = {len(g) for g in groups} if groups else {size}
    if len(sizes) > 1:
        raise ValueError(f"{function} needs axis_index_groups of one size, got {groups} ({current_source().short})")
    return sizes.pop()


def axis_size(axis_name: Any) -> int:
    """The number of lanes along the axis, a Python int."""
    return math.prod(named_axes()[n] for n in _names(axis_name, "axis_size"))


def axis_index(axis_name: Any) -> Any:
    """This lane's position along the axis, an int32 scalar; for a tuple of names, in row-major order."""
    names = _names(axis_name, "axis_index")
    if set(names) <= manual_axes():
        return C.axis_index_p.bind(axis_name=names)
    result: Any = None
    for name in names:
        index = C.axis_index_p.bind(axis_name=name)
        result = index if result is None else result * np.int32(named_axes()[name]) + index
    return result


def _together(names: tuple[Any, ...]) -> list[Any]:
    """The names, those of mesh axes in one tuple, as devices meet once for all of them; lanes are reduced name by name."""
    mesh = tuple(n for n in names if n in manual_axes())
    return [*([mesh] if mesh else []), *(n for n in names if n not in mesh)]


def _reduced(function: str, primitive: Primitive, x: Any, axis_name: Any, groups: Any) -> Any:
    names = _names(axis_name, function)
    divided = _groups(groups, names, function)
    params = {} if divided is None else {"axis_index_groups": divided}

    def on_leaf(leaf: Any) -> Any:
        if python_scalar(leaf):
            leaf = int(leaf) if isinstance(leaf, bool) else leaf
            if divided is not None and primitive is C.psum_p:
                return leaf * _equal(divided, 0, function)
            return leaf * axis_size(names) if primitive is C.psum_p else leaf
        value = as_value(leaf, function)
        if value.dtype == bool and primitive is C.psum_p:
            value = convert_element_type_p.bind(value, new_dtype=np.dtype("int32"), weak_type=False)
        for name in _together(names):
            own = _sum_of(value, name) if primitive is C.psum_p else primitive
            value = value if own is U.unreduced_psum_p else _own(value, name if isinstance(name, tuple) else ())
            value = own.bind(value, axes=name, **params)
        return value

    return tree.map(on_leaf, x)


def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The sum of `x` (a tree) over the axis; of a Python number, the number times the axis size, a Python number."""
    return _reduced("psum", C.psum_p, x, axis_name, axis_index_groups)


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The mean over the axis."""
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    size = psum(1, axis_name, axis_index_groups=axis_index_groups)
    return tree.map(lambda leaf: leaf / size, total)


def pmax(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The maximum over the axis; its tangent is the mean of the tangents of the lanes that hold it."""
    return _reduced("pmax", C.pmax_p, x, axis_name, axis_index_groups)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The minimum over the axis; see `pmax`."""
    return _reduced("pmin", C.pmin_p, x, axis_name, axis_index_groups)


def pvary(x: Any, axis_name: Any) -> Any:
    """`x` (a tree), taken as each device's own along the axes of a mesh; its cotangent is the sum of theirs."""
    names = tuple(n for n in _names(axis_name, "pvary") if n in checked_axes())

    def on_leaf(leaf: Any) -> Any:
        value = as_value(leaf, "pvary")
        missing = tuple(n for n in names if n not in type_of(value).vma)
        reduced = tuple(n for n in missing if n in type_of(value).mat.reduced)
        if reduced:
            value = U.reduced_vary_cast_p.bind(value, axes=reduced)
        missing = tuple(n for n in missing if n not in reduced)
        return C.pvary_p.bind(value, axes=missing) if missing else value

    return tree.map(on_leaf, x)


def pcast(x: Any, axis_name: Any, *, to: str) -> Any:
    """`x` (a tree) with another type along axes of a mesh, for which no device moves anything.

    To "varying" from the same for all (`pvary`) or reduced, to "reduced" from the same for all, to "unreduced" from varying:
    each device's value is a term of the sum then. ValueError for other changes; psum and all_gather make those.
    """
    names = _names(axis_name, "pcast")
    if to not in ("varying", "reduced", "unreduced"):
        raise ValueError(
            f"Got unexpected `to` value. Allowed `to` values are: varying, reduced and unreduced; pcast got {to!r} ({current_source().short})"
        )
    axes = tuple(n for n in names if n in checked_axes())

    def on_leaf(leaf: Any) -> Any:
        value = as_value(leaf, "pcast")
        own = kind_along(value, axes, "jax.lax.pcast")
        if not axes or (own, to) == ("varying", "varying"):
            return value
        if (own, to) not in _CASTS:
            raise ValueError(
                f"Unsupported pcast from={own}, to={to!r} of {type_of(value)} along {', '.join(map(repr, axes))} ({current_source().short}); "
                "psum, psum_scatter and all_gather make other changes"
            )
        return _CASTS[own, to].bind(value, axes=axes)

    return tree.map(on_leaf, x)


_CASTS = {
    ("invarying", "varying"): C.pvary_p,
    ("reduced", "varying"): U.reduced_vary_cast_p,
    ("invarying", "reduced"): U.preduced_p,
    ("varying", "unreduced"): U.vary_unreduced_cast_p,
}


def kind_along(value: Any, axes: Sequence[Any], function: str) -> str:
    """What the type of a value says of it along all of these axes; ValueError where that is not the same."""
    mat = type_of(value).mat
    kinds = {next((k for k in ("varying", "unreduced", "reduced") if a in getattr(mat, k)), "invarying") for a in axes}
    if len(kinds) > 1:
        raise ValueError(
            f"{function} can only accept axis_name which corresponds to one of varying, unreduced, reduced or invarying. Got a value of "
            f"type {type_of(value)}, {mat}, along {', '.join(map(repr, axes))} ({current_source().short}); take the axes one by one"
        )
    return kinds.pop() if kinds else "invarying"


def _sum_of(value: Any, name: Any) -> Primitive:
    """The sum that a value of this type takes along these axes."""
    if not isinstance(name, tuple) or not type_of(value).mat.unreduced & set(name):
        return C.psum_invariant_p if isinstance(name, tuple) and set(name) <= checked_axes() else C.psum_p
    kind_along(value, name, "jax.lax.psum")
    return U.unreduced_psum_p


def _own(value: Any, axes: Sequence[Any]) -> Any:
    """The value, taken as each device's own along these axes of a mesh, where types say of it that it is the same for all."""
    missing = tuple(n for n in axes if n in checked_axes() and n not in type_of(value).vma) if checked_axes() else ()
    return pvary(value, missing) if missing else value


def lanes_of(axis_name: Any, function: str) -> tuple[Any, int]:
    """What a collective that orders its lanes takes as axis: one name, or several axes of a mesh; and its size."""
    names = _names(axis_name, function)
    size = math.prod(named_axes()[n] for n in names)
    if set(names) <= manual_axes():
        return names, size
    if len(names) != 1:
        raise UnsupportedError(
            f"{function} takes one name of a vmapped axis, got {names}; apply it once a name ({current_source().short})"
        )
    return names[0], size


def _grouped(axis_name: Any, groups: Any, function: str) -> tuple[Any, int, dict[str, Any]]:
    """The axis, the size of a group of it, and the params that say which groups."""
    name, size = lanes_of(axis_name, function)
    divided = _groups(groups, name if isinstance(name, tuple) else (name,), function)
    params = {} if divided is None else {"axis_index_groups": divided}
    return name, _equal(divided, size, function), params


def lanes(axis_name: Any, groups: Any, function: str) -> int:
    """How many lanes a collective of this function's is among."""
    return _grouped(axis_name, groups, function)[1]


def _checked(primitive: Primitive, value: Any, **params: Any) -> Any:
    """The primitive applied, its type rule asked first: the trace that batches it does not."""
    if primitive not in (U.unreduced_reduce_scatter_p,):
        value = _own(value, axis_names(params))
    infer(primitive, (type_of(value),), params)
    return primitive.bind(value, **params)


def _each(function: Callable[[Any], Any], x: Any, name: str) -> Any:
    return tree.map(lambda leaf: function(as_value(leaf, name)), x)


def all_gather(
    x: Any, axis_name: Any, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False, to: str = "varying"
) -> Any:
    """The values of all lanes along a new dimension at `axis`; with `tiled`, one behind the other along that of `x`.

    The result's type says that it varies from device to device, with to="invarying" that it is the same for all, with
    to="reduced" that moreover its cotangent is a sum of which each device has a term. ValueError for others.
    """
    if to not in _GATHERS:
        raise ValueError(
            f"Got unexpected `to` value. Allowed `to` values are: {', '.join(_GATHERS)}; all_gather got {to!r} ({current_source().short})"
        )
    names = _names(axis_name, "all_gather")
    primitive = _GATHERS[to] if set(names) <= checked_axes() else C.all_gather_p
    if set(names) <= manual_axes():
        return _gather(x, names, axis, tiled, axis_index_groups, primitive)
    for number, name in enumerate(reversed(names)):
        x = _gather(x, name, axis, tiled or number > 0, axis_index_groups, primitive)
    return x


_GATHERS = {"varying": C.all_gather_p, "invarying": U.all_gather_invariant_p, "reduced": U.all_gather_reduced_p}


def _gather(x: Any, axis_name: Any, axis: int, tiled: bool, groups: Any, primitive: Primitive) -> Any:
    name, size, params = _grouped(axis_name, groups, "all_gather")

    def on_leaf(leaf: Any) -> Any:
        position = axis_of(axis, leaf.ndim + (not tiled), "all_gather")
        out = _checked(primitive, leaf, axis_name=name, axis=position, axis_size=size, **params)
        return _merged(out, position) if tiled else out

    return _each(on_leaf, x, "all_gather")


def psum_scatter(
    x: Any, axis_name: Any, *, scatter_dimension: int = 0, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Each lane's part, along `scatter_dimension`, of the sum; that dimension goes, or with `tiled` becomes shorter."""
    name, size, params = _grouped(axis_name, axis_index_groups, "psum_scatter")

    def on_leaf(leaf: Any) -> Any:
        position = axis_of(scatter_dimension, leaf.ndim, "psum_scatter")
        parts = _parted(leaf, position, size, "psum_scatter") if tiled else leaf
        terms = isinstance(name, tuple) and type_of(leaf).mat.unreduced & set(name)
        scatter = U.unreduced_reduce_scatter_p if terms else C.psum_scatter_p
        return _checked(scatter, parts, axis_name=name, axis=position, axis_size=size, **params)

    return _each(on_leaf, x, "psum_scatter")


def all_to_all(
    x: Any, axis_name: Any, split_axis: int, concat_axis: int, *, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Lane j gets the j-th part along `split_axis` of every lane's `x`, put together along `concat_axis`.

    `split_axis` has the axis size and goes, and a new dimension stands at `concat_axis`; with `tiled` both stay, one
    shorter, one longer.
    """
    names = _names(axis_name, "all_to_all")
    if len(names) > 1 and not set(names) <= manual_axes():
        whole = lambda leaf: _all_to_all_of_several(leaf, names, split_axis, concat_axis, tiled)
        return _each(whole, x, "all_to_all")
    name, size, params = _grouped(axis_name, axis_index_groups, "all_to_all")
    params |= {"axis_size": size}

    def on_leaf(leaf: Any) -> Any:
        source, target = (axis_of(a, leaf.ndim, "all_to_all") for a in (split_axis, concat_axis))
        parts = _parted(leaf, source, size, "all_to_all") if tiled else leaf
        out = _checked(C.all_to_all_p, parts, axis_name=name, split_axis=source, concat_axis=target, **params)
        return _merged(out, target) if tiled else out

    return _each(on_leaf, x, "all_to_all")


def _all_to_all_of_several(x: Any, names: Sequence[Any], split_axis: int, concat_axis: int, tiled: bool) -> Any:
    """The exchange over several axes of `vmap`, the first of which varies slowest: one after the other."""
    sizes = [named_axes()[n] for n in names]
    source, target = (axis_of(a, x.ndim, "all_to_all") for a in (split_axis, concat_axis))
    parts = _parted(x, source, math.prod(sizes), "all_to_all") if tiled else x
    rest = (*parts.shape[:source], *parts.shape[source + 1 :])
    parts = reshape(parts, (*rest[:source], *sizes, *rest[source:]))
    last = parts.ndim - 1
    for name in names:  # each takes the dimension at `source` away and leaves one at the end
        parts = all_to_all(parts, name, source, last)
    order = list(range(len(rest)))
    order[target:target] = range(len(rest), parts.ndim)
    out = reshape(transpose(parts, order), (*rest[:target], math.prod(sizes), *rest[target:]))
    return _merged(out, target) if tiled else out


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """All lanes get the value of the lane `source`."""
    name, size = lanes_of(axis_name, "pbroadcast")
    if not 0 <= source < size:
        raise ValueError(
            f"pbroadcast over {name!r} needs a source below {size}, got {source} ({current_source().short})"
        )
    return _each(lambda leaf: C.pbroadcast_p.bind(leaf, axis_name=name, source=int(source)), x, "pbroadcast")


def _parted(x: Any, axis: int, size: int, function: str) -> Any:
    if x.shape[axis] % size:
        raise ValueError(
            f"{function} with tiled=True needs an extent that {size} divides along dimension {axis}, got {type_of(x)} ({current_source().short})"
        )
    return reshape(x, (*x.shape[:axis], size, x.shape[axis] // size, *x.shape[axis + 1 :]))


def _merged(x: Any, axis: int) -> Any:
    return reshape(x, (*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :]))


def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Lane `destination` gets the value of lane `source` for each pair of `perm`; lanes that get none have zeros."""
    name, size = lanes_of(axis_name, "ppermute")
    pairs = tuple((int(s), int(d)) for s, d in perm)
    for positions in zip(*pairs):
        if len(set(positions)) != len(positions) or any(not 0 <= p < size for p in positions):
            raise ValueError(
                f"ppermute over {name!r} of size {size} needs distinct sources and distinct destinations below {size}, got {pairs} ({current_source().short})"
            )
    return _each(lambda leaf: _checked(C.ppermute_p, leaf, axis_name=name, perm=pairs), x, "ppermute")


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Lane i gets the value of lane `perm[i]`, a permutation."""
    return ppermute(x, axis_name, [(source, destination) for destination, source in enumerate(perm)])


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Any:
    """The named axis and dimension `axis` change positions."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)
