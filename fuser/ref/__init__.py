"""jax.ref's names: references to memory that changes, `ref[index]` to read and `ref[index] = value` to write.

Effects happen in the order of the program, in jit, loops and branches too. Programs are made of values before they are
optimised (ops/discharge.py), so that kernels know no Refs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuser import dtypes
from fuser.ir.references import AbstractRef
from fuser.ir.types import short_dtype
from fuser.lax.values import as_value, broadcast_to, convert, python_scalar
from fuser.numpy.indexing import getitem
from fuser.ops import discharge as discharge
from fuser.ops.sharding import sharding_constraint_p
from fuser.ops.state import addupdate_p, free_ref_p, freeze_p, get_p, new_ref_p, swap_p
from fuser.ref import access as access
from fuser.ref.indices import parsed
from fuser.ref.views import RefHelper
from fuser.runtime.array import Array, alias
from fuser.runtime.reference import Ref
from fuser.trace.cells import is_ref
from fuser.trace.core import Tracer, type_of

__all__ = ["AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set", "swap"]


def new_ref(init_val: Any, *, memory_space: Any = None, kind: Any = None) -> Any:
    """A new Ref that holds `init_val`; the array that it was made of stays as it is."""
    if kind not in (None, "no_grad_no_remat"):
        raise ValueError(f"new_ref takes None or 'no_grad_no_remat' as kind, got {kind!r}")
    if is_ref(init_val):
        raise ValueError("new_ref takes an array, got a Ref; read it first: new_ref(ref[...])")
    value = as_value(init_val, "new_ref")
    if type_of(value).weak_type:
        value = convert(value, value.dtype)
    return new_ref_p.bind(value, memory_space=memory_space, kind=kind)


def empty_ref(ty: Any, memory_space: Any = None) -> Any:
    """A new Ref to an array of the shape and dtype of `ty`, whose elements are to be written before they are read; they are zeros."""
    from fuser.numpy.creation import zeros

    return new_ref(zeros(ty.shape, ty.dtype), memory_space=memory_space)


def freeze(ref: Any) -> Any:
    """What the Ref holds; it cannot be used afterwards."""
    return freeze_p.bind(_checked(ref, "freeze"))


def free_ref(ref: Any) -> None:
    """End the Ref; it cannot be used afterwards."""
    free_ref_p.bind(_checked(ref, "free_ref"))


def get(ref: Any, idx: Any = None) -> Any:
    """`ref[idx]`: the elements there. Positions that are traced are clamped into bounds."""
    index, indices = parsed(... if idx is None else idx, _checked(ref, "get").shape)
    found = get_p.bind(ref, *indices, index=index)
    return alias(found) if type(found) is Array else found


def swap(ref: Any, idx: Any, value: Any, _function_name: str = "swap") -> Any:
    """Write `value` at `idx`, broadcast to the shape there, and give what stood there before.

    ValueError for a dtype that is not the Ref's; Python numbers adapt.
    """
    index, indices = parsed(... if idx is None else idx, _checked(ref, _function_name).shape)
    return swap_p.bind(ref, _fitting(ref, value, index, indices, _function_name), *indices, index=index)


def set(ref: Any, idx: Any, value: Any) -> None:
    """`ref[idx] = value`."""
    swap(ref, idx, value, "set")


def addupdate(ref: Any, idx: Any, x: Any) -> None:
    """Add `x` to the elements at `idx`."""
    index, indices = parsed(... if idx is None else idx, _checked(ref, "addupdate").shape)
    addupdate_p.bind(ref, _fitting(ref, x, index, indices, "addupdate"), *indices, index=index)


def _checked(ref: Any, name: str) -> Any:
    if not is_ref(ref):
        raise ValueError(f"{name} takes a Ref, got a {type(ref).__name__}; make one with new_ref")
    return ref


def _fitting(ref: Any, value: Any, index: Any, indices: Any, name: str, masked: bool = False) -> Any:
    """The value in the Ref's dtype and the shape of what it replaces."""
    from fuser.ops.state import indexed_type

    there = indexed_type(type_of(ref).inner_aval, index, tuple(type_of(i) for i in indices), masked)  # type: ignore[attr-defined]
    if is_ref(value):
        raise ValueError("Cannot store a Ref into another Ref: read it first, with ref[...]")
    scalar = python_scalar(value)
    value = as_value(value, name)
    found = type_of(value)
    if found.dtype != there.dtype:
        joined, _ = dtypes.result_of((found.dtype, found.weak_type or scalar), (there.dtype, False))
        if joined != there.dtype:
            raise ValueError(
                f"Invalid dtype for `{name}`: a Ref of {short_dtype(there.dtype)} cannot take a value of {short_dtype(found.dtype)}; "
                f"Ref dtype: {there.dtype}. Value dtype: {found.dtype}; convert it with astype"
            )
    if found.shape != there.shape:
        try:
            value = broadcast_to(value, there.shape)
        except (TypeError, ValueError):
            raise ValueError(
                f"Invalid shape for `{name}`: a value of shape {found.shape} does not broadcast to the shape {there.shape} of what is "
                f"indexed. Ref shape: {type_of(ref).shape}. Expected shape: {there.shape}. Value shape: {found.shape}"
            ) from None
    value = convert(value, there.dtype)
    if there.explicit is not None and type_of(value).explicit != there.explicit:
        value = sharding_constraint_p.bind(value, sharding=there.explicit)
    return value


# Indexing, on Refs and on tracers.


def _tracer_item(self: Any, index: Any) -> Any:
    return get(self, index) if type(self.aval) is AbstractRef else getitem(self, index)


_refuse_assignment = Tracer.__setitem__


def _tracer_assign(self: Any, index: Any, value: Any) -> None:
    if type(self.aval) is AbstractRef:
        set(self, index, value)
    else:
        _refuse_assignment(self, index, value)


def _rows(self: Any) -> Iterator[Any]:
    return (self[n] for n in range(len(self)))


_array_at = Tracer.at  # type: ignore[attr-defined]


def _tracer_at(self: Any) -> Any:
    return RefHelper(self) if type(self.aval) is AbstractRef else _array_at.fget(self)


Tracer.at = property(_tracer_at, doc=_array_at.__doc__)  # type: ignore[attr-defined]
Ref.at = property(RefHelper, doc="ref.at[index]: a part of the Ref.")  # type: ignore[attr-defined]
for _method, _function in (("__getitem__", _tracer_item), ("__setitem__", _tracer_assign)):
    setattr(Tracer, _method, _function)
for _method, _accessor in (("__getitem__", get), ("__setitem__", set), ("__iter__", _rows)):
    setattr(Ref, _method, _accessor)

Ref.aval = property(type_of, doc="The type.")  # type: ignore[attr-defined]
