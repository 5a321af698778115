"""Calls of Python functions on the host, out of compiled programs: `pure_callback`, `io_callback` and `debug_callback`.

A `Callback` takes and gives flat arrays. A pure one may be left out, repeated or moved as any other primitive. The other two
have an effect: programs run each of them once, in the order in which they stand (`passes/tokens.py`); with `threaded` their
last operand and their last result is the token that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuser.errors import JaxRuntimeError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType, short_dtype
from fuser.runtime.array import Array, to_numpy
from fuser.trace.batch import moved, size_of
from fuser.trace.core import EVALUATION, using

TOKEN = ArrayType((), np.dtype(np.uint8))
VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized", None)


@dataclass(frozen=True)
class Callback:
    """A function from Arrays to a sequence of arrays, `name` for messages, equal to another one of equal fields."""

    function: Callable[..., Sequence[Any]]
    name: str


@dataclass(frozen=True)
class Sequential:
    """A callback done once for each element along the leading dimension of those operands that are `batched`."""

    callback: Any
    batched: tuple[bool, ...]
    size: int
    result_avals: tuple[ArrayType, ...]

    @property
    def name(self) -> str:
        return str(self.callback.name)

    def function(self, *arrays: Any) -> list[np.ndarray]:
        """The results of all elements, stacked."""
        out = [np.empty((self.size, *a.shape), a.dtype) for a in self.result_avals]
        for n in range(self.size):
            given = [Array(np.asarray(to_numpy(a)[n])) if use else a for a, use in zip(arrays, self.batched)]
            for target, value in zip(out, checked(self.callback.function(*given), self.result_avals, self.name)):
                target[n] = value
        return out


def checked(results: Sequence[Any], avals: Sequence[ArrayType], name: str) -> list[np.ndarray]:
    """What a callback gave as ndarrays of these types. ValueError for other shapes, dtypes, or another number of them."""
    found = [to_numpy(r) if isinstance(r, Array) else np.asarray(r) for r in results]
    if len(found) != len(avals):
        raise ValueError(f"the callback {name} gave {len(found)} arrays, and {len(avals)} are declared")
    for value, aval in zip(found, avals):
        if value.dtype != aval.dtype:
            raise ValueError(
                f"Incorrect output dtype for return value: the callback {name} gave {value.dtype}, and {aval} is declared; return an "
                "array of that dtype"
            )
        if value.shape != aval.shape:
            raise ValueError(
                f"Mismatched result shape: the callback {name} gave {short_dtype(value.dtype)}{list(value.shape)}, "
                f"and {aval} is declared; return an array of that shape and dtype"
            )
    return found


def call(
    *arrays: np.ndarray, callback: Any, result_avals: Sequence[ArrayType], threaded: bool = False, **params: Any
) -> Any:
    """The callback's results. JaxRuntimeError with the text of what it raised."""
    operands = arrays[:-1] if threaded else arrays
    token = [np.zeros((), TOKEN.dtype)] if threaded else []
    given = [Array(np.array(to_numpy(a))) for a in operands]  # a copy: the memory of temporaries is used again
    try:
        with using(EVALUATION), np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
            return [*checked(callback.function(*given), result_avals, callback.name), *token]
    except Exception as error:
        import traceback  # here, as few programs come here

        words = "".join(traceback.format_exception(error)).strip()
        raise JaxRuntimeError(f"INTERNAL: error in the callback {callback.name}: {words}") from error


def _run(*args: Any, result_avals: Sequence[ArrayType], **params: Any) -> list[Array]:
    return [Array(r) for r in call(*args, result_avals=result_avals, **params)]


def _type(
    *avals: ArrayType, result_avals: Sequence[ArrayType], threaded: bool = False, **params: Any
) -> tuple[ArrayType, ...]:
    return (*result_avals, TOKEN) if threaded else tuple(result_avals)


def _refused(message: str) -> Callable[..., Any]:
    def rule(*args: Any, **params: Any) -> Any:
        raise ValueError(message)

    return rule


