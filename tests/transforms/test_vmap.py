"""vmap, vectorize and collectives against JAX, and against a loop over the examples."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from tests.transforms.both import agree, both_raise

X = np.linspace(-1, 2, 24, dtype=np.float32).reshape(2, 3, 4)
Y = np.linspace(0, 1, 3, dtype=np.float32)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("out", [0, 1, -1])
def test_axes(axis: int, out: int) -> None:
    agree(lambda m: m.vmap(lambda x: m.numpy.sin(x) * x.sum(), in_axes=axis, out_axes=out)(X))


def test_trees_of_axes() -> None:
    tree = {"a": X, "b": (Y, 2.0)}
    f = lambda m: lambda t, y: {"p": t["a"] * y, "q": [t["b"][0].sum() + t["b"][1], y]}
    agree(lambda m: m.vmap(f(m), in_axes=({"a": 1, "b": (0, None)}, None), out_axes={"p": 1, "q": 0})(tree, 3.0))
    agree(lambda m: m.vmap(f(m), in_axes=({"a": 1, "b": None}, 0), out_axes=0)(tree, Y))
    agree(lambda m: m.vmap(lambda x, y: (x, y), in_axes=(0, None), out_axes=(0, None))(X, Y))
    agree(lambda m: m.vmap(lambda x, *, y: x + y)(X[0], y=Y))
    agree(lambda m: m.vmap(lambda x, n: x if n is None else 0, in_axes=(0, None))(X, None))
    agree(lambda m: m.vmap(lambda: m.numpy.ones(2), axis_size=3)())
    agree(lambda m: m.vmap(lambda x: 3.0, axis_size=3, in_axes=None)(1.0))


def test_nesting_and_composition() -> None:
    agree(lambda m: m.vmap(m.vmap(m.vmap(lambda x: x * x)))(X))
    agree(lambda m: m.vmap(m.vmap(lambda x, y: x @ y.T, (None, 1)), (1, None))(X, X))
    agree(lambda m: m.vmap(m.grad(lambda x: m.numpy.tanh(x).sum()))(X))
    agree(lambda m: m.grad(lambda x: m.vmap(lambda y: m.numpy.exp(y).sum())(x).sum())(X))
    agree(lambda m: m.jit(m.vmap(m.jit(lambda x: x + 1)))(X))
    agree(lambda m: m.vmap(m.jacrev(m.numpy.sin))(Y))
    agree(lambda m: m.jvp(m.vmap(lambda x: x * Y[:, None]), (X,), (X,)))


def test_per_example_gradients_are_those_of_a_loop() -> None:
    w = np.linspace(-1, 1, 4, dtype=np.float32)
    loss = lambda w, x, y: (fnp.tanh(x @ w) - y) ** 2
    found = fuser.jit(fuser.vmap(fuser.grad(loss), in_axes=(None, 0, 0)))(w, X[0], Y)
    loop = np.stack([np.asarray(fuser.grad(loss)(w, x, y)) for x, y in zip(X[0], Y)])
    np.testing.assert_allclose(found, loop, rtol=1e-5)


def test_bad_calls() -> None:
    assert "is only 0 (its shape is ())" in both_raise(lambda m: m.vmap(lambda x: x)(1.0), ValueError)
    assert "one axis had size 3: axis 0 of argument x of type float32[3]" in both_raise(
        lambda m: m.vmap(lambda x, y: x)(np.ones(3, np.float32), np.ones(2, np.float32)), ValueError
    )
    assert "maps nothing" in both_raise(lambda m: m.vmap(lambda x: x, in_axes=None)(X), ValueError)
    assert "len(in_axes)=1, len(args)=2" in both_raise(lambda m: m.vmap(lambda x, y: x, in_axes=(0,))(X, X), ValueError)
    assert "out_axes is None" in both_raise(lambda m: m.vmap(lambda x: x, out_axes=None)(X), ValueError)
    both_raise(lambda m: m.vmap(lambda x: x, in_axes=({"a": 0},))(X), ValueError)
    both_raise(lambda m: m.vmap(lambda x: (x, x), out_axes=(0,))(X), ValueError)
    both_raise(lambda m: m.vmap(lambda x: x, out_axes=4)(X), ValueError)
    both_raise(lambda m: m.vmap(lambda x: x, axis_size=5)(X), ValueError)
    both_raise(lambda m: m.vmap(lambda x: x, in_axes="0")(X), TypeError)
    assert "use fuser.lax.cond" in both_raise(lambda m: m.vmap(lambda x: x if x > 0 else -x)(Y), TypeError)


def test_a_leaked_lane_is_refused() -> None:
    kept = []
    fuser.vmap(lambda x: [kept.append(x), x * x][1])(Y)
    with pytest.raises(fuser.errors.UnexpectedTracerError):
        kept[0] + 1


def named(m: Any, function: Any, **kwargs: Any) -> Any:
    return m.vmap(function, axis_name="i", **kwargs)


S = np.linspace(-1, 2, 9, dtype=np.float32).reshape(3, 3)
COLLECTIVES = {
    "psum": lambda m, a: m.lax.psum(a, "i"),
    "psum of a tree": lambda m, a: m.lax.psum({"a": a, "two": 2, "b": (a > 0)}, "i"),
    "psum of what is the same": lambda m, a: m.lax.psum(m.numpy.float32(2.5), "i"),
    "pmean": lambda m, a: m.lax.pmean(a, "i"),
    "pmean of a number": lambda m, a: m.lax.pmean(1, "i"),
    "pmax": lambda m, a: m.lax.pmax(a, "i"),
    "pmin": lambda m, a: m.lax.pmin(a, "i"),
    "all_gather": lambda m, a: m.lax.all_gather(a, "i"),
    "all_gather axis 1": lambda m, a: m.lax.all_gather(a, "i", axis=1),
    "all_gather tiled": lambda m, a: m.lax.all_gather(a, "i", axis=0, tiled=True),
    "psum_scatter": lambda m, a: m.lax.psum_scatter(a, "i"),
    "psum_scatter tiled": lambda m, a: m.lax.psum_scatter(a, "i", tiled=True),
    "all_to_all": lambda m, a: m.lax.all_to_all(a, "i", 0, 0),
    "ppermute": lambda m, a: m.lax.ppermute(a, "i", [(0, 1), (1, 2), (2, 0)]),
    "pshuffle": lambda m, a: m.lax.pshuffle(a, "i", [2, 0, 1]),
    "axis_index": lambda m, a: m.lax.axis_index("i") + a,
    "axis_size": lambda m, a: a * m.lax.axis_size("i"),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(name: str) -> None:
    agree(lambda m: named(m, lambda a: COLLECTIVES[name](m, a))(S))
    agree(lambda m: m.jit(named(m, lambda a: COLLECTIVES[name](m, a), in_axes=1))(S))
    agree(lambda m: named(m, lambda a: m.vmap(lambda b: COLLECTIVES[name](m, b))(a))(np.stack([S, S + 1, -S])))


@pytest.mark.parametrize(
    "name", [n for n in COLLECTIVES if n not in ("psum of a tree", "pmax", "pmin", "axis_index", "all_to_all")]
)
def test_gradients_of_collectives(name: str) -> None:
    def program(m: Any) -> Any:
        f = lambda a: m.numpy.sum(COLLECTIVES[name](m, a * a) * m.numpy.float32(1.5))
        outside = m.grad(lambda s: named(m, f)(s).sum())
        return named(m, m.grad(f))(S), outside(S)

    agree(program)


def test_all_to_all_axes() -> None:
    cube = np.arange(3 * 3 * 6, dtype=np.float32).reshape(3, 3, 6)
    for split, concat in ((0, 0), (0, 1)):
        agree(lambda m, s=split, c=concat: named(m, lambda a: m.lax.all_to_all(a, "i", s, c))(cube))
        agree(lambda m, s=split, c=concat: named(m, lambda a: m.lax.all_to_all(a, "i", s, c, tiled=True))(cube))
    agree(lambda m: named(m, lambda a: m.lax.all_to_all(a, "i", 1, 0, tiled=True))(cube))


def test_the_transpose_of_all_to_all_is_its_inverse() -> None:
    cube = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    for split, concat in ((0, 1), (1, 0), (0, 0)):
        f = lambda a, s=split, c=concat: fuser.lax.all_to_all(a, "i", s, c)
        out, pull = fuser.vjp(named(fuser, f), cube)
        np.testing.assert_array_equal(pull(out)[0], cube)


def test_several_named_axes() -> None:
    two = lambda m, f: m.vmap(m.vmap(f, axis_name="i"), axis_name="j")
    agree(lambda m: two(m, lambda a: m.lax.psum(a, ("i", "j")))(S))
    agree(lambda m: two(m, lambda a: m.lax.axis_index(("j", "i")))(S))
    agree(lambda m: two(m, lambda a: m.lax.psum(a, "j") + m.lax.pmax(a, "i"))(S))


def test_collectives_inside_control_flow() -> None:
    def scanned(m: Any) -> Any:
        step = lambda c, x: (c + m.lax.psum(x, "i"), m.lax.axis_index("i") + x)
        return named(m, lambda a: m.lax.scan(step, m.numpy.float32(0), a))(S)

    agree(scanned)
    agree(lambda m: named(m, lambda a: m.lax.fori_loop(0, 3, lambda k, c: c + m.lax.psum(a, "i"), a))(S))
    agree(lambda m: named(m, lambda a: m.lax.cond(True, lambda: m.lax.psum(a, "i"), lambda: a))(S))


def test_pmax_has_a_derivative() -> None:
    lanes = np.array([1.0, 3.0, 3.0], np.float32)
    f = lambda a: fuser.lax.pmax(a, "i")
    tangent = named(fuser, lambda a, t: fuser.jvp(f, (a,), (t,))[1])(lanes, np.array([1.0, 2.0, 4.0], np.float32))
    np.testing.assert_allclose(tangent, [3.0, 3.0, 3.0])


def test_bad_collectives() -> None:
    assert "no axis is named 'i' here" in both_raise(lambda m: m.lax.psum(1.0, "i"), NameError)
    assert "the axes in scope are 'i'" in both_raise(lambda m: named(m, lambda a: m.lax.psum(a, "j"))(S), NameError)
    with pytest.raises(ValueError, match="distinct destinations below 3"):
        named(fuser, lambda a: fuser.lax.ppermute(a, "i", [(0, 1), (2, 1)]))(S)
    with pytest.raises(ValueError, match="needs an extent of 3 along split_axis 0"):
        named(fuser, lambda a: fuser.lax.all_to_all(a, "i", 0, 0))(S[:, :2])


VECTORIZED = {
    "scalars": (None, lambda m, x, y: x * y, ((4, 1), (3,))),
    "dot": ("(n),(n)->()", lambda m, x, y: x @ y, ((4, 3), (5, 1, 3))),
    "two results": ("(n),(n)->(),(n)", lambda m, x, y: (x @ y, x), ((4, 3), (5, 1, 3))),
    "matvec": ("(m,n),(n)->(m)", lambda m, x, y: x @ y, ((2, 3), (7, 3))),
    "new dimension": ("(n),()->(k)", lambda m, x, y: m.numpy.zeros(4) + y, ((2, 3), (2,))),
    "no mapped dimension": ("(n),(n)->()", lambda m, x, y: x @ y, ((3,), (3,))),
}


@pytest.mark.parametrize("name", VECTORIZED)
def test_vectorize(name: str) -> None:
    signature, function, shapes = VECTORIZED[name]
    rng = np.random.default_rng(0)
    arrays = [rng.random(s).astype(np.float32) for s in shapes]
    agree(lambda m: m.numpy.vectorize(lambda x, y: function(m, x, y), signature=signature)(*arrays))


def test_vectorize_exclusions_and_errors() -> None:
    agree(lambda m: m.numpy.vectorize(lambda x, n: x**n, excluded={1})(Y, 3))
    agree(lambda m: m.numpy.vectorize(lambda x, n=2: x**n, excluded={"n"})(Y, n=3))
    v = lambda m, f, s: m.numpy.vectorize(f, signature=s)
    assert "core dimension n has extents" in both_raise(
        lambda m: v(m, lambda x, y: x @ y, "(n),(n)->()")(X[0], X[0, :, :2]), ValueError
    )
    both_raise(lambda m: v(m, lambda x, y: x @ y, "(n),(n)->(n)")(X[0], X[0]), ValueError)
    both_raise(lambda m: v(m, lambda x: x, "(n),(n)")(X), ValueError)
    both_raise(lambda m: v(m, lambda x: x, "(n)->(n),(n)")(X), TypeError)
    both_raise(lambda m: v(m, lambda x: x, "(n)->(n)")(X, X), TypeError)
    both_raise(lambda m: v(m, lambda x: x, "(n)->(n)")(1.0), ValueError)
    both_raise(lambda m: m.numpy.vectorize(lambda x: x, excluded={1.5})(X), TypeError)
    both_raise(lambda m: m.numpy.vectorize(lambda x: x, excluded={-1})(X), ValueError)


def test_arguments_that_are_no_arrays():
    """With None in in_axes, functions, strings and other objects go to the function as they are."""

    def program(m: Any) -> Any:
        x = m.numpy.arange(6.0).reshape(2, 3)
        apply = m.vmap(lambda f, x: f(x).sum(), in_axes=(None, 0))
        nested = m.vmap(lambda o, x: o["f"](x) if o["kind"] == "a" else x, in_axes=({"f": None, "kind": None}, 0))
        return (
            apply(m.numpy.sin, x),
            nested({"f": m.numpy.cos, "kind": "a"}, x),
            m.jit(lambda x: apply(m.numpy.exp, x))(x),
        )

    agree(program)
    both_raise(lambda m: m.vmap(lambda f, x: f(x))(m.numpy.sin, m.numpy.ones(3)), TypeError, ValueError)


def test_unmapped_numbers_reach_the_function_as_they_are() -> None:
    """They may be static arguments of a jitted function, sizes, or what `if` asks."""
    seen = []
    for lib in (fuser, jax):
        function = lib.jit(lambda x, n, lib=lib: lib.numpy.zeros(n) + x, static_argnums=1)
        whole = lib.vmap(lambda x, n, f=function: (seen.append(type(n)), f(x, n))[1], in_axes=(0, None))
        assert whole(np.arange(2.0), 3).shape == (2, 3)
    assert seen == [int, int]


def test_results_without_lanes_as_sums_over_them() -> None:
    f = lambda m: lambda x: (x * 2, x.sum(), x)
    agree(lambda m: m.vmap(f(m), out_axes=(0, None, None), sum_match=True)(X))
    agree(lambda m: m.vmap(m.vmap(f(m), out_axes=(None, None, 1), sum_match=True), in_axes=1)(X))
    agree(lambda m: m.grad(lambda x: m.vmap(lambda v: v**2, out_axes=None, sum_match=True)(x)[0].sum())(X))
    with pytest.raises(ValueError, match="vmap has mapped output but out_axes is None"):
        fuser.vmap(f(fuser), out_axes=(0, None, None))(X)
