"""`sharding_constraint`: a value, and how it is to be laid out over a mesh of devices. It computes nothing."""

from __future__ import annotations

import numpy as np

from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import FLOATS
from fuser.ops.family import sample

sharding_constraint_p: Primitive = register(
    Primitive(
        "sharding_constraint",
        Fusion.ELEMENTWISE,
        linear=True,
        type=lambda x, sharding: x,
        eval=lambda x, sharding: x,
        lower=lambda x, sharding: x,
        transpose=lambda ct, x, sharding: (sharding_constraint_p.bind(ct, sharding=sharding),),
        batch=lambda operands, dims, sharding: (
            sharding_constraint_p.bind(operands[0], sharding=sharding and sharding.batched(dims[0])),
            dims[0],
        ),
        samples=lambda: [((sample(np.random.default_rng(0), (3, 4), FLOATS[2]),), {"sharding": None})],
    )
)
