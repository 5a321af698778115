"""Scaled dot-product attention with the logarithms of its sums of exponentials, and its gradients."""

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


def _scores(query: Any, key: Any, mask: Any, causal: bool, scale: float | None, own: np.dtype) -> Any:
    """scale · query keyᵀ, with -inf where the mask or causality hides a key."""
    if query.shape[:2] != key.shape[:2]:
        raise Refused("queries of several heads for one of keys")
    factor = literal(_factor(query, scale), own)
    scores = fnp.multiply(fnp.matmul(operand(query, own), fnp.matrix_transpose(operand(key, own))), factor)
    hidden = literal(-np.inf, own)
    if mask is not None:
        scores = fnp.where(mask, scores, hidden) if mask.dtype.kind == "b" else fnp.add(scores, operand(mask, own))
    if causal:
        rows, columns = (fnp.arange(extent) for extent in scores.shape[-2:])
        scores = fnp.where(fnp.less_equal(columns, fnp.expand_dims(rows, 1)), scores, hidden)
    return scores


@rule(_NAME)
def _attention(
    dtype: np.dtype, query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, *,
    attn_mask: Any = None, scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout:
        raise Refused("attention that drops weights at random")
    own = wide(dtype)
    scores = _scores(query, key, attn_mask, causal, scale, own)
    largest = fnp.max(scores, -1, keepdims=True)
    if attn_mask is not None:  # a query may see no key: its result is 0
        largest = fnp.where(fnp.equal(largest, literal(-np.inf, own)), literal(0, own), largest)
    weights = fnp.exp(fnp.subtract(scores, largest))
    total = fnp.sum(weights, -1, keepdims=True)
    divisor = total if attn_mask is None else fnp.where(fnp.equal(total, literal(0, own)), literal(1, own), total)
    found = fnp.matmul(fnp.divide(weights, divisor), operand(value, own))
    return found, fnp.squeeze(fnp.add(fnp.log(total), largest), -1)


@rule(f"{_NAME}_backward")
def _attention_backward(
    dtype: np.dtype, grad: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, dropout: float, causal: bool, *,
    attn_mask: Any = None, scale: float | None = None,
) -> Any:  # fmt: skip
    """Dao et al., "FlashAttention" (2022), algorithm 4: the weights are computed again from the logarithms of their sums."""
    if dropout:
        raise Refused("attention that drops weights at random")
    own = wide(dtype)
    q, k, v, o, cotangent = (operand(x, own) for x in (query, key, value, out, grad))
    scores = _scores(query, key, attn_mask, causal, scale, own)
    weights = fnp.exp(fnp.subtract(scores, fnp.expand_dims(operand(logsumexp, own), -1)))
    if attn_mask is not None:
        weights = fnp.where(fnp.equal(scores, literal(-np.inf, own)), literal(0, own), weights)
    of_weights = fnp.matmul(cotangent, fnp.matrix_transpose(v))
    mean = fnp.sum(fnp.multiply(cotangent, o), -1, keepdims=True)
    of_scores = fnp.multiply(fnp.multiply(weights, fnp.subtract(of_weights, mean)), literal(_factor(q, scale), own))
    return (
        fnp.matmul(of_scores, k),
        fnp.matmul(fnp.matrix_transpose(of_scores), q),
        fnp.matmul(fnp.matrix_transpose(weights), cotangent),
    )
