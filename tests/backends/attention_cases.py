"""Attention as users write it: functions of arrays, and the types of these, for the Triton backend's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from fuser.ir.types import ArrayType, bfloat16

F32 = np.dtype("float32")
Form = tuple[Callable[..., Any], tuple[ArrayType, ...]]


def types(dtype: np.dtype, *shapes: tuple[int, ...]) -> tuple[ArrayType, ...]:
    return tuple(ArrayType(shape, dtype) for shape in shapes)


def attend(scores: Any, v: Any) -> Any:
    """softmax(scores) V by hand."""
    e = fnp.exp(scores - scores.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


def scores(q: Any, k: Any, scale: float = 0.2) -> Any:
    return q @ fnp.swapaxes(k, -1, -2) * scale


def positions(s: Any) -> tuple[Any, Any]:
    return fnp.arange(s.shape[-2])[:, None], fnp.arange(s.shape[-1])[None, :]


def causal(q: Any, k: Any, v: Any) -> Any:
    s = scores(q, k)
    return attend(fnp.where(fnp.tril(fnp.ones(s.shape[-2:], bool)), s, -fnp.inf), v)


def windowed(q: Any, k: Any, v: Any) -> Any:
    """Keys 5 to 39 before the query; the first five queries see none, and so see all alike."""
    s = scores(q, k)
    i, j = positions(s)
    return attend(fnp.where((j <= i - 5) & (j > i - 40), s, -1e9), v)


def of_nothing(q: Any, k: Any, v: Any) -> Any:
    """Rows all of −∞, with nan for the even ones and 0 for the odd ones; rows with an infinity and with a nan."""
    s = scores(q, k)
    i, j = positions(s)
    s = fnp.where((i < 4) | ((i == 4) & (j < 90)), -fnp.inf, s)
    s = fnp.where((i == 5) & (j == 77), fnp.inf, fnp.where((i == 6) & (j == 3), fnp.nan, s))
    largest = s.max(axis=-1, keepdims=True)
    largest = fnp.where(fnp.isfinite(largest) | (i % 2 == 0), largest, 0)
    e = fnp.exp(s - largest)
    return (e / e.sum(axis=-1, keepdims=True)) @ v


def padded(q: Any, k: Any, v: Any, lengths: Any, bias: Any) -> Any:
    """Keys beyond each batch's length hidden, a bias of heads, weights in the values' dtype, a residual added."""
    s = fnp.matmul(q, fnp.swapaxes(k, -1, -2), preferred_element_type="float32") / 6 + bias
    seen = fnp.arange(k.shape[-2]) < lengths[:, None, None, None]
    weights = fuser.nn.softmax(fnp.where(seen, s, -1e30), axis=-1)
    return q[..., : v.shape[-1]] + weights.astype(v.dtype) @ v


def grouped(q: Any, k: Any, v: Any) -> Any:
    return fuser.nn.dot_product_attention(q, k, v, is_causal=True)


def dropped(q: Any, k: Any, v: Any, keep: Any) -> Any:
    """Weights that are scaled or dropped, of one head, with values on the left."""
    weights = fuser.nn.softmax(scores(q, k), axis=-1)
    return fnp.swapaxes(v, -1, -2) @ fnp.swapaxes(weights * keep / 0.9, -1, -2)


def biased(q: Any, k: Any, v: Any) -> Any:
    """The least number added to scores of hidden keys: the first ten queries see none, and so see all alike."""
    s = fnp.matmul(q, fnp.swapaxes(k, -1, -2), preferred_element_type="float32") * 0.2
    i, j = positions(s)
    weights = fuser.nn.softmax(s + fnp.where(j <= i - 10, 0, fnp.finfo("float32").min), axis=-1)
    return weights.astype(v.dtype) @ v


def unscaled(q: Any, k: Any, v: Any) -> Any:
    """Causal attention of scores that are not scaled."""
    s = fnp.matmul(q, fnp.swapaxes(k, -1, -2), preferred_element_type="float32")
    i, j = positions(s)
    return fuser.nn.softmax(fnp.where(j <= i, s, -fnp.inf), axis=-1).astype(v.dtype) @ v


def negative(q: Any, k: Any, v: Any) -> Any:
    """Causal attention to what is least alike; hidden scores are the least number."""
    s = fnp.matmul(q, fnp.swapaxes(k, -1, -2), preferred_element_type="float32") * -0.3
    i, j = positions(s)
    return fuser.nn.softmax(fnp.where(j <= i - 3, s, fnp.finfo("float32").min), axis=-1).astype(v.dtype) @ v


def alike(q: Any, k: Any, v: Any) -> Any:
    """Causal attention to keys with a score of −2 at least."""
    s = scores(q, k)
    i, j = positions(s)
    return attend(fnp.where((j <= i) & (s >= -2), s, -1e9), v)


SQUARE = ((2, 3, 150, 32),) * 3
LONGER = ((2, 300, 32),) * 3
ATTENTION: dict[str, Form] = {
    "attention": (lambda q, k, v: attend(scores(q, k), v), types(F32, (1, 40, 20), (1, 33, 20), (1, 33, 24))),
    "causal attention": (causal, types(bfloat16, *SQUARE)),
    "attention of windows": (windowed, types(F32, *SQUARE)),
    "attention of windows in bfloat16": (windowed, types(bfloat16, *((1, 2, 400, 64),) * 3)),
    "attention to nothing": (of_nothing, types(F32, (2, 100, 16), (2, 100, 16), (2, 100, 16))),
    "attention of padded keys": (
        padded,
        (
            *types(np.dtype("float16"), (2, 3, 20, 36), (2, 3, 70, 36), (2, 3, 70, 24)),
            *types(np.dtype("int32"), (2,)),
            *types(F32, (3, 20, 70)),
        ),
    ),
    "grouped attention": (grouped, types(bfloat16, (2, 70, 6, 32), (2, 90, 2, 32), (2, 90, 2, 48))),
    "attention with a bias in bfloat16": (biased, types(bfloat16, *LONGER)),
    "attention of unscaled scores": (unscaled, types(bfloat16, *LONGER)),
    "attention to what is alike": (alike, types(F32, *LONGER)),
    "attention of a negative scale": (negative, types(np.dtype("float16"), *LONGER)),
    "attention with dropped weights": (dropped, types(F32, (40, 20), (33, 20), (33, 24), (40, 33))),
}


def with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """The result, and the gradients of queries, keys and values for a cotangent, which is the last operand."""

    def both(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        *others, ct = rest
        out, pulled = fuser.vjp(lambda q, k, v: function(q, k, v, *others), q, k, v)
        return (out, *pulled(ct))

    return both


def softmax_attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    s = scores(q, k)
    return fuser.nn.softmax(s if mask is None else fnp.where(mask(*positions(s)), s, -1e9), axis=-1) @ v


def _masked(mask: Callable[..., Any]) -> Callable[..., Any]:
    return lambda q, k, v: softmax_attention(q, k, v, mask)


def _loss(q: Any, k: Any, v: Any) -> Any:
    """Gradients of a loss of which the result itself is not needed."""
    weights = fnp.cos(fnp.arange(v.shape[-1]))
    return fuser.grad(lambda q, k, v: (softmax_attention(q, k, v) * weights).sum(), (0, 1, 2))(q, k, v)


def _dropped(q: Any, k: Any, v: Any, keep: Any) -> Any:
    return (fuser.nn.softmax(scores(q, k), axis=-1) * keep / 0.9) @ v


FEW = ((1, 2, 90, 16),) * 4
GROUPED = ((2, 70, 6, 32), (2, 90, 2, 32), (2, 90, 2, 48), (2, 70, 6, 48))
GRADIENTS: dict[str, Form] = {
    "gradients of attention": (
        with_gradients(softmax_attention),
        types(F32, (1, 40, 20), (1, 33, 20), (1, 33, 24), (1, 40, 24)),
    ),
    "gradients of causal attention": (with_gradients(_masked(lambda i, j: j <= i)), types(F32, *FEW)),
    "gradients of windows": (
        with_gradients(_masked(lambda i, j: (j <= i - 5) & (j > i - 40))),
        types(F32, *FEW),
    ),
    "gradients of grouped attention": (with_gradients(grouped), types(bfloat16, *GROUPED)),
    "gradients of grouped attention in float32": (
        with_gradients(grouped),
        types(F32, (1, 40, 4, 16), (1, 50, 2, 16), (1, 50, 2, 24), (1, 40, 4, 24)),
    ),
    "gradients with dropped weights": (
        with_gradients(_dropped),
        types(F32, (40, 20), (33, 20), (33, 24), (40, 33), (40, 24)),
    ),
    "gradients of widened operands": (
        with_gradients(lambda q, k, v: softmax_attention(*(x.astype("float32") for x in (q, k, v)))),
        (*types(bfloat16, *FEW[:3]), *types(F32, FEW[3])),
    ),
    "gradients of widened keys": (
        with_gradients(lambda q, k, v: softmax_attention(q, k.astype("float32"), v)),
        (*types(F32, FEW[0]), *types(bfloat16, FEW[1]), *types(F32, *FEW[2:])),
    ),
    "gradients by hand": (with_gradients(causal), types(F32, *FEW)),
    "gradients by hand of windows": (with_gradients(windowed), types(F32, *FEW)),
    "gradients of a loss": (_loss, types(F32, *((1, 2, 50, 32),) * 3)),
}
