"""Updates of donated arrays: the values are JAX's, and the part alone is written, in the memory that was given away."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.partition.donated_updates import LEAST
from fuser.partition.group import Kind

ROWS, COLUMNS = 300, 250
X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
ROW = np.arange(COLUMNS, dtype=np.float32)
PLACES = np.array([3, -2, 299, 3, 500, 7], np.int32)
assert X.nbytes >= LEAST


def bubbled(lib: Any) -> Any:
    def step(i: Any, x: Any) -> Any:
        return x.at[i, i].set(x[i, 0] + i)

    return lambda x: lib.fori_loop(0, 200, step, x)


# Functions of the array module, of the module with loops and of the arrays; the first result takes over the first array's memory.
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "window": (lambda np_, lib: lambda x, y: x.at[5:60, 7:70].set(y[:55, :63] * 2), (X[:60] + 1,)),
    "window added": (lambda np_, lib: lambda x, y: x.at[5:60, 7:70].add(y[:55, :63]), (X[:60] + 1,)),
    "window of what lies there": (
        lambda np_, lib: lambda x: x.at[5:-60, 70:].set(np_.tanh(x[5:-60, 70:]) - x[5:-60, 70:]),
        (),
    ),
    "most of the rows": (lambda np_, lib: lambda x, y: x.at[:200].set(x[:200] * 0.5 + y), (ROW,)),
    "window of its neighbours": (lambda np_, lib: lambda x: x.at[1:-1].set(x[2:] * 2), ()),
    "window of a window, which is a result too": (
        lambda np_, lib: lambda x: (x.at[3:9].set(part := x[3:9] * 2), part + 1),
        (),
    ),
    "row of the array itself": (lambda np_, lib: lambda x: x.at[3].set(x[2] * 2 + x[3]), ()),
    "column of a number": (lambda np_, lib: lambda x: x.at[:, 3].set(1.0), ()),
    "row at an index": (lambda np_, lib: lambda x, i, y: x.at[i].set(y), (np.int32(-7), ROW)),
    "row at an index outside": (lambda np_, lib: lambda x, i, y: x.at[i].add(y), (np.int32(1000), ROW)),
    "element at indices": (lambda np_, lib: lambda x, i: x.at[i, i + 1].multiply(3), (np.int32(7),)),
    "rows at indices": (lambda np_, lib: lambda x, i: x.at[i].add(1.5), (PLACES,)),
    "elements at indices": (lambda np_, lib: lambda x, i: x.at[i, i].max(0.5), (PLACES,)),
    "update that is moved inside": (
        lambda np_, lib: lambda x, y: lib.dynamic_update_slice(x, y, (280, -5)),
        (X[:50, :20] * 2,),
    ),
    "two": (lambda np_, lib: lambda x, y: x.at[3].set(y).at[:, 5].add(2.0), (ROW,)),
    "three, the second of most of it": (
        lambda np_, lib: lambda x, y: x.at[3].set(y).at[1:].multiply(2.0).at[:, 5].add(2.0),
        (ROW,),
    ),
    "what others read before and after": (
        lambda np_, lib: lambda x, y: ((new := x.at[9].set(y)), x.sum(), new[:20].sum(), x[8:11] * 2),
        (ROW,),
    ),
    "elements by a loop": (lambda np_, lib: bubbled(lib), ()),
    "a cache and what attends to it": (
        lambda np_, lib: (
            lambda cache, i, k: (
                (new := lib.dynamic_update_slice(cache, k[None], (i, np_.int32(0)))),
                np_.where(np_.arange(ROWS) <= i, new @ k, -np_.inf).max(),
            )
        ),
        (np.int32(40), ROW),
    ),
}
COPIED = ("three, the second of most of it", "window of its neighbours")  # as their values read what others overwrite


def leaves(results: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_jax_and_lie_in_the_memory_given_away(name: str) -> None:
    make, others = CASES[name]
    expected = leaves(jax.jit(make(jnp, jax.lax))(X, *others))
    compiled = fuser.jit(make(fnp, lax), donate_argnums=0, backend="c")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that memory is given away in vain
        for _ in range(2):  # the second call finds memory that the first has given back
            given = fnp.array(X)
            place = given.unsafe_buffer_pointer()
            results = compiled(given, *others)
            first = results[0] if isinstance(results, tuple) else results
            if name not in COPIED:
                assert first.unsafe_buffer_pointer() == place
            for found, want in zip(leaves(results), expected, strict=True):
                np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(leaves(compiled(X, *others))[0], expected[0], rtol=2e-5, atol=1e-5)  # NumPy's is copied


def test_arrays_that_read_each_other_before_their_updates_have_an_order() -> None:
    """What reads one array needs the other one updated, and the other way round: one of them is copied."""

    def both(x: Any, y: Any) -> Any:
        new_x, new_y = x.at[0].set(0.0), y.at[1].set(1.0)
        return new_x, new_y, (x + new_y).sum(1), (y * new_x).sum(1)

    given = [fnp.array(X), fnp.array(X * 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that one is given away in vain
        found = fuser.jit(both, donate_argnums=(0, 1), backend="c")(*given)
    for a, b in zip(leaves(found), leaves(jax.jit(both)(jnp.asarray(X), jnp.asarray(X * 2))), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-4)


@pytest.mark.parametrize("name", ("window added", "row at an index", "column of a number", "two"))
def test_only_what_is_given_away_is_updated_by_a_step_of_its_own(name: str) -> None:
    make, others = CASES[name]
    steps = lambda **how: [g.kind for g in fuser.jit(make(fnp, lax), backend="c", **how).lower(X, *others).plan.groups]
    assert Kind.CONTROL in steps(donate_argnums=0)
    assert Kind.CONTROL not in steps()
    small = fuser.jit(lambda x: x.at[3].set(0.0), donate_argnums=0, backend="c").lower(X[:20])
    assert [g.kind for g in small.plan.groups] == [Kind.ELEMENTWISE]


@pytest.mark.parametrize("name", ("window", "window of what lies there", "most of the rows"))
def test_what_is_computed_for_a_window_is_written_there_at_once(name: str) -> None:
    make, others = CASES[name]
    lowered = fuser.jit(make(fnp, lax), donate_argnums=0, backend="c").lower(X, *others)
    [group] = lowered.plan.groups
    assert group.kind is Kind.ELEMENTWISE
    assert lowered.plan.reuse == {lowered.plan.slot_of[group.graph.outvars[0]]: 0}


def updated_twice(np_: Any, lib: Any) -> Any:
    """Each step writes most of a carry, and most of an array that the next step reads anew."""

    def program(x: Any, fixed: Any, ys: Any) -> Any:
        def step(carry: Any, y: Any) -> Any:
            x, total = carry
            new = fixed.at[20:].set(fixed[20:] * y)
            return (x.at[10:].set(x[10:] * 0.5 + y), total + new * 0.5), new[30]

        return lib.scan(step, (x, np_.zeros_like(x)), ys)

    return program


@pytest.mark.parametrize("donated", ((), (0,), (0, 1)))
def test_steps_of_a_loop_write_most_of_their_carries_and_leave_what_they_read(donated: tuple[int, ...]) -> None:
    ys = np.random.default_rng(1).standard_normal((7, COLUMNS)).astype(np.float32)
    (x, total), rows = jax.jit(updated_twice(jnp, jax.lax))(X, X + 1, ys)
    compiled = fuser.jit(updated_twice(fnp, lax), backend="c", donate_argnums=donated)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing takes over what is only read
        (a, b), c = compiled(fnp.array(X), fnp.array(X + 1), ys)
    for found, wanted in ((a, x), (b, total), (c, rows)):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=2e-5, atol=1e-4)


def test_an_array_that_the_caller_keeps_stays_as_it_is() -> None:
    x = fnp.array(X)
    update = fuser.jit(lambda x, i: x.at[i].set(0.0), donate_argnums=0, backend="c")
    changed = fuser.jit(lambda x: update(x, 3) + x.sum(), backend="c")(x)
    np.testing.assert_array_equal(np.asarray(x), X)
    expected = X.copy()
    expected[3] = 0
    np.testing.assert_allclose(np.asarray(changed), expected + X.sum(), rtol=1e-5, atol=1e-3)
