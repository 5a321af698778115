"""Functions of NumPy that run as they are between compiled kernels: factorisations, Fourier transforms, order statistics.

What comes back has a shape and dtype that depend on types alone; NumPy itself says which, by a run on a sample. An error or
warning of theirs makes the whole call run in NumPy, so that it comes from the user's line.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.interop.numpy.context import Context, supported
from fuser.interop.numpy.dispatch import FUNCTIONS, title
from fuser.interop.numpy.layout import order_of
from fuser.interop.numpy.scipy import has_stand_in
from fuser.interop.numpy.selected import unknown_shape
from fuser.interop.numpy.substitutes import faster
from fuser.interop.numpy.traced import TracedArray
from fuser.interop.outputs import Declined
from fuser.ir.primitive import Fusion, Primitive
from fuser.ir.types import ArrayType
from fuser.runtime.blas_threads import ALONE, one_thread
from fuser.trace.core import bind

_LINALG = (
    *("cholesky", "det", "slogdet", "inv", "pinv", "solve", "qr", "svd", "svdvals", "eigh", "eigvalsh"),
    *("cond", "matrix_rank", "matrix_power", "multi_dot", "lstsq", "eig", "eigvals", "tensorsolve", "tensorinv"),
    *("matrix_norm", "vector_norm"),
)
_FFT = tuple(name for name in np.fft.__all__ if not name.endswith("freq"))  # those are made of numbers alone
_OTHERS = (
    *(
        "lexsort",
        "partition",
        "argpartition",
        "unwrap",
        "block",
        "nanmedian",
        "nanquantile",
        "nanpercentile",
        "polyfit",
    ),
    *(
        "roots",
        "poly",
        "histogram2d",
        "histogramdd",
        "nancumsum",
        "nancumprod",
        "sort_complex",
        "packbits",
        "unpackbits",
    ),
)
_WARNS = (np.polyfit,)  # by warnings.warn, beside those of np.errstate


class _Place:
    """Where an operand stands among the arguments."""

    def __init__(self, number: int) -> None:
        self.number = number


def _evaluate(*operands: np.ndarray, function: Callable[..., Any], types: tuple[ArrayType, ...]) -> list[np.ndarray]:
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"), one_thread(_work(operands), ALONE):
            found = function(*operands)
    except Exception as error:
        raise Declined from error
    arrays = [np.ascontiguousarray(leaf).reshape(np.shape(leaf)) for leaf in _flat(found)]
    if [(a.shape, a.dtype) for a in arrays] != [(t.shape, t.dtype) for t in types]:
        raise Declined
    return arrays


def _work(operands: Sequence[np.ndarray]) -> int:
    """Of a factorisation of the largest matrix among the operands: rows times columns times the lesser."""
    sides = [a.shape[-2:] for a in operands if a.ndim > 1]
    return max((rows * columns * min(rows, columns) for rows, columns in sides), default=0)


numpy_call_p = Primitive(
    "numpy_call",
    Fusion.LIBRARY,
    multiple_results=True,
    type=lambda *avals, function, types: types,
    eval=_evaluate,
    file=__file__,
)


def _flat(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _flat(part)] if isinstance(value, (tuple, list)) else [value]


def _rebuilt(like: Any, leaves: list[Any]) -> Any:
    if isinstance(like, tuple) and hasattr(like, "_fields"):
        return type(like)(*(_rebuilt(part, leaves) for part in like))
    if isinstance(like, (tuple, list)):
        return type(like)(_rebuilt(part, leaves) for part in like)
    return leaves.pop(0)


def call_numpy(context: Context, function: Any, args: Any, kwargs: Any, masks: int = 0) -> Any:
    """`function(*args, **kwargs)` by NumPy itself, at each call of the program.

    With `masks`, so many masks stand first, each before what it selects of: results whose types depend on how much that is are refused.
    """
    operands: list[TracedArray] = []

    def placed(value: Any) -> Any:
        if isinstance(value, TracedArray):
            operands.append(value)
            return _Place(len(operands) - 1)
        if isinstance(value, (list, tuple)):
            return [placed(v) for v in value] if isinstance(value, list) else tuple(placed(v) for v in value)
        return {k: placed(v) for k, v in value.items()} if isinstance(value, dict) else value

    positions = placed((tuple(args), dict(kwargs)))

    def run(*arrays: np.ndarray) -> Any:
        given = [a[()] if o.scalar else _in_order(a, o) for a, o in zip(arrays, operands)]
        positional, named = _filled(positions, given)
        if not tells:
            return answer(*positional, **named)
        with warnings.catch_warnings():  # a warning is to come from the user's line
            warnings.simplefilter("error")
            return function(*positional, **named)

    tells, answer = False, faster(function)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        samples = [_sample(o.shape, o.dtype) for o in operands]
        sample = run(*samples)
        if masks:
            few = [_fewer(a) if n < 2 * masks and n % 2 == 0 else a for n, a in enumerate(samples)]
            if _types_of(run(*few)) != _types_of(sample):
                raise unknown_shape()
    tells = function in _WARNS or has_stand_in(function) or masks > 0
    leaves = [np.asarray(leaf) for leaf in _flat(sample)]
    types = tuple(ArrayType(leaf.shape, supported(leaf.dtype, f"a result of {title(function)}")) for leaf in leaves)
    found = bind(numpy_call_p, *[o.lifted() for o in operands], function=run, types=types)
    made = [
        TracedArray(context, value, scalar=not isinstance(like, np.ndarray), order=order_of(leaf))
        for value, leaf, like in zip(found, leaves, _flat(sample))
    ]
    return _rebuilt(sample, made)


def _in_order(array: np.ndarray, like: TracedArray) -> np.ndarray:
    order = order_of(like)
    if order is None:
        return array
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


def _filled(value: Any, arrays: Sequence[Any]) -> Any:
    if isinstance(value, _Place):
        return arrays[value.number]
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(v, arrays) for v in value)
    return {k: _filled(v, arrays) for k, v in value.items()} if isinstance(value, dict) else value


def _sample(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Matrices that can be factorised, inverted and solved with."""
    return (
        np.ascontiguousarray(np.broadcast_to(np.eye(*shape[-2:], dtype=dtype), shape))
        if len(shape) > 1
        else np.ones(shape, dtype)
    )


def _fewer(mask: np.ndarray) -> np.ndarray:
    """A mask that selects less than all."""
    return np.arange(mask.size).reshape(mask.shape) % 4 != 1


def _types_of(value: Any) -> list[Any]:
    return [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in _flat(value)]


def _handler(function: Any) -> Callable[..., Any]:
    def handler(context: Context, *args: Any, **kwargs: Any) -> Any:
        return call_numpy(context, function, args, kwargs)

    return handler


for _module, _names in ((np.linalg, _LINALG), (np.fft, _FFT), (np, _OTHERS)):
    for _name in _names:
        _function = getattr(_module, _name, None)
        if _function is not None and _function not in FUNCTIONS:
            FUNCTIONS[_function] = _handler(_function)
