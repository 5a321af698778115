"""Collectives over a named axis: psum, pmax, pmin, all_gather, psum_scatter, all_to_all, ppermute, pbroadcast, axis_index.

They have no kernels. Over an axis that a `vmap` names, it turns each into an operation on its batch dimension
(`collect`). Over the axes of a mesh they stay in the graph of each device, whose eval rules meet the other devices
(runtime/rendezvous). `axes` or `axis_name`, as in JAX, is a name, or a tuple of mesh axes, the first of which varies slowest;
`axis_index_groups` divides a mesh axis into groups that take part apart.

Where types say along which mesh axes values vary, `psum_invariant` takes the place of psum: its result is the same for
all, so the cotangent is each device's already. Without such types psum's transpose is psum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.errors import DeviceError, TypeRuleError
from fuser.ir.graph import Eqn
from fuser.ir.primitive import REGISTRY, Fusion, Primitive, register
from fuser.ir.types import ArrayType, is_float
from fuser.ops.elementwise import convert_element_type_p, div_p, eq_p, mul_p
from fuser.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather_p
from fuser.ops.movement import iota_p, slice_p, squeeze_p, transpose_p
from fuser.ops.reduce import reduce_max_p, reduce_min_p, reduce_sum_p
from fuser.runtime import collectives, rendezvous
from fuser.runtime.array import Array
from fuser.trace.batch import axis_names, checked_axes, moved
from fuser.trace.hoisting import number
from fuser.trace.tangent import Zero

Dims = Sequence[int | None]
Groups = tuple[tuple[int, ...], ...] | None
Axes = frozenset[Any]
Kinds = Sequence[tuple[str, tuple[tuple[str, Any], ...]]]  # of each collective the name and its own params


def collective(name: str, *, type: Callable[..., ArrayType], collect: Callable[..., Any], **rules: Any) -> Primitive:
    """A primitive of one operand over a named axis; another batch dimension goes in front and stays there."""
    return register(Primitive(name, Fusion.LIBRARY, type=type, collect=collect, **rules))


# Along which mesh axes results vary.


def everywhere(varying: Axes, /, **params: Any) -> Axes:
    """A result that differs along the collective's own axes too."""
    return varying | (set(axis_names(params)) & checked_axes())


def nowhere(varying: Axes, /, **params: Any) -> Axes:
    """A result that is the same along the collective's axes."""
    return varying - set(axis_names(params))


# What devices send, in bytes for a byte of the operand: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication
# Operations in MPICH" (2005).


def _all_reduce(devices: int) -> float:
    return 2 * (devices - 1) / devices


def _each_its_part(devices: int) -> float:
    """Of a reduce-scatter, an all-to-all or a broadcast."""
    return (devices - 1) / devices


def members(eqn: Eqn) -> tuple[Primitive, ...]:
    """The collectives of an equation: its own, or those that it groups."""
    if eqn.primitive in (collective_group_p, collective_start_p):
        return tuple(REGISTRY[name] for name, _ in eqn.params["kinds"])
    return (eqn.primitive,)


# What devices do.

_COMBINED: dict[
    str, Callable[..., collectives.Combined]
] = {}  # by name, what each member of a group gets of what all brought


def _met(name: str, combine: Callable[..., collectives.Combined]) -> Callable[..., np.ndarray]:
    """The eval rule of a collective: `combine(values of the group, **params)` gives what each of them gets."""
    _COMBINED[name] = combine

    def rule(x: np.ndarray, axis_index_groups: Groups = None, **params: Any) -> np.ndarray:
        kinds = ((name, own_params(params)),)
        return _exchanged(axis_names(params), axis_index_groups, kinds, [np.asarray(x)])[0]

    return rule


def _exchanged(names: tuple[Any, ...], groups: Groups, kinds: Kinds, values: list[np.ndarray]) -> list[np.ndarray]:
    what = _shown(kinds, [ArrayType(x.shape, x.dtype) for x in values], names)
    return list(_member(what).exchange(names, groups, what, kinds, values, combine))


def _shown(kinds: Kinds, avals: Sequence[ArrayType], names: tuple[Any, ...]) -> str:
    each = (f"{name.removesuffix('_invariant')} of {aval}" for (name, _), aval in zip(kinds, avals))
    return f"{', '.join(each)} over {', '.join(map(repr, names))}"


