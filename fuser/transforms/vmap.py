"""`vmap`: a function on one example made one on many, by a dimension that its body does not see."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import optree

from fuser.frames import hide
from fuser.ir.dim import as_extent
from fuser.ir.source import current_source
from fuser.ir.types import float0
from fuser.ops.reduce import reduce_sum_p
from fuser.trace import tree
from fuser.trace.aliases import check_arguments
from fuser.trace.batch import batch, moved
from fuser.trace.cells import PartOfRef, is_ref
from fuser.trace.core import type_of
from fuser.trace.explicit import rules
from fuser.trace.mismatch import details, prefix_mismatches
from fuser.transforms.arguments import check_callable, leaf_values, name_of


class _Unmapped:
    """Stands for None in a tree of axes, where None itself would be an empty tree."""

    def __repr__(self) -> str:
        return "None"


_UNMAPPED = _Unmapped()


def vmap(
    fun: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> Callable[..., Any]:
    """`fun` mapped over one dimension of its arguments, all lanes at once.

    `in_axes` is an int, None (the same for all lanes), or a tuple with one entry an argument, each a tree prefix of it;
    keyword arguments are mapped along dimension 0. `out_axes` is a tree prefix of the result: where the mapped dimension
    stands in it, None for results that are the same for all lanes. Negative axes count from the end. `axis_name` names
    the dimension for collectives (`fuser.lax.psum`, ...); `axis_size` is needed where nothing is mapped. With `sum_match` a result
    that differs from lane to lane and has None in `out_axes` is the sum over the lanes; without it that is an error.
    ValueError for sizes that differ and for axes that do not fit.
    """
    check_callable(fun, "vmap")
    spmd = () if spmd_axis_name is None else spmd_axis_name if isinstance(spmd_axis_name, tuple) else (spmd_axis_name,)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not (in_axes is None or type(in_axes) in (int, tuple) or (hasattr(in_axes, "__index__") and _is_axis(in_axes))):
        raise TypeError(
            "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments passed to the "
            f"function, but got {in_axes!r}. ({current_source().short})"
        )

    for axes, what in ((in_axes, "in_axes"), (out_axes, "out_axes")):
        if any(not _is_axis(leaf) for leaf in tree.leaves(axes)):
            raise TypeError(
                f"vmap {what} must be an int, None, or a tree of them, got {axes!r} ({current_source().short})"
            )

    @functools.wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return _vmap(fun, in_axes, out_axes, axis_name, axis_size, spmd, bool(sum_match), args, kwargs)
        except Exception as error:
            raise hide(error)  # noqa: B904

    mapped.__doc__ = f"Vectorized version of {name_of(fun)}: it maps over {in_axes=} to {out_axes=}."
    if fun.__doc__:
        mapped.__doc__ += f"\n\nOriginal documentation:\n\n{fun.__doc__}"
    return mapped


def _is_axis(leaf: Any) -> bool:
    """Whether a leaf of in_axes or out_axes names a dimension: an integer that is no array."""
    return hasattr(leaf, "__index__") and not hasattr(leaf, "aval")


def _is_opaque(leaf: Any) -> bool:
    """Whether an unmapped argument is no array and goes to the function as it is: a number of Python's, another function, a string."""
    if type(leaf) in (bool, int, float, complex):
        return True
    try:
        leaf_values([leaf], "")
    except TypeError:
        return True
    return False


