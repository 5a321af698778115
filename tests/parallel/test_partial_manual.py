"""shard_maps that name some axes of a mesh: along the others their graphs are divided. Values against JAX's, and who computes what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from parallel_agreement import agree, mesh_of

import fuser
from fuser.errors import UnsupportedError

X = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)
AXES = {"data": 2, "model": 2, "z": 2}


def put(lib: Any, mesh: Any, value: Any, *spec: Any) -> Any:
    return lib.device_put(value, lib.NamedSharding(mesh, lib.P(*spec)))


def over_data(lib: Any, mesh: Any, f: Any, in_specs: Any, out_specs: Any) -> Any:
    return lib.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names={"data"})


def mlp(lib: Any, mesh: Any) -> Any:
    """A loss by hand along data, Megatron's way along model by the layouts of the weights."""

    def loss(w: Any, v: Any, x: Any) -> Any:
        return lib.lax.pmean(((lib.numpy.tanh(x @ w) @ v) ** 2).mean(), "data")

    P = lib.P
    return over_data(lib, mesh, loss, (P(), P(), P("data")), P())


def weights(lib: Any, mesh: Any) -> Any:
    return put(lib, mesh, W, None, "model"), put(lib, mesh, W.T.copy(), "model"), put(lib, mesh, X, "data")


def _gradients(lib: Any, mesh: Any) -> Any:
    return lib.jit(lib.value_and_grad(mlp(lib, mesh), (0, 1, 2)))(*weights(lib, mesh))


