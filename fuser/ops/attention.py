"""attention: products whose operands are made of other products and of reductions of these, as one equation.

Legalisation makes it of the graph of softmax(Q Kᵀ · scale + mask) V, its gradient and their kin; no user writes it, and no
transform meets it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph, Operand
from fuser.ir.primitive import Fusion, Primitive
from fuser.ir.types import FLOATS, ArrayType, bfloat16


def result_type(graph: Graph, result: Operand) -> ArrayType:
    """The type of a result of `attention`: a reduction of 16-bit numbers has the 32 bits in which it was accumulated."""
    aval = result.aval
    reduced = any(result in eqn.outvars and eqn.primitive.fusion is Fusion.REDUCE for eqn in graph.eqns)
    return ArrayType(aval.shape, np.dtype("float32")) if reduced and aval.dtype in (FLOATS[0], bfloat16) else aval


def _type(*operands: ArrayType, graph: Graph) -> tuple[ArrayType, ...]:
    return tuple(result_type(graph, v) for v in graph.outvars)


def _eval(*operands: Any, graph: Graph) -> tuple[Any, ...]:
    taken = [np.asarray(x).astype(v.aval.dtype) for x, v in zip(operands, graph.invars, strict=True)]
    results = evaluate(graph, taken)
    return tuple(np.asarray(r).astype(result_type(graph, v).dtype) for r, v in zip(results, graph.outvars))


# Not in the registry: its `graph`, whose results are products of rows and reductions of rows, is what it computes.
attention_p: Primitive = Primitive("attention", Fusion.DOT, multiple_results=True, type=_type, eval=_eval)