def is_meeting(eqn: Eqn) -> bool:
    """Whether devices wait for one another in this equation."""
    return eqn.primitive is collective_group_p or eqn.primitive.name in _COMBINED


def asked(eqn: Eqn) -> tuple[tuple[Any, ...], Groups, str, Kinds]:
    """Of a collective the names of its axes, the groups of their indices, its description and its kinds, one for each operand."""
    params = eqn.params
    names, groups = axis_names(params), params.get("axis_index_groups")
    kinds = params["kinds"] if eqn.primitive is collective_group_p else ((eqn.primitive.name, own_params(params)),)
    return names, groups, _shown(kinds, [ArrayType(v.aval.shape, v.aval.dtype) for v in eqn.invars], names), kinds


def own_params(params: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """A collective's params without those that say which devices meet."""
    return tuple(item for item in sorted(params.items()) if item[0] not in ("axes", "axis_name", "axis_index_groups"))


def combined(name: str, values: list[np.ndarray], **params: Any) -> list[np.ndarray]:
    """What each member of a group gets of what all brought, in the order of the group."""
    results, tasks = _COMBINED[name](values, **params)
    for task in tasks:
        task()
    return results


def combine(kinds: Kinds, brought: list[list[np.ndarray]]) -> collectives.Combined:
    """For each member what it gets of several collectives, and the tasks that compute it; all brought one value for each."""
    each = [_COMBINED[name](list(given), **dict(params)) for (name, params), given in zip(kinds, zip(*brought))]
    return list(zip(*(results for results, _ in each))), [task for _, tasks in each for task in tasks]


def _member(what: str) -> rendezvous.Member:
    member = rendezvous.current()
    if member is None:
        raise DeviceError(f"{what} runs on the devices of a mesh only: call the function through shard_map or pmap")
    return member


def _wide(dtype: np.dtype) -> np.dtype:
    """The dtype in which sums are taken: float32 for short floats."""
    return np.dtype(np.float32) if is_float(dtype) and dtype.itemsize < 4 else dtype


# Reductions.


def passed(primitive: Callable[[], Primitive]) -> Callable[..., Any]:
    """The batch rule for what does not care where other dimensions are."""
    return lambda operands, dims, **params: (primitive().bind(operands[0], **params), dims[0])


def same(x: ArrayType, **params: Any) -> ArrayType:
    return x


def _sum(operands: Sequence[Any], dims: Dims, size: int, **params: Any) -> tuple[Any, None]:
    (x,), (dim,) = operands, dims
    if dim is None:
        return mul_p.bind(x, number(Array(np.asarray(size).astype(x.dtype), x.weak_type))), None
    return reduce_sum_p.bind(x, axes=(dim,)), None


psum_p: Primitive = collective(
    "psum",
    type=same,
    eval=_met("psum", collectives.reduced(np.add, _wide)),
    sends=_all_reduce,
    rounds=2,
    collect=_sum,
    linear=True,
    batch=passed(lambda: psum_p),
    transpose=lambda ct, x, **params: (psum_p.bind(ct, **params),),
)
psum_invariant_p: Primitive = collective(
    "psum_invariant",
    type=same,
    eval=_met("psum_invariant", collectives.reduced(np.add, _wide)),
    sends=_all_reduce,
    rounds=2,
    collect=_sum,
    varying=nowhere,
    linear=True,
    batch=passed(lambda: psum_invariant_p),
    transpose=lambda ct, x, **params: (pvary_p.bind(ct, **params),),
)


def _grouped(*arrays: np.ndarray, axis_name: Any, axis_index_groups: Groups, kinds: Any) -> list[np.ndarray]:
    """Several collectives in one meeting."""
    return _exchanged(axis_names({"axis_name": axis_name}), axis_index_groups, kinds, [np.asarray(x) for x in arrays])


def _grouped_type(*avals: ArrayType, axis_name: Any, kinds: Any, **params: Any) -> tuple[ArrayType, ...]:
    each = zip(kinds, avals)
    return tuple(REGISTRY[name].rule("type")(x, axis_name=axis_name, **dict(own)) for (name, own), x in each)


# Several collectives over the same devices as one: what the compiler makes of reductions that do not wait for each other, after
# all transforms. `kinds` are the name and the other params of each.
collective_group_p: Primitive = register(
    Primitive(
        "collective_group",
        Fusion.LIBRARY,
        multiple_results=True,
        type=_grouped_type,
        eval=_grouped,
        collect=lambda operands, dims, size, **params: _refuse_lanes(),
    )
)


def _begun(*arrays: np.ndarray, axis_name: Any, axis_index_groups: Groups, kinds: Any) -> np.ndarray:
    values = [np.asarray(x) for x in arrays]
    names = axis_names({"axis_name": axis_name})
    what = _shown(kinds, [ArrayType(x.shape, x.dtype) for x in values], names)
    return np.asarray(_member(what).begin(names, axis_index_groups, what, kinds, values, combine), np.int32)


# The same in two steps, between which devices compute: `collective_start` sends the operands and gives a number by which
# `collective_done`, which takes them too so that their memory stays, waits for the results.
collective_start_p: Primitive = register(
    Primitive(
        "collective_start",
        Fusion.LIBRARY,
        type=lambda *avals, **params: ArrayType((), np.dtype("int32")),
        eval=_begun,
        collect=lambda operands, dims, size, **params: _refuse_lanes(),
    )
)
collective_done_p: Primitive = register(
    Primitive(
        "collective_done",
        Fusion.LIBRARY,
        multiple_results=True,
        type=lambda number, *avals, **params: _grouped_type(*avals, **params),
        eval=lambda number, *arrays, **params: list(_member("collective_done").finish(int(number))),
        collect=lambda operands, dims, size, **params: _refuse_lanes(),
    )
)


def _refuse_lanes() -> Any:
    raise DeviceError("collectives are grouped on the devices of a mesh only, after all transforms")


# What is the same for all, taken as each device's own.
pvary_p: Primitive = collective(
    "pvary",
    type=same,
    eval=lambda x, **params: x,
    collect=lambda operands, dims, size, **params: (operands[0], dims[0]),
    varying=everywhere,
    linear=True,
    batch=passed(lambda: pvary_p),
    transpose=lambda ct, x, **params: (psum_invariant_p.bind(ct, **params),),
)


def _extreme(name: str, reduction: Primitive, combine: Callable[..., Any]) -> Primitive:
    """pmax or pmin; where several lanes hold the extreme, its tangent is the mean of theirs."""

    def collect(operands: Sequence[Any], dims: Dims, size: int, **params: Any) -> tuple[Any, None]:
        return (operands[0] if dims[0] is None else reduction.bind(operands[0], axes=(dims[0],))), None

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        (x,), (t,) = primals, tangents
        out = primitive.bind(x, **params)
        if type(t) is Zero:
            return out, t
        held = convert_element_type_p.bind(eq_p.bind(x, out), new_dtype=t.dtype, weak_type=False)
        checked = set(axis_names(params)) <= checked_axes()
        add = psum_invariant_p if checked else psum_p
        total = add.bind(mul_p.bind(t, held), **params)
        return out, div_p.bind(total, add.bind(held, **params))

    primitive = collective(
        name,
        type=same,
        eval=_met(name, collectives.reduced(combine, lambda dtype: dtype)),
        sends=_all_reduce,
        rounds=2,
        collect=collect,
        varying=nowhere,
        jvp=jvp,
        batch=passed(lambda: primitive),
    )
    return primitive


pmax_p, pmin_p = _extreme("pmax", reduce_max_p, np.maximum), _extreme("pmin", reduce_min_p, np.minimum)


# all_gather and psum_scatter are each other's transposes.


def shifted(primitive: Callable[[], Primitive], *names: str) -> Callable[..., Any]:
    """The batch rule that puts the batch in front and counts the dimensions in these params from behind it."""

    def rule(operands: Sequence[Any], dims: Dims, **params: Any) -> tuple[Any, int]:
        for name in names:
            params[name] += 1
        return primitive().bind(moved(operands[0], dims[0], 0), **params), 0

    return rule


def _gather_type(x: ArrayType, axis_name: Any, axis: int, axis_size: int, **params: Any) -> ArrayType:
    return x.update(shape=(*x.shape[:axis], axis_size, *x.shape[axis:]))


def _gather(operands: Sequence[Any], dims: Dims, size: int, *, axis: int, **params: Any) -> tuple[Any, None]:
    return moved(operands[0], dims[0], axis, size), None


def _scatter_type(x: ArrayType, axis_name: Any, axis: int, axis_size: int, **params: Any) -> ArrayType:
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
    eval=_met("all_gather", collectives.gathered),
    sends=lambda devices: devices - 1,
    collect=_gather,
    varying=everywhere,
    linear=True,
    batch=shifted(lambda: all_gather_p, "axis"),
    transpose=lambda ct, x, **params: (psum_scatter_p.bind(ct, **params),),
)
psum_scatter_p: Primitive = collective(
    "psum_scatter",
    type=_scatter_type,
    eval=_met("psum_scatter", collectives.scattered(np.add, _wide)),
    sends=_each_its_part,
    collect=_scatter,
    varying=everywhere,
    linear=True,
    batch=shifted(lambda: psum_scatter_p, "axis"),
    transpose=lambda ct, x, **params: (all_gather_p.bind(ct, **params),),
)


