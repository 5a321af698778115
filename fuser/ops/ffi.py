"""Calls of foreign functions: `ffi_call`, and `ffi_effect` for those that do something besides, which happen in order.

What such a function is given stands in `fuser/ffi.h`. On the CPU a call is a step between kernels, without Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.ir.primitive import REGISTRY, Fusion, Primitive, register
from fuser.ir.types import ArrayType
from fuser.ops.callback import TOKEN
from fuser.runtime import foreign
from fuser.runtime.array import to_numpy
from fuser.runtime.executable import CFunction
from fuser.trace.batch import moved, size_of
from fuser.trace.body import close
from fuser.trace.core import type_of
from fuser.trace.stage import stage


def call_sizes(avals: Sequence[ArrayType], results: Sequence[ArrayType], aliases: Any) -> list[int]:
    """What follows the first six size arguments of a call: each buffer's dtype, rank, shared result and extents."""
    shared = dict(aliases)
    sizes: list[int] = []
    for n, aval in enumerate((*avals, *results)):
        of = shared.get(n, -1) if n < len(avals) else -1
        sizes += [foreign.dtype_code(aval.dtype), len(aval.shape), of, *aval.shape]
        sizes += [aval.nbytes] if of >= 0 else []
    return sizes


def _eval(
    *arrays: np.ndarray,
    target_name: str,
    result_avals: Sequence[ArrayType],
    attributes: tuple[foreign.Attribute, ...],
    input_output_aliases: Any,
    threaded: bool = False,
    **params: Any,
) -> list[np.ndarray]:
    operands = [np.array(to_numpy(a), order="C") for a in (arrays[:-1] if threaded else arrays)]
    results = [np.zeros(a.shape, a.dtype) for a in result_avals]
    avals = [ArrayType(a.shape, a.dtype) for a in operands]
    head = [foreign.target(target_name), foreign.address("attributes", attributes), len(attributes)]
    head += [len(operands), len(results), foreign.address("name", target_name)]
    symbol = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(foreign.address("run"))
    CFunction(symbol, [*head, *call_sizes(avals, result_avals, input_output_aliases)])([*operands, *results])
    return [*results, np.zeros((), TOKEN.dtype)] if threaded else results


def _type(
    *avals: ArrayType, result_avals: Sequence[ArrayType], threaded: bool = False, **params: Any
) -> tuple[ArrayType, ...]:
    return (*result_avals, TOKEN) if threaded else tuple(result_avals)


def _refused(*args: Any, target_name: str, **params: Any) -> Any:
    raise ValueError(
        f"The FFI call to `{target_name}` cannot be differentiated. You can use `jax.custom_jvp` or `jax.custom_jvp` to add "
        "support."
    )


def _batch(name: str) -> Callable[..., Any]:
    def batch(
        operands: Sequence[Any],
        dims: Sequence[int | None],
        vmap_method: str | None,
        result_avals: Sequence[ArrayType],
        **params: Any,
    ) -> tuple[Any, Any]:
        primitive, size = REGISTRY[name], size_of(operands, dims)
        if vmap_method in ("sequential", "sequential_unrolled"):
            each = {**params, "vmap_method": vmap_method, "result_avals": tuple(result_avals)}
            return sequential(primitive, operands, dims, size, each), [0] * len(result_avals)
        extents = {"legacy_vectorized": None, "expand_dims": 1, "broadcast_all": size}
        if vmap_method not in extents:
            raise NotImplementedError(
                "vmap is only supported for the ffi_call primitive when vmap_method is one of 'sequential', "
                f"'sequential_unrolled', 'expand_dims', 'broadcast_all', or 'legacy_vectorized'. Got {vmap_method=}."
            )
        extent = extents[vmap_method]
        given = [moved(v, d, 0, None if d is not None else extent) for v, d in zip(operands, dims)]
        avals = tuple(a.along(0, size) for a in result_avals)
        return primitive.bind(*given, vmap_method=vmap_method, result_avals=avals, **params), [0] * len(avals)

    return batch


def sequential(
    primitive: Primitive, operands: Sequence[Any], dims: Sequence[int | None], size: int, params: dict[str, Any]
) -> list[Any]:
    """One call for each element along the dimensions, in a loop; results with a dimension in front."""
    fixed = [v for v, d in zip(operands, dims) if d is None]
    rows = [moved(v, d, 0) for v, d in zip(operands, dims) if d is not None]

    def body(*inputs: Any) -> list[Any]:
        known, row = iter(inputs[: len(fixed)]), iter(inputs[len(fixed) :])
        found: Any = primitive.bind(*(next(known if d is None else row) for d in dims), **params)
        return list(found) if primitive.multiple_results else [found]

    avals = [*map(type_of, fixed), *(type_of(r).without(0) for r in rows)]
    graph, consts = close(stage(body, avals, primitive.name))
    found: list[Any] = REGISTRY["scan"].bind(
        *consts, *fixed, *rows,
        jaxpr=graph, num_consts=len(consts) + len(fixed), num_carry=0, length=size, reverse=False, unroll=1,
    )  # fmt: skip
    return found


def _call(name: str, effect: bool) -> Primitive:
    return register(
        Primitive(
            name,
            Fusion.LIBRARY,
            multiple_results=True,
            effect=effect,
            type=_type,
            eval=_eval,
            jvp=_refused,
            transpose=_refused,
            batch=_batch(name),
        )
    )


ffi_call_p = _call("ffi_call", False)
ffi_effect_p = _call("ffi_effect", True)
