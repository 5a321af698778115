"""Explicit axes: what types say of layouts, and what follows from it, as in JAX."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fuser
from fuser.errors import ShardingTypeError

X = np.arange(32, dtype=np.float32).reshape(8, 4) / 7
W = np.cos(np.arange(32, dtype=np.float32)).reshape(4, 8)


def within(lib: types.ModuleType, program: Callable[[Any, Any, Callable[..., Any]], Any]) -> Any:
    """`program(library, its NumPy, lay)` over a mesh of 2 × 2 devices with Explicit axes; `lay(array, *spec)` lays out."""
    explicit = lib.sharding.AxisType.Explicit
    mesh = lib.make_mesh((2, 2), ("x", "y"), axis_types=(explicit, explicit))
    with lib.set_mesh(mesh):
        lay = lambda array, *spec, **sets: lib.device_put(array, lib.P(*spec, **sets))
        return program(lib, lib.numpy, lay)


def shown(lib: types.ModuleType, value: Any) -> tuple[str, np.ndarray]:
    """How an array lies, and its values once sums are complete."""
    whole = lib.reshard(value, lib.P(*[None] * value.ndim))
    return str(value.sharding.spec), np.asarray(whole)


def agree(program: Callable[..., Any]) -> None:
    """The same layouts and values in fuser as in JAX, for every leaf of the results."""
    results = []
    for lib in (fuser, jax):
        flat = lambda *a, lib=lib: [shown(lib, leaf) for leaf in jax.tree.leaves(program(*a))]
        results.append(within(lib, flat))
    for (own, value), (theirs, wanted) in zip(*results, strict=True):
        assert own == theirs
        np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=2e-5)


def elementwise(lib: Any, fnp: Any, lay: Any) -> Any:
    x, y = lay(X, "x", None), lay(X, None, "y")
    return lib.jit(
        lambda a, b: (fnp.sin(a) * 2, a * a, a.T, a.sum(0), a.sum(1), fnp.where(a > 1, a, 0), a[:, None] + 1)
    )(x, y)


def products(lib: Any, fnp: Any, lay: Any) -> Any:
    dot = lambda a, b, **options: fnp.einsum("ij,jk->ik", a, b, **options)
    first = lib.jit(dot)(lay(X, "x", None), lay(W, None, "y"))
    whole = lib.jit(lambda a, b: dot(a, b, out_sharding=lib.P("x")))(lay(X, "x", "y"), lay(W, "y", None))
    return first, whole, lib.jit(dot)(lay(X, "x", None), lay(W, "x", None))


def reshapes(lib: Any, fnp: Any, lay: Any) -> Any:
    a, b = lay(X, "x", None), lay(X.reshape(-1), ("x", "y"))
    split = lib.jit(lambda v: (v.reshape(2, 2, 8), v.reshape(8, 4), v.reshape(4, 8)))(b)
    return lib.jit(lambda v: (v.reshape(2, 4, 4), v.reshape(32), v.reshape(1, 8, 4)))(a), split


def slopes(lib: Any, fnp: Any, lay: Any) -> Any:
    def loss(w, v, x):
        hidden = fnp.tanh(fnp.dot(x, w, out_sharding=lib.P("x", "y")))
        return (fnp.dot(hidden, v, out_sharding=lib.P("x")) ** 2).sum()

    arguments = lay(W, None, "y"), lay(W.T, "y", None), lay(X, "x", None)
    return lib.jit(lib.value_and_grad(loss, (0, 1)))(*arguments), lib.grad(loss, (0, 1))(*arguments)


def sums_left_open(lib: Any, fnp: Any, lay: Any) -> Any:
    x, w = lay(X, "x", "y"), lay(W, "y", None)
    parts = lib.jit(lambda a, b: fnp.einsum("ij,jk->ik", a, b, out_sharding=lib.P("x", unreduced={"y"})))(x, w)
    added = lib.jit(lambda a: a + a)(parts)
    return parts, added, lib.reshard(parts, lib.P("x", "y")), lib.reshard(lay(X, "x", None), lib.P(unreduced={"x"}))


def reduced_weights(lib: Any, fnp: Any, lay: Any) -> Any:
    w = lay(W, reduced={"x"})
    loss = lambda w, x: fnp.sin(x @ w).sum()
    return lib.jit(lib.grad(loss))(w, lay(X, "x", None))


def mapped(lib: Any, fnp: Any, lay: Any) -> Any:
    a, b = lay(X.reshape(2, 4, 4), "x", None, "y"), lay(W.reshape(2, 4, 4), "x", "y", None)
    product = lib.vmap(lambda p, q: fnp.einsum("ij,jk->ik", p, q, out_sharding=lib.P(None, "y")))
    return lib.jit(product)(a, b), lib.vmap(lambda r: fnp.zeros(3), out_axes=-1)(lay(X, "x"))


def loops(lib: Any, fnp: Any, lay: Any) -> Any:
    def step(carry, row):
        return fnp.sin(carry) * row, carry.sum()

    return lib.jit(lambda c, rows: lib.lax.scan(step, c, rows))(lay(X[0], "y"), lay(X, None, "y"))


def automatic(lib: Any, fnp: Any, lay: Any) -> Any:
    partly = lib.sharding.auto_axes(lambda a: fnp.sin(a) @ a.T, axes="x", out_sharding=lib.P("x", None))
    wholly = lib.sharding.auto_axes(lambda a, b: a @ b)
    x = lay(X, "x", None)
    return lib.jit(partly)(x), wholly(x, lay(W, "x", None), out_sharding=lib.P("y"))


@pytest.mark.parametrize(
    "program",
    [elementwise, products, reshapes, slopes, sums_left_open, reduced_weights, mapped, loops, automatic],
    ids=lambda p: p.__name__,
)
def test_layouts_are_those_of_jax(program: Callable[..., Any]) -> None:
    agree(program)


REFUSED = {
    "Contracting dimensions are sharded": lambda lib, fnp, lay: lay(X, "x", "y") @ lay(W, "y", None),
    "produces an illegally sharded result": lambda lib, fnp, lay: lay(X, "x") @ lay(W, None, "x"),
    "mul got incompatible shardings for broadcasting": lambda lib, fnp, lay: lay(X, "x") * lay(X, "y"),
    "Input should be unsharded over the axis being reduced": lambda lib, fnp, lay: fnp.cumsum(lay(X, "x"), axis=0),
    "RHS should be reduced along the same axes": lambda lib, fnp, lay: lay(X, unreduced={"x"}) * 2,
    "unreduced rule for sin is not implemented": lambda lib, fnp, lay: fnp.sin(lay(X, unreduced={"x"})),
    "Mapped away dimension of inputs": lambda lib, fnp, lay: lib.vmap(lambda a, b: a)(lay(X, "x"), lay(X)),
    "0th dimension of all xs should be replicated": lambda lib, fnp, lay: lib.lax.scan(
        lambda c, r: (c, r), 0.0, lay(X, "x")
    ),
    "acts as an assert": lambda lib, fnp, lay: lib.lax.with_sharding_constraint(lay(X, "x"), lib.P("y")),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_follow_is_refused_in_the_words_of_jax(words: str) -> None:
    for lib in (fuser, jax):
        with pytest.raises(Exception, match=words):
            within(lib, lambda *a, lib=lib: lib.jit(lambda: REFUSED[words](*a))())


def test_terms_lie_on_their_devices() -> None:
    """Along an unreduced axis each device has its own term: of a product its part of the sum, of a whole the first has it."""

    def program(lib: Any, fnp: Any, lay: Any) -> Any:
        x, w = lay(X, None, "x"), lay(W, "x", None)
        product = lib.jit(lambda a, b: fnp.dot(a, b, out_sharding=lib.P(unreduced={"x"})))(x, w)
        whole = lib.jit(lambda a: lib.reshard(a, lib.P(unreduced={"x"})))(lay(X))
        return [np.asarray(s.data) for a in (product, whole) for s in a.addressable_shards]

    for own, theirs in zip(within(fuser, program), within(jax, program), strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="unreduced over 'x'"):
        within(fuser, lambda lib, fnp, lay: np.asarray(lay(X, unreduced={"x"})))


def test_a_sum_is_completed_once() -> None:
    """Terms are added where they lie; the sum over the devices is one exchange, of each device's part where the result is split."""

    def program(lib: Any, fnp: Any, lay: Any) -> Any:
        def f(a, b):
            terms = fnp.dot(a, b, out_sharding=lib.P(unreduced={"x"}))
            return lib.reshard(terms + terms, lib.P("x"))

        return lib.jit(f).lower(lay(X, None, "x"), lay(W, "x", None)).spread.collectives

    assert [c.name for c in within(fuser, program)] == ["psum_scatter"]


