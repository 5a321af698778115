"""Which axis the vectors of a kernel run along."""

from __future__ import annotations

import numpy as np
import pytest

import fuser
import fuser.numpy as jnp
from fuser import lax
from fuser.ir.target import CORE
from fuser.kernel.loops import arrange
from fuser.kernel.lower import lower
from fuser.kernel.unroll_residues import unroll_residues


def _turned(x, table):
    """Rotary positions: complex numbers of (batch, positions, heads, pairs) by a table of (positions, pairs)."""
    z = lax.complex(x[..., 0], x[..., 1]) * table[None, :, None]
    return jnp.stack([jnp.real(z), jnp.imag(z)], -1)


@pytest.mark.parametrize("heads", [4, 64])
def test_pairs_that_lie_side_by_side(heads: int) -> None:
    """No axis has unit stride: the one of the nearest elements is taken, not one of which the table knows nothing."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 16, heads, 24, 2), np.float32)
    table = np.exp(1j * rng.standard_normal((16, 24))).astype(np.complex64)
    run = fuser.jit(_turned)
    (group,) = run.lower(x, table).plan.groups
    [kernel] = unroll_residues(lower(group), CORE)  # real and imaginary parts are two stores of one iteration
    assert arrange(kernel).vector.extent == 24
    z = (x[..., 0] + 1j * x[..., 1]) * table[None, :, None]
    np.testing.assert_allclose(run(x, table), np.stack([z.real, z.imag], -1), rtol=1e-5, atol=1e-5)
