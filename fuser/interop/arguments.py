"""The arguments of accelerated functions: which are traced, what the others add to a signature, and how memory is taken."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from fuser.interop.comparison import is_users_class
from fuser.interop.numpy.context import untraceable
from fuser.interop.outside import is_object
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.runtime.array import Array

_DENSE = 0x101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
_NUMPYS = (type(np.mean), np.ufunc)  # functions, which something stands for in a trace
_FOLLOWED = (
    *_NUMPYS,
    types.FunctionType,
    types.MethodType,
    functools.partial,
    np.random.Generator,
    np.random.RandomState,
)
_PLAIN = (int, bool, str, bytes, type(None), slice, type(Ellipsis), range, frozenset)


def is_dynamic(leaf: Any) -> bool:
    """Whether an argument is traced (arrays, NumPy scalars, floats, complex numbers) rather than part of the signature."""
    return (
        isinstance(leaf, (np.ndarray, np.generic, Array, ArrayType))
        or type(leaf) in (float, complex)
        or _described(leaf)
    )


def _described(leaf: Any) -> bool:
    return not isinstance(leaf, type) and hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not is_object(leaf)


def is_followed(leaf: Any) -> bool:
    """Whether what an argument holds is read as the outside is: objects, classes, and functions with their closures."""
    return isinstance(leaf, _FOLLOWED) or is_object(leaf) or (isinstance(leaf, type) and is_users_class(leaf))


def is_dense(leaf: Any) -> bool:
    """Whether an argument lies in memory as kernels read it."""
    return not isinstance(leaf, np.ndarray) or leaf.flags.num & _DENSE == _DENSE


def as_dense(leaf: Any) -> np.ndarray:
    """An argument as a C-contiguous, aligned array."""
    array = np.asarray(leaf)
    return array if array.ndim == 0 else np.require(array, requirements=["C", "A"])


def dtype_of(leaf: Any) -> np.dtype:
    """The dtype of an argument that is traced."""
    return np.dtype(leaf.dtype) if hasattr(leaf, "dtype") else np.dtype(type(leaf))


def gather(
    leaves: Sequence[Any], numbers: Sequence[int], unread: Container[int] = ()
) -> Callable[[Sequence[Any]], list[Any]]:
    """A function from a call's leaves to those with these numbers as dense arrays; `leaves` are like the call's.

    Of arrays with `unread` numbers, the elements are never read, and not copied to be dense.
    """
    plain = tuple((n, type(leaves[n]) is np.ndarray and is_dense(leaves[n])) for n in numbers)
    if all(dense for _, dense in plain) and len(plain) == len(leaves):
        return list
    blank = {n: np.empty(np.shape(leaves[n]), dtype_of(leaves[n])) for n, dense in plain if n in unread and not dense}
    take = blank.get
    return lambda leaves: [
        leaves[n] if dense else as_dense(leaves[n]) if (array := take(n)) is None else array for n, dense in plain
    ]


def admitted(leaf: Any, title: Callable[[], str]) -> Any:
    """An argument as it enters a signature; UnsupportedError where its rules are not those of arrays."""
    if isinstance(leaf, Array):
        return np.asarray(leaf)
    if isinstance(leaf, np.ndarray) and type(leaf) not in (np.ndarray, np.memmap):
        raise untraceable(
            f"{title()} is a {type(leaf).__name__}, whose rules differ from those of ndarray", "pass np.asarray(x)"
        )
    return leaf


def incomparable(leaf: Any, title: str) -> TypeError:
    """The error for an argument that cannot be compared."""
    return TypeError(
        f"{title} is a {type(leaf).__name__}, which is no array and cannot be "
        f"compared from call to call; pass arrays, numbers or hashable values ({current_source().short})"
    )


def first_unhashable(leaves: Sequence[Any]) -> int | None:
    """The number of the first argument that cannot be compared from call to call, if there is one."""
    for number, leaf in enumerate(leaves):
        try:
            hash(leaf if not isinstance(leaf, np.ndarray) else 0)
        except TypeError:
            return number
    return None


def key_of(leaf: Any) -> Any:
    """What an argument adds to a signature."""
    return KEYS.get(type(leaf), _hashed)(leaf)


def _array_key(leaf: np.ndarray) -> Any:
    flags = leaf.flags.num & _DENSE
    return leaf.shape, leaf.dtype, flags if flags == _DENSE else leaf.strides


def _hashed(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return _array_key(leaf)
    if isinstance(leaf, np.generic):
        return type(leaf), type(leaf)
    if is_followed(leaf):
        return type(leaf), getattr(leaf, "__code__", None)
    return type(leaf), leaf


KEYS: dict[type, Callable[[Any], Any]] = {
    np.ndarray: _array_key,
    float: lambda leaf: float,
    complex: lambda leaf: complex,
    **{kind: lambda leaf: (type(leaf), leaf) for kind in _PLAIN},
    frozenset: lambda leaf: frozenset((type(item), item) for item in leaf),
    **{np.dtype(code).type: type for code in "?bBhHiIlLqQefdFD"},
}
QUICK = {kind: key for kind, key in KEYS.items() if kind is not type(None)}


VALUES = (int, str, bool, type(None), types.FunctionType)  # that an outline tells by value


def outlined(argument: Any) -> Any:
    """What tells at little cost whether NumPy is to answer again: an array's size, a plain value, or else the type."""
    kind = type(argument)
    return argument.size if kind is np.ndarray else argument if kind in VALUES else kind
