"""The machine that plans for TPUs count with."""

from __future__ import annotations

import math

from fuser.ir.target import Level, Target

# A TPU core: 16 MB of on-chip memory; what does not lie along its vectors is moved element by element.
TARGET = Target(
    (Level(8e6, 8e12), Level(math.inf, 0.8e12)),
    operations=4e12,
    strided=20e-12,
    launch=1e-6,
)
