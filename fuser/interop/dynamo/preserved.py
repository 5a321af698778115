"""Operators that stay whole while AOTAutograd differentiates: resampling.

torch decomposes it before differentiation into reads at computed positions, whose derivative adds into memory element by
element. Kept whole, its derivative is an operator as well, and both have rules (`rules/resampling.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp.decompositions import upsample_compute_output_size

_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
_NAMES = (
    *(f"{name}{space}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for space in (1, 2, 3)),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
)


def operators() -> list[tuple[Any, Any]]:
    """The overloads that stay whole: with the extents and a scale for each axis, and with either and a list of scales ("vec")."""
    packets = [getattr(torch.ops.aten, name) for name in _NAMES]
    return [(packet.default, packet.vec) for packet in packets]


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """While the block runs, torch's dispatcher for tracing does not decompose the operators. The compile lock of Dynamo's is held."""
    kept = {op: dict(op.py_kernels) for pair in operators() for op in pair}
    try:
        for default, vec in operators():
            for op in (default, vec):
                _replace(op, {key: kernel for key, kernel in kept[op].items() if key not in _KEYS})
            _replace(vec, vec.py_kernels | dict.fromkeys(_KEYS, _with_extents(default)))
        yield
    finally:
        for op, kernels in kept.items():
            _replace(op, kernels)


def _replace(op: Any, kernels: dict[Any, Any]) -> None:
    op.py_kernels = kernels
    op._dispatch_cache.clear()


def _with_extents(default: Any) -> Callable[..., torch.Tensor]:
    """An overload "vec" as the one that is told the extents."""

    def vec(input: torch.Tensor, output_size: Any, *given: Any) -> torch.Tensor:
        *corners, scales = given
        extents = upsample_compute_output_size(input.size(), output_size, scales)
        each = scales or [None] * len(extents)
        return default(input, extents, *corners, *each)  # type: ignore[no-any-return]

    return vec
