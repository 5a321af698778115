"""Dimensions that the devices do not divide: constraints split them within jit, what JAX refuses outside is refused."""

from __future__ import annotations

import types
from typing import Any

import jax
import numpy as np
import pytest
from parallel_agreement import agree, mesh_of

import fuser
import fuser.numpy as fnp

rng = np.random.default_rng(0)
A, B = rng.normal(size=(10, 7)).astype(np.float32), rng.normal(size=(7, 10)).astype(np.float32)
COUNTS = rng.integers(1, 9, (10, 7)).astype(np.int32)


def test_programs_with_padding_give_what_jax_gives() -> None:
    """Reductions of every kind over padding that is 0, inf and nan, products over it, layouts in and out of it, loops and slopes."""

    def program(lib: types.ModuleType, mesh: Any) -> Any:
        lay = lambda x, *spec: lib.lax.with_sharding_constraint(x, lib.NamedSharding(mesh, lib.P(*spec)))
        np_ = lib.numpy

        @lib.jit
        def reductions(a: Any, b: Any, counts: Any) -> Any:
            rows, columns = lay(a, "x"), lay(a, None, ("x", "y"))
            odd = 1 / (rows * rows)  # inf in the padding
            whole = np_.where(lay(counts, "x", "y") // lay(counts, "x", "y") == 1, 2, 7)
            return (
                [f(odd, axis) for f in (np_.sum, np_.max, np_.min, np_.prod) for axis in (0, 1)],
                np_.log(columns * columns).sum(1), (rows @ lay(b, None, "y")).sum(), np_.tanh(lay(a.T, "y")) @ odd,
                whole, whole.max(0), (odd > 0).all(0), (odd > 5).any(0), odd.argmax(0), np_.cumsum(odd, 1), np_.cumsum(odd, 0), np_.sort(odd, 0),
            )  # fmt: skip

        @lib.jit
        def layouts(a: Any) -> Any:
            first = lay(a, ("x", "y"))
            second = lay(lay(first * 2, "x", "y") + 1, None, "x")
            third = lay(second[1:], "y", "x").T.reshape(9, 7)
            loop = lib.lax.fori_loop(0, 3, lambda i, v: lay(np_.sin(v), "x") + v.mean(0), a)
            carry, rows = lib.lax.scan(lambda c, r: (lay(c + r, "x"), c * r), a[0], lay(a, None, "y"))
            return (
                first,
                second,
                third,
                loop,
                carry,
                rows,
                lib.lax.cond(loop[0, 0] > 0, lambda v: v, lambda v: 2 * v, lay(loop, "y")),
            )

        slope = lib.jit(lib.grad(lambda a, b: np_.tanh(lay(lay(a, "x") @ b, None, "x")).sum(), (0, 1)))
        return {"reductions": reductions(A, B, COUNTS), "layouts": layouts(A), "slope": slope(A, B)}

    with fuser.config.using(backend="reference"):  # the division is tested, not the kernels
        results = agree(program)
    for part in results["layouts"][0].addressable_shards:  # results have no padding
        np.testing.assert_array_equal(np.asarray(part.data), A)


def test_the_work_is_divided() -> None:
    """Each device computes on its part; a sum over padding is one collective of the sum's size."""
    mesh = mesh_of(fuser, x=8)
    lay = lambda v, *spec: fuser.lax.with_sharding_constraint(v, fuser.NamedSharding(mesh, fuser.P(*spec)))
    lowered = fuser.jit(lambda a: fnp.exp(fnp.sin(lay(a, "x"))).sum(0)).lower(A)
    (exp,) = [e for e in lowered.spread.graph.eqns if e.primitive.name == "exp"]
    assert exp.outvars[0].aval.shape == (2, 7)
    assert [(c.name, c.nbytes) for c in lowered.spread.collectives] == [("psum", 28)]


REFUSED = {
    "device_put": lambda lib, s: lib.device_put(A, s),
    "constraint outside": lambda lib, s: lib.lax.with_sharding_constraint(lib.numpy.asarray(A), s),
    "out_shardings": lambda lib, s: lib.jit(lambda a: a, out_shardings=s)(A),
    "in_shardings": lambda lib, s: lib.jit(lambda a: a.sum(), in_shardings=s)(A),
    "inner jit": lambda lib, s: lib.jit(lambda a: lib.jit(lambda b: b * 2, in_shardings=s)(a))(A),
    "make_array_from_callback": lambda lib, s: lib.make_array_from_callback(A.shape, s, lambda index: A[index]),
    "shard_map": lambda lib, s: lib.shard_map(lambda a: a, mesh=s.mesh, in_specs=s.spec, out_specs=s.spec)(A),
}


@pytest.mark.parametrize("name", REFUSED)
def test_parts_of_arrays_are_equal_as_in_jax(name: str) -> None:
    for lib in (jax, fuser):
        with pytest.raises(ValueError, match="divi"):
            REFUSED[name](lib, lib.NamedSharding(mesh_of(lib, x=8), lib.P("x")))
