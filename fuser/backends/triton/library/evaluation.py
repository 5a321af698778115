"""A group's graph on tensors, equation by equation, by rules that run on the device where the tensors are.

A rule takes the equation and its operands as tensors (elements that torch has no dtype for as what carries their bits) and gives
its results. None of them reads a value on the host, so that no step waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.backends.triton.library import factorisations, movement, ordering, products, scalars, scatter, small_dtypes
from fuser.ir.graph import Eqn, Graph, Literal
from fuser.ir.primitive import Fusion
from fuser.ir.types import SMALL, is_key
from fuser.ops.conversion import convert_element_type_p
from fuser.ops.triton_call import on_device, triton_call_p
from fuser.runtime.array import CARRIED, Array, torch_dtype

Rule = Callable[..., Any]

RULES: dict[Any, Rule] = {
    **movement.RULES,
    **ordering.RULES,
    **scatter.RULES,
    **factorisations.RULES,
    **scalars.RULES,
    triton_call_p: lambda eqn, *tensors: on_device(eqn.params)(*tensors),
}


def rule_of(eqn: Eqn) -> Rule | None:
    """The rule of an equation; None where the device has none."""
    avals = [v.aval for v in (*eqn.invars, *eqn.outvars)]
    if any(is_key(a.dtype) and a.dtype not in CARRIED for a in avals):
        return None
    if all(v.aval.size == 0 for v in eqn.outvars):
        return _nothing
    if eqn.primitive is convert_element_type_p and any(a.dtype in SMALL for a in avals):
        return small_dtypes.convert
    if eqn.primitive in RULES:
        return RULES[eqn.primitive] if eqn.primitive not in scalars.RULES or scalars.supported(eqn) else None
    if eqn.primitive.fusion is Fusion.DOT:
        return small_dtypes.around(products.multiply)
    if eqn.primitive.fusion is Fusion.ELEMENTWISE and eqn.primitive.lower is not None:
        return small_dtypes.around(scalars.elementwise) if scalars.supported(eqn) else None
    return None


def refusal(eqn: Eqn) -> str | None:
    """Why an equation is evaluated on the host; None where the device has a rule for it."""
    if rule_of(eqn) is not None:
        return None
    dtypes = " and ".join(dict.fromkeys(v.aval.dtype.name for v in eqn.invars))
    return f"torch has no function for {eqn.primitive.name} of {dtypes}"


def evaluator(graph: Graph) -> Callable[..., list[Any]]:
    """A function of the graph's inputs, tensors on one device, that gives its outputs there, row-major and without gaps."""
    rules = [rule_of(eqn) for eqn in graph.eqns]
    assert None not in rules

    def run(*arrays: Any) -> list[Any]:
        device = arrays[0].device if arrays else None
        values = dict(zip(graph.invars, arrays, strict=True))
        read = lambda v: _literal(v, device) if isinstance(v, Literal) else values[v]
        for eqn, rule in zip(graph.eqns, rules):
            results = rule(eqn, *map(read, eqn.invars))  # type: ignore[misc]
            results = results if eqn.primitive.multiple_results else (results,)
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(v).contiguous() for v in graph.outvars]

    return run


def _literal(operand: Literal, device: Any) -> Any:
    import torch

    dtype = operand.aval.dtype
    if dtype in SMALL or dtype.names:
        return Array(np.asarray(operand.val, dtype)).torch().to(device)
    return torch.full((), operand.val, dtype=torch_dtype(dtype), device=device)


def _nothing(eqn: Eqn, *operands: Any) -> Any:
    """Results without elements."""
    import torch

    device = operands[0].device if operands else None
    made = [torch.empty(v.aval.shape, dtype=torch_dtype(v.aval.dtype), device=device) for v in eqn.outvars]
    return made if eqn.primitive.multiple_results else made[0]
