"""ndarray's operators, methods and attributes, put on `TracedArray` from tables: each is the NumPy function of its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.interop.numpy import dispatch, indexing, linear, movement, numeric, reductions, ufuncs
from fuser.interop.numpy.context import supported, untraceable
from fuser.interop.numpy.creation import array, astype, copy
from fuser.interop.numpy.selected import Selected
from fuser.interop.numpy.traced import EITHER, Either, EitherInteger, TracedArray, View
from fuser.ir.types import BOOL
from fuser.numpy import maths
from fuser.runtime.array import Array
from fuser.trace.core import Tracer

_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "divmod": np.divmod,
    "pow": np.power,
    "matmul": np.matmul,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}
_COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNARY = {"neg": np.negative, "pos": np.positive, "invert": np.invert, "abs": np.absolute}
# Methods that are NumPy's functions of the same name.
_SHARED = (
    "sum prod max min all any argmax argmin mean var std ptp cumsum cumprod argsort choose clip diagonal dot repeat round "
    "searchsorted squeeze swapaxes take trace"
)
FUNCTIONS = tuple(name for name in _SHARED.split() if hasattr(np.ndarray, name))  # those that this NumPy's arrays have
_ARRAYS = (bool, int, float, complex, np.ndarray, np.generic, list, tuple, Tracer, Array, TracedArray)


def _operand(other: Any) -> bool:
    return isinstance(other, _ARRAYS) or hasattr(other, "__array__")


def _weak_result(self: TracedArray, other: Any, result: Any) -> Any:
    """Python numbers beside Python numbers give Python numbers, which stay weak."""
    if self.weak is None or not (
        type(other) in (bool, int, float, complex) or (isinstance(other, TracedArray) and other.weak)
    ):
        return result
    either = any(weak in EITHER for weak in (self.weak, getattr(other, "weak", None)))
    for item in result if isinstance(result, tuple) else (result,):
        if isinstance(item, TracedArray) and item.dtype.kind in ("ifc" if either else "bifc"):
            item.weak = Either if either else {"b": bool, "i": int, "f": float, "c": complex}[item.dtype.kind]
    return result


def _forward(ufunc: np.ufunc) -> Callable[..., Any]:
    def method(self: TracedArray, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented
        self, other = _as_numbers(ufunc, self, other)
        return _weak_result(self, other, ufuncs.call(self._context, ufunc, (self, other)))

    return method


_OF_TRUTH = (*_COMPARISONS.values(), np.bitwise_and, np.bitwise_or, np.bitwise_xor)  # give truth values of truth values


def _as_numbers(ufunc: np.ufunc, x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands, as integers where both are truth values of Python's: True + True is 2, and not NumPy's True."""
    both = all(type(v) is bool or (type(v) is TracedArray and v.weak is bool) for v in (x, y))
    return (_as_integer(x), _as_integer(y)) if both and ufunc not in _OF_TRUTH else (x, y)


def _as_integer(value: Any) -> Any:
    if type(value) is not TracedArray or value.weak is not bool:
        return value
    return TracedArray(value._context, value.lifted(np.dtype(np.int64)), scalar=True, weak=int)


