"""Arrays from buffers, iterables, text and files, and files of arrays in NumPy's format."""

from __future__ import annotations

import os
from typing import IO, Any

import ml_dtypes
import numpy as np

from fuser.numpy.creation import asarray

__all__ = ["frombuffer", "fromfile", "fromiter", "fromstring", "load", "save", "savez"]


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    """A vector of `count` elements (all unless told) of a buffer, from the byte `offset` on."""
    return asarray(np.frombuffer(buffer, dtype=dtype, count=count, offset=offset))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Any:
    """A vector of the numbers of a text that `sep` separates."""
    return asarray(np.fromstring(string, dtype=dtype, count=count, sep=sep))


def fromfile(*args: Any, **kwargs: Any) -> Any:
    """Not offered, as in JAX: reading is no pure function. Use np.fromfile and asarray."""
    raise NotImplementedError(
        "jnp.fromfile() is not implemented because it may be non-pure and thus unsafe for use with JIT and other JAX "
        "transformations. Consider using jnp.asarray(np.fromfile(...)) instead."
    )


def fromiter(*args: Any, **kwargs: Any) -> Any:
    """Not offered, as in JAX: iterating is no pure function. Use np.fromiter and asarray."""
    raise NotImplementedError(
        "jnp.fromiter() is not implemented because it may be non-pure and thus unsafe for use with JIT and other JAX "
        "transformations. Consider using jnp.asarray(np.fromiter(...)) instead."
    )


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """Write an array to a .npy file."""
    np.save(file, np.asarray(arr), allow_pickle=allow_pickle)


def savez(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """Write several arrays to a .npz file."""
    named = {key: np.asarray(value) for key, value in kwds.items()}
    np.savez(file, *map(np.asarray, args), allow_pickle=allow_pickle, **named)


def load(file: IO[bytes] | str | os.PathLike[Any], *args: Any, **kwargs: Any) -> Any:
    """The array of a .npy file, or NumPy's reader of an .npz file. bfloat16, which NumPy stores as bytes, is
    restored; an array of objects, which needs allow_pickle=True, stays NumPy's."""
    found = np.load(file, *args, **kwargs)
    if isinstance(found, np.ndarray):
        if found.dtype == np.dtype("V2"):
            found = found.view(ml_dtypes.bfloat16)
        return asarray(found) if found.dtype.kind != "O" else found
    return found
