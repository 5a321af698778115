"""cond, switch, while_loop, fori_loop, scan, map, associative_scan against JAX: values, types, trees and errors.

Programs run evaluated and jitted: on the reference, as kernels with their loop inside, and (without fuel for merges) as
loops in C over the kernels of their bodies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.api import eager
from fuser.config import config
from fuser.errors import ConcretizationTypeError, UnexpectedTracerError
from fuser.ir.graph import Graph, graphs_in
from fuser.partition.group import Kind
from fuser.runtime.core import native
from tests.transforms.both import agree, both_raise, compare

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(4, 3)
LARGE = np.linspace(-1, 1, 600, dtype=np.float32).reshape(30, 20)
W = np.linspace(-0.6, 0.9, 9, dtype=np.float32).reshape(3, 3)
ROUTES = {
    "reference": {"backend": "reference"},
    "loop kernels": {"backend": "c"},
    "loops in C": {"backend": "c", "fuel": 0},
}


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest) -> Iterator[str]:
    """One way to run; programs kept from another are forgotten."""
    eager._programs.clear()
    with config.using(**ROUTES[request.param]):
        yield request.param
    eager._programs.clear()


def _recurrent(m: Any, w: Any, x: Any, xs: Any, reverse: bool = False) -> Any:
    def body(carry: Any, u: Any) -> Any:
        h, count = carry["h"], carry["n"]
        h = m.numpy.tanh(m.numpy.dot(w, h) + u)
        return {"h": h, "n": count + 1}, (h, count, u)

    return m.lax.scan(body, {"h": x, "n": 0}, xs, reverse=reverse)


def _in_body(m: Any, x: Any, xs: Any) -> Any:
    """A branch and a loop within each step of a scan."""

    def body(c: Any, u: Any) -> Any:
        c = m.lax.cond(u[0] > 0, lambda c: m.numpy.sin(c) + u, lambda c: c * u, c)
        c = m.lax.while_loop(lambda c: m.numpy.sum(c * c) > 1, lambda c: c * 0.7, c)
        return c, (m.numpy.sum(c), m.lax.fori_loop(0, 3, lambda i, a: a + i * c, c))

    return m.lax.scan(body, x, xs)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scan": (lambda m, *a: _recurrent(m, *a), (W, X[0], X)),
    "scan backwards": (lambda m, *a: _recurrent(m, *a, reverse=True), (W, X[0], X)),
    "scan of ints": (lambda m, x: m.lax.scan(lambda c, i: (c * 3 + i, c % 5), x, m.numpy.arange(7)), (np.int32(2),)),
    "scan without xs": (lambda m, x: m.lax.scan(lambda c, _: (c / 2 + 1, c), x, None, length=9), (X[1],)),
    "scan of nothing": (lambda m, x: m.lax.scan(lambda c, u: (c + u, c), x[0], x[:0]), (X,)),
    "scan without results": (lambda m, x: m.lax.scan(lambda c, u: (c + u, None), x[0], x), (X,)),
    "scan of one carry twice": (lambda m, x: m.lax.scan(lambda c, u: ((c[1] + u,) * 2, c), (x[0], x[1]), x), (X,)),
    "scan that swaps": (lambda m, x: m.lax.scan(lambda c, u: ((c[1], c[0] + u), c[0]), (x[0], x[1]), x), (X,)),
    "scan with sums": (lambda m, x: m.lax.scan(lambda c, u: (c + m.numpy.sum(u), m.numpy.max(u)), 0.0, x), (X,)),
    "scan of results twice": (lambda m, x: m.lax.scan(lambda c, u: (c * 2, (c + u, c + u)), x[0], x), (X,)),
    "scan of a transpose": (lambda m, x: m.lax.scan(lambda c, u: (c + u, c), x[:, 0], x.T), (X,)),
    "scan with a sort": (lambda m, x: m.lax.scan(lambda c, u: (m.numpy.sort(c)[::-1] + u, c), x[0], x), (X,)),
    "scan with unequal types": (
        lambda m, x: m.lax.scan(lambda c, u: ((~c[0], c[1] + 1), (c[0], c[1])), (x[0] > 0, x.astype("int8")), x),
        (X,),
    ),
    "scan of half precision": (lambda m, x: m.lax.scan(lambda c, u: (c * u + 1, c), x[0], x), (X.astype("float16"),)),
    "branches and loops inside": (lambda m, x, xs: _in_body(m, x, xs), (X[3], X)),
    "unrolled": (lambda m, x: m.lax.scan(lambda c, u: (c + u, c), x[0], x, unroll=3), (X,)),
    "wholly unrolled": (lambda m, x: m.lax.scan(lambda c, u: (c + u, c), x[0], x, unroll=True), (X,)),
    "unchanged carry": (lambda m, x: m.lax.scan(lambda c, u: ((c[0], c[1] + c[0]), u), (x[0], x[1]), x), (X,)),
    "while": (lambda m, x: m.lax.while_loop(lambda c: m.numpy.sum(c) < 50, lambda c: c * 1.5 + 0.1, x), (X,)),
    "while that never runs": (lambda m, x: m.lax.while_loop(lambda c: c[0] < 0, lambda c: c + 1, x), (X[3],)),
    "while over a tree": (
        lambda m, x: m.lax.while_loop(
            lambda c: c["n"] < 6,
            lambda c: {"n": c["n"] + 1, "x": m.numpy.sin(c["x"]) + c["y"], "y": c["y"]},
            {"n": 0, "x": x, "y": x[:1]},
        ),
        (X,),
    ),
    "collatz": (
        lambda m, n: m.lax.while_loop(
            lambda c: c[0] != 1, lambda c: (m.numpy.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1), (n, 0)
        ),
        (np.int32(27),),
    ),
    "fori": (lambda m, x: m.lax.fori_loop(2, 7, lambda i, c: m.numpy.sin(c) * i + x, x), (X,)),
    "fori down": (lambda m, x: m.lax.fori_loop(7, 2, lambda i, c: c * i, x), (X,)),
    "fori over bounds": (lambda m, n, x: m.lax.fori_loop(0, n, lambda i, c: c * 2 + i, x), (np.int32(5), X)),
    "writing rows": (
        lambda m, x: m.lax.fori_loop(1, 25, lambda i, t: t.at[i].set(m.numpy.tanh(t[i - 1]) + i), x),
        (LARGE,),
    ),
    "writing outside": (
        lambda m, x: m.lax.fori_loop(0, 9, lambda i, t: t.at[i * 7, i - 3].set(i).at[40].set(1.0), x),
        (LARGE,),
    ),
    "adding to elements": (
        lambda m, x: m.lax.while_loop(
            lambda c: c[0] < 9, lambda c: (c[0] + 1, c[1].at[c[0] % 4, 3].add(m.numpy.sum(c[1][0]))), (0, x)
        ),
        (LARGE,),
    ),
    "writing windows": (
        lambda m, x: m.lax.scan(
            lambda t, i: (m.lax.dynamic_update_slice(t, t[:3, 2:6] * 0.5, (i * 5, 14 + i)), m.numpy.sum(t)),
            x,
            m.numpy.arange(7),
        ),
        (LARGE,),
    ),
    "writing and handing on": (
        lambda m, x: m.lax.scan(
            lambda c, i: ((c[0].at[i].set(c[1][0]), c[0], c[2] + 1), c[0][i]), (x, x * 2, 0), m.numpy.arange(5)
        ),
        (LARGE,),
    ),
    "writing what is a result too": (
        lambda m, x: m.lax.scan(lambda c, i: (c.at[i].set(c[i] * 2),) * 2, x, m.numpy.arange(3)),
        (LARGE,),
    ),
    "writing what is carried and a result": (
        lambda m, x: m.lax.scan(
            lambda c, i: ((c[0].at[i].set(c[1] * 2), c[1] * 2), c[1] * 2), (x, x[0]), m.numpy.arange(5)
        ),
        (LARGE,),
    ),
    "a switch in a while": (
        lambda m, x: m.lax.while_loop(
            lambda c: c[1] < 7,
            lambda c: (
                m.lax.switch(c[1] % 3, [lambda v: v + 1, lambda v: m.numpy.sort(v), lambda v: v[::-1] * 2], c[0]),
                c[1] + 1,
            ),
            (x, 0),
        ),
        (X[0],),
    ),
    "nothing in the carry": (lambda m, x: m.lax.scan(lambda c, u: (c, m.numpy.sum(u)), x[:0], x), (X,)),
    "a predicate in the carry": (
        lambda m, x: m.lax.while_loop(lambda c: c[0], lambda c: (m.numpy.sum(c[1]) < 50, c[1] * 2), (True, x)),
        (X + 2,),
    ),
    "cond": (lambda m, x: m.lax.cond(x[0, 0] > 0, lambda x: x + 1, lambda x: x * 2, x), (X,)),
    "cond of a number": (lambda m, x: m.lax.cond(x[1, 1], lambda: x, lambda: x * 2), (X,)),
    "cond over trees": (
        lambda m, x: m.lax.cond(
            x[0, 0] < 0, lambda t: {"a": t[0] + 1, "b": (t[1], 2)}, lambda t: {"a": t[1], "b": (t[0], 3)}, (x, x * 2)
        ),
        (X,),
    ),
    "cond by keyword": (lambda m, x: m.lax.cond(True, lambda x: -x, lambda x: x, operand=x), (X,)),
    "cond of old": (lambda m, x: m.lax.cond(x[0, 0] > 0, x, lambda x: x + 1, x, lambda x: x - 1), (X,)),
    "cond with a sort": (lambda m, x: m.lax.cond(x[0, 0] < 0, lambda: m.numpy.sort(-x), lambda: x), (X,)),
    "switch": (
        lambda m, n, x: [
            m.lax.switch(n + k, [lambda x: x, lambda x: m.numpy.sin(x), lambda x: x * 0], x) for k in range(-3, 4)
        ],
        (np.int32(1), X),
    ),
    "map": (lambda m, x: m.lax.map(lambda r: {"s": m.numpy.sum(r), "r": r[::-1]}, x), (X,)),
    "map in batches": (lambda m, x: m.lax.map(lambda r: r * m.numpy.sum(r), x, batch_size=3), (X,)),
    "map in one batch": (lambda m, x: m.lax.map(lambda r: r * m.numpy.sum(r), x, batch_size=0), (X,)),
    "associative": (lambda m, x: m.lax.associative_scan(m.numpy.multiply, x), (X,)),
    "associative along 1, backwards": (
        lambda m, x: m.lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x + 1), True, 1),
        (X,),
    ),
    "associative bools": (lambda m, x: m.lax.associative_scan(m.numpy.logical_xor, x > 0.3), (X,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, route: str) -> None:
    program, arguments = PROGRAMS[name]
    tolerance = 2e-3 if "half" in name else 2e-5
    agree(lambda m: program(m, *map(m.numpy.asarray, arguments)), tolerance)
    agree(lambda m: m.jit(lambda *a: program(m, *a))(*arguments), tolerance)


def test_weak_carries_take_the_dtype_of_the_body() -> None:
    def program(m: Any) -> Any:
        n = m.numpy
        return (
            m.lax.while_loop(lambda c: c < 10, lambda c: c + 1, 0),
            m.lax.while_loop(lambda c: c < 10, lambda c: c + 1.5, 0),
            m.lax.while_loop(lambda c: c < 10, lambda c: c + n.asarray(1.5, "float16"), 0.0),
            m.lax.scan(lambda c, x: (c + x, c), 0.0, n.arange(3)),
            m.lax.scan(lambda c, x: (c + x, c), 0, n.arange(3)),
            m.lax.scan(lambda c, x: (c * n.asarray(2, "float16"), 1), 0.0, n.zeros(3)),
            m.lax.fori_loop(0, 3, lambda i, c: c + i, 0.0),
            m.lax.fori_loop(n.asarray(0, "int8"), n.asarray(3, "int8"), lambda i, c: i, 0),
            m.lax.cond(True, lambda x: x, lambda x: x + 1, 1),
            m.lax.cond(True, lambda x: x, lambda x: x * n.ones((), "float32"), 1.0),
        )

    agree(program)


def test_values_of_any_kind_are_closed_over() -> None:
    def program(m: Any) -> Any:
        big = m.numpy.asarray(X)

        def f(scale: Any) -> Any:
            outer = scale * 2
            body = lambda c, u: (c + outer * big[0] + u, m.lax.cond(c[0] > 0, lambda: c * scale, lambda: big[1]))
            return m.lax.scan(body, big[2], big)

        return f(m.numpy.float32(0.5)), m.jit(f)(0.5), m.vmap(f)(m.numpy.arange(3.0))

    agree(program, 1e-5)


ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "carry of another type": (
        lambda m: m.lax.scan(lambda c, x: ({"a": c["a"], "b": c["b"].astype("int32")}, x), {"a": 1.0, "b": X[0]}, X),
        TypeError,
        "scan function carry input and carry output must have equal types, but they differ:\n\nThe input carry component "
        "c['b'] has type float32[3] but the corresponding output carry component has type int32[3], so the dtypes do not "
        "match.\n\nThe carry of scan must keep its types: c['b'] goes in as f32[3] and comes out as i32[3], of <lambda> (HERE); "
        "convert the result or the initial value",
    ),
    "carry of another structure": (
        lambda m: m.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1,), (0, 1)),
        TypeError,
        "while_loop body function carry input and carry output must have the same pytree structure, but they differ:\n\nThe input "
        "carry c is a tuple of length 2 but the corresponding component of the carry output is a tuple of length 1, so the "
        "lengths do not match.\n\nThe carry of while_loop must keep its structure: c goes into <lambda> as (*, *) and comes out as (*,) (HERE); "
        "return what it takes",
    ),
    "carry of a fori_loop": (
        lambda m: m.lax.fori_loop(0, 3, lambda i, c: {"a": X}, {"a": 1.0}),
        TypeError,
        "fori_loop function carry input and carry output must have equal types, but they differ:\n\nThe input carry "
        "component c['a'] has type float32[] but the corresponding output carry component has type float32[4,3], so the "
        "shapes do not match.\n\nThe carry of fori_loop must keep its types: c['a'] goes in as f32[] and comes out as f32[4,3], of <lambda> "
        "(HERE); convert the result or the initial value",
    ),
    "no pair": (
        lambda m: m.lax.scan(lambda c, x: c, 0.0, X),
        TypeError,
        "scan body output must be a pair, got float32[]. The body, <lambda>, must return (carry, y) (HERE); return "
        "(carry, None) where there is nothing to stack",
    ),
    "predicate with a shape": (
        lambda m: m.lax.while_loop(lambda c: c < 3, lambda c: c + 1, m.numpy.zeros(3)),
        TypeError,
        "cond_fun must return a boolean scalar, but got output type(s) [ShapedArray(bool[3])]. while_loop needs a predicate "
        "that returns a scalar bool, got bool[3] from <lambda> (HERE); reduce it with "
        "fuser.numpy.any or fuser.numpy.all",
    ),
    "predicate that is a number": (
        lambda m: m.lax.while_loop(lambda c: c, lambda c: c + 1, 1),
        TypeError,
        "cond_fun must return a boolean scalar, but got output type(s) [ShapedArray(int32[])]. while_loop needs a predicate "
        "that returns a scalar bool, got i32*[] from <lambda> (HERE); compare it, as in "
        "x != 0",
    ),
    "predicate that is a tuple": (
        lambda m: m.lax.while_loop(lambda c: (c < 1,), lambda c: c + 1, 1),
        TypeError,
        "cond_fun must return a boolean scalar, but got pytree PyTreeDef((*,)). while_loop needs a predicate that returns a "
        "scalar bool, got (bool*[],) from <lambda> (HERE)",
    ),
    "branches of other types": (
        lambda m: m.lax.cond(True, lambda x: {"a": x}, lambda x: {"a": x.astype("int32")}, X),
        TypeError,
        "the branches of cond must return equal types: true_fun returns f32[4,3] and false_fun returns i32[4,3] at "
        "['a'] (HERE); convert one of them",
    ),
    "branches of other structures": (
        lambda m: m.lax.switch(1, [lambda: 1, lambda: (1,)]),
        TypeError,
        "the branches of switch must return one structure: branch 0 returns * and branch 1 returns (*,) (HERE)",
    ),
    "predicate of cond with a shape": (
        lambda m: m.lax.cond(X > 0, lambda: 1, lambda: 2),
        TypeError,
        "cond takes a scalar predicate, got bool[4,3] (HERE); use fuser.numpy.where for a choice by element",
    ),
    "index of floats": (
        lambda m: m.lax.switch(np.float32(1), [lambda: 1, lambda: 2]),
        TypeError,
        "switch takes an integer as index, got f32[] (HERE); convert it first",
    ),
    "no branches": (
        lambda m: m.lax.switch(1, []),
        ValueError,
        "switch got no branches (HERE); pass at least one function",
    ),
    "unequal lengths": (
        lambda m: m.lax.scan(lambda c, x: (c, x), 0, (X, X[:3], X[:2])),
        ValueError,
        "scan needs xs of one length, got 4, 3 and 2 along the first axis (HERE); slice them first",
    ),
    "another length": (
        lambda m: m.lax.scan(lambda c, x: (c, x), 0, X, length=5),
        ValueError,
        "scan got length=5 and xs with 4 along the first axis (HERE); leave length out, or pass xs of that length",
    ),
    "no length": (
        lambda m: m.lax.scan(lambda c, x: (c, x), 0),
        ValueError,
        "scan got neither xs nor length (HERE); pass length= where there is nothing to walk along",
    ),
    "nothing to walk along": (
        lambda m: m.lax.scan(lambda c, x: (c, x), 0, [1, 2]),
        ValueError,
        "scan got value with no leading axis to scan over: int among xs (HERE)",
    ),
    "negative unroll": (
        lambda m: m.lax.scan(lambda c, x: (c, x), 0, X, unroll=-1),
        ValueError,
        "unroll is a bool or a number of steps, got -1 (HERE)",
    ),
    "traced unroll": (
        lambda m: m.jit(lambda n: m.lax.fori_loop(0, n, lambda i, c: c, 0, unroll=2))(3),
        ValueError,
        "Can only use `unroll` in `fori_loop` where its bounds are known, got traced ones (HERE); pass Python integers, or "
        "leave unroll out",
    ),
    "unequal bounds": (
        lambda m: m.lax.fori_loop(0, np.float32(3), lambda i, c: c, 0),
        TypeError,
        "fori_loop needs bounds of one dtype, got lower i32*[] and upper f32[] (HERE); convert one of them first",
    ),
    "no function": (
        lambda m: m.lax.while_loop(3, lambda c: c, 0),
        TypeError,
        "while_loop takes a function as cond_fun, got a int (HERE)",
    ),
    "no array": (
        lambda m: m.lax.while_loop(lambda c: c < 3, lambda c: "one", 0),
        TypeError,
        "<lambda> returned a str, which is no array (HERE); control flow takes functions that return arrays and numbers",
    ),
    "associative over unequal arrays": (
        lambda m: m.lax.associative_scan(lambda a, b: a, (m.numpy.zeros(3), m.numpy.zeros(4))),
        ValueError,
        "associative_scan needs elems of one extent along axis 0, got 3 and 4 (HERE)",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    program, kind, expected = ERRORS[name]
    line = program.__code__.co_firstlineno
    message = both_raise(program, kind)
    places = [f"test_control_flow.py:{number}" for number in range(line, line + 3)]
    assert any(message == expected.replace("HERE", place) for place in places), message


def test_a_traced_length_is_refused() -> None:
    message = both_raise(
        lambda m: m.jit(lambda n: m.lax.scan(lambda c, x: (c, x), 0, None, length=n))(3),
        ConcretizationTypeError,
        TypeError,
    )
    assert message.startswith(
        "The `length` argument to `scan` expects a concrete `int` value, got a traced i32*[] (test_control_flow.py:"
    )
    assert message.endswith("use while_loop or fori_loop for a number of steps that is computed")


def test_leaked_tracers_are_refused() -> None:
    kept = []

    def body(c: Any, x: Any) -> Any:
        kept.append(c)
        return c + x, c

    lax.scan(body, fnp.zeros(3), X)
    with pytest.raises(UnexpectedTracerError, match=r"a traced f32\[3\] of body was used after its trace had ended"):
        kept[0] + 1
    with pytest.raises(UnexpectedTracerError):
        lax.cond(True, lambda: kept[0], lambda: fnp.zeros(3))


def test_bodies_are_traced_once_a_type() -> None:
    traces = []

    def body(c: Any, x: Any) -> Any:
        traces.append(c)
        return c + x, c

    for _ in range(3):
        lax.scan(body, fnp.zeros(3), X)
    assert len(traces) == 1
    lax.scan(body, fnp.zeros(3), X[:2])
    lax.scan(body, fnp.zeros(3), X.astype("float16"))
    assert len(traces) == 2


def test_threads_share_a_program() -> None:
    loop = fuser.jit(lambda x: lax.scan(lambda c, u: (fnp.tanh(fnp.asarray(W) @ c) + u, c), x[0], x))
    expected = [np.asarray(v) for v in loop(X)]
    wrong = []

    def work() -> None:
        for _ in range(50):
            if any(not np.array_equal(a, b) for a, b in zip(loop(X), expected)):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# What becomes of the graphs and the plans.


def _graph(function: Callable[..., Any], *arguments: Any) -> Graph:
    return fuser.jit(function).lower(*arguments).graph


def test_dead_parts_of_a_loop_go() -> None:
    def f(x: Any, y: Any) -> Any:
        body = lambda c, u: ((c[0] + u, c[1] * 2, c[2] + y), (c[0], c[1], u))
        return lax.scan(body, (x[0], x[1], x[2]), x)[1][0]

    [scan] = _graph(f, X, X[0]).eqns[-1:]
    assert scan.primitive.name == "scan"
    assert (scan.params["num_consts"], scan.params["num_carry"], len(scan.outvars)) == (0, 1, 2)
    assert [e.primitive.name for e in scan.params["jaxpr"].eqns] == ["add"]


def test_what_a_loop_never_changes_is_a_constant() -> None:
    def f(x: Any, y: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < c[2], lambda c: (c[0] + 1, c[1] * 2, c[2]), (x, y, x + 3))

    graph = _graph(f, 1, X)
    [loop] = [e for e in graph.eqns if e.primitive.name == "while"]
    assert (loop.params["cond_nconsts"], loop.params["body_nconsts"], len(loop.outvars)) == (1, 0, 2)


def test_branches_that_hand_an_operand_on_need_not_return_it() -> None:
    graph = _graph(lambda x, y: lax.cond(y > 0, lambda: (x, x + 1, 2), lambda: (x, x - 1, 2)), X, 1)
    [choice] = [e for e in graph.eqns if e.primitive.name == "cond"]
    assert len(choice.outvars) == 2


def test_bodies_are_optimised() -> None:
    graph = _graph(lambda x: lax.scan(lambda c, u: (c * 1.0 + (u - u + u) * 0.5, u.T.T), x[0], x), X)
    [inner] = [g for e in graph.eqns for g in graphs_in(e.params)]
    assert "transpose" not in [e.primitive.name for e in inner.eqns]
    assert len([e for e in inner.eqns if e.primitive.name == "mul"]) == 1


def test_a_scan_over_products_runs_in_c() -> None:
    f = lambda w, x: lax.scan(lambda c, u: (fnp.tanh(w @ c + u), fnp.sum(c)), x[0], x)
    wide = np.zeros((100, 100), np.float32)
    plan = fuser.jit(f, backend="c").lower(wide, np.zeros((8, 100, 4), np.float32)).plan
    [loop] = [g for g in plan.groups if g.kind is Kind.CONTROL]
    assert loop.reason == "" and "control flow in native code" in plan.explain()
    assert Kind.CONTRACTION in [g.kind for g in loop.bodies[0].groups]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_product_with_a_vector_inside_a_loop_is_a_sum_in_a_kernel(dtype: str) -> None:
    def programs(lax: Any, np: Any) -> Any:
        def step(k: Any, x: Any) -> Any:
            row = lax.dynamic_index_in_dim(matrix, k, 0, keepdims=False)
            x = lax.dynamic_update_index_in_dim(x, row @ x - k, k, 0)
            more = matrix @ x + x @ matrix + matrix.T @ x
            return x + (more * 0.02 if dtype == "float32" else more // 16)

        return lambda x: lax.fori_loop(0, 100, step, x)

    matrix = np.random.default_rng(3).integers(-2, 3, (100, 100)).astype(dtype)
    x = np.arange(100).astype(dtype)
    mine = fuser.jit(programs(lax, fnp), backend="c")
    plan = mine.lower(x).plan
    [loop] = [g for g in plan.groups if g.kind is Kind.CONTROL]
    assert loop.reason == "" and Kind.CONTRACTION not in [g.kind for g in loop.bodies[0].groups]
    expected = jax.jit(programs(jax.lax, jax.numpy))(x)
    np.testing.assert_allclose(mine(x), expected, rtol=1e-4)


def test_a_loop_that_writes_a_row_leaves_the_rest_alone() -> None:
    f = fuser.jit(lambda x: lax.fori_loop(1, 25, lambda i, t: t.at[i].set(fnp.tanh(t[i - 1]) + i), x), backend="c")
    plan = f.lower(LARGE).plan
    [loop] = [g for g in plan.groups if g.kind is Kind.CONTROL]
    assert max(v.aval.size for g in loop.bodies[0].groups for v in g.graph.outvars) == LARGE.shape[1]


@pytest.mark.skipif(native is None, reason="needs the native core")
def test_a_native_loop_calls_python_for_the_steps_that_only_it_has() -> None:
    def program(lib: Any, numpy: Any) -> Any:
        def body(carry: Any, row: Any) -> Any:
            carry = lib.cond(row[0].real > 0, lambda c: numpy.sort(c) + row, lambda c: numpy.sort(c)[::-1], carry)
            grown = lib.while_loop(lambda c: abs(c[0]) < 2, lambda c: numpy.sort(c * 1.5), row + 0.1)
            return carry, (numpy.sort(row), grown)

        return lambda x: lib.scan(body, x[0], x)

    step = fuser.jit(program(lax, fnp), backend="c")
    values = X + 1j * X[::-1]
    plan = step.lower(values).plan
    [loop] = [g for g in plan.groups if g.kind is Kind.CONTROL]
    assert not loop.reason and "complex numbers are sorted in NumPy" in plan.explain()
    assert "driven from Python" not in plan.explain()
    expected = program(jax.lax, jax.numpy)(values)
    for found, wanted in zip(jax.tree.leaves(step(values)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-6)


def test_the_text_of_a_loop_serves_other_sizes() -> None:
    f = fuser.jit(lambda w, x: lax.scan(lambda c, u: (fnp.tanh(w @ c + u), c), x[0], x), backend="c")
    lower = lambda n, steps: f.lower(np.zeros((n, n), np.float32), np.zeros((steps, n), np.float32)).sources
    assert [s.text for s in lower(100, 8)] == [s.text for s in lower(116, 9)]  # neither in whole vectors


def test_graphs_show_their_bodies_indented() -> None:
    text = str(fuser.make_jaxpr(lambda x: lax.cond(x[0, 0] > 0, lambda: x, lambda: x + 1))(X))
    lines = text.splitlines()
    at = next(n for n, line in enumerate(lines) if line.strip() == "branches=(")
    assert all(line.startswith("        ") for line in lines[at + 1 : at + 4])


# Random bodies.


@st.composite
def bodies(draw: Any) -> Callable[[Any, Any, Any], Any]:
    """A body of a few steps over two carries and one x: (m, carry, x) -> (carry, ys)."""
    steps = draw(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=5))
    picks = draw(st.tuples(*[st.integers(0, 9)] * 4))

    def body(m: Any, carry: Any, x: Any) -> Any:
        n = m.numpy
        values = [carry[0], carry[1], x]
        for kind, a, b in steps:
            p, q = values[a % len(values)], values[b % len(values)]
            values.append(
                (
                    lambda p, q: p + q,
                    lambda p, q: n.tanh(p) * q,
                    lambda p, q: n.where(p > q, p, -q),
                    lambda p, q: p - n.sum(q) / 4,
                    lambda p, q: q[::-1],
                    lambda p, q: n.tanh(n.dot(n.asarray(W), p)),
                    lambda p, q: m.lax.cond(q[0] > 0, lambda: p, lambda: q),
                    lambda p, q: m.lax.fori_loop(0, 2, lambda i, c: c * 0.5 + q * i, p),
                )[kind](p, q)
            )
        chosen = [values[k % len(values)] for k in picks]
        return (n.tanh(chosen[0]), chosen[1] * 0.5), (chosen[2], n.max(chosen[3]))

    return body


@settings(max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate])
@given(body=bodies(), length=st.integers(0, 5), reverse=st.booleans(), unfused=st.booleans())
def test_random_scans(body: Any, length: int, reverse: bool, unfused: bool) -> None:
    xs = np.random.default_rng(length).normal(size=(length, 3)).astype(np.float32)

    def program(m: Any) -> Any:
        scan = lambda c, xs: m.lax.scan(lambda c, x: body(m, c, x), c, xs, reverse=reverse)
        return m.jit(scan)((X[0], X[1]), xs)

    expected = program(jax)
    with config.using(backend="c", fuel=0 if unfused else -1):
        compare(program(fuser), expected, 1e-4)
