"""`custom_partitioning`: a call of a graph whose division among devices is the user's (parallel/custom_partitioning.py).

Where nothing is divided, and within the graph of one device, it is the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import ArrayType
from fuser.trace.replay import replay


def _impl(*values: Any, call: Graph, **params: Any) -> list[Any]:
    return replay(call, *values)


def _eval(*arrays: np.ndarray, call: Graph, **params: Any) -> Sequence[np.ndarray]:
    return evaluate(call, arrays)


def _type(*avals: ArrayType, call: Graph, **params: Any) -> tuple[ArrayType, ...]:
    return call.out_avals


# Params: `call`, a closed graph whose first `num_consts` inputs are what the function closes over; `partitioning`, the user's
# functions and the trees that they take.
custom_partitioning_p: Primitive = register(
    Primitive("custom_partitioning", Fusion.CONTROL, multiple_results=True, type=_type, eval=_eval, run=_impl)
)
