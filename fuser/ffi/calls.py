"""`ffi_call`: a registered handler as a function of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fuser.api.shapes import declared_type
from fuser.errors import UnsupportedError
from fuser.ir.types import ArrayType
from fuser.lax.values import as_value
from fuser.ops.callback import VMAP_METHODS
from fuser.ops.ffi import ffi_call_p, ffi_effect_p
from fuser.runtime.foreign import TEXT, Attribute, dtype_code
from fuser.trace.core import type_of


def ffi_call(
    target_name: str,
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_layouts: Sequence[Any] | None = None,
    output_layouts: Any = None,
    input_output_aliases: dict[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: str | None = None,
) -> Callable[..., Any]:
    """A function of arrays that calls the handler `target_name`; what it gives are arrays of `result_shape_dtypes`.

    These are one thing with `shape` and `dtype`, or a sequence of such. Keyword arguments of the function are the handler's
    attributes: bools, integers (int64), floats (float64), texts, NumPy scalars and arrays. With `has_side_effect` it is called
    once for each time it is reached, in order, even if nobody needs its results. `vmap_method` as in `pure_callback`.
    `input_output_aliases` {argument: result}: the handler finds the argument in the result's memory. A handler that fails
    raises JaxRuntimeError. It has no derivative. UnsupportedError for other layouts than row-major.
    """
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"vmap_method must be on of the allowed methods {list(VMAP_METHODS)}, but got: {vmap_method}")
    if legacy_backend_config is not None:
        raise ValueError(
            "The use of the legacy_backend_config parameter requires custom_call_api_version < 4; "
            f"got {custom_call_api_version}."
        )
    several = isinstance(result_shape_dtypes, Sequence)
    declared = tuple(map(declared_type, result_shape_dtypes if several else [result_shape_dtypes]))
    out_layouts = output_layouts if several else None if output_layouts is None else [output_layouts]
    primitive = ffi_effect_p if has_side_effect else ffi_call_p

    def call(*args: Any, **attributes: Any) -> Any:
        values = [as_value(a, target_name) for a in args]
        avals = [type_of(v) for v in values]
        _row_major(avals, input_layouts, "input")
        _row_major(declared, out_layouts, "output")
        for aval in (*avals, *declared):
            dtype_code(aval.dtype)
        found = primitive.bind(
            *values,
            target_name=target_name,
            result_avals=declared,
            vmap_method=vmap_method,
            attributes=tuple(_attribute(name, attributes[name]) for name in sorted(attributes)),
            input_output_aliases=_aliases(input_output_aliases or {}, avals, declared),
        )
        return tuple(found) if several else found[0]

    return call


def _row_major(avals: Sequence[ArrayType], layouts: Sequence[Any] | None, what: str) -> None:
    if layouts is None:
        return
    if len(layouts) != len(avals):
        plural = "input arguments" if what == "input" else "outputs"
        raise ValueError(
            f"The number of {plural} ({len(avals)}) must equal the number of {what} layouts ({len(layouts)})."
        )
    for aval, layout in zip(avals, layouts):
        order = getattr(layout, "major_to_minor", layout)
        if order is not None and tuple(order) != tuple(range(aval.ndim)):
            raise UnsupportedError(
                f"foreign functions take row-major arrays, got the {what} layout {tuple(order)}; transpose the array instead"
            )


def _aliases(
    wanted: dict[int, int], avals: Sequence[ArrayType], results: Sequence[ArrayType]
) -> tuple[tuple[int, int], ...]:
    for i, o in wanted.items():
        head = f"input_output_aliases contains the mapping '{i}:{o}'"
        if not 0 <= i < len(avals):
            raise ValueError(f"{head} with input index {i} outside the range [0, {len(avals)}).")
        if not 0 <= o < len(results):
            raise ValueError(f"{head} with output index {o} outside the range [0, {len(results)}).")
        if (avals[i].shape, avals[i].dtype) != (results[o].shape, results[o].dtype):
            raise ValueError(
                f"{head} referring to an input with abstract value {avals[i].str_long()} and an output with a different "
                f"abstract value {results[o].str_long()}."
            )
    return tuple(sorted((int(i), int(o)) for i, o in wanted.items()))


def _attribute(name: str, value: Any) -> Attribute:
    """An attribute as C reads it. TypeError for what is neither a number, a text nor an array of numbers."""
    if isinstance(value, str):
        data = value.encode()
        return name, TEXT, True, len(data), data
    array = np.asarray(value)
    if array.dtype == object or (
        array.dtype.kind in "USV" and array.dtype.names is None and array.dtype.name != "bfloat16"
    ):
        raise TypeError(
            f"attribute {name!r} of a foreign function is a {type(value).__name__}; attributes are numbers, texts and arrays of numbers"
        )
    return name, dtype_code(array.dtype), array.ndim > 0, array.size, array.tobytes()
