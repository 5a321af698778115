"""How operations that have no rule of their own are made of others: torch's decompositions to core ATen, and a few more."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fuser.interop.dynamo.internals import core_aten_decompositions, get_decompositions, operator, operators
from fuser.interop.dynamo.preserved import undecomposed

_MORE = (
    *("silu", "leaky_relu_backward", "linalg_vector_norm", "dist", "round.decimals", "ldexp", "narrow_copy"),
    *("permute_copy", "view_copy", "unbind_copy", "tril_indices", "triu_indices", "rrelu_with_noise_backward", "as_strided_scatter"),
    *("adaptive_max_pool2d", "adaptive_max_pool3d"),
)  # fmt: skip
_EACH = (
    *("abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh", "div", "erf"),
    *("erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "maximum", "minimum", "mul"),
    *("neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan", "tanh", "trunc"),
)  # fmt: skip


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """From operations to functions of tensors that compute the same by core ATen operations."""
    table = dict(core_aten_decompositions())
    table.update(get_decompositions([op for _, op in operators(_MORE)]))
    table.update((op, _OWN[name]) for name, op in operators(_OWN))
    for name in _EACH:
        for packet in filter(None, [operator(f"_foreach_{name}")]):
            own = [overload for overload in packet.overloads() if not overload.endswith("out")]
            table.update((getattr(packet, overload), _each(getattr(torch, name))) for overload in own)
    for op in undecomposed():
        table.pop(op, None)
    # Its decomposition gives no logarithms of sums, which the gradient (an operation of its own) reads.
    table.pop(operator("_scaled_dot_product_flash_attention_for_cpu.default"), None)
    return table


def _dropout(input: torch.Tensor, p: float, train: bool | None) -> Any:
    """Dropout whose mask torch's generator draws as it does in eager mode, in the order of the input's memory; on a GPU torch's own
    kernel, which draws in an order that no other operation has."""
    if train is False or p == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(input), torch.zeros_like(input, dtype=torch.bool)
    if input.device.type != "cpu":
        return NotImplemented
    like = torch.empty_like(input, dtype=torch.bool)
    strides = like.stride()
    order = sorted(range(input.dim()), key=lambda d: -strides[d])
    mask = torch.bernoulli(like.permute(order), 1 - p).permute([order.index(d) for d in range(input.dim())])
    return input * mask * (1 / (1 - p)), mask


def _leaky_relu_of_means(
    input: torch.Tensor, noise: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Any:  # fmt: skip
    """RReLU: outside of training the slope is the mean of both; the second result is the noise, which only training draws."""
    if training:
        return NotImplemented
    return torch.nn.functional.leaky_relu(input, (lower + upper) / 2), noise.clone()


def _trilinear(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, of_a: Sequence[int], of_b: Sequence[int], of_c: Sequence[int],
    summed: Sequence[int], unroll_dim: int = 1,
) -> torch.Tensor:  # fmt: skip
    """The sum over `summed` of a · b · c, each with new dimensions where it is `of` fewer."""
    for dims, place in ((of_a, 0), (of_b, 1), (of_c, 2)):
        for dim in dims:
            a, b, c = (x.unsqueeze(dim) if n == place else x for n, x in enumerate((a, b, c)))
    return (a * b * c).sum(list(summed))


_LONG_ROWS = 25  # elements beyond which torch takes Euclidean distances by a product


def _distances(a: torch.Tensor, b: torch.Tensor, p: float, mode: int | None) -> torch.Tensor:
    """The p-norms of the differences of each row of `a` and each of `b`; Euclidean ones by a product where torch takes one."""
    long = a.shape[-2] > _LONG_ROWS or b.shape[-2] > _LONG_ROWS
    if p == 2 and (mode == 1 or (mode in (0, None) and long)):
        squares = a.square().sum(-1).unsqueeze(-1) + b.square().sum(-1).unsqueeze(-2)
        return (squares - 2 * (a @ b.transpose(-1, -2))).clamp_min(0).sqrt()
    return torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, -1)


def _distances_backward(
    grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, p: float, found: torch.Tensor
) -> torch.Tensor:
    """The gradient of the rows of `a`: nothing where two rows have no distance."""
    if p == 0:
        return torch.zeros_like(a)
    own, distance = grad.unsqueeze(-1), found.unsqueeze(-1)
    difference = a.unsqueeze(-2) - b.unsqueeze(-3)
    if p == 1:
        each = difference.sign()
    elif p == float("inf"):
        each = difference.sign() * (difference.abs() == distance)
    else:
        each = difference.sign() * (difference.abs() / distance) ** (p - 1)
        each = torch.where(distance == 0, torch.zeros_like(each), each)
    return (own * each).sum(-2)


def _distances_of_pairs(x: torch.Tensor, p: float = 2) -> torch.Tensor:
    """The p-norms of the differences of all pairs of rows, the first row's pairs first."""
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return torch.linalg.vector_norm(x[first] - x[second], p, -1)


