"""The public functions that are universal ones, as jax.numpy has them: `add.reduce`, `maximum.accumulate`, `multiply.outer`.

Each keeps being the function that it is, replayed outside of traces; reductions that have a kernel of their own are that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.ir.primitive import Primitive
from fuser.ir.types import BOOL, is_complex
from fuser.lax.marks import stop_gradient
from fuser.lax.replayed import Replayed
from fuser.lax.values import as_value, axes_of, convert
from fuser.numpy import maths as M
from fuser.numpy import reductions as R
from fuser.numpy import ufuncs as U
from fuser.numpy.creation import asarray
from fuser.numpy.ufunc import ufunc
from fuser.ops import reduce as P
from fuser.runtime.core import native

Function = Callable[..., Any]


class Universal(Replayed, ufunc):
    """A replayed function with the methods and properties of a ufunc."""

    def __init__(self, function: Function, nin: int, **properties: Any) -> None:
        ufunc.__init__(self, function, nin, 1, call=function, **properties)
        Replayed.__init__(self, function)
        self._unrecorded = self._checked

    def _checked(self, *args: Any, out: None = None, where: None = None) -> Any:
        return ufunc.__call__(self, *args, out=out, where=where)

    __repr__ = ufunc.__repr__


def _bitwise(primitive: Primitive, combine: Function, everything: bool, truth: bool = False) -> Function:
    """The reduction by a bitwise operation whose neutral element has every bit set, or none; of `truth` values, if so said."""

    def reduction(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any = None, where: Any = None) -> Any:
        x = asarray(a) if dtype is None else asarray(a).astype(dtype)
        x = U.truth(x) if truth else x
        if x.dtype.kind not in "biu":
            raise ValueError(
                f"integer argument required; got dtype={x.dtype}: {combine.__name__} has no other reduction"
            )
        none = np.zeros((), x.dtype)
        masked = R._masked(combine.__name__, x, where, (np.invert(none) if everything else none).item())
        result = R._reduce(primitive, masked, axes_of(axis, x.ndim, combine.__name__), keepdims)
        return result if initial is None else combine(R._initial(initial, result), result)

    return reduction


def _extreme(reduction: Function) -> Function:
    def in_dtype(a: Any, axis: Any, dtype: Any, keepdims: bool, **options: Any) -> Any:
        return reduction(asarray(a) if dtype is None else asarray(a).astype(dtype), axis, keepdims=keepdims, **options)

    return in_dtype


def _of_exponents(exp: Function, log: Function, combine: Function) -> Function:
    """log Σ exp a, without overflow, to the base of these functions."""

    def reduction(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any = None, where: Any = None) -> Any:
        x = U.positive(asarray(a) if dtype is None else asarray(a).astype(dtype))
        x = x if x.dtype.kind in "fcV" else convert(x, np.dtype(np.float32))
        greatest = R.max(M.real(x), axis, keepdims=True, where=where, initial=-np.inf)
        greatest = stop_gradient(M.where(M.isfinite(greatest), greatest, 0).astype(greatest.dtype))
        shift = greatest.astype(x.dtype) if is_complex(x.dtype) else greatest
        total = R.sum(exp(U.subtract(x, shift)), axis, keepdims=keepdims, where=where)
        result = U.add(log(total), shift if keepdims else shift.reshape(total.shape))
        return result if initial is None else combine(as_value(initial), result)

    return reduction


def _at(update: str) -> Function:
    """The update of that name at indices, one after another; bools are numbers on the way."""

    def at(a: Any, indices: Any, b: Any) -> Any:
        x, values = asarray(a), asarray(b)
        if x.dtype == BOOL:
            x, values = convert(x, np.dtype(np.int32)), convert(values, np.dtype(np.int32))
            return getattr(x.at[indices], update)(values).astype(BOOL)
        return getattr(x.at[indices], update)(values)

    return at


_BINARY: dict[str, dict[str, Any]] = {
    "add": {"identity": 0, "reduce": R.sum, "accumulate": R.cumsum, "at": _at("add")},
    "subtract": {"identity": None, "at": _at("subtract")},
    "multiply": {"identity": 1, "reduce": R.prod, "accumulate": R.cumprod, "at": _at("multiply")},
    "bitwise_and": {"identity": -1, "reduce": _bitwise(P.reduce_and_p, U.bitwise_and, True)},
    "bitwise_or": {"identity": 0, "reduce": _bitwise(P.reduce_or_p, U.bitwise_or, False)},
    "bitwise_xor": {"identity": 0, "reduce": _bitwise(P.reduce_xor_p, U.bitwise_xor, False)},
    "logical_and": {"identity": True, "reduce": _bitwise(P.reduce_and_p, U.logical_and, True, truth=True)},
    "logical_or": {"identity": False, "reduce": _bitwise(P.reduce_or_p, U.logical_or, False, truth=True)},
    "logical_xor": {"identity": False, "reduce": _bitwise(P.reduce_xor_p, U.logical_xor, False, truth=True)},
    "maximum": {"identity": None, "reduce": _extreme(R.max)},
    "minimum": {"identity": None, "reduce": _extreme(R.min)},
    "logaddexp": {"identity": -np.inf, "reduce": _of_exponents(U.exp, U.log, M.logaddexp)},
    "logaddexp2": {"identity": -np.inf, "reduce": _of_exponents(U.exp2, U.log2, M.logaddexp2)},
}
NAMES = (*_BINARY, "negative")


def install(module: dict[str, Any]) -> None:
    """Make the functions of these names universal ones."""
    for name in NAMES:
        function, properties = module[name], _BINARY.get(name, {})
        nin = 2 if name in _BINARY else 1
        if native is None:
            module[name] = ufunc(function, nin, 1, call=function, **properties)
        else:
            module[name] = made = Universal(function, nin, **properties)
            made.__module__ = module["__name__"]  # where pickle finds it
            made.__qualname__ = name  # type: ignore[attr-defined]
