"""Unrolling by a small period: which kernels become loops over periods, and that all elements are there, whatever the extent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.ir.index import Div
from fuser.ir.target import CORE
from fuser.kernel.kernel import Kernel
from fuser.kernel.lower import lower
from fuser.kernel.unroll_residues import unroll_residues

RNG = np.random.default_rng(0)


def pieces(program: Callable[..., Any], *args: Any) -> tuple[Kernel, ...]:
    (group,) = fuser.jit(program).lower(*args).plan.kernels
    return unroll_residues(lower(group), CORE)


def stacked(m: Any, count: int) -> Callable[..., Any]:
    return lambda x, y: m.stack([(x * (k + 1) - y if k % 2 else m.maximum(x, y) + k) for k in range(count)], -1)


PROGRAMS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    **{f"stack of {n}": (lambda m, n=n: stacked(m, n)) for n in (2, 3, 4, 5, 8)},
    "interleaved": lambda m: lambda x, y: m.stack([x, y], 1).reshape(-1) * 2,
    "joined pairs": lambda m: lambda x, y: m.concatenate([x[:, None] + y[:, None], m.stack([x, y], 1)], 1),
    "repeated": lambda m: lambda x, y: m.repeat(x, 3) + m.repeat(y, 3),
    "halves": lambda m: lambda x, y: m.concatenate([x[::2], y[1::2]]),
    "swapped neighbours": lambda m: lambda x, y: (x - y)[: len(x) // 2 * 2].reshape(-1, 2)[:, ::-1].reshape(-1),
    "squares": lambda m: lambda x, y: m.where(m.arange(len(x)) % 2 == 0, x * x, y),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_all_elements_are_there(name: str, dtype: str) -> None:
    for size in (0, 1, 7, 64, 1001):
        x, y = (RNG.integers(-9, 9, size).astype(dtype) for _ in range(2))
        found, expected = fuser.jit(PROGRAMS[name](fnp))(x, y), PROGRAMS[name](np)(x, y)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("extent", [1, 2, 3, 40, 41, 300])
@pytest.mark.parametrize("step", [2, 3, 4, 5, 9])
def test_strided_updates(extent: int, step: int) -> None:
    t = RNG.standard_normal((19, extent)).astype(np.float32)

    def program(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        e, f = t.copy(), t.copy()
        e[:, ::step] *= -1
        f[1::step] = t[1::step] + e[1::step]
        return e, f

    for found, expected in zip(fuser.accelerate(program)(t), program(t), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_complex_numbers_and_whole_rows() -> None:
    z = (RNG.standard_normal((50, 3)) + 1j).astype(np.complex64)
    found = fuser.jit(lambda z: fnp.stack([z, z * 2j], -1))(z)
    np.testing.assert_allclose(found, np.stack([z, z * 2j], -1), rtol=1e-6)


def test_which_kernels_are_unrolled() -> None:
    x, y = np.ones(1000, np.float32), np.ones(1000, np.float32)
    for count in (2, 3, 4):
        (kernel,) = pieces(stacked(fnp, count), x, y)
        assert [axis.extent for axis in kernel.parallel] == [1000] and len(kernel.stores) == count
        assert not any(node.op in ("index", "select") for node in kernel.nodes)
    main, rest = pieces(lambda t: lax.pad(t, 0.0, ((0, 0, 0), (0, 0, 1))) * 2, np.ones((40, 21), np.float32))
    assert [a.extent for a in main.parallel] == [40, 20] and [a.extent for a in rest.parallel] == [40]
    assert not any(isinstance(atom, Div) for s in main.stores for atom in s.offset.atoms)
    for program in (lambda x, y: x + y, lambda x, y: fnp.concatenate([x, y])):
        assert len(pieces(program, x, y)) == 1 and len(pieces(program, x, y)[0].stores) == 1


def test_phases_along_outer_axes_know_their_taps() -> None:
    """Zeros between elements along two axes of which neither is the vector's: four stores, and no question of the place."""
    x = np.ones((9, 8, 32), np.float32)
    spread = lambda t: lax.pad(t, 0.0, ((0, 1, 1), (0, 1, 1), (0, 0, 0))) * 2 + 1
    (kernel,) = pieces(spread, x)
    assert [a.extent for a in kernel.parallel] == [9, 8, 32] and len(kernel.stores) == 4
    assert not any(node.op == "select" for node in kernel.nodes)
    expected = np.ones((18, 16, 32), np.float32)
    expected[::2, ::2] = 3
    np.testing.assert_array_equal(fuser.jit(spread)(x), expected)
    odd = fuser.jit(lambda t: spread(t)[:-1, :-3])(x)
    np.testing.assert_array_equal(odd, expected[:-1, :-3])