def _scan(lib: Any, mesh: Any) -> Any:
    def f(w: Any, x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            c = lib.numpy.sin(c @ w[:, :8])
            return c, c.sum()

        c, sums = lib.lax.scan(body, x, None, length=3)
        return c, lib.lax.psum(sums, "data")

    P = lib.P
    f = over_data(lib, mesh, f, (P(), P("data")), (P("data"), P()))
    return lib.jit(f)(put(lib, mesh, W, "z", "model"), put(lib, mesh, X, "data", "model"))


def _collectives(lib: Any, mesh: Any) -> Any:
    lax = lib.lax

    def f(x: Any, w: Any) -> Any:
        gathered = lax.all_gather(x, "data", axis=1, tiled=True)
        exchanged = lax.all_to_all(w, "data", 1, 0, tiled=True)
        moved = lax.ppermute(x, "data", [(0, 1), (1, 0)])
        first = lax.axis_index("data") == 0
        return gathered.sum(0)[None], exchanged * 2, lax.pmax(moved, "data"), lib.numpy.where(first, moved, moved * 3)

    P = lib.P
    f = over_data(lib, mesh, f, (P("data"), P("data")), (P("data"), P("data"), P(), P("data")))
    return lib.jit(f)(put(lib, mesh, X, "z", "model"), put(lib, mesh, W, ("data", "z"), "model"))


def _within_another(lib: Any, mesh: Any) -> Any:
    P, np_ = lib.P, lib.numpy

    def f(x: Any) -> Any:
        inner = lambda b: lib.lax.psum(np_.cos(b), "model")
        y = lib.shard_map(inner, in_specs=P(None, "model"), out_specs=P(), axis_names={"model"})(x * 2)
        return lib.lax.psum(y @ np_.ones((4, 8), np.float32), "data")

    return lib.jit(over_data(lib, mesh, f, P("data"), P()))(put(lib, mesh, X, "data", "z"))


def _twice(lib: Any, mesh: Any) -> Any:
    """One function with operands that lie otherwise each time."""
    s = over_data(lib, mesh, lambda x: lib.lax.psum(lib.numpy.exp(x / 9), "data"), lib.P("data"), lib.P())
    return lib.jit(lambda x, y: s(x) + s(y) * 2)(
        put(lib, mesh, X, None, "model"), put(lib, mesh, X, ("data", "model"), "z")
    )


def _loops_that_differ(lib: Any, mesh: Any) -> Any:
    """Sums over model within a loop that ends later along data."""
    lax, np_ = lib.lax, lib.numpy

    def f(x: Any) -> Any:
        last = 2 + lax.axis_index("data")
        more = lambda c: c[0] < last
        start = lax.pcast(0, "data", to="varying")
        y = lax.while_loop(more, lambda c: (c[0] + 1, np_.sin(c[1]) @ np_.ones((8, 8), np.float32) / 8), (start, x))[1]
        return lax.cond(last == 2, lambda v: v.sum(1, keepdims=True) * v, lambda v: v, y)

    f = over_data(lib, mesh, f, lib.P("data"), lib.P("data"))
    return lib.jit(f)(put(lib, mesh, X, "data", ("model", "z")))


def _mapped_and_in_a_loop(lib: Any, mesh: Any) -> Any:
    P = lib.P
    s = over_data(
        lib,
        mesh,
        lambda x, w: lib.lax.psum(lib.numpy.tanh(x @ w), "data"),
        (P(None, "data"), P("data")),
        P(),
    )
    x, w = put(lib, mesh, X, "z"), put(lib, mesh, W[:, :8], None, "model")
    stack = put(lib, mesh, np.stack([X, X + 1]), "z")
    looped = lib.jit(lambda x, w: lib.lax.scan(lambda c, _: (s(c, w), c.sum()), x, None, length=3))
    return lib.jit(lib.vmap(s, (0, None)))(stack, w), looped(x, w)


def _random_bits(lib: Any, mesh: Any) -> Any:
    def f(x: Any, key: Any) -> Any:
        return x * lib.random.normal(lib.random.fold_in(key, lib.lax.axis_index("data")), x.shape)

    P = lib.P
    return lib.jit(over_data(lib, mesh, f, (P("data"), P()), P("data")))(
        put(lib, mesh, X, "data", "model"), lib.random.key(0)
    )


def _outside_of_jit(lib: Any, mesh: Any) -> Any:
    P = lib.P
    s = over_data(lib, mesh, lambda x, w: lib.lax.psum(x @ w, "data"), (P(None, "data"), P("data")), P())
    return s(put(lib, mesh, X, "z"), put(lib, mesh, W, None, "model")), s(X, W)


PROGRAMS = (
    _gradients, _scan, _collectives, _within_another, _twice, _loops_that_differ, _mapped_and_in_a_loop, _random_bits,
    _outside_of_jit,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__.strip("_"))
def test_values_are_those_of_jax(program: Any) -> None:
    agree(program, **AXES)


def dots(lowered: Any) -> list[tuple[int, ...]]:
    return [v.aval.shape for e in lowered.graph.eqns if e.primitive.name == "dot_general" for v in e.invars]


def test_each_device_computes_its_part_along_free_axes() -> None:
    mesh = mesh_of(fuser, data=2, model=4)
    lowered = fuser.jit(mlp(fuser, mesh)).lower(*weights(fuser, mesh))
    assert dots(lowered) == [(4, 8), (8, 4), (4, 4), (4, 8)]  # rows over data, hidden features over model
    assert not any(e.primitive.name == "all_gather" for e in lowered.graph.eqns)
    assert "psum over model" in lowered.spread.explain()


def test_results_lie_along_free_axes_too() -> None:
    mesh, P = mesh_of(fuser, **AXES), fuser.P
    s = over_data(fuser, mesh, lambda x, w: fuser.lax.psum(x @ w, "data"), (P(None, "data"), P("data")), P())
    x, w = put(fuser, mesh, X, "z"), put(fuser, mesh, W, None, "model")
    assert fuser.jit(s)(x, w).sharding.spec == s(x, w).sharding.spec == P("z", "model")


def test_constraints_within() -> None:
    mesh, P = mesh_of(fuser, **AXES), fuser.P

    def f(w: Any, x: Any) -> Any:
        hidden = fuser.lax.with_sharding_constraint(x @ w, fuser.NamedSharding(mesh, P(None, ("model", "z"))))
        uneven = fuser.lax.with_sharding_constraint(hidden[:, :6], fuser.NamedSharding(mesh, P(None, ("model", "z"))))
        return hidden, fuser.lax.psum(uneven.sum(1), "data")

    s = fuser.jit(over_data(fuser, mesh, f, (P(), P("data")), (P("data"), P())))
    hidden, sums = s(W, put(fuser, mesh, X, "data"))
    assert hidden.sharding.spec == P("data", ("model", "z"))
    np.testing.assert_allclose(hidden, X @ W, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums, (X @ W)[:, :6].sum(1).reshape(2, 4).sum(0), rtol=1e-5, atol=1e-5)


def test_effects_happen_on_each_device() -> None:
    mesh, P = mesh_of(fuser, data=2, model=2), fuser.P
    seen: list[float] = []

    def f(x: Any) -> Any:
        fuser.debug.callback(lambda v: seen.append(float(v)), x.sum())
        return x * 2

    np.testing.assert_allclose(fuser.jit(over_data(fuser, mesh, f, P("data"), P("data")))(X), X * 2)
    fuser.effects_barrier()
    assert sorted({round(v, 4) for v in seen}) == sorted(round(float(v), 4) for v in X.reshape(2, 4, 8).sum((1, 2)))


def test_a_shard_map_over_other_axes_of_the_same_devices() -> None:
    """A ring of eight within a program over 4 x 2: its collectives go over both axes, in loops and branches too."""

    def program(lib: Any, mesh: Any) -> Any:
        P, lax, np_ = lib.P, lib.lax, lib.numpy
        ring = mesh_of(lib, ring=8)

        def one(a: Any) -> Any:
            place = lax.axis_index("ring")
            turned = lax.ppermute(a, "ring", [(n, (n + 1) % 8) for n in range(8)])
            gathered = lax.all_gather(a, "ring", axis=0, tiled=True)
            part = lax.psum_scatter(gathered, "ring", scatter_dimension=0, tiled=True)
            carried, _ = lax.scan(lambda c, _: (np_.sin(c) + lax.psum(c, "ring"), None), a, None, length=2)
            branch = lax.cond(place > 3, lambda v: v + 1, lambda v: v * 2, a)
            return a * place + turned + part + carried + branch, lax.pmean(a, "ring")

        f = lib.shard_map(one, mesh=ring, in_specs=P("ring"), out_specs=(P("ring"), P()), check_vma=False)
        run = lambda v: [np_.tanh(o) for o in f(np_.sin(v))]
        x = put(lib, mesh, X, "x", "y")
        summed = lambda v: sum((o**2).sum() for o in run(v)[:1])
        return lib.jit(run)(x), lib.jit(lib.grad(summed))(x), lib.jit(run)(put(lib, ring, X, "ring"))

    agree(program, 1e-4, x=4, y=2)


def test_a_shard_map_over_axes_that_no_mesh_has_is_refused() -> None:
    other = mesh_of(fuser, a=2, b=4)
    f = fuser.shard_map(lambda v: fuser.lax.psum(v, "a"), mesh=other, in_specs=fuser.P("a"), out_specs=fuser.P())
    with pytest.raises(UnsupportedError, match="not neighbouring axes of the other"):
        fuser.jit(f)(put(fuser, mesh_of(fuser, x=4, y=2), X, "x", "y"))
