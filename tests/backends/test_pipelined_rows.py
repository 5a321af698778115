"""Long rows of which the next are read while one is reduced, long columns that a program holds, and few rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from fuser.backends.triton import BACKEND, block_sizes, tuning
from fuser.backends.triton.emitter import Launch
from fuser.errors import UnsupportedError
from fuser.ir.types import ArrayType, bfloat16
from fuser.kernel.schedule import Schedule

F32 = np.dtype("float32")


def softmax(x: Any) -> Any:
    return fuser.nn.softmax(x, axis=-1)


def norm(x: Any) -> Any:
    return x / fnp.sqrt((x * x).mean(1, keepdims=True) + 1e-6)


def launches(function: Any, shape: tuple[int, ...], dtype: Any = F32, schedule: Schedule | None = None) -> list[Launch]:
    lowered = fuser.jit(function, backend="triton", schedule=schedule).lower(ArrayType(shape, np.dtype(dtype)))
    return [launch for source in lowered.sources for launch in source.launch["launches"]]


def late_parts(rows: int, columns: int, dtype: Any = F32) -> int:
    """Of a row that is read two ahead how many parts are not."""
    (source,) = (
        fuser.jit(softmax, backend="triton", schedule=Schedule(stages=3))
        .lower(ArrayType((rows, columns), np.dtype(dtype)))
        .sources
    )
    (launch,) = source.launch["launches"]
    assert launch.persistent and launch.constants["STAGES"] == 3
    assert not any(choice.persistent for choice in launch.smaller)  # where there is no shared memory
    return source.text.count("if program >= 0")


def test_rows_are_read_ahead_as_far_as_shared_memory_holds_them() -> None:
    assert late_parts(2048, 16384) == late_parts(1024, 32768, bfloat16) == 0
    assert late_parts(1024, 32768) == 1  # of four
    (plain,) = launches(softmax, (1024, 32768))
    assert not plain.persistent
    with pytest.raises(UnsupportedError):
        launches(softmax, (1024, 32767), schedule=Schedule(stages=3))  # no whole accesses


def test_measurements_try_rows_that_are_read_ahead() -> None:
    types = ArrayType((1024, 32768), F32)
    lowered = fuser.jit(softmax, backend="triton").lower(types)
    found = dict(tuning.variants(BACKEND, lowered.plan.groups[0], lowered.sources[0]))
    assert {3} <= {schedule.stages for schedule in found}


@pytest.mark.parametrize("columns, width", [(200, 32), (512, 16), (1000, 16)])
def test_columns_that_are_read_again_are_held(columns: int, width: int) -> None:
    (launch,) = launches(norm, (4, columns, 4096))
    assert (launch.constants["ROWS"], launch.columns) == (width, 1 << (columns - 1).bit_length())
    assert launch.smaller[-1].function.endswith("walked")  # where registers do not hold them


def test_columns_that_are_read_once_are_walked() -> None:
    (launch,) = launches(lambda x: x.sum(1), (64, 512, 4096))
    assert launch.columns == block_sizes.long_column_tile(4096).columns


def test_few_rows_take_more_threads_and_one_launch() -> None:
    (few,), (many,) = (launches(softmax, (rows, 1024)) for rows in (1, 4096))
    assert (few.warps, many.warps) == (8, 1)  # two warps of each scheduler
    assert len(launches(lambda x: x.sum(), (33_554,))) == 1
    assert len(launches(lambda x: x.sum(), (1 << 20,))) == 2
