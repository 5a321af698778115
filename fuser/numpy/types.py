"""The classes that users name values by: `Array`, what arrays and traced values are; `float32` and its like, scalar types.

A scalar type stands for a dtype wherever one is taken, and called it makes an array of that dtype, of rank 0 for a number.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from fuser import dtypes
from fuser.numpy.creation import asarray
from fuser.runtime.array import Array as _Array
from fuser.trace.core import Tracer


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether the dtype `arg1` is `arg2`, or among those that it stands for, bfloat16 and the 8-bit floats counted as floating."""
    return dtypes.issubdtype(arg1, arg2)


class _ArrayClass(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (_Array, Tracer))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, _Array)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_Array, name)


class Array(metaclass=_ArrayClass):
    """What functions of fuser take and give: arrays, and the traced values that stand for them in jit, grad and vmap.

    For annotations and `isinstance`; arrays are made by `fuser.numpy.asarray` and its like.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Array cannot be instantiated; make arrays with fuser.numpy.asarray")


Array.__module__ = "fuser"


class _ScalarType(type):
    """The class of scalar types. They equal NumPy's of the same dtype, and hash as those do."""

    dtype: np.dtype

    @property
    def __numpy_dtype__(cls) -> np.dtype:
        return cls.dtype

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object) -> bool:
        return cls is other or bool(cls.dtype.type == other)

    def __ne__(cls, other: object) -> bool:
        return not cls == other

    def __call__(cls, x: Any) -> Any:
        return asarray(x, cls.dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)


SCALAR_TYPES: list[type] = []


def _scalar_type(name: str, of: Any) -> Any:
    dtype = np.dtype(of)
    text = f"The scalar type of {dtype.name}: stands for the dtype, and makes arrays of it."
    SCALAR_TYPES.append(_ScalarType(name, (), {"dtype": dtype, "__module__": "fuser.numpy", "__doc__": text}))
    return SCALAR_TYPES[-1]


bool_ = _scalar_type("bool", np.bool_)
int8, int16, int32, int64 = (_scalar_type(f"int{n}", f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (_scalar_type(f"uint{n}", f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (_scalar_type(f"float{n}", f"float{n}") for n in (16, 32, 64))
complex64, complex128 = (_scalar_type(f"complex{n}", f"complex{n}") for n in (64, 128))
int1, int2, int4 = (_scalar_type(f"int{n}", getattr(ml_dtypes, f"int{n}")) for n in (1, 2, 4))
uint1, uint2, uint4 = (_scalar_type(f"uint{n}", getattr(ml_dtypes, f"uint{n}")) for n in (1, 2, 4))
bfloat16 = _scalar_type("bfloat16", ml_dtypes.bfloat16)
float8_e4m3fn, float8_e5m2, float8_e4m3b11fnuz, float8_e4m3fnuz, float8_e5m2fnuz = (
    _scalar_type(f"float8_{name}", getattr(ml_dtypes, f"float8_{name}"))
    for name in ("e4m3fn", "e5m2", "e4m3b11fnuz", "e4m3fnuz", "e5m2fnuz")
)
float8_e3m4, float8_e4m3, float8_e8m0fnu = (
    _scalar_type(f"float8_{name}", getattr(ml_dtypes, f"float8_{name}")) for name in ("e3m4", "e4m3", "e8m0fnu")
)
float4_e2m1fn, float6_e2m3fn, float6_e3m2fn = (
    _scalar_type(f"float{name}", getattr(ml_dtypes, f"float{name}")) for name in ("4_e2m1fn", "6_e2m3fn", "6_e3m2fn")
)
