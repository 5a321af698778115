"""Refs under transforms: what each holds is a value of the transform's trace, and writing it changes that value.

A primitive that takes Refs has a `discharge` rule: the same by pure primitives, on *cells*, which have a `value` that can be
read and set, and `close()`. A concrete Ref is a cell; so are the tracers here, which keep a Ref of the trace around.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.ir.primitive import REGISTRY, Primitive
from fuser.ir.references import AbstractRef, whole
from fuser.ir.types import ArrayType
from fuser.runtime.reference import Ref
from fuser.trace.core import Trace, Tracer, forwarded, type_of, using


class Cell:
    """What a Ref holds while its reads and writes become values: nothing else knows it."""

    __slots__ = ("aval", "ended", "held", "written")

    def __init__(self, value: Any, aval: AbstractRef | None = None) -> None:
        self.held, self.written, self.ended = value, False, False
        self.aval = aval or AbstractRef(type_of(value))

    @property
    def value(self) -> Any:
        self._present()
        return self.held

    @value.setter
    def value(self, value: Any) -> None:
        self._present()
        self.held, self.written = value, True

    def close(self) -> None:
        """What it holds is not asked for again."""
        self._present()
        self.ended = True

    def _present(self) -> None:
        if self.ended:
            raise ValueError("a Ref is used after freeze or free_ref has ended it; make another with new_ref")


class PartOfRef:
    """What stands for some elements of a Ref: `fuser.ref.views.RefView`."""


class Outside:
    """A Ref that the trace does not follow, as a cell: `follows(value)` says which values it cannot hold, `refusal` why."""

    def __init__(self, trace: Any, ref: Any, follows: Callable[[Any], bool], refusal: str) -> None:
        self.trace, self.ref, self.follows, self.refusal = trace, ref, follows, refusal
        self.aval = type_of(ref)

    @property
    def value(self) -> Any:
        return read(self.trace.parent, self.ref)

    @value.setter
    def value(self, value: Any) -> None:
        if self.follows(value):
            raise ValueError(self.refusal.format(self.aval.str_long()))
        write(self.trace.parent, self.ref, value)

    def close(self) -> None:
        end(self.trace.parent, self.ref)


def is_ref(value: Any) -> bool:
    """Whether the value is a Ref, or a tracer of one."""
    return type(value) is Ref or (isinstance(value, Tracer) and type(value.aval) is AbstractRef)


def array_type(aval: Any) -> ArrayType:
    """The type, or of a Ref's the type of what it holds."""
    return aval.inner_aval if type(aval) is AbstractRef else aval


def read(parent: Trace, ref: Any) -> Any:
    """What a Ref of the parent trace holds."""
    return forwarded(parent, REGISTRY["get"], (ref,), {"index": whole(type_of(ref).shape)})


def write(parent: Trace, ref: Any, value: Any) -> None:
    """Let a Ref of the parent trace hold the value."""
    forwarded(parent, REGISTRY["swap"], (ref, value), {"index": whole(type_of(ref).shape)})


def end(parent: Trace, ref: Any) -> None:
    """End a Ref of the parent trace."""
    forwarded(parent, REGISTRY["free_ref"], (ref,), {})


def makes_ref(primitive: Primitive) -> bool:
    """Whether the primitive makes a Ref of its operand."""
    return primitive is REGISTRY.get("new_ref")


def discharged(
    trace: Any, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any], cell: Callable[[Any], Any]
) -> Any:
    """The primitive by pure ones under the trace; `cell` makes one of a Ref that the trace does not follow."""
    cells: dict[int, Any] = {}

    def operand(value: Any) -> Any:
        if not is_ref(value) or (getattr(value, "_trace", None) is trace and hasattr(type(value), "value")):
            return value
        if id(value) not in cells:
            cells[id(value)] = cell(value)
        return cells[id(value)]

    operands = [operand(a) for a in args]
    with using(trace):
        return primitive.rule("discharge")(*operands, **params)