# all_to_all: lane j gets the j-th part of every lane's value.
def _exchange_type(
    x: ArrayType, axis_name: Any, split_axis: int, concat_axis: int, axis_size: int, **params: Any
) -> ArrayType:
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
    eval=_met("all_to_all", collectives.exchanged),
    sends=_each_its_part,
    collect=_exchange,
    varying=everywhere,
    linear=True,
    batch=shifted(lambda: all_to_all_p, "split_axis", "concat_axis"),
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
    eval=_met("ppermute", collectives.permuted),
    sends=lambda devices: 1,
    collect=_permute,
    varying=everywhere,
    linear=True,
    batch=passed(lambda: ppermute_p),
    transpose=lambda ct, x, axis_name, perm: (
        ppermute_p.bind(ct, axis_name=axis_name, perm=tuple((d, s) for s, d in perm)),
    ),
)


# pbroadcast: all lanes get the value of lane `source`, whose cotangent is the sum of theirs.
def _broadcast(operands: Sequence[Any], dims: Dims, size: int, *, source: int, **params: Any) -> tuple[Any, Any]:
    (x,), (dim,) = operands, dims
    if dim is None:
        return x, None
    starts, limits = [0] * len(x.shape), list(x.shape)
    starts[dim], limits[dim] = source, source + 1
    row = slice_p.bind(x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=None)
    return squeeze_p.bind(row, dimensions=(dim,)), None


