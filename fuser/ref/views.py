"""`ref.at[index]`: a part of a Ref, which is read and written as a Ref is, and belongs to it."""

from __future__ import annotations

from typing import Any

from fuser.ir.references import AbstractRef
from fuser.ir.types import Typed
from fuser.trace.core import type_of


class RefView(Typed):
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