def test_types_and_errors_are_fuser_s() -> None:
    def program(lib: Any, fnp: Any, lay: Any) -> Any:
        aval = lib.typeof(lay(X, "x"))
        assert (aval.sharding.spec, aval.sharding.mesh) == (lib.P("x", None), lib.sharding.get_abstract_mesh())
        assert fuser.typeof(fnp.ones(3)).sharding.spec == lib.P(None)
        with pytest.raises(ShardingTypeError, match=r"test_explicit.py:\d+"):
            lay(X, "x") + lay(X, "y")

    within(fuser, program)


def sums_through_shard_map(lib: Any, fnp: Any, lay: Any) -> Any:
    """Terms that a shard_map completes, and weights whose gradients it leaves open, each with its derivative."""
    P, lax = lib.P, lib.lax

    def loss(x, w):
        terms = fnp.einsum("ab,bc->ac", x, w, out_sharding=P(unreduced={"x"}))
        total = lib.shard_map(lambda t: lax.psum(t, "x"), in_specs=P(unreduced={"x"}), out_specs=P())(terms)
        parts = lib.shard_map(
            lambda t: lax.psum_scatter(t, "x", tiled=True), in_specs=P(unreduced={"x"}), out_specs=P("x", None)
        )(terms)
        return (fnp.sin(total) + fnp.cos(parts)).sum()

    def gathered(w):
        whole = lib.shard_map(
            lambda a: lax.all_gather(a, "x", tiled=True, to="reduced"), in_specs=P("x"), out_specs=P(reduced={"x"})
        )(w)
        return (fnp.dot(lay(X, "x", None), whole) ** 2).sum()

    x, w = lay(X, None, "x"), lay(W, "x", None)
    open_sum = lib.shard_map(
        lambda a, b: lax.pcast(a @ b, "x", to="unreduced"),
        in_specs=(P(None, "x"), P("x")),
        out_specs=P(unreduced={"x"}),
    )
    kept = lib.jit(lib.grad(lambda v: lib.shard_map(lambda a: a * a, out_specs=P(reduced={"x"}))(v).sum()))
    return (
        lib.jit(lib.value_and_grad(loss, (0, 1)))(x, w),
        lib.jit(lib.grad(gathered))(w),
        open_sum(x, w),
        kept(lay(X, reduced={"x"})),
    )


