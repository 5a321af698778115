"""Runs programs through the Triton backend in Triton's interpreter and compares them with the reference backend.

In: names of suites on the command line ("registry 0 2" is the first half). Out: one JSON line a case, `{"case", "error"}`,
error empty where it passed. A process of its own, because TRITON_INTERPRET must be set before Triton is imported.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

if __name__ == "__main__":  # the tests on a GPU import the rest
    os.environ |= {"TRITON_INTERPRET": "1", "FUSER_BACKEND": "triton", "FUSER_ENABLE_X64": "1"}

import numpy as np

from bench.workloads import WORKLOADS
from fuser import config, jit
from fuser.ir.primitive import REGISTRY, Fusion, Primitive
from fuser.ir.types import is_inexact
from fuser.ops.family import CALLS
from fuser.runtime.array import to_numpy
from fuser.trace.core import bind
from tests.backends.product_cases import SCHEDULES

# dtype: (relative, absolute) error that a few operations may have against the reference
TOLERANCE = {"float16": (4e-3, 4e-3), "bfloat16": (3e-2, 3e-2), "float32": (2e-5, 2e-5), "float64": (1e-11, 1e-11)}

# The slack of cases whose name begins so. Matrix units round: TF32 keeps 10 bits of each operand (a tolerance of a few times 2⁻¹⁰), and 8-bit
# numbers are added with 14 bits (2⁻¹¹ of the sum of 128 products). Factorisations of matrices of condition 10 lose a few digits.
SLACK = {"float32 rounded to TF32": 1600.0, "8 bits with scales": 160.0, "library": 1000.0}

Case = tuple[str, Callable[..., Any], tuple[Any, ...]]


def registry(shard: int, shards: int, only: str = "") -> Iterator[Case]:
    """Every sample of every primitive (or of one) that has a lower rule, of the products, and of functions that are expanded."""
    number = 0
    for name, primitive in sorted(REGISTRY.items()):
        if only and name != only:
            continue
        if (
            primitive.samples is None
            or primitive.eval is None
            or (primitive.lower is None and primitive.fusion is not Fusion.DOT and not called(primitive))
        ):
            continue
        samples = list(primitive.samples())
        for arrays, params in samples[-2:] if called(primitive) else samples:  # all dtypes are computed in float64
            number += 1
            if number % shards == shard:
                dtypes = ", ".join(str(np.asarray(a).dtype) for a in arrays)
                function = lambda *a, primitive=primitive, params=params: bind(primitive, *a, **params)
                yield f"{name} {number} ({dtypes}) {params}", function, arrays


def called(primitive: Primitive) -> bool:
    """Whether it is a library call on single elements that GPUs run as a program."""
    return primitive in CALLS and primitive.expand is not None


def check(case: Case) -> str:
    """What went wrong with a case, or nothing."""
    name, function, arrays = case
    slack = (
        WORKLOADS[name].slack if name in WORKLOADS else next((s for n, s in SLACK.items() if name.startswith(n)), 1.0)
    )
    try:
        got = _flat(jit(function, schedule=SCHEDULES.get(name))(*arrays))
        with config.using(backend="reference"):
            want = _flat(jit(function)(*arrays))
    except Exception:
        return traceback.format_exc(limit=-6)
    for a, b in zip(got, want, strict=True):
        reason = difference(to_numpy(a), to_numpy(b), slack)
        if reason:
            return reason
    return ""


def difference(got: np.ndarray, want: np.ndarray, slack: float = 1.0) -> str:
    """How two results differ beyond their dtype's tolerance, or nothing; `slack` is that of programs with many steps."""
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    dtype = (
        np.dtype(f"float{want.dtype.itemsize * 4}").name if want.dtype.kind == "c" else want.dtype.name
    )  # of the parts
    if not is_inexact(want.dtype) or dtype not in TOLERANCE:
        wrong = got != want if not is_inexact(want.dtype) else ~np.isclose(_wide(got), _wide(want), equal_nan=True)
    else:
        relative, absolute = (max(t, slack * t / 4) for t in TOLERANCE[dtype])
        wrong = ~np.isclose(_wide(got), _wide(want), relative, absolute, equal_nan=True)
    if not wrong.any():
        return ""
    place = tuple(np.argwhere(wrong)[0].tolist())
    return f"{int(wrong.sum())} of {want.size} elements differ, first at {place}: {got[place]} instead of {want[place]}"


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def check_eager(case: Case) -> str:
    """What goes wrong when a program runs operation by operation on the device's arrays."""
    from fuser.backends.triton import BACKEND
    from fuser.runtime.array import Array

    _, function, arrays = case
    jit(lambda x: x + 1)(np.ones(3))  # from the first compilation on, operations on device arrays stay there
    try:
        got = _flat(function(*(Array(BACKEND.memory.place(a)) for a in arrays)))
        with config.using(backend="reference"):
            want = _flat(jit(function)(*arrays))
    except Exception:
        return traceback.format_exc(limit=-6)
    if any(isinstance(x._data, np.ndarray) for x in got):
        return "a result lies on the host"
    return next((d for a, b in zip(got, want, strict=True) if (d := difference(to_numpy(a), to_numpy(b)))), "")


def _flat(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def main(arguments: list[str]) -> None:
    warnings.simplefilter("ignore")
    suite, *rest = arguments
    if suite == "registry":
        cases = registry(*map(int, rest))
    else:
        from tests.backends import triton_cases

        cases = triton_cases.cases(suite)
    for case in cases:
        start = time.perf_counter()
        error = check_eager(case) if suite == "eager" else check(case)
        print(
            json.dumps({"case": case[0], "error": error, "seconds": round(time.perf_counter() - start, 2)}), flush=True
        )


if __name__ == "__main__":
    main(sys.argv[1:])
