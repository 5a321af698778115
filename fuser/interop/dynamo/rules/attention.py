"""Scaled dot-product attention with the logarithms of its sums of exponentials, and its gradients.

Query heads that share a key head (grouped-query attention) are rows of one product: (batch, heads, rows, size) is taken as
(batch, key heads, heads per key head · rows, size), so that keys are read where they lie and their gradients are summed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser.interop.dynamo.rules.table import Refused, operand, rule, wide
from fuser.lax.values import literal

_NAME = "_scaled_dot_product_flash_attention_for_cpu"


def _factor(query: Any, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _grouped(x: Any, key: Any) -> Any:
    """A tensor with query heads and rows, its heads in groups of one key head each, as rows of that head."""
    heads = key.shape[1]
    if x.shape[1] % heads:
        raise Refused(f"{x.shape[1]} heads of queries for {heads} of keys")
    return x if x.shape[1] == heads else fnp.reshape(x, (x.shape[0], heads, -1, *x.shape[3:]))


def _masked(scores: Any, mask: Any, rows: int) -> Any:
    """Scores of `rows` rows a query head with -inf where a mask of truth values hides a key, or with the mask added."""
    if scores.shape[2] != rows:  # a mask differs from query head to query head, or repeats for each
        count = scores.shape[2]
        per_key_head = count // rows
        mask = fnp.reshape(mask, (*(1,) * (4 - len(mask.shape)), *mask.shape))
        mask = fnp.broadcast_to(mask, (*mask.shape[:1], max(mask.shape[1], per_key_head), *mask.shape[2:]))
        mask = fnp.broadcast_to(mask, (*mask.shape[:2], rows, mask.shape[3]))
        mask = fnp.reshape(mask, (mask.shape[0], mask.shape[1] // per_key_head, count, mask.shape[3]))
    if mask.dtype.kind == "b":
        return fnp.where(mask, scores, literal(-np.inf, scores.dtype))
    return fnp.add(scores, operand(mask, scores.dtype))


def _scores(query: Any, key: Any, mask: Any, causal: bool, scale: float | None, own: np.dtype, rows: int) -> Any:
    """scale · query keyᵀ, with -inf where the mask or causality hides a key; each query head has `rows` rows of the query."""
    factor = literal(_factor(query, scale), own)
    scores = fnp.multiply(fnp.matmul(operand(query, own), fnp.matrix_transpose(operand(key, own))), factor)
    if mask is not None:
        scores = _masked(scores, mask, rows)
    if causal:
        count, columns = (fnp.arange(extent) for extent in scores.shape[-2:])
        row = count if scores.shape[2] == rows else fnp.remainder(count, rows)
        hidden = literal(-np.inf, own)
        scores = fnp.where(fnp.less_equal(columns, fnp.expand_dims(row, 1)), scores, hidden)
    return scores


@rule(_NAME)
def _attention(
    dtype: np.dtype, query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, *,
    attn_mask: Any = None, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout:
        raise Refused("attention that drops weights at random")
    own, rows = wide(dtype), query.shape[2]
    shape = query.shape
    query = _grouped(query, key)
    scores = _scores(query, key, attn_mask, causal, scale, own, rows)
    largest = fnp.max(scores, -1, keepdims=True)
    if attn_mask is not None:  # a query may see no key: its result is 0
        largest = fnp.where(fnp.equal(largest, literal(-np.inf, own)), literal(0, own), largest)
    weights = fnp.exp(fnp.subtract(scores, largest))
    total = fnp.sum(weights, -1, keepdims=True)
    divisor = total if attn_mask is None else fnp.where(fnp.equal(total, literal(0, own)), literal(1, own), total)
    found = fnp.matmul(fnp.divide(weights, divisor), operand(value, own))
    sums = fnp.squeeze(fnp.add(fnp.log(total), largest), -1)
    return fnp.reshape(found, (*shape[:3], found.shape[-1])), fnp.reshape(sums, shape[:3])


@rule(f"{_NAME}_backward")
def _attention_backward(
    dtype: np.dtype, grad: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, dropout: float, causal: bool, *,
    attn_mask: Any = None, scale: float | None = None,
) -> Any:  # fmt: skip
    """Dao et al., "FlashAttention" (2022), algorithm 4: the weights are computed again from the logarithms of their sums."""
    if dropout:
        raise Refused("attention that drops weights at random")
    own, rows, shape = wide(dtype), query.shape[2], query.shape
    query, out, grad, logsumexp = (_grouped(x, key) for x in (query, out, grad, logsumexp))
    q, k, v, o, cotangent = (operand(x, own) for x in (query, key, value, out, grad))
    scores = _scores(query, key, attn_mask, causal, scale, own, rows)
    weights = fnp.exp(fnp.subtract(scores, fnp.expand_dims(operand(logsumexp, own), -1)))
    if attn_mask is not None:
        weights = fnp.where(fnp.equal(scores, literal(-np.inf, own)), literal(0, own), weights)
    of_weights = fnp.matmul(cotangent, fnp.matrix_transpose(v))
    mean = fnp.sum(fnp.multiply(cotangent, o), -1, keepdims=True)
    of_scores = fnp.multiply(fnp.multiply(weights, fnp.subtract(of_weights, mean)), literal(_factor(q, scale), own))
    return (
        fnp.reshape(fnp.matmul(of_scores, k), shape),
        fnp.matmul(fnp.matrix_transpose(of_scores), q),
        fnp.matmul(fnp.matrix_transpose(weights), cotangent),
    )
