"""jit and its stages: signatures, static and donated arguments, trees, text forms, against real JAX where it has the say."""

from __future__ import annotations

import collections
import functools
import inspect
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser.partition.group import Kind


def count_traces(function, **options):
    """The jitted function, and a list that grows by one with each trace."""
    traces = []

    def traced(*args, **kwargs):
        traces.append(1)
        return function(*args, **kwargs)

    return fuser.jit(traced, **options), traces


X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_one_trace_a_signature():
    f, traces = count_traces(lambda x: x * 2 + 1)
    np.testing.assert_array_equal(f(X), X * 2 + 1)
    f(X + 1)
    assert len(traces) == 1
    f(X[:2])
    assert len(traces) == 2
    f(X.astype(np.int32))
    assert len(traces) == 3


def test_weak_type_is_part_of_the_signature():
    f, traces = count_traces(lambda x: x + np.float16(1))
    weak, strong = f(1.0), f(np.float32(1.0))
    assert len(traces) == 2
    g = jax.jit(lambda x: x + np.float16(1))
    assert (weak.dtype, strong.dtype) == (g(1.0).dtype, g(np.float32(1.0)).dtype)


def test_trees_in_and_out():
    Point = collections.namedtuple("Point", "x y")

    def f(state, *, scale):
        return {"p": Point(state["a"][0] * scale, None), "q": [state["b"]]}

    result = fuser.jit(f)({"a": (X,), "b": X + 1}, scale=3.0)
    assert isinstance(result["p"], Point) and result["p"].y is None
    np.testing.assert_array_equal(result["p"].x, X * 3)
    np.testing.assert_array_equal(result["q"][0], X + 1)


@pytest.mark.parametrize("options", [{"static_argnums": 1}, {"static_argnames": "n"}, {"static_argnums": (-1,)}])
def test_static_arguments(options):
    f, traces = count_traces(lambda x, n: sum((x for _ in range(n)), fnp.zeros_like(x)))
    jitted = fuser.jit(f.function, **options) if "static_argnames" not in options else None
    if jitted is None:

        def named(x, n):
            traces.append(1)
            return sum((x for _ in range(n)), fnp.zeros_like(x))

        jitted = fuser.jit(named, **options)
    np.testing.assert_array_equal(jitted(X, 3), X * 3)
    np.testing.assert_array_equal(jitted(X, 3), X * 3)
    assert len(traces) == 1
    np.testing.assert_array_equal(jitted(X, 2), X * 2)
    assert len(traces) == 2


def test_static_values_of_different_types_are_told_apart():
    f, traces = count_traces(lambda x, n: x * n, static_argnums=1)
    assert f(np.int32(2), 1).dtype == np.int32
    assert f(np.int32(2), 1.0).dtype == np.float32
    assert f(np.int32(2), True).dtype == np.int32
    assert len(traces) == 3


def test_a_static_argument_is_found_by_name_too():
    f = fuser.jit(lambda x, n: x * n, static_argnums=1)
    np.testing.assert_array_equal(f(X, n=3), X * 3)


def test_donated_memory_is_taken_over():
    x = fnp.asarray(np.ones((256, 256), np.float32)) * 2
    address = np.asarray(x).ctypes.data
    y = fuser.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    assert np.asarray(y).ctypes.data == address
    with pytest.raises(RuntimeError, match="deleted"):
        x + 1


def test_donation_never_touches_the_callers_own_memory():
    mine = np.ones((64, 64), np.float32)
    fuser.jit(lambda x: x + 1, donate_argnums=0)(fnp.asarray(mine))
    np.testing.assert_array_equal(mine, 1)


def test_nested_jit_becomes_part_of_the_outer_graph():
    inner = fuser.jit(lambda x: fnp.exp(x))
    outer = fuser.jit(lambda x: inner(x) * 2)
    assert [g.kind for g in outer.lower(X).plan.groups] == [Kind.ELEMENTWISE]
    np.testing.assert_allclose(outer(X), np.exp(X) * 2, rtol=1e-6)


def test_closed_over_arrays_are_inputs_not_text():
    table = fnp.arange(1000.0)
    lowered = fuser.jit(lambda x: x + table).lower(np.zeros(1000, np.float32))
    assert len(lowered.graph.constvars) == 1
    assert "999" not in lowered.as_text()


