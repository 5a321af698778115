"""Workloads that reduce each row of a matrix and use the result on the row: softmax, norms, cross-entropy.

torch gets its own operators (`torch.softmax`, `layer_norm`, ...), which is what its users write.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.workload import MATRIX, Workload

EPSILON = 1e-5


def _matrix(random: np.random.Generator, n: int, m: int) -> tuple[np.ndarray, ...]:
    return (random.standard_normal((n, m)) * 2.0,)


def _matrix_and_scale(random: np.random.Generator, n: int, m: int) -> tuple[np.ndarray, ...]:
    return random.standard_normal((n, m)) * 2.0 + 0.5, random.uniform(0.5, 1.5, m)


def _matrix_scale_bias(random: np.random.Generator, n: int, m: int) -> tuple[np.ndarray, ...]:
    return *_matrix_and_scale(random, n, m), random.standard_normal(m)


def logits_and_labels(random: np.random.Generator, n: int, m: int) -> tuple[np.ndarray, ...]:
    return random.standard_normal((n, m)) * 2.0, random.integers(0, m, n, dtype=np.int32)


def softmax(np: Any, x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def _softmax_torch(x: Any) -> Any:
    import torch

    return torch.softmax(x, -1)


def _softmax_numba() -> Callable[..., Any]:
    import numba

    @numba.njit(parallel=True, fastmath={"reassoc", "contract"})
    def run(x):  # type: ignore[no-untyped-def]
        out = np.empty_like(x)
        for i in numba.prange(x.shape[0]):
            top = x[i, 0]
            for j in range(x.shape[1]):
                top = max(top, x[i, j])
            total = np.float32(0.0)
            for j in range(x.shape[1]):
                e = math.exp(x[i, j] - top)
                out[i, j] = e
                total += e
            scale = np.float32(1.0) / total
            for j in range(x.shape[1]):
                out[i, j] *= scale
        return out

    return run


def layer_norm(np: Any, x: Any, scale: Any, bias: Any) -> Any:
    mean = np.mean(x, axis=-1, keepdims=True)
    centred = x - mean
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * scale + bias


def _layer_norm_torch(x: Any, scale: Any, bias: Any) -> Any:
    from torch.nn import functional

    return functional.layer_norm(x, scale.shape, scale, bias, EPSILON)


def _layer_norm_numba() -> Callable[..., Any]:
    import numba

    epsilon = np.float32(EPSILON)

    @numba.njit(parallel=True, fastmath={"reassoc", "contract"})
    def run(x, scale, bias):  # type: ignore[no-untyped-def]
        out = np.empty_like(x)
        width = np.float32(x.shape[1])
        for i in numba.prange(x.shape[0]):
            total = np.float32(0.0)
            for j in range(x.shape[1]):
                total += x[i, j]
            mean = total / width
            squares = np.float32(0.0)
            for j in range(x.shape[1]):
                squares += (x[i, j] - mean) * (x[i, j] - mean)
            factor = np.float32(1.0) / math.sqrt(squares / width + epsilon)
            for j in range(x.shape[1]):
                out[i, j] = (x[i, j] - mean) * factor * scale[j] + bias[j]
        return out

    return run


def rms_norm(np: Any, x: Any, scale: Any) -> Any:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * scale


def _rms_norm_torch(x: Any, scale: Any) -> Any:
    from torch.nn import functional

    return functional.rms_norm(x, scale.shape, scale, EPSILON)


def _rms_norm_numba() -> Callable[..., Any]:
    import numba

    epsilon = np.float32(EPSILON)

    @numba.njit(parallel=True, fastmath={"reassoc", "contract"})
    def run(x, scale):  # type: ignore[no-untyped-def]
        out = np.empty_like(x)
        width = np.float32(x.shape[1])
        for i in numba.prange(x.shape[0]):
            squares = np.float32(0.0)
            for j in range(x.shape[1]):
                squares += x[i, j] * x[i, j]
            factor = np.float32(1.0) / math.sqrt(squares / width + epsilon)
            for j in range(x.shape[1]):
                out[i, j] = x[i, j] * factor * scale[j]
        return out

    return run


def cross_entropy(np: Any, logits: Any, labels: Any) -> Any:
    """The loss of each row: log-sum-exp minus the label's logit, which is gathered."""
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    picked = np.take_along_axis(shifted, labels[:, None], axis=-1)[:, 0]
    return np.log(np.sum(np.exp(shifted), axis=-1)) - picked


def _cross_entropy_torch(logits: Any, labels: Any) -> Any:
    from torch.nn import functional

    return functional.cross_entropy(logits, labels, reduction="none")


def _cross_entropy_numba() -> Callable[..., Any]:
    import numba

    @numba.njit(parallel=True, fastmath={"reassoc", "contract"})
    def run(logits, labels):  # type: ignore[no-untyped-def]
        out = np.empty(logits.shape[0], logits.dtype)
        for i in numba.prange(logits.shape[0]):
            top = logits[i, 0]
            for j in range(logits.shape[1]):
                top = max(top, logits[i, j])
            total = np.float32(0.0)
            for j in range(logits.shape[1]):
                total += math.exp(logits[i, j] - top)
            out[i] = math.log(total) - (logits[i, labels[i]] - top)
        return out

    return run


def cross_entropy_one_hot(np: Any, logits: Any, labels: Any) -> Any:
    """The same loss as a sum over log-softmax times one-hot labels, the mask made by comparing with arange."""
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    log_softmax = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    is_label = labels[:, None] == np.arange(logits.shape[-1], dtype=labels.dtype)[None, :]
    return -np.sum(log_softmax * is_label, axis=-1)


def _cross_entropy_one_hot_torch(logits: Any, labels: Any) -> Any:
    import torch

    log_softmax = torch.log_softmax(logits, -1)
    is_label = labels[:, None] == torch.arange(logits.shape[-1], dtype=labels.dtype, device=labels.device)[None, :]
    return -torch.sum(log_softmax * is_label, -1)


WORKLOADS = (
    Workload(
        "softmax",
        "softmax over the rows of a matrix",
        MATRIX,
        _matrix,
        softmax,
        flops=lambda n, m: 5 * n * m,
        torch=_softmax_torch,
        numba=_softmax_numba,
        rows=1,
        floor=1e-4,
    ),
    Workload(
        "layer_norm",
        "layer norm over the rows, with scale and bias",
        MATRIX,
        _matrix_scale_bias,
        layer_norm,
        flops=lambda n, m: 8 * n * m,
        torch=_layer_norm_torch,
        numba=_layer_norm_numba,
        rows=1,
    ),
    Workload(
        "rms_norm",
        "RMS norm over the rows, with scale",
        MATRIX,
        _matrix_and_scale,
        rms_norm,
        flops=lambda n, m: 4 * n * m,
        torch=_rms_norm_torch,
        numba=_rms_norm_numba,
        rows=1,
    ),
    Workload(
        "cross_entropy",
        "the loss of each row, the label's logit gathered",
        MATRIX,
        logits_and_labels,
        cross_entropy,
        flops=lambda n, m: 4 * n * m,
        torch=_cross_entropy_torch,
        numba=_cross_entropy_numba,
        rows=2,
    ),
    Workload(
        "cross_entropy_one_hot",
        "the same loss with one-hot labels made by a comparison",
        MATRIX,
        logits_and_labels,
        cross_entropy_one_hot,
        flops=lambda n, m: 8 * n * m,
        torch=_cross_entropy_one_hot_torch,
        numba=_cross_entropy_numba,
        rows=2,
    ),
)
