"""Exported functions that lie over several devices: saved without devices, called on others, differentiated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from parallel_agreement import mesh_of

import fuser
import fuser.numpy as fnp
from fuser.errors import DeserializationError, UnsupportedError
from fuser.export import deserialize, export, file
from fuser.sharding import Mesh, NamedSharding
from fuser.sharding import PartitionSpec as P

rng = np.random.default_rng(0)
A, B = (rng.normal(size=s).astype(np.float32) for s in ((8, 8), (8, 4)))
PRODUCT = np.tanh(A @ B)


def mesh_over(devices: Any) -> Mesh:
    return Mesh(np.array(devices, object).reshape(2, 2), ("x", "y"))


def divided() -> Any:
    mesh = mesh_over(fuser.devices()[:4])

    def f(a: Any, b: Any) -> Any:
        rows = fuser.lax.with_sharding_constraint(a @ b, NamedSharding(mesh, P("y", None)))
        return fuser.lax.scan(lambda c, _: (fnp.tanh(c), None), rows, None, length=1)[0]

    given, wanted = NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P("x"))
    return fuser.jit(f, in_shardings=(given, None), out_shardings=wanted)


def loaded(**options: Any) -> Any:
    made = export(divided())(A, B)
    read = deserialize(made.serialize(**options))
    assert made.nr_devices == read.nr_devices == 4
    assert (made.in_layouts, made.out_layouts) == (read.in_layouts, read.out_layouts)
    return read


def test_calls_run_on_the_devices_that_arguments_lie_on() -> None:
    exported, mesh = loaded(), mesh_over(fuser.devices()[7:3:-1])
    layout, free = exported.in_shardings_jax(mesh)
    assert layout == NamedSharding(mesh, P("x", "y")) and free is None
    result = exported.call(fuser.device_put(A, layout), B)
    np.testing.assert_allclose(result, PRODUCT, rtol=1e-5, atol=1e-6)
    assert result.sharding == exported.out_shardings_jax(mesh)[0]
    assert result.sharding.device_set == set(fuser.devices()[4:])
    first = exported.call(A, B)  # on the first ones, where arguments lie nowhere
    assert first.sharding.device_set == set(fuser.devices()[:4])
    inside = fuser.jit(lambda a: 2 * exported.call(a, B))(fuser.device_put(A, layout))
    np.testing.assert_allclose(inside, 2 * PRODUCT, rtol=1e-5, atol=1e-6)
    assert inside.sharding.device_set == set(fuser.devices()[4:])


def test_derivatives_lie_over_them_too() -> None:
    exported, mesh = loaded(vjp_order=1), mesh_over(fuser.devices()[4:])
    a = fuser.device_put(A, exported.in_shardings_jax(mesh)[0])
    found = fuser.grad(lambda a: exported.call(a, B).sum())(a)
    np.testing.assert_allclose(found, (1 - PRODUCT**2) @ B.T, rtol=1e-4, atol=1e-5)
    assert found.sharding.device_set == set(fuser.devices()[4:])


def test_another_number_of_devices() -> None:
    eight = NamedSharding(mesh_of(fuser, z=8), P("z"))
    with pytest.raises(
        ValueError, match=r"Function f was exported for 4 devices and is called in a context with 8 dev"
    ):
        loaded().call(fuser.device_put(A, eight), B)
    lone = NamedSharding(Mesh(np.array(fuser.devices()[:1], object), ("i",)), P("i"))
    one = export(fuser.jit(lambda a: fuser.lax.with_sharding_constraint(a, lone).sum(0)))(A)
    assert one.nr_devices == 1
    np.testing.assert_allclose(one.call(fuser.device_put(A, eight)), A.sum(0), rtol=1e-5, atol=1e-6)


def test_what_cannot_be_exported() -> None:
    mesh = fuser.make_mesh((4,), ("x",), axis_types=(fuser.sharding.AxisType.Explicit,))
    with pytest.raises(
        UnsupportedError, match="its types say how values lie over them; give the mesh axes of type Auto"
    ):
        export(fuser.jit(fnp.sin))(fuser.device_put(A, NamedSharding(mesh, P("x"))))


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ([["x"], [0], [["x"]]], "a mesh has no sizes"),
        ([["x", "x"], [2, 2], []], "a mesh's axes have no names"),
        ([["x"], [1 << 30], []], "too many devices"),
        ([["x"], [2], [["y"]]], "a layout's axes are not the mesh's"),
        ([["x"], [2], [["x"], ["x"]]], "a layout has an axis twice"),
        ([["x"], [2], ["x"]], "a layout's axes are not the mesh's"),
        ([["x"], [3], [["x"]]], "lies over meshes of"),
        (7, "a layout is no layout"),
    ],
)
def test_layouts_of_hostile_files(layout: Any, words: str) -> None:
    said, contents = file.read(bytes(export(divided())(A, B).serialize()))
    hostile, _ = file.read(file.write(said, contents))
    eqn = next(e for e in hostile["graph"]["eqns"] if e[0] == "sharding_constraint")
    eqn[2]["sharding"] = {"layout": layout}
    with pytest.raises(DeserializationError, match=words):
        deserialize(file.write(hostile, contents))