def test_stages_have_text():
    traced = fuser.jit(lambda x: fnp.exp(x) * 2).trace(X)
    assert [e.primitive.name for e in traced.graph.eqns] == ["exp", "mul"]
    assert "test_jit.py" in str(traced.graph)
    lowered = traced.lower()
    assert "became 1 step" in lowered.plan.explain()
    assert lowered.sources[0].text and lowered.sources[0].name in str(lowered.plan)
    compiled = lowered.compile()
    np.testing.assert_allclose(compiled(X), np.exp(X) * 2, rtol=1e-6)
    assert lowered.sources[0].name in str(compiled.executable)


def test_cost_and_memory_analysis():
    compiled = fuser.jit(lambda x: fnp.exp(x) * 2).lower(X).compile()
    assert compiled.cost_analysis() == {"flops": 24.0, "bytes accessed": 96.0, "optimal bytes": 96.0}
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == memory.output_size_in_bytes == 48
    assert memory.temp_size_in_bytes == 0
    copied = fuser.jit(lambda x: (x, 4.14)).lower(X).cost_analysis()
    assert copied["flops"] == 0 and copied["bytes accessed"] == 100


def test_a_compiled_program_refuses_other_types():
    compiled = fuser.jit(lambda x: x).lower(X).compile()
    with pytest.raises(TypeError, match="was compiled for"):
        compiled(X[:2])


def test_make_jaxpr_and_eval_shape_as_jax():
    def f(np_):
        return lambda x, y: {"s": np_.sum(x @ y, axis=0), "n": x[0, 0] * 2}

    shapes = jax.ShapeDtypeStruct((3, 4), np.float32), jax.ShapeDtypeStruct((4, 5), np.float32)
    ours, theirs = fuser.eval_shape(f(fnp), *shapes), jax.eval_shape(f(jnp), *shapes)
    assert {k: (v.shape, v.dtype) for k, v in ours.items()} == {k: (v.shape, v.dtype) for k, v in theirs.items()}
    graph = fuser.make_jaxpr(lambda x: fnp.sin(x))(1.0)
    assert graph.in_avals[0].weak_type and graph.eqns[0].primitive.name == "sin"


def test_unused_duplicate_and_literal_results():
    f = fuser.jit(lambda x, unused: (x, x * 2, x * 2, 3.0))
    a, b, c, d = f(X, X)
    np.testing.assert_array_equal(a, X)
    np.testing.assert_array_equal(b, c)
    assert float(d) == 3.0 and d.weak_type


def test_methods_can_be_jitted():
    class Model:
        scale = 2.0

        @fuser.jit
        def double(self, x):
            return x

    class Holder:
        def __init__(self):
            self.apply = fuser.jit(self.scaled)

        def scaled(self, x):
            return x * 3

    np.testing.assert_array_equal(Holder().apply(X), X * 3)
    with pytest.raises(TypeError, match="argument self of double is a Model"):
        Model().double(X)


def test_new_sizes_compile_nothing_new():
    def softmax(x):
        e = fnp.exp(x - fnp.max(x, axis=1, keepdims=True))
        return e / fnp.sum(e, axis=1, keepdims=True)

    rng = np.random.default_rng(0)
    f = fuser.jit(softmax)
    texts = {f.lower(np.zeros(tuple(rng.integers(1, 3000, 2)), np.float32)).sources[0].text for _ in range(100)}
    assert (
        len(texts) <= 5
    )  # by how the axes lie, how many rows there are, and whether rows are shorter than some vectors


def test_config_switches_x64():
    f = fuser.jit(lambda x: x * 2)
    assert f(np.ones(2)).dtype == np.float32
    with fuser.config.using(enable_x64=True):
        assert f(np.ones(2)).dtype == np.float64


@pytest.mark.parametrize("library", ["fuser", "jax"])
def test_a_jitted_function_is_traced_once(library):
    """For arguments of one type: within jit, grad, vmap and scan, in several outer functions, and from the outside."""
    m, numpy = (fuser, fnp) if library == "fuser" else (jax, jnp)
    traced = []

    @m.jit
    def inner(x):
        traced.append(x.shape)
        return numpy.sin(x)

    x = numpy.ones(3)
    m.jit(lambda x: inner(x) + inner(x * 2) + inner(x + 1))(x)
    m.jit(lambda x: inner(x) * 2)(x)
    m.grad(lambda x: inner(x).sum() + inner(2 * x).sum())(x)
    m.jit(m.grad(lambda x: inner(x).sum() + inner(2 * x).sum()))(x)
    m.jit(m.vmap(lambda x: inner(x) + inner(2 * x)))(numpy.ones((2, 3)))
    m.lax.scan(lambda c, _: (inner(c), inner(c + 1)), x, None, length=2)
    m.make_jaxpr(lambda x: inner(x) + inner(x))(x)
    assert inner(x).shape == (3,) and traced == [(3,)]
    m.jit(lambda x: inner(x))(numpy.ones(4))
    assert traced == [(3,), (4,)]


