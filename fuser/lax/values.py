"""Operands: what users pass, in; arrays and tracers of one dtype and matching shapes, out.

Primitives neither broadcast nor promote, and take operands of rank 0 beside arrays; the functions here do the rest for
`fuser.lax` (strict: only Python scalars adapt) and `fuser.numpy` (promotion by the lattice, broadcasting).
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser import dtypes
from fuser.config import config
from fuser.errors import TypeRuleError
from fuser.ir.dim import Dim, as_array
from fuser.ir.primitive import REGISTRY
from fuser.ir.source import current_source
from fuser.ir.types import ALL_DTYPES, BOOL, ArrayType, is_key, kind_of, short_dtype
from fuser.ops.elementwise import add_p, convert_element_type_p, lt_p, select_n_p
from fuser.ops.movement import broadcast_in_dim_p
from fuser.runtime.array import Array, from_dlpack
from fuser.runtime.memory import copied, on_lines, refusal_in_step
from fuser.runtime.reference import Ref
from fuser.trace import transfers
from fuser.trace.core import EVALUATION, Tracer, bind, current
from fuser.trace.hoisting import number

VALUES = (Array, Tracer)
# Classes of libraries' values (not arrays, but standing for one) -> how one becomes an array; `interpreters/xla.py` fills it.
CONVERSIONS: dict[type, Callable[[Any], Any]] = {}

_DEFAULTS = {
    False: {bool: BOOL, int: np.dtype("int32"), float: np.dtype("float32"), complex: np.dtype("complex64")},
    True: {bool: BOOL, int: np.dtype("int64"), float: np.dtype("float64"), complex: np.dtype("complex128")},
}
# Which Python scalars take the dtype of the array beside them.
_OF_KIND: dict[str, tuple[type, ...]] = {
    "b": (bool,),
    "i": (bool, int),
    "u": (bool, int),
    "f": (bool, int, float),
    "c": (bool, int, float, complex),
}
ADAPTS: dict[np.dtype, tuple[type, ...]] = {dtype: _OF_KIND[kind_of(dtype)] for dtype in ALL_DTYPES}
_literals: dict[tuple[type, Any, np.dtype], np.ndarray] = {}


def literal(value: Any, dtype: np.dtype, weak: bool = False) -> Array:
    """A Python scalar as an array of rank 0, with memory of its own: whoever gets it may delete or donate it."""
    kind = type(value)
    if kind is Dim:
        return bind(REGISTRY["convert_element_type"], as_array[0](value), new_dtype=dtype, weak_type=weak)  # type: ignore[no-any-return]
    if value == 0 and kind is not int:  # -0.0 equals 0.0
        return number(Array(_number(value, dtype), weak))
    key = (kind, value, dtype)
    known = _literals.get(key)
    if known is None:
        if len(_literals) > 4096:
            _literals.clear()
        known = _literals[key] = _number(value, dtype)
    return number(Array(known.copy(), weak))


def _number(value: Any, dtype: np.dtype) -> np.ndarray:
    if is_key(dtype):
        raise TypeError(
            f"the number {value!r} cannot go with an array of keys ({short_dtype(dtype)}); draw numbers with fuser.random"
        )
    if type(value) is not int or dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(dtype)
    try:
        return np.asarray(value, dtype)
    except OverflowError:
        default = _DEFAULTS[config.enable_x64][int]
        try:
            return np.asarray(value, default).astype(dtype)  # wraps around, as the same number in an array would
        except OverflowError:
            raise OverflowError(
                f"Python integer {value} out of bounds for {default.name}: it is too large; set enable_x64, or pass an array"
            ) from None


def python_scalar(value: Any) -> bool:
    """Whether `value` is a bool, int, float or complex of Python (not of NumPy)."""
    return type(value) in _DEFAULTS[False]


def as_value(value: Any, function: str = "fuser.numpy", position: int | None = None) -> Any:
    """`value` as an Array or tracer: Python scalars weak, NumPy arrays canonicalised; TypeError for lists and others."""
    kind = type(value)
    if CONVERSIONS and kind in CONVERSIONS:  # before `isinstance`, which believes a proxy
        return as_value(CONVERSIONS[kind](value), function)
    if isinstance(value, VALUES) or kind is Ref:
        return value
    default = _DEFAULTS[config.enable_x64].get(kind)
    if default is not None:
        arrives(value)
        return put_by_default(literal(value, default, kind is not bool))
    convert = None if kind is np.ndarray else getattr(value, "__jax_array__", None)
    if convert is None and isinstance(value, (np.ndarray, np.generic)):
        if not dtypes.is_known(value.dtype):
            raise _no_value(value, function, position, f" of dtype {value.dtype}")
        return from_numpy(value)
    if convert is not None:  # traced NumPy arrays have it, and are of NumPy's class
        return as_value(convert(), function)
    if hasattr(value, "__array__"):
        return over_device_memory(value) if lies_on_a_device(value) else from_numpy(np.asarray(value))
    kinds: tuple[Any, ...] = (int, float, complex)  # subclasses, as enumerations are
    for base in kinds:
        if isinstance(value, base):
            return as_value(base(value), function)
    raise _no_value(value, function, position, "; make it an array with fuser.numpy.asarray")


def _no_value(value: Any, function: str, position: int | None, found: str) -> TypeError:
    at = "" if position is None else f" at position {position}"
    passed = at and f" and was passed to {function}{at}"
    return TypeError(
        f"Error interpreting argument to {function} as a JAX value. The problematic value is of type {type(value)}{passed}. "
        f"{function} requires ndarray or scalar arguments, got {type(value)}{at}{found}"
    )


def from_numpy(value: Any, kept: bool = False) -> Array:
    """A NumPy array or scalar as an Array of the canonical dtype. One that is to be `kept` is copied where it is large and does not begin where a
    line of the cache does."""
    arrives(value)
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            "numpy masked arrays are not supported as arguments; use x.filled() for an array without a mask"
        )
    dtype = dtypes.canonical(dtypes.check_dtype(value.dtype, value))
    array = np.asarray(value)
    try:
        if array.dtype != dtype:
            with np.errstate(all="ignore"):
                array = copied(array, dtype)
        elif kept:
            array = on_lines(array)
    except MemoryError as error:
        step = "the copy" if array.dtype == dtype else f"the conversion to {dtype.name}"
        raise refusal_in_step(error, step, str(current_source()), True)  # noqa: B904
    return put_by_default(Array(array) if array.ndim else number(Array(array)))


_HOST = (1, 3)  # kDLCPU and kDLCUDAHost, of DLPack's devices


def lies_on_a_device(value: Any) -> bool:
    """Whether another library's array, such as a CUDA tensor, says by DLPack that its memory is a device's."""
    where = getattr(value, "__dlpack_device__", None)
    return where is not None and where()[0] not in _HOST


def over_device_memory(value: Any) -> Any:
    """An Array over such an array's memory, of the canonical dtype. RuntimeError for a tensor that requires gradients, as of one on the host."""
    if getattr(value, "requires_grad", False):
        raise RuntimeError(
            "a tensor that requires gradients is no argument here, as autograd sees no further; pass tensor.detach(), or compile the "
            f"function with fuser.accelerate, whose results autograd follows ({current_source().short})"
        )
    found = from_dlpack(value)
    dtype = dtypes.canonical(dtypes.check_dtype(found.dtype, found))
    return found if found.dtype == dtype else bind(convert_element_type_p, found, new_dtype=dtype, weak_type=False)


