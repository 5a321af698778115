"""test_util: right derivatives pass, wrong ones do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser import numpy as fnp
from fuser.test_util import check_grads, check_jvp, check_vjp

LIMITS: dict[str, Any] = {"eps": 1e-2, "atol": 2e-2, "rtol": 2e-2}


def test_right_derivatives() -> None:
    function = lambda x, y: {"out": fnp.sin(x) * y, "whole": fnp.round(y).astype("int32")}
    args = (np.float32(0.3), np.linspace(0.1, 0.4, 3, dtype=np.float32))
    check_grads(function, args, 1, ("fwd", "rev", "lin"), **LIMITS)
    check_grads(lambda x: fnp.exp(x * 1j).real * x, (np.ones(3, np.float32),), 2, **LIMITS)
    check_grads(lambda z: z * fnp.conj(z) * 2, (np.array([1 + 2j], np.complex64),), 1, **LIMITS)


def test_wrong_derivatives() -> None:
    @fuser.custom_jvp
    def square(x: Any) -> Any:
        return x**2

    square.defjvp(lambda primals, tangents: (primals[0] ** 2, 3 * primals[0] * tangents[0]))
    for check, push in ((check_jvp, fuser.jvp), (check_vjp, fuser.vjp)):
        with pytest.raises(AssertionError):
            check(square, lambda *a, push=push: push(square, *a), (2.0,))
    with pytest.raises(AssertionError, match="JVP tangent"):
        check_grads(square, (2.0,), 1)
