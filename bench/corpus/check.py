"""Whether two calls of one function did the same: results and arguments compared by type, dtype, shape and value."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

TOLERANCES = {"f": 2e-4, "d": 1e-8, "F": 2e-4, "D": 1e-8}  # of the largest magnitude, by type code


def copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of their own for a call: arrays, objects and generators are copied."""
    return copy.deepcopy(arguments)


def restore(arguments: Any, pristine: Any) -> None:
    """Put back what a call has written to its arguments, in the memory where they lie."""
    if isinstance(arguments, np.ndarray):
        if arguments.flags.writeable:
            np.copyto(arguments, pristine)
    elif isinstance(arguments, np.random.Generator):
        arguments.bit_generator.state = pristine.bit_generator.state
    elif isinstance(arguments, (tuple, list)):
        for one, other in zip(arguments, pristine):
            restore(one, other)
    elif hasattr(arguments, "__dict__") and not isinstance(arguments, type):
        for name, value in vars(pristine).items():
            restore(getattr(arguments, name), value)


def difference(found: Any, wanted: Any, where: str = "result", types: bool = True) -> str | None:
    """In what `found` is not `wanted`, in words; None if they agree. Without `types`, only values count."""
    if isinstance(wanted, np.random.Generator):
        same = repr(found.bit_generator.state) == repr(wanted.bit_generator.state)
        return None if same else f"{where}: the generator stands elsewhere"
    if types and type(found) is not type(wanted):
        return f"{where}: a {type(found).__name__}, not a {type(wanted).__name__}"
    if isinstance(wanted, (tuple, list)):
        if not isinstance(found, (tuple, list)) or len(found) != len(wanted):
            return f"{where}: another number of items"
        pairs = [(f"{where}[{n}]", f, w) for n, (f, w) in enumerate(zip(found, wanted))]
    elif hasattr(wanted, "__dict__") and not isinstance(wanted, (np.ndarray, type)):
        pairs = [(f"{where}.{name}", getattr(found, name), value) for name, value in vars(wanted).items()]
    else:
        return _unequal(found, wanted, where, types)
    return next((words for each, f, w in pairs if (words := difference(f, w, each, types))), None)


def _unequal(found: Any, wanted: Any, where: str, types: bool) -> str | None:
    if wanted is None or isinstance(wanted, (str, bytes)):
        return None if found == wanted else f"{where}: {found!r}, not {wanted!r}"
    a, b = np.asarray(found), np.asarray(wanted)
    if a.shape != b.shape or (types and a.dtype != b.dtype):
        return f"{where}: {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
    if b.dtype.names:
        return None if a.tobytes() == b.tobytes() else f"{where}: other records"
    tolerance = TOLERANCES.get(b.dtype.char)
    if tolerance is None:
        return None if np.array_equal(a, b) else f"{where}: {np.count_nonzero(a != b)} of {b.size} elements differ"
    scale = np.max(np.abs(b), where=np.isfinite(b), initial=0)
    if np.allclose(a, b, rtol=0, atol=tolerance * scale, equal_nan=True):
        return None
    return f"{where}: off by {np.nanmax(np.abs(a - b)):.1e} beside {scale:.1e}"
