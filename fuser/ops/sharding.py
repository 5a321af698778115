"""`sharding_constraint`: a value, and how it is to be laid out over a mesh of devices. It computes nothing.

`sharding` is a NamedSharding. Where its mesh has Explicit axes, the result's type says how it lies along them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import FLOATS
from fuser.ops.family import sample
from fuser.trace.core import type_of


def _transpose(ct: Any, x: Any, sharding: Any) -> tuple[Any]:
    """The cotangent laid out as the result is, or, where types say how values lie, as they say of the operand."""
    own = x.aval.explicit
    if own is None and sharding is not None and sharding.in_type(x.aval.ndim) is not None:
        return (ct,)
    return (sharding_constraint_p.bind(ct, sharding=sharding if own is None else own.cotangent()),)


def _batch(operands: Any, dims: Any, sharding: Any) -> Any:
    """The batch dimension stays as it lies."""
    (x,), (dim,) = operands, dims
    if sharding is None:
        return sharding_constraint_p.bind(x, sharding=None), dim
    explicit = type_of(x).explicit
    wanted = sharding.batched(dim) if explicit is None else sharding.batched(dim, explicit.spec.partitions[dim])
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
