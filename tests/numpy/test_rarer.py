"""Rarer arguments of NumPy's functions, and their errors, against JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fuser

X = np.arange(9, dtype=np.float32).reshape(3, 3)
CASES: dict[str, Callable[[Any], Any]] = {
    "interp beyond the ends": lambda m: m.numpy.interp(
        np.linspace(-1, 4, 11, dtype=np.float32),
        np.arange(3.0),
        np.array([1.0, 4, 2]),
        left="extrapolate",
        right="extrapolate",
    ),
    "insert at a traced place": lambda m: m.jit(lambda i: m.numpy.insert(m.numpy.arange(5), i, 9))(-2),
    "insert at traced places": lambda m: m.jit(
        lambda i: m.numpy.insert(m.numpy.arange(5), i, m.numpy.array([7, 8, 9]))
    )(np.array([3, 0, 3])),
    "view of complex numbers": lambda m: m.numpy.array([1 + 2j, 3 - 1j], np.complex64).view(np.float32),
    "view as complex numbers": lambda m: m.numpy.arange(4, dtype=np.float32).view(np.complex64),
    "view of truth values": lambda m: m.numpy.array([True, False]).view(np.int8),
    "vectorize with None": lambda m: m.numpy.vectorize(lambda x, y: x if y is None else x + y)(np.arange(3), None),
    "ufunc.at with repeated places": lambda m: m.numpy.frompyfunc(lambda x, y: 2 * x + y, 2, 1).at(
        m.numpy.arange(4), np.array([1, 1, -1]), np.array([5, 6, 7]), inplace=False
    ),
    "running sum as truth values": lambda m: m.numpy.cumulative_sum(np.array([0, 2, 0]), dtype=bool),
    "widths of a trapezoid along another axis": lambda m: m.numpy.trapezoid(
        np.arange(12, dtype=np.float32).reshape(3, 4), dx=np.array([1, 2, 3, 4], np.float32), axis=0
    ),
    "products with leading ones": lambda m: m.numpy.matmul(
        np.ones((1, 3, 2), np.float32), np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    ),
    "dot of other dtypes": lambda m: m.lax.dot(np.arange(3, dtype=np.float32), np.arange(3, dtype=np.complex64)),
    "beta's density outside of its shapes": lambda m: m.scipy.stats.beta.logpdf(
        0.5, np.array([-1.0, 1, 1]), 1.0, 0, np.array([1.0, -1, 1])
    ),
    "comb of nothing": lambda m: m.scipy.special.comb(np.array([0.0, 3]), np.array([0.0, 0]), repetition=True),
    "det at zero": lambda m: m.grad(m.numpy.linalg.det)(np.zeros((4, 4), np.float32)),
    "cov with both weights, one of them negative": lambda m: m.numpy.cov(
        X.T @ X + X, fweights=np.array([1, 2, 3]), aweights=np.array([1.0, -2, 0.5], np.float32)
    ),
    "cov of no observations": lambda m: m.numpy.cov(X[:, :0]),
    "cov in another dtype": lambda m: m.numpy.cov(X.astype(np.float16), dtype=np.float32),
    "greatest of chosen truth values": lambda m: m.numpy.max(X > 3, 0, where=X > 1, initial=False),
    "products of halves in float32": lambda m: m.numpy.einsum(
        "ij,jk,kl->il", *(3 * [X.astype(np.float16) / 7]), preferred_element_type=np.float32
    ),
    "a window at unsigned starts": lambda m: m.lax.dynamic_slice(X, [np.uint8(255), np.uint8(1)], [2, 2]),
    "empty_like": lambda m: m.numpy.zeros_like(m.numpy.empty_like(prototype=X, shape=(2,))),
}


def test_reductions_of_halves_are_recorded_as_in_jax() -> None:
    half = np.ones(10, np.float16)
    for name in ("sum", "prod", "mean"):
        for dtype in (None, np.float16):
            functions = (functools.partial(getattr(m.numpy, name), dtype=dtype) for m in (fuser, jax))
            graphs = [m.make_jaxpr(f)(half) for m, f in zip((fuser, jax), functions)]
            mine, theirs = ([e.primitive.name for e in g.jaxpr.eqns] for g in graphs)
            assert mine == theirs, (name, dtype)


def test_products_name_their_dtype_as_in_jax() -> None:
    a, whole = np.ones((2, 2), np.float32), np.ones((2, 2), np.int32)
    for x, y, preferred in ((a, a, None), (whole, whole, None), (a, whole, None), (a, a, "float16")):
        for name in ("dot", "matmul", "inner", "tensordot", "vdot"):
            found = []
            for m in (fuser, jax):
                product = functools.partial(getattr(m.numpy, name), preferred_element_type=preferred)
                eqns = m.make_jaxpr(product)(x, y).jaxpr.eqns
                found += [e.params["preferred_element_type"] for e in eqns if e.primitive.name == "dot_general"]
            assert found[0] == found[1], (name, x.dtype, y.dtype)


@pytest.mark.parametrize("name", CASES)
def test_as_jax_does(name: str) -> None:
    import jax.scipy.stats

    import fuser.scipy.special
    import fuser.scipy.stats

    found, wanted = CASES[name](fuser), CASES[name](jax)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "interp": (lambda m: m.numpy.interp(0.0, np.arange(3.0), np.arange(3.0), left="interpolate"), ValueError),
    "contains": (lambda m: 1 in m.numpy.ones((2, 2)), ValueError),
    "zeros": (lambda m: m.numpy.zeros(2, 3), TypeError),
    "split": (lambda m: m.lax.split(np.arange(5), [6]), ValueError),
    "dynamic_slice": (lambda m: m.lax.dynamic_slice(np.ones((3, 4)), (np.int32(1), np.int16(2)), (2, 2)), TypeError),
    "initial": (lambda m: m.numpy.sum(np.ones(3), initial=np.zeros(2)), ValueError),
    "rfft": (lambda m: m.lax.fft(np.ones((2, 4), np.float32), "rfft", (5,)), ValueError),
    "vmap": (lambda m: m.vmap(lambda x: x, in_axes={"a": 0}), TypeError),
    "device_put": (lambda m: m.device_put({"a": np.ones(2)}, {"a": (None, None)}), ValueError),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_as_jax_has_them(name: str) -> None:
    function, kind = ERRORS[name]
    words = []
    for m in (fuser, jax):
        with pytest.raises(kind) as caught:
            function(m)
        words.append(str(caught.value).split()[:4])
    assert words[0] == words[1]


def test_residuals_of_vjp_can_be_taken_out_and_put_back() -> None:
    w = fuser.numpy.ones((3, 2))
    y, pullback = fuser.vjp(lambda x, w: fuser.numpy.sin(x) @ w, fuser.numpy.ones((4, 3)), w)
    assert isinstance(pullback.args_res, list) and pullback.opaque_residuals
    wanted = pullback(y)
    pullback.args_res[1] = None
    with pytest.raises(TypeError):
        pullback(y)
    pullback.args_res[1] = w
    for a, b in zip(pullback(y), wanted):
        np.testing.assert_array_equal(a, b)


def test_checkpoint_traces_once_for_a_type() -> None:
    count = []

    @fuser.checkpoint
    def f(x: Any) -> Any:
        count.append(x)
        return fuser.numpy.sin(x)

    for _ in range(3):
        f(1.0)
    assert len(count) == 1
    f(np.ones(2))
    assert len(count) == 2


def test_forward_and_backward_apart() -> None:
    def program(m: Any) -> Any:
        fwd, bwd = m.fwd_and_bwd(lambda x, w: (x @ w, {"n": 3}), argnums=(0, 1), has_aux=True)
        y, residuals, aux = fwd(X, X)
        first = m.fwd_and_bwd(lambda x, w: m.numpy.sin(x) * w, argnums=0, jitted=False)
        return bwd(residuals, y), aux["n"], first[1](first[0](X, X)[1], X)

    for found, wanted in zip(fuser.tree.leaves(program(fuser)), jax.tree.leaves(program(jax))):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    fwd, bwd = fuser.fwd_and_bwd(lambda x: x**2, argnums=0)
    bwd(fwd(X)[1], X)
    with fuser.no_tracing(True):
        np.testing.assert_allclose(bwd(fwd(X)[1], X), 2 * X**2)


def test_tokens_pass_through_jitted_functions() -> None:
    import fuser.extend.core

    token = fuser.lax.create_token()
    x, other = fuser.jit(lambda x, t: (x + 1, fuser.lax.after_all(t, t)))(X, token)
    np.testing.assert_array_equal(x, X + 1)
    assert isinstance(other, fuser.extend.core.Token) and other is not token
    with pytest.raises(TypeError, match="after_all takes tokens"):
        fuser.lax.after_all(1.0)


def test_gamma_of_complex_numbers() -> None:
    z = np.array([0.5 + 1j, -1.5 + 0.25j, 3], np.complex64)
    np.testing.assert_allclose(fuser.scipy.special.gamma(z), jax.scipy.special.gamma(z), rtol=1e-4)


def test_words_of_mapped_functions() -> None:
    with pytest.raises(TypeError, match="must be an int"):
        fuser.pmap(lambda x: x, in_axes=False)
    with pytest.raises(
        ValueError, match=r"static_broadcasted_argnums=\(1,\) but was called with only 1 positional argument"
    ):
        fuser.pmap(lambda a, b: a, static_broadcasted_argnums=(1,))(np.ones((1, 1)), b=1)
    with pytest.raises(TypeError):
        fuser.image.resize(X, [2.5, 3], "linear")
    with pytest.raises(ValueError, match="jvp called with different primal and tangent shapes"):
        fuser.jvp(lambda x: x, (X,), (X[0],))
