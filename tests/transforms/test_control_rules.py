"""Rules of while, scan and cond under grad, jvp, vmap and jit, alone and nested, against JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import fuser
from fuser import lax
from fuser import numpy as fnp
from fuser.api import eager
from fuser.config import config
from fuser.ir.graph import Eqn, Graph, graphs_in
from fuser.runtime.array import Array
from fuser.trace.linearize import linearize
from tests.lax.test_control_flow import ROUTES, bodies
from tests.transforms.both import agree, both_raise

X = np.array([0.4, -0.9, 1.3], np.float32)
W = np.linspace(-0.6, 0.7, 9, dtype=np.float32).reshape(3, 3)
XS = np.linspace(-1.2, 1.5, 15, dtype=np.float32).reshape(5, 3)
TWO = np.stack([X, X * 2])
STARTS = np.array([1, 2, 3, 400], np.float32)


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest) -> Iterator[str]:
    eager._programs.clear()
    with config.using(**ROUTES[request.param]):
        yield request.param
    eager._programs.clear()


# Programs that give a scalar of float arrays.


def recurrent(m: Any) -> Any:
    def f(w: Any, x: Any, xs: Any) -> Any:
        def body(c: Any, u: Any) -> Any:
            c = m.numpy.tanh(m.numpy.dot(w, c) + u)
            return c, c * 2

        c, ys = m.lax.scan(body, x, xs)
        return m.numpy.sum(c) + m.numpy.sum(ys**2)

    return f


def backwards(m: Any) -> Any:
    def f(w: Any, x: Any, xs: Any) -> Any:
        def body(c: Any, u: Any) -> Any:
            a, n = c
            a = m.numpy.sin(a) * w[0, 0] + u * m.numpy.exp(w[1, 1])
            return (a, n + 1), (a[0], n)

        (a, _), (ys, _) = m.lax.scan(body, (x, 0), xs, reverse=True)
        return m.numpy.sum(a * a) + m.numpy.sum(ys) * 2

    return f


def counted(m: Any) -> Any:
    return lambda x: m.numpy.sum(m.lax.fori_loop(0, 6, lambda i, c: m.numpy.sin(c) * (i + 1) + x, x))


def growing(m: Any) -> Any:
    test = lambda c: m.numpy.sum(c * c) < 100
    return lambda x: m.numpy.sum(m.lax.while_loop(test, lambda c: c * 1.5 + x * 0.1, x))


def steps(m: Any) -> Any:
    body = lambda x: lambda c: (m.numpy.sin(c[0]) + x, c[1] + 1)
    return lambda x: m.numpy.sum(m.lax.while_loop(lambda c: c[1] < 5, body(x), (x, 0))[0] ** 2)


def newton(m: Any) -> Any:
    test = lambda a: lambda c: m.numpy.abs(c * c - a) > 1e-4 * a
    return lambda a: m.lax.while_loop(test(a), lambda c: 0.5 * (c + a / c), a * 0 + 1.0)


def choice(m: Any) -> Any:
    branches = (lambda x: m.numpy.sin(x) * x[1], lambda x: m.numpy.exp(x))
    return lambda x: m.numpy.sum(m.lax.cond(x[0] > 0, *branches, x))


def switched(m: Any) -> Any:
    branches = [lambda x: m.numpy.sin(x), lambda x: x * x, lambda x: m.numpy.ones_like(x)]
    return lambda x, i: m.lax.switch(i, branches, x)


def nested(m: Any) -> Any:
    def body(c: Any, u: Any) -> Any:
        c = m.lax.cond(u[0] > 0, lambda c: m.numpy.sin(c) + u, lambda c: c * u, c)
        c = m.lax.fori_loop(0, 3, lambda i, c: c * 0.9 + m.numpy.tanh(c), c)
        return c, m.numpy.sum(c)

    return lambda x, xs: m.numpy.sum(m.lax.scan(body, x, xs)[1])


def both_ways(f: Callable[[Any], Any], *arguments: Any) -> Callable[[Any], Any]:
    """Evaluated and jitted."""
    return lambda m: (f(m)(*arguments), m.jit(f(m))(*arguments))


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "scan, grad of all": both_ways(lambda m: m.grad(recurrent(m), (0, 1, 2)), W, X, XS),
    "scan, grad of the constant": both_ways(lambda m: m.grad(recurrent(m)), W, X, XS),
    "scan, grad of the carry": both_ways(lambda m: m.grad(recurrent(m), 1), W, X, XS),
    "scan, grad of xs": both_ways(lambda m: m.grad(recurrent(m), 2), W, X, XS),
    "scan, jvp": both_ways(lambda m: lambda *a: m.jvp(recurrent(m), a, a), W, X, XS),
    "scan backwards, grad": both_ways(lambda m: m.grad(backwards(m), (0, 1, 2)), W, X, XS),
    "scan, hessian": both_ways(lambda m: m.hessian(lambda x: recurrent(m)(W, x, XS)), X),
    "scan, jacrev of jacfwd": both_ways(lambda m: m.jacrev(m.jacfwd(lambda x: recurrent(m)(W, x, XS))), X),
    "scan, vmap of the carry": both_ways(lambda m: m.vmap(recurrent(m), (None, 0, None)), W, TWO, XS),
    "scan, vmap of xs": both_ways(lambda m: m.vmap(recurrent(m), (None, None, 2)), W, X, np.stack([XS, -XS], 2)),
    "scan, vmap of the constant": both_ways(lambda m: m.vmap(recurrent(m), (2, None, None)), np.stack([W, -W], 2), X, XS),
    "scan backwards, vmap": both_ways(lambda m: m.vmap(backwards(m), (None, 0, None)), W, TWO, XS),
    "scan, vmap of grad": both_ways(lambda m: m.vmap(m.grad(recurrent(m), 1), (None, 0, None)), W, TWO, XS),
    "scan, grad of vmap": both_ways(
        lambda m: m.grad(lambda w: m.numpy.sum(m.vmap(recurrent(m), (None, 0, None))(w, TWO, XS))), W
    ),
    "fori, grad": both_ways(lambda m: m.grad(counted(m)), X),
    "fori, vmap of grad": both_ways(lambda m: m.vmap(m.grad(counted(m))), XS),
    "fori, vmap over bounds": both_ways(
        lambda m: m.vmap(lambda n, x: m.lax.fori_loop(0, n, lambda i, c: c * 2 + i, x)),
        np.array([0, 3, 5], np.int32),
        np.ones(3, np.float32),
    ),
    "while, jvp": both_ways(lambda m: lambda x: m.jvp(growing(m), (x,), (x * 2,)), X),
    "while, jacfwd": both_ways(lambda m: m.jacfwd(steps(m)), X),
    "while, linearize": lambda m: m.linearize(steps(m), X)[1](X),
    "while, vmap": both_ways(lambda m: m.vmap(growing(m)), XS + 2),
    "while, vmap of a steady predicate": both_ways(lambda m: m.vmap(steps(m)), XS),
    "while, vmap of jvp": both_ways(lambda m: m.vmap(lambda x: m.jvp(growing(m), (x,), (x * 2,))), XS + 2),
    "newton, vmap": both_ways(lambda m: m.vmap(newton(m)), STARTS),
    "newton, vmap of vmap": both_ways(lambda m: m.vmap(m.vmap(newton(m)), 1), STARTS.reshape(2, 2)),
    "newton, jvp of vmap": both_ways(lambda m: lambda x: m.jvp(m.vmap(newton(m)), (x,), (x,)), STARTS),
    "newton, vmap of jvp": both_ways(lambda m: m.vmap(lambda x: m.jvp(newton(m), (x,), (x,))), STARTS),
    "cond, grad": both_ways(lambda m: m.grad(choice(m)), X),
    "cond, grad of the other": both_ways(lambda m: m.grad(choice(m)), -X),
    "cond, jvp": both_ways(lambda m: lambda x: m.jvp(choice(m), (x,), (x,)), X),
    "cond, hessian": both_ways(lambda m: m.hessian(choice(m)), -X),
    "cond, vmap": both_ways(lambda m: m.vmap(choice(m)), XS),
    "cond, vmap of grad": both_ways(lambda m: m.vmap(m.grad(choice(m))), XS),
    "cond, grad of vmap": both_ways(lambda m: m.grad(lambda xs: m.numpy.sum(m.vmap(choice(m))(xs))), XS),
    "cond, vmap of a steady index": both_ways(
        lambda m: m.vmap(lambda x, k: m.lax.cond(k > 0, lambda: m.numpy.sin(x), lambda: x * 2), (0, None)), XS, np.float32(1)
    ),
    "switch, grad": both_ways(lambda m: m.grad(switched(m)), np.float32(0.7), np.int32(1)),
    "switch, vmap": both_ways(lambda m: m.vmap(switched(m)), XS[:, 0], np.array([-3, 0, 1, 2, 7], np.int32)),
    "switch, vmap of grad": both_ways(
        lambda m: m.vmap(m.grad(switched(m))), XS[:, 0], np.array([-3, 0, 1, 2, 7], np.int32)
    ),
    "nested, grad": both_ways(lambda m: m.grad(nested(m), (0, 1)), X, XS),
    "nested, vmap of grad": both_ways(lambda m: m.vmap(m.grad(nested(m)), (0, None)), TWO, XS),
    "nested, hessian": both_ways(lambda m: m.hessian(nested(m)), X, XS),
    "map, grad": both_ways(lambda m: m.grad(lambda x: m.numpy.sum(m.lax.map(lambda r: m.numpy.sin(r) * x, XS))), X),
    "associative_scan, grad": both_ways(
        lambda m: m.grad(lambda x: m.numpy.sum(m.lax.associative_scan(m.numpy.multiply, x) ** 2)), X
    ),
    "scan of ints beside, grad": both_ways(
        lambda m: m.grad(lambda x: m.lax.scan(lambda c, i: ((c[0] * x, c[1] + i), c[0]), (x, 0), np.arange(4))[0][0]),
        np.float32(1.1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_rules(name: str, route: str) -> None:
    agree(PROGRAMS[name], 3e-4)


def test_reverse_mode_over_a_while_is_refused() -> None:
    message = both_raise(lambda m: m.grad(growing(m))(X), ValueError)
    assert message.startswith(
        "Reverse-mode differentiation does not work for lax.while_loop, or lax.fori_loop with bounds that are traced (test_control_rules.py:"
    )
    assert message.endswith(
        "): the number of steps to go back is known only when they have run; use scan, or fori_loop with Python integers "
        "as bounds, or differentiate forwards with jvp or jacfwd"
    )
    both_raise(lambda m: m.jit(m.grad(growing(m)))(X), ValueError)


def test_branches_that_are_not_taken_make_no_nan() -> None:
    """As in JAX, a lane that does not take a branch hands it no cotangent that could be infinite."""
    x = np.array([0.0, 4.0, -1.0], np.float32)
    root = lambda m: lambda x, y: m.lax.cond(x > 0, lambda: m.numpy.sqrt(x * y), lambda: x + y)
    each = lambda m: m.vmap(root(m), (0, None))
    found = agree(lambda m: m.vmap(m.grad(root(m)), (0, None))(x, np.float32(2)))
    assert np.isfinite(found).all()
    found = agree(lambda m: m.grad(lambda x, y: m.numpy.sum(each(m)(x, y)), (0, 1))(x, np.float32(2)))
    assert all(np.isfinite(part).all() for part in found)


# Other things that bodies hold.


def checkpointed(m: Any) -> Any:
    body = m.checkpoint(lambda c, u: (m.numpy.sin(c) * u, m.numpy.cos(c)))
    f = lambda x: m.numpy.sum(m.lax.scan(body, x, XS)[0])
    return m.grad(f)(X), m.jit(m.grad(f))(X), m.grad(m.checkpoint(f))(X)


def with_own_derivatives(m: Any) -> Any:
    forward, backward = m.custom_jvp(lambda x: m.numpy.sin(x)), m.custom_vjp(lambda x, y: m.numpy.sin(x) * y)
    forward.defjvp(lambda p, t: (forward(p[0]), t[0] * m.numpy.cos(p[0]) * 3))
    backward.defvjp(lambda x, y: (backward(x, y), (x, y)), lambda r, g: (g * m.numpy.cos(r[0]) * r[1] * 2, g * r[0]))
    loop = lambda x: m.lax.while_loop(lambda c: c[1] < 3, lambda c: (forward(c[0]), c[1] + 1), (x, 0))[0]
    walk = lambda x: m.numpy.sum(m.lax.scan(lambda c, u: (backward(c, u), c), x, XS)[0])
    pick = lambda x: m.numpy.sum(m.lax.cond(x[0] > 0, lambda: forward(x), lambda: forward(x * 2)))
    return (
        m.jvp(loop, (X,), (X,)),
        m.grad(walk)(X),
        m.vmap(m.grad(walk))(TWO),
        m.grad(pick)(X),
        m.vmap(m.grad(pick))(XS),
    )


def collective(m: Any) -> Any:
    walk = lambda x: m.lax.scan(lambda c, u: (c + m.lax.psum(u * x[0], "i"), c), x, XS)
    loop = lambda x: m.lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] + m.lax.pmean(c[0], "i"), c[1] + 1), (x, 0))
    pick = lambda x, k: m.lax.cond(k > 0, lambda: m.lax.psum(x, "i"), lambda: x)
    named = lambda f, axes=0: m.vmap(f, axes, axis_name="i")
    return named(walk)(TWO), named(loop)(TWO), named(pick, (0, None))(TWO, 1)


def random(m: Any) -> Any:
    r, key = m.random, m.random.key(0)
    walk = lambda k: m.lax.scan(lambda c, k: (c + r.normal(k, (3,)), r.uniform(k)), m.numpy.zeros(3), r.split(k, 4))
    carried = lambda k: m.lax.scan(lambda k, _: (r.split(k)[0], r.uniform(k)), k, None, length=3)[1]
    pick = lambda k: m.lax.cond(True, lambda: r.normal(k), lambda: r.uniform(k))
    many = r.split(key, 2)
    return walk(key), m.jit(walk)(key), m.vmap(walk)(many), carried(key), m.vmap(carried)(many), pick(key)


def transposed(m: Any) -> Any:
    walk = lambda x: m.lax.scan(lambda c, u: (c * u, c), x, XS)
    consts = lambda w: m.vmap(lambda x: m.lax.scan(lambda c, u: (m.numpy.tanh(w * c + u), c), x, XS)[0])(TWO)
    return m.linear_transpose(lambda x: walk(x)[0], X)(X), m.jacrev(walk)(X), m.vjp(consts, X)[1](TWO)


@pytest.mark.parametrize("program", [checkpointed, with_own_derivatives, collective, random, transposed])
def test_bodies_hold_anything(program: Callable[[Any], Any]) -> None:
    agree(program, 3e-4)


# What graphs come out.


def equations(graph: Graph, name: str) -> list[Eqn]:
    """The equations of one primitive, those in bodies too."""
    found = [eqn for eqn in graph.eqns if eqn.primitive.name == name]
    for eqn in graph.eqns:
        for inner in graphs_in(eqn.params):
            found += equations(inner, name)
    return found


def test_a_batched_while_stays_one_equation() -> None:
    graph = fuser.make_jaxpr(fuser.vmap(newton(fuser)))(STARTS)
    [loop] = equations(graph, "while")
    assert loop.params["cond_jaxpr"].out_avals[0].shape == (4,)


def test_a_batched_choice_is_a_selection() -> None:
    graph = fuser.make_jaxpr(fuser.vmap(choice(fuser)))(XS)
    assert not equations(graph, "cond") and equations(graph, "select_n")
    graph = fuser.make_jaxpr(fuser.vmap(lambda x, k: lax.cond(k > 0, lambda: x, lambda: x + 1), (0, None)))(XS, 1)
    assert equations(graph, "cond")


def test_residuals_that_do_not_change_are_not_stacked() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(lax.scan(lambda c, u: (c * fnp.exp(W[0]) + u, None), x, XS)[0])

    _, linear = linearize(lambda x: [f(x)], [Array(X)])
    [loop] = equations(linear.graph, "scan")
    assert len(loop.invars) == loop.params["num_consts"] + loop.params["num_carry"]  # no xs at all


def test_xs_that_are_residuals_are_not_stacked_again() -> None:
    xs = Array(XS)
    f = lambda x: fnp.sum(lax.scan(lambda c, u: (c * u, None), x, xs)[0])
    _, linear = linearize(lambda x: [f(x)], [Array(X)])
    assert any(value is xs for value in linear.graph.consts)


def test_only_carries_that_move_have_tangents() -> None:
    def f(x: Any) -> Any:
        body = lambda c, u: ((c[0] * u, c[1] + c[2], c[2] + 1), None)
        return lax.scan(body, (x, X, X), XS)[0]

    graph = fuser.make_jaxpr(lambda x: fuser.jvp(f, (x,), (x,)))(X)
    [loop] = equations(graph, "scan")
    assert loop.params["num_carry"] == 4


def test_rules_are_applied_once_a_body() -> None:
    """Gradients outside jit find their programs again: the graphs that rules make are kept."""
    body = lambda c, u: (fnp.sin(c) * u, None)
    gradient = fuser.grad(lambda x: fnp.sum(lax.scan(body, x, XS)[0]))
    gradient(X)
    known = len(eager._programs)
    gradient(X)
    assert len(eager._programs) == known


@settings(max_examples=5, deadline=None, derandomize=True, phases=[Phase.generate])
@given(body=bodies(), order=st.permutations(["grad", "vmap", "jit"]))
def test_transforms_of_random_scans(body: Any, order: list[str]) -> None:
    def program(m: Any) -> Any:
        def f(x: Any, xs: Any) -> Any:
            (a, b), (ys, zs) = m.lax.scan(lambda c, u: body(m, c, u), (x, x * 0.5), xs)
            return m.numpy.sum(a) + m.numpy.sum(b * b) + m.numpy.sum(m.numpy.sin(ys)) + m.numpy.sum(zs)

        g = f
        for name in order:
            if (name == "vmap" and g is not f) or name != "vmap":
                g = {"grad": m.grad, "vmap": lambda h: m.vmap(h, (0, None)), "jit": m.jit}[name](g)
        return g(TWO, XS) if order.index("vmap") > order.index("grad") else g(X, XS)

    agree(program, 2e-3)
