"""Conversions from float16 and bfloat16 in the middle of a kernel: what is converted has the digits of its dtype."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.config import config

NARROW = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
PROGRAMS = {
    "exp": lambda x: fnp.exp(x),
    "product": lambda x: x * x,
    "choice": lambda x: fnp.where(x > 1, x * x, x),
    "negated": lambda x: -(x * 3),
    "total": lambda x: fnp.sum(x * x),
    "running": lambda x: fnp.cumsum(x),
    "memory": lambda x: x[::-1],
}


@pytest.mark.parametrize("dtype", NARROW)
def test_a_conversion_sees_a_rounded_value(dtype):
    """Each function's result converted to wider, narrower and complex dtypes, against the same in two programs."""
    x = np.linspace(0.1, 3, 64).astype(NARROW[dtype])
    wanted = ["float32", "complex64", "float16" if dtype == "bfloat16" else "bfloat16", "int32", "float64"]
    with config.using(enable_x64=True):

        def values(x):
            return [f(x) for f in PROGRAMS.values()]

        def converted(x):
            return [v.astype(w) for v in values(x) for w in wanted]

        kept = fuser.jit(values)(x)
        found = fuser.jit(converted)(x)
        for number, result in enumerate(found):
            value = np.asarray(kept[number // len(wanted)])
            name = wanted[number % len(wanted)]
            exact = np.asarray(fnp.asarray(value).astype(name))
            np.testing.assert_array_equal(np.asarray(result).astype(complex), exact.astype(complex), err_msg=name)
