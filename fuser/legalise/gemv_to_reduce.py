"""Products with a vector inside loops, as sums of products: they read a matrix once and do nothing else with it.

A library's product of a matrix and a vector costs its call, and copies of the parts that it takes; as a sum it is fused
with what is before and after it.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.graph import Eqn, Graph
from fuser.ops.dot import dot_general_p, free_dimensions
from fuser.passes.reductions.dot_to_reduce import written_out

DTYPES = {np.dtype(name) for name in ("float32", "float64", "int32", "int64", "uint32", "uint64")}


def gemv_to_reduce(graph: Graph) -> Graph:
    """The graph with each product of a vector and a vector or a matrix as a sum of products."""
    return written_out(graph, _with_vector)


def _with_vector(eqn: Eqn) -> bool:
    if eqn.primitive is not dot_general_p or eqn.invars[0].aval.dtype not in DTYPES:
        return False
    contracted, batch = eqn.params["dimension_numbers"]
    free = [free_dimensions(v.aval.ndim, *dims) for v, *dims in zip(eqn.invars, contracted, batch)]
    same = eqn.outvars[0].aval.dtype == eqn.invars[0].aval.dtype
    return same and not any(batch) and bool(contracted[0]) and not all(free)