def _gathered_at(ct: Any, x: Any, axis_name: Any, source: int) -> tuple[Any]:
    total = psum_p.bind(ct, axes=axis_name)
    here = eq_p.bind(axis_index_p.bind(axis_name=axis_name), number(Array(np.asarray(source, np.int32))))
    return (mul_p.bind(total, convert_element_type_p.bind(here, new_dtype=ct.dtype, weak_type=False)),)


pbroadcast_p: Primitive = collective(
    "pbroadcast",
    type=lambda x, axis_name, source: x,
    eval=_met("pbroadcast", collectives.broadcast),
    sends=_each_its_part,
    collect=_broadcast,
    varying=everywhere,
    linear=True,
    batch=passed(lambda: pbroadcast_p),
    transpose=_gathered_at,
)


def _axis_index(operands: Any, dims: Any, size: int, **params: Any) -> tuple[Any, int]:
    return iota_p.bind(dtype=np.dtype("int32"), shape=(size,), dimension=0), 0


def _own_index(axis_name: Any) -> np.ndarray:
    member = _member(f"axis_index of {axis_name!r}")
    return np.asarray(member.grid.index(member.rank, axis_names({"axis_name": axis_name})), np.int32)


axis_index_p: Primitive = register(
    Primitive(
        "axis_index",
        Fusion.LIBRARY,
        type=lambda axis_name: ArrayType((), np.dtype("int32")),
        eval=_own_index,
        collect=_axis_index,
        varying=everywhere,
        batch=lambda operands, dims, axis_name: (axis_index_p.bind(axis_name=axis_name), None),
    )
)
