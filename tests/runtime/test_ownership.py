"""What a user holds can be deleted or donated, and nothing else dies: no Array is shared behind the user's back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.lax as lax
import fuser.numpy as fnp
from fuser.lax.results import PASSING

MADE: dict[str, Callable[[], Any]] = {
    "zeros": lambda: fnp.zeros((), np.int32),
    "ones": lambda: fnp.ones(()),
    "empty": lambda: fnp.empty(()),
    "full": lambda: fnp.full((), 3),
    "full_like": lambda: fnp.full_like(np.float32(1), 3),
    "zeros_like": lambda: fnp.zeros_like(2.0),
    "ones_like": lambda: fnp.ones_like(2.0),
    "array": lambda: fnp.array(7),
    "asarray": lambda: fnp.asarray(7.5),
    "array of a list": lambda: fnp.array([1, 2, 3]),
    "astype": lambda: fnp.astype(1.5, np.float16),
    "arange": lambda: fnp.arange(3),
    "linspace": lambda: fnp.linspace(0, 1, 3),
    "eye": lambda: fnp.eye(2),
    "tri": lambda: fnp.tri(2),
    "indices": lambda: fnp.indices((2,))[0],
    "convert": lambda: lax.convert_element_type(2, np.float32),
    "bool": lambda: fnp.array(True),
    "isscalar maths": lambda: fnp.add(0, 1),
    "where": lambda: fnp.where(True, 1, 2),
    "sum of no axis": lambda: fnp.sum(3),
    "iota": lambda: lax.iota(np.int32, 3),
    "lax.full": lambda: lax.full((), 3.0),
    "key": lambda: fuser.random.PRNGKey(0),
    "constant result": fuser.jit(lambda: fnp.zeros(())),
    "scalar result": fuser.jit(lambda: 4),
    "equal results": fuser.jit(lambda: (fnp.ones(3), fnp.ones(3))),
    "identity": lambda: fuser.jit(lambda x: x)(5),
    "tree": lambda: fuser.jit(lambda: {"a": 0, "b": 0})(),
    "carry": lambda: lax.fori_loop(0, 0, lambda i, c: c, 1.0),
    "branch": lambda: lax.cond(True, lambda: 1.0, lambda: 2.0),
    "vmap": lambda: fuser.vmap(lambda x: 0, out_axes=None, axis_size=2, in_axes=None)(1.0),
    "gradient": lambda: fuser.grad(lambda x: 2.0 * x)(1.0),
}


def values(tree: Any) -> list[Any]:
    return [np.asarray(leaf).tolist() for leaf in jax.tree_util.tree_leaves(tree, is_leaf=is_array)]


def is_array(leaf: Any) -> bool:
    return isinstance(leaf, fuser.Array)


def leaves(tree: Any) -> list[Any]:
    return jax.tree_util.tree_leaves(tree, is_leaf=is_array)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_twice_is_two(name: str) -> None:
    first, second = MADE[name](), MADE[name]()
    expected = values(first)
    arrays = [*leaves(first), *leaves(second)]
    assert len({id(a) for a in arrays}) == len(arrays)
    leaves(first)[0].delete()
    assert values(leaves(first)[1:]) == expected[1:]
    assert values(second) == expected
    take = fuser.jit(lambda x: x, donate_argnums=0)
    take(leaves(second)[0])
    assert values(MADE[name]()) == expected


def test_a_donated_scalar_state_leaves_the_process_whole() -> None:
    step = fuser.jit(lambda s: (s[0] + 1, s[1] * 2), donate_argnums=0)
    state = (fnp.zeros((), np.int32), fnp.zeros(3))
    for _ in range(3):
        state = step(state)
    assert fnp.zeros(2, np.int32).tolist() == [0, 0]
    assert int(state[0]) == 3


# Functions that may have nothing to do: what they return, and what JAX does.
SAME: dict[str, Callable[[Any, Any], Any]] = {
    **{
        name: lambda m, x, name=name: getattr(m, name)(x)  # type: ignore[misc]
        for name in [
            "squeeze",
            "ravel",
            "real",
            "conj",
            "positive",
            "atleast_1d",
            "atleast_2d",
            "broadcast_arrays",
            "clip",
            "nan_to_num",
            "copy",
            "array",
            "asarray",
            "flip",
            "round",
            "floor",
            "ceil",
            "trunc",
            "abs",
        ]
    },
    **{
        name: lambda m, x, name=name: getattr(m, name)(x, axis=())  # type: ignore[misc]
        for name in ["sum", "prod", "max", "min", "flip", "squeeze"]
    },
    "array copy": lambda m, x: m.array(x, copy=True),
    "array no copy": lambda m, x: m.array(x, copy=False),
    "asarray copy": lambda m, x: m.asarray(x, copy=True),
    "astype": lambda m, x: m.astype(x, x.dtype),
    "astype copy": lambda m, x: m.astype(x, x.dtype, copy=True),
    ".astype": lambda m, x: x.astype(x.dtype),
    ".astype copy": lambda m, x: x.astype(x.dtype, copy=True),
    "reshape": lambda m, x: m.reshape(x, x.shape),
    "reshape others": lambda m, x: m.reshape(x, (x.size,)),
    "concatenate": lambda m, x: m.concatenate([x]),
    "broadcast_to": lambda m, x: m.broadcast_to(x, x.shape),
    "transpose": lambda m, x: m.transpose(x, tuple(range(x.ndim))),
    "moveaxis": lambda m, x: m.moveaxis(x, 0, 0),
    "swapaxes": lambda m, x: m.swapaxes(x, 0, 0),
    "power": lambda m, x: x**1,
    "+": lambda m, x: +x,
    ".real": lambda m, x: x.real,
    ".T": lambda m, x: x.T,
    ".conj": lambda m, x: x.conj(),
    ".flatten": lambda m, x: x.flatten(),
    ".squeeze": lambda m, x: x.squeeze(),
    ".sum": lambda m, x: x.sum(()),
    "diff": lambda m, x: m.diff(x, 0),
    "roll": lambda m, x: m.roll(x, 0),
    "tile": lambda m, x: m.tile(x, 1),
    "split": lambda m, x: m.split(x, 1)[0],
    "hstack": lambda m, x: m.hstack([x]),
    "[...]": lambda m, x: x[...],
    "[:]": lambda m, x: x[:],
    "full_like": lambda m, x: m.full_like(x, x),
    "meshgrid": lambda m, x: m.meshgrid(x.ravel())[0],
    "copy.copy": lambda m, x: copy.copy(x),
    "from_dlpack": lambda m, x: m.from_dlpack(x),
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_result_outlives_the_argument_where_jax_has_it_so(name: str, dtype: str) -> None:
    data = np.arange(4).astype(dtype)
    function = SAME[name]
    given = jnp.array(data)
    result = function(jnp, given)
    passed = given is (result[0] if isinstance(result, (list, tuple)) else result)
    for end in (fuser.Array.delete, fuser.jit(lambda x: x + 1, donate_argnums=0)):
        mine = fnp.array(data)
        out = leaves(function(fnp, mine))[0]
        assert passed or out is not mine
        if out is not mine:
            end(mine)
            np.testing.assert_array_equal(np.asarray(out), np.asarray(leaves(result)[0] if not passed else data))


@pytest.mark.parametrize("name", [n for n in SAME if n.isidentifier() and n not in PASSING])
def test_later_writes_to_an_ndarray_are_not_seen(name: str) -> None:
    data = np.arange(4, dtype=np.float32)
    out = leaves(SAME[name](fnp, data))[0]
    expected = np.array(out)
    data += 10
    np.testing.assert_array_equal(np.asarray(out), expected)


@pytest.mark.parametrize("kind", ["ndarray", "memoryview", "torch", "list of ndarrays"])
def test_array_copies_what_others_can_write_to(kind: str) -> None:
    torch = pytest.importorskip("torch") if kind == "torch" else None
    data = np.zeros(3, np.float32)
    made = {
        "ndarray": lambda: data,
        "memoryview": lambda: memoryview(data),
        "list of ndarrays": lambda: [data],
        "torch": lambda: torch.from_numpy(data),  # type: ignore[union-attr]
    }[kind]()
    arrays = [fnp.array(made), fnp.asarray(made, copy=True), fnp.array(made, np.float32)]
    data += 1
    assert [float(a.sum()) for a in arrays] == [0, 0, 0]


def test_captured_constants_and_results_of_one_call_are_apart() -> None:
    constant = fnp.arange(5000.0)
    give = fuser.jit(lambda: constant)
    both = fuser.jit(lambda x: (x, x, x + 1, x + 1, constant), donate_argnums=0)
    first = give()
    take = fuser.jit(lambda x: x * 0 - 1, donate_argnums=0)
    take(first)
    results = both(fnp.ones(5000))
    assert len({id(r) for r in results}) == 5
    take(results[0])
    take(results[2])
    results[4].delete()
    take(constant)
    assert (results[1] == 1).all() and (results[3] == 2).all()
    np.testing.assert_array_equal(np.asarray(give()), np.arange(5000.0, dtype=np.float32))
    np.testing.assert_array_equal(np.asarray(both(fnp.ones(5000))[4]), np.arange(5000.0, dtype=np.float32))


@pytest.mark.parametrize("view", [lambda x: x.reshape(50, 100), lambda x: x.ravel(), lambda x: x.squeeze(), copy.copy])
def test_donating_a_view_or_its_base_leaves_the_other(view: Callable[[Any], Any]) -> None:
    take = fuser.jit(lambda x: x * 0 - 1, donate_argnums=0)
    for which in (0, 1):
        base = fnp.arange(5000.0) + 0
        pair = [base, view(base)]
        del base
        expected = np.array(pair[1 - which])
        take(pair[which])
        assert pair[which].is_deleted()
        np.testing.assert_array_equal(np.asarray(pair[1 - which]), expected)
