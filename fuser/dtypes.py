"""Dtype promotion: JAX's lattice with weak types, Python scalars, and canonicalisation under `enable_x64`.

In: dtypes, Python scalar types, or values. Out: the dtype of a result and whether it is weak. A weak type came from a
Python scalar and gives way to the array beside it. The lattice is data; the answer is the least upper bound in it.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import ml_dtypes
import numpy as np

from fuser.config import config
from fuser.errors import FuserError
from fuser.ir import types
from fuser.ir.dim import Dim
from fuser.ir.types import (
    ALL_DTYPES,
    BOOL,
    COMPLEX,
    FLOATS,
    INT1_4,
    INTEGERS,
    SMALL,
    SMALL_FLOATS,
    SMALL_INTEGERS,
    UINT1_4,
    bits_of,
    is_inexact,
    is_key,
    kind_of,
    short_dtype,
)

# A node of the lattice: a dtype, or the name of a weak type ("int", "float", "complex").
Node = Any

_U8, _U16, _U32, _U64 = (np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
_I8, _I16, _I32, _I64 = (np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
_F16, _F32, _F64 = (np.dtype(f"float{bits}") for bits in (16, 32, 64))
bfloat16 = ml_dtypes.bfloat16  # the class of its scalars, as in JAX
_BF16 = np.dtype(bfloat16)
_C64, _C128 = COMPLEX

_LATTICE: dict[Node, tuple[Node, ...]] = {
    BOOL: ("int",),
    "int": (_U8, _I8, *SMALL_INTEGERS),
    _U8: (_I16, _U16),
    _U16: (_I32, _U32),
    _U32: (_I64, _U64),
    _U64: ("float",),
    _I8: (_I16,),
    _I16: (_I32,),
    _I32: (_I64,),
    _I64: ("float",),
    "float": (*SMALL_FLOATS, _BF16, _F16, "complex"),
    **dict.fromkeys(SMALL, ()),
    _BF16: (_F32,),
    _F16: (_F32,),
    _F32: (_F64, _C64),
    _F64: (_C128,),
    "complex": (_C64,),
    _C64: (_C128,),
    _C128: (),
}
_NARROWED = {_U64: _U32, _I64: _I32, _F64: _F32, _C128: _C64}
_SCALARS: dict[type, np.dtype] = {bool: BOOL, int: _I64, float: _F64, complex: _C128}
_WEAK = {"int": _I64, "float": _F64, "complex": _C128}
_KINDS = {"b": BOOL, "i": "int", "u": "int", "f": "float", "c": "complex"}

bool_ = np.bool_
float0 = types.float0


class extended(np.generic):
    """The class of dtypes that are no numbers."""


class ExtendedDType:
    """The base of descriptions of dtypes that are no numbers; libraries derive their own."""


class prng_key(extended):
    """The class of dtypes of random keys: `issubdtype(key.dtype, prng_key)`."""


class TypePromotionError(FuserError, ValueError):
    """Two dtypes have no dtype that both promote to without being asked."""


def _upper_bounds(x64: bool) -> dict[Node, frozenset[Node]]:
    lattice = dict(_LATTICE)
    if not x64:  # without 64-bit types, uint32 with a signed integer gives int32
        lattice[_U32] = (_I32, _U64)
    bounds: dict[Node, frozenset[Node]] = {}

    def visit(node: Node) -> frozenset[Node]:
        if node not in bounds:
            bounds[node] = frozenset({node}).union(*(visit(above) for above in lattice[node]))
        return bounds[node]

    for node in lattice:
        visit(node)
    return bounds


@functools.cache
def _bounds(x64: bool) -> dict[Node, frozenset[Node]]:
    return _upper_bounds(x64)


@functools.lru_cache(4096)
def least_upper_bound(x64: bool, *nodes: Node) -> Node:
    """The lowest node of the lattice that lies above all `nodes`; TypePromotionError where there is none."""
    bounds = _bounds(x64)
    common = frozenset.intersection(*(bounds[node] for node in nodes))
    least = (common & set(nodes)) or {node for node in common if common <= bounds[node]}
    if len(least) == 1:
        return next(iter(least))
    names = tuple(node if isinstance(node, str) else node.name for node in nodes)
    narrow = [node for node in nodes if node in SMALL]
    why = ""
    if narrow:
        kind = "floats" if narrow[0] in SMALL_FLOATS else "integers"
        why = f"{bits_of(narrow[0])}-bit {kind} do not support implicit promotion, they are converted only on request: "
    raise TypePromotionError(
        f"Input dtypes {names} have no available implicit dtype promotion path. {why}no dtype stands above them in the "
        "promotion lattice; convert one with x.astype(dtype)"
    )


def node(dtype: np.dtype, weak: bool) -> Node:
    """The place of a dtype in the lattice."""
    if not weak:
        return dtype
    return _KINDS[kind_of(dtype)]


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> np.dtype:
    """The dtype that arrays get when `dtype` is asked for: 64-bit ones narrowed unless `enable_x64` is set.

    ValueError for the dtype of keys, unless `allow_extended_dtype`.
    """
    found = canonical(dtype)
    if not allow_extended_dtype and is_key(found):
        raise ValueError(
            f"canonicalize_dtype called on extended dtype {found} with allow_extended_dtype=False; keys are no numbers: use key_data"
        )
    return found


def canonical(dtype: Any) -> np.dtype:
    """`canonicalize_dtype` of any dtype, that of keys among them."""
    found = _dtype(dtype)
    return found if config.enable_x64 else _NARROWED.get(found, found)


def _dtype(dtype: Any) -> np.dtype:
    if isinstance(dtype, type) and dtype in _SCALARS:
        return _SCALARS[dtype]
    try:
        found = np.dtype(dtype)
    except TypeError:
        named = getattr(ml_dtypes, dtype, None) if isinstance(dtype, str) else getattr(dtype, "dtype", None)
        if named is None:
            raise
        found = np.dtype(named)
    return found


def requested(dtype: Any, function: str = "") -> np.dtype:
    """The dtype a caller asks for by name, class or dtype; TypeError where arrays cannot have it.

    While `enable_x64` is off, a 64-bit dtype is narrowed with a warning, given as it is, or refused with a ValueError, as the
    setting `explicit_x64_dtypes` says; Python's scalar types are narrowed without one.
    """
    found = _dtype(dtype)
    if is_key(found):
        return found
    if found not in _KNOWN:
        raise TypeError(
            f"{function or 'fuser'} has no arrays of dtype {found}; fuser, as JAX only supports number, bool, and string dtypes, "
            "has numbers, booleans and complex numbers"
        )
    if found in _NARROWED and not config.enable_x64:
        narrowed = _NARROWED[found]
        if not (isinstance(dtype, type) and dtype in _SCALARS):
            if config.explicit_x64_dtypes == "allow":
                return found
            if config.explicit_x64_dtypes == "error":
                raise ValueError(
                    f"Explicitly requested dtype {found.name}{f' requested in {function}' if function else ''} is not available: "
                    "64-bit types are off; set enable_x64, or explicit_x64_dtypes to 'allow'"
                )
            warnings.warn(
                f"Explicitly requested dtype {found.name} is not available: {found.name} was asked for{f' in {function}' if function else ''}, but 64-bit types are off: the result is "
                f"{narrowed.name}; set fuser.config.update('enable_x64', True)",
                UserWarning,
                stacklevel=3,
            )
        return narrowed
    return found


_KNOWN = frozenset(ALL_DTYPES)
_NUMBERS = INTEGERS + FLOATS + COMPLEX + SMALL


def is_known(dtype: np.dtype) -> bool:
    """Whether arrays can have it."""
    return dtype in _KNOWN or is_key(dtype)


def in_words(value: Any) -> str:
    """What a value is that is no array of numbers: "a str", "a NumPy array of dtype object"."""
    if isinstance(value, np.ndarray):
        return f"a NumPy array of dtype {value.dtype}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def check_dtype(dtype: np.dtype, value: Any) -> np.dtype:
    """`dtype` itself, or a TypeError naming the type of `value` when no array can have it."""
    if not is_known(dtype):
        raise TypeError(
            f"Error interpreting argument as an array: a {type(value).__name__} of dtype {dtype} is no array of numbers; "
            "fuser takes numbers, booleans and complex numbers"
        )
    return dtype


def of(value: Any) -> tuple[np.dtype, bool]:
    """The dtype that a value has as an array, and whether it is weak; dtypes and scalar types are taken too."""
    kind = type(value)
    if kind in _SCALARS:
        return canonical(kind), kind is not bool
    if kind is type and value in _SCALARS:
        return canonical(value), value is not bool
    if hasattr(value, "weak_type"):
        return value.dtype, value.weak_type
    if kind is Dim:
        return np.dtype("int32"), True  # as what `dimension_as_value` gives
    found = getattr(value, "dtype", None)
    if isinstance(found, np.dtype) and not isinstance(value, type):
        return canonical(check_dtype(found, value)), False
    if isinstance(value, (str, np.dtype, type)):
        named = check_dtype(_dtype(value), value)
        return named if _wide() else canonical(named), False
    try:
        found = np.result_type(value)
    except TypeError:
        raise TypeError(
            f"Error interpreting argument as an array: {in_words(value)} is no array of numbers; "
            "fuser takes numbers, booleans and complex numbers"
        ) from None
    return canonical(check_dtype(found, value)), False


@functools.lru_cache(4096)
def _result(x64: bool, wide: bool, *types: tuple[np.dtype, bool]) -> tuple[np.dtype, bool]:
    dtypes = {dtype for dtype, _ in types}
    weak = all(w for _, w in types)
    if len(dtypes) == 1:
        (result,) = dtypes
    elif any(map(is_key, dtypes)):
        keys = next(d for d in dtypes if is_key(d))
        others = ", ".join(sorted(short_dtype(d) for d in dtypes if d != keys))
        raise TypeError(
            f"an array of keys ({short_dtype(keys)}) is no array of numbers and goes with none of {others}; "
            "draw numbers with fuser.random, or take the words with fuser.random.key_data"
        )
    elif weak:
        result = least_upper_bound(x64, *dtypes)
    else:
        result = least_upper_bound(x64, *dict.fromkeys(node(d, w) for d, w in types))
        if isinstance(result, str):
            weak = True
            result = _WEAK[result]
    result = result if x64 or (wide and not weak) else _NARROWED.get(result, result)
    return result, weak and result != BOOL


def result_of(*types: tuple[np.dtype, bool]) -> tuple[np.dtype, bool]:
    """The dtype and weakness of an operation on operands of these (dtype, weak) types."""
    if config.numpy_dtype_promotion == "strict":
        _refuse_promotion(types)
    return _result(config.enable_x64, _wide(), *types)


def _wide() -> bool:
    """Whether arrays of 64-bit dtypes keep them."""
    return bool(config.enable_x64 or config.explicit_x64_dtypes == "allow")


def _refuse_promotion(types: tuple[tuple[np.dtype, bool], ...]) -> None:
    """TypePromotionError unless all dtypes are one, but for Python's scalars, which go with what can hold their kind."""
    strong = {dtype for dtype, weak in types if not weak}
    kinds = {_KINDS[kind_of(dtype)] for dtype, weak in types if weak}
    holds = {"int": _NUMBERS, "float": FLOATS + SMALL_FLOATS + COMPLEX, "complex": COMPLEX}
    if len(strong) < 2 and all(dtype in holds.get(str(kind), ()) for dtype in strong for kind in kinds):
        return
    names = tuple(dict.fromkeys(d.name + ("*" if weak else "") for d, weak in types))
    raise TypePromotionError(
        f"Input dtypes {names} have no available implicit dtype promotion path when jax_numpy_dtype_promotion=strict; "
        "convert them to one dtype with x.astype(dtype), or set numpy_dtype_promotion to 'standard'"
    )


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype of an operation on `args` (arrays, scalars, dtypes), as jax.numpy.result_type has it."""
    if not args:
        raise ValueError("result_type needs at least one array or dtype")
    dtype, weak = result_of(*(of(a) for a in args))
    return (dtype, weak) if return_weak_type_flag else dtype


def promote_types(a: Any, b: Any) -> np.dtype:
    """The dtype that both promote to; Python's int, float and complex are weak. 64-bit dtypes stay as they are."""
    types = tuple((_dtype(t), isinstance(t, type) and t in _SCALARS and t is not bool) for t in (a, b))
    if config.numpy_dtype_promotion == "strict":
        _refuse_promotion(types)
    nodes = (node(dtype, weak) for dtype, weak in types)
    found = least_upper_bound(config.enable_x64, *nodes)
    return _WEAK[found] if isinstance(found, str) else found


