"""The machine that plans for CPUs count with: one core's share, as a kernel's arithmetic and its bytes grow alike with cores.

Figures are those of an Intel server's core at 2.8 to 3.5 GHz with vectors of 64 bytes, measured by kernels of this backend
(`python -m bench.model --operations`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from fuser.ir.target import Level, Target

# What a function takes, in additions: polynomials of the vectorised maths in runtime/kernels/math, and what has no vector form.
COSTS = {
    **dict.fromkeys(("div",), 8.0),
    **dict.fromkeys(("sqrt", "nextafter"), 10.0),
    **dict.fromkeys(("exp", "exp2", "expm1", "acos", "asin", "atan", "cosh"), 18.0),
    **dict.fromkeys(("log", "log2", "atan2", "sinh", "tanh"), 26.0),
    **dict.fromkeys(("log1p", "sin", "cos", "tan"), 30.0),
    **dict.fromkeys(("cbrt", "erf"), 40.0),
    **dict.fromkeys(("erfc", "asinh", "acosh", "atanh"), 58.0),
    "pow": 90.0,
    "lgamma": 150.0,
    "rem": 500.0,
    "cast_int": 5.0,
    "int_div": 42.0,
    "int_rem": 43.0,
    "int_div_const": 7.0,
    "int_pow": 100.0,
    "index_div": 40.0,
    "popcount": 4.0,
    "clz": 5.0,
    "threefry0": 60.0,
    "threefry1": 60.0,
    "reduce_sum": 1.5,
    **dict.fromkeys(("reduce_max", "reduce_min"), 3.0),
    **dict.fromkeys(("reduce_argmax", "reduce_argmin"), 14.0),
    "reduce_logaddexp": 60.0,
    "padding": 32.0,  # asking, in a loop of reductions, whether an element is inside of it
    "piece": 8.0,  # asking which piece of an array an element is of, and reading it there
}

TARGET = Target(
    (Level(48e3, 150e9), Level(1e6, 45e9), Level(16e6, 33e9), Level(math.inf, 18e9)),
    operations=60e9,
    strided=0.5e-9,
    launch=0.3e-6,
    jump=40e-9,
    costs=COSTS,
    vector=64,
    registers=28,
    line=64,
    scalar=8,
    latency=1.4e-9,
    gathered=0.8e-9,
    prefix=0.65e-9,
    scanned=64,
    step=30e-9,
    loop=3e-9,
    combine=10e-9,
    fork=3e-6,  # 1 µs where the threads of a team still wait for work, and 35 µs where they sleep
    alone=15e-6,
    tiled=0.2e-9,
    shuffled=0.1e-9,
    products=130e9,
    unrolled=8,  # pools of 2 by 4 take 0.6 of the time of two steps, of 3 by 3 1.1, of 4 by 4 2.5
    scratch=1 << 17,
    kept=4,  # at 3.25 computing again takes as long
    streamed=24e6,
    exposed=0.25,
)

# The same of AMD's fourth generation of Zen: vectors pass in halves, and a line that is written whole is not read before.
ZEN = replace(
    TARGET,
    levels=(Level(32e3, 150e9), Level(1e6, 92e9), Level(16e6, 77e9), Level(math.inf, 33e9)),
    operations=75e9,
    allocate=1,
    products=104e9,
    strided=0.25e-9,
    gathered=0.4e-9,
    prefix=0.45e-9,
    tiled=0.1e-9,
)


# What a matrix unit (Intel AMX) adds and multiplies a second, large matrices from memory and into it among them.
MATRIX_UNIT = {"int8": 1500e9, "uint8": 1500e9, "bfloat16": 700e9}


def like(processor: str) -> Target:
    """A core of a processor, by its vendor and features, for reports of what kernels take on it; plans count with TARGET on all."""
    features = set(processor.split())
    target = ZEN if "AuthenticAMD" in processor and "avx512f" in features else TARGET
    return replace(target, short_products=MATRIX_UNIT) if {"amx_int8", "amx_bf16"} <= features else target
