"""`ref.at[index]`: a part of a Ref, which is read and written as a Ref is, and belongs to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.ir.references import AbstractRef
from fuser.ir.types import Typed
from fuser.trace import tree
from fuser.trace.cells import PartOfRef
from fuser.trace.core import type_of


class RefView(Typed, PartOfRef):
    """The elements of a Ref at an index. `view[index]` reads and writes among them; `view.at[index]` is a part of them."""

    def __init__(self, ref: Any, index: Any) -> None:
        self.ref, self.index = ref, index

    @property
    def aval(self) -> AbstractRef:  # type: ignore[override]
        from fuser.ops.state import indexed_type
        from fuser.ref.indices import parsed

        found, indices = parsed(self.index, self.ref.shape)
        inner = type_of(self.ref).inner_aval if not isinstance(self.ref, RefView) else self.ref.aval.inner_aval  # type: ignore[attr-defined]
        return AbstractRef(indexed_type(inner, found, tuple(type_of(i) for i in indices)))

    @property
    def at(self) -> RefHelper:
        """`view.at[index]`."""
        return RefHelper(self)

    def __getitem__(self, index: Any) -> Any:
        from fuser.ref import access
        from fuser.ref.indices import parsed

        there = _read(self.ref, self.index)
        found, indices = parsed(index, there.shape)
        return access.elements(there, found, indices)

    def __setitem__(self, index: Any, value: Any) -> None:
        from fuser.lax.values import as_value, broadcast_to, convert
        from fuser.ops.state import indexed_type
        from fuser.ref import access
        from fuser.ref.indices import parsed

        there = _read(self.ref, self.index)
        found, indices = parsed(index, there.shape)
        shape = indexed_type(type_of(there), found, tuple(type_of(i) for i in indices)).shape
        value = broadcast_to(convert(as_value(value), there.dtype), shape)
        self.ref[self.index] = access.replaced(there, value, found, indices)


def _flat(view: RefView) -> tuple[list[Any], tuple[Any, ...]]:
    """The Ref and the parts of the index that are arrays; and the rest, which is hashable."""
    parts = view.index if isinstance(view.index, tuple) else (view.index,)
    arrays: list[Any] = [view.ref]
    forms = tuple(_form(part, arrays) for part in parts)
    return arrays, (isinstance(view.index, tuple), forms)


def _form(part: Any, arrays: list[Any]) -> Any:
    from fuser.ref.indices import Slice

    if isinstance(part, slice):
        return "slice", part.start, part.stop, part.step
    start = part.start if isinstance(part, Slice) else part
    traced = hasattr(start, "dtype") or isinstance(start, list)
    if traced:
        arrays.append(np.asarray(start) if isinstance(start, list) else start)
    if isinstance(part, Slice):
        return "ds", None if traced else start, part.size, part.stride
    return ("array",) if traced else ("static", part)


def _unflat(static: tuple[Any, ...], leaves: Any) -> RefView:
    from fuser.ref.indices import Slice

    ref, *arrays = leaves
    several, forms = static
    given = iter(arrays)
    made = {
        "slice": slice,
        "ds": lambda start, size, stride: Slice(next(given) if start is None else start, size, stride),
        "array": lambda: next(given),
        "static": lambda part: part,
    }
    parts = tuple(made[kind](*rest) for kind, *rest in forms)  # type: ignore[operator]
    return RefView(ref, parts if several else parts[0])


tree.register_pytree_node(RefView, _flat, _unflat)


class RefHelper:
    """What `ref.at` is: index it for a part of the Ref."""

    def __init__(self, ref: Any) -> None:
        self.ref = ref

    def __getitem__(self, index: Any) -> RefView:
        return RefView(self.ref, index)


def _read(ref: Any, index: Any) -> Any:
    return ref[index]


def whole_ref(ref: Any, index: Any) -> tuple[Any, Any]:
    """A Ref and an index, for a Ref or a part of one; a part of a part is refused."""
    if not isinstance(ref, RefView):
        return ref, index
    if isinstance(ref.ref, RefView) or (index is not None and index is not Ellipsis):
        raise NotImplementedError("a part of a part of a Ref is read by view[index]; give load and store one index")
    return ref.ref, ref.index
