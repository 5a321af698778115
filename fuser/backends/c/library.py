"""Library steps of the CPU: matrix products by the BLAS behind torch where it is loaded or large work pays for loading it,
else NumPy's; everything else by its primitive's eval rule.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fuser.backends.reference import evaluate
from fuser.ir.graph import Eqn
from fuser.ir.primitive import Fusion
from fuser.ir.types import FLOATS, bfloat16
from fuser.ops.dot import as_matrices
from fuser.partition.group import FusionGroup

TORCH_FLOPS = 1 << 31  # work from which importing torch pays for itself within a few calls


def library(group: FusionGroup) -> Callable[..., Any]:
    """A function of the group's input arrays that gives the list of its outputs."""
    *before, last = group.graph.eqns
    if last.primitive.fusion is not Fusion.DOT or last.invars[0].aval.dtype.kind not in "fcV":
        return lambda *arrays: evaluate(group.graph, arrays)
    prefix = group.graph.updated("operands", eqns=tuple(before), outvars=last.invars)
    multiply = _multiply(last)
    return lambda *arrays: [multiply(*evaluate(prefix, arrays))]


def _multiply(eqn: Eqn) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    out = eqn.outvars[0].aval
    numbers = eqn.params["dimension_numbers"]

    def by_numpy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(eqn.primitive.rule("eval")(x, y, **eqn.params))

    def by_torch(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        import torch

        a, b = (torch.from_numpy(m) for m in as_matrices(x.astype(out.dtype, copy=False), y.astype(out.dtype, copy=False), numbers))
        return (a @ b).numpy().reshape(out.shape)  # type: ignore[no-any-return]

    flops = 2 * eqn.invars[0].aval.size * max(out.size // max(eqn.invars[0].aval.size, 1), 1)
    plain = out.dtype in FLOATS[2:] and eqn.invars[0].aval.dtype != bfloat16
    wanted = "torch" in sys.modules or flops >= TORCH_FLOPS
    return by_torch if plain and wanted and importlib.util.find_spec("torch") else by_numpy
