"""Operators, methods and properties of arrays, put on both `Array` and `Tracer` when `fuser.numpy` is imported.

A table maps each name to the function of `fuser.numpy` that it is; an operator gives NotImplemented for what is no array.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.ir.types import BOOL, bits_of, is_complex
from fuser.lax.layouts import sharded
from fuser.lax.replayed import replayed
from fuser.lax.results import distinct
from fuser.lax.values import VALUES, as_value
from fuser.numpy import creation, linear, maths, movement, reductions, selection, sorting, ufuncs
from fuser.numpy.at import IndexUpdateHelper
from fuser.numpy.indexing import getitem
from fuser.ops.elementwise import bitcast_convert_type_p, complex_p, copy_p
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
    **{n: getattr(sorting, n) for n in ("argpartition", "argsort", "searchsorted", "sort")},
    **{n: getattr(linear, n) for n in ("diagonal", "dot", "trace")},
    "choose": selection.choose,
    "clip": maths.clip,
    "conj": maths.conjugate,
    "conjugate": maths.conjugate,
    "round": ufuncs.round,
    "take": selection.take,
}


# Python's containers, which lists' own operators and a comparison by identity would otherwise take.
_REFUSED = (list, tuple, dict, set)
_SYMBOLS = dict(
    zip(  # not those of order, which Python refuses itself
        (*_OPERATORS, *_COMPARISONS),
        ["+", "-", "*", "/", "//", "%", "divmod()", "**", "@", "&", "|", "^", "<<", ">>", "==", "!="],
    )
)


def _accepted(value: Any) -> bool:
    """Whether an operator takes `value` as its other operand."""
    if isinstance(value, (bool, int, float, complex, np.ndarray, np.generic)):
        return True
    return hasattr(value, "__jax_array__") or (hasattr(value, "__array__") and not isinstance(value, (list, tuple)))


def _refused(left: Any, right: Any, symbol: str) -> TypeError:
    names = f"{type(left).__name__!r} and {type(right).__name__!r}"
    return TypeError(
        f"unsupported operand type(s) for {symbol}: {names}; an array takes arrays and numbers: make an array of the other, "
        "with fuser.numpy.array"
    )


def _forward(function: Function, symbol: str | None) -> Function:
    def method(self: Any, other: Any) -> Any:
        if isinstance(other, VALUES) or _accepted(other):
            return function(self, other)
        if symbol is not None and isinstance(other, _REFUSED):
            raise _refused(self, other, symbol)
        return NotImplemented

    return method


def _reflected(function: Function, symbol: str) -> Function:
    def method(self: Any, other: Any) -> Any:
        if isinstance(other, VALUES) or _accepted(other):
            return function(other, self)
        if isinstance(other, _REFUSED):
            raise _refused(other, self, symbol)
        return NotImplemented

    return method


def _method(function: Function, fast: Function) -> Function:
    function = fast(distinct(function))

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    method.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return method


_raised = _forward(distinct(ufuncs.power), "**")


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


def _astype(x: Any, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    """This array in another dtype."""
    return creation.astype(x, dtype, copy=copy, device=device)


def _view(self: Any, dtype: Any = None) -> Any:
    """The same bits read as another dtype."""
    if dtype is None:
        return self
    wanted = dtypes.requested(dtype, "view")
    old, new = bits_of(self.dtype), bits_of(wanted)
    if self.dtype == wanted:
        return self
    if not self.ndim:
        if old != new:
            raise ValueError("view() of a 0d array is only supported if the itemsize is unchanged.")
        return movement.reshape(_view(movement.reshape(self, (1,)), wanted), ())
    if self.shape[-1] * old % new:
        raise ValueError(
            "When changing to a larger dtype, its size must be a divisor of the total size in bytes of the last axis of the array: "
            f"view of shape {self.shape} as {wanted.name}"
        )
    if self.dtype == BOOL or is_complex(self.dtype):
        return _view(creation.astype(self, np.uint8) if self.dtype == BOOL else _interleaved(self), wanted)
    if wanted == BOOL:
        return creation.astype(_view(self, np.uint8), BOOL)
    if is_complex(wanted):
        parts = _view(self, f"float{new // 2}")
        return bind(complex_p, parts[..., 0::2], parts[..., 1::2])
    if old < new:
        grouped = movement.reshape(self, (*self.shape[:-1], self.shape[-1] * old // new, new // old))
        return bind(bitcast_convert_type_p, grouped, new_dtype=wanted)
    spread = bind(bitcast_convert_type_p, self, new_dtype=wanted)
    return spread if old == new else movement.reshape(spread, (*self.shape[:-1], self.shape[-1] * old // new))


def _interleaved(x: Any) -> Any:
    """Complex numbers as their real and imaginary parts in turn, along the last dimension."""
    return movement.reshape(movement.stack([x.real, x.imag], -1), (*x.shape[:-1], 2 * x.shape[-1]))


def _contains(self: Any, other: Any) -> Any:
    """Whether an element of the vector equals the number."""
    if other is None or isinstance(other, str):
        raise TypeError(f"Array.__contains__: unsupported operand type {type(other)}.")
    query = as_value(other, "Array.__contains__")
    if self.ndim != 1:
        raise ValueError(f"Array.__contains__: search array must be one-dimensional, got arr.shape={self.shape}.")
    if query.ndim:
        raise ValueError(f"Array.__contains__: query value must be a scalar, got query.shape={query.shape}")
    return reductions.any(ufuncs.equal(self, query))


def _nonzero(self: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The positions of the nonzero elements, one array a dimension."""
    from fuser.numpy.sets import nonzero

    return nonzero(self, size=size, fill_value=fill_value)


