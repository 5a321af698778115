"""shard_map against JAX: specs, transforms around and within, control flow, closures; and its errors."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from parallel_agreement import agree, mesh_of

import fuser
import fuser.numpy as fnp
from fuser.parallel.sharding import NamedSharding

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)


def mlp(lib: Any, mesh: Any) -> Any:
    """A loss over rows split along x, with a product whose contracted dimension is split along y."""
    P, lax, np_ = lib.P, lib.lax, lib.numpy

    def loss(params: Any, batch: Any) -> Any:
        hidden = np_.tanh(lax.psum(batch["x"] @ params["w"], "y") + params["b"])
        return lax.pmean((hidden**2).sum(), "x")

    specs = ({"w": P("y"), "b": P()}, {"x": P("x", "y")})
    return lib.shard_map(loss, mesh=mesh, in_specs=specs, out_specs=P())


PARAMS: Any = {"w": W, "b": W[0]}


def test_trees_of_specs_and_gradients_outside() -> None:
    def program(lib: Any, mesh: Any) -> Any:
        f = mlp(lib, mesh)
        return lib.jit(
            lambda p, x: [lib.value_and_grad(f)(p, {"x": x}), lib.jvp(lambda q: f(q, {"x": x}), (p,), (p,))]
        )(PARAMS, X)

    found = agree(program)
    mesh = mesh_of(fuser, x=4, y=2)
    value, slopes = fuser.value_and_grad(mlp(fuser, mesh))(PARAMS, {"x": X})  # outside of jit
    np.testing.assert_allclose(value, found[0][0], rtol=1e-6)
    np.testing.assert_allclose(slopes["w"], found[0][1]["w"], rtol=1e-5)


def test_results_lie_as_out_specs_say() -> None:
    mesh, P = mesh_of(fuser, x=4, y=2), fuser.P
    f = fuser.shard_map(
        lambda a, b: (a + b, a.sum(keepdims=True)),
        mesh=mesh,
        in_specs=(P("x", "y"), P()),
        out_specs=(P("x", "y"), P(("x", "y"))),
    )
    whole, sums = f(X, np.float32(1))
    assert whole.sharding == NamedSharding(mesh, P("x", "y")) and sums.sharding == NamedSharding(mesh, P(("x", "y")))
    assert sums.shape == (8, 2 - 1)
    again = f(whole, sums[0, 0])[0]  # parts that lie right already
    np.testing.assert_allclose(again, X + 1 + (X + 1)[:2, :2].sum() * 0 + np.asarray(sums)[0, 0], rtol=1e-6)


def test_loops_and_branches_whose_values_come_to_differ() -> None:
    def program(lib: Any, mesh: Any) -> Any:
        P, lax, np_ = lib.P, lib.lax, lib.numpy

        def one(w: Any, a: Any) -> Any:
            vary = lambda v: lax.pcast(v, ("x", "y"), to="varying")
            carry, ys = lax.scan(lambda c, row: (np_.sin(c * w[0, 0] + row), lax.psum(c, "x")), vary(w[0, :2]), a)
            turned = lax.fori_loop(
                0, 3, lambda i, c: lax.ppermute(c, "x", [(k, (k + 1) % 4) for k in range(4)]) * w[1, :2], carry
            )
            chosen = lax.cond(w[0, 0] > 0, lambda v: v * a[0], lambda v: vary(w[2, :2]) + v, turned)
            return (chosen.sum() + (ys * w[:2, :2]).sum()).reshape(1)

        f = lib.shard_map(one, mesh=mesh, in_specs=(P(), P("x", "y")), out_specs=P(("x", "y")))
        return lib.jit(lambda w, a: [f(w, a), lib.grad(lambda *args: (f(*args) ** 2).sum(), (0, 1))(w, a)])(W, X)

    agree(program)


def test_carries_and_branches_need_no_cast_here() -> None:
    """JAX asks for a cast; the derivative is that of the function without devices all the same."""
    mesh, P, lax = mesh_of(fuser, x=4), fuser.P, fuser.lax

    def one(w: Any, a: Any) -> Any:
        carry, _ = lax.scan(lambda c, row: (fnp.sin(c * w + row), None), w, a)
        chosen = lax.cond(lax.axis_index("x") % 2 == 0, lambda: w, lambda: carry)
        return lax.psum((chosen * a).sum(), "x")

    def plain(w: Any, a: Any) -> Any:
        result = 0.0
        for n, rows in enumerate(a.reshape(4, 2, 4)):
            carry = w
            for row in rows:
                carry = fnp.sin(carry * w + row)
            result += ((w if n % 2 == 0 else carry) * rows).sum()
        return result

    f = fuser.shard_map(one, mesh=mesh, in_specs=(P(), P("x")), out_specs=P())
    found, wanted = (fuser.value_and_grad(g, (0, 1))(W[0], X) for g in (f, plain))
    for a, b in zip(fuser.tree.leaves(found), fuser.tree.leaves(wanted)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_vmap_around_and_within() -> None:
    def program(lib: Any, mesh: Any) -> Any:
        P, lax = lib.P, lib.lax
        f = lib.shard_map(lambda a, b: lax.psum(a * b, "x"), mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P())
        inner = lambda a: lib.vmap(lambda r: lax.psum(r, "x") + lax.axis_index("x"))(a)
        g = lib.shard_map(inner, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        return lib.vmap(f, in_axes=(1, None))(X, X[:, 0]), g(X), lib.vmap(lib.grad(lambda a: f(a, a).sum()), 1)(X)

    agree(program)


def test_axes_of_vmaps_beside_axes_of_the_mesh() -> None:
    mesh, P, lax = mesh_of(fuser, x=4), fuser.P, fuser.lax
    inner = fuser.vmap(
        lambda r: lax.psum(r, ("rows", "x")) + lax.psum(r, "rows") * lax.axis_index("x"), axis_name="rows"
    )
    found = fuser.shard_map(inner, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(X)
    rows = np.repeat(X.reshape(4, 2, 4).sum(1), 2, 0)
    np.testing.assert_allclose(found, X.sum(0) + rows * np.repeat(np.arange(4), 2)[:, None], rtol=1e-5, atol=1e-5)
    outer = fuser.shard_map(lambda r: lax.psum(lax.psum(r, "batch"), "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    found = fuser.vmap(outer, 1, axis_name="batch")(X)
    np.testing.assert_allclose(found, np.broadcast_to(X.reshape(4, 2, 4).sum((0, 2)), (4, 2)), rtol=1e-5)


def test_closed_over_values_and_other_axes() -> None:
    def program(lib: Any, mesh: Any) -> Any:
        P, lax = lib.P, lib.lax
        w = lib.numpy.asarray(W)

        def outer(v: Any, a: Any) -> Any:
            f = lib.shard_map(
                lambda b: lax.psum(b @ w, "x") * v, mesh=mesh, in_specs=P("x"), out_specs=P(), axis_names={"x"}
            )
            return f(a).sum()

        return lib.jit(lib.grad(outer, (0, 1)))(X[0], X)

    agree(program)


def test_layouts_are_inferred_and_meshes_in_scope() -> None:
    mesh, P = mesh_of(fuser, x=4, y=2), fuser.P
    x = fuser.device_put(X, NamedSharding(mesh, P("x")))
    with fuser.set_mesh(mesh):
        found = fuser.shard_map(lambda a: fuser.lax.psum(a, "x"), out_specs=P())(x)
    np.testing.assert_allclose(found, X.reshape(4, 2, 4).sum(0), rtol=1e-5)
    with pytest.raises(ValueError, match="shard_map needs a mesh of devices, and none is in scope"):
        fuser.shard_map(lambda a: a, in_specs=P(), out_specs=P())(X)


def test_compiled_once() -> None:
    mesh, P = mesh_of(fuser, x=4), fuser.P
    traces = []

    def one(a: Any) -> Any:
        traces.append(1)
        return a * 2

    f = fuser.shard_map(one, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    for _ in range(3):
        f(X)
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("function", "in_specs", "out_specs", "words"),
    [
        (lambda a: a, "x", None, r"got P\(\) in out_specs for the result of <lambda>, f32\[2,4\]\{V:x\} on each device, which differs from device to device along 'x'"),
        (lambda a: a.sum(), "x", "x", r"got P\('x',\) in out_specs for the result of <lambda>, f32\[\]\{V:x\} on each device, which has 0 dimensions"),
        (lambda a: a[:, :1], "yz", None, r"names the axis 'yz', which is not in the mesh"),
        (lambda a: a, (None, None, "x"), None, r"in in_specs for argument 0 of <lambda>, which is f32\[8,4\]: 3 entries for 2 dimensions"),
    ],
)  # fmt: skip
def test_specs_that_do_not_fit(function: Any, in_specs: Any, out_specs: Any, words: str) -> None:
    mesh, P = mesh_of(fuser, x=4, y=2), fuser.P
    spec = P(*in_specs) if isinstance(in_specs, tuple) else P(in_specs)
    with pytest.raises(ValueError, match=words):
        fuser.shard_map(function, mesh=mesh, in_specs=spec, out_specs=P(out_specs) if out_specs else P())(X)


def test_extents_that_devices_do_not_divide() -> None:
    mesh, P = mesh_of(fuser, x=4, y=2), fuser.P
    with pytest.raises(
        ValueError, match=r"dimension 0 of extent 6 is split over 'x', 4 devices, which do not divide it"
    ):
        fuser.shard_map(lambda a: a, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(X[:6])


def nested(lib: Any, mesh: Any) -> Any:
    """Rows split over x by the outer shard_map, columns over y by two inner ones, one of them in a loop."""
    P, lax, np_ = lib.P, lib.lax, lib.numpy

    def rows(w: Any, a: Any) -> Any:
        def columns(v: Any, b: Any) -> Any:
            return lax.psum(np_.sin(b @ v), "y"), b * (1 + lax.axis_index("y"))

        options = {"in_specs": (P("y"), P(None, "y")), "out_specs": (P(), P(None, "y")), "axis_names": {"y"}}
        s, t = lib.shard_map(columns, **options)(w, a)
        double = lib.shard_map(lambda b: np_.cos(b * 2), in_specs=P("y"), out_specs=P("y"), axis_names={"y"})
        u = lax.scan(lambda c, _: (double(c), None), a, None, length=3)[0]
        return lax.psum(s, "x"), t * u

    return lib.shard_map(rows, mesh=mesh, in_specs=(P(), P("x")), out_specs=(P(), P("x")), axis_names={"x"})


def unnested(w: Any, a: Any) -> Any:
    """What `nested` computes, on one device: a @ w in two halves of the columns, four rows of four results."""
    halves = [fnp.sin(a[:, 2 * n : 2 * n + 2] @ w[2 * n : 2 * n + 2]) for n in (0, 1)]
    u = a
    for _ in range(3):
        u = fnp.cos(u * 2)
    return (halves[0] + halves[1]).reshape(2, 4, 4).sum(0), a * fnp.array([1, 1, 2, 2]) * u


def test_one_within_another() -> None:
    agree(lambda lib, mesh: lib.jit(nested(lib, mesh))(W, X), x=2, y=2, z=2)
    mesh = mesh_of(fuser, x=2, y=2, z=2)
    loss = lambda f: lambda w, a: sum((o**2).sum() for o in f(w, a))
    slopes = lambda f: fuser.grad(loss(f), (0, 1))
    rows = lambda f: fuser.vmap(f, in_axes=(None, 0))
    own, wanted, stack = nested(fuser, mesh), unnested, np.stack([X, 2 * X])
    for found, expected in (
        (own(W, X), wanted(W, X)),
        (slopes(own)(W, X), slopes(wanted)(W, X)),
        (fuser.jit(lambda: (slopes(own)(W, X), rows(own)(W, stack)))(), (slopes(wanted)(W, X), rows(wanted)(W, stack))),
    ):
        for a, b in zip(fuser.tree.leaves(found), fuser.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_one_axis_at_a_time() -> None:
    def program(lib: Any, mesh: Any) -> Any:
        rows = lambda a: lib.smap(lambda b: b + lib.lax.axis_index("y"), in_axes=1, out_axes=1, axis_name="y")(a)
        with lib.set_mesh(mesh):
            first = lib.jit(lib.smap(lambda a: a * 2, in_axes=(0,), out_axes=0, axis_name="x"))(X)
            return first, lib.jit(lib.smap(rows, in_axes=0, out_axes=0, axis_name="x"))(X)

    agree(program)
    with pytest.raises(TypeError, match="smap axis_name should be a `str`"):
        fuser.smap(lambda a: a, in_axes=0, out_axes=0, axis_name=("x", "y"))


def test_within_another_axes_and_meshes_must_fit() -> None:
    mesh, P = mesh_of(fuser, x=4, y=2), fuser.P
    outer = lambda inner: fuser.shard_map(inner, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})(X)
    again = fuser.shard_map(lambda a: a, in_specs=P(), out_specs=P(), axis_names={"x", "y"})
    with pytest.raises(
        ValueError, match=r"stands within one that has divided 'x' already .*; give it axis_names without"
    ):
        outer(again)
    other = fuser.shard_map(lambda a: a, mesh=mesh_of(fuser, y=8), in_specs=P(), out_specs=P())
    with pytest.raises(ValueError, match=r"another mesh .*; name the axes of both in one mesh"):
        outer(other)


def test_auto_pcast() -> None:
    """Operands that vary along different axes: together by default, an error that says so without the setting."""
    for lib in (jax, fuser):
        mesh = lib.make_mesh((4,), ("x",), axis_types=(lib.sharding.AxisType.Auto,))
        f = lib.shard_map(lambda a, b: a * b + 2.0, mesh=mesh, in_specs=(lib.P("x"), lib.P()), out_specs=lib.P("x"))
        with lib.auto_pcast(False), pytest.raises(ValueError, match="requires varying manual axes to match"):
            lib.jit(f)(np.ones(4, np.float32), np.ones(1, np.float32))
        np.testing.assert_array_equal(np.asarray(lib.jit(f)(np.ones(4, np.float32), np.ones(1, np.float32))), 3)


def test_values_are_read_outside_of_jit() -> None:
    """By if, float and print, where all devices have the same; each call by its own values, and under jit not at all."""
    mesh = mesh_of(fuser, x=4, y=2)
    seen: list[Any] = []

    def one(a: Any) -> Any:
        total = fuser.lax.psum(a.sum(), ("x", "y"))
        seen.append((float(total), int(total), total.item(), str(a)))
        return a * 2 if total > 0 else -a

    f = fuser.shard_map(one, mesh=mesh, in_specs=fuser.P("x", "y"), out_specs=fuser.P("x", "y"))
    whole = np.arange(32, dtype=np.float32).reshape(8, 4)
    for a, wanted in ((whole, 2 * whole), (-whole, whole), (whole, 2 * whole)):
        np.testing.assert_array_equal(np.asarray(f(a)), wanted)
        assert seen[-1][:3] == (a.sum(), int(a.sum()), a.sum())
        assert f"at mesh coordinates (x, y) = (3, 1):\n{a[6:, 2:]}" in seen[-1][3]
    assert len(seen) == 3
    with pytest.raises(fuser.errors.ConcretizationTypeError, match="no value yet"):
        fuser.jit(f)(whole)
    with pytest.raises(fuser.errors.ConcretizationTypeError, match="no value yet"):
        fuser.grad(lambda a: f(a).sum())(whole)
    differs = fuser.shard_map(
        lambda a: a if a.sum() > 0 else -a, mesh=mesh, in_specs=fuser.P("x"), out_specs=fuser.P("x")
    )
    with pytest.raises(fuser.errors.TracerBoolConversionError, match="no value yet"):
        differs(whole)


def test_effects_are_not_run_again_to_read_values() -> None:
    mesh, told = mesh_of(fuser, x=4, y=2), []

    def one(a: Any) -> Any:
        fuser.debug.callback(lambda v: told.append(float(v.sum())), a)
        return a if fuser.lax.psum(a.sum(), "x") > 0 else -a

    f = fuser.shard_map(one, mesh=mesh, in_specs=fuser.P("x"), out_specs=fuser.P("x"))
    with pytest.raises(fuser.errors.TracerBoolConversionError, match="no value yet"):
        f(X)
    assert told == []


def test_effects_of_a_divided_program_happen_once() -> None:
    mesh, told = mesh_of(fuser, x=4, y=2), []
    laid = fuser.NamedSharding(mesh, fuser.P("x"))
    kept = fuser.new_ref(fuser.numpy.zeros(8))

    def tell(v: Any) -> Any:
        told.append(float(v))
        return np.float32(len(told))

    def one(a: Any) -> Any:
        fuser.debug.callback(tell, a.sum(), ordered=True)
        kept[...] += a[:, 0]
        first = fuser.experimental.io_callback(tell, fuser.ShapeDtypeStruct((), np.float32), a.max(), ordered=True)
        return a * first, first

    f = fuser.jit(one, in_shardings=laid)
    for turn in (1, 2):
        scaled, first = f(X)
        fuser.effects_barrier()
        assert told == [float(X.sum()), float(X.max())] * turn and first == 2 * turn
        np.testing.assert_array_equal(np.asarray(scaled), X * (2 * turn))
        np.testing.assert_array_equal(kept[...], X[:, 0] * turn)
    assert fuser.jit(lambda a: fuser.debug.callback(tell, a.sum()), in_shardings=laid)(X) is None
    assert len(told) == 5
