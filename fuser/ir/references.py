"""`AbstractRef`: the type of a reference to memory that changes, and the parts of an index into one.

A Ref is a value of a graph like any other; what reads and writes it are equations, which happen in the order of the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fuser.ir.text import param_type
from fuser.ir.types import ArrayType


@dataclass(frozen=True, slots=True)
class AbstractRef:
    """The type of a Ref to an array of type `inner_aval`, in the given memory space; None is the device's memory."""

    inner_aval: ArrayType
    memory_space: Any = None
    kind: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner_aval.shape

    @property
    def dtype(self) -> np.dtype:
        return self.inner_aval.dtype

    @property
    def ndim(self) -> int:
        return self.inner_aval.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.inner_aval.size

    @property
    def nbytes(self) -> int:
        return self.inner_aval.nbytes

    @property
    def weak_type(self) -> bool:
        return self.inner_aval.weak_type

    @property
    def vma(self) -> frozenset[Any]:
        return self.inner_aval.vma

    @property
    def explicit(self) -> Any:
        return self.inner_aval.explicit

    @property
    def sharding(self) -> Any:
        return self.inner_aval.sharding

    def _of(self, inner: ArrayType) -> AbstractRef:
        return AbstractRef(inner, self.memory_space, self.kind)

    def update(self, inner_aval: ArrayType | None = None, **fields: Any) -> AbstractRef:
        """This type with another inner type, or with some fields of it replaced, as `ArrayType.update`."""
        return self._of(inner_aval or self.inner_aval.update(**fields))

    def without(self, dim: int) -> AbstractRef:
        """The type of a Ref to what stands along a dimension."""
        return self._of(self.inner_aval.without(dim))

    def along(self, dim: int, size: int) -> AbstractRef:
        """The type of a Ref to so many values along a new dimension."""
        return self._of(self.inner_aval.along(dim, size))

    def to_tangent_aval(self) -> AbstractRef:
        return self._of(self.inner_aval.to_tangent_aval())

    def str_short(self) -> str:
        """As in a jaxpr: `Ref{f32[3]}`, with the memory space where there is one."""
        space = "" if self.memory_space is None else f"<{self.memory_space}>"
        return f"Ref{space}{{{self.inner_aval.plain()}}}"

    def str_long(self) -> str:
        """As JAX names types in messages: `Ref{float32[3]}`."""
        return f"Ref{{{self.inner_aval.str_long()}}}"

    __str__ = plain = str_short


@param_type
class Window(NamedTuple):
    """`size` positions along a dimension from `start` on, `stride` apart; the start is an operand where it is None."""

    start: int | None
    size: int
    stride: int = 1


@param_type
class At(NamedTuple):
    """One position along a dimension; where it is None, an operand: a position, or an array of them."""

    position: int | None


Index = tuple[Window | At | None, ...]  # one a dimension; None is a new dimension of what is read


def whole(shape: tuple[int, ...]) -> Index:
    """The index of everything."""
    return tuple(Window(0, extent, 1) for extent in shape)
