"""The axis of vectors: along which most bytes lie side by side, or, where hardly any do, neighbours share lines of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser.backends.c.target import TARGET
from fuser.kernel.loops import arrange
from fuser.kernel.lower import lower
from fuser.kernel.unroll_residues import unroll_residues

X, ROWS, COLUMNS = np.ones((300, 200), np.float32), np.ones(300, np.float32), np.ones(200, np.float32)


@pytest.mark.parametrize(
    ("program", "operands", "extent"),
    (
        (lambda x, c: x.at[:, ::2].set(c[:, None]), (X, ROWS), 100),
        (lambda x, c: x[:, ::2] * c[:, None], (X, ROWS), 100),
        (lambda x, c: x.at[::2].set(c), (X, COLUMNS), 200),
        (lambda x, c: x.T * c, (X, ROWS), 300),
    ),
    ids=("every other column written", "every other column read", "every other row", "transposed"),
)
def test_vectors_run_along_the_densest_axis(program: Callable[..., Any], operands: Any, extent: int) -> None:
    lowered = fuser.jit(program, backend="c").lower(*operands)
    [group] = lowered.plan.groups
    [kernel] = unroll_residues(lower(group), TARGET)
    loops = arrange(kernel)
    assert loops.vector is not None
    assert loops.extents[loops.vector] == extent
    expected = fuser.jit(program, backend="reference")(*operands)
    np.testing.assert_array_equal(fuser.jit(program, backend="c")(*operands), expected)