def _reflected(ufunc: np.ufunc) -> Callable[..., Any]:
    def method(self: TracedArray, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented
        self, other = _as_numbers(ufunc, self, other)
        return _weak_result(self, other, ufuncs.call(self._context, ufunc, (other, self)))

    return method


def _in_place(ufunc: np.ufunc) -> Callable[..., Any]:
    def method(self: TracedArray, other: Any) -> Any:
        self, other = _as_numbers(ufunc, self, other)
        result = ufuncs.call(self._context, ufunc, (self, other))
        if isinstance(self, Selected) and self.window is not None and self.along is not None:
            ufuncs._check_casting(ufunc, result.dtype, self, "same_kind")
            indexing.write_selected(self.window, self.along, result)
            return self
        if self.scalar:
            return _weak_result(self, other, result)
        ufuncs._check_casting(ufunc, result.dtype, self, "same_kind")
        if isinstance(self, Selected):
            self.replace_by(result)
            return self
        indexing.setitem(self, Ellipsis, result)
        return self

    return method


def _unary(ufunc: np.ufunc) -> Callable[..., Any]:
    def method(self: TracedArray) -> Any:
        if self.weak is EitherInteger:
            raise untraceable(
                "the sign of a value that may be the int 0 or the float 0.0 cannot be traced", "make it float(x)"
            )
        number = _as_integer(self)
        return _weak_result(number, 0, ufuncs.call(self._context, ufunc, (number,)))

    return method


def _function(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def method(self: TracedArray, *args: Any, **kwargs: Any) -> Any:
        return dispatch.call(self._context, function, (self, *args), kwargs)

    method.__name__, method.__doc__ = name, f"As `np.{name}`."
    return method


def _power(self: TracedArray, other: Any, modulus: Any = None) -> Any:
    if modulus is not None or not _operand(other):
        return NotImplemented
    return _weak_result(self, other, ufuncs.call(self._context, np.power, (self, other)))


def _reshape(self: TracedArray, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
    """As `ndarray.reshape`, with the extents in a tuple or apart."""
    return movement.reshape(self._context, self, shape[0] if len(shape) == 1 else shape, order, copy=copy)


def _transpose(self: TracedArray, *axes: Any) -> Any:
    """As `ndarray.transpose`."""
    order = axes[0] if len(axes) == 1 and (axes[0] is None or np.ndim(axes[0])) else axes or None
    return movement.transpose(self._context, self, order)


def _flatten(self: TracedArray, order: str = "C") -> Any:
    """A copy in one dimension."""
    return TracedArray(self._context, movement.ravel(self._context, self, order).value)


def _fill(self: TracedArray, value: Any) -> None:
    """Set every element."""
    indexing.setitem(self, Ellipsis, value)


def _sort(self: TracedArray, axis: int = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
    """Sort in place."""
    self.write(numeric.sort(self._context, self, axis).value if not self.known else np.sort(self.value, axis))


def _view(self: TracedArray, dtype: Any = None, type: Any = None) -> Any:
    """As `ndarray.view`: the same memory, read as another dtype; of another width where the array is dense."""
    if dtype is None:
        return self[...]  # type: ignore[index]
    old, wanted = self.dtype, np.dtype(dtype)
    if wanted == old:
        return self[...]  # type: ignore[index]
    if wanted.itemsize != old.itemsize and not (self.contiguous and self.order is None and self.shape):
        raise untraceable("x.view(dtype) with another width cannot be traced where x is not dense", "use a copy of x")
    supported(wanted)
    from fuser.numpy.methods import _view as bits

    read = movement.either(lambda value: value.view(wanted), lambda value: bits(value, wanted))
    back = movement.either(lambda new: new.view(old), lambda new: bits(new, old))
    if self.scalar:
        return TracedArray(self._context, read(self.value), scalar=True)
    if BOOL in (old, wanted):
        return self.view_of(View(read, lambda value, new: new, "unsure"), self.contiguous, _BITS)
    return self.view_of(View(read, lambda value, new: back(new)), self.contiguous)


_BITS = "writing to a view of bools as numbers cannot be traced|use .copy()"


def _refuse(name: str, way_out: str) -> Callable[..., Any]:
    def method(self: TracedArray, *args: Any, **kwargs: Any) -> Any:
        raise untraceable(f"x.{name}() cannot be traced", way_out)

    method.__name__ = name
    return method


def _part(name: str) -> property:
    def read(value: Any) -> Any:
        return getattr(maths, name)(value) if isinstance(value, (Tracer, Array)) else getattr(np, name)(value)

    def write(value: Any, new: Any) -> Any:
        whole = value if isinstance(value, (Tracer, Array)) else Array(value)
        new = new if isinstance(new, (Tracer, Array)) else Array(np.ascontiguousarray(new))
        real, imag = (new, maths.imag(whole)) if name == "real" else (maths.real(whole), new)
        from fuser.ops.elementwise import complex_p
        from fuser.trace.core import bind

        return bind(complex_p, real, imag)

    def get(self: TracedArray) -> Any:
        if self.dtype.kind != "c":
            return (
                self
                if name == "real"
                else TracedArray(
                    self._context, np.broadcast_to(np.zeros((), self.dtype), self.shape), scalar=self.scalar
                )
            )
        if self.scalar:
            return TracedArray(self._context, read(self.value), scalar=True)
        return self.view_of(View(read, write), False)

    def set(self: TracedArray, value: Any) -> None:
        get(self)[...] = value

    return property(get, set, doc=f"The {name} part.")


class Flags:
    """What `x.flags` tells of a traced array."""

    def __init__(self, x: TracedArray) -> None:
        self.c_contiguous = x.contiguous
        self.writeable = not x._guard
        self.owndata = x._base is None

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key.lower())


def _members() -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, ufunc in _BINARY.items():
        members[f"__{name}__"] = _forward(ufunc)
        members[f"__r{name}__"] = _reflected(ufunc)
        if name != "divmod":
            members[f"__i{name}__"] = _in_place(ufunc)
    members["__pow__"] = _power
    members.update({f"__{name}__": _forward(ufunc) for name, ufunc in _COMPARISONS.items()})
    members.update({f"__{name}__": _unary(ufunc) for name, ufunc in _UNARY.items()})
    members.update({name: _function(name) for name in FUNCTIONS})
    members.update(conj=_unary(np.conjugate), conjugate=_unary(np.conjugate))
    members.update(
        reshape=_reshape, transpose=_transpose, flatten=_flatten, fill=_fill, sort=_sort, view=_view, astype=astype
    )
    members.update(__getitem__=indexing.getitem, __setitem__=indexing.setitem)
    members.update(
        copy=lambda self, order="C": copy(self._context, self, order),
        ravel=_function("ravel"),
        nonzero=_function("nonzero"),
    )
    members.update(__copy__=members["copy"], __deepcopy__=lambda self, memo: copy(self._context, self))
    members["T"] = property(lambda self: movement.transpose(self._context, self), doc="The dimensions reversed.")
    members["mT"] = property(
        lambda self: movement.matrix_transpose(self._context, self), doc="The last two dimensions swapped."
    )
    members["real"], members["imag"] = _part("real"), _part("imag")
    members["flags"] = property(Flags)
    members["flat"] = property(lambda self: movement.ravel(self._context, self), doc="The elements in one dimension.")
    for name, way_out in (
        *(
            (n, "call it outside the traced function")
            for n in ("tofile", "tobytes", "dump", "dumps", "tostring", "byteswap", "setflags")
        ),
        *(
            (n, "use slices or np.where")
            for n in ("put", "itemset", "resize", "partition", "argpartition", "compress", "getfield")
        ),
    ):
        members[name] = _refuse(name, way_out)
    return members


def install() -> None:
    """Put every operator, method and attribute on TracedArray."""
    for name, member in _members().items():
        setattr(TracedArray, name, member)
    TracedArray.__hash__ = None  # type: ignore[assignment]


install()
__all__ = ["array", "linear", "reductions"]
