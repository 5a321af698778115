"""custom_jvp, custom_vjp, custom_gradient, closure_convert and stop_gradient against JAX, composed with everything else."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.config import config
from fuser.errors import UnexpectedTracerError
from fuser.ir.graph import graphs_in
from tests.transforms.both import agree, both_raise

V = np.linspace(0.1, 1.0, 4, dtype=np.float32)


def with_jvp(m: Any) -> Any:
    """sin(x) y, with a wrong factor 3 in its rule that tells whether the rule was used."""

    @m.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return m.numpy.sin(x) * y

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        (x, y), (x_dot, y_dot) = primals, tangents
        return f(x, y), 3.0 * m.numpy.cos(x) * x_dot * y + m.numpy.sin(x) * y_dot

    return f


def with_vjp(m: Any) -> Any:
    """The same with a rule for reverse mode."""

    @m.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return m.numpy.sin(x) * y

    def fwd(x: Any, y: Any) -> Any:
        return f(x, y), (m.numpy.cos(x), m.numpy.sin(x), y)

    def bwd(residuals: Any, g: Any) -> Any:
        cos_x, sin_x, y = residuals
        return 3.0 * cos_x * g * y, sin_x * g

    f.defvjp(fwd, bwd)
    return f


def _kinds(values: Any) -> Any:
    """Which leaves are numbers of Python's, and the values."""
    return [(isinstance(v, float), isinstance(v, int), np.asarray(v)) for v in fuser.tree_util.tree_leaves(values)]


def _with_rules(m: Any, symbolic: bool, seen: list[Any]) -> Any:
    """x + 1 and y, which notes what it and its rules are called with."""

    @m.custom_vjp
    def f(x: Any, y: Any) -> Any:
        seen.append(isinstance(x, float))
        return x + 1, y

    def fwd(x: Any, y: Any) -> Any:
        x, y = (x.value, y.value) if symbolic else (x, y)
        seen.append((isinstance(x, float), isinstance(y, float)))
        return f(x, y), x

    def bwd(x: Any, cotangents: Any) -> Any:
        seen.append((isinstance(x, float), *(isinstance(c, float) for c in cotangents)))
        return cotangents[0] * 3, cotangents[1]

    f.defvjp(fwd, bwd, symbolic_zeros=symbolic)
    return f


