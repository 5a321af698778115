"""Atomic updates: positions that repeat, masks, what stood there before; and that they are no races."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from fuser import ShapeDtypeStruct
from fuser import pallas as pl

I32 = np.dtype("int32")
UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "max": max,
    "min": min,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "xchg": lambda a, b: b,
}
TARGETS = np.random.default_rng(3).integers(0, 7, 24).astype(I32)


def updates(kind: str, masked: bool, in_row: bool, **options: Any) -> Callable[..., Any]:
    """Eight updates a program, of elements that several programs and several updates share."""

    def kernel(target_ref: Any, start_ref: Any, o_ref: Any, before_ref: Any) -> None:
        target = target_ref[...]
        value = target * 5 + pl.program_id(0) + fnp.arange(8, dtype=I32)
        mask = {"mask": target != 3} if masked else {}
        update = getattr(pl, f"atomic_{kind}")
        before_ref[...] = update(o_ref, (1, target) if in_row else (target,), value, **mask)

    shape = (3, 7) if in_row else (7,)
    of_program, whole = pl.BlockSpec((8,), lambda i: (i,)), pl.BlockSpec(shape, lambda i: (0,) * len(shape))
    return pl.pallas_call(
        kernel, (ShapeDtypeStruct(shape, I32), ShapeDtypeStruct((24,), I32)), grid=3, in_specs=[of_program, whole],
        out_specs=(whole, of_program), input_output_aliases={1: 0}, **options,
    )  # fmt: skip


def one_by_one(kind: str, masked: bool, start: np.ndarray) -> tuple[np.ndarray, list[int | None]]:
    """The oracle: what is left, and what stood there before each update; None where the mask is false."""
    left = start.copy()
    row = left if left.ndim == 1 else left[1]
    before: list[int | None] = []
    for n, target in enumerate(TARGETS):
        if masked and target == 3:
            before.append(None)
            continue
        before.append(int(row[target]))
        row[target] = UPDATES[kind](int(row[target]), int(target) * 5 + n // 8 + n % 8)
    return left, before


@pytest.mark.parametrize("in_row", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", list(UPDATES))
def test_each_update_sees_those_before_it(kind: str, masked: bool, in_row: bool) -> None:
    start = np.arange(21 if in_row else 7, dtype=I32).reshape((3, 7) if in_row else (7,)) * 3
    wanted, before = one_by_one(kind, masked, start)
    parallel = {"compiler_params": pl.CompilerParams(dimension_semantics=("parallel",))}
    for options in ({}, parallel, {"interpret": pl.InterpretParams(detect_races=True)}):
        left, found = fuser.jit(updates(kind, masked, in_row, **options))(TARGETS, start)
        np.testing.assert_array_equal(left, wanted)
        assert [int(f) if b is not None else None for f, b in zip(found, before)] == before


def test_positions_outside_are_dropped() -> None:
    def kernel(at_ref: Any, start_ref: Any, o_ref: Any) -> None:
        pl.atomic_add(o_ref, (at_ref[...],), I32.type(1))

    call = pl.pallas_call(kernel, ShapeDtypeStruct((4,), I32), input_output_aliases={1: 0})
    found = call(np.array([0, 3, 3, 4, 9, -1], I32), np.zeros(4, I32))
    np.testing.assert_array_equal(found, [1, 0, 0, 2])


@pytest.mark.parametrize("interpret", [False, True])
def test_one_program_takes_a_lock(interpret: bool) -> None:
    def kernel(lock_ref: Any, o_ref: Any, before_ref: Any) -> None:
        before_ref[0] = pl.atomic_cas(o_ref.at[1], I32.type(0), pl.program_id(0) + 5)

    out = (ShapeDtypeStruct((2,), I32), ShapeDtypeStruct((3,), I32))
    specs = (pl.BlockSpec((2,), lambda i: (0,)), pl.BlockSpec((1,), lambda i: (i,)))
    call = pl.pallas_call(
        kernel, out, grid=3, in_specs=[specs[0]], out_specs=specs, input_output_aliases={0: 0}, interpret=interpret
    )
    left, before = call(np.zeros(2, I32))
    assert list(left) == [0, 5] and list(before) == [0, 5, 5]


def test_what_else_touches_them_is_a_race() -> None:
    def kernel(start_ref: Any, o_ref: Any, seen_ref: Any) -> None:
        pl.atomic_add(o_ref, (0,), I32.type(1))
        seen_ref[0] = o_ref[0]

    out = (ShapeDtypeStruct((1,), I32), ShapeDtypeStruct((2,), I32))
    specs = (pl.BlockSpec((1,), lambda i: (0,)), pl.BlockSpec((1,), lambda i: (i,)))
    call = pl.pallas_call(
        kernel, out, grid=2, in_specs=[specs[0]], out_specs=specs, input_output_aliases={0: 0},
        interpret=pl.InterpretParams(detect_races=True),
    )  # fmt: skip
    with pytest.raises(Exception, match=r"a race in kernel: program \(1,\) writes element \(0,\) of operand 1"):
        call(np.zeros(1, I32))


def test_saved_kernels_with_atomics_load_again() -> None:
    from fuser.export import deserialize, export

    start = np.arange(7, dtype=I32)
    asked = {"compiler_params": pl.CompilerParams(num_warps=4)}
    function = fuser.jit(updates("add", True, False, **asked))
    loaded = deserialize(export(function)(TARGETS, start).serialize())
    for a, b in zip(loaded.call(TARGETS, start), function(TARGETS, start), strict=True):
        np.testing.assert_array_equal(a, b)
