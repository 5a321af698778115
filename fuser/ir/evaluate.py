"""A Graph on NumPy arrays, equation by equation, by the primitives' eval rules: the reference for everything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.ir.graph import Graph, Literal
from fuser.runtime.array import to_numpy


def evaluate(graph: Graph, arrays: Sequence[Any]) -> list[np.ndarray]:
    """The graph's outputs for these inputs."""
    values: dict[Any, np.ndarray] = dict(zip((*graph.constvars, *graph.invars), (*graph.consts, *arrays)))

    def read(operand: Any) -> np.ndarray:
        return np.asarray(operand.val) if isinstance(operand, Literal) else to_numpy(values[operand])

    with np.errstate(all="ignore"):
        for eqn in graph.eqns:
            result = eqn.primitive.rule("eval")(*(read(v) for v in eqn.invars), **eqn.params)
            results = result if eqn.primitive.multiple_results else (result,)
            for var, value in zip(eqn.outvars, results):
                values[var] = np.asarray(value)
    return [read(v) for v in graph.outvars]
