"""C kernels with their loop inside against the reference: lanes that stop by themselves, dtypes, odd sizes, random bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.config import config
from fuser.partition.group import Kind
from tests.backends.loop_cases import COMPLEX, DTYPES, EDGES, WITH_LANES

CASES = {**WITH_LANES, **DTYPES, **COMPLEX, **EDGES}
# A few operations an iteration: relative errors of float16 and bfloat16 are of one rounding each.
TOLERANCE = {"float16": 2e-2, "bfloat16": 2e-1, "float32": 2e-6, "complex64": 1e-5}


def run(function: Callable[..., Any], args: tuple[Any, ...], backend: str) -> list[np.ndarray]:
    with config.using(backend=backend, enable_x64=True):
        return [np.asarray(leaf) for leaf in fuser.tree.leaves(fuser.jit(function)(*args))]


@pytest.mark.parametrize("name", CASES)
def test_a_loop_kernel_agrees_with_the_reference(name: str) -> None:
    function, args = CASES[name]
    with config.using(backend="c", enable_x64=True):
        assert [g.kind for g in fuser.jit(function).lower(*args).plan.groups] == [Kind.LOOP]
    for got, want in zip(run(function, args, "c"), run(function, args, "reference"), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        limit = TOLERANCE.get(got.dtype.name, 1e-13)
        if got.dtype.kind in "iub":
            assert (got == want).all()
        else:
            wide = np.complex128 if got.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), limit, limit)