def axes_that_are_left(lib: Any, fnp: Any, lay: Any) -> Any:
    """A shard_map over one axis; along the other types go on."""
    P = lib.P

    def one(a):
        assert a.aval.sharding.spec == P(None, "y")
        return lib.reshard(fnp.sin(a), P("y", None))

    outer = lib.jit(lib.shard_map(one, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}))
    cosine = lib.shard_map(fnp.cos, in_specs=P("y"), out_specs=P("y"), axis_names={"y"})
    each = lib.jit(lib.vmap(lib.grad(lambda row: cosine(lib.reshard(row, P("y"))).sum())))
    return outer(lay(X, "x", "y")), each(lay(X, "x", None))


def segments(lib: Any, fnp: Any, lay: Any) -> Any:
    ids = lay(np.array([0, 0, 1, 3, 1, 2, 2, 3]), "x")
    sums = lib.jit(lambda v, i, s: lib.ops.segment_sum(v, i, num_segments=4, out_sharding=s), static_argnums=2)
    most = lib.jit(lambda v, i: lib.ops.segment_max(v, i, num_segments=4, out_sharding=lib.P()))
    rows, places = lay(X[:, 0], "x"), lay(np.array([3, 1, 0, 2]), "x")
    picked = lib.jit(lambda v, i: v.at[i].get(out_sharding=lib.P("x")))(lay(X, None, None), places)
    added = lib.jit(lambda v, i, u: v.at[i].add(u, out_sharding=lib.P()))(lay(X[:4, 0]), ids, rows)
    return sums(rows, ids, lib.P()), sums(rows, ids, lib.P(unreduced={"x"})), most(rows, ids), picked, added