def _weight_norm_backward(
    grad: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norms: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of v and g in w = g v / ‖v‖."""
    others = [d for d in range(v.dim()) if d != dim]
    along = (v * grad).sum(others, keepdim=True)
    return (g / norms) * (grad - v * (along / (norms * norms))), along / norms


_SUM, _MEAN = 0, 1  # modes of embedding bags


def _embedding_bag_backward(
    grad: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, bags: torch.Tensor, sizes: torch.Tensor, largest: torch.Tensor,
    count: int, scale_grad_by_freq: bool, mode: int, sparse: bool, per_sample_weights: torch.Tensor | None, padding_idx: int = -1,
) -> Any:  # fmt: skip
    """The gradient of the weight: to each index' row the cotangent of its bag. `bags` is empty where torch did without."""
    if mode not in (_SUM, _MEAN) or scale_grad_by_freq or sparse:
        return NotImplemented
    if mode == _MEAN:
        grad = grad / sizes.clamp_min(1).unsqueeze(1).to(grad.dtype)
    rows = grad.index_select(0, _bags(offsets, indices))
    rows = rows if per_sample_weights is None else rows * per_sample_weights.unsqueeze(1)
    rows = rows if padding_idx < 0 else torch.where((indices != padding_idx).unsqueeze(1), rows, 0)
    return grad.new_zeros(count, grad.shape[1]).index_add(0, indices, rows)


def _embedding_bag_weights_backward(
    grad: torch.Tensor, weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, bags: torch.Tensor, mode: int, padding_idx: int = -1
) -> torch.Tensor:  # fmt: skip
    """The gradients of the weights of each index, of sums."""
    found = (grad.index_select(0, _bags(offsets, indices)) * weight.index_select(0, indices)).sum(1)
    return found if padding_idx < 0 else torch.where(indices != padding_idx, found, 0)


def _bags(offsets: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """The bag of each index."""
    steps = torch.arange(indices.shape[0], dtype=indices.dtype, device=indices.device)
    return torch.searchsorted(offsets, steps, right=True) - 1


def _each(function: Callable[..., torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
    """The function of lists of tensors, and of numbers, that calls `function` for each place in them."""
    value_last = function in (torch.addcmul, torch.addcdiv)

    def over(first: Sequence[torch.Tensor], *others: Any, **more: Any) -> list[torch.Tensor]:
        found = []
        for n, x in enumerate(first):
            own = [other[n] if isinstance(other, (list, tuple)) else other for other in others]
            named = {"value": own.pop()} if value_last and len(own) == 3 else {}
            found.append(function(x, *own, **named, **more))
        return found

    return over


_OWN: dict[str, Callable[..., Any]] = {
    "native_dropout.default": _dropout,
    "rrelu_with_noise_functional.default": _leaky_relu_of_means,
    "_trilinear.default": _trilinear,
    "_cdist_forward.default": _distances,
    "_cdist_backward.default": _distances_backward,
    "_pdist_forward.default": _distances_of_pairs,
    "_weight_norm_interface_backward.default": _weight_norm_backward,
    "_embedding_bag_backward.default": _embedding_bag_backward,
    "_embedding_bag_per_sample_weights_backward.default": _embedding_bag_weights_backward,
    "_foreach_norm.Scalar": _each(torch.linalg.vector_norm),
    "_foreach_clone.default": _each(torch.clone),
}
