"""Every collective on the devices of a mesh, with its derivative, against JAX; and the faults of devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from parallel_agreement import agree, mesh_of

import fuser
import fuser.numpy as fnp
from fuser.errors import DeviceError, UnsupportedError

X = np.random.default_rng(0).normal(size=(16, 8, 4)).astype(np.float32)
Body = Callable[[Any, Any], Any]

# Of a part f32[4, 4, 4] of X, split over x and y: name -> (function, along which axes the result is the same for all)
COLLECTIVES: dict[str, tuple[Body, tuple[str, ...]]] = {
    "psum": (lambda lax, a: lax.psum(a, "x"), ("x",)),
    "psum of both": (lambda lax, a: lax.psum(a, ("y", "x")), ("x", "y")),
    "pmean": (lambda lax, a: lax.pmean(a, "y"), ("y",)),
    "pmax": (lambda lax, a: lax.pmax(a, "x"), ("x",)),
    "pmin": (lambda lax, a: lax.pmin(a, ("x", "y")), ("x", "y")),
    "all_gather": (lambda lax, a: lax.all_gather(a, "x", axis=1), ()),
    "all_gather tiled over both": (lambda lax, a: lax.all_gather(a, ("y", "x"), axis=2, tiled=True), ()),
    "all_gather over both": (lambda lax, a: lax.all_gather(a, ("x", "y")), ()),
    "psum_scatter": (lambda lax, a: lax.psum_scatter(a, "x", scatter_dimension=1), ()),
    "psum_scatter tiled": (lambda lax, a: lax.psum_scatter(a, "y", scatter_dimension=2, tiled=True), ()),
    "all_to_all": (lambda lax, a: lax.all_to_all(a, "x", 0, 2), ()),
    "all_to_all tiled": (lambda lax, a: lax.all_to_all(a, "y", 2, 0, tiled=True), ()),
    "ppermute": (lambda lax, a: lax.ppermute(a, "x", [(0, 1), (1, 2), (3, 0)]), ()),
    "pshuffle": (lambda lax, a: lax.pshuffle(a, "x", [2, 0, 3, 1]), ()),
    "axis_index": (lambda lax, a: a * (lax.axis_index("y") + 2 * lax.axis_index("x")), ()),
    "axis_index of both": (lambda lax, a: a * lax.axis_index(("y", "x")), ()),
}


# Which JAX cannot differentiate: it has no rule, or a rule that gives another shape.
UNDIFFERENTIATED = ("pmax", "pmin", "all_to_all")


def mapped(lib: Any, mesh: Any, name: str, **options: Any) -> Any:
    """The collective of the square of each device's part, as a function of X."""
    body, same = COLLECTIVES[name]
    left = tuple(n for n in ("x", "y") if n not in same)
    out = lib.P(left) if left else lib.P()
    return lib.shard_map(lambda a: body(lib.lax, a * a), mesh=mesh, in_specs=lib.P("x", "y"), out_specs=out, **options)


def total(lib: Any, f: Any) -> Any:
    return lambda a: (lib.numpy.cos(f(a)) ** 2).sum()


@pytest.mark.parametrize("check", [True, False])
def test_collectives_and_their_derivatives(check: bool) -> None:
    chosen = COLLECTIVES if check else ("psum", "pmean", "pmax", "all_gather", "psum_scatter tiled", "ppermute")

    def program(lib: Any, mesh: Any) -> Any:
        functions = {name: mapped(lib, mesh, name, check_vma=check) for name in chosen}
        slopes = {name: lib.grad(total(lib, f)) for name, f in functions.items() if name not in UNDIFFERENTIATED}
        compute = lambda a: [{n: f(a) for n, f in each.items()} for each in (functions, slopes)]
        return lib.jit(compute)(X)

    agree(program)


@pytest.mark.parametrize("name", UNDIFFERENTIATED)
def test_derivatives_that_jax_lacks(name: str) -> None:
    with fuser.config.using(enable_x64=True):
        f = total(fuser, mapped(fuser, mesh_of(fuser, x=4, y=2), name))
        x, step = X.astype(np.float64), 1e-6 * np.random.default_rng(1).normal(size=X.shape)
        slope = (np.asarray(fuser.grad(f)(x)) * step).sum()
        np.testing.assert_allclose(slope, (float(f(x + step)) - float(f(x - step))) / 2, rtol=1e-5)


def test_derivatives_within_the_function() -> None:
    """What grad gives for a weight that all devices share depends on whether types say that they do."""

    def program(lib: Any, mesh: Any) -> Any:
        P, lax = lib.P, lib.lax

        def step(w: Any, a: Any) -> Any:
            local = lambda v: (lib.numpy.sin(v * a) ** 2).sum()
            everywhere = lambda v: lax.psum(local(v), ("x", "y"))
            return lib.grad(local)(w), lib.grad(everywhere)(w)

        results = []
        for check in (True, False):
            out = P() if check else P("x")
            options = {"in_specs": (P(), P("x", "y")), "out_specs": (out, out), "check_vma": check}
            results.append(lib.shard_map(step, mesh=mesh, **options)(X[0, 0], X))
        return results

    agree(program)


