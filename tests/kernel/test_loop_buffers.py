"""Carries that a loop writes in place: which of them may be, and the results of those that may and of those that may not."""

from __future__ import annotations

import numpy as np
import pytest

import fuser
import fuser.numpy as jnp

SHAPE = (60, 80)


def stays(step, *state) -> list[bool]:
    """Of each carry of a loop over `step`, whether it is written in place."""
    run = lambda *state: fuser.lax.scan(lambda s, _: (step(jnp, *s), None), state, None, length=9)[0]
    groups = fuser.jit(run).lower(*state).plan.groups
    (buffers,) = (g.buffers for g in groups if g.bodies)
    assert len(buffers.slots) == len(state)
    assert buffers.in_place.isdisjoint(buffers.double)
    return [n in buffers.in_place for n in range(len(state))]


def field(number: int = 0) -> np.ndarray:
    return np.random.default_rng(number).standard_normal(SHAPE).astype(np.float32)


def waves(np, x, y):
    x = x.at[1:, :].add(-0.5 * (y[1:, :] - y[:-1, :]))
    return x, y.at[:-1, :].add(-0.5 * (x[1:, :] - x[:-1, :]))


def softmax(np, x):
    shifted = np.exp(x - x.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def test_a_carry_that_is_read_where_it_is_written() -> None:
    assert stays(waves, field(), field(1)) == [True, True]


def test_carries_that_are_read_elsewhere_or_later() -> None:
    shifted = lambda np, x, y: (x.at[1:-1].set(x[2:] + x[:-2]), y.at[1:].add(x[:-1]))
    assert stays(shifted, field(), field(1))[0] is False
    swapped = lambda np, x, y: (x.at[1:-1].set(0.5 * y[2:]), y.at[1:-1].set(0.5 * x[:-2]))
    assert stays(swapped, field(), field(1))[0] is False


def test_rows_that_wait_in_the_result() -> None:
    """A softmax keeps its exponentials in the result's rows, over which its operand would be lost."""
    assert stays(lambda np, x: (softmax(np, x),), field()) == [False]


STEPS = {
    "waves": waves,
    "shifted": lambda np, x, y: (x.at[1:-1].set(0.5 * (x[2:] + x[:-2])), y.at[1:].add(x[:-1])),
    "swapped": lambda np, x, y: (y.at[1:].mul(0.5), x.at[:-1].mul(0.5)),
    "normed": lambda np, x, y: (x.at[1:].add(-x[1:].mean(0)) / 2, y - y.max(1, keepdims=True) + x),
    "softmax": lambda np, x, y: (softmax(np, x) + y, y.at[2:].multiply(0.9)),
    "turned": lambda np, x, y: (x.at[:, :60].add(0.1 * x[:, :60].T), y.at[:, :79].set(y[:, 1:])),
    "the same twice": lambda np, x, y: (x + y, x + y),
    "one into both": lambda np, x, y: (x.at[1:].add(y[:-1]), x.at[:-1].add(y[1:])),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("length", [1, 2, 7])
def test_results(name, length) -> None:
    """As JAX's, for odd and even numbers of steps; the arguments stay as they are."""
    import jax

    step = STEPS[name]
    state = (field(), field(1))
    kept = [a.copy() for a in state]
    ours = fuser.jit(lambda *s: fuser.lax.scan(lambda s, _: (step(jnp, *s), None), s, None, length=length)[0])
    theirs = jax.jit(lambda *s: jax.lax.scan(lambda s, _: (step(jax.numpy, *s), None), s, None, length=length)[0])
    for _ in range(2):
        for a, b in zip(ours(*state), theirs(*state), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    for a, b in zip(state, kept, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_while_that_reads_what_it_overwrites() -> None:
    import jax

    state = (field(), np.float32(0))

    def run(lax, x, count):
        test = lambda s: (s[0][3, 4] * 0 + s[1]) < 6
        return lax.while_loop(test, lambda s: (s[0].at[1:].mul(0.5), s[1] + 1), (x, count))

    for a, b in zip(fuser.jit(lambda *s: run(fuser.lax, *s))(*state), jax.jit(lambda *s: run(jax.lax, *s))(*state)):
        np.testing.assert_allclose(a, b, rtol=1e-6)


NUMBERS = {
    "one after the other": lambda np, i, a, b, x: (i + 1, b, a + np.tanh(b), x.at[i % 7].add(a)),
    "swapped": lambda np, i, a, b, x: (i + 1, b * 0.5 + x[0], a - x[i % 7], x.at[i % 7].set(b)),
    "the same twice": lambda np, i, a, b, x: (i + 1, a + b, a + b, x.at[i % 7].mul(a)),
    "at what is carried": lambda np, i, a, b, x: ((i + x[i % 7].astype(int)) % 5, b + x[i % 3], a, x.at[i].set(a - b)),
    "of products": lambda np, i, a, b, x: (i + 1, (x @ x)[None][0], np.sin(a) * b, x.at[i % 7].set(np.cos(x @ x))),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("kind", ["while", "scan"])
def test_numbers_that_are_carried_beside_arrays(name, kind) -> None:
    """A native loop keeps them in variables: steps read the old ones until all new ones are computed."""
    import jax

    def run(module, i, a, b, x):
        step = lambda s: NUMBERS[name](module.numpy, *s)
        if kind == "scan":
            return module.lax.scan(lambda s, _: (step(s), (s[1], s[3][0])), (i, a, b, x), None, length=9)
        state = module.lax.while_loop(lambda s: s[0] < 9, lambda s: (s[0] + 1, step(s[1])), (0, (i, a, b, x)))
        return state, state

    state = np.int32(1), np.float32(0.3), np.float32(-0.7), np.linspace(0.1, 2.9, 7, dtype=np.float32)
    for args in (state, (*state[:2], state[1], state[3])):
        results = fuser.jit(lambda *s: run(fuser, *s))(*args)
        expected = jax.jit(lambda *s: run(jax, *s))(*args)
        for ours, theirs in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-4, atol=1e-5)


def insertion_sort(lax, np, x):
    def step(i, x):
        new = x[i]
        after = lambda s: (s[0] > 0) & (s[1][s[0] - 1] > new)
        place, x = lax.while_loop(after, lambda s: (s[0] - 1, s[1].at[s[0]].set(s[1][s[0] - 1])), (i, x))
        return x.at[place].set(new)

    return lax.fori_loop(1, x.size, step, x)


def union_find(lax, np, x):
    def root(parents, k):
        halve = lambda s: (s[1][s[1][s[0]]], s[1].at[s[0]].set(s[1][s[1][s[0]]]))
        return lax.while_loop(lambda s: s[1][s[0]] != s[0], halve, (k, parents))

    def join(i, parents):
        first, parents = root(parents, i)
        second, parents = root(parents, (i * 37 + 11) % 200)
        return parents.at[first].set(second)

    return lax.fori_loop(0, 90, join, np.arange(200))


def heap(lax, np, x):
    """Numbers are pushed one by one: a write, then a loop that swaps; the start is weakly typed."""

    def push(i, heap):
        heap = heap.at[i].set(x[i])
        above = lambda k: (k - 1) // 2

        def swapped(s):
            k, h = s
            return above(k), h.at[k].set(h[above(k)]).at[above(k)].set(h[k])

        return lax.while_loop(lambda s: (s[0] > 0) & (s[1][above(s[0])] > s[1][s[0]]), swapped, (i, heap))[1]

    return lax.fori_loop(0, 150, push, np.full(300, np.inf))


def written_before_and_read_later(lax, np, x):
    """What was written before the loop inside is read again when that has run in the program: it is read before that runs."""

    def step(i, x):
        start = x.at[i].set(2.0).at[i + 1].add(x[i])
        new = lax.fori_loop(0, 3, lambda j, x: x.at[i + 2 * j].add(x[j]), start)
        return new.at[3].set(start[i + 2])

    return lax.fori_loop(0, 20, step, x)


def read_after(lax, np, x):
    """Elements of what the loop inside gives are read before one is written, and of the old carry too: that one moves."""

    def step(i, x):
        new = lax.fori_loop(0, 3, lambda j, x: x.at[i + 2 * j].add(x[j]), x)
        return new.at[i].set(new[i + 1] + x[i + 2])

    return lax.fori_loop(0, 20, step, x)


def kept_as_rows(lax, np, x):
    """What the loop inside gives is a result of each step as well, without what is written then."""

    def step(x, i):
        new = lax.fori_loop(0, 3, lambda j, x: x.at[i + 2 * j].add(x[j]), x)
        return new.at[i].set(-1.0), (new, new[::-1])

    return lax.scan(step, x, np.arange(5))


def scaled_between(lax, np, x):
    def step(i, x):
        x = lax.fori_loop(0, 3, lambda j, x: x.at[i + j].multiply(0.5), x) * 0.9
        return lax.fori_loop(0, 2, lambda j, x: x.at[i - j].add(1.0), x).at[3 * i].set(x[i])

    return lax.fori_loop(0, 20, step, x)


def as_constant_too(lax, np, x):
    """The loop inside reads the carry as it was."""
    inner = lambda x: lax.fori_loop(0, 4, lambda j, y: y.at[2 * j + 1].add(x[j + 1]), x)
    return lax.fori_loop(0, 9, lambda i, x: inner(x).at[i].multiply(2.0), x)


def three_deep(lax, np, x):
    deepest = lambda i, j, x: lax.fori_loop(0, 3, lambda k, x: x.at[i + j * k].add(0.25), x)
    middle = lambda i, x: lax.fori_loop(0, 4, lambda j, x: deepest(i, j, x).at[i * j].set(x[j]), x)
    return lax.fori_loop(0, 10, lambda i, x: middle(i, x).at[i + 1].multiply(0.5), x)


def loops_in_branches(lax, np, x):
    """Loops that one branch runs, and a write after the choice."""

    def step(i, x):
        sift = lambda x: lax.fori_loop(0, 3, lambda j, x: x.at[2 * i + j].add(x[j]), x)
        shift = lambda x: lax.fori_loop(0, 2, lambda j, x: x.at[i + j].multiply(-0.5), x)
        x = lax.switch((x[i] > 0) + i % 2, [lambda x: x, sift, shift], x)
        return x.at[i + 3].set(x[i])

    return lax.fori_loop(0, 30, step, x)


def branches_that_read_both(lax, np, x):
    """A branch that reads the operand besides what it writes over it, and one that gives another operand."""

    def step(i, s):
        x, y = s
        sift = lambda x, y: (lax.fori_loop(0, 3, lambda j, z: z.at[i + j].add(x[j] + y[i]), x), y)
        return lax.cond(x[i] > 0, sift, lambda x, y: (y, x), x, y)

    return lax.fori_loop(0, 30, step, (x, x[::-1] * 0.5))


def rows_of_a_table(lax, np, x):
    def step(i, t):
        t = lax.fori_loop(0, 3, lambda j, t: t.at[i + j].multiply(0.9), t)
        return lax.dynamic_update_slice(t, t[i][None] + 1, (i + 2, 0))

    return lax.fori_loop(0, 15, step, x.reshape(50, 4))


# The program, and whether its loop's array stays where it is.
NESTED = {
    "insertion sort": (insertion_sort, True),
    "union find": (union_find, True),
    "heap": (heap, True),
    "written before, read later": (written_before_and_read_later, True),
    "read after": (read_after, False),
    "kept as rows": (kept_as_rows, False),
    "scaled between": (scaled_between, None),
    "as constant too": (as_constant_too, False),
    "three deep": (three_deep, None),
    "rows": (rows_of_a_table, True),
    "loops in branches": (loops_in_branches, True),
    "branches that read both": (branches_that_read_both, False),
}


@pytest.mark.parametrize("name", NESTED)
def test_loops_inside_that_write_elements(name) -> None:
    """They go on in the memory of the carry, and so do writes after them; as JAX, with the arguments as they were."""
    import jax

    program, wanted = NESTED[name]
    x = np.random.default_rng(3).standard_normal(200).astype(np.float32)
    kept = x.copy()
    ours = fuser.jit(lambda x: program(fuser.lax, jnp, x))
    theirs = jax.jit(lambda x: program(jax.lax, jax.numpy, x))
    for _ in range(2):
        for a, b in zip(fuser.tree_util.tree_leaves(ours(x)), jax.tree_util.tree_leaves(theirs(x)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(x, kept)
    if wanted is not None:
        [buffers] = [g.buffers for g in ours.lower(x).plan.groups if g.buffers is not None]
        arrays = {n for n, v in enumerate(_carries(ours, x)) if v.aval.size > 1}
        still = arrays - set(buffers.slots) | arrays & buffers.in_place
        assert (still == arrays) is wanted


def _carries(function, x):
    [loop] = [g.graph.eqns[-1] for g in function.lower(x).plan.groups if g.buffers is not None]
    return loop.outvars[: loop.params["num_carry"]]