def _vmap(
    fun: Callable[..., Any],
    in_axes: Any,
    out_axes: Any,
    axis_name: Any,
    axis_size: int | None,
    spmd: tuple[Any, ...],
    sums: bool,
    args: Any,
    kwargs: Any,
) -> Any:
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ValueError(
            "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments passed to the "
            f"function, but got {len(in_axes)=}, {len(args)=}; {name_of(fun)} has in_axes={in_axes} ({current_source().short})"
        )
    if VMAPPABLE:
        fun, args, kwargs = _of_elements(fun, in_axes, args, kwargs)
    leaves, structure = tree.flatten((args, kwargs))
    if any(map(is_ref, leaves)):
        _refuse_parts((args, kwargs))
        check_arguments(fun, "vmap", (args, kwargs))
    given = prefix(in_axes, args, "in_axes") + [0] * len(tree.leaves(kwargs))
    opaque = {n: leaf for n, (leaf, axis) in enumerate(zip(leaves, given)) if axis is None and _is_opaque(leaf)}
    values = leaf_values([0 if n in opaque else v for n, v in enumerate(leaves)], f"the arguments of {name_of(fun)}")
    dims = [_dimension(axis, v, fun, n, (args, kwargs)) for n, (axis, v) in enumerate(zip(given, values))]
    size = _size(fun, values, dims, axis_size, (args, kwargs))
    found: list[Any] = []

    def flat(*inputs: Any) -> list[Any]:
        inner_args, inner_kwargs = tree.unflatten(structure, [opaque.get(n, v) for n, v in enumerate(inputs)])
        result = fun(*inner_args, **inner_kwargs)
        outs, out_tree = tree.flatten(result)
        found.append(out_tree)
        return leaf_values(outs, f"the result of {name_of(fun)}")

    entry = _entry(values, dims, spmd)
    outs, out_dims = batch(flat, values, dims, size, axis_name, spmd=spmd)
    (out_tree,) = found
    wanted = prefix(out_axes, tree.unflatten(out_tree, outs), "out_axes")
    if sums:
        outs, out_dims = _summed(outs, out_dims, wanted)
    result = tree.unflatten(out_tree, [_placed(o, d, w, size, fun, entry) for o, d, w in zip(outs, out_dims, wanted)])
    return _together(result, out_axes, size) if VMAPPABLE else result


class Vmappable(NamedTuple):
    """How values of a class, which are trees of arrays, are mapped over: what their mapped dimension is to them."""

    whole: Callable[[Any, int], Any]  # the value, every array of which has the mapped dimension
    element: Callable[[Any, int], Any]  # the value of one lane, from one whose arrays are already a lane's
    together: Callable[[int, Any, int], Any]  # the value of all lanes, from one whose arrays are already all lanes'


VMAPPABLE: dict[type, Vmappable] = {}


def _is_vmappable(value: Any) -> bool:
    return type(value) in VMAPPABLE


def _axes_of(axes: Any, full: Any, what: str) -> tuple[list[Any], Any, list[Any]]:
    """The leaves of a tree, with vmappable values as leaves; its structure; and the axis of each."""
    leaves, structure = tree.flatten(full, _is_vmappable)
    return leaves, structure, prefix(axes, tree.unflatten(structure, [0] * len(leaves)), what)


def _of_elements(fun: Callable[..., Any], in_axes: Any, args: Any, kwargs: Any) -> Any:
    """The function and its arguments, where some may be vmappable values."""
    if not any(map(_is_vmappable, tree.leaves((args, kwargs), _is_vmappable))):
        return fun, args, kwargs
    leaves, structure, axes = _axes_of((in_axes, 0), (args, kwargs), "in_axes")
    mapped = [n for n, (leaf, axis) in enumerate(zip(leaves, axes)) if _is_vmappable(leaf) and axis is not None]
    for n in mapped:
        leaves[n] = VMAPPABLE[type(leaves[n])].whole(leaves[n], axes[n])
    args, kwargs = tree.unflatten(structure, leaves)

    @functools.wraps(fun)
    def of_elements(*inner: Any, **named: Any) -> Any:
        found, again = tree.flatten((inner, named), _is_vmappable)
        for n in mapped:
            found[n] = VMAPPABLE[type(found[n])].element(found[n], axes[n])
        inner, named = tree.unflatten(again, found)
        return fun(*inner, **named)

    return of_elements, args, kwargs


def _together(result: Any, out_axes: Any, size: int) -> Any:
    """The result, whose vmappable values are those of all lanes."""
    if not any(map(_is_vmappable, tree.leaves(result, _is_vmappable))):
        return result
    leaves, structure, axes = _axes_of(out_axes, result, "out_axes")
    made = [
        VMAPPABLE[type(leaf)].together(size, leaf, axis) if _is_vmappable(leaf) and axis is not None else leaf
        for leaf, axis in zip(leaves, axes)
    ]
    return tree.unflatten(structure, made)