def other_axes(lib: Any, fnp: Any, lay: Any) -> Any:
    four = lib.sharding.get_abstract_mesh().update(axis_sizes=(4, 1), axis_names=("a", "b"))

    @lib.jit
    def f(x):
        x = fnp.sin(x)
        with lib.sharding.use_abstract_mesh(four):
            out = lib.reshard(x, lib.P(("a", "b"), None)) * 2
        return lib.reshard(out, lib.P("y", None))

    return f(lay(X, "x", "y")), lib.jit(lib.grad(lambda x: f(x).sum()))(lay(X, "x", "y"))


@pytest.mark.parametrize("program", [sums_through_shard_map, axes_that_are_left, segments, other_axes])
def test_types_go_on_within_and_beside_a_shard_map(program: Callable[..., Any]) -> None:
    agree(program)


def test_what_is_unreduced_is_said() -> None:
    def program(lib: Any, fnp: Any, lay: Any) -> Any:
        dot = lib.jit(lambda a, b: fnp.einsum("ab,bc->ac", a, b, out_sharding=lib.P(unreduced={"x"})))
        terms = dot(lay(X, None, "x"), lay(W, "x", None))
        with pytest.raises(ValueError, match="does not match the specs of the input"):
            lib.shard_map(lambda a: a, in_specs=lib.P(), out_specs=lib.P())(terms)
        with pytest.raises(ValueError, match="out_specs"):
            lib.shard_map(lambda a: a, out_specs=lib.P())(terms)
        with pytest.raises(NotImplementedError, match="unreduced rule for sin"):
            lib.shard_map(fnp.sin, out_specs=lib.P())(terms)

    within(fuser, program)
    within(jax, program)


def test_one_hot_lies_as_it_is_told() -> None:
    with fuser.set_mesh(fuser.make_mesh((4, 2), ("x", "y"))):
        places = fuser.device_put(np.arange(8), fuser.P("x"))
        found = fuser.jit(lambda v: fuser.nn.one_hot(v, 4, out_sharding=fuser.P("x", "y")))(places)
    assert found.sharding.spec == fuser.P("x", "y")
    np.testing.assert_array_equal(found, np.eye(8, 4))


def test_sums_in_terms_are_divided_and_scattered() -> None:
    """Terms over what all devices have, and terms added to terms at indices: both are linear."""

    def program(lib: Any, fnp: Any, lay: Any) -> Any:
        sums = lambda value: lay(value, None, None, unreduced={"x"})
        added = lib.jit(lambda a, b: a.at[np.array([1, 3, 1])].add(b))(sums(X), sums(X[:3] * 2))
        quotient = lib.jit(lambda a, n: a / n)(sums(X), lay(X * 0 + 3, None, None, reduced={"x"}))
        assert added.sharding.spec.unreduced == quotient.sharding.spec.unreduced == {"x"}
        return [np.asarray(lib.reshard(v, lib.P(None, None))) for v in (added, quotient)]

    added, quotient = within(fuser, program)
    wanted = X.copy()
    np.add.at(wanted, [1, 3, 1], X[:3] * 2)
    np.testing.assert_allclose(added, wanted, rtol=1e-6)
    np.testing.assert_allclose(quotient, X / 3, rtol=1e-6)
    with pytest.raises(fuser.errors.UnsupportedError, match="unreduced rule for sin"):
        within(fuser, lambda lib, fnp, lay: fnp.sin(lay(X, None, None, unreduced={"x"})))
