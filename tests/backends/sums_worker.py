"""Sums and running sums in the interpreter of Triton or Pallas, held against the bounds of `test_sums`.

In: "triton" or "tpu" on the command line. Out: one JSON line a case, `{"case", "error"}`, error empty where it passed. A
process of its own, because both read their settings when they are imported.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

if __name__ == "__main__":
    os.environ |= {"TRITON_INTERPRET": "1", "FUSER_TPU_INTERPRET": "1", "JAX_PLATFORMS": "cpu"}
    os.environ |= {"FUSER_BACKEND": sys.argv[1]}

import numpy as np

import fuser.numpy as fnp
from tests.backends.test_sums import alone, check_running, check_sum, data, functions

# Rows that a program walks, that are split, and columns; tiles that cut them.
CASES: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "triton": [((100_001,), (0,)), ((12, 20_001), (1,)), ((20_001, 3), (0,))],
    "tpu": [((150_001,), (0,)), ((9_000, 130), (0,))],
}


def main(backend: str) -> None:
    cases = CASES[backend]
    for form in (alone, running):
        function = functions(form, cases, backend)
        arrays = [data("constant", shape, np.float32) for shape, _ in cases]
        print(json.dumps({"case": form.__name__, "error": error(form, cases, arrays, function(arrays))}))


def running(x: Any, axes: tuple[int, ...]) -> tuple[Any, ...]:
    """The sum beside a running sum."""
    return fnp.sum(x, axes) * 1, fnp.cumsum(x, axes[0])


def error(form: Any, cases: Any, arrays: Any, found: Any) -> str:
    """What is less accurate than it should be, or nothing."""
    try:
        for x, (shape, axes), got in zip(arrays, cases, found):
            check_sum(got[0], x, axes, f"{shape} {axes}")
            if form is running:
                check_running(got[1], x, axes[0], f"{shape} {axes}, running")
    except AssertionError as refused:
        return str(refused)
    return ""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1])