def _refuse_parts(arguments: Any) -> None:
    """TypeError for parts of Refs, whose mapped dimension is not that of the Ref."""
    for leaf in tree.leaves(arguments, lambda leaf: isinstance(leaf, PartOfRef)):
        if isinstance(leaf, PartOfRef):
            raise TypeError(
                "TransformedRefs are not allowed as arguments of vmap: a part of a Ref has dimensions of its own; pass the Ref, and take "
                f"its part in the function ({current_source().short})"
            )


def prefix(axes: Any, full: Any, what: str, transform: str = "vmap") -> list[Any]:
    """One axis for each leaf of `full`; ValueError where `axes` is no tree prefix of it."""
    marked = optree.tree_map(lambda a: _UNMAPPED if a is None else a, axes, none_is_leaf=True, namespace=tree.NAMESPACE)
    try:
        found = optree.broadcast_prefix(marked, full, none_is_leaf=False, namespace=tree.NAMESPACE)
    except ValueError:
        structure = tree.structure(full)
        mismatches = list(
            prefix_mismatches(tree.structure(axes, lambda a: a is None), structure, f"{transform} {what}")
        )
        raise ValueError(
            f"{transform} {what} specification must be a tree prefix of the corresponding value; got {axes!r} for {structure}. "
            f"{details(mismatches)} ({current_source().short})"
        ) from None
    return [None if a is _UNMAPPED else a for a in found]


def _dimension(axis: Any, value: Any, fun: Any, number: int, arguments: Any) -> int | None:
    """The axis counted from the front; ValueError where the value has none such."""
    if axis is None:
        return None
    rank = type_of(value).ndim
    try:
        place = axis.__index__()
    except AttributeError:
        raise TypeError(
            f"vmap in_axes must be an int, None, or a tree of them, got {axis!r} ({current_source().short})"
        ) from None
    if not -rank <= place < rank:
        raise ValueError(
            f"vmap was requested to map its argument along axis {axis}, which implies that its rank should be at least "
            f"{place + 1 if place >= 0 else -place}, but is only {rank} (its shape is {tuple(value.shape)}): argument "
            f"{path(number, fun, arguments)} of {name_of(fun)}; give it None in in_axes, or another dimension ({current_source().short})"
        )
    return place % rank


def path(number: int, fun: Any, arguments: Any) -> str:
    """What the user calls the leaf with this number."""
    found = tree.paths(arguments)[number]
    if not found.startswith("[0]["):
        return found.removeprefix("[1]")
    position, _, rest = found[4:].partition("]")
    try:
        names = list(inspect.signature(fun).parameters)
    except (TypeError, ValueError):
        names = []
    return (names[int(position)] if int(position) < len(names) else f"number {position}") + rest


def _size(fun: Any, values: Any, dims: Any, axis_size: int | None, arguments: Any) -> int:
    found = {n: type_of(v).shape[d] for n, (v, d) in enumerate(zip(values, dims)) if d is not None}
    sizes = set(found.values()) | ({axis_size} if axis_size is not None else set())
    if not sizes:
        raise ValueError(
            "vmap wrapped function must be passed at least one argument containing an array or axis_size must be specified, "
            f"got empty *args={arguments[0]} and **kwargs={arguments[1]}; {name_of(fun)} maps nothing ({current_source().short})"
            if not tree.leaves(arguments)
            else "vmap must have at least one non-None value in in_axes: "
            f"{name_of(fun)} maps nothing; map an argument, or give axis_size ({current_source().short})"
        )
    if len(sizes) > 1:
        words = [f"the `axis_size` argument was {axis_size};"] if axis_size is not None else []
        for size in sorted(set(found.values()), key=lambda size: -list(found.values()).count(size)):
            words.append(_of_one_size(size, found, values, dims, fun, arguments) + ";")
        listed = "\n".join(f"  * {word}" for word in words).rstrip(";")
        raise ValueError(
            f"vmap got inconsistent sizes for array axes to be mapped:\n{listed}\n"
            f"(vmap of {name_of(fun)}, {current_source().short}); give what is not mapped None in in_axes"
        )
    return as_extent(sizes.pop())


