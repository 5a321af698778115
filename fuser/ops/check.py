"""`check`: an error as a value that a program must not go on with, for `checkify` to collect.

Its operands are a code, 0 where all is well, and the arrays that messages name; `table` says what each code stands for
(`experimental/checkify`). Where `checkify` does not make it data, programs that are compiled `otherwise` "refuse" it, "ignore" it
or "raise" the error while they run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType
from fuser.ops.callback import TOKEN
from fuser.trace.batch import moved, size_of


class Raising:
    """How an error becomes an exception; set by fuser.experimental.checkify, which stands above."""

    raised: ClassVar[Callable[..., None]]
    batched: ClassVar[Callable[..., None]]


NOT_FUNCTIONALIZED = (
    "Cannot abstractly evaluate a checkify.check which was not functionalized. This probably means you tried to stage "
    "(jit/scan/pmap/...) a `check` without functionalizing it through `checkify.checkify`."
)


def _type(*avals: ArrayType, otherwise: str, threaded: bool = False, **params: Any) -> tuple[ArrayType, ...]:
    if threaded and otherwise == "refuse":  # it is about to be compiled
        raise ValueError(NOT_FUNCTIONALIZED)
    return (TOKEN,) if threaded else ()


def _eval(*arrays: np.ndarray, otherwise: str, threaded: bool = False, **params: Any) -> list[Any]:
    if otherwise != "ignore":
        Raising.raised(arrays[:-1] if threaded else arrays, **params)
    return [np.zeros((), TOKEN.dtype)] if threaded else []


def _batch(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[list[Any], list[Any]]:
    size = size_of(operands, dims)
    Raising.batched([moved(v, d, 0, size) for v, d in zip(operands, dims)], **params)
    return [], []


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    check_p.bind(*primals, **params)
    return [], []


check_p: Primitive = register(
    Primitive(
        "check",
        Fusion.LIBRARY,
        multiple_results=True,
        effect=True,
        type=_type,
        eval=_eval,
        jvp=_jvp,
        transpose=lambda cotangents, *operands, **params: [None] * len(operands),
        batch=_batch,
    )
)