def test_an_inner_function_that_reads_an_outer_value_is_traced_for_it():
    """Its graph is for that value alone; numbers given to an inner function are traced, as in JAX."""

    def outer(x, y):
        inner = fuser.jit(lambda z: z * x)
        return inner(y) + inner(y + 1)

    assert fuser.jit(outer)(fnp.float32(2), fnp.float32(3)) == 14
    shared = []
    reads = fuser.jit(lambda z: z + shared[-1])

    def also(x):
        shared.append(x)
        return reads(x)

    assert fuser.jit(also)(fnp.float32(1)) == 2 and fuser.jit(lambda x: also(x * 2))(fnp.float32(4)) == 16
    inner = fuser.jit(lambda x, n: fnp.power(x, n))
    assert fuser.jit(lambda x: inner(x, 3))(fnp.float32(2)) == 8


def test_donated_arguments_are_counted_with_static_ones() -> None:
    for donated in ({"donate_argnums": (2, -1)}, {"donate_argnames": ("c", "d")}):
        f = fuser.jit(lambda a, b, c, d: (a + b + c, a + b + d), static_argnums=(0, 1), **donated)
        c, d = fnp.ones(3), fnp.ones(4)
        np.testing.assert_array_equal(f(1, 2, c, d)[1], np.full(4, 4))
        assert c.is_deleted() and d.is_deleted()


def test_a_dropped_function_drops_its_constants_at_once() -> None:
    constant = fnp.ones(10)
    f = fuser.jit((lambda x: lambda: x)(constant))
    f(), f()
    alive = weakref.ref(constant)
    del constant
    assert alive() is not None
    del f
    assert alive() is None


def test_static_arguments_that_cannot_be_compared() -> None:
    class Incomparable:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise NotImplementedError("no comparison")

    f = fuser.jit(lambda x, y: x + 1, static_argnums=1)
    f(1, Incomparable())
    for _ in range(2):
        with pytest.raises(ValueError, match="static arguments should be comparable using __eq__"):
            f(1, Incomparable())


def test_a_partial_has_the_name_of_its_function() -> None:
    def named(x):
        return x

    assert fuser.jit(functools.partial(functools.partial(named))).__getstate__() == {"function_name": "named"}


def test_make_jaxpr_hoists_the_scalars_that_a_function_closes_over() -> None:
    """Their number is the same whether they have values or are traced: what closes over them is compared by it."""

    def counts(lib, k):
        functions = [
            lambda x: x * k + 1,
            lambda x: lib.lax.scan(lambda c, j: (c * k + 2, None), x, lib.numpy.arange(3))[0],
            lambda x: lib.lax.while_loop(lambda c: c < k, lambda c: c + k, x),
            lambda x: lib.lax.cond(x > 0, lambda x: x + k, lambda x: x * k, x),
            lambda x: lib.grad(lambda x: lib.numpy.sin(x) * k)(x),
        ]
        return [len(lib.make_jaxpr(function)(1.0).consts) for function in functions]

    found = []
    fuser.jit(lambda k: (found.append(counts(fuser, k)), k)[1])(2)
    assert counts(fuser, fuser.numpy.array(2)) == counts(jax, jax.numpy.array(2)) == found[0] == [1] * 5
    assert counts(fuser, 2) == counts(fuser, np.float32(2)) == [0] * 5


def test_make_jaxpr_knows_the_axes_that_it_is_given():
    for lib in (fuser, jax):
        graph = lib.make_jaxpr(lambda x, lib=lib: lib.lax.psum(x, "i"), axis_env=[("i", 4)])(1.0)
        assert [eqn.primitive.name for eqn in graph.eqns] == ["psum"]


def test_a_jitted_function_has_its_signature_where_wrapping_is_not_followed() -> None:
    jitted = fuser.jit(lambda x, *, scale=2.0: x * scale)
    assert str(inspect.signature(jitted, follow_wrapped=False)) == "(x, *, scale=2.0)"
    assert "function" in inspect.signature(type(jitted)).parameters
