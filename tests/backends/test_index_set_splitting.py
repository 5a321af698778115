"""Kernels cut where the answers to their tests of position change: what is cut, what each piece still asks, NumPy's numbers."""

from __future__ import annotations

import functools
import re

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuser
import fuser.numpy as jnp
from fuser.backends.c.schedules.index_set_splitting import MOST, index_set_split
from fuser.kernel.index_set_splitting import Cut
from fuser.kernel.kernel import Kernel
from fuser.kernel.loops import arrange
from fuser.kernel.lower import lower

TESTS = ("lt", "le", "gt", "ge", "eq", "ne", "select")


def kernel(function, *arguments) -> Kernel:
    """The only kernel of a function."""
    (group,) = fuser.jit(function).lower(*arguments).plan.groups
    return lower(group)


def cut(function, *arguments) -> Cut:
    found = kernel(function, *arguments)
    result = index_set_split(found, arrange(found))
    assert result is not None
    return result


def asks(piece: Cut) -> list[str]:
    return [n.op for n in piece.nodes if n.op in TESTS or (n.op == "load" and n.args)]


def field(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


def sweep(u):
    u = u.at[1:-1, 1:-1].set(0.25 * (u[1:-1, 2:] + u[1:-1, :-2] + u[2:, 1:-1] + u[:-2, 1:-1]))
    u = u.at[:, -1].set(u[:, -2])
    u = u.at[0, :].set(u[1, :])
    u = u.at[:, 0].set(u[:, 1])
    return u.at[-1, :].set(0.0)


def plain(u):
    u = u.copy()
    u[1:-1, 1:-1] = 0.25 * (u[1:-1, 2:] + u[1:-1, :-2] + u[2:, 1:-1] + u[:-2, 1:-1])
    u[:, -1], u[0, :], u[:, 0], u[-1, :] = u[:, -2], u[1, :], u[:, 1], 0.0
    return u


def test_pieces_know_where_they_are() -> None:
    """Rim and inside of a field: nine pieces at most, and none asks any more where it is."""
    found = cut(sweep, field(40, 50))
    assert 5 <= len(found.whole) <= 9
    assert all(not asks(piece) for piece in found.whole)


def test_equal_neighbours_are_one_piece() -> None:
    """Where an answer makes no difference nothing is cut: two updates of the same rows by the same number."""
    found = cut(lambda u: u.at[3:6].set(2.0).at[6:9].set(2.0), field(40, 50))
    assert len(found.whole) == 3


def test_what_is_not_cut() -> None:
    u = field(40, 50)
    for function in (lambda u: u + 1, lambda u: jnp.where(u > 3, u, 0), lambda u: u[1:] - u[:-1]):
        found = kernel(function, u)
        assert index_set_split(found, arrange(found)) is None
    many = kernel(
        lambda u: functools.reduce(lambda v, n: v.at[n, 0].set(n) * 2, range(0, 2 * MOST, 2), u), field(90, 50)
    )
    assert index_set_split(many, arrange(many)) is None


def test_a_start_that_is_computed_stays_a_test() -> None:
    """Only what is known when the kernel is written can be cut at; the rest is still asked, and right."""
    u, k = field(40, 50), np.int32(7)
    run = fuser.jit(lambda u, k: fuser.lax.dynamic_update_slice(u.at[:, 0].set(1.0), u[:3, :4] * 2, (k, k)))
    expected = u.copy()
    expected[:, 0] = 1
    expected[7:10, 7:11] = u[:3, :4] * 2
    np.testing.assert_array_equal(run(u, k), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8])
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (17, 64), (64, 17), (150, 151)])
def test_rims(dtype, shape) -> None:
    u = field(*shape, dtype=dtype)
    np.testing.assert_array_equal(fuser.jit(sweep)(u.astype(np.float32)), plain(u.astype(np.float32)))
    result = fuser.jit(lambda u: jnp.pad(u, ((1, 2), (3, 0)), constant_values=7) + 1)(u)
    np.testing.assert_array_equal(result, np.pad(u, ((1, 2), (3, 0)), constant_values=7) + dtype(1))


def test_positions_as_numbers() -> None:
    """Comparisons of an iota, from both sides, converted, and multiplied by a negative number through a reversal."""
    count = 70
    place = np.arange(count, dtype=np.int32)

    def function(np, x, place):
        y = np.where(place < 3, x, -x)
        y = np.where(np.asarray(5, np.int32) >= place, y, y + 1)
        y = np.where(place == 9, 0, y)
        y = np.where(place[::-1] > 60, y * 2, y)
        return np.where(place.astype("int8") != 11, y, 100)

    x = field(count)
    found = cut(lambda x: function(jnp, x, jnp.arange(count, dtype=jnp.int32)), x)
    assert all(not asks(piece) for piece in found.whole)
    result = fuser.jit(lambda x: function(jnp, x, jnp.arange(count, dtype=jnp.int32)))(x)
    np.testing.assert_array_equal(result, function(np, x, place))


def test_a_loop_of_steps() -> None:
    u = field(101, 101)
    expected = u
    for _ in range(20):
        expected = plain(expected)
    result = fuser.jit(lambda u: fuser.lax.fori_loop(0, 20, lambda _, u: sweep(u), u))(u)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=3), st.data())
