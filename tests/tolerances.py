"""How far results may lie from the exact ones: one table for each way of measuring, by dtype.

Elementwise results are measured in ulps (representable values apart), reductions relative to the size of what is reduced.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.types import FLOATS, SMALL, bfloat16

F16, BF16, F32, F64 = FLOATS

# Elementwise primitives against the same primitive computed wider and rounded once; the C backend's own functions stay within 4 ulps.
ULPS: dict[np.dtype, float] = {F16: 1, BF16: 1, F32: 4, F64: 4, **dict.fromkeys(SMALL, 0)}

# Primitives of several steps, in ulps, and in units of eps where terms cancel close to a root.
LOOSER: dict[str, tuple[float, float]] = {
    "digamma": (16, 32),
    "igamma_grad_a": (16, 0),
    "random_gamma_grad": (16, 0),
    "regularized_incomplete_beta": (16, 0),
    "lgamma": (8, 8),
    "erf_inv": (8, 0),
    "bessel_i0e": (8, 0),
    "bessel_i1e": (8, 0),
    "bessel_j0": (8, 8),
    "bessel_j1": (8, 8),
    "zeta": (16, 0),
    "polygamma": (16, 0),
    "integer_pow": (6, 0),
    "logistic": (6, 0),
    "logaddexp": (4, 4),
    "logaddexp2": (4, 8),
    "logit": (8, 4),
    "triangular_solve": (16, 16),
}

# Real JAX, whose own functions are less exact than ours: relative.
JAX: dict[np.dtype, float] = {F16: 4e-3, BF16: 2e-2, F32: 2e-5, F64: 1e-12}
JAX.update({np.dtype("complex64"): 1e-4, np.dtype("complex128"): 1e-12})

# Complex results: distance over magnitude.
COMPLEX: dict[np.dtype, float] = {np.dtype("complex64"): 2e-6, np.dtype("complex128"): 4e-15}

# Reductions and contractions: error over the sum of magnitudes.
REDUCTION: dict[np.dtype, float] = {F16: 1e-3, BF16: 8e-3, F32: 1e-6, F64: 1e-14, **COMPLEX}

# Whole programs of a dozen operations, relative and absolute.
PROGRAM: dict[np.dtype, float] = {
    F16: 2e-2,
    bfloat16: 1e-1,
    F32: 2e-4,
    F64: 1e-10,
    np.dtype("complex64"): 2e-4,
    np.dtype("complex128"): 1e-10,
}
