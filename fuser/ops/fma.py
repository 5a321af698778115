"""fma: x·y + z rounded once, as processors compute it and as XLA contracts products and sums."""

from __future__ import annotations

import numpy as np

from fuser.ir import scalar as S
from fuser.ir.scalar import fused
from fuser.ir.types import FLOATS
from fuser.ops.family import elementwise

fma_p = elementwise(
    "fma",
    (FLOATS[2], FLOATS[3]),
    arity=3,
    eval=lambda x, y, z: np.asarray(fused(x, y, z)),
    lower=lambda x, y, z: S.apply("fma", x, y, z),
    jvp=(lambda t, x, y, z, out: t * y, lambda t, x, y, z, out: x * t, lambda t, x, y, z, out: t),
)
