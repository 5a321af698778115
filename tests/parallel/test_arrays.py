"""Meshes, specs, shardings and arrays over devices: what JAX says of the same ones."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import jax
import numpy as np
import pytest
from parallel_agreement import mesh_of

import fuser
import fuser.numpy as fnp
from fuser.errors import DuplicateSpecError
from fuser.experimental import checkify
from fuser.runtime import device
from fuser.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, SingleDeviceSharding

X = np.arange(32, dtype=np.float32).reshape(8, 4)
SPECS: list[tuple[Any, ...]] = [(), ("x",), (None, "y"), ("y", "x"), (("x", "y"),), (("y", "x"), None), (None, ("x",))]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_parts_are_jaxs(spec: tuple[Any, ...]) -> None:
    found, wanted = (lib.device_put(X, lib.NamedSharding(mesh_of(lib, x=4, y=2), lib.P(*spec))) for lib in (fuser, jax))
    assert repr(found.sharding) == repr(wanted.sharding)
    assert found.is_fully_replicated == wanted.is_fully_replicated
    assert found.is_fully_addressable and found.committed and len(found.devices()) == 8
    assert found.sharding.shard_shape(X.shape) == wanted.sharding.shard_shape(X.shape)
    for a, b in zip(found.addressable_shards, wanted.addressable_shards, strict=True):
        assert (a.device.id, a.index, a.replica_id) == (b.device.id, b.index, b.replica_id)
        np.testing.assert_array_equal(a.data, b.data)
        assert a.data.devices() == {a.device}
    np.testing.assert_array_equal(found, X)
    np.testing.assert_array_equal(found.addressable_data(3), wanted.addressable_data(3))


def test_an_array_over_devices_is_an_array() -> None:
    mesh = mesh_of(fuser, x=4, y=2)
    x = fuser.device_put(X, fuser.NamedSharding(mesh, fuser.P("x", "y")))
    assert (x.shape, x.dtype, x.ndim, x.size, len(x)) == ((8, 4), np.float32, 2, 32, 8)
    assert str(x) == str(X) and repr(x) == repr(fnp.asarray(X))
    np.testing.assert_array_equal(x[2], X[2])
    np.testing.assert_array_equal(list(x)[1], X[1])
    np.testing.assert_array_equal(x.T @ x, X.T @ X)
    np.testing.assert_array_equal(fuser.jit(lambda a: a * 2 + a[0])(x), X * 2 + X[0])
    np.testing.assert_array_equal(fuser.grad(lambda a: (a**2).sum())(x), 2 * X)
    np.testing.assert_array_equal(copy.copy(x), X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x)), X)
    np.testing.assert_array_equal(x.torch().numpy(), X)
    assert x.block_until_ready() is x
    with pytest.raises(BufferError, match="an array over 8 devices has no one memory to share"):
        x.__dlpack__()
    x.delete()
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        _ = x.sharding


def test_memory_of_the_caller_is_not_kept() -> None:
    mine = X.copy()
    mesh = mesh_of(fuser, x=4)
    arrays = [fuser.device_put(mine), fuser.device_put(mine, fuser.NamedSharding(mesh, fuser.P("x")))]
    mine[:] = 0
    for array in arrays:
        np.testing.assert_array_equal(array, X)


def test_devices_and_trees() -> None:
    third = fuser.devices("cpu")[3]
    tree = fuser.device_put({"a": X, "b": [1.5]}, third)
    assert tree["a"].device == third and tree["b"][0].sharding == SingleDeviceSharding(third)
    plain = fuser.device_put(X)
    assert plain.sharding == SingleDeviceSharding(fuser.devices("cpu")[0]) and not plain.committed
    mixed = fuser.device_put((X, X), (third, None))
    assert mixed[0].device == third and mixed[1].device.id == 0
    back = fuser.device_put(tree["a"], fuser.devices("cpu")[0])
    assert back.device.id == 0
    assert isinstance(fuser.device_get(tree)["a"], np.ndarray)
    assert (fuser.device_count("cpu"), fuser.local_device_count("cpu"), fuser.process_count()) == (8, 8, 1)
    with fuser.set_mesh(mesh_of(fuser, x=4)):
        assert fuser.device_put(X, fuser.P("x")).sharding.spec == fuser.P("x")
    with pytest.raises(
        ValueError, match=r"device_put got P\('x',\), which names axes of a mesh, and no mesh is in scope"
    ):
        fuser.device_put(X, fuser.P("x"))
    with pytest.raises(TypeError, match="device_put takes a Device, a Sharding or a PartitionSpec, got 'cpu'"):
        fuser.device_put(X, "cpu")


def test_arrays_made_part_by_part() -> None:
    mesh = mesh_of(fuser, x=4, y=2)
    sharding = fuser.NamedSharding(mesh, fuser.P("x"))
    asked = []

    def part(index: Any) -> Any:
        asked.append(index)
        return X[index]

    x = fuser.make_array_from_callback(X.shape, sharding, part)
    np.testing.assert_array_equal(x, X)
    assert len(asked) == 4
    again = fuser.make_array_from_single_device_arrays(
        X.shape, sharding, [s.data for s in reversed(x.addressable_shards)]
    )
    np.testing.assert_array_equal(again, X)
    assert again.sharding == sharding
    np.testing.assert_array_equal(fuser.make_array_from_process_local_data(sharding, X), X)
    with pytest.raises(ValueError, match=r"gave a part of shape \(4,\) for"):
        fuser.make_array_from_callback(X.shape, sharding, lambda index: X[0])
    with pytest.raises(ValueError, match="needs one array on each of the devices"):
        fuser.make_array_from_single_device_arrays(X.shape, sharding, [x.addressable_shards[0].data])


def test_meshes_and_specs_compare_by_value() -> None:
    P, mesh = fuser.P, mesh_of(fuser, x=4, y=2)
    assert P("x") != P("x", None) and P(("x",)) == P("x") and P("x", ("y", "z"))[1] == ("y", "z")
    assert repr(P("x", None, ("y", "z"))) == repr(jax.P("x", None, ("y", "z")))
    assert P("x") + P("y") == P("x", "y") and len({P("x"), P(("x",))}) == 1
    assert (
        mesh == mesh_of(fuser, x=4, y=2)
        and hash(mesh) == hash(mesh_of(fuser, x=4, y=2))
        and mesh != mesh_of(fuser, x=8)
    )
    assert pickle.loads(pickle.dumps(fuser.NamedSharding(mesh, P("x")))) == fuser.NamedSharding(mesh, P("x"))
    for lib in (fuser, jax):
        assert lib.make_mesh((4, 2), ("x", "y")).axis_types == (lib.sharding.AxisType.Explicit,) * 2
    theirs = mesh_of(jax, x=4, y=2)
    assert (repr(mesh), str(mesh), dict(mesh.shape), mesh.size) == (repr(theirs), str(theirs), dict(theirs.shape), 8)
    assert mesh.abstract_mesh == AbstractMesh((4, 2), ("x", "y"), (AxisType.Auto,) * 2)
    same = fuser.NamedSharding(mesh, P("x", None)), fuser.NamedSharding(mesh, P("x"))
    assert same[0].is_equivalent_to(same[1], 2) and not same[0].is_equivalent_to(fuser.NamedSharding(mesh, P("y")), 2)


def test_what_does_not_fit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh, P = mesh_of(fuser, x=4, y=2), fuser.P
    with pytest.raises(ValueError, match="splits dimension 0 into 4 parts, which do not divide its extent 7"):
        fuser.device_put(np.ones((7, 4)), fuser.NamedSharding(mesh, P("x")))
    with pytest.raises(ValueError, match="names the axis 'q', which is not in the mesh"):
        fuser.NamedSharding(mesh, P("q"))
    with pytest.raises(DuplicateSpecError, match="names the axis 'x' twice"):
        fuser.NamedSharding(mesh, P("x", "x"))
    with pytest.raises(ValueError, match="splits 2 dimensions, and the array has 1"):
        fuser.device_put(np.ones(8), fuser.NamedSharding(mesh, P("x", "y")))
    with pytest.raises(ValueError, match=r"a mesh of shape \(9,\) needs 9 devices, and there are 8"):
        fuser.make_mesh((9,), ("x",))
    with monkeypatch.context() as patch:
        patch.setattr(device, "local_gpus", lambda: [0])
        patch.setattr(device, "has_cuda", lambda: True)
        patch.setattr(device, "cuda", lambda n: device.Device("cuda", n, "a GPU"))
        with pytest.raises(
            ValueError, match=r"and there are 1; devices=fuser.devices\(\"cpu\"\) takes the CPU's, of which"
        ):
            fuser.make_mesh((2,), ("x",))
        assert fuser.make_mesh((2,), ("x",), devices=fuser.devices("cpu")).size == 2
    with pytest.raises(ValueError, match="the axes of a mesh need distinct names"):
        Mesh(np.array(fuser.devices("cpu")).reshape(4, 2), ("x", "x"))


def test_pictures_of_layouts(capsys: pytest.CaptureFixture[str]) -> None:
    mesh, P = mesh_of(fuser, x=4, y=2), fuser.P
    fuser.debug.visualize_array_sharding(fuser.device_put(X, NamedSharding(mesh, P("x"))))
    shown = capsys.readouterr().out
    assert [line.strip("│").strip() for line in shown.splitlines() if "CPU" in line] == [
        f"CPU {2 * n},{2 * n + 1}" for n in range(4)
    ]
    fuser.debug.visualize_sharding((8, 4), NamedSharding(mesh, P("y", "x")))
    cells = [
        [c.strip() for c in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines() if "CPU" in line
    ]
    assert cells == [["CPU 0", "CPU 2", "CPU 4", "CPU 6"], ["CPU 1", "CPU 3", "CPU 5", "CPU 7"]]
    fuser.debug.visualize_sharding((8,), NamedSharding(mesh, P("y")))
    assert capsys.readouterr().out.count("CPU") == 2
    fuser.debug.visualize_sharding((8, 8), NamedSharding(mesh, P(None, "y")), scale=0.8)
    shown = capsys.readouterr().out.splitlines()
    texts = ["CPU 0,2,4,6", "CPU 1,3,5,7"]  # 8 lines and 20 columns: 10 columns a cell with its borders
    blank = f"│{' ' * 11}│{' ' * 11}│"
    edges = [left + middle.join(["─" * 11] * 2) + right for left, middle, right in ("┌┬┐", "└┴┘")]
    assert shown == [edges[0], *[blank] * 3, f"│{texts[0]}│{texts[1]}│", *[blank] * 3, edges[1]]
    with pytest.raises(ValueError, match="only works for shapes with 1 and 2 dimensions"):
        fuser.debug.visualize_sharding((2, 2, 2), NamedSharding(mesh, P()))


@pytest.mark.parametrize("jitted", [False, True])
def test_the_sharding_of_a_type_without_a_mesh_divides_nothing(jitted: bool) -> None:
    empty = fuser.typeof(fnp.ones((2, 3))).sharding
    assert empty.mesh.empty
    functions = [
        lambda x: fuser.random.normal(fuser.random.key(0), (2, 3), out_sharding=empty),
        lambda x: fnp.zeros((2, 3), out_sharding=empty),
        lambda x: fnp.einsum("ij,kj->ik", x, x, out_sharding=empty),
    ]
    run = fuser.jit if jitted else lambda function: function
    for function in functions:
        run(function)(X[:2, :3])
    with pytest.raises(ValueError, match="with_sharding_constraint needs a sharding over a mesh with axes"):
        run(lambda x: fuser.lax.with_sharding_constraint(x, empty))(X[:2, :3])
    if not jitted:
        with pytest.raises(ValueError, match="is over an AbstractMesh, which has no devices"):
            fuser.device_put(X, empty)


def test_an_error_over_devices_is_raised_where_it_lies() -> None:
    def checked(x: Any) -> Any:
        checkify.check((x > 0).all(), "not above 0: {}", x)
        return x

    x = fuser.device_put(np.float32([1, -1]), NamedSharding(mesh_of(fuser, x=2), fuser.P()))
    error, _ = checkify.checkify(fuser.jit(checked))(x)
    with pytest.raises(checkify.JaxRuntimeError, match="not above 0"):
        checkify.check_error(error)


def test_a_constraint_over_the_abstract_mesh_in_scope_lays_out_an_array() -> None:
    """As Flax's `nnx.with_partitioning` does where `set_mesh` is in force."""
    mesh = fuser.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Auto))
    with fuser.set_mesh(mesh):
        found = fuser.lax.with_sharding_constraint(
            X, NamedSharding(fuser.sharding.get_abstract_mesh(), fuser.P("x", "y"))
        )
    assert found.sharding.is_equivalent_to(NamedSharding(mesh, fuser.P("x", "y")), 2) and len(found.devices()) == 8


def test_device_get_leaves_keys_as_they_are() -> None:
    for lib in (fuser, jax):
        number, key = lib.device_get((lib.numpy.ones(2), lib.random.key(3)))
        assert type(number) is np.ndarray and isinstance(key, lib.Array)
        assert lib.random.key_data(lib.random.fold_in(key, 1)).shape == (2,)
