"""Inverses with log-determinants against Jacobians, and effect handlers under the transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax, oryx

MATRIX = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, -0.4], [0.0, 0.6, 1.2]], np.float32)
X = np.array([0.3, -0.2, 0.5], np.float32)


def _coupling(x: Any) -> Any:
    first, rest = x[:1], x[1:]
    h = fnp.tanh(first * 1.5)
    return fnp.concatenate([first, rest * fnp.exp(h) + h])[::-1]


FUNCTIONS = {
    "scalar chain": lambda x: fnp.tanh(2 * x + 1) / 3,
    "positive": lambda x: fnp.log1p(fnp.exp(x)) ** 3 - 0.5,
    "matrix": lambda x: MATRIX @ fnp.sinh(x),
    "vector on the left": lambda x: fuser.nn.sigmoid(x) @ MATRIX,
    "cumulative": lambda x: fnp.cumsum(fnp.exp(x)).reshape(3, 1),
    "coupling": _coupling,
    "two couplings": lambda x: _coupling(_coupling(x)),
    "jit inside": fuser.jit(lambda x: lax.rsqrt(fuser.jit(fnp.exp)(x))),
    "inverse hyperbolic": lambda x: fnp.arcsinh(x).T,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_inverses_and_their_determinants(name: str) -> None:
    function = FUNCTIONS[name]
    y = function(X)
    x, log = fuser.jit(oryx.inverse_and_ildj(function, X))(y)
    np.testing.assert_allclose(x, X, rtol=2e-4, atol=1e-5)
    slope = np.asarray(fuser.jacfwd(function)(X), np.float64).reshape(3, 3)
    np.testing.assert_allclose(log, -np.linalg.slogdet(slope)[1], rtol=2e-4, atol=1e-5)


def test_inverses_under_transforms_and_of_several_arguments() -> None:
    batch = np.stack([X, X + 0.1])
    logs = fuser.vmap(oryx.ildj(fnp.exp))(fnp.exp(batch))
    np.testing.assert_allclose(logs, -batch.sum(1), rtol=1e-5)
    density = lambda scale: oryx.ildj(lambda x: scale * x)(X)
    np.testing.assert_allclose(fuser.grad(density)(2.0), -1.5, rtol=1e-6)
    a, b = oryx.inverse(lambda a, b: (a + fnp.exp(b), 2 * b), X, X)(X + np.exp(X), 2 * X)
    np.testing.assert_allclose([a, b], [X, X], rtol=1e-5, atol=1e-6)


def test_what_has_no_inverse_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no inverse: reduce_sum of f32\[3\] cannot be undone \(test_oryx.py:\d+"):
        oryx.inverse(lambda x: x.sum(), X)(1.0)
    with pytest.raises(ValueError, match="no inverse: "):
        oryx.inverse(lambda x, y: x + y, X, X)(X)
    with pytest.raises(ValueError, match=r"an array of shape \(2,\) was to be inverted"):
        oryx.inverse(fnp.exp, X)(np.ones(2, np.float32))


def _layered(x: Any) -> Any:
    h = oryx.sow(fnp.tanh(x), tag="layers", name="hidden")
    return oryx.sow(h * 3, tag="others", name="scaled").sum()


def test_sown_values_are_reaped_and_planted() -> None:
    result, reaps = fuser.jit(oryx.call_and_reap(_layered, tag="layers"))(X)
    assert list(reaps) == ["hidden"]
    np.testing.assert_allclose(result, _layered(X), rtol=1e-6)
    np.testing.assert_allclose(reaps["hidden"], np.tanh(X), rtol=1e-6)
    assert float(oryx.plant(_layered, tag="layers")({"hidden": np.ones(3, np.float32)}, X)) == 9
    gradient = fuser.grad(lambda x: oryx.plant(_layered, tag="layers")({"hidden": x * x}, x))
    np.testing.assert_allclose(gradient(X), 6 * X, rtol=1e-5)
    through = oryx.reap(fuser.vmap(fuser.grad(lambda x: oryx.sow(x * x, tag="t", name="square") * 2)), tag="t")(X)
    np.testing.assert_allclose(through["square"], X * X, rtol=1e-6)
    assert oryx.harvest(_layered, tag="none")({}, X)[1] == {}


def test_sowing_in_scans_and_modes() -> None:
    def summed(x: Any) -> Any:
        def step(carry: Any, a: Any) -> Any:
            carry = oryx.sow(carry + a, tag="t", name="carry")
            return carry, None

        return lax.scan(step, 0.0, x)[0]

    _, reaps = oryx.call_and_reap(summed, tag="t")(X)
    np.testing.assert_allclose(reaps["carry"], np.cumsum(X), rtol=1e-5)
    assert float(oryx.plant(summed, tag="t")({"carry": np.arange(3, dtype=np.float32)}, X)) == 2
    twice = lambda mode: lambda x: oryx.sow(oryx.sow(x, tag="t", name="a", mode=mode) + 1, tag="t", name="a", mode=mode)
    assert oryx.reap(twice("append"), tag="t")(X)["a"].shape == (2, 3)
    np.testing.assert_allclose(oryx.reap(twice("clobber"), tag="t")(X)["a"], X + 1)
    with pytest.raises(ValueError, match="'a' is sown twice under 't'"):
        oryx.reap(twice("strict"), tag="t")(X)
    with pytest.raises(ValueError, match="inside of cond"):
        oryx.reap(lambda x: lax.cond(x[0] > 0, lambda x: oryx.sow(x, tag="t", name="a"), lambda x: x, x), tag="t")(X)
    with pytest.raises(ValueError, match="sow has the modes"):
        oryx.sow(X, tag="t", name="a", mode="often")