def test_random_updates(shape, data) -> None:
    """A chain of updates of random parts, each by what the one before has left."""
    parts = []
    for _ in range(data.draw(st.integers(1, 3))):
        ends = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
        parts.append(tuple(slice(a, max(b, a + 1) if a < n else b) for (a, b), n in zip(ends, shape)))
    u = field(*shape)

    def function(u):
        for number, part in enumerate(parts):
            u = u.at[part].set(u[part][..., ::-1] * 2 + number)
        return u

    expected = u.copy()
    for number, part in enumerate(parts):
        expected[part] = expected[part][..., ::-1] * 2 + number
    np.testing.assert_array_equal(fuser.jit(function)(u), expected)


def test_equal_quotients_share_their_divisor() -> None:
    """A compiler divides but once where it knows that two divisors are one."""

    def scaled(z, *blocks):
        for x in blocks:
            z = z * jnp.repeat(x, 50, axis=0)
        return z

    z, blocks = np.zeros((2000, 16), np.float32), [np.zeros((40, 16), np.float32)] * 12
    [last] = fuser.jit(scaled).lower(z, *blocks).sources
    divisors = re.findall(r"/ (\w+)\)", last.text)
    assert len(divisors) > 10 and len(set(divisors)) == 1, last.text


PADDED_BESIDE_SUMS = {
    "a part": lambda x, y, z: x.sum(0) + jnp.pad(z, (0, 192)),
    "a sum": lambda x, y, z: x.sum(0) + jnp.pad(y.sum(0), (0, 192)),
    "and the rows": lambda x, y, z: (x.sum(0) + jnp.pad(z, (0, 192)), x * 2),
    "two sums": lambda x, y, z: ((x * x).sum(0) + jnp.pad(z, (0, 192)), x.sum(0) + jnp.pad(z, (64, 128))),
    "the gradient of slices": fuser.grad(lambda s, x, y: ((y * s[:64]) ** 2).sum() + ((x * s) ** 2).sum(), argnums=0),
}


@pytest.mark.parametrize("name", PADDED_BESIDE_SUMS)
def test_a_sum_added_to_a_padded_part(name: str) -> None:
    """What stands after a sum is priced in pieces, between the ends of the part."""
    rng = np.random.default_rng(0)
    x, y, z = (rng.standard_normal(shape).astype(np.float32) for shape in ((6272, 256), (6272, 64), (64,)))
    function = PADDED_BESIDE_SUMS[name]
    args = (rng.standard_normal(256).astype(np.float32), x, y) if "slices" in name else (x, y, z)
    found = fuser.jit(function, backend="c")(*args)
    with fuser.config.using(enable_x64=True):
        exact = fuser.jit(function, backend="reference")(*(a.astype(np.float64) for a in args))
    for one, wanted in zip(fuser.tree.leaves(found), fuser.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(wanted), rtol=2e-5, atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("extreme", ["max", "min"])
def test_places_of_windows_outside_of_an_array_are_not_compared_with(extreme: str, dtype: type) -> None:
    """What an extreme begins with changes none; nan and both zeros are kept."""
    x = field(9, 12, dtype=dtype)
    if dtype is not np.int16:
        x[0, :4] = [-0.0, 0.0, -0.0, np.nan]
        x[8, 7:9] = [0.0, -0.0]
    identity = {"max": -np.inf, "min": np.inf} if dtype is not np.int16 else {"max": -32768, "min": 32767}

    def run(lax, x):
        return lax.reduce_window(x, dtype(identity[extreme]), getattr(lax, extreme), (3, 3), (1, 1), "SAME")

    pieces = cut(lambda x: run(fuser.lax, x), x).whole
    assert len(pieces) > 3 and not any(n.op == "const" for piece in pieces for n in piece.nodes)
    with jax.enable_x64(True), fuser.config.using(enable_x64=True):
        ours, theirs = np.asarray(fuser.jit(lambda x: run(fuser.lax, x))(x)), np.asarray(run(jax.lax, x))
    np.testing.assert_array_equal(ours, theirs)
    if dtype is not np.int16:
        np.testing.assert_array_equal(np.signbit(ours)[~np.isnan(ours)], np.signbit(theirs)[~np.isnan(ours)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int16])
@pytest.mark.parametrize("kind", ["maximum", "minimum"])
def test_extremes_of_single_elements_at_rims_order_zeros_and_keep_nan(kind: str, dtype: type) -> None:
    """At rims pieces of one element choose by an instruction, within by what vectors have: bits are the same."""

    def neighbours(x):
        padded = jnp.pad(x, 1, mode="edge")
        found = x
        for i in range(3):
            for j in range(3):
                found = getattr(jnp, kind)(found, padded[i : i + x.shape[0], j : j + x.shape[1]])
        return found

    values = np.array([0.0, -0.0, *((3, 2, -2) if dtype is np.int16 else (np.nan, np.inf, -np.inf)), 1.0, -1.0], dtype)
    for seed, shape in enumerate([(3, 3), (5, 40), (40, 5), (23, 70)]):
        x = np.random.default_rng(seed).choice(values, shape, p=[0.4, 0.4, 0.02, 0.02, 0.02, 0.07, 0.07])
        got, want = (np.asarray(fuser.jit(neighbours, backend=backend)(x)) for backend in ("c", "reference"))
        np.testing.assert_array_equal(got, want)
        known = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])
