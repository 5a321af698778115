"""attention: a product, a reduction relative to each row's maximum, and a product of the result, as one equation.

Legalisation makes it of the graph of softmax(Q Kᵀ · scale + mask) V and its kin; no user writes it, and no transform meets it.
"""

from __future__ import annotations

from typing import Any

from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.primitive import Fusion, Primitive
from fuser.ir.types import ArrayType


def _type(*operands: ArrayType, graph: Graph) -> ArrayType:
    return graph.outvars[0].aval


def _eval(*operands: Any, graph: Graph) -> Any:
    return evaluate(graph, operands)[0]


# Not in the registry: its `graph`, whose last equation is the second product, is what it computes.
attention_p: Primitive = Primitive("attention", Fusion.DOT, type=_type, eval=_eval)