def _of_one_size(size: int, found: dict[int, int], values: Any, dims: Any, fun: Any, arguments: Any) -> str:
    """How many mapped axes have this size, and where the first of them is."""
    alike = [n for n, other in found.items() if other == size]
    first = alike[0]
    name = path(first, fun, arguments)
    what = f"kwargs{name}" if name.startswith("[") else f"argument {name}"
    aval = type_of(values[first])
    example = f"axis {dims[first]} of {what} of type {aval.dtype.name}[{','.join(map(str, aval.shape))}]"
    if len(alike) == 1:
        return f"one axis had size {size}: {example}"
    most = "most" if 2 * len(alike) > len(found) else "some"
    return f"{most} axes ({len(alike)} of them) had size {size}, e.g. {example}"


def _entry(values: Sequence[Any], dims: Sequence[int | None], spmd: tuple[Any, ...]) -> Any:
    """How the mapped dimension lies, as the types of what is mapped say: (mesh, entry of specs); None where they do not."""
    found: dict[Any, Any] = {}
    for value, dim in zip(values, dims):
        explicit = type_of(value).explicit
        if explicit is not None and dim is not None:
            found.setdefault((explicit.mesh, explicit.spec.partitions[dim]), value)
    if len(found) > 1:
        raise ValueError(
            "Mapped away dimension of inputs passed to vmap should be sharded the same. Got inconsistent axis specs: "
            f"{' vs '.join(str(entry) for _, entry in found)} ({current_source().short}); reshard one of them"
        )
    known = next(iter(found), None)
    if known is not None and known[1] is not None:
        _check_unmapped([v for v, d in zip(values, dims) if d is None], known[1])
    if spmd and known is not None and known[1] is not None and known[1] != (spmd if len(spmd) > 1 else spmd[0]):
        raise ValueError(
            f"Only one of spmd_axis_name or arrays sharded on `Explicit` mesh axis type is allowed. Got spmd_axis_name={spmd} and "
            f"arrays sharded on {known[1]} ({current_source().short})"
        )
    return known


def _summed(outs: Sequence[Any], dims: Sequence[int | None], wanted: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The results, of which those that have lanes and are wanted without are the sums of them."""
    summed = [d is not None and w is None for d, w in zip(dims, wanted)]
    return (
        [reduce_sum_p.bind(o, axes=(d,)) if sums else o for o, d, sums in zip(outs, dims, summed)],
        [None if sums else d for d, sums in zip(dims, summed)],
    )


def _check_unmapped(values: Sequence[Any], entry: Any) -> None:
    """ValueError where what is the same for all lanes lies along the axes that the mapped dimension lies along."""
    split = set(entry if isinstance(entry, tuple) else (entry,))
    for value in values:
        explicit = type_of(value).explicit
        entries = () if explicit is None else explicit.spec.partitions
        if split & {n for e in entries for n in (e if isinstance(e, tuple) else (e,))}:
            raise ValueError(
                f"Unmapped values passed to vmap cannot be sharded along the mesh axis that the mapped dimension lies along, {entry}. "
                f"Got {explicit.spec} ({current_source().short}); reshard it"
            )


def _placed(value: Any, dim: int | None, wanted: Any, size: int, fun: Any, entry: Any) -> Any:
    if wanted is None:
        if dim is not None:
            raise ValueError(
                f"vmap has mapped output but out_axes is None: the result of {name_of(fun)}, checked at vmap out_axes, differs from "
                f"lane to lane; give it an axis ({current_source().short})"
            )
        return value
    rank = type_of(value).ndim + (dim is None)
    if type_of(value).dtype == float0 and dim is None:  # has no elements to repeat
        return np.zeros((*value.shape[: wanted % rank], size, *value.shape[wanted % rank :]), float0)
    if not -rank <= wanted < rank:
        raise ValueError(
            f"axis {wanted} is out of bounds for array of dimension {rank}: vmap of {name_of(fun)} has out_axes={wanted} for "
            f"a result of {rank} dimensions ({current_source().short})"
        )
    result = moved(value, dim, wanted % rank, size)
    return (
        result if dim is not None or entry is None or entry[1] is None else rules.split(result, wanted % rank, *entry)
    )
