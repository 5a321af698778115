"""ragged_all_to_all against its definition in NumPy, over devices, groups of them and lanes of vmap; derivatives and errors."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import P, lax

rng = np.random.default_rng(0)
LANES, ROWS, LENGTH, EACH = 4, 9, 14, 2  # EACH: slices from each lane to each other one


@pytest.fixture(autouse=True, scope="module")
def four_devices() -> Iterator[None]:
    saved = fuser.config.num_cpu_devices
    fuser.config.update("num_cpu_devices", LANES)
    yield
    fuser.config.update("num_cpu_devices", saved)


def exchange_of(lanes: int) -> tuple[Any, ...]:
    """Operands, outputs, and offsets and sizes of slices that do not overlap where they arrive."""
    operand = rng.normal(size=(lanes, ROWS, 3)).astype(np.float32)
    output = rng.normal(size=(lanes, LENGTH, 3)).astype(np.float32)
    sizes = rng.integers(0, 3, (lanes, lanes * EACH)).astype(np.int32)
    starts = rng.integers(0, ROWS - 2, sizes.shape).astype(np.int32)
    into = sizes.reshape(lanes, lanes, EACH)  # sender, receiver, slice
    places = np.zeros_like(into)
    for receiver in range(lanes):
        order = into[:, receiver].reshape(-1)
        places[:, receiver] = (np.cumsum(order) - order).reshape(lanes, EACH)
    sizes = np.where(places.reshape(sizes.shape) + sizes <= LENGTH, sizes, 0)
    received = sizes.reshape(lanes, lanes, EACH).transpose(1, 0, 2).reshape(lanes, -1)
    return operand, output, starts, sizes, places.reshape(sizes.shape), received


def defined(operand: Any, output: Any, starts: Any, sizes: Any, places: Any, received: Any) -> np.ndarray:
    """What each lane gets, slice by slice."""
    results, lanes = output.copy(), len(operand)
    for sender in range(lanes):
        for n, (start, size, place) in enumerate(zip(starts[sender], sizes[sender], places[sender])):
            results[n // (len(starts[sender]) // lanes), place : place + size] = operand[sender, start : start + size]
    return results


def over_devices(*given: Any) -> Any:
    mesh = fuser.make_mesh((LANES,), ("x",), axis_types=(fuser.sharding.AxisType.Auto,))

    def own(*parts: Any) -> Any:
        return lax.ragged_all_to_all(*(p[0] for p in parts), axis_name="x")[None]

    return fuser.shard_map(own, mesh=mesh, in_specs=(P("x"),) * 6, out_specs=P("x"))(*given)


def over_lanes(*given: Any) -> Any:
    return fuser.vmap(functools.partial(lax.ragged_all_to_all, axis_name="x"), axis_name="x")(*given)


@pytest.mark.parametrize("run", (over_devices, over_lanes))
def test_slices_arrive_where_they_should(run: Any) -> None:
    given = exchange_of(LANES)
    np.testing.assert_array_equal(np.asarray(run(*given)), defined(*given))
    np.testing.assert_array_equal(np.asarray(fuser.jit(run)(*given)), defined(*given))


def test_groups_of_devices() -> None:
    each = [exchange_of(2), exchange_of(2)]
    given = [np.concatenate(parts) for parts in zip(*each)]
    groups = [[0, 1], [2, 3]]
    run = fuser.pmap(functools.partial(lax.ragged_all_to_all, axis_name="x", axis_index_groups=groups), axis_name="x")
    np.testing.assert_array_equal(np.asarray(run(*given)), np.concatenate([defined(*g) for g in each]))


def test_gradients_go_back_the_same_ways() -> None:
    given = exchange_of(LANES)
    weights = rng.normal(size=given[1].shape).astype(np.float32)

    def loss(operand: Any, output: Any) -> Any:
        return (over_devices(operand, output, *given[2:]) * weights).sum()

    slopes = fuser.grad(loss, argnums=(0, 1))(*given[:2])
    for n, slope in enumerate(slopes):
        direction = rng.normal(size=given[n].shape).astype(np.float32)
        moved = list(given)
        moved[n] = direction
        moved[1 - n] = np.zeros_like(given[1 - n])
        want = (defined(*moved).astype(np.float64) * weights).sum()  # it is linear in both
        found = (np.asarray(slope, np.float64) * direction).sum()
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5 * np.abs(weights).sum())


def test_errors_name_the_argument() -> None:
    operand, output, *indices = (g[0] for g in exchange_of(LANES))
    run = lambda *given: fuser.vmap(
        lambda x: lax.ragged_all_to_all(x, *given, axis_name="x"), axis_name="x", axis_size=LANES, in_axes=None
    )(operand)
    with pytest.raises(ValueError, match="input_offsets must be integer type"):
        run(output, fnp.ones(4), *indices[1:])
    with pytest.raises(ValueError, match="recv_sizes must be rank 1"):
        run(output, *indices[:3], np.int32(3))
    with pytest.raises(ValueError, match="send_sizes must be as many as the lanes, 4"):
        run(output, indices[0], indices[1][:3], *indices[2:])
    with pytest.raises(ValueError, match="an operand and an output whose rows are alike"):
        run(output[:, :2], *indices)
