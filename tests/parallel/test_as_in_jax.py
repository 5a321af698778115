"""Small programs as people write them for several devices: values, layouts, types and errors are those of JAX."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from parallel_agreement import mesh_of

import fuser

X = np.arange(32, dtype=np.float32).reshape(8, 4)


def _put(lib: Any, *spec: Any, value: Any = X) -> Any:
    return lib.device_put(value, lib.NamedSharding(mesh_of(lib, x=4, y=2), lib.P(*spec)))


def _alike_made(lib: Any) -> Any:
    x = _put(lib, "x")
    there = lib.device_put(X, lib.devices()[3])
    makers = (lib.numpy.zeros_like, lib.numpy.ones_like, lambda v: lib.lax.full_like(v, 3))
    return [make(v) for v in (x, there) for make in makers]


def _described(lib: Any) -> Any:
    """A program compiled for arrays that are not there yet."""
    sharding = lib.NamedSharding(mesh_of(lib, x=4, y=2), lib.P("x"))
    compiled = (
        lib.jit(lambda a: (a * 2, a.sum())).lower(lib.ShapeDtypeStruct(X.shape, X.dtype, sharding=sharding)).compile()
    )
    plain = lib.jit(lambda a: a + 1).lower(lib.typeof(X)).compile()
    return [str(c.input_shardings) + str(c.output_shardings) for c in (compiled, plain)], compiled(_put(lib, "x"))


def _of_all_processes(lib: Any) -> Any:
    import importlib

    multihost = importlib.import_module(f"{lib.__name__}.experimental.multihost_utils")
    mesh, x = mesh_of(lib, x=4, y=2), _put(lib, "x", "y")
    trees = multihost.broadcast_one_to_all({"a": np.arange(3)}), multihost.process_allgather((X, 2.0))
    return (
        trees,
        multihost.process_allgather(x, tiled=True),
        multihost.global_array_to_host_local_array(x, mesh, lib.P("x", "y")),
    )


def _typed(lib: Any) -> Any:
    found = []

    def of_one(a: Any, b: Any) -> Any:
        found.append([str(lib.typeof(v)) for v in (a, b, a + b, lib.lax.psum(a, "x"))])
        return a

    lib.shard_map(of_one, mesh=mesh_of(lib, x=4, y=2), in_specs=(lib.P("x"), lib.P()), out_specs=lib.P("x"))(X, X[:2])
    explicit = lib.make_mesh((4, 2), ("x", "y"))
    with lib.set_mesh(explicit):
        found.append([str(lib.typeof(lib.device_put(X, lib.P(*s)))) for s in (("x",), ("x", "y"), (("x", "y"),), ())])
    return [[t.replace("float32", "f32") for t in types] for types in found]


def _by_types(lib: Any) -> Any:
    """What types along Explicit axes say of results."""
    with lib.set_mesh(lib.make_mesh((2, 4), ("x", "y"))):
        x = lib.device_put(X[:, :4], lib.P("x", "y"))
        sums = lib.jit(lambda v: lib.lax.scan(lambda c, _: (c + v, None), lib.numpy.zeros_like(v), None, length=3)[0])
        return sums(x), x.argmax(-1), x.prod(0), x.reshape(32), lib.numpy.ravel(lib.device_put(X, lib.P("y")))


def _closed_over(lib: Any) -> Any:
    """Arguments, results and constraints say where a program runs, and not what it closes over."""
    rows, all_of_it = _put(lib, "x"), _put(lib)
    here, there = (lib.device_put(X, lib.devices()[n]) for n in (0, 3))
    plain = lib.numpy.asarray(X)
    held = [rows, here, there]
    found = [lib.jit(lambda y, c=c: y + c)(y) for c in held for y in (plain, here, there, all_of_it, rows)]
    found += [lib.jit(lambda c=c: c * 2)() for c in held]
    out = lib.NamedSharding(mesh_of(lib, x=4, y=2), lib.P("y"))
    found += [lib.jit(lambda y, c=c: y * c, out_shardings=out)(plain) for c in held]
    found.append(lib.jit(lambda y: lib.lax.with_sharding_constraint(y, out) * there)(plain))
    return found, [str(x.committed) for x in found]


@pytest.mark.parametrize(
    "program",
    [_by_types, _alike_made, _described, _of_all_processes, _typed, _closed_over],
    ids=lambda p: p.__name__[1:],
)
def test_results_and_how_they_lie(program: Callable[[Any], Any]) -> None:
    (found, structure), (wanted, expected) = (lib.tree.flatten(program(lib)) for lib in (fuser, jax))
    assert str(structure) == str(expected)
    for a, b in zip(found, wanted, strict=True):
        if isinstance(b, str):
            assert a == b
            continue
        np.testing.assert_array_equal(a, b, strict=True)
        assert str(getattr(a, "sharding", None)) == str(getattr(b, "sharding", None))


def _mixed(lib: Any) -> Any:
    mesh = mesh_of(lib, x=8)
    parts = [lib.device_put(X[i : i + 1].astype("i4" if i == 2 else "f4"), d) for i, d in enumerate(lib.devices())]
    return lib.make_array_from_single_device_arrays(X.shape, lib.NamedSharding(mesh, lib.P("x")), parts)


ERRORS: list[tuple[Callable[[Any], Any], str]] = [
    (_mixed, "must have matching dtypes. Got int32, expected float32"),
    (
        lambda lib: lib.make_mesh(((4,), 2), ("x", "y")),
        "passed to `make_mesh` should be a sequence of ints",
    ),
    (lambda lib: lib.pmap(lambda x: x, devices=[]), "'devices' argument to pmap must be non-empty, or None."),
    (lambda lib: lib.sharding.AbstractMesh((4,), ("x",)).devices, "AbstractMesh does not implement devices"),
]


@pytest.mark.parametrize(("program", "words"), ERRORS, ids=[words for _, words in ERRORS])
def test_errors(program: Callable[[Any], Any], words: str) -> None:
    for lib in (fuser, jax):
        with pytest.raises(ValueError, match=re.escape(words)):
            program(lib)
