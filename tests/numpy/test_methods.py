"""Operators, methods and properties, on arrays and on tracers, against JAX's arrays; and what operators record."""

from __future__ import annotations

import inspect
import operator
import time

import jax.numpy as jnp
import numpy as np
import pytest
from agreement import agree, numbers

import fuser.numpy as fnp
from fuser.ir.types import ArrayType
from fuser.runtime.array import Array
from fuser.trace.core import Tracer, bind
from fuser.trace.stage import stage
from tests import signatures

X = numbers(np.float32, (3, 4))
K = numbers(np.int32, (3, 4))
BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge"]
BITS = ["and_", "or_", "xor", "lshift", "rshift"]


def both(function, *args):
    agree(function, function, *args)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("other", [2, 2.5, np.float32(3), np.arange(4, dtype=np.float32), np.arange(4), True])
def test_operators(name, other):
    function = getattr(operator, name)
    both(function, np.abs(X), other)
    if not isinstance(other, np.ndarray):  # NumPy's own array on the left decides by itself
        both(lambda x, y: function(y, x), np.abs(X), other)


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("other", [1, np.int32(2), np.arange(4)])
def test_bit_operators(name, other):
    both(getattr(operator, name), K, other)
    both(lambda x, y: getattr(operator, name)(y, x), np.abs(K), 3)


def test_numpy_arrays_on_the_left_give_way():
    for name in ("add", "sub", "mul", "truediv", "pow", "lt", "ge", "matmul"):
        result = getattr(operator, name)(np.ones((4, 4), np.float32), fnp.ones((4, 4)))
        assert isinstance(result, Array), name
    assert isinstance(np.float64(2) * fnp.ones(3), Array)


def test_unary_operators():
    for function in (
        operator.neg,
        operator.pos,
        operator.abs,
        lambda x: round(x, 1),
        round,
        lambda x: divmod(x, 2),
        lambda x: divmod(2, x),
    ):
        both(function, X)
    both(operator.invert, K)
    both(lambda x: 2 ** abs(x), K)
    both(lambda x: x @ x.T, X)


METHODS = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(axis=1, keepdims=True),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(axis=-1),
    "prod": lambda x: x.prod(0),
    "var": lambda x: x.var(ddof=1),
    "std": lambda x: x.std(0),
    "ptp": lambda x: x.ptp(0),
    "any": lambda x: x.any(0),
    "all": lambda x: x.all(),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "reshape": lambda x: x.reshape(4, 3),
    "reshape by a tuple": lambda x: x.reshape((2, -1)),
    "reshape in Fortran's order": lambda x: x.reshape(4, 3, order="F"),
    "ravel": lambda x: x.ravel(),
    "flatten": lambda x: x.flatten(),
    "transpose": lambda x: x.transpose(),
    "transpose by axes": lambda x: x.transpose(1, 0),
    "transpose by a tuple": lambda x: x.transpose((1, 0)),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "squeeze": lambda x: x[None].squeeze(),
    "astype": lambda x: x.astype("int32"),
    "astype of a scalar type": lambda x: x.astype(int),
    "round": lambda x: x.round(1),
    "clip": lambda x: x.clip(0, 1),
    "clip by names": lambda x: x.clip(min=0),
    "conj": lambda x: x.conj(),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "dot": lambda x: x.dot(x.T),
    "take": lambda x: x.take(jnp.array([0, 1]) if isinstance(x, jnp.ndarray) else fnp.array([0, 1]), axis=1),
    "repeat": lambda x: x.repeat(2, axis=0),
    "sort": lambda x: x.sort(),
    "argsort": lambda x: x.argsort(),
    "diagonal": lambda x: x.diagonal(),
    "trace": lambda x: x.trace(),
    "copy": lambda x: x.copy(),
    "view": lambda x: x.view("int32"),
    "view as halves": lambda x: x.view("int16"),
    "view of halves": lambda x: x.view("int16").view("int32"),
    "rows": lambda x: list(x),
    "at": lambda x: x.at[0].set(0).at[:, 1].add(2),
    "searchsorted": lambda x: x[0].sort().searchsorted(x[1]),
    "nonzero": lambda x: (x > 1).nonzero(),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    both(METHODS[name], X)


