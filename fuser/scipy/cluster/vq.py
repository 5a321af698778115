"""Vector quantisation."""

from __future__ import annotations

from typing import Any

from fuser import numpy as fnp
from fuser.lax.values import promote_inexact

__all__ = ["vq"]


def vq(obs: Any, code_book: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """(code, distance) of each observation's nearest codeword: obs (n, d), code_book (k, d) → integers (n,), floats (n,).

    Vectors count as one column. ValueError for shapes that do not fit.
    """
    points, words = promote_inexact("vq", obs, code_book)
    if points.ndim != words.ndim:
        raise ValueError("Observation and code_book should have the same rank")
    if points.ndim == 1:
        points, words = points[:, None], words[:, None]
    if points.ndim != 2:
        raise ValueError("ndim different than 1 or 2 are not supported")
    apart = fnp.sqrt(fnp.sum(fnp.square(points[:, None, :] - words[None, :, :]), -1))
    return fnp.argmin(apart, -1), fnp.min(apart, -1)
