"""Compiled PyTorch functions against eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def agree(function: Callable[..., Any], *arguments: Any, gradients: bool = True, tolerance: float = 2e-5) -> None:
    """Results with their strides, buffers, and the gradients of the sum of squares, as eager torch gives them."""
    module = function if isinstance(function, nn.Module) else None
    state = {k: v.clone() for k, v in module.state_dict().items()} if module is not None else {}

    def run(called: Callable[..., Any]) -> Any:
        leaves = [
            a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in arguments
        ]
        if module is not None:
            module.load_state_dict(state)
            module.zero_grad()
        torch.manual_seed(7)
        results = called(*leaves)
        results = results if isinstance(results, tuple) else (results,)
        found = list(results)
        if gradients:
            sum(r.float().square().sum() for r in results if r.is_floating_point()).backward()
            found += [a.grad for a in leaves if isinstance(a, torch.Tensor) and a.requires_grad]
            found += [p.grad.clone() for p in module.parameters()] if module is not None else []
        return found + ([b.clone() for b in module.buffers()] if module is not None else []), results

    (wanted, eager), (found, compiled) = run(function), run(torch.compile(function, backend="fuser"))
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert [r.stride() for r in compiled] == [r.stride() for r in eager]
