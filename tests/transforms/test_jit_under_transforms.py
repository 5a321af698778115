"""jit under eager transforms: it agrees with JAX, and runs as few compiled programs, which are made once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.config import config
from fuser.errors import ConcretizationTypeError
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


def test_a_linear_program_is_printed() -> None:
    linear = fuser.linearize(wave(fuser), 1.0)[1]
    [eqn] = fuser.make_jaxpr(lambda x: linear(x))(1.0).eqns[-1:]
    assert eqn.primitive.name == "mul", "inside staging it is inlined"