def arrives(value: Any) -> None:
    """Outside of traces, what is no array yet is transferred to a device."""
    if transfers.guarded() and current() is EVALUATION:
        transfers.to_device(value)


putting: list[Callable[[Any, Any], Any]] = []  # device_put, once fuser.parallel is there


def where_told(create: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes arrays, which lie as its arguments `device` and `out_sharding` say."""

    @functools.wraps(create)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = create(*args, **kwargs)
        where = (kwargs.get("device") or kwargs.get("out_sharding")) if kwargs else None
        return result if where is None else putting[0](result, where)

    return call


def put_by_default(value: Array) -> Array:
    """Outside of traces, on the default device."""
    if current() is not EVALUATION:
        return value
    value = value if EVALUATION.default is None else EVALUATION.default(value)
    return value if EVALUATION.home is None else EVALUATION.home(value)


def convert(x: Any, dtype: np.dtype, weak: bool = False) -> Any:
    """`x` with this dtype and weakness; `x` itself where it has them."""
    if x.dtype == dtype and x.weak_type == weak:
        return x
    return bind(convert_element_type_p, x, new_dtype=dtype, weak_type=weak)


def typed(x: Any, dtype: np.dtype, weak: bool) -> Any:
    """`x` with this dtype; a weak operand beside strong ones needs no conversion, so only the dtype counts."""
    return x if x.dtype == dtype else bind(convert_element_type_p, x, new_dtype=dtype, weak_type=weak)


def promote(function: str, *args: Any) -> list[Any]:
    """The operands in the dtype of their promotion; shapes as they are."""
    values = [
        a if isinstance(a, VALUES) or type(a) in _DEFAULTS[False] else as_value(a, function, n)
        for n, a in enumerate(args)
    ]
    arrays = [v for v in values if isinstance(v, VALUES)]
    strict = config.numpy_dtype_promotion == "strict"
    if arrays and len(arrays) < len(values) and not strict:  # a scalar beside arrays needs no conversion step
        dtype = arrays[0].dtype
        if all(a.dtype == dtype for a in arrays) and not all(a.weak_type for a in arrays):
            fits = ADAPTS.get(dtype, ())
            if all(isinstance(v, VALUES) or type(v) in fits for v in values):
                return [v if isinstance(v, VALUES) else literal(v, dtype) for v in values]
    values = [as_value(v, function, n) for n, v in enumerate(values)]
    first = values[0].dtype
    if all(v.dtype == first for v in values):
        return [convert(values[0], BOOL), *values[1:]] if first == BOOL else values  # a promoted bool is never weak
    dtype, weak = dtypes.result_of(*((v.dtype, v.weak_type) for v in values))
    return [typed(v, dtype, weak) for v in values]


def promote_inexact(function: str, *args: Any) -> list[Any]:
    """As `promote`, with integers and bools made the default float."""
    dtype, weak = dtypes.result_of(*(dtypes.of(a) if python_scalar(a) else _type(as_value(a, function)) for a in args))
    dtype = dtypes.inexact_of(dtype)
    return [literal(a, dtype, weak) if python_scalar(a) else typed(as_value(a, function), dtype, weak) for a in args]


def _type(value: Any) -> tuple[np.dtype, bool]:
    return value.dtype, value.weak_type


def shapes_match(values: Sequence[Any]) -> bool:
    """Whether the operands of rank > 0 have one shape."""
    shape = None
    for value in values:
        found = value.shape
        if found:
            if shape is None:
                shape = found
            elif found != shape:
                return False
    return True


def broadcast_shapes(*shapes: Sequence[int], function: str = "broadcast") -> tuple[int, ...]:
    """NumPy's broadcast of shapes; ValueError where extents differ and none is 1."""
    result: list[int] = [1] * max((len(s) for s in shapes), default=0)
    for shape in shapes:
        for position, extent in enumerate(shape, len(result) - len(shape)):
            if extent == 1 or extent == result[position]:
                continue
            if result[position] != 1:
                found = " and ".join(str(tuple(s)) for s in shapes)
                raise TypeRuleError(
                    f"Incompatible shapes for broadcasting: {function} cannot broadcast shapes {found}; extents must be equal or 1"
                )
            result[position] = extent
    return tuple(result)


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` repeated along new leading dimensions and along those of extent 1."""
    if x.shape == shape:
        return x
    offset = len(shape) - len(x.shape)
    return bind(broadcast_in_dim_p, x, shape=shape, broadcast_dimensions=tuple(range(offset, len(shape))))


def broadcast(function: str, values: list[Any]) -> list[Any]:
    """The operands with one shape, those of rank 0 left alone."""
    if shapes_match(values):
        return values
    if config.numpy_rank_promotion != "allow":
        _refuse_ranks(function, values)
    try:
        shape = broadcast_shapes(*(v.shape for v in values), function=function)
    except ValueError:
        types = " and ".join(str(ArrayType(v.shape, v.dtype)) for v in values)
        raise TypeRuleError(
            f"{function} got incompatible shapes for broadcasting: {', '.join(str(tuple(v.shape)) for v in values)}. "
            f"{function} cannot broadcast {types}; extents must be equal or 1 ({current_source().short})"
        ) from None
    return [v if not v.shape else broadcast_to(v, shape) for v in values]


def _refuse_ranks(function: str, values: Sequence[Any]) -> None:
    """A ValueError, or a warning, for operands of ranks that differ, as the setting `numpy_rank_promotion` says."""
    if len({len(v.shape) for v in values if v.shape}) < 2:
        return
    shapes = " ".join(str(v.shape) for v in values)
    if config.numpy_rank_promotion == "raise":
        raise ValueError(
            f"Operands could not be broadcast together for {function} on shapes {shapes} and with the config option "
            f"numpy_rank_promotion='raise' ({current_source().short}); give them one rank first, or allow it"
        )
    warnings.warn(
        f"Following NumPy automatic rank promotion for {function} on shapes {shapes} ({current_source().short}); set "
        "numpy_rank_promotion to 'allow' to have no warning",
        stacklevel=2,
    )


def spread(function: str, values: list[Any]) -> list[Any]:
    """Operands of one rank with extents of 1 repeated, those of rank 0 left alone; ranks that differ are an error."""
    if shapes_match(values):
        return values
    if len({len(v.shape) for v in values if v.shape}) > 1:
        types = " and ".join(str(ArrayType(v.shape, v.dtype)) for v in values)
        raise TypeRuleError(
            f"{function}: arrays must have the same number of dimensions, got {types}; broadcast one of them first "
            f"({current_source().short})"
        )
    return broadcast(function, values)


def full_broadcast(function: str, values: list[Any]) -> list[Any]:
    """The operands with one shape, those of rank 0 too."""
    shape = broadcast_shapes(*(v.shape for v in values), function=function)
    return [broadcast_to(v, shape) for v in values]


def strict(function: str, *args: Any) -> list[Any]:
    """Operands for `fuser.lax`: arrays as they are, Python scalars in the dtype of the arrays where the kind fits."""
    arrays = [a for a in args if not python_scalar(a)]
    if not arrays or len(arrays) == len(args):
        return [as_value(a, function, n) for n, a in enumerate(args)]
    first = as_value(arrays[0], function)
    kinds = {"b": (bool,), "i": (int,), "u": (int,), "c": (float, complex)}.get(kind_of(first.dtype), (float,))
    values = []
    for a in args:
        fits = python_scalar(a) and type(a) in kinds
        values.append(literal(a, first.dtype) if fits else as_value(a, function))
    return values


def axis_of(axis: Any, ndim: int, function: str = "axis") -> int:
    """A dimension counted from the end if negative; AxisError (a ValueError and an IndexError) outside."""
    position = operator.index(axis)
    if not -ndim <= position < ndim:
        raise np.exceptions.AxisError(f"{function}: axis {position} is out of bounds for an array of dimension {ndim}")
    return position + ndim if position < 0 else position


def axes_given(axis: Any) -> tuple[Any, ...]:
    """The dimensions of one integer, or of any iterable of them."""
    return tuple(axis) if isinstance(axis, (tuple, list)) or not hasattr(axis, "__index__") else (axis,)


def axes_of(axis: Any, ndim: int, function: str = "axis") -> tuple[int, ...]:
    """All dimensions for None, else those of an int or a sequence, each once."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(axis_of(a, ndim, function) for a in axes_given(axis))
    if len(set(axes)) != len(axes):
        raise ValueError(
            f"{function}: duplicate value in 'axis': {axis}; a repeated axis names a dimension twice, and dimensions are not unique"
        )
    return axes


def concrete(value: Any) -> bool:
    """Whether the values are at hand on the host."""
    return isinstance(value, np.ndarray) or (isinstance(value, Array) and isinstance(value._data, np.ndarray))


def wrapped_index(part: Any, extent: int, wrap: bool = True) -> Any:
    """Positions counted from the end made positive (with `wrap`); int32 (or int64 where the index may not fit)."""
    wide = part.dtype.itemsize == 8 or part.dtype == np.dtype("uint32")
    dtype = np.dtype("int64") if wide else np.dtype("int32")
    if concrete(part) and type(extent) is not Dim:
        values = np.asarray(part)
        values = values.astype(np.int64)
        values = np.where(values < 0, values + extent, values) if part.dtype.kind == "i" and wrap else values
        return np.clip(values, -1, 2**31 - 1).astype(np.int32) if extent < 2**31 else values
    value = convert(as_value(part), dtype)
    if part.dtype.kind == "u" or not wrap:
        return value
    negative = bind(lt_p, value, literal(0, dtype))
    return bind(select_n_p, negative, value, bind(add_p, value, literal(extent, dtype)))
