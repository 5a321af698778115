"""Signs of numbers against values: exponentials of what cannot be positive leave out the test of overflow, and give the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.ir import scalar
from fuser.ir.scalar import Scalar
from fuser.kernel.signs import not_positive

F32 = np.dtype("float32")
X, Y = (Scalar("load", (), F32, name) for name in "xy")
ZERO = scalar.constant(0.0, F32)

NEVER_POSITIVE: dict[str, Callable[[Any], Any]] = {
    "minimum": lambda x: fnp.minimum(x, 0),
    "minus a square": lambda x: -(x * x) * 0.5,
    "over a constant": lambda x: -(x**2) / 0.02 - 1.5,
    "minus a size": lambda x: -fnp.abs(x) - fnp.sqrt(fnp.abs(x)),
    "beside its largest": lambda x: x - fnp.max(x, axis=-1, keepdims=True),
    "a choice": lambda x: fnp.where(x > 1, -fnp.abs(x), -2.0),
    "an odd function": lambda x: fnp.arctan(fnp.minimum(x, -0.0)),
}


@pytest.mark.parametrize(
    ("node", "low", "high"),
    [
        (X, False, False),
        (X * X, True, False),
        (X * Y, False, False),
        (-(X * X), False, True),
        (scalar.apply("abs", X) * ZERO, True, True),
        (scalar.apply("abs", X) / scalar.constant(-3.0, F32), False, True),
        (-(X * X) / (Y * Y), False, False),  # a square may be 0, and of -0 the sign of the quotient is another one
        (-(X * X) / ZERO, False, False),
        (X * X - Y * Y, False, False),
        (-(X * X) - Y * Y, False, True),
        (scalar.apply("max", X, ZERO), True, False),
        (scalar.apply("min", X, -(Y * Y)), False, True),
    ],
)
def test_signs_of_expressions(node: Scalar, low: bool, high: bool) -> None:
    assert (not_positive(-node), not_positive(node)) == (low, high)


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
@pytest.mark.parametrize("name", NEVER_POSITIVE)
def test_exponentials_of_what_is_not_positive(name: str, dtype: Any) -> None:
    """The same bits as of an argument of which nothing is known; nan, infinities and subnormal results among them."""
    random = np.random.default_rng(1)
    x = np.concatenate([random.standard_normal(40) * size for size in (0.1, 1, 10, 100, 1000)]).astype(dtype)
    x = x.reshape(10, 20)
    x[3:6, 7] = np.nan, np.inf, -np.inf
    function = NEVER_POSITIVE[name]
    with fuser.enable_x64(), np.errstate(all="ignore"):
        argument = fuser.jit(function)(x)
        found, wanted = fuser.jit(lambda x: fnp.exp(function(x)))(x), fuser.jit(fnp.exp)(argument)
    size = f"u{np.dtype(dtype).itemsize}"
    nan = np.isnan(np.asarray(wanted))
    np.testing.assert_array_equal(np.isnan(np.asarray(found)), nan)
    np.testing.assert_array_equal(np.asarray(found).view(size)[~nan], np.asarray(wanted).view(size)[~nan])


def test_the_exponential_of_any_nan_is_nan() -> None:
    x = (np.uint32(0x7F800001) + np.arange(600, dtype=np.uint32)).view(np.float32)
    assert np.isnan(np.asarray(fuser.jit(lambda x: fnp.exp(fnp.minimum(x, 0)))(x))).all()
