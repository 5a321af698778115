"""Functions as fuser's users and as torch's write them, for the comparison of kernels that needs no GPU (`bench.static --inductor`).

`PAIRS[name]` is the function for fuser, its twin for torch as the name of a function in `torch_forms(torch)`, and the types of the arguments.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import fuser
import fuser.numpy as fnp
from bench.workloads.elementwise import black_scholes
from fuser.ir.types import ArrayType, bfloat16

F32, I32 = np.dtype("float32"), np.dtype("int32")
Types = tuple[ArrayType, ...]


def of(*shape: int, dtype: Any = F32) -> ArrayType:
    return ArrayType(shape, np.dtype(dtype))


def half(*shape: int) -> ArrayType:
    return ArrayType(shape, bfloat16)


def polynomial(x: Any, y: Any) -> Any:
    return 0.5 * x * x * x + 2 * x * x * y - y


def softmax(x: Any) -> Any:
    return fuser.nn.softmax(x, axis=-1)


def softmax_backward(y: Any, ct: Any) -> Any:
    return y * (ct - (y * ct).sum(-1, keepdims=True))


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    wide = x.astype("float32")
    mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    return ((wide - mean) / fnp.sqrt(variance + 1e-5) * scale + bias).astype(x.dtype)


def layer_norm_gradients(x: Any, scale: Any, bias: Any, ct: Any) -> Any:
    out, pulled = fuser.vjp(layer_norm, x, scale, bias)
    return out, *pulled(ct)


def rms_norm(x: Any, scale: Any) -> Any:
    wide = x.astype("float32")
    return (wide / fnp.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * scale


def cross_entropy(logits: Any, labels: Any) -> Any:
    logits = logits.astype("float32")
    picked = fnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
    return (fuser.nn.logsumexp(logits, -1) - picked).mean()


def cross_entropy_gradient(logits: Any, labels: Any) -> Any:
    return fuser.value_and_grad(cross_entropy)(logits, labels)


def adam(parameters: Any, slopes: Any, means: Any, squares: Any) -> Any:
    results = []
    for p, g, m, v in zip(parameters, slopes, means, squares):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        results.append((p - 1e-3 * m / (fnp.sqrt(v) + 1e-8), m, v))
    return results


def rotary(x: Any, cos: Any, sin: Any) -> Any:
    first, second = fnp.split(x, 2, axis=-1)
    turned = fnp.concatenate([-second, first], axis=-1)
    return (x * cos[:, None, :] + turned * sin[:, None, :]).astype(x.dtype)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = fnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.125
    return fnp.einsum("bhqk,bhkd->bhqd", fuser.nn.softmax(scores.astype("float32"), -1).astype(q.dtype), v)


SIZES = ((4096, 4096), (4096,), (11008, 4096), (4096,), (512, 512), (77, 33))
PAIRS: dict[str, tuple[Callable[..., Any], str, Any]] = {
    "polynomial": (polynomial, "polynomial", (of(1 << 26), of(1 << 26))),
    "polynomial bfloat16": (polynomial, "polynomial", (half(1 << 26), half(1 << 26))),
    "polynomial of an odd size": (polynomial, "polynomial", (of((1 << 26) + 1), of((1 << 26) + 1))),
    "bias and relu": (lambda x, b: fnp.maximum(x + b, 0), "bias", (of(8192, 8192), of(8192))),
    "bias and relu, width 1000": (lambda x, b: fnp.maximum(x + b, 0), "bias", (of(8192, 1000), of(1000))),
    "sum with a transpose": (lambda x, y: x.T + y, "transposed", (of(8192, 8192), of(8192, 8192))),
    "gelu bfloat16": (lambda x: fuser.nn.gelu(x, approximate=False), "gelu", (half(8192, 8192),)),
    "gated silu bfloat16": (lambda x, y: fuser.nn.silu(x) * y, "gated", (half(8192, 11008), half(8192, 11008))),
    "gelu by tanh bfloat16": (lambda x: fuser.nn.gelu(x), "gelu_tanh", (half(8192, 8192),)),
    "tanh bfloat16": (lambda x: fnp.tanh(x), "tanh", (half(1 << 26),)),
    "exponential of a sine": (lambda x: fnp.exp(fnp.sin(x)), "exp_sin", (of(1 << 26),)),
    "power": (lambda x, y: x**y, "power", (of(1 << 26), of(1 << 26))),
    "option prices": (lambda *given: black_scholes(fnp, *given), "options", (of(1 << 24),) * 3),
    "rotary bfloat16": (rotary, "rotary", (half(4096, 32, 128), half(4096, 128), half(4096, 128))),
    "softmax 4096": (softmax, "softmax", (of(4096, 4096),)),
    "softmax bfloat16 4096": (softmax, "softmax", (half(4096, 4096),)),
    "softmax 256": (softmax, "softmax", (of(65536, 256),)),
    "softmax 1025": (softmax, "softmax", (of(32768, 1025),)),
    "softmax bfloat16 5120": (softmax, "softmax", (half(8192, 5120),)),
    "softmax 65536": (softmax, "softmax", (of(1024, 65536),)),
    "softmax 2^20": (softmax, "softmax", (of(8, 1 << 20),)),
    "logsumexp 32768": (lambda x: fuser.nn.logsumexp(x, -1), "logsumexp", (of(4096, 32768),)),
    "softmax with a mask": (
        lambda x, m: softmax(fnp.where(m > 0, x, -np.inf)),
        "masked_softmax",
        (of(8192, 2048), of(8192, 2048, dtype=np.int8)),
    ),
    "softmax backward bfloat16": (softmax_backward, "softmax_backward", (half(8192, 4096),) * 2),
    "norm of channels": (
        lambda x: x / fnp.sqrt((x * x).mean(1, keepdims=True) + 1e-6),
        "channel_norm",
        (of(16, 256, 64, 64),),
    ),
    "argmax of rows": (lambda x: fnp.argmax(x, -1), "argmax", (of(8192, 4096),)),
    "layer norm": (layer_norm, "layer_norm", (of(4096, 4096), of(4096), of(4096))),
    "layer norm bfloat16": (layer_norm, "layer_norm", (half(8192, 4096), half(4096), half(4096))),
    "layer norm with gradients": (
        layer_norm_gradients,
        "layer_norm_gradients",
        (of(4096, 4096), of(4096), of(4096), of(4096, 4096)),
    ),
    "sum and rms norm bfloat16": (
        lambda x, r, s: ((y := x + r), rms_norm(y, s)),
        "residual_norm",
        (half(8192, 4096), half(8192, 4096), half(4096)),
    ),
    "cross entropy bfloat16": (cross_entropy, "cross_entropy", (half(8192, 32000), of(8192, dtype=I32))),
    "cross entropy with gradient": (
        cross_entropy_gradient,
        "cross_entropy_gradient",
        (half(8192, 32000), of(8192, dtype=I32)),
    ),
    "sum of columns": (lambda x: x.sum(0), "column_sum", (of(8192, 8192),)),
    "sum of rows": (lambda x: x.sum(1), "row_sum", (of(8192, 8192),)),
    "sum of all": (lambda x: x.sum(), "full_sum", (of(1 << 26),)),
    "mean and deviation": (lambda x: (x.mean(), x.std()), "moments", (of(1 << 26),)),
    "running sum": (lambda x: fnp.cumsum(x), "running_sum", (of(1 << 26),)),
    "running sum of rows": (lambda x: fnp.cumsum(x, axis=1), "running_rows", (of(4096, 4096),)),
    "adam of 6 arrays": (adam, "adam", tuple([of(*s) for s in SIZES] for _ in range(4))),
    "product, bias and relu bfloat16": (
        lambda x, w, b: fnp.maximum(x @ w + b, 0),
        "product",
        (half(4096, 1024), half(1024, 4096), half(4096)),
    ),
    "attention bfloat16": (attention, "attention", (half(4, 16, 2048, 64),) * 3),
}


def torch_forms(torch: Any) -> dict[str, Callable[..., Any]]:
    """The same functions of torch's tensors; gradients as torch's own backward operators."""
    functional, aten = torch.nn.functional, torch.ops.aten

    def layer_norm_gradients(x: Any, scale: Any, bias: Any, ct: Any) -> Any:
        shape = [x.shape[-1]]
        out, mean, deviation = aten.native_layer_norm.default(x, shape, scale, bias, 1e-5)
        back = aten.native_layer_norm_backward.default(ct, x, shape, mean, deviation, scale, bias, [True] * 3)
        return out, *back

    def residual_norm(x: Any, r: Any, scale: Any) -> Any:
        y = x + r
        return y, functional.rms_norm(y, (y.shape[-1],), None, 1e-6) * scale

    def cross_entropy(logits: Any, labels: Any) -> Any:
        return functional.nll_loss(torch.log_softmax(logits.float(), -1), labels.long())

    def cross_entropy_gradient(logits: Any, labels: Any) -> Any:
        logs = torch.log_softmax(logits.float(), -1)
        places = torch.arange(logits.shape[1], device=logits.device).unsqueeze(0)
        slope = (torch.exp(logs) - (places == labels.unsqueeze(1)).float()) / logits.shape[0]
        return functional.nll_loss(logs, labels.long()), slope.to(logits.dtype)

    def adam(parameters: Any, slopes: Any, means: Any, squares: Any) -> Any:
        results = []
        for p, g, m, v in zip(parameters, slopes, means, squares):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            results += [p - 1e-3 * m / (torch.sqrt(v) + 1e-8), m, v]
        return results

    def rotary(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x.chunk(2, -1)
        return x * cos.unsqueeze(1) + torch.cat([-second, first], -1) * sin.unsqueeze(1)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax((q @ k.transpose(-1, -2) * 0.125).float(), -1).to(q.dtype) @ v

    return {
        "polynomial": polynomial,
        "bias": lambda x, b: torch.relu(x + b),
        "transposed": lambda x, y: x.t() + y,
        "gelu": functional.gelu,
        "gated": lambda x, y: functional.silu(x) * y,
        "rotary": rotary,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "tanh": torch.tanh,
        "exp_sin": lambda x: torch.exp(torch.sin(x)),
        "power": torch.pow,
        "options": functools.partial(black_scholes, torch),
        "masked_softmax": lambda x, m: torch.softmax(torch.where(m > 0, x, -math.inf), -1),
        "softmax_backward": lambda y, ct: y * (ct - (y * ct).sum(-1, keepdim=True)),
        "channel_norm": lambda x: x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-6),
        "argmax": lambda x: torch.argmax(x, -1),
        "softmax": lambda x: torch.softmax(x, -1),
        "logsumexp": lambda x: torch.logsumexp(x, -1),
        "layer_norm": lambda x, s, b: functional.layer_norm(x, (x.shape[-1],), s, b, 1e-5),
        "layer_norm_gradients": layer_norm_gradients,
        "residual_norm": residual_norm,
        "cross_entropy": cross_entropy,
        "cross_entropy_gradient": cross_entropy_gradient,
        "column_sum": lambda x: x.sum(0),
        "row_sum": lambda x: x.sum(1),
        "full_sum": lambda x: x.sum(),
        "moments": lambda x: (x.mean(), x.std(correction=0)),
        "running_sum": lambda x: torch.cumsum(x, 0),
        "running_rows": lambda x: torch.cumsum(x, 1),
        "adam": adam,
        "product": lambda x, w, b: torch.relu(x @ w + b),
        "attention": attention,
    }
