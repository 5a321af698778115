"""Scatters at targets that repeat, in the forms that kernels have: by atomics of whole numbers, and in the order of the targets.

Targets are -9 to 11 where they are a case's first whole numbers, and 0 to 11 otherwise: some lie outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fuser.numpy as fnp
from fuser.backends.triton import bucket_sums
from fuser.ir.types import ArrayType

Form = tuple[Callable[..., Any], tuple[ArrayType, ...]]


def of(dtype: str, *shape: int) -> ArrayType:
    return ArrayType(shape, fnp.dtype(dtype))


def scatter(reduction: str) -> Callable[..., Any]:
    return lambda x, i, u: getattr(x.at[i], reduction)(u)


def case(reduction: str, dtype: str, rows: int, count: int, *width: int) -> Form:
    return scatter(reduction), (of(dtype, rows, *width), of("int32", count), of(dtype, count, *width))


def alike(reduction: str, dtype: str, rows: int, count: int, *width: int, value: Any = None) -> Form:
    """A number, or a row, combined at all targets."""
    known, places = of(dtype, rows, *width), of("int32", count)
    if value is not None:
        return lambda x, i: getattr(x.at[i], reduction)(value), (known, places)
    return scatter(reduction), (known, places, of(dtype, *width))


SCATTERS: dict[str, Form] = {
    "sums of float32": case("add", "float32", 10, 5000),
    "sums of rows of float32": case("add", "float32", 11, 500, 70),
    "sums of bfloat16": case("add", "bfloat16", 10, 900, 3),
    "sums of float16": case("add", "float16", 200, 30),
    "sums of float64": case("add", "float64", 10, 700),
    "sums of more elements": case("add", "float32", (1 << 20) + 7, 3000),
    "sums of more rows": case("add", "float32", 1 << 18, 300, 5),
    "sums of bytes": case("add", "uint8", 10, 5000),
    "sums of int64": case("add", "int64", 10, 700, 2),
    "largest of float32": case("max", "float32", 10, 900),
    "least of bfloat16": case("min", "bfloat16", 10, 900, 3),
    "least of float64": case("min", "float64", 10, 300),
    "largest of int8": case("max", "int8", 10, 900),
    "least of uint64": case("min", "uint64", 10, 900, 2),
    "replaced numbers": case("set", "float32", 10, 900),
    "replaced rows": case("set", "int16", 10, 300, 70),
    "products": case("multiply", "float32", 10, 50),
}

# One row of updates for all targets: counted by each program, and by atomics where rows are many.
COUNTED: dict[str, Form] = {
    "bins": (lambda x: fnp.bincount(x, length=7), (of("int32", 9000),)),
    "weights that are one": (lambda x: fnp.histogram(x, 20, (-2.0, 2.0))[0], (of("float32", 5000),)),
    "many bins": (lambda x: fnp.bincount(x * 999, length=5000), (of("int32", 9000),)),
    "a number of float32": alike("add", "float32", 10, 5000, value=0.1),
    "a given number of float32": alike("add", "float32", 10, 5000),
    "a row of float32": alike("add", "float32", 11, 500, 70),
    "a row of float16": alike("add", "float16", 11, 50, 3),
    "a number of bfloat16": alike("add", "bfloat16", 11, 50, value=0.5),
    "a row of float64": alike("add", "float64", 3000, 700, 2),
    "a row of bytes": alike("add", "uint8", 10, 5000, 5),
    "a row of int64": alike("add", "int64", 10, 700, 2),
    "the larger of float32": alike("max", "float32", 10, 30, 3),
    "the less of bfloat16": alike("min", "bfloat16", 10, 30, 3),
    "the less of int16": alike("min", "int16", 10, 30, 3),
    "one that replaces": alike("set", "float32", 3000, 900, 3),
    "zero that replaces": alike("set", "int8", 30, 90, value=0),
}

# As long as nothing has a form by atomics.
IN_ORDER: dict[str, Form] = {
    "sums of float32": case("add", "float32", 10, 5001),
    "sums at eight places of float32": case(
        "add", "float32", 8, 5001
    ),  # what lies outside is ordered as the last place
    "sums of rows of float32": case("add", "float32", 11, 501, 70),
    "sums of bytes": case("add", "uint8", 10, 5001),
    "sums of bfloat16": case("add", "bfloat16", 10, 901, 3),
    "largest of float32": case("max", "float32", 10, 901),
    "least of rows of int32": case("min", "int32", 10, 901, 3),
    "replaced rows": case("set", "float32", 10, 301, 70),
}

# Sums that take buckets of rows: of one bucket and of several, of which each has one chunk of updates or more.
IN_BUCKETS: dict[str, Form] = {
    "sums of float32": case("add", "float32", 10, 903),
    "sums of more of float32": case("add", "float32", 300, 2000),
    "sums of float16": case("add", "float16", 40, 700),
    "sums of bfloat16": case("add", "bfloat16", 16, 130),
    "sums at one place of float32": (
        lambda x, i, u: x.at[i * 0 + 17].add(u),
        (of("float32", 40), of("int32", 700), of("float32", 700)),
    ),
    "sums of few of float32": case("add", "float32", 100, 3),
    "sums of rows of float32": case("add", "float32", 11, 300, 3),  # which are no single numbers
}


def small_buckets(chunk: int) -> None:
    """Have sums take buckets of 16 rows, and programs for each so many updates of one."""
    bucket_sums.SHIFT, bucket_sums.PLACES, bucket_sums.BLOCK, bucket_sums.STEPS = 4, 16, 16, 2
    bucket_sums.ADDED, bucket_sums.CHUNK, bucket_sums.PROGRAMS = 16, chunk, 3
    bucket_sums.TOGETHER, bucket_sums.SCANNED, bucket_sums.FINISHED, bucket_sums.PARTS = 4, 4, 8, 2
    bucket_sums.HEADROOM = 62 - 24 - (chunk + bucket_sums.BLOCK * bucket_sums.STEPS).bit_length()
    bucket_sums.seconds = lambda rows, count: 0.0