NUMBERS = {
    "called": lambda m, f: f(1.0, 2.0),
    "of integers": lambda m, f: f(1, 2),
    "pullback": lambda m, f: (m.vjp(f, 1.0, 2.0)[0], m.vjp(f, 1.0, 2.0)[1]((4.0, 5.0))),
    "one of an array": lambda m, f: (m.vjp(f, V, 2.0)[0], m.vjp(f, V, 2.0)[1]((V, 5.0))),
    "grad": lambda m, f: m.grad(lambda x: f(x, 2.0)[0])(1.0),
    "jit": lambda m, f: m.jit(f)(1.0, 2.0),
    "vmap": lambda m, f: m.vmap(lambda x: f(x, 2.0))(V),
    "identity": lambda m, f: (m.vjp(lambda x: x, 4.0)[0], m.vjp(lambda x: x, 4.0)[1](1.0), m.vjp(lambda x: 3, 4.0)[0]),
    "forward": lambda m, f: (m.jvp(lambda x: (x, 2), (4.0,), (1.0,))[0], m.linearize(lambda x: x, 4.0)[1](1.0)),
    "aux": lambda m, f: m.value_and_grad(lambda x: (x, (x, 2, 3.0)), has_aux=True)(4.0),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("program", NUMBERS)
def test_numbers_of_python_stay_numbers(program: str, symbolic: bool) -> None:
    """Rules and results outside of traces, as in JAX."""
    seen: tuple[list[Any], list[Any]] = ([], [])
    found, wanted = (NUMBERS[program](m, _with_rules(m, symbolic, calls)) for m, calls in zip((fuser, jax), seen))
    assert seen[0] == seen[1]
    for (*kinds, value), (*expected, other) in zip(
        _kinds(found), _kinds(jax.tree.map(lambda v: v, wanted)), strict=True
    ):
        assert kinds == expected
        np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("inner", ["value", "grad"])
def test_closures_that_jaxs_next_form_refuses(inner: str) -> None:
    """With jax_custom_vjp3 a function with rules closes over no value of vmap or of a derivative; over one of jit it may."""

    def program(m: Any, outer: Any) -> Any:
        def of(x: Any) -> Any:
            f = m.custom_vjp(lambda y: x * y)
            f.defvjp(lambda y: (f(y), (x, m.numpy.cos(y))), lambda res, g: (res[1] * g * res[0],))
            return (f if inner == "value" else m.grad(f))(3.0)

        return outer(of)

    x = np.float32(2.0)
    with config.using(custom_vjp3=True):
        for outer in (lambda of: fuser.vmap(of)(V), lambda of: fuser.jvp(of, (x,), (x,))):
            with pytest.raises(UnexpectedTracerError, match="can't close over Tracers"):
                program(fuser, outer)
        assert program(fuser, lambda of: fuser.jit(of)(x)) == program(fuser, lambda of: of(x))
    assert program(fuser, lambda of: fuser.vmap(of)(V)).shape == V.shape


# Programs that both kinds of rules take: (library, the custom function) -> results.
PROGRAMS = {
    "value": lambda m, f: f(V, V),
    "grad": lambda m, f: m.grad(f)(1.0, 2.0),
    "grad of grad": lambda m, f: m.grad(m.grad(f))(1.0, 2.0),
    "mixed grad": lambda m, f: m.grad(m.grad(f, 1), 0)(1.0, 2.0),
    "third order": lambda m, f: m.grad(m.grad(m.grad(f)))(1.0, 2.0),
    "value and grads": lambda m, f: m.value_and_grad(f, (0, 1))(1.0, 2.0),
    "vmap": lambda m, f: m.vmap(f)(V, V),
    "vmap of grad": lambda m, f: m.vmap(m.grad(f, (0, 1)), (0, None))(V, 2.0),
    "grad of vmap": lambda m, f: m.grad(lambda v, y: m.vmap(f, (0, None))(v, y).sum(), (0, 1))(V, 2.0),
    "grad of vmap of grad": lambda m, f: m.grad(lambda v: m.vmap(m.grad(f), (0, None))(v, 2.0).sum())(V),
    "vmap of vmap": lambda m, f: m.vmap(m.vmap(f, (None, 0)), (0, None))(V, V),
    "out_axes": lambda m, f: m.vmap(lambda x, y: f(x, y), (0, None), 1)(np.ones((3, 2), np.float32), V[:2]),
    "jit": lambda m, f: m.jit(f)(V, V),
    "jit of grad": lambda m, f: m.jit(m.grad(f))(1.0, 2.0),
    "grad of jit": lambda m, f: m.grad(m.jit(f))(1.0, 2.0),
    "grad of grad of jit": lambda m, f: m.grad(m.grad(m.jit(f)))(1.0, 2.0),
    "vmap of grad of jit": lambda m, f: m.vmap(m.grad(m.jit(f)), (0, None))(V, 2.0),
    "grad of jit of vmap": lambda m, f: m.grad(lambda v: m.jit(m.vmap(f, (0, None)))(v, 2.0).sum())(V),
    "jacrev": lambda m, f: m.jacrev(f)(V, V),
    "linearized in reverse": lambda m, f: m.vjp(f, V, V)[1](V),
    "scan": lambda m, f: m.lax.scan(lambda c, x: (f(c, x), c), 1.0, V),
    "grad of scan": lambda m, f: m.grad(lambda c, v: m.lax.scan(lambda c, x: (f(c, x), c), c, v)[0], (0, 1))(1.0, V),
    "jit of grad of scan": lambda m, f: m.jit(m.grad(lambda c: m.lax.scan(lambda c, x: (f(c, x), c), c, V)[0]))(1.0),
    "vmap of grad of scan": lambda m, f: m.vmap(m.grad(lambda c: m.lax.scan(lambda c, x: (f(c, x), c), c, V)[0]))(V),
    "grad of vmap of scan": lambda m, f: m.grad(
        lambda v: m.vmap(lambda c: m.lax.scan(lambda c, x: (f(c, x), c), c, V)[0])(v).sum()
    )(V),
    "grad of cond": lambda m, f: m.grad(lambda x: m.lax.cond(x > 0, lambda x: f(x, 2.0), lambda x: x, x))(1.0),
    "vmap of grad of cond": lambda m, f: m.vmap(
        m.grad(lambda x: m.lax.cond(x > 0.5, lambda x: f(x, 2.0), lambda x: 5 * x, x))
    )(V),
    "while": lambda m, f: m.lax.while_loop(lambda c: c < 3, lambda c: c + 1 + f(c, 0.1), 0.5),
    "grad of fori": lambda m, f: m.grad(lambda x: m.lax.fori_loop(0, 3, lambda i, c: f(c, 2.0), x))(0.5),
    "checkpoint": lambda m, f: m.grad(m.checkpoint(lambda x: f(f(x, 2.0), 2.0)))(0.5),
    "one argument active": lambda m, f: m.grad(lambda x: f(x, np.float32(2)))(0.5),
    "keyword": lambda m, f: m.grad(lambda x: f(y=2.0, x=x))(0.5),
}


@pytest.mark.parametrize("backend", ["c", "reference"])
@pytest.mark.parametrize("kind", [with_jvp, with_vjp], ids=["jvp", "vjp"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_jax(name: str, kind: Any, backend: str) -> None:
    with config.using(backend=backend):
        # The gradient of a weak input is weak here; in JAX it is what the bwd rule makes of it.
        agree(lambda m: PROGRAMS[name](m, kind(m)), weak=kind is with_jvp)


FORWARD = {
    "jvp": lambda m, f: m.jvp(f, (V, V), (V, 2 * V)),
    "jvp of vmap": lambda m, f: m.jvp(m.vmap(f), (V, V), (V, 2 * V)),
    "vmap of jvp": lambda m, f: m.vmap(lambda x, t: m.jvp(f, (x, x), (t, 1.0)))(V, V),
    "jacfwd": lambda m, f: m.jacfwd(f, (0, 1))(V, V),
    "hessian": lambda m, f: m.hessian(lambda v: f(v, v).sum())(V),
    "jvp of jvp": lambda m, f: m.jvp(lambda x: m.jvp(lambda x: f(x, 2.0), (x,), (1.0,))[1], (1.0,), (1.0,)),
    "linearize": lambda m, f: m.linearize(lambda x: f(x, 2.0), 1.0)[1](2.0),
    "jvp of while": lambda m, f: m.jvp(
        lambda x: m.lax.while_loop(lambda c: c < 3, lambda c: c + 1 + f(c, 0.1), x), (0.5,), (1.0,)
    ),
    "jit of jvp of scan": lambda m, f: m.jit(
        lambda x: m.jvp(lambda c: m.lax.scan(lambda c, x: (f(c, x), c), c, V)[0], (x,), (1.0,))
    )(0.5),
}


@pytest.mark.parametrize("name", FORWARD)
def test_custom_jvp_in_forward_mode_agrees_with_jax(name: str) -> None:
    agree(lambda m: FORWARD[name](m, with_jvp(m)))


def test_reverse_over_forward_of_custom_vjp_needs_a_forward_that_is_plain() -> None:
    def program(m: Any) -> Any:
        @m.custom_vjp
        def f(x: Any) -> Any:
            return m.numpy.sin(x)

        f.defvjp(lambda x: (m.numpy.sin(x), x), lambda x, g: (g * 2 * m.numpy.cos(x),))
        return m.jvp(m.grad(f), (1.0,), (1.0,)), m.hessian(f)(1.0)

    agree(program, weak=False)


def test_trees_none_and_integers() -> None:
    def jvp(m: Any) -> Any:
        @m.custom_jvp
        def f(p: Any, n: Any) -> Any:
            return {"a": p["x"] * n, "n": n + 1}

        @f.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            (p, n), (p_dot, n_dot) = primals, tangents
            assert n_dot.dtype == m.dtypes.float0
            return f(p, n), {"a": 7 * p_dot["x"] * n, "n": n_dot}

        return m.grad(lambda x: f({"x": x, "y": None}, 3)["a"])(2.0)

    def vjp(m: Any) -> Any:
        @m.custom_vjp
        def f(p: Any, n: Any, q: Any) -> Any:
            return [p["x"] * n * q[0], p["y"]]

        f.defvjp(
            lambda p, n, q: (f(p, n, q), (n, q[0])),
            lambda r, g: ({"x": g[0] * r[0] * r[1] * 5, "y": None}, None, None),
        )
        return m.grad(lambda p, q: f(p, 3, q)[0], (0, 1))({"x": 2.0, "y": V}, (4.0, V))

    agree(jvp)
    agree(vjp, weak=False)


def test_defjvps_and_defaults() -> None:
    def program(m: Any, *args: Any, **kwargs: Any) -> Any:
        @m.custom_jvp
        def f(x: Any, y: Any = 3.0) -> Any:
            return m.numpy.sin(x) * y

        f.defjvps(lambda t, out, x, y: 2 * m.numpy.cos(x) * t * y + 0 * out, None)
        return m.grad(lambda x: f(x, *args, **kwargs))(1.0), m.jvp(lambda x, y: f(x, y), (1.0, 2.0), (1.0, 1.0))

    agree(program)
    agree(lambda m: program(m, 4.0))
    agree(lambda m: program(m, y=4.0))


def test_nondiff_arguments() -> None:
    def jvp(m: Any) -> Any:
        @functools.partial(m.custom_jvp, nondiff_argnums=(0, 2))
        def f(g: Any, x: Any, n: int) -> Any:
            return g(x) * n

        @f.defjvp
        def rule(g: Any, n: int, primals: Any, tangents: Any) -> Any:
            return f(g, primals[0], n), 10 * g(tangents[0]) * n

        on = lambda x: f(lambda y: 2 * y, x, 3)
        return m.grad(on)(1.0), m.jit(m.grad(on))(1.0), m.vmap(m.grad(on))(V), m.grad(m.jit(on))(1.0)

    def names(m: Any) -> Any:
        @functools.partial(m.custom_jvp, nondiff_argnames=("n",))
        def f(x: Any, n: int) -> Any:
            return x**n

        @f.defjvp
        def rule(n: int, primals: Any, tangents: Any) -> Any:
            return f(primals[0], n), tangents[0] * n

        return m.grad(f)(2.0, 3)

    def vjp(m: Any) -> Any:
        @functools.partial(m.custom_vjp, nondiff_argnums=(0,))
        def f(g: Any, x: Any) -> Any:
            return g(x)

        f.defvjp(lambda g, x: (f(g, x), x), lambda g, x, c: (g(c) * x,))
        on = lambda x: f(lambda y: 2 * y, x)
        return m.grad(on)(3.0), m.jit(m.grad(on))(3.0), m.vmap(m.grad(on))(V)

    agree(jvp)
    agree(names)
    agree(vjp)


def test_traced_nondiff_arguments_of_custom_jvp_have_no_derivative() -> None:
    def program(m: Any) -> Any:
        @functools.partial(m.custom_jvp, nondiff_argnums=(1,))
        def f(x: Any, y: Any) -> Any:
            return x * y

        @f.defjvp
        def rule(y: Any, primals: Any, tangents: Any) -> Any:
            return f(primals[0], y), 5 * y * tangents[0]

        both = m.grad(lambda x, y: f(x, y) + y, (0, 1))(2.0, 3.0)
        return both, m.vmap(m.grad(f))(V, V), m.jit(m.grad(f))(2.0, 3.0), m.grad(lambda x: m.vmap(f)(x, V).sum())(V)

    agree(program)


def test_symbolic_zeros() -> None:
    def jvp(m: Any) -> Any:
        seen: list[bool] = []

        @m.custom_jvp
        def f(x: Any, y: Any) -> Any:
            return x * y

        def rule(primals: Any, tangents: Any) -> Any:
            zeros = [type(t) is m.custom_derivatives.SymbolicZero for t in tangents]
            seen.extend(zeros)
            assert tangents[1].shape == (4,) and tangents[1].dtype == np.float32
            return f(*primals), tangents[0] * primals[1] if zeros[1] else tangents[0]

        f.defjvp(rule, symbolic_zeros=True)
        return m.grad(lambda x: f(x, V).sum())(V), seen

    def vjp(m: Any) -> Any:
        seen: list[bool] = []

        @m.custom_vjp
        def f(x: Any, y: Any) -> Any:
            return x * y, x

        def fwd(x: Any, y: Any) -> Any:
            assert type(x) is m.custom_derivatives.CustomVJPPrimal
            seen.extend([x.perturbed, y.perturbed])
            return f(x.value, y.value), (x.value, y.value)

        def bwd(r: Any, g: Any) -> Any:
            seen.append(type(g[1]) is m.custom_derivatives.SymbolicZero)
            return g[0] * r[1] * 2, None

        f.defvjp(fwd, bwd, symbolic_zeros=True)
        return m.grad(lambda x: f(x, 3.0)[0])(2.0), seen

    agree(jvp)
    agree(vjp)


def test_python_reads_values_outside_jit() -> None:
    ran: list[Any] = []

    @fuser.custom_jvp
    def f(x: Any) -> Any:
        ran.append(float(x))
        return x * 2 if x > 0 else -x

    f.defjvp(lambda p, t: (p[0] * 2 if p[0] > 0 else -p[0], t[0] * 2))
    assert float(f(3.0)) == 6 and float(f(-3.0)) == 3 and ran == [3.0, -3.0]
    assert float(fuser.grad(f)(-3.0)) == 2 and len(ran) == 2


def test_custom_gradient() -> None:
    def make(m: Any) -> Any:
        return m.custom_gradient(lambda x: (x**2, lambda g: (g * x,)))

    def two(m: Any) -> Any:
        return m.custom_gradient(lambda x, y: ((x * y, x), lambda g: (g[0] * y, g[1] * 3 * x)))

    agree(lambda m: (make(m)(m.numpy.float32(3)), m.grad(make(m))(3.0), m.grad(m.grad(make(m)))(3.0)))
    agree(lambda m: (m.vmap(m.grad(make(m)))(V), m.jit(m.grad(make(m)))(3.0), m.grad(m.jit(make(m)))(3.0)))
    agree(lambda m: m.grad(lambda x, y: sum(two(m)(x, y)), (0, 1))(3.0, 4.0))


def test_closure_convert() -> None:
    def program(m: Any) -> Any:
        @functools.partial(m.custom_vjp, nondiff_argnums=(0,))
        def apply(g: Any, x: Any, *hoisted: Any) -> Any:
            return g(x, *hoisted)

        def fwd(g: Any, x: Any, *hoisted: Any) -> Any:
            return apply(g, x, *hoisted), (x, hoisted)

        def bwd(g: Any, residuals: Any, c: Any) -> Any:
            x, hoisted = residuals
            return tuple(10 * d for d in m.vjp(g, x, *hoisted)[1](c))

        apply.defvjp(fwd, bwd)

        def outer(a: Any, x: Any) -> Any:
            converted, hoisted = m.closure_convert(lambda y: m.numpy.sin(a * y) + V[0], x)
            assert len(hoisted) == 1
            return apply(converted, x, *hoisted)

        return m.grad(outer, (0, 1))(2.0, 3.0)

    agree(program)
    with pytest.raises(TypeError, match="takes arguments of the tree"):
        fuser.closure_convert(lambda x: x, 1.0)[0]((1.0, 2.0))


def test_stop_gradient() -> None:
    stop = lambda m: m.lax.stop_gradient
    agree(lambda m: m.grad(lambda x: stop(m)(x) * x)(3.0))
    agree(lambda m: m.jit(m.grad(lambda x: stop(m)({"a": x, "b": 2})["a"] * x))(3.0))
    agree(lambda m: m.jvp(lambda x: stop(m)(m.numpy.sin(x)), (V,), (V,)))
    agree(lambda m: m.vmap(m.grad(lambda x: stop(m)(x) * m.numpy.sin(x)))(V))
    agree(lambda m: stop(m)(np.arange(3, dtype=np.int32)))


def test_closed_over_batches() -> None:
    def program(m: Any, kind: Any) -> Any:
        def f(x: Any, y: Any) -> Any:
            if kind == "jvp":
                g = m.custom_jvp(lambda y: m.numpy.sin(x) * y)
                g.defjvp(lambda p, t: (m.numpy.sin(x) * p[0], 2 * m.numpy.sin(x) * t[0]))
            else:
                g = m.custom_vjp(lambda y: m.numpy.sin(x) * y)
                g.defvjp(lambda y: (m.numpy.sin(x) * y, None), lambda r, c: (2 * m.numpy.sin(x) * c,))
            return g(y)

        return m.vmap(f, (0, None))(V, 2.0), m.vmap(f)(V, V), m.vmap(m.grad(f, 1), (0, None))(V, 2.0)

    agree(lambda m: program(m, "jvp"))
    agree(lambda m: program(m, "vjp"), weak=False)


def test_collectives_inside() -> None:
    def program(m: Any) -> Any:
        @m.custom_jvp
        def f(x: Any) -> Any:
            return m.lax.psum(x, "i")

        f.defjvp(lambda p, t: (f(p[0]), 2 * m.lax.psum(t[0], "i")))
        return m.vmap(f, axis_name="i")(V), m.vmap(lambda x: m.jvp(f, (x,), (x,)), axis_name="i")(V)

    agree(program)


def test_one_equation_keeps_the_rule_until_kernels_are_made() -> None:
    f = with_jvp(fuser)
    traced = fuser.jit(lambda x: f(x, x)).trace(V)
    [eqn] = traced.graph.eqns
    assert eqn.primitive.name == "custom_jvp_call"
    assert [e.primitive.name for e in next(graphs_in(eqn.params)).eqns] == ["sin", "mul"]
    assert "jvp_jaxpr_fun=<f_jvp>" in str(traced.graph)
    assert [e.primitive.name for e in traced.lower().graph.eqns] == ["sin", "mul"]


def test_values_closed_over_are_operands() -> None:
    weights = fnp.ones((8,))
    f = fuser.custom_jvp(lambda x: x * weights)
    f.defjvp(lambda p, t: (p[0], t[0]))
    [eqn] = fuser.jit(lambda x: f(x)).trace(np.ones(8, np.float32)).graph.eqns
    assert eqn.params["num_consts"] == 1 and len(eqn.invars) == 2


def _jvp_of(m: Any, rule: Any, function: Any = lambda x: x) -> Any:
    f = m.custom_jvp(function)
    f.defjvp(rule)
    return f


def _vjp_of(m: Any, fwd: Any, bwd: Any, function: Any = lambda x: x) -> Any:
    f = m.custom_vjp(function)
    f.defvjp(fwd, bwd)
    return f


def test_refusals_of_custom_jvp() -> None:
    assert "No JVP defined for custom_jvp function" in both_raise(
        lambda m: m.custom_jvp(lambda x: x)(1.0), AttributeError
    )
    assert "must return a pair" in both_raise(lambda m: m.grad(_jvp_of(m, lambda p, t: p[0]))(1.0), TypeError)
    assert "must produce primal and tangent outputs with equal container (pytree) structures" in both_raise(
        lambda m: m.grad(_jvp_of(m, lambda p, t: (p[0], (t[0], t[0]))))(1.0), TypeError
    )
    assert "Expected float32[4] (tangent type of float32[4]) but got float32[]" in both_raise(
        lambda m: m.jvp(_jvp_of(m, lambda p, t: (p[0], t[0].sum())), (V,), (V,)), TypeError
    )
    assert "where the first element represents the primal output" in both_raise(
        lambda m: m.grad(m.jit(_jvp_of(m, lambda p, t: ((p[0],), (t[0],)))))(1.0), TypeError
    )
    assert "nondiff_argnums" in both_raise(
        lambda m: m.custom_jvp(lambda x, y: x, nondiff_argnums=(1,)).defjvps(None, None), TypeError
    )
    assert "unexpected keyword" in both_raise(lambda m: with_jvp(m)(1.0, 2.0, z=3), TypeError)
    assert "could not be resolved to positions: z" in both_raise(
        lambda m: _jvp_of(m, lambda p, t: (p[0], t[0]), lambda x, **k: x)(1.0, z=3), TypeError
    )


def test_refusals_of_custom_vjp() -> None:
    good = lambda x: (x, None)
    assert "No VJP defined for custom_vjp function" in both_raise(
        lambda m: m.custom_vjp(lambda x: x)(1.0), AttributeError
    )
    assert "rule for reverse mode only" in both_raise(lambda m: m.jvp(with_vjp(m), (1.0, 1.0), (1.0, 1.0)), TypeError)
    assert "rule for reverse mode only" in both_raise(lambda m: m.jacfwd(with_vjp(m))(1.0, 2.0), TypeError)
    assert "rule for reverse mode only" in both_raise(
        lambda m: m.jit(lambda x: m.jvp(with_vjp(m), (x, x), (x, x)))(1.0), TypeError
    )
    assert "must return a pair" in both_raise(
        lambda m: m.grad(_vjp_of(m, lambda x: x, lambda r, g: (g,)))(1.0), TypeError
    )
    assert "must produce a tuple with one cotangent" in both_raise(
        lambda m: m.grad(_vjp_of(m, good, lambda r, g: (g, g)))(1.0), TypeError
    )
    assert "must produce a tuple with one cotangent" in both_raise(
        lambda m: m.grad(_vjp_of(m, good, lambda r, g: g))(1.0), TypeError
    )
    first = lambda p: p[0]
    assert "the tree of the arguments" in both_raise(
        lambda m: m.grad(lambda x: _vjp_of(m, lambda p: (p[0], None), lambda r, g: ([g, g],), first)((x, x)))(1.0),
        TypeError,
    )
    assert "got f32[2] for f32[4]" in both_raise(
        lambda m: m.grad(lambda x: _vjp_of(m, good, lambda r, g: (g[:2],))(x).sum())(V), ValueError
    )
    assert "which nondiff_argnums says is not differentiated" in both_raise(
        lambda m: m.grad(lambda x: _nondiff(m)(x, x))(1.0), Exception
    )
    with pytest.raises(UnexpectedTracerError):
        fuser.grad(lambda x: _nondiff(fuser)(x, x))(1.0)


def _nondiff(m: Any) -> Any:
    f = m.custom_vjp(lambda x, y: x, nondiff_argnums=(1,))
    f.defvjp(lambda x, y: (x, None), lambda y, r, g: (g,))
    return f


@pytest.mark.parametrize("staged", [False, True])
def test_derivatives_by_closed_over_values_are_refused(staged: bool) -> None:
    def program(m: Any) -> Any:
        def outer(x: Any) -> Any:
            f = m.custom_jvp(lambda y: x * y)
            f.defjvp(lambda p, t: (x * p[0], t[0]))
            return f(1.0)

        return m.grad(m.jit(outer) if staged else outer)(2.0)

    both_raise(program, Exception)
    with pytest.raises(UnexpectedTracerError):
        program(fuser)


@pytest.mark.parametrize("kind", [with_jvp, with_vjp], ids=["jvp", "vjp"])
def test_equations_of_rules_name_the_users_line_and_grad(kind: Any) -> None:
    f = kind(fuser)
    graph = fuser.make_jaxpr(fuser.grad(lambda x: f(x, 2.0)))(1.0)
    assert graph.eqns and all(e.source.file == __file__ for e in graph.eqns)
    assert any("grad" in e.source.via for e in graph.eqns)


def test_a_linear_call_has_the_users_transpose() -> None:
    """Against JAX; the transpose is told apart from the true one by a factor of 3."""

    def program(m: Any) -> list[Any]:
        call = functools.partial(
            m.custom_derivatives.linear_call, lambda r, x: {"y": x[0] / r + x[1]}, lambda r, y: (3 * y["y"] / r, y["y"])
        )
        f = lambda x, z: (call(2 + m.numpy.arange(3.0), (x, z))["y"] ** 2).sum()
        x, z = m.numpy.ones(3), m.numpy.arange(3.0)
        twice = lambda g: m.linear_transpose(m.linear_transpose(g, x), x)
        return [
            f(x, z),
            m.jit(m.grad(f, (0, 1)))(x, z),
            m.jvp(f, (x, z), (z, x)),
            twice(lambda x: call(2.0, (x, 0 * x))["y"])((x,)),
        ]

    for found, expected in zip(program(fuser), program(jax), strict=True):
        fuser.tree.map(np.testing.assert_allclose, found, expected)
    rows = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    call = lambda r, x: fuser.custom_derivatives.linear_call(lambda r, x: x / r, lambda r, t: 3 * t / r, r, x)
    np.testing.assert_allclose(fuser.vmap(fuser.grad(lambda x: call(2.0, x).sum()))(rows), np.full((2, 3), 1.5))
    np.testing.assert_allclose(fuser.jvp(lambda r: call(r, 6.0), (2.0,), (1.0,))[1], -1.5)
    with pytest.raises(TypeError, match="transpose output pytree structure must match"):
        fuser.custom_derivatives.linear_call(lambda r, x: x, lambda r, t: (t, t), 1.0, rows)


def test_residuals_of_custom_vjp_live_no_longer_than_their_trace() -> None:
    @fuser.custom_vjp
    def sine(x: Any) -> Any:
        return fnp.sin(x)

    sine.defvjp(lambda x: (fnp.sin(x), 2.0 * x), lambda twice, g: (fnp.cos(twice / 2.0) * g,))
    with fuser.checking_leaks():
        assert float(fuser.grad(lambda x: fuser.jit(lambda x: sine(x) + 1)(x))(0.0)) == 1
