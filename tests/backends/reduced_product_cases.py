"""Products of 16-bit numbers of which nothing but reductions of their rows, or columns, is read: functions and types of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser import lax
from fuser.ir.types import ArrayType, bfloat16

Form = tuple[Callable[..., Any], tuple[ArrayType, ...]]
HALF = np.dtype("float16")


def of(dtype: Any, *shapes: tuple[int, ...]) -> tuple[ArrayType, ...]:
    return tuple(ArrayType(shape, np.dtype(dtype)) for shape in shapes)


def scores(x: Any, y: Any) -> Any:
    """x yᵀ in float32."""
    return lax.dot_general(x, y, (((1,), (1,)), ((), ())), preferred_element_type=np.float32)


def distances(x: Any, y: Any) -> Any:
    """Squares of distances between rows, less the squares of x."""
    wide = y.astype("float32")
    return (wide * wide).sum(-1) - 2 * scores(x, y)


def assigned(x: Any, y: Any) -> tuple[Any, ...]:
    """The nearest of y and its distance."""
    found = distances(x, y)
    return fnp.argmin(found, -1), found.min(-1)


def masked(x: Any, y: Any) -> Any:
    """The largest score of those that are allowed; none is in the first row."""
    i, j = (lax.broadcasted_iota("int32", (x.shape[0], y.shape[0]), d) for d in range(2))
    return fnp.where((i * j) % 3 == 1, scores(x, y), -fnp.inf).max(-1)


def cross_entropy(x: Any, y: Any, labels: Any) -> Any:
    """Of logits x yᵀ, that of the label by a product of its own."""
    chosen = (x.astype("float32") * y[labels].astype("float32")).sum(-1)
    return (fuser.nn.logsumexp(scores(x, y), -1) - chosen).mean()


def moments(x: Any, y: Any) -> tuple[Any, ...]:
    found = scores(x, y)
    return found.sum(-1), (found * found).sum(-1), found.max(-1)


def per_batch(x: Any, y: Any) -> Any:
    return fnp.einsum("bmd,bnd->bmn", x, y, preferred_element_type=np.float32).max(-1).sum(-1)


ROWS = of(bfloat16, (70, 40), (150, 40))
REDUCED_PRODUCTS: dict[str, Form] = {
    "largest score": (lambda x, y: scores(x, y).max(-1), ROWS),
    "largest score in bfloat16": (lambda x, y: (x @ y.T).max(-1), ROWS),
    "nearest": (assigned, ROWS),
    "nearest among few": (assigned, of(HALF, (300, 16), (16, 16))),
    "position of the largest, of float16": (
        lambda x, y: fnp.argmax(scores(x, y) + 1, -1),
        of(HALF, (33, 64), (100, 64)),
    ),
    "position down columns": (lambda x, y: fnp.argmax(scores(x, y), 0), of(bfloat16, (48, 32), (500, 32))),
    "masked": (masked, ROWS),
    "cross-entropy of a product": (cross_entropy, (*ROWS, ArrayType((70,), np.dtype("int32")))),
    "log of a sum of exponentials": (lambda x, y: fuser.nn.logsumexp(scores(x, y), -1), ROWS),
    "kernel sum": (lambda x, y: fnp.exp(-fnp.maximum(distances(x, y), 0) / 40).sum(-1), ROWS),
    "moments": (moments, ROWS),
    "of a batch": (per_batch, of(bfloat16, (3, 40, 32), (3, 130, 32))),
    "with an epilogue": (lambda x, y: fnp.tanh(scores(x, y).max(-1)) * 2, ROWS),
}