def test_alike_kernels_with_rests_in_one_program() -> None:
    tables = [RNG.standard_normal((12, 41 + 4 * (n % 2))).astype(np.float32) for n in range(4)]

    def program(*tables: np.ndarray) -> list[np.ndarray]:
        copies = [t.copy() for t in tables]
        for n, t in enumerate(copies):
            t[:, ::2] *= n + 2
        return copies

    for found, expected in zip(fuser.accelerate(program)(*tables), program(*tables), strict=True):
        np.testing.assert_array_equal(found, expected)
    with fuser.config.using(fuel=0):
        found = fuser.jit(lambda *ts: [fnp.repeat(t, 2, axis=1)[:, 1:] * 3 for t in ts])(*tables)
    for a, t in zip(found, tables, strict=True):
        np.testing.assert_array_equal(a, np.repeat(t, 2, axis=1)[:, 1:] * 3)


@pytest.mark.parametrize("extent", range(2, 9))
def test_a_small_axis_that_another_array_has_outermost_is_unrolled(extent: int) -> None:
    """Channels first to last and back, and pixels shuffled: vectors run along the rows, which both arrays follow."""

    def last(x: Any) -> Any:
        return x.transpose(0, 2, 3, 1) * 2

    def shuffled(x: Any) -> Any:
        return x.reshape(9, 11, extent, 20, 19).transpose(0, 1, 3, 4, 2).reshape(9, 11, 20, 19 * extent)

    x = RNG.standard_normal((9, extent, 21, 17)).astype(np.float32)
    y = RNG.standard_normal((9, 11 * extent, 20, 19)).astype(np.float32)
    for program, argument in ((last, x), (shuffled, y)):
        (kernel,) = pieces(program, argument)
        assert len(kernel.stores) == extent and extent not in {axis.extent for axis in kernel.parallel}
        np.testing.assert_array_equal(fuser.jit(program)(argument), program(argument))


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 3), (4, 4), (2, 3), (4, 3), (5, 3), (3, 5), (8, 2), (2, 8)])
def test_small_matrices_are_written_out(rows: int, columns: int) -> None:
    """What one loop over all elements of many matrices cannot follow: vectors run from matrix to matrix."""
    x = RNG.standard_normal((201, rows, columns)).astype(np.float32)
    a, b = RNG.standard_normal((201, rows)).astype(np.float32), RNG.standard_normal((201, columns)).astype(np.float32)
    transposed, outer = lambda x: x.swapaxes(1, 2) * 2, lambda a, b: a[:, :, None] * b[:, None, :]
    for program, arguments in ((transposed, (x,)), (outer, (a, b))):
        found = pieces(program, *arguments)
        if program is transposed or columns < 8:  # a loop along 8 elements side by side has vectors
            assert len(found) == 1 and len(found[0].stores) == rows * columns
            assert [axis.extent for axis in found[0].parallel] == [201]
        np.testing.assert_array_equal(fuser.jit(program)(*arguments), program(*arguments))


def test_matrices_that_one_loop_follows_are_not() -> None:
    x, w = np.ones((201, 3, 3), np.float32), np.ones((3, 3), np.float32)
    for program in (
        lambda x, w: x + w,
        lambda x, w: x * w[0],
        lambda x, w: x * x[:, :, :1],
        lambda x, w: x - x[:, :1, :1],
    ):
        assert all(len(piece.stores) < 9 for piece in pieces(program, x, w))


def test_matrices_in_another_order_and_in_several_types() -> None:
    """A symmetric part, products of parts of rows, and bytes and 64 bits beside each other."""
    x = RNG.integers(-9, 9, (150, 4, 4)).astype(np.int8)
    y = RNG.integers(-9, 9, (150, 3, 4)).astype(np.int32)

    def symmetric(x: Any) -> Any:
        return x + x.swapaxes(1, 2) * 2 - x[:, ::-1]

    np.testing.assert_array_equal(fuser.jit(symmetric)(x), symmetric(x))
    both = lambda y: (y.swapaxes(1, 2) + 1, y * 2)
    for found, expected in zip(fuser.jit(both)(y), both(y), strict=True):
        np.testing.assert_array_equal(found, expected)
