"""Attention, with jax.nn's name: a softmax of products of queries and keys, as weights of values."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fuser import numpy as fnp
from fuser.errors import TypeRuleError, UnsupportedError
from fuser.lax.marks import stop_gradient
from fuser.lax.values import as_value, convert
from fuser.numpy.ufuncs import inexact_operand

__all__ = ["dot_product_attention"]


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: Literal["xla", "cudnn"] | None = None,
    return_residual: bool = False,
) -> Any:
    """softmax(scale·Q Kᵀ + bias)·V: query (B, T, N, H), key and value (B, S, K, H), without B too; the result is as the query.

    N is a multiple of K: each key head serves N/K query heads. bias and mask (True: attend) broadcast to (B, N, T, S). `scale` is
    1/√H unless told. Logits and the softmax are float32 at least. `is_causal` hides later keys, `local_window_size` (left,
    right) those farther away, the sequence lengths (B,) those beyond; queries beyond theirs give 0. With `return_residual`
    also the logarithm of the sum of exponentials (B, T, N), in the key's dtype. Vaswani et al., "Attention is all you need" (2017), equation 1.

    TypeRuleError for shapes that do not fit; UnsupportedError for implementation="cudnn".
    """
    if implementation == "cudnn":
        raise UnsupportedError("dot_product_attention is fused from what it is made of; leave implementation as it is")
    if implementation not in (None, "xla"):
        raise ValueError(f"Unsupported implementation option: {implementation}")
    q, k, v = (inexact_operand("dot_product_attention", x) for x in (query, key, value))
    lead = q.ndim == 3
    q, k, v = (x[None] if x.ndim == 3 else x for x in (q, k, v))
    bias, mask = (_four(x) for x in (bias, mask))
    _check(q, k, v, bias, mask)
    (batch, t, n, h), (_, s, kv_heads, _) = q.shape, k.shape
    wide = np.dtype("float64") if q.dtype == np.dtype("float64") else np.dtype("float32")
    grouped = fnp.reshape(q, (batch, t, kv_heads, n // kv_heads, h))
    logits = fnp.einsum("btkgh,bskh->bkgts", grouped, k, preferred_element_type=wide)
    logits = fnp.reshape(logits, (batch, n, t, s)) * np.asarray(1 / np.sqrt(h) if scale is None else scale, wide)
    if bias is not None:
        logits = logits + convert(bias, wide)
    visible = _visible(t, s, is_causal, local_window_size, key_value_seq_lengths, query_seq_lengths)
    if mask is not None:
        visible = mask if visible is None else fnp.logical_and(visible, mask)
    if visible is not None:
        logits = fnp.where(visible, logits, np.asarray(-0.7 * np.finfo(wide).max, wide))
    greatest = stop_gradient(fnp.max(logits, -1, keepdims=True))
    exponents = fnp.exp(logits - greatest)
    total = fnp.sum(exponents, -1, keepdims=True)
    weights = fnp.reshape((exponents / total).astype(k.dtype), (batch, kv_heads, n // kv_heads, t, s))
    out = fnp.reshape(fnp.einsum("bkgts,bskh->btkgh", weights, v), q.shape[:3] + v.shape[-1:])
    if query_seq_lengths is not None:
        kept = fnp.arange(t)[None, :] < as_value(query_seq_lengths)[:, None]
        out = fnp.where(kept[:, :, None, None], out, 0)
    residual = fnp.swapaxes((greatest + fnp.log(total))[..., 0], 1, 2).astype(k.dtype)
    out, residual = (out[0], residual[0]) if lead else (out, residual)
    return (out, residual) if return_residual else out


def _four(x: Any) -> Any:
    """bias and mask with four dimensions."""
    if x is None:
        return None
    value = as_value(x, "dot_product_attention")
    return fnp.reshape(value, (1,) * (4 - value.ndim) + value.shape)


def _check(q: Any, k: Any, v: Any, bias: Any, mask: Any) -> None:
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4:
        raise TypeRuleError(
            f"dot_product_attention takes arrays of rank 3 or 4, got shapes {q.shape}, {k.shape} and {v.shape}"
        )
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise TypeRuleError(
            f"dot_product_attention needs query (B, T, N, H), key and value (B, S, K, H), got {q.shape}, {k.shape} and {v.shape}"
        )
    if q.shape[2] % k.shape[2]:
        raise TypeRuleError(
            f"dot_product_attention: the query heads must be a multiple of the key heads, got {q.shape[2]} for {k.shape[2]}"
        )
    whole = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    for name, x in (("bias", bias), ("mask", mask)):
        if x is not None and any(e not in (1, w) for e, w in zip(x.shape, whole)):
            raise TypeRuleError(f"dot_product_attention needs a {name} that broadcasts to {whole}, got {x.shape}")
    if mask is not None and mask.dtype != np.dtype("bool"):
        raise ValueError(f"Mask must be boolean dtype, but got {mask.dtype}.")


def _visible(t: int, s: int, causal: bool, window: Any, key_lengths: Any, query_lengths: Any) -> Any:
    """Which keys each query may see, broadcast to (B, N, T, S); None for all."""
    rows, columns = fnp.arange(t)[:, None], fnp.arange(s)[None, :]
    found: Any = None
    join = lambda a, b: b if a is None else fnp.logical_and(a, b)
    if causal:
        found = join(found, columns <= rows)
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        found = join(found, (columns >= rows - left) & (columns <= rows + right))
    if found is not None:
        found = found[None, None]
    if key_lengths is not None:
        found = join(found, (columns < as_value(key_lengths)[:, None])[:, None, None, :])
    if query_lengths is not None:
        found = join(found, (fnp.arange(t)[None, :] < as_value(query_lengths)[:, None])[:, None, :, None])
    return found
