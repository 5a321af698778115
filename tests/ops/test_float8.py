"""Floats of 8 bits by arithmetic on bits: what ml_dtypes makes of all values of 8 bits and of float32's, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.ir import scalar as S
from fuser.ir.scalar import Scalar
from fuser.ops import float8

HIGH = np.arange(1 << 16, dtype=np.uint32) << 16
RANDOM = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
# All upper halves with lower ones around ties, and any bits.
FLOATS = np.concatenate([*(HIGH | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)), RANDOM]).view(np.float32)


@pytest.mark.parametrize("dtype", sorted(float8.FORMATS, key=str), ids=str)
def test_bits_are_those_of_ml_dtypes(dtype: np.dtype) -> None:
    x = Scalar("input", (), np.dtype("float32"), 0)
    with np.errstate(all="ignore"):
        expected = FLOATS.astype(dtype)
    found = S.evaluate(float8.encoded(x, dtype), {0: FLOATS})
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))
    values = np.arange(256, dtype=np.uint8).view(dtype)
    decoded = S.evaluate(float8.decoded(Scalar("input", (), dtype, 0)), {0: values})
    np.testing.assert_array_equal(decoded, values.astype(np.float32))  # nan where that is nan
    assert (np.signbit(decoded) == np.signbit(values.astype(np.float32)))[~np.isnan(decoded)].all()
