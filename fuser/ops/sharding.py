"""`sharding_constraint`: a value, and how it is to be laid out over a mesh of devices; `inspect_sharding` asks how it was. Neither computes.

`sharding` is a NamedSharding. Where its mesh has Explicit axes, the result's type says how it lies along them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.source import current_source
from fuser.ir.types import FLOATS
from fuser.ops.callback import TOKEN
from fuser.ops.family import sample
from fuser.trace.batch import spmd_axes
from fuser.trace.core import type_of


def _transpose(ct: Any, x: Any, sharding: Any) -> tuple[Any]:
    """The cotangent laid out as the result is, or, where types say how values lie, as they say of the operand."""
    own = x.aval.explicit
    if own is None and sharding is not None and sharding.in_type(x.aval.ndim) is not None:
        return (ct,)
    return (sharding_constraint_p.bind(ct, sharding=sharding if own is None else own.cotangent()),)


def check_apart(split: tuple[Any, ...], entries: Iterable[Any]) -> None:
    """ValueError where a mesh axis that splits a batch dimension splits another one already."""
    for entry in entries:
        for name in entry if isinstance(entry, tuple) else (entry,):
            if name in split:
                raise ValueError(
                    f"vmap spmd_axis_name cannot appear in the specs of what it maps, got spmd_axis_name {split} but spec {tuple(entries)} "
                    f"({current_source().short}); leave the axis out of the spec"
                )


def _batch(operands: Any, dims: Any, sharding: Any) -> Any:
    """The batch dimension stays as it lies."""
    (x,), (dim,) = operands, dims
    if sharding is None:
        return sharding_constraint_p.bind(x, sharding=None), dim
    explicit = type_of(x).explicit
    split = spmd_axes()
    check_apart(split, sharding.spec.partitions)
    if split:
        wanted = sharding.batched(dim, split)
    elif explicit is None:
        wanted = sharding.batched(dim)
    else:
        wanted = sharding.batched(dim, explicit.spec.partitions[dim])
    return sharding_constraint_p.bind(x, sharding=wanted), dim


sharding_constraint_p: Primitive = register(
    Primitive(
        "sharding_constraint",
        Fusion.ELEMENTWISE,
        linear=True,
        type=lambda x, sharding: x if sharding is None else x.update(x.shape, explicit=sharding.in_type(x.ndim)),
        eval=lambda x, sharding: x,
        lower=lambda x, sharding: x,
        transpose=_transpose,
        batch=_batch,
        samples=lambda: [((sample(np.random.default_rng(0), (3, 4), FLOATS[2]),), {"sharding": None})],
    )
)


class Inspection:
    """Calls a function with how a value of one trace lies, once."""

    def __init__(self, callback: Callable[[Any], None]) -> None:
        self.callback: Callable[[Any], None] | None = callback

    def tell(self, sharding: Callable[[], Any]) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(sharding())


def _unlaid(x: Any, *token: Any, inspection: Inspection, lone: Callable[[], Any], threaded: bool = False) -> list[Any]:
    """A program for one device."""
    inspection.tell(lone)
    return list(token)


def _batch_inspection(operands: Any, dims: Any, **params: Any) -> Any:
    return inspect_sharding_p.bind(*operands, **params), []


def _jvp_inspection(primals: Any, tangents: Any, **params: Any) -> Any:
    return inspect_sharding_p.bind(*primals, **params), []


inspect_sharding_p: Primitive = register(
    Primitive(
        "inspect_sharding",
        Fusion.LIBRARY,
        multiple_results=True,
        effect=True,
        type=lambda x, *token, threaded=False, **params: (TOKEN,) if threaded else (),
        eval=_unlaid,
        jvp=_jvp_inspection,
        batch=_batch_inspection,
        transpose=lambda cotangents, *operands, **params: [None] * len(operands),
    )
)
