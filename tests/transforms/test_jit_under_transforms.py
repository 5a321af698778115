"""jit under eager transforms: it agrees with JAX, and runs as few compiled programs, which are made once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.extend
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.config import config
from fuser.errors import ConcretizationTypeError
from fuser.ir.evaluate import evaluate
from fuser.ir.parse import parse
from fuser.ops.jit import Program
from tests.transforms.both import agree, both_raise

V = np.linspace(0.1, 1.0, 4, dtype=np.float32)
W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


class Count:
    """How many programs were compiled and run under transforms, and the sizes of what they return."""

    def __init__(self) -> None:
        self.compiled = 0
        self.results: list[int] = []

    @property
    def run(self) -> int:
        return len(self.results)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Iterator[Count]:
    found = Count()
    compiler, call = Program.compiler, Program.__call__

    def compile_(*args: Any) -> Any:
        found.compiled += 1
        return compiler(*args)

    def run(self: Program, *values: Any) -> Any:
        results = call(self, *values)
        found.results.append(len(results))
        return results

    monkeypatch.setattr(Program, "compiler", staticmethod(compile_))
    monkeypatch.setattr(Program, "__call__", run)
    yield found


def wave(m: Any) -> Any:
    return m.jit(lambda x, y=1.0: m.numpy.sin(x) * m.numpy.exp(x) * y)


# program, and how many compiled programs it runs
PROGRAMS = {
    "grad": (lambda m: m.grad(wave(m))(1.0), 2),
    "value_and_grad": (lambda m: m.value_and_grad(wave(m), (0, 1))(1.0, 2.0), 2),
    "grad of grad": (lambda m: m.grad(m.grad(wave(m)))(1.0), 4),
    "vmap": (lambda m: m.vmap(wave(m))(V), 1),
    "vmap, one argument": (lambda m: m.vmap(wave(m), (0, None))(V, 2.0), 1),
    "vmap of vmap": (lambda m: m.vmap(m.vmap(wave(m), (None, 0)), (0, None))(V, V), 1),
    "other axes": (lambda m: m.vmap(m.jit(lambda w: w @ w.T), 1, 1)(np.stack([W, W])), 1),
    "vmap of grad": (lambda m: m.vmap(m.grad(wave(m)))(V), 2),
    "grad of vmap": (lambda m: m.grad(lambda v: m.vmap(wave(m))(v).sum())(V), 2),
    "jvp": (lambda m: m.jvp(wave(m), (V,), (V,)), 1),
    "vmap of jvp": (lambda m: m.vmap(lambda v: m.jvp(wave(m), (v,), (1.0,)))(V), 1),
    "jacfwd": (lambda m: m.jacfwd(wave(m))(V), 1),
    "jacrev": (lambda m: m.jacrev(wave(m))(V), 2),
    "hessian": (lambda m: m.hessian(lambda v: wave(m)(v).sum())(V), 2),
    "linearize": (lambda m: m.linearize(wave(m), 1.0)[1](2.0), 2),
    "linearize, then jit": (lambda m: m.jit(m.linearize(wave(m), 1.0)[1])(2.0), 1),
    "vjp": (lambda m: m.vjp(wave(m), V)[1](V), 2),
    "linear_transpose": (lambda m: m.linear_transpose(m.jit(lambda x: 3 * x[::-1]), V)(V), 1),
    "jit outside": (lambda m: m.jit(m.grad(wave(m)))(1.0), 0),
    "jit inside jit": (lambda m: m.grad(m.jit(lambda x: wave(m)(x) * wave(m)(2 * x)))(1.0), 2),
    "twice": (lambda m: m.grad(lambda x: wave(m)(wave(m)(x)))(1.0), 4),
    "no derivative": (lambda m: m.grad(lambda x: x * m.jit(m.numpy.floor)(2 * x))(1.3), 1),
    "integers": (lambda m: m.grad(lambda x: m.jit(lambda x, n: (x * n, n + 1))(x, 3)[0])(2.0), 2),
    "trees": (
        lambda m: m.grad(lambda p: m.jit(lambda p: {"s": p["a"] @ p["b"], "n": None})(p)["s"].sum())({"a": V, "b": W}),
        2,
    ),
    "closed-over array": (lambda m: m.vmap(m.jit(lambda x: x * m.numpy.asarray(W).sum()))(V), 1),
    "closed-over tracer": (lambda m: m.grad(lambda a: m.jit(lambda x: m.numpy.sin(x) * a)(a))(2.0), 0),
    "closed-over batch": (lambda m: m.vmap(lambda a: m.jit(lambda x: x * a)(2.0))(V), 0),
    "loop inside": (
        lambda m: m.grad(m.jit(lambda x: m.lax.fori_loop(0, 3, lambda i, c: m.numpy.sin(c) * x, x)))(0.5),
        2,
    ),
    "cond inside": (
        lambda m: m.vmap(m.grad(m.jit(lambda x: m.lax.cond(x > 0.5, m.numpy.sin, lambda x: 3 * x, x))))(V),
        2,
    ),
    "collective": (lambda m: m.vmap(m.jit(lambda x: x / m.lax.psum(x, "i")), axis_name="i")(V), 1),
    "collective alone": (lambda m: m.vmap(lambda x: x * m.jit(lambda: m.lax.axis_index("i"))(), axis_name="i")(V), 1),
    "checkpoint": (lambda m: m.grad(m.checkpoint(lambda x: wave(m)(wave(m)(x))))(0.3), 0),
    "weak types": (lambda m: (m.grad(m.jit(lambda x: 2 * x))(1.0), m.vmap(m.jit(lambda x: (x, 2)))(V)), 3),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_jax_in_few_programs(name: str, count: Count) -> None:
    program, runs = PROGRAMS[name]
    agree(program)
    assert count.run == count.compiled == runs


@pytest.mark.parametrize("name", ["grad", "vmap of grad", "jvp", "trees", "loop inside"])
def test_reference_backend(name: str) -> None:
    with config.using(backend="reference"):
        agree(PROGRAMS[name][0])


def test_a_second_call_neither_traces_nor_compiles(count: Count) -> None:
    traced = []

    @functools.partial(fuser.jit, static_argnums=1)
    def f(x: Any, n: int) -> Any:
        traced.append(n)
        return fnp.sin(x) ** n

    both, rows = fuser.grad(lambda x: f(x, 2)), fuser.vmap(lambda x: f(x, 2))
    for _ in range(3):
        both(1.0)
        rows(V)
    assert (traced, count.compiled, count.run) == ([2, 2], 3, 9)  # 1.0 is weak, V is not
    fuser.grad(lambda x: f(x, 3))(1.0)
    assert (traced, count.compiled) == ([2, 2, 3], 5)
    f(1.0, 2)
    assert traced == [2, 2, 3], "a plain call takes the same trace"
    f.clear_cache()
    both(1.0)
    assert traced == [2, 2, 3, 2]


def test_inputs_are_no_residuals_of_their_own(count: Count) -> None:
    product = fuser.jit(lambda w, x: fnp.tanh(x @ w))
    fuser.grad(lambda w, x: product(w, x).sum(), (0, 1))(W, V)
    assert count.results[0] <= 3  # the value, and what tanh keeps; w and x are there already
    assert count.results[1] == 2


def test_python_cannot_read_values_inside() -> None:
    message = both_raise(lambda m: m.grad(m.jit(lambda x: x if x > 0 else -x))(1.0), TypeError)
    assert "use fuser.lax.cond" in message
    with pytest.raises(ConcretizationTypeError):
        fuser.vmap(fuser.jit(lambda x: x * float(x)))(V)
    assert float(fuser.grad(lambda x: x * x if x > 0 else -x)(3.0)) == 6, "without jit it can"


def test_bad_calls_are_refused_as_outside() -> None:
    both_raise(lambda m: m.vmap(m.jit(lambda x, s: x))(V, "text"), TypeError)
    both_raise(lambda m: m.grad(lambda x: m.jit(lambda x, s: x, static_argnums=1)(x, [1]))(1.0), ValueError)
    both_raise(lambda m: m.grad(m.jit(lambda x: "text"))(1.0), TypeError)
    both_raise(lambda m: m.vmap(m.jit(lambda x: m.lax.psum(x, "nowhere")))(V), NameError)
    both_raise(lambda m: m.jvp(m.jit(_reverse_only(m)), (1.0,), (1.0,)), TypeError)


def _reverse_only(m: Any) -> Any:
    f = m.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda r, g: (g,))
    return f


@pytest.mark.parametrize(
    "transform", [lambda m, f: m.grad(lambda x: f(x).sum()), lambda m, f: m.vmap(f)], ids=["grad", "vmap"]
)
def test_donated_arguments_are_gone(transform: Any) -> None:
    for m in (jax, fuser):
        x = m.numpy.ones(1000)
        transform(m, m.jit(m.numpy.sin, donate_argnums=0))(x)
        assert x.is_deleted()


def test_donated_residuals_stay() -> None:
    f = fuser.jit(lambda x: x * x, donate_argnums=0)
    x = fnp.asarray(V) + 0
    np.testing.assert_allclose(fuser.grad(lambda x: f(x).sum())(x), 2 * V, rtol=1e-6)


def test_a_linear_program_is_a_call_in_a_jaxpr_and_inlined_in_a_program() -> None:
    for m in (jax, fuser):
        linear = m.linearize(wave(m), 1.0)[1]
        [eqn] = m.make_jaxpr(lambda x, linear=linear: linear(x))(1.0).eqns[-1:]
        assert eqn.primitive.name == "jit"
    [eqn] = fuser.jit(lambda x: linear(x)).trace(1.0).graph.eqns[-1:]
    assert eqn.primitive.name == "mul"


def calls(m: Any, inline: bool = False) -> Any:
    double = m.jit(lambda x: x * 2, inline=inline)
    return lambda x: double(x) + double(m.numpy.sin(x))


@pytest.mark.parametrize("transform", [lambda m, f: f, lambda m, f: m.vmap(f), lambda m, f: m.jit(f)])
def test_calls_are_equations_of_a_jaxpr(transform: Any) -> None:
    found = [[e.primitive.name for e in m.make_jaxpr(transform(m, calls(m)))(np.float32(V)).eqns] for m in (jax, fuser)]
    assert found[0] == found[1]


def test_calls_in_a_loop_are_equations_of_its_body() -> None:
    for m in (jax, fuser):
        double = m.jit(lambda x: x * 2)
        jaxpr = m.make_jaxpr(lambda x, m=m, double=double: m.lax.scan(lambda c, y: (double(c), y), x, m.numpy.ones(3)))
        assert [e.primitive.name for e in jaxpr(1.0).eqns[-1].params["jaxpr"].eqns] == ["jit"]


def test_inline_calls_are_no_equations_of_a_jaxpr() -> None:
    for m in (jax, fuser):
        names = [e.primitive.name for e in m.make_jaxpr(calls(m, inline=True))(np.float32(1)).eqns]
        assert sorted(names) == ["add", "mul", "mul", "sin"]


@pytest.mark.parametrize(
    "transform",
    [
        lambda m, f: f,
        lambda m, f: m.jit(f),
        lambda m, f: m.grad(f),
        lambda m, f: m.jit(m.grad(f)),
        lambda m, f: lambda x: m.jvp(f, (x,), (2.0,)),
        lambda m, f: lambda x: m.vmap(f)(m.numpy.stack([m.numpy.float32(x)] * 2)),
    ],
    ids=["eager", "jit", "grad", "jit of grad", "jvp", "vmap"],
)
def test_a_jaxpr_with_calls_is_evaluated(transform: Any) -> None:
    found = []
    for m in (jax, fuser):
        jaxpr = m.make_jaxpr(calls(m))(3.0)
        evaluate = m.core.eval_jaxpr if m is fuser else jax.extend.core.jaxpr_as_fun(jaxpr)
        f = (
            (lambda x, e=evaluate, j=jaxpr: e(j.jaxpr, j.consts, x)[0])
            if m is fuser
            else (lambda x, e=evaluate: e(x)[0])
        )
        found.append(np.asarray(transform(m, f)(3.0)))
        assert found[-1].dtype == np.float32
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_the_graph_of_a_call_may_be_replaced() -> None:
    [eqn] = fuser.make_jaxpr(fuser.jit(lambda x: x * 2))(np.float32(1)).eqns
    other = fuser.make_jaxpr(lambda x: x + 5)(np.float32(1))
    x = fnp.float32(3)
    assert float(eqn.primitive.bind(x, **eqn.params)[0]) == 6
    params = {**eqn.params, "jaxpr": other}
    assert float(eqn.primitive.bind(x, **params)[0]) == 8
    assert float(fuser.jit(lambda x: eqn.primitive.bind(x, **params)[0])(x)) == 8
    assert float(fuser.vmap(lambda x: eqn.primitive.bind(x, **params)[0])(x[None])[0]) == 8
    assert float(fuser.jvp(lambda x: eqn.primitive.bind(x, **params)[0], (x,), (x,))[1]) == 3


def test_a_call_refuses_operands_of_another_type() -> None:
    [eqn] = fuser.make_jaxpr(fuser.jit(lambda x: x * 2))(np.float32(1)).eqns
    with pytest.raises(TypeError, match=r"jit needs an operand of type f32\[\], got i32\[\] \(test_jit_under"):
        eqn.primitive.bind(fnp.int32(3), **eqn.params)
    with pytest.raises(TypeError, match=r"got f32\[2\]"):
        eqn.primitive.bind(fnp.ones(2), **eqn.params)


def test_the_text_of_a_jaxpr_with_calls_is_read_back() -> None:
    graph = fuser.make_jaxpr(calls(fuser))(np.float32(1))
    assert "jit[name='<lambda>'] a" in str(graph)
    again = parse(str(graph))
    np.testing.assert_allclose(evaluate(again, [np.float32(3)])[0], 6 + 2 * np.sin(np.float32(3)), rtol=1e-6)


@pytest.mark.parametrize("apply", [fuser.grad, lambda f: lambda x: fuser.vmap(f)(x[None])[0], fuser.jit])
def test_effects_of_a_function_that_ran_by_itself_before(apply):
    """What was compiled for a call has its effects as arrays; what is transformed is the function as it was traced."""
    seen = []

    @fuser.jit
    def f(x):
        fuser.debug.callback(lambda value: seen.append(float(value)), x)
        return fnp.sin(x)

    f(fnp.float32(2.0))
    found = apply(f)(fnp.float32(1.0))
    fuser.effects_barrier()
    assert seen == [2.0, 1.0]
    wanted = np.cos(1.0) if apply is fuser.grad else np.sin(1.0)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_state_of_a_function_that_ran_by_itself_before():
    total = fuser.new_ref(fnp.zeros(()))

    @fuser.jit
    def add(x):
        total[...] += x
        return 2 * x

    add(1.0)
    assert fuser.jit(lambda x: add(x) + add(x))(3.0) == 12
    assert fuser.vmap(lambda x: add(1.0) * x)(fnp.ones(2)).tolist() == [2, 2]
    assert total[...] == 8
