"""Collectives over a named axis: psum, pmax, pmin, all_gather, psum_scatter, all_to_all, ppermute, axis_index.

They have no kernels: the `vmap` that names the axis turns each into an operation on its batch dimension (`collect`).
Until then a graph may hold them, for instance in the body of a scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType
from fuser.ops.elementwise import convert_element_type_p, div_p, eq_p, mul_p
from fuser.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather_p
from fuser.ops.movement import iota_p, transpose_p
from fuser.ops.reduce import reduce_max_p, reduce_min_p, reduce_sum_p
from fuser.runtime.array import Array
from fuser.trace.batch import moved
from fuser.trace.tangent import Zero

Dims = Sequence[int | None]


def collective(name: str, *, type: Callable[..., ArrayType], collect: Callable[..., Any], **rules: Any) -> Primitive:
    """A primitive of one operand over the axis `axis_name`; another batch dimension goes in front and stays there."""
    return register(Primitive(name, Fusion.LIBRARY, type=type, collect=collect, **rules))


def _passed(primitive: Callable[[], Primitive]) -> Callable[..., Any]:
    """The batch rule for what does not care where other dimensions are."""
    return lambda operands, dims, **params: (primitive().bind(operands[0], **params), dims[0])


def _same(x: ArrayType, axis_name: Any) -> ArrayType:
    return x


def _sum(operands: Sequence[Any], dims: Dims, size: int, **params: Any) -> tuple[Any, None]:
    (x,), (dim,) = operands, dims
    if dim is None:
        return mul_p.bind(x, Array(np.asarray(size).astype(x.dtype), x.weak_type)), None
    return reduce_sum_p.bind(x, axes=(dim,)), None


psum_p: Primitive = collective(
    "psum",
    type=_same,
    collect=_sum,
    linear=True,
    batch=_passed(lambda: psum_p),
    transpose=lambda ct, x, axis_name: (psum_p.bind(ct, axis_name=axis_name),),
)


def _extreme(name: str, reduction: Primitive) -> Primitive:
    """pmax or pmin; where several lanes hold the extreme, its tangent is the mean of theirs."""

    def collect(operands: Sequence[Any], dims: Dims, size: int, **params: Any) -> tuple[Any, None]:
        return (operands[0] if dims[0] is None else reduction.bind(operands[0], axes=(dims[0],))), None

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], axis_name: Any) -> tuple[Any, Any]:
        (x,), (t,) = primals, tangents
        out = primitive.bind(x, axis_name=axis_name)
        if type(t) is Zero:
            return out, t
        held = convert_element_type_p.bind(eq_p.bind(x, out), new_dtype=t.dtype, weak_type=False)
        total = psum_p.bind(mul_p.bind(t, held), axis_name=axis_name)
        return out, div_p.bind(total, psum_p.bind(held, axis_name=axis_name))

    primitive = collective(name, type=_same, collect=collect, jvp=jvp, batch=_passed(lambda: primitive))
    return primitive


pmax_p, pmin_p = _extreme("pmax", reduce_max_p), _extreme("pmin", reduce_min_p)


def _shifted(primitive: Callable[[], Primitive], *names: str) -> Callable[..., Any]:
    """The batch rule that puts the batch in front and counts the dimensions in these params from behind it."""

    def rule(operands: Sequence[Any], dims: Dims, **params: Any) -> tuple[Any, int]:
        for name in names:
            params[name] += 1
        return primitive().bind(moved(operands[0], dims[0], 0), **params), 0

    return rule


# all_gather and psum_scatter are each other's transposes.
def _gather_type(x: ArrayType, axis_name: Any, axis: int, axis_size: int) -> ArrayType:
    return x.update(shape=(*x.shape[:axis], axis_size, *x.shape[axis:]))


def _gather(operands: Sequence[Any], dims: Dims, size: int, *, axis: int, **params: Any) -> tuple[Any, None]:
    return moved(operands[0], dims[0], axis, size), None


def _scatter_type(x: ArrayType, axis_name: Any, axis: int, axis_size: int) -> ArrayType:
    if x.shape[axis] != axis_size:
        raise TypeRuleError(
            f"psum_scatter of {x} over {axis_name!r} needs an extent of {axis_size} along dimension {axis}, got {x.shape[axis]}; "
            "use tiled=True for a multiple of it"
        )
    return x.update(shape=(*x.shape[:axis], *x.shape[axis + 1 :]))


def _scatter(operands: Sequence[Any], dims: Dims, size: int, *, axis: int, **params: Any) -> tuple[Any, int]:
    total, _ = _sum(operands, dims, size)
    return total, axis


all_gather_p: Primitive = collective(
    "all_gather",
    type=_gather_type,
    collect=_gather,
    linear=True,
    batch=_shifted(lambda: all_gather_p, "axis"),
    transpose=lambda ct, x, **params: (psum_scatter_p.bind(ct, **params),),
)
psum_scatter_p: Primitive = collective(
    "psum_scatter",
    type=_scatter_type,
    collect=_scatter,
    linear=True,
    batch=_shifted(lambda: psum_scatter_p, "axis"),
    transpose=lambda ct, x, **params: (all_gather_p.bind(ct, **params),),
)


# all_to_all: lane j gets the j-th part of every lane's value.
def _exchange_type(x: ArrayType, axis_name: Any, split_axis: int, concat_axis: int, axis_size: int) -> ArrayType:
    if x.shape[split_axis] != axis_size:
        raise TypeRuleError(
            f"all_to_all of {x} over {axis_name!r} needs an extent of {axis_size} along split_axis {split_axis}, "
            f"got {x.shape[split_axis]}; use tiled=True for a multiple of it"
        )
    rest = [*x.shape[:split_axis], *x.shape[split_axis + 1 :]]
    return x.update(shape=(*rest[:concat_axis], axis_size, *rest[concat_axis:]))


def _exchange(
    operands: Sequence[Any], dims: Dims, size: int, *, split_axis: int, concat_axis: int, **params: Any
) -> tuple[Any, int]:
    x = moved(operands[0], dims[0], 0, size)
    order = [d + 1 for d in range(len(x.shape) - 1) if d != split_axis]
    order.insert(concat_axis, 0)
    return transpose_p.bind(x, permutation=(split_axis + 1, *order)), 0


all_to_all_p: Primitive = collective(
    "all_to_all",
    type=_exchange_type,
    collect=_exchange,
    linear=True,
    batch=_shifted(lambda: all_to_all_p, "split_axis", "concat_axis"),
    transpose=lambda ct, x, split_axis, concat_axis, **params: (
        all_to_all_p.bind(ct, split_axis=concat_axis, concat_axis=split_axis, **params),
    ),
)


# ppermute: lane `destination` gets the value of lane `source`; lanes that are no destination get zeros.
def _permute(operands: Sequence[Any], dims: Dims, size: int, *, perm: Any, **params: Any) -> tuple[Any, int]:
    x = moved(operands[0], dims[0], 0, size)
    sources = np.full((size, 1), size, np.int32)
    for source, destination in perm:
        sources[destination] = source
    windows = tuple(range(1, len(x.shape)))
    return gather_p.bind(
        x,
        Array(sources),
        dimension_numbers=GatherDimensionNumbers(windows, (0,), (0,)),
        slice_sizes=(1, *x.shape[1:]),
        indices_are_sorted=False,
        unique_indices=True,
        mode=GatherScatterMode.FILL_OR_DROP,
        fill_value=0,
    ), 0


ppermute_p: Primitive = collective(
    "ppermute",
    type=lambda x, axis_name, perm: x,
    collect=_permute,
    linear=True,
    batch=_passed(lambda: ppermute_p),
    transpose=lambda ct, x, axis_name, perm: (
        ppermute_p.bind(ct, axis_name=axis_name, perm=tuple((d, s) for s, d in perm)),
    ),
)


def _axis_index(operands: Any, dims: Any, size: int, **params: Any) -> tuple[Any, int]:
    return iota_p.bind(dtype=np.dtype("int32"), shape=(size,), dimension=0), 0


axis_index_p: Primitive = register(
    Primitive(
        "axis_index",
        Fusion.LIBRARY,
        type=lambda axis_name: ArrayType((), np.dtype("int32")),
        collect=_axis_index,
        batch=lambda operands, dims, axis_name: (axis_index_p.bind(axis_name=axis_name), None),
    )
)