def inexact_of(dtype: np.dtype) -> np.dtype:
    """The dtype that a function of real or complex numbers computes in: integers and bools become the default float."""
    if is_inexact(dtype):
        return dtype
    return _F64 if dtype.itemsize == 8 and _wide() else _F32


_GROUPS: dict[Any, tuple[np.dtype, ...]] = {
    np.floating: FLOATS + SMALL_FLOATS,
    np.inexact: FLOATS + SMALL_FLOATS + COMPLEX,
    np.number: _NUMBERS,
    np.integer: INTEGERS + SMALL_INTEGERS,
    np.signedinteger: INTEGERS[:4] + INT1_4,
    np.unsignedinteger: INTEGERS[4:] + UINT1_4,
    np.generic: ALL_DTYPES,
}


def issubdtype(a: Any, b: Any) -> bool:
    """NumPy's issubdtype, with bfloat16 and the 8-bit floats counted as floating."""
    if b in (extended, prng_key):
        return a is b or a is prng_key or (not isinstance(a, type) and is_key(_dtype(a)))
    if isinstance(b, type) and b in _GROUPS:
        if isinstance(a, type) and issubclass(a, np.generic) and a.__module__ == "numpy" and np.issubdtype(a, b):
            return True
        try:
            found = _dtype(a)
            return found in _GROUPS[b] or (b is np.generic and is_key(found))
        except TypeError:
            return False
    left = a if isinstance(a, type) and issubclass(a, np.generic) else _dtype(a)
    right = b if isinstance(b, type) and issubclass(b, np.generic) else _dtype(b)
    if isinstance(left, np.dtype) and isinstance(right, np.dtype):
        return left == right
    return bool(np.issubdtype(left, right))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether `dtype` is of a kind: a dtype, or one of the array API's words ("bool", "integral", "numeric", ...)."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    found = _dtype(dtype)
    groups: dict[str, tuple[np.dtype, ...]] = {
        "bool": (BOOL,),
        "signed integer": INTEGERS[:4] + INT1_4,
        "unsigned integer": INTEGERS[4:] + UINT1_4,
        "integral": INTEGERS + SMALL_INTEGERS,
        "real floating": FLOATS + SMALL_FLOATS,
        "complex floating": COMPLEX,
        "numeric": _NUMBERS,
    }
    for k in kinds:
        if isinstance(k, str) and k not in groups:
            known = ", ".join(groups)
            raise ValueError(f"isdtype knows no kind {k!r}; the kinds are {known}")
        if (found in groups[k]) if isinstance(k, str) else found == _dtype(k):
            return True
    return False


