"""grad, value_and_grad, jvp, vjp, linearize, linear_transpose, jacfwd, jacrev, hessian against JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser.errors import ConcretizationTypeError, MissingRuleError, TypeRuleError
from tests.transforms.both import agree, both_raise

X = np.linspace(0.5, 2.0, 6, dtype=np.float32).reshape(2, 3)


def loss(m: Any) -> Any:
    n = m.numpy
    return lambda w, x: (n.tanh(x @ w["a"] + w["b"]) ** 2).sum() + (n.exp(-w["b"]) * w["b"]).sum()


WEIGHTS = {"a": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), "b": np.linspace(0.1, 0.9, 4, dtype=np.float32)}


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_gradients_of_trees(jit: bool) -> None:
    wrap = lambda m, f: m.jit(f) if jit else f
    agree(lambda m: wrap(m, m.grad(loss(m)))(WEIGHTS, X))
    agree(lambda m: wrap(m, m.value_and_grad(loss(m)))(WEIGHTS, X))
    agree(lambda m: wrap(m, m.grad(loss(m), argnums=(0, 1)))(WEIGHTS, X))
    agree(lambda m: wrap(m, m.grad(loss(m), argnums=[1]))(WEIGHTS, X))
    agree(lambda m: wrap(m, m.grad(loss(m), argnums=-1))(WEIGHTS, X))


def test_aux() -> None:
    def program(m: Any) -> Any:
        f = lambda x: ((x**2).sum(), {"half": x / 2, "n": 3})
        return m.value_and_grad(f, has_aux=True)(X), m.grad(f, has_aux=True)(X)

    agree(program)
    both_raise(lambda m: m.grad(lambda x: x, has_aux=True)(2.0), TypeError)


def test_python_scalars_have_weak_gradients() -> None:
    agree(lambda m: m.grad(lambda x: x**2)(3.0))
    agree(lambda m: m.grad(lambda x: m.numpy.sin(x) * X.sum())(3.0))
    agree(lambda m: m.value_and_grad(lambda x: 3.0 * x)(2.0))
    agree(lambda m: m.jit(m.grad(lambda x: x * x * x))(2.0))
    agree(
        lambda m: m.hessian(lambda x: x * x * np.float32(2))(2.0)
    )  # converted to a weak gradient, whose tangent is weak too


@pytest.mark.parametrize("order", range(5))
def test_higher_orders(order: int) -> None:
    def program(m: Any) -> Any:
        f = lambda x: m.numpy.sin(x) * m.numpy.exp(x / 2) + x**5
        for _ in range(order):
            f = m.grad(f)
        return f(1.3), m.jit(f)(1.3)

    agree(program, 1e-4)


def test_mixed_modes() -> None:
    def program(m: Any) -> Any:
        f = lambda x: m.numpy.sum(m.numpy.sin(x) ** 3)
        over = lambda g: m.jvp(g, (X,), (X,))[1]
        return over(m.grad(f)), m.grad(lambda x: m.jvp(f, (x,), (X,))[1])(X), m.jacfwd(m.jacrev(f))(X)

    agree(program, 1e-4)


def test_jvp() -> None:
    agree(lambda m: m.jvp(lambda x, y: {"s": x * y, "t": [x]}, (X, X), (X, 2 * X)))
    agree(lambda m: m.jvp(lambda x: (x.sum(), x), (X,), (X,), has_aux=True))
    agree(lambda m: m.jvp(lambda x: x * 2.0, (1,), (np.zeros((), [("float0", "V")]),)))
    both_raise(lambda m: m.jvp(lambda x: x * 2, (1.0,), (1,)), TypeError)
    both_raise(lambda m: m.jvp(lambda x: x * 2, (1,), (1,)), TypeError)
    both_raise(lambda m: m.jvp(lambda x: x * 2, (X,), (X[:1],)), ValueError)
    both_raise(lambda m: m.jvp(lambda x: x * 2, 1.0, 1.0), TypeError)
    both_raise(lambda m: m.jvp(lambda x: x[0], ((1.0, 2.0),), ([1.0, 2.0],)), TypeError)


def test_vjp() -> None:
    def program(m: Any) -> Any:
        out, pullback = m.vjp(lambda x, y: {"p": x * y, "q": x.sum()}, X, X + 1)
        return out, pullback({"p": X, "q": np.float32(2)}), pullback({"p": 2 * X, "q": np.float32(1)})

    agree(program)
    agree(lambda m: m.vjp(lambda x: (x * 2, x.sum()), X, has_aux=True)[2])
    agree(lambda m: m.jit(lambda x: m.vjp(lambda y: y**3, x)[1])(X)(X))
    both_raise(lambda m: m.vjp(lambda x: x * 2, 1.0)[1](X), ValueError)
    both_raise(lambda m: m.vjp(lambda x: x * 2, 1.0)[1]((1.0,)), ValueError)


def test_vjp_of_integers_has_float0() -> None:
    agree(lambda m: m.vjp(lambda n, x: n * x, 3, 2.0)[1](1.0))
    agree(lambda m: m.grad(lambda n, x: n * x, argnums=(0, 1), allow_int=True)(3, 2.0))
    assert fuser.grad(lambda n: n * 2.0, allow_int=True)(3).dtype == fuser.dtypes.float0


def test_linearize_and_linear_transpose() -> None:
    def program(m: Any) -> Any:
        out, push = m.linearize(lambda x, y: (x * y, m.numpy.sin(x)), X, X)
        return out, push(X, 2 * X), m.jit(lambda: push(X, X))()

    agree(program)
    agree(lambda m: m.linear_transpose(lambda x: x[0] * 2.0 + x[1].sum(), X)(X[0]))
    agree(lambda m: m.linear_transpose(lambda x, y: [x @ X, 3 * y], X.T, X)([X.T @ X, X]))
    both_raise(lambda m: m.linear_transpose(lambda x: x * 2.0, 3)(1.0), TypeError)
    both_raise(lambda m: m.linearize(lambda x: x * 2.0, X)[1](X[0]), ValueError)


def test_the_function_is_run_once_by_linearize() -> None:
    calls = []
    _, push = fuser.linearize(lambda x: [calls.append(1), x**2][1], X)
    push(X), push(X)
    assert len(calls) == 1


def test_a_linear_transpose_of_what_is_not_linear_is_refused() -> None:
    with pytest.raises(Exception, match="linear"):
        fuser.linear_transpose(lambda x: x * x, X)(X)
    with pytest.raises(MissingRuleError, match=r"'sin' \(test_grad\.py:\d+\) is not linear in what is transposed"):
        fuser.linear_transpose(lambda x: fuser.numpy.sin(x), X)(X)


@pytest.mark.parametrize("name", ["jacfwd", "jacrev", "hessian"])
def test_jacobians(name: str) -> None:
    transform = lambda m: getattr(m, name)
    f = lambda m: lambda w: {"y": m.numpy.tanh(X @ w["a"]) + w["b"], "z": w["b"].sum()}
    if name == "hessian":
        f = lambda m: lambda w: (m.numpy.tanh(X @ w["a"]) * w["b"]).sum()
    agree(lambda m: transform(m)(f(m))(WEIGHTS), 1e-4)
    agree(lambda m: m.jit(transform(m)(lambda x, y: (x * y * x).sum(), argnums=(0, 1)))(X, X))
    agree(lambda m: transform(m)(lambda x: m.numpy.sin(x))(2.0))
    agree(lambda m: transform(m)(lambda x: ((x**3).sum(), x), has_aux=True)(X[0]) if name != "hessian" else 0)
    both_raise(lambda m: transform(m)(lambda x: x * 2)(3), TypeError)


def test_complex_numbers() -> None:
    z = np.array([1 + 2j, -0.5j], np.complex64)
    agree(lambda m: m.grad(lambda x: m.numpy.sin(x) ** 2, holomorphic=True)(1.0 + 2.0j))
    agree(lambda m: m.grad(lambda x: m.numpy.abs(x).sum())(z))
    agree(lambda m: m.grad(lambda x: (x * m.numpy.conj(x)).real.sum())(z))
    agree(lambda m: m.vjp(lambda x: x * x, z)[1](z))
    agree(lambda m: m.jvp(lambda x: m.numpy.exp(x), (z,), (z,)))
    agree(lambda m: m.jacfwd(lambda x: x**2, holomorphic=True)(z))
    both_raise(lambda m: m.grad(lambda x: x * 1j)(1.0), TypeError)
    both_raise(lambda m: m.grad(lambda x: x, holomorphic=True)(1.0), TypeError)
    both_raise(lambda m: m.jacrev(lambda x: x)(1j), TypeError)


def test_bad_calls() -> None:
    assert "Gradient only defined for scalar-output functions. Output had shape: (2, 3)" in both_raise(
        lambda m: m.grad(lambda x: x)(X), TypeError
    )
    assert (
        "requires real- or complex-valued inputs (input dtype that is a sub-dtype of np.inexact), but got int32"
        in both_raise(lambda m: m.grad(lambda x: x)(3), TypeError)
    )
    assert "scalar-output functions. Output was a tuple with 2 leaves" in both_raise(
        lambda m: m.grad(lambda x: (x, x))(3.0), TypeError
    )
    assert "outputs (output dtype that is a sub-dtype of np.floating), but got int32" in both_raise(
        lambda m: m.grad(lambda x: 1)(3.0), TypeError
    )
    assert "requires at least 3 positional arguments" in both_raise(
        lambda m: m.grad(lambda x: x, argnums=2)(3.0), TypeError
    )
    assert "no array" in both_raise(lambda m: m.grad(lambda x: x)("text"), TypeError)
    assert "no array" in both_raise(lambda m: m.grad(lambda x: "text")(1.0), TypeError)


def test_errors_name_the_users_line() -> None:
    with pytest.raises(TypeError, match=r"test_grad\.py:\d+"):
        fuser.grad(lambda x: x)(X)


def test_python_control_flow_on_values_in_eager_mode() -> None:
    program = lambda m: m.grad(lambda x: x * x if x > 1 else 3 * x)
    agree(lambda m: (program(m)(2.0), program(m)(0.5)))
    both_raise(lambda m: m.jit(program(m))(2.0), TypeError)
    both_raise(lambda m: m.grad(lambda x: float(x) * x)(2.0), ConcretizationTypeError, TypeError)


def test_a_leaked_tangent_is_refused() -> None:
    kept = []
    fuser.grad(lambda x: [kept.append(x), x * x][1])(2.0)
    with pytest.raises(fuser.errors.UnexpectedTracerError):
        kept[0] + 1


def test_closures_of_outer_derivatives_are_not_confused() -> None:
    """The perturbation of an outer derivative is a constant to the inner one."""
    agree(lambda m: m.grad(lambda x: x * m.grad(lambda y: x * y)(2.0))(3.0))
    agree(lambda m: m.jvp(lambda x: m.jvp(lambda y: x * y, (x,), (1.0,))[1], (3.0,), (1.0,)))
    agree(lambda m: m.grad(lambda x: m.jvp(lambda y: y * x**2, (x,), (x,))[1])(3.0))


def test_unused_arguments_have_zero_gradients() -> None:
    agree(lambda m: m.grad(lambda x, y: x.sum(), argnums=(0, 1))(X, X))
    agree(lambda m: m.grad(lambda x: 1.0)(X))
    agree(lambda m: m.grad(lambda x: m.lax.stop_gradient(x).sum() + x.sum())(X))


def test_backward_equations_name_forward_lines() -> None:
    def model(x: Any) -> Any:
        return (fuser.numpy.tanh(x) * x).sum()  # the forward line

    graph = fuser.make_jaxpr(fuser.grad(model))(X)
    backward = [e for e in graph.eqns if "grad" in e.source.via]
    assert len(backward) >= 4
    assert {e.source.function for e in backward} == {"model"}
    plan = fuser.jit(fuser.grad(model)).lower(X).plan
    assert "via grad" in plan.explain()
    assert all("via grad" in s.text for s in fuser.jit(fuser.grad(model)).lower(X).sources)


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_every_backend(backend: str) -> None:
    f = fuser.jit(fuser.grad(loss(fuser)), backend=backend)
    eager = fuser.grad(loss(fuser))(WEIGHTS, X)
    found = f(WEIGHTS, X)
    for name in WEIGHTS:
        np.testing.assert_allclose(found[name], eager[name], rtol=1e-5, atol=1e-5)


def test_type_rule_errors_keep_their_class() -> None:
    with pytest.raises(TypeRuleError):
        fuser.grad(lambda x: (x + np.ones(4, np.float32)).sum())(X)


def test_gradients_of_integers_from_jitted_functions():
    """They are of dtype float0: arrays with a shape and no bytes, which are no results of a kernel."""

    def program(m: Any) -> Any:
        both = lambda p: (p[0] * p[1]).sum()
        gradient = m.jit(m.grad(both, allow_int=True))
        p = (m.numpy.arange(3), m.numpy.arange(3.0))
        batched = tuple(m.numpy.stack([v, v]) for v in p)
        nested = m.jit(lambda p: (gradient(p), p))
        single = m.jit(m.grad(lambda x: 1.0 * x, allow_int=True))(1)
        return gradient(p), gradient(p), nested(p), single, m.vmap(m.grad(both, allow_int=True))(batched)

    agree(program)


@pytest.mark.parametrize("given", [3, True, np.arange(3), np.arange(3, dtype=np.uint8), np.ones(3, bool)], ids=repr)
def test_what_is_not_differentiated_reaches_the_function_as_it_was_given(given: Any) -> None:
    """As JAX's numbers and arrays that have a type are Python's and NumPy's: a number can be a shape, an array be read by NumPy."""

    def program(m: Any, called: list[bool]) -> Any:
        kind = int if isinstance(given, int) else np.ndarray

        def scaled(n: Any, x: Any) -> Any:
            called.append(isinstance(n, kind))
            return m.numpy.sum(x * m.numpy.asarray(np.sum(n), x.dtype))

        zero = np.zeros(np.shape(given), [("float0", "V")])
        return [
            m.grad(scaled, argnums=(0, 1), allow_int=True)(given, V),
            m.vjp(scaled, given, V)[1](np.float32(2)),
            m.jvp(scaled, (given, V), (zero, V)),
            m.linearize(scaled, given, V)[1](zero, V),
            m.jacrev(scaled, argnums=1)(given, V),
        ]

    V = np.linspace(0.5, 2.0, 4, dtype=np.float32)
    seen: list[bool] = []
    agree(lambda m: program(m, seen if m is fuser else []))
    assert len(seen) >= 5 and all(seen)
