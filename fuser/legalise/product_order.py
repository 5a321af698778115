"""The order of a product's operands: the one whose columns are the last axis of what becomes of the result comes second.

A product of a (rows) and b (columns) writes rows along b's dimensions. Where a transpose makes a's last dimension the last one, each
number would be written far from the one before; b times a is the same product, and writes them side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuser.ir.graph import Eqn, Graph, Var
from fuser.ops.dot import dot_general_p, free_dimensions
from fuser.ops.movement import transpose_p


def with_ordered_products(graph: Graph, runs: Callable[[Eqn], bool]) -> Graph:
    """The graph with products that are only transposed as products of the operands in the other order, where their columns are
    then in place. `runs`: whether the target has a kernel for a product."""
    products = {e.outvars[0]: n for n, e in enumerate(graph.eqns) if e.primitive is dot_general_p}
    uses = Counter([v for eqn in graph.eqns for v in eqn.invars] + list(graph.outvars)) if products else Counter()
    eqns = list(graph.eqns)
    for number, eqn in enumerate(graph.eqns):
        source = eqn.invars[0] if eqn.primitive is transpose_p else None
        if isinstance(source, Var) and source in products and uses[source] == 1:
            product = eqns[products[source]]
            moved = _permutation(product, eqn.params["permutation"])
            turned = None if moved is None else _turned(product)
            if turned is not None and runs(turned):
                eqns[products[source]] = turned
                eqns[number] = replace(eqn, invars=turned.outvars, params={**eqn.params, "permutation": moved})
    return graph.updated("product order", eqns=tuple(eqns)) if eqns != list(graph.eqns) else graph


def _permutation(product: Eqn, order: tuple[int, ...]) -> tuple[int, ...] | None:
    """The permutation of the product in the other order that `order` is of this one; None where its columns do not stay last and
    together: short parts of them are no better written, and worse read as the second operand."""
    (a, b), (contracted, batch) = product.invars, product.params["dimension_numbers"]
    rows = len(free_dimensions(a.aval.ndim, contracted[0], batch[0]))
    columns = len(free_dimensions(b.aval.ndim, contracted[1], batch[1]))
    shared = len(batch[0])
    if not rows or not columns:
        return None
    moved = tuple(d if d < shared else d + columns if d < shared + rows else d - rows for d in order)
    return moved if moved[-rows:] == tuple(range(len(order)))[-rows:] else None


def _turned(product: Eqn) -> Eqn:
    """The product of the operands in the other order."""
    params: dict[str, Any] = dict(product.params)
    params["dimension_numbers"] = tuple(tuple(sides[::-1]) for sides in params["dimension_numbers"])
    if isinstance(precision := params["precision"], tuple):
        params["precision"] = precision[::-1]
    operands = product.invars[::-1]
    aval = dot_general_p.rule("type")(*(v.aval for v in operands), **params)
    return replace(product, invars=operands, outvars=(Var(aval),), params=params)
