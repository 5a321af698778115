"""Values that a kernel writes into a larger array at once, against NumPy; and when they keep an array of their own."""

import numpy as np
import pytest

import fuser
import fuser.numpy as jnp
from fuser.lax import dynamic_update_slice, fori_loop
from fuser.partition.group import Kind
from fuser.partition.update_frames import frame

RNG = np.random.default_rng(7)


def smoothed(u, place, exp=np.exp):
    """A value of as many elements as the place has, read at two shifts, which is too dear to compute twice."""
    low = tuple(slice(0, last - first) for first, last in place)
    high = tuple(slice(extent - (last - first), None) for extent, (first, last) in zip(u.shape, place))
    return u[low] * exp(-(u[low] ** 2)) + u[high] * exp(-(u[high] ** 2))


def updated(u, place):
    """The array with the value in its place, and whether any of it is large."""
    value = smoothed(u, place, jnp.exp)
    return dynamic_update_slice(u, value, [first for first, _ in place]), (value > 1e30).any()


PLACES = (
    ((70_001,), ((1, 70_000),)),
    ((70_001,), ((0, 70_000),)),
    ((300, 301), ((1, 299), (1, 300))),
    ((300, 301), ((0, 300), (2, 300))),
    ((299, 257), ((5, 299), (0, 257))),
    ((3, 260, 256), ((0, 3), (1, 259), (1, 255))),
    ((5, 190, 194), ((2, 5), (0, 189), (100, 194))),
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "place"), PLACES)
def test_a_value_beside_its_reduction_is_written_where_it_belongs(shape, place, dtype):
    u = (RNG.normal(size=shape) * 10).astype(dtype)
    with fuser.enable_x64():
        function = fuser.jit(lambda u: updated(u, place))
        lowered = function.lower(u)
        found, flag = map(np.asarray, function(u))
    wanted = u.copy()
    wanted[tuple(slice(*side) for side in place)] = smoothed(u, place)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 if dtype == "float32" else 1e-12)
    around = np.ones(shape, bool)
    around[tuple(slice(*side) for side in place)] = False
    np.testing.assert_array_equal(found[around], u[around])
    assert not flag
    assert [group.kind for group in lowered.plan.groups] == [Kind.REDUCTION]
    assert sum(group.ideal_bytes for group in lowered.plan.groups) == 2 * u.nbytes + 1


def test_an_update_of_computed_zeros_has_a_frame_of_zeros():
    u = RNG.normal(size=(300, 300)).astype(np.float32)

    def function(u):
        value = u[1:-1, 1:-1] + u[2:, 1:-1]
        return jnp.zeros_like(u).at[1:-1, 1:-1].set(value), value.max()

    found, most = map(np.asarray, fuser.jit(function)(u))
    wanted = np.zeros_like(u)
    wanted[1:-1, 1:-1] = u[1:-1, 1:-1] + u[2:, 1:-1]
    np.testing.assert_array_equal(found, wanted)
    assert most == wanted[1:-1, 1:-1].max()


def test_a_value_that_is_needed_itself_keeps_its_array():
    u = RNG.normal(size=(300, 300)).astype(np.float32)

    def function(u):
        value = u[1:-1, 1:-1] + u[2:, 1:-1]
        return u.at[1:-1, 1:-1].set(value), value.max(), value

    lowered = fuser.jit(function).lower(u)
    found, most, value = map(np.asarray, fuser.jit(function)(u))
    np.testing.assert_array_equal(value, u[1:-1, 1:-1] + u[2:, 1:-1])
    np.testing.assert_array_equal(found[1:-1, 1:-1], value)
    np.testing.assert_array_equal(found[0], u[0])
    assert most == value.max()
    assert all(value.nbytes <= group.ideal_bytes for group in lowered.plan.groups)


def test_an_array_that_depends_on_the_value_is_updated_afterwards():
    u = RNG.normal(size=(300, 300)).astype(np.float32)

    def function(u):
        value = u[1:-1, 1:-1] + u[2:, 1:-1]
        most = value.max()
        base = jnp.cumsum(u, axis=0) + most
        return base.at[1:-1, 1:-1].set(value)

    found = np.asarray(fuser.jit(function)(u))
    value = u[1:-1, 1:-1] + u[2:, 1:-1]
    wanted = np.cumsum(u.astype(np.float64), axis=0) + value.max()
    wanted[1:-1, 1:-1] = value
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_rounds_of_updates_in_a_loop_and_written_out():
    u = RNG.normal(size=(300, 310)).astype(np.float32)

    def step(u):
        flow = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        return u.at[1:-1, 1:-1].add(0.1 * flow), jnp.isfinite(flow).all()

    def written_out(u):
        fine = True
        for _ in range(3):
            u, finite = step(u)
            fine = fine & finite
        return u, fine

    def looped(u):
        def body(_, carry):
            u, fine = carry
            u, finite = step(u)
            return u, fine & finite

        return fori_loop(0, 3, body, (u, jnp.asarray(True)))

    wanted = u.astype(np.float64)
    for _ in range(3):
        flow = wanted[2:, 1:-1] + wanted[:-2, 1:-1] + wanted[1:-1, 2:] + wanted[1:-1, :-2] - 4 * wanted[1:-1, 1:-1]
        wanted[1:-1, 1:-1] = wanted[1:-1, 1:-1] + 0.1 * flow
    for function in (written_out, looped):
        found, fine = fuser.jit(function)(u)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-5)
        assert bool(fine)


@pytest.mark.parametrize(("shape", "place"), PLACES)
def test_a_frame_and_its_inside_are_the_array_once(shape, place):
    count = np.zeros(shape, int)
    for box in [place, *frame(shape, place)]:
        count[tuple(slice(*side) for side in box)] += 1
    assert (count == 1).all()