@pytest.mark.parametrize("name", [n for n in METHODS if n not in ("nonzero",)])
def test_methods_of_tracers(name):
    """A tracer has every method, and its graph the type that the array's result has."""
    expected = METHODS[name](fnp.asarray(X))
    expected = expected if isinstance(expected, list) else [expected]

    def function(x):
        assert isinstance(x, Tracer)
        result = METHODS[name](x)
        return result if isinstance(result, list) else [result]

    graph = stage(function, [ArrayType((3, 4), np.dtype("float32"))])
    assert [(v.aval.shape, v.aval.dtype) for v in graph.outvars] == [(e.shape, e.dtype) for e in expected]


@pytest.mark.parametrize("other", [None, "a", [1, 2], (1,), object()])
def test_operators_refuse_what_is_no_array(other):
    x = fnp.ones(2)
    with pytest.raises(TypeError, match="unsupported operand"):
        x + other
    with pytest.raises(TypeError, match="unsupported operand"):
        other - x
    if isinstance(other, (list, tuple)):
        with pytest.raises(TypeError, match="unsupported operand"):  # as in JAX: an answer by identity is never meant
            x == other  # noqa: B015
    else:
        assert (x == other) is False


def test_operators_record_one_equation():
    f32 = ArrayType((3, 4), np.dtype("float32"))
    graph = stage(lambda x, y: [(x * 2 + y - 1.5) ** 2 > 3], [f32, f32])
    assert [e.primitive.name for e in graph.eqns] == ["mul", "add", "sub", "integer_pow", "gt"]
    assert graph.eqns[0].invars[1].aval == ArrayType((), np.dtype("float32"))
    scalar = ArrayType((), np.dtype("float32"))
    assert [e.primitive.name for e in stage(lambda x, s: [x * s], [f32, scalar]).eqns] == ["mul"]


def test_an_operator_costs_little_more_than_bind():
    """Tracing is dominated by bind: operands of one type reach it almost directly (a ratio, so that no machine fails it)."""
    from fuser.ops.elementwise import add_p

    def seconds(function):
        start = time.perf_counter()
        for _ in range(300):
            function()
        return time.perf_counter() - start

    def measure(x, y):
        turns = [(seconds(lambda: bind(add_p, x, y)), seconds(lambda: x + y)) for _ in range(15)]
        times.append(tuple(map(min, zip(*turns))))
        return [x]

    times: list[tuple[float, float]] = []
    f32 = ArrayType((3, 4), np.dtype("float32"))
    stage(measure, [f32, f32])
    ((alone, through),) = times
    assert through < 2 * alone


def test_the_methods_that_choose() -> None:
    both(lambda x: x.argpartition(2, axis=1)[:, 2], X)
    both(lambda x: x.argpartition(1)[:, 1:2], X)
    both(lambda x: x.compress(np.array([True, False, True]), axis=0), X)
    both(lambda x: x.compress(np.array([True, False, True]), axis=0, size=3, fill_value=7), X)
    both(lambda k: k.choose([X, -X], mode="wrap"), K)


def test_methods_have_the_parameters_of_those_of_jax() -> None:
    """By the rule of tests/signatures.py: what JAX's arrays take by position and by name, these take."""
    mine, theirs = fnp.ones((2, 2)), jnp.ones((2, 2))
    names = "all any argmax argmin argpartition argsort choose clip compress cumprod cumsum diagonal dot max mean min prod ptp ravel repeat round "
    names += "searchsorted sort squeeze std sum swapaxes take trace var"
    pairs = {n: (inspect.signature(getattr(theirs, n)), inspect.signature(getattr(mine, n))) for n in names.split()}
    found = {n: signatures.difference(*pair) for n, pair in pairs.items()}
    assert {n: text for n, text in found.items() if text is not None} == {}
