"""Library steps on the GPU: matrix products through cuBLAS, and what else no kernel is generated for through torch's functions
on the device's arrays (cuSOLVER, cuFFT, radix sort). What torch has no function for is evaluated on the host, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fuser.backends.base import Memory
from fuser.backends.triton.library import evaluation, products
from fuser.ir.evaluate import evaluate
from fuser.partition.group import FusionGroup, Kind, Plan
from fuser.runtime.array import Array, to_numpy


def library(group: FusionGroup, memory: Memory) -> Callable[..., Any]:
    """A function of the group's input arrays that gives the list of its outputs, in this memory."""
    product = products.product(group)
    if product is not None:
        return product
    if host_reason(group) is None:
        return evaluation.evaluator(group.graph)
    return _on_host(group, memory.place)


def host_reason(group: FusionGroup) -> str | None:
    """Why a library step runs on the host, which waits for the device and copies twice; None where it runs on the device."""
    if products.product(group) is not None:
        return None
    return next(filter(None, map(evaluation.refusal, group.graph.eqns)), None)


def host_steps(plan: Plan) -> Iterator[tuple[str, str]]:
    """Name and reason of each step of a plan, and of the bodies of its control flow, that runs on the host."""
    for group in plan.groups:
        in_library = group.reason and group.kind in (Kind.LIBRARY, Kind.CONTRACTION)
        if in_library and (reason := host_reason(group)) is not None:
            yield group.name, reason
        for body in group.bodies:
            yield from host_steps(body)


def _on_host(group: FusionGroup, place: Callable[[Any], Any]) -> Callable[..., Any]:
    dtypes = [v.aval.dtype for v in group.graph.invars]

    def run(*arrays: Any) -> list[Any]:
        return [
            place(np.ascontiguousarray(v).reshape(v.shape))
            for v in evaluate(group.graph, [to_numpy(Array(a, dtype=d)) for a, d in zip(arrays, dtypes)])
        ]

    return run
