"""Operators that stay whole while AOTAutograd differentiates, where torch would decompose them before.

Resampling becomes reads at computed positions, whose derivative adds into memory element by element; kept whole, its derivative is
an operator as well, and both have rules (`rules/resampling.py`). The decomposition of the multi-label margin loss is wrong for
rows of which fewer than all elements are targets; torch runs the operator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fuser.interop.dynamo.internals import DispatchKey, operator, suggest_memory_format, upsample_compute_output_size

_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
_NAMES = (
    *(f"{name}{space}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for space in (1, 2, 3)),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
)


def operators() -> list[tuple[Any, Any, Any]]:
    """The overloads that stay whole: with the extents and a scale for each axis, with either and a list of scales ("vec"), and the gradient."""
    named = [(f"{n}.default", f"{n}.vec", f"{n}_backward.default") for n in _NAMES]
    found = [(operator(default), operator(vec), operator(gradient)) for default, vec, gradient in named]
    return [overloads for overloads in found if None not in overloads]


def undecomposed() -> list[Any]:
    """All overloads that no decomposition is taken for."""
    margin_loss = operator("multilabel_margin_loss_forward.default")
    return [*(op for overloads in operators() for op in overloads), *filter(None, [margin_loss])]


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """While the block runs, torch's dispatcher for tracing does not decompose the operators. The compile lock of Dynamo's is held."""
    kept = {op: dict(op.py_kernels) for op in undecomposed()}
    try:
        for op, kernels in kept.items():
            _replace(op, {key: kernel for key, kernel in kernels.items() if key not in _KEYS})
        for default, vec, gradient in operators():
            _replace(vec, kept[vec] | dict.fromkeys(_KEYS, _with_extents(default)))
            _replace(gradient, kept[gradient] | {DispatchKey.Meta: _gradient})
        yield
    finally:
        for op, kernels in kept.items():
            _replace(op, kernels)


def _replace(op: Any, kernels: dict[Any, Any]) -> None:
    op.py_kernels = kernels
    op._dispatch_cache.clear()


def _gradient(grad: torch.Tensor, output_size: Any, input_size: Any, *more: Any) -> torch.Tensor:
    """The shape and strides of a gradient, where torch's own answer takes no symbolic sizes."""
    return grad.new_empty(input_size).to(memory_format=suggest_memory_format(grad))


def _with_extents(default: Any) -> Callable[..., torch.Tensor]:
    """An overload "vec" as the one that is told the extents."""

    def vec(input: torch.Tensor, output_size: Any, *given: Any) -> torch.Tensor:
        *corners, scales = given
        extents = upsample_compute_output_size(input.size(), output_size, scales)
        each = scales or [None] * len(extents)
        return default(input, extents, *corners, *each)  # type: ignore[no-any-return]

    return vec
