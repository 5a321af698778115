"""Taylor series beside JAX's, and beside derivatives of derivatives where JAX has no rule."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import jet as jjet

import fuser
from fuser import lax
from fuser import numpy as fnp
from fuser.experimental import jet as own

RNG = np.random.default_rng(0)
X = RNG.uniform(0.2, 0.8, 4).astype(np.float32)
TERMS = [RNG.normal(size=4).astype(np.float32) for _ in range(3)]
FUNCTIONS: dict[str, Any] = {
    name: lambda m, x, name=name: getattr(m, name)(x)
    for name in ("exp", "log", "sin", "cos", "sinh", "cosh", "tanh", "sqrt", "expm1", "log1p", "arctanh", "abs", "square")
} | {
    "power": lambda m, x: m.exp(x) ** m.sin(x),
    "cube": lambda m, x: x**3 / (1 + x**2),
    "atan2": lambda m, x: m.arctan2(x, 1 + x),
    "matrix": lambda m, x: (m.outer(x, m.sin(x)) @ x).sum(),
    "choice": lambda m, x: m.where(x > 0.5, m.maximum(x, x**2), m.cumsum(x)),
    "pieces": lambda m, x: m.concatenate([x[1:], m.flip(x) * 2]).reshape(7),
    "constant": lambda m, x: m.floor(x * 9),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_series(name: str) -> None:
    function = FUNCTIONS[name]
    for scaled in (True, False):
        found = own.jet(lambda x: function(fnp, x), (X,), (TERMS,), factorial_scaled=scaled)
        wanted = jjet.jet(lambda x: function(jax.numpy, x), (X,), (TERMS,), factorial_scaled=scaled)
        for a, b in zip((found[0], *found[1]), (wanted[0], *wanted[1]), strict=True):
            scale = max(1.0, float(np.abs(b).max()))
            np.testing.assert_allclose(a, b, atol=2e-3 * scale)


@pytest.mark.parametrize("function", [
    lambda x: lax.scan(lambda c, _: (fnp.sin(c) * x, None), x, None, length=3)[0],
    lambda x: fuser.nn.softplus(x) * fuser.scipy.special.gammaln(x + 1),
    fuser.jit(lambda x: fnp.exp(fnp.tan(x))),
])  # fmt: skip
def test_any_primitive_by_its_jvp_rule(function: Any) -> None:
    """Along x + t: the terms are the derivatives."""
    x = np.float32(0.4)
    with fuser.enable_x64(True):
        x = np.float64(x)
        _, terms = own.jet(function, (x,), ((1.0, 0.0, 0.0, 0.0),))
        derivative = function
        for term in terms:
            derivative = fuser.grad(derivative)
            np.testing.assert_allclose(term, derivative(x), rtol=1e-6)


def test_rules_of_users_and_trees() -> None:
    function = lambda x, y: {"product": x * y, "sum": (x + y, fnp.ones(2))}
    out, terms = own.jet(function, (X, X), (TERMS, TERMS))
    assert set(out) == {"product", "sum"} and len(terms["sum"][1]) == 3
    compiled = fuser.jit(lambda x: own.jet(lambda v: fnp.sin(v), (x,), ((1.0, 0.0),)))(0.3)
    np.testing.assert_allclose(compiled[1], [math.cos(0.3), -math.sin(0.3)], rtol=1e-5)
    first = own.deriv_prop(lax.sin_p, fnp.cos, (fnp.asarray(X),), ([fnp.asarray(t) for t in TERMS],))
    for a, b in zip(first[1], own.jet(fnp.sin, (X,), (TERMS,), factorial_scaled=False)[1], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_errors() -> None:
    with pytest.raises(ValueError, match="inconsistent lengths"):
        own.jet(lambda x, y: x, (X, X), (TERMS, TERMS[:1]))
    with pytest.raises(ValueError, match="primal value at position 0 is not an array"):
        own.jet(lambda x: x, ((X, X),), (TERMS,))