def _compress(
    self: Any,
    condition: Any,
    axis: int | None = None,
    *,
    out: None = None,
    size: int | None = None,
    fill_value: Any = 0,
) -> Any:
    """The slices along `axis` where `condition` holds; see fuser.numpy.compress."""
    return selection.compress(condition, self, axis, size=size, fill_value=fill_value, out=out)


def _round(self: Any, ndigits: int | None = None) -> Any:
    return creation.astype(ufuncs.round(self), int) if ndigits is None else ufuncs.round(self, ndigits)


def _matrix_transposed(self: Any) -> Any:
    return movement.matrix_transpose(self)


def _iterate(self: Any) -> Any:
    if not self.shape:
        raise TypeError("iteration over a 0-d array")
    return iter(movement.unstack(self))


def _table(fast: Function) -> dict[str, Any]:
    """The members; `fast` goes around functions."""
    members: dict[str, Any] = {}
    for name, function in _OPERATORS.items():
        called = function if name == "pow" else fast(function)  # which looks at the exponent
        members[f"__{name}__"] = _forward(called, _SYMBOLS[name])
        members[f"__r{name}__"] = _reflected(called, _SYMBOLS[name])
    members["__pow__"] = _power
    comparisons = {f"__{name}__": _forward(fast(f), _SYMBOLS.get(name)) for name, f in _COMPARISONS.items()}
    members.update(comparisons)
    members.update({f"__{name}__": _method(function, fast) for name, function in _UNARY.items()})
    members.update({name: _method(function, fast) for name, function in _METHODS.items()})
    members.update(
        reshape=distinct(_reshape),
        transpose=_transpose,
        flatten=distinct(_flatten),
        copy=_copy,
        astype=fast(_astype),
        view=_view,
        compress=_compress,
    )
    members.update(nonzero=_nonzero, __round__=distinct(_round), __getitem__=getitem, __contains__=_contains)
    members["T"] = property(movement.transpose, doc="The dimensions reversed.")
    members["mT"] = property(_matrix_transposed, doc="The last two dimensions swapped.")
    members["real"] = property(distinct(maths.real), doc="The real part.")
    members["imag"] = property(maths.imag, doc="The imaginary part.")
    members["at"] = property(
        IndexUpdateHelper, doc="x.at[index].set(value) and its relatives: updates that give a new array."
    )
    return members


def install_methods() -> None:
    """Put every operator, method and property on Array and Tracer; those of Arrays are replayed (lax/replayed.py)."""
    for name, member in _table(replayed).items():
        install(name, member)
    for name, member in _table(lambda function: function).items():
        setattr(Tracer, name, member)
    Tracer.__copy__ = _copy  # type: ignore[attr-defined]
    Tracer.__deepcopy__ = lambda self, memo: _copy(self)  # type: ignore[attr-defined]
    Tracer.__iter__ = _iterate  # type: ignore[method-assign]


install_methods()
