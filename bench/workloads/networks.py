"""Workloads with matrix products: the forward pass of a GELU MLP."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.workload import Workload


def _weights(random: np.random.Generator, batch: int, width: int, hidden: int) -> tuple[np.ndarray, ...]:
    return (
        random.standard_normal((batch, width)),
        random.standard_normal((width, hidden)) / width**0.5,
        random.standard_normal(hidden) * 0.1,
        random.standard_normal((hidden, width)) / hidden**0.5,
        random.standard_normal(width) * 0.1,
    )


def gelu(np: Any, x: Any) -> Any:
    """The tanh form of GELU."""
    return 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def gelu_mlp(np: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return gelu(np, x @ w1 + b1) @ w2 + b2


def _gelu_mlp_torch(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    import torch
    from torch.nn import functional

    hidden = functional.gelu(torch.addmm(b1, x, w1), approximate="tanh")
    return torch.addmm(b2, hidden, w2)


WORKLOADS = (
    Workload(
        "gelu_mlp",
        "two dense layers with a GELU between them",
        {
            "tiny": (8, 16, 32),
            "small": (32, 128, 512),
            "medium": (256, 512, 2048),
            "full": (1024, 1024, 4096),
            "large": (8192, 2048, 8192),
        },
        _weights,
        gelu_mlp,
        flops=lambda batch, width, hidden: 4 * batch * width * hidden + 12 * batch * hidden,
        torch=_gelu_mlp_torch,
        slack=4.0,
    ),
)
