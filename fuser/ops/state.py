"""Primitives on Refs: `new_ref`, `get`, `swap`, `addupdate`, `freeze`, `free_ref`; operands `ref, [value], *indices`.

`index` has a part for each dimension (ir/references.py); the positions that it leaves open are the operands `indices`, in order.
Programs that run have none of them: ops/discharge.py makes values of Refs, by the `discharge` rules that `fuser.ref` sets.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.errors import ShardingTypeError, TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.references import AbstractRef, At, Index, Window
from fuser.ir.types import ArrayType
from fuser.runtime.reference import Ref


def indexed_type(inner: ArrayType, index: Index, indices: tuple[ArrayType, ...], masked: bool = False) -> ArrayType:
    """The type of the elements at an index, as NumPy: positions that are arrays are broadcast against each other.

    Their dimensions stand where the first position stood if positions stand side by side, and else in front.
    """
    dimensions = [p for p in index if p is not None]
    extents = [max(e, p.size) if isinstance(p, Window) else e for e, p in zip(inner.shape, dimensions)]
    probe = np.broadcast_to(np.empty((), np.bool_), extents if len(extents) == inner.ndim else inner.shape)
    given = iter(indices)
    parts: list[Any] = []
    for part in index:
        if isinstance(part, Window):
            if part.start is None:
                next(given)
            parts.append(slice(0, part.size))
        elif isinstance(part, At):
            place = next(given).shape if part.position is None else ()
            parts.append(np.zeros(place, np.intp) if place else 0)
        else:
            parts.append(None)
    if list(given) or sum(p is not None for p in index) != inner.ndim:
        raise TypeRuleError(
            f"an index of a Ref has a part for each dimension and operands for what is open, got {index}"
        )
    if not masked and any(isinstance(p, Window) and p.size > e for p, e in zip(dimensions, inner.shape)):
        raise TypeRuleError(f"an index of Ref{{{inner}}} has a window larger than the dimension: {index}")
    shape = tuple(probe[tuple(parts)].shape)
    return ArrayType(shape, inner.dtype, inner.weak_type, inner.vma, _lying(inner, index, parts))


def _lying(inner: ArrayType, index: Index, parts: list[Any]) -> Any:
    """How the elements at an index lie, as far as the Ref's type says how its lie. ShardingTypeError for parts along what devices divide."""
    own = inner.explicit
    if own is None:
        return None
    extents, lying = iter(inner.shape), iter((*own.spec.partitions, *[None] * inner.ndim))
    entries: list[Any] = []
    for part, taken in zip(index, parts):
        if part is None:
            entries.append(None)
            continue
        extent, entry = next(extents), next(lying)
        if entry is not None and part != Window(0, extent, 1):
            raise ShardingTypeError(
                f"sharded ref (array reference) can only be sliced along unsharded axes: a Ref of {inner} that lies as {own.spec} is "
                f"indexed by {part} along a dimension that {entry!r} divides; read it whole, or lay it out otherwise"
            )
        if isinstance(taken, np.ndarray) and any(own.spec.partitions):
            raise ShardingTypeError(
                f"sharded ref (array reference) can only be indexed by slices: a Ref of {inner} that lies as {own.spec} is indexed by an "
                "array; read it whole first, ref[...]"
            )
        if isinstance(part, Window):
            entries.append(entry)
    return own.with_entries(entries)


def _inner(name: str, ref: Any) -> ArrayType:
    if type(ref) is not AbstractRef:
        raise TypeRuleError(f"{name} takes a Ref, got {ref}")
    return ref.inner_aval


def _get_type(ref: Any, *indices: ArrayType, index: Index) -> ArrayType:
    return indexed_type(_inner("get", ref), index, indices)


def _written_type(name: str, ref: Any, value: ArrayType, indices: tuple[ArrayType, ...], index: Index) -> ArrayType:
    there = indexed_type(_inner(name, ref), index, indices)
    if (value.shape, value.dtype) != (there.shape, there.dtype):
        raise TypeRuleError(f"{name} writes values of type {there} at {index} of {ref}, got {value}")
    return there


def _swap_type(ref: Any, value: ArrayType, *indices: ArrayType, index: Index) -> ArrayType:
    return _written_type("swap", ref, value, indices, index)


def _addupdate_type(ref: Any, value: ArrayType, *indices: ArrayType, index: Index) -> tuple[ArrayType, ...]:
    _written_type("addupdate", ref, value, indices, index)
    return ()


def _new_ref(value: Any, memory_space: Any = None, kind: Any = None) -> Ref:
    return Ref(value, memory_space, kind)


def _freeze(cell: Any) -> Any:
    value = cell.value
    cell.close()
    return value


def _free(cell: Any) -> list[Any]:
    cell.close()
    return []


def _type_of_new(value: ArrayType, memory_space: Any = None, kind: Any = None) -> Any:
    return AbstractRef(value, memory_space, kind)


new_ref_p: Primitive = register(
    Primitive("new_ref", Fusion.CONTROL, type=_type_of_new, run=_new_ref, eval=_new_ref, discharge=_new_ref)
)
get_p: Primitive = register(Primitive("get", Fusion.CONTROL, type=_get_type))
swap_p: Primitive = register(Primitive("swap", Fusion.CONTROL, effect=True, type=_swap_type))
addupdate_p: Primitive = register(
    Primitive("addupdate", Fusion.CONTROL, effect=True, multiple_results=True, type=_addupdate_type)
)
freeze_p: Primitive = register(
    Primitive("freeze", Fusion.CONTROL, effect=True, type=lambda ref: _inner("freeze", ref), discharge=_freeze)
)
free_ref_p: Primitive = register(
    Primitive("free_ref", Fusion.CONTROL, effect=True, multiple_results=True, type=lambda ref: (), discharge=_free)
)
