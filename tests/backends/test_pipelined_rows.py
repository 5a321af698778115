"""Long rows of which the next are read while one is reduced, long columns that a program holds, and few rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import fuser
import fuser.numpy as fnp
from fuser.backends.triton import block_sizes
from fuser.backends.triton.emitter import Launch
from fuser.ir.types import ArrayType, bfloat16

F32 = np.dtype("float32")


def softmax(x: Any) -> Any:
    return fuser.nn.softmax(x, axis=-1)


def norm(x: Any) -> Any:
    return x / fnp.sqrt((x * x).mean(1, keepdims=True) + 1e-6)


def launches(function: Any, shape: tuple[int, ...], dtype: Any = F32) -> list[Launch]:
    lowered = fuser.jit(function, backend="triton").lower(ArrayType(shape, np.dtype(dtype)))
    return [launch for source in lowered.sources for launch in source.launch["launches"]]


def ahead(rows: int, columns: int, dtype: Any = F32) -> bool:
    (launch,) = launches(softmax, (rows, columns), dtype)
    assert not any(choice.persistent for choice in launch.smaller)  # where there is no shared memory
    return launch.persistent


def test_which_rows_are_read_ahead() -> None:
    assert ahead(2048, 16384) and ahead(1024, 32768) and ahead(1024, 32768, bfloat16)
    assert not ahead(2048, 8192)  # several fit on a multiprocessor
    assert not ahead(264, 32768)  # two for each multiprocessor
    assert not ahead(1024, 32767)  # no whole accesses


@pytest.mark.parametrize("columns, width", [(200, 32), (512, 32), (1000, 16)])
def test_columns_that_are_read_again_are_held(columns: int, width: int) -> None:
    (launch,) = launches(norm, (4, columns, 4096))
    assert (launch.constants["ROWS"], launch.columns) == (width, 1 << (columns - 1).bit_length())
    assert launch.smaller[-1].function.endswith("walked")  # where registers do not hold them


def test_columns_that_are_read_once_are_walked() -> None:
    (launch,) = launches(lambda x: x.sum(1), (64, 512, 4096))
    assert launch.columns == block_sizes.long_column_tile(4096).columns


def test_few_rows_take_more_threads_and_one_launch() -> None:
    (few,), (many,) = (launches(softmax, (rows, 4096)) for rows in (1, 4096))
    assert few.warps > many.warps
    assert len(launches(lambda x: x.sum(), (33_554,))) == 1
    assert len(launches(lambda x: x.sum(), (1 << 20,))) == 2
