"""Collectives over named axes, under jax.lax's names: sums, gathers and exchanges between the lanes of a `vmap`.

`axis_name` is the name given to `vmap(..., axis_name=...)`, or a tuple of names; NameError where none is in scope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import UnsupportedError
from fuser.ir.primitive import Primitive
from fuser.ir.source import current_source
from fuser.lax.movement import reshape
from fuser.lax.values import as_value, axis_of, python_scalar
from fuser.ops import collective as C
from fuser.ops.elementwise import convert_element_type_p
from fuser.trace import tree
from fuser.trace.batch import named_axes
from fuser.trace.core import infer, type_of


def _names(axis_name: Any, function: str) -> tuple[Any, ...]:
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    known = named_axes()
    for name in names:
        if name not in known:
            found = ", ".join(map(repr, known)) or "none"
            raise NameError(
                f"{function}: no axis is named {name!r} here; the axes in scope are {found}; "
                f"call it under vmap(..., axis_name={name!r}) ({current_source().short})"
            )
    return names


def _no_groups(axis_index_groups: Any, function: str) -> None:
    if axis_index_groups is not None:
        raise UnsupportedError(
            f"{function} over groups of an axis is not supported; nest two vmaps and name the inner axis ({current_source().short})"
        )


def axis_size(axis_name: Any) -> int:
    """The number of lanes along the axis, a Python int."""
    return math.prod(named_axes()[n] for n in _names(axis_name, "axis_size"))


def axis_index(axis_name: Any) -> Any:
    """This lane's position along the axis, an int32 scalar; for a tuple of names, in row-major order."""
    result: Any = None
    for name in _names(axis_name, "axis_index"):
        index = C.axis_index_p.bind(axis_name=name)
        result = index if result is None else result * np.int32(named_axes()[name]) + index
    return result


def _reduced(function: str, primitive: Primitive, x: Any, axis_name: Any, groups: Any) -> Any:
    names = _names(axis_name, function)
    _no_groups(groups, function)

    def on_leaf(leaf: Any) -> Any:
        if python_scalar(leaf):
            leaf = int(leaf) if isinstance(leaf, bool) else leaf
            return leaf * axis_size(names) if primitive is C.psum_p else leaf
        value = as_value(leaf, function)
        if value.dtype == bool and primitive is C.psum_p:
            value = convert_element_type_p.bind(value, new_dtype=np.dtype("int32"), weak_type=False)
        for name in names:
            value = primitive.bind(value, axis_name=name)
        return value

    return tree.map(on_leaf, x)


def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The sum of `x` (a tree) over the axis; of a Python number, the number times the axis size, a Python number."""
    return _reduced("psum", C.psum_p, x, axis_name, axis_index_groups)


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The mean over the axis."""
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    size = axis_size(axis_name)
    return tree.map(lambda leaf: leaf / size, total)


def pmax(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The maximum over the axis; its tangent is the mean of the tangents of the lanes that hold it."""
    return _reduced("pmax", C.pmax_p, x, axis_name, axis_index_groups)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The minimum over the axis; see `pmax`."""
    return _reduced("pmin", C.pmin_p, x, axis_name, axis_index_groups)


def _one(axis_name: Any, function: str) -> tuple[Any, int]:
    names = _names(axis_name, function)
    if len(names) != 1:
        raise UnsupportedError(
            f"{function} takes one axis name, got {names}; apply it once a name ({current_source().short})"
        )
    return names[0], named_axes()[names[0]]


def _checked(primitive: Primitive, value: Any, **params: Any) -> Any:
    """The primitive applied, its type rule asked first: the trace that batches it does not."""
    infer(primitive, (type_of(value),), params)
    return primitive.bind(value, **params)


def _each(function: Callable[[Any], Any], x: Any, name: str) -> Any:
    return tree.map(lambda leaf: function(as_value(leaf, name)), x)


def all_gather(x: Any, axis_name: Any, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False) -> Any:
    """The values of all lanes along a new dimension at `axis`; with `tiled`, one behind the other along that of `x`."""
    _no_groups(axis_index_groups, "all_gather")
    for name in reversed(_names(axis_name, "all_gather")):
        x = _gather(x, name, axis, tiled)
    return x


def _gather(x: Any, axis_name: Any, axis: int, tiled: bool) -> Any:
    name, size = _one(axis_name, "all_gather")

    def on_leaf(leaf: Any) -> Any:
        place = axis_of(axis, leaf.ndim + (not tiled), "all_gather")
        out = _checked(C.all_gather_p, leaf, axis_name=name, axis=place, axis_size=size)
        return _merged(out, place) if tiled else out

    return _each(on_leaf, x, "all_gather")


def psum_scatter(
    x: Any, axis_name: Any, *, scatter_dimension: int = 0, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Each lane's part, along `scatter_dimension`, of the sum; that dimension goes, or with `tiled` becomes shorter."""
    _no_groups(axis_index_groups, "psum_scatter")
    name, size = _one(axis_name, "psum_scatter")

    def on_leaf(leaf: Any) -> Any:
        place = axis_of(scatter_dimension, leaf.ndim, "psum_scatter")
        parts = _parted(leaf, place, size, "psum_scatter") if tiled else leaf
        return _checked(C.psum_scatter_p, parts, axis_name=name, axis=place, axis_size=size)

    return _each(on_leaf, x, "psum_scatter")


def all_to_all(
    x: Any, axis_name: Any, split_axis: int, concat_axis: int, *, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Lane j gets the j-th part along `split_axis` of every lane's `x`, put together along `concat_axis`.

    `split_axis` has the axis size and goes, and a new dimension stands at `concat_axis`; with `tiled` both stay, one
    shorter, one longer.
    """
    _no_groups(axis_index_groups, "all_to_all")
    name, size = _one(axis_name, "all_to_all")

    def on_leaf(leaf: Any) -> Any:
        source, target = (axis_of(a, leaf.ndim, "all_to_all") for a in (split_axis, concat_axis))
        parts = _parted(leaf, source, size, "all_to_all") if tiled else leaf
        out = _checked(C.all_to_all_p, parts, axis_name=name, split_axis=source, concat_axis=target, axis_size=size)
        return _merged(out, target) if tiled else out

    return _each(on_leaf, x, "all_to_all")


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
    name, size = _one(axis_name, "ppermute")
    pairs = tuple((int(s), int(d)) for s, d in perm)
    for places in zip(*pairs):
        if len(set(places)) != len(places) or any(not 0 <= p < size for p in places):
            raise ValueError(
                f"ppermute over {name!r} of size {size} needs distinct sources and distinct destinations below {size}, got {pairs} ({current_source().short})"
            )
    return _each(lambda leaf: _checked(C.ppermute_p, leaf, axis_name=name, perm=pairs), x, "ppermute")


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Lane i gets the value of lane `perm[i]`, a permutation."""
    return ppermute(x, axis_name, [(source, destination) for destination, source in enumerate(perm)])


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Any:
    """The named axis and dimension `axis` change places."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)
