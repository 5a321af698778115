"""Operators, methods and properties of arrays, put on both `Array` and `Tracer` when `fuser.numpy` is imported.

A table maps each name to the function of `fuser.numpy` that it is; an operator gives NotImplemented for what is no array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.lax.layouts import sharded
from fuser.lax.results import distinct
from fuser.lax.values import VALUES
from fuser.numpy import creation, linear, maths, movement, reductions, selection, sorting, ufuncs
from fuser.numpy.at import IndexUpdateHelper
from fuser.numpy.indexing import getitem
from fuser.ops.elementwise import bitcast_convert_type_p, copy_p
from fuser.runtime.array import install
from fuser.trace.core import Tracer, bind

Function = Callable[..., Any]

_OPERATORS: dict[str, Function] = {
    "add": ufuncs.add,
    "sub": ufuncs.subtract,
    "mul": ufuncs.multiply,
    "truediv": ufuncs.true_divide,
    "floordiv": maths.floor_divide,
    "mod": maths.remainder,
    "divmod": maths.divmod,
    "pow": ufuncs.power,
    "matmul": linear.matmul,
    "and": ufuncs.bitwise_and,
    "or": ufuncs.bitwise_or,
    "xor": ufuncs.bitwise_xor,
    "lshift": ufuncs.left_shift,
    "rshift": ufuncs.right_shift,
}
_COMPARISONS: dict[str, Function] = {
    "eq": ufuncs.equal,
    "ne": ufuncs.not_equal,
    "lt": ufuncs.less,
    "le": ufuncs.less_equal,
    "gt": ufuncs.greater,
    "ge": ufuncs.greater_equal,
}
_UNARY: dict[str, Function] = {
    "neg": ufuncs.negative,
    "pos": ufuncs.positive,
    "invert": ufuncs.bitwise_not,
    "abs": ufuncs.absolute,
}
_METHODS: dict[str, Function] = {
    **{
        n: getattr(reductions, n) for n in ("all", "any", "argmax", "argmin", "cumprod", "cumsum", "max", "mean", "min")
    },
    **{n: getattr(reductions, n) for n in ("prod", "ptp", "std", "sum", "var")},
    **{n: getattr(movement, n) for n in ("ravel", "repeat", "squeeze", "swapaxes")},
    **{n: getattr(sorting, n) for n in ("argsort", "searchsorted", "sort")},
    **{n: getattr(linear, n) for n in ("diagonal", "dot", "trace")},
    "clip": maths.clip,
    "conj": maths.conjugate,
    "conjugate": maths.conjugate,
    "round": ufuncs.round,
    "take": selection.take,
}


def _accepted(value: Any) -> bool:
    """Whether an operator takes `value` as its other operand."""
    if isinstance(value, (bool, int, float, complex, np.ndarray, np.generic)):
        return True
    return hasattr(value, "__jax_array__") or (hasattr(value, "__array__") and not isinstance(value, (list, tuple)))


def _forward(function: Function) -> Function:
    def method(self: Any, other: Any) -> Any:
        if isinstance(other, VALUES) or _accepted(other):
            return function(self, other)
        return NotImplemented

    return method


def _reflected(function: Function) -> Function:
    def method(self: Any, other: Any) -> Any:
        if isinstance(other, VALUES) or _accepted(other):
            return function(other, self)
        return NotImplemented

    return method


def _method(function: Function) -> Function:
    function = distinct(function)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    return method


_raised = _forward(distinct(ufuncs.power))


def _power(self: Any, other: Any, modulus: Any = None) -> Any:
    if modulus is not None:
        raise NotImplementedError("pow of arrays takes no modulus")
    return _raised(self, other)


@sharded
def _reshape(self: Any, *args: Any, order: str = "C", copy: bool | None = None, out_sharding: Any = None) -> Any:
    """The elements in another shape, given as a tuple or as extents."""
    return movement.reshape(self, args[0] if len(args) == 1 else args, order, copy=copy)


def _transpose(self: Any, *args: Any) -> Any:
    """The dimensions reversed, or in the order of `args`."""
    if not args or args == (None,):
        return movement.transpose(self)
    return movement.transpose(self, args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args)


def _flatten(self: Any, order: str = "C") -> Any:
    """The elements in one dimension."""
    return movement.ravel(self, order)


def _copy(self: Any) -> Any:
    """An array with memory of its own."""
    return bind(copy_p, self)


def _astype(self: Any, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    """This array in another dtype."""
    return creation.astype(self, dtype, copy=copy)


def _view(self: Any, dtype: Any = None) -> Any:
    """The same bits read as another dtype."""
    if dtype is None:
        return self
    wanted = dtypes.requested(dtype, "view")
    old, new = self.dtype.itemsize, wanted.itemsize
    if old == new or self.dtype == wanted:
        return self if self.dtype == wanted else bind(bitcast_convert_type_p, self, new_dtype=wanted)
    if not self.ndim or self.shape[-1] * old % new:
        raise ValueError(
            f"view of shape {self.shape} as {wanted.name}: the last dimension's bytes are no multiple of {new}"
        )
    if old < new:
        grouped = movement.reshape(self, (*self.shape[:-1], self.shape[-1] * old // new, new // old))
        return bind(bitcast_convert_type_p, grouped, new_dtype=wanted)
    spread = bind(bitcast_convert_type_p, self, new_dtype=wanted)
    return movement.reshape(spread, (*self.shape[:-1], self.shape[-1] * old // new))


def _nonzero(self: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The positions of the nonzero elements, one array a dimension."""
    from fuser.numpy.sets import nonzero

    return nonzero(self, size=size, fill_value=fill_value)


def _round(self: Any, ndigits: int | None = None) -> Any:
    return creation.astype(ufuncs.round(self), int) if ndigits is None else ufuncs.round(self, ndigits)


def _matrix_transposed(self: Any) -> Any:
    return movement.matrix_transpose(self)


def _iterate(self: Any) -> Any:
    if not self.shape:
        raise TypeError("iteration over a 0-d array")
    return iter(movement.unstack(self))


def _table() -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, function in _OPERATORS.items():
        members[f"__{name}__"] = _forward(function)
        members[f"__r{name}__"] = _reflected(function)
    members["__pow__"] = _power
    members.update({f"__{name}__": _forward(function) for name, function in _COMPARISONS.items()})
    members.update({f"__{name}__": _method(function) for name, function in _UNARY.items()})
    members.update({name: _method(function) for name, function in _METHODS.items()})
    members.update(
        reshape=distinct(_reshape),
        transpose=_transpose,
        flatten=distinct(_flatten),
        copy=_copy,
        astype=_astype,
        view=_view,
    )
    members.update(nonzero=_nonzero, __round__=distinct(_round), __getitem__=getitem)
    members["T"] = property(movement.transpose, doc="The dimensions reversed.")
    members["mT"] = property(_matrix_transposed, doc="The last two dimensions swapped.")
    members["real"] = property(distinct(maths.real), doc="The real part.")
    members["imag"] = property(maths.imag, doc="The imaginary part.")
    members["at"] = property(
        IndexUpdateHelper, doc="x.at[index].set(value) and its relatives: updates that give a new array."
    )
    return members


def install_methods() -> None:
    """Put every operator, method and property on Array and Tracer."""
    for name, member in _table().items():
        install(name, member)
        setattr(Tracer, name, member)
    Tracer.__iter__ = _iterate  # type: ignore[method-assign]


install_methods()
