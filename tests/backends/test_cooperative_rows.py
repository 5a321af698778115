"""Long rows that several programs of a GPU hold: their results by processes that wait for each other, and which kernels take that form."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from fuser.backends.triton.block_sizes import HELD_PIECE, MOST_PIECES
from fuser.ir.types import ArrayType, bfloat16
from tests.backends import cooperative_worker

ROOT = pathlib.Path(__file__).parents[2]
ERROR = 1e-6  # of float32, a few roundings beside sums in pairs


def launches(function: Any, *shape: int) -> list[Any]:
    lowered = fuser.jit(function, backend="triton").lower(ArrayType(shape, np.dtype("float32")))
    return [launch for source in lowered.sources for launch in source.launch["launches"]]


def test_programs_that_wait_for_each_other_agree_with_float64() -> None:
    command = [sys.executable, "-m", "tests.backends.cooperative_worker"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["case"] for row in rows] == list(cooperative_worker.CASES)
    assert all(row["error"] <= ERROR for row in rows), rows


def test_rows_that_are_read_again_are_held_by_several_programs() -> None:
    held = HELD_PIECE // 4
    for columns in (1 << 16, MOST_PIECES * held):
        clear, rows = launches(cooperative_worker.softmax, 2, columns)
        assert rows.constants["PIECES_BLOCK"] == (32 if columns == 1 << 16 else MOST_PIECES)
        assert rows.constants["PIECES"] == -(-columns // held) and rows.grid == 2 * rows.constants["PIECES"]
        assert clear.sizes[-1] == 1 + 2 * rows.grid  # a ticket, and a word of each of two reductions for each program


def text_of(function: Any, *shape: int) -> str:
    (source,) = fuser.jit(function, backend="triton").lower(ArrayType(shape, np.dtype("float32"))).sources
    return str(source.text)


def test_sums_relative_to_another_result_of_the_row_take_no_wait_of_their_own() -> None:
    for function in (cooperative_worker.softmax, cooperative_worker.layer_norm, cooperative_worker.weighted):
        assert text_of(function, 512, 1 << 16).count("while") == 1
    assert (
        text_of(lambda x: x / fnp.abs(x - x.sum(-1, keepdims=True)).sum(-1, keepdims=True), 512, 1 << 16).count("while")
        == 2
    )


def test_what_takes_longer_to_compute_again_than_a_wait_is_computed_once() -> None:
    def dear(x: Any) -> Any:
        e = fnp.exp(x - x.max(-1, keepdims=True))
        for _ in range(40):  # which also took 2**40 steps to look through
            e = e * fnp.tanh(x)
        return e / e.sum(-1, keepdims=True), e * 2

    assert text_of(dear, 512, 1 << 16).count("while") == 2


def test_rows_of_16_bits_hold_twice_the_elements_a_thread_where_registers_do() -> None:
    lowered = fuser.jit(cooperative_worker.softmax, backend="triton").lower(ArrayType((512, 1 << 16), bfloat16))
    rows = lowered.sources[0].launch["launches"][1]
    assert rows.constants["COLUMNS"] == HELD_PIECE // 2
    assert [(c.warps, c.registers) for c in rows.choices] == [(4, 88), (4, 96), (8, 64), (8, 0)]


def test_rows_that_are_read_once_or_take_too_many_programs_walk() -> None:
    for function, columns in (
        (lambda x: fuser.nn.logsumexp(x, -1), 1 << 16),
        (cooperative_worker.softmax, MOST_PIECES * HELD_PIECE // 2),
        (lambda x: x - x.argmax(-1, keepdims=True), 1 << 16),
        (lambda x: x - fnp.cumsum(x, -1).max(-1, keepdims=True), 1 << 16),
    ):
        assert all("PIECES" not in launch.constants for launch in launches(function, 512, columns))
