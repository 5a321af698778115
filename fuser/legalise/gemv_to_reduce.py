"""Products with a vector, as sums of products: they read a matrix once and do nothing else with it.

In native loops: a library's product of a matrix and a vector costs its call, and copies of the parts that it takes; as a sum it is fused
with what is before and after it. A large matrix that is there before the iteration is left to the library, which reads it in
either order at the speed of the cache that it lies in. Where `gemv_as_sums` says so, everywhere and whatever the matrix: a kernel of products of blocks
computes 16 columns for the vector's one.
"""

from __future__ import annotations

import numpy as np

from fuser.ir.graph import Eqn, Graph, Operand
from fuser.ops.dot import dot_general_p, free_dimensions
from fuser.ops.movement import transpose_p
from fuser.passes.reductions.dot_to_reduce import LARGE, written_out

FLOATS = {np.dtype("float32"), np.dtype("float64")}  # of which the library has kernels for vectors
DTYPES = {np.dtype(name) for name in ("float32", "float64", "int32", "int64", "uint32", "uint64")}


def gemv_to_reduce(graph: Graph) -> Graph:
    """The graph with each product of a vector and a vector or a matrix as a sum of products, but for large matrices in memory."""
    stored = _stored(graph)
    return written_out(graph, lambda eqn: _with_vector(eqn) and not _reads_much(eqn, stored))


def with_vectors_as_sums(graph: Graph) -> Graph:
    """The graph with each product of vectors, or of matrices and vectors, as a sum of products; several in a batch too."""
    return written_out(graph, lambda eqn: _with_vector(eqn, batched=True))


def _stored(graph: Graph) -> set[Operand]:
    """What lies in memory when the graph begins, and what is read from there in another order."""
    found: set[Operand] = {*graph.invars}
    for eqn in graph.eqns:
        if eqn.primitive is transpose_p and eqn.invars[0] in found:
            found.add(eqn.outvars[0])
    return found


def _reads_much(eqn: Eqn, stored: set[Operand]) -> bool:
    return any(v in stored and v.aval.size >= LARGE and v.aval.dtype in FLOATS for v in eqn.invars)


def _with_vector(eqn: Eqn, batched: bool = False) -> bool:
    if eqn.primitive is not dot_general_p or eqn.invars[0].aval.dtype not in DTYPES:
        return False
    contracted, batch = eqn.params["dimension_numbers"]
    free = [free_dimensions(v.aval.ndim, *dims) for v, *dims in zip(eqn.invars, contracted, batch)]
    same = eqn.outvars[0].aval.dtype == eqn.invars[0].aval.dtype
    return same and (batched or not any(batch)) and bool(contracted[0]) and not all(free)