def finfo(dtype: Any) -> Any:
    """Limits of a floating-point dtype, bfloat16 and the 8-bit ones included."""
    found = of(dtype)[0] if not isinstance(dtype, (np.dtype, type, str)) else _dtype(dtype)
    return ml_dtypes.finfo(found)


def iinfo(dtype: Any) -> Any:
    """Limits of an integer dtype, those below a byte included."""
    found = of(dtype)[0] if not isinstance(dtype, (np.dtype, type, str)) else _dtype(dtype)
    return ml_dtypes.iinfo(found) if found in SMALL_INTEGERS else np.iinfo(found)


def itemsize_bits(dtype: Any) -> int:
    """The bits of one element of the dtype; TypeError without one."""
    if dtype is None:
        raise ValueError("dtype cannot be None.")
    return bits_of(_dtype(dtype))


def scalar_type_of(x: Any) -> type:
    """Python's bool, int, float or complex, whichever a value or dtype is a kind of; TypeError for others."""
    found = _dtype(x) if isinstance(x, (np.dtype, type, str)) else of(x)[0]
    for kind, scalar in ((np.bool_, bool), (np.integer, int), (np.floating, float), (np.complexfloating, complex)):
        if issubdtype(found, kind):
            return scalar
    raise TypeError(f"Invalid scalar value {x}")