def test_groups_of_an_axis() -> None:
    groups = [[0, 3, 5, 6], [7, 1, 2, 4]]

    def program(lib: Any, mesh: Any) -> Any:
        lax = lib.lax

        def one(a: Any) -> Any:
            return (
                lax.psum(a, "i", axis_index_groups=groups),
                lax.pmax(a, "i", axis_index_groups=groups),
                lax.all_gather(a, "i", axis_index_groups=groups),
                lax.psum_scatter(a, "i", axis_index_groups=groups),
                lax.pmean(a, "i", axis_index_groups=groups),
                lax.psum(1, "i", axis_index_groups=groups),
            )

        return lib.pmap(one, axis_name="i")(X[:8, :4])

    agree(program)


def test_groups_must_hold_each_index_once() -> None:
    with pytest.raises(
        ValueError, match=r"psum needs axis_index_groups that hold each index below 8 once, got \(\(0, 1\),\)"
    ):
        fuser.pmap(lambda a: fuser.lax.psum(a, "i", axis_index_groups=[[0, 1]]), axis_name="i")(X[:8])
    mesh = mesh_of(fuser, x=8)
    with pytest.raises(UnsupportedError, match="check_vma=False"):
        fuser.shard_map(
            lambda a: fuser.lax.psum(a, "x", axis_index_groups=[[0, 1, 2, 3], [4, 5, 6, 7]]),
            mesh=mesh, in_specs=fuser.P("x"), out_specs=fuser.P("x"),
        )(X)  # fmt: skip


def test_pbroadcast() -> None:
    mesh = mesh_of(fuser, x=4)
    f = fuser.shard_map(
        lambda a: fuser.lax.pbroadcast(a, "x", 2), mesh=mesh, in_specs=fuser.P("x"), out_specs=fuser.P("x")
    )
    np.testing.assert_array_equal(f(X[:4]), np.repeat(X[2:3], 4, 0))
    slopes = fuser.grad(lambda a: (f(a) * X[4:8]).sum())(X[:4])
    np.testing.assert_allclose(slopes[2], X[4:8].sum(0), rtol=1e-5)
    assert not np.asarray(slopes)[[0, 1, 3]].any()


def test_sums_of_short_floats_are_taken_in_float32_and_always_the_same() -> None:
    mesh = mesh_of(fuser, x=8)
    x = fnp.asarray(X.reshape(8, -1), "bfloat16")
    f = fuser.shard_map(lambda a: fuser.lax.psum(a, "x"), mesh=mesh, in_specs=fuser.P("x"), out_specs=fuser.P())
    wanted = np.asarray(x).astype(np.float32).sum(0, keepdims=True).astype(x.dtype)
    first = np.asarray(f(x))
    np.testing.assert_array_equal(first, wanted)
    assert all(np.array_equal(f(x), first) for _ in range(5))


# Faults.


def test_devices_that_disagree_say_who_waits_where() -> None:
    mesh, lax = mesh_of(fuser, x=4), fuser.lax

    def one(a: Any) -> Any:
        return lax.cond(lax.axis_index("x") < 2, lambda v: lax.psum(v, "x"), lambda v: lax.pmax(v, "x"), a)

    with pytest.raises(DeviceError) as caught:
        fuser.shard_map(one, mesh=mesh, in_specs=fuser.P("x"), out_specs=fuser.P("x"))(X)
    text = str(caught.value)
    assert text.startswith("the devices disagree on their next collective, and none can go on: ")
    assert "devices 0, 1 in psum of f32[4,8,4] over 'x' for devices 0, 1, 2, 3" in text
    assert "devices 2, 3 in pmax of f32[4,8,4] over 'x' for devices 0, 1, 2, 3" in text


def test_a_device_that_leaves_the_loop_early_stops_the_others() -> None:
    mesh, lax = mesh_of(fuser, x=4), fuser.lax

    def one(a: Any) -> Any:
        turns = lax.axis_index("x") + 1
        return lax.fori_loop(0, turns, lambda i, v: v + lax.psum(v, "x"), a)

    with pytest.raises(DeviceError, match=r"devices 1, 2, 3 in psum .* waits; 1 of 4 devices have ended"):
        fuser.shard_map(one, mesh=mesh, in_specs=fuser.P("x"), out_specs=fuser.P("x"))(X)


def test_the_error_of_a_device_is_raised_and_the_others_stop() -> None:
    from fuser.runtime import rendezvous

    grid, stopped = rendezvous.Grid([("x", 4)]), []

    def one(rank: int) -> None:
        member = rendezvous.current()
        assert member is not None
        if rank == 2:
            raise FloatingPointError("no such number")
        try:
            member.exchange(("x",), None, "psum", (), rank, lambda kinds, values: values)
        except DeviceError as error:
            stopped.append(str(error))
            raise

    with pytest.raises(FloatingPointError, match="no such number"):
        rendezvous.run(grid, one)
    assert stopped == ["device 2 failed, so this one stopped: FloatingPointError: no such number"] * 3


def test_collectives_need_devices_and_names() -> None:
    with pytest.raises(NameError, match="no axis is named 'x' here"):
        fuser.lax.psum(1.0, "x")