def _sequentially(
    primitive: Primitive, operands: Any, dims: Any, callback: Any, result_avals: Any, **params: Any
) -> Any:
    size = size_of(operands, dims)
    fronted = [moved(v, d, 0) for v, d in zip(operands, dims)]
    each = Sequential(callback, tuple(d is not None for d in dims), size, tuple(result_avals))
    results = primitive.bind(*fronted, callback=each, result_avals=_batched(result_avals, size), **params)
    return results, [0] * len(results)


def _batched(avals: Sequence[ArrayType], size: int) -> tuple[ArrayType, ...]:
    return tuple(a.update(shape=(size, *a.shape)) for a in avals)


def _batch_pure(
    operands: Sequence[Any], dims: Sequence[int | None], vmap_method: str | None, result_avals: Any, **params: Any
) -> Any:
    if vmap_method is None:
        raise NotImplementedError(
            "vmap is only supported for the pure_callback primitive when vmap_method is one of 'sequential', "
            "'sequential_unrolled', 'expand_dims', 'broadcast_all', or 'legacy_vectorized'; got None"
        )
    if vmap_method.startswith("sequential"):
        return _sequentially(
            pure_callback_p, operands, dims, vmap_method=vmap_method, result_avals=result_avals, **params
        )
    size = size_of(operands, dims)
    extent = {"legacy_vectorized": None, "expand_dims": 1, "broadcast_all": size}[vmap_method]
    given = [moved(v, d, 0, None if d is not None else extent) for v, d in zip(operands, dims)]
    params |= {"vmap_method": vmap_method, "result_avals": _batched(result_avals, size)}
    results = pure_callback_p.bind(*given, **params)
    return results, [0] * len(results)


def _batch_io(operands: Sequence[Any], dims: Sequence[int | None], ordered: bool, **params: Any) -> Any:
    if ordered:
        raise ValueError("Cannot `vmap` ordered IO callback.")
    return _sequentially(io_callback_p, operands, dims, ordered=ordered, **params)


def _batch_debug(operands: Sequence[Any], dims: Sequence[int | None], callback: Any, **params: Any) -> Any:
    """As if the function that is mapped were done for its elements in turn, each of which is mapped by what is around it."""
    axes = [loops(callback, n) if d is not None else 0 for n, d in enumerate(dims)]
    values = [moved(v, d, axis) for v, d, axis in zip(operands, dims, axes)]
    each = _innermost(callback, tuple(d is not None for d in dims), size_of(operands, dims))
    return debug_callback_p.bind(*values, callback=each, **params), []


def loops(callback: Any, operand: int) -> int:
    """How many loops over elements take an operand apart."""
    return callback.batched[operand] + loops(callback.callback, operand) if isinstance(callback, Sequential) else 0


def _innermost(callback: Any, batched: tuple[bool, ...], size: int) -> Sequential:
    if isinstance(callback, Sequential):
        return replace(callback, callback=_innermost(callback.callback, batched, size))
    return Sequential(callback, batched, size, ())


def _debug_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    debug_callback_p.bind(*primals, **params)
    return [], []


pure_callback_p: Primitive = register(
    Primitive(
        "pure_callback",
        Fusion.LIBRARY,
        multiple_results=True,
        type=_type,
        eval=call,
        run=_run,
        jvp=_refused(
            "Pure callbacks do not support JVP. Please use `jax.custom_jvp` to use callbacks while taking gradients."
        ),
        transpose=_refused(
            "Pure callbacks do not support transpose. Please use `jax.custom_vjp` to use callbacks while taking gradients."
        ),
        batch=_batch_pure,
    )
)
io_callback_p: Primitive = register(
    Primitive(
        "io_callback",
        Fusion.LIBRARY,
        multiple_results=True,
        effect=True,
        type=_type,
        eval=call,
        run=_run,
        jvp=_refused("IO callbacks do not support JVP."),
        transpose=_refused("IO callbacks do not support transpose."),
        batch=_batch_io,
    )
)
debug_callback_p: Primitive = register(
    Primitive(
        "debug_callback",
        Fusion.LIBRARY,
        multiple_results=True,
        effect=True,
        type=_type,
        eval=call,
        run=_run,
        jvp=_debug_jvp,
        transpose=lambda cotangents, *operands, **params: [None] * len(operands),
        batch=_batch_debug,
    )
)
