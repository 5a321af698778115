"""`ShapeDtypeStruct`: the shape and dtype of an array that need not exist, for `eval_shape`, `lower` and `trace`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser import dtypes
from fuser.ir.types import ArrayType, short_dtype
from fuser.trace.core import type_of


class ShapeDtypeStruct(ArrayType):
    """A shape and a dtype, and how the array lies (`sharding`); equal to the ArrayType of the same shape and dtype.

    TypeError for a shape that is no sequence, ValueError without a dtype.
    """

    __slots__ = ("sharding",)
    sharding: Any

    def __init__(
        self, shape: Any, dtype: Any, *, sharding: Any = None, weak_type: bool = False, vma: Any = None
    ) -> None:
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        found = dtypes._dtype(dtype)
        super().__init__(tuple(shape), found, bool(weak_type), frozenset() if vma is None else frozenset(vma))
        entries = len(getattr(getattr(sharding, "spec", sharding), "partitions", ()))
        if entries > len(self.shape):
            raise ValueError(
                f"ShapeDtypeStruct: sharding {sharding} is only valid for values of rank at least {entries}, but was applied to a value "
                f"of rank {len(self.shape)}"
            )
        object.__setattr__(self, "sharding", sharding)

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The shape, dtype and weak type of an array, and its sharding where it was put there."""
        aval = type_of(x)
        sharding = getattr(x, "sharding", None) if getattr(x, "_committed", True) else None
        return cls(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=sharding, vma=aval.vma)

    @classmethod
    def of(cls, aval: ArrayType, sharding: Any = None) -> ShapeDtypeStruct:
        """An ArrayType by the name that users have for it, and how values of it lie: as the type says, unless told."""
        lies = aval.explicit if sharding is None else sharding
        return cls(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=lies, vma=aval.vma)

    def update(self, **changes: Any) -> ShapeDtypeStruct:  # type: ignore[override]
        """This one with some fields replaced."""
        fields = {name: getattr(self, name) for name in ("shape", "dtype", "weak_type", "vma", "sharding")}
        return ShapeDtypeStruct(**(fields | changes))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArrayType):
            return False
        mine, theirs = ((a.shape, a.dtype, a.weak_type, a.vma) for a in (self, other))
        lies = other.sharding if isinstance(other, ShapeDtypeStruct) else other.explicit
        return mine == theirs and self.sharding == lies

    __hash__ = ArrayType.__hash__

    def __repr__(self) -> str:
        name = short_dtype(self.dtype) if self.dtype.names else self.dtype.name
        parts = [f"shape={self.shape}", f"dtype={name}"]
        parts += [f"sharding={self.sharding}"] if self.sharding is not None else []
        parts += ["weak_type=True"] if self.weak_type else []
        return f"ShapeDtypeStruct({', '.join(parts)})"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        return _made, (self.shape, self.dtype, self.weak_type, self.vma, self.sharding)


def _made(shape: Any, dtype: np.dtype, weak_type: bool, vma: Any, sharding: Any) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(shape, dtype, weak_type=weak_type, vma=vma, sharding=sharding)


def declared_type(leaf: Any) -> ArrayType:
    """The type that a result of foreign code is said to have. ValueError for 64-bit types that are disabled."""
    dtype = np.dtype(leaf.dtype)
    if dtypes.canonical(dtype) != dtype:
        raise ValueError("result_shape_dtypes cannot specify 64-bit types when `jax_enable_x64` is disabled")
    return ArrayType(tuple(leaf.shape), dtype)
