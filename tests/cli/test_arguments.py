"""The language of --args: what it makes, and the errors, word for word."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.cli.arguments import DTYPES, parse_arguments
from fuser.cli.output import UsageError
from fuser.ir.types import ALL_DTYPES, short_dtype


def test_arrays_scalars_and_literals() -> None:
    (matrix, vector, number, plain, word), keywords = parse_arguments("f32[3, 4], f64[10], i32, 3.0, 'sum', axis=-1")
    assert (matrix.shape, matrix.dtype) == ((3, 4), np.float32)
    assert (vector.shape, vector.dtype) == ((10,), np.float64)
    assert isinstance(number, np.int32)
    assert (plain, word, keywords) == (3.0, "sum", {"axis": -1})


def test_trees() -> None:
    (parameters, pair), _ = parse_arguments("{'w': f32[2, 3], 'b': f32[3]}, (bool[4], [c64[2], None])")
    assert {name: value.shape for name, value in parameters.items()} == {"w": (2, 3), "b": (3,)}
    assert pair[0].dtype == bool and pair[1][0].dtype == np.complex64 and pair[1][1] is None


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=short_dtype)
def test_every_dtype(dtype: np.dtype) -> None:
    (array, scalar), _ = parse_arguments(f"{short_dtype(dtype)}[5, 2], {short_dtype(dtype)}[]")
    assert (array.dtype, array.shape) == (dtype, (5, 2))
    assert (scalar.dtype, scalar.shape) == (dtype, ())


def test_no_arguments_and_empty_arrays() -> None:
    assert parse_arguments("") == ((), {})
    assert parse_arguments("f32[0, 3]")[0][0].shape == (0, 3)


def test_contents_are_the_same_every_time() -> None:
    first, second = (parse_arguments("f32[100], i8[100]")[0] for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second))
    assert 0 <= first[0].min() < first[0].max() < 1
    assert set(first[1]) <= set(range(10)) and len(set(first[1])) > 5


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("f33[4]", "f33[4]"),
        ("f32[3], g", "g"),
        ("f32[-1]", "f32[-1]"),
        ("f32[2.5]", "f32[2.5]"),
        ("f32[n]", "n"),
        ("f32[3", "f32[3"),
        ("__import__('os')", "__import__('os')"),
        ("*f32[3]", "*f32[3]"),
        ("**x", "**x"),
    ],
)
def test_what_cannot_be_read(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments(text)
    assert str(caught.value) == (
        f"--args cannot read {part!r}; write a dtype with a shape (f32[4096,4096]), a dtype alone for a scalar (i32), or "
        f"a Python literal (3.0), separated by commas; the dtypes are {', '.join(DTYPES)}"
    )
