"""The machine that plans for GPUs count with."""

from __future__ import annotations

import math

from fuser.ir.target import Level, Target

# A GPU for computing: 3.3 TB/s and 50 MB of cache beside 60 T additions a second; sectors of 32 bytes.
TARGET = Target(
    (Level(30e6, 6e12), Level(math.inf, 3e12)),
    operations=20e12,
    strided=8e-12,
    launch=3e-6,
)
