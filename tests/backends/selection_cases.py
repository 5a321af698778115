"""Selections of the largest elements, in the forms that kernels have: one block a row, several rounds of blocks, and dtypes of all widths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import lax
from fuser.ops.selection import SELECTED
from tests.backends.scatter_cases import Form, of


def top(k: int, axis: int = -1) -> Callable[..., Any]:
    return lambda x: lax.top_k(x, k, axis=axis)


SELECTIONS: dict[str, Form] = {
    "one of a row": (top(1), (of("float32", 3, 1500),)),
    "half of a row": (top(600), (of("float32", 2, 1200),)),
    "along columns": (top(9, 0), (of("float32", 2000, 3),)),
    "two rounds": (top(77), (of("float32", 2, 20001),)),
    "three rounds": (top(1500), (of("int32", 33000),)),
    "a last block of few": (top(40), (of("float16", 2, 8200),)),
    "of a batch": (lambda x: lax.map(top(5), x), (of("float32", 3, 2, 1100),)),
    **{f"of {np.dtype(dtype).name}": (top(30), (of(np.dtype(dtype).name, 2, 1030),)) for dtype in SELECTED},
}
