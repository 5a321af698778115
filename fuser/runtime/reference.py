"""`Ref`: a reference to memory that changes, outside of programs: one Array after the other.

Indexing reads it, and assignment to an index writes it; both are put on the class by `fuser.ref`. It is never an Array.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class _RefMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        """Tracers of references are Refs too."""
        return type.__instancecheck__(cls, instance) or hasattr(getattr(instance, "aval", None), "inner_aval")


class Ref(metaclass=_RefMeta):
    """A reference to an array, made by `new_ref`. `ref[index]` reads it, `ref[index] = value` writes it.

    Functions that are compiled read what it holds when they are called, and leave in it what they have written. It has the
    same type as long as it lives. ValueError for use after `freeze` or `free_ref`.
    """

    __slots__ = ("__weakref__", "_array", "_weak_type", "kind", "memory_space")
    __hash__ = object.__hash__

    def __init__(self, array: Any, memory_space: Any = None, kind: Any = None) -> None:
        self._array = array
        self._weak_type = bool(array.weak_type)
        self.memory_space = memory_space
        self.kind = kind

    @property
    def value(self) -> Any:
        """The array that it holds now."""
        if self._array is None:
            raise ValueError("a Ref is used after freeze or free_ref has ended it; make another with new_ref")
        return self._array

    @value.setter
    def value(self, array: Any) -> None:
        self.value  # noqa: B018  one that has ended is not written
        self._array = array

    def close(self) -> None:
        """End it: every later use raises."""
        self.value  # noqa: B018
        self._array = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = self.value.dtype
        return found

    @property
    def weak_type(self) -> bool:
        return self._weak_type

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.value.size)

    @property
    def sharding(self) -> Any:
        return self.value.sharding

    def unsafe_buffer_pointer(self) -> int:
        """The address of the first element of what it holds now."""
        return int(self.value.unsafe_buffer_pointer())

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return "Ref(ended)" if self._array is None else f"Ref{repr(self._array).removeprefix('Array')}"
