"""`custom_linear_solve`: x with matvec(x) = b by a solver of the user's, differentiated by what it solves, not by how.

Operands are the constants of four closed Graphs (matvec, vecmat, solve, transpose_solve) and then b; `const_lengths` says
how many each has. vecmat and transpose_solve may be None. Results beyond those of matvec are auxiliary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.primitive import REGISTRY, Fusion, Primitive, register
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.ops.linear_call import parted
from fuser.trace.batch import moved, size_of
from fuser.trace.graphs import batch_graph
from fuser.trace.jvp import jvp
from fuser.trace.replay import replay
from fuser.trace.tangent import Zero, all_zero, instantiate, zero_like

Lengths = tuple[int, int, int, int]
Graphs = tuple[Graph | None, ...]


def solver(operands: Sequence[Any], const_lengths: Lengths, jaxprs: Graphs) -> tuple[Graph, tuple[Any, ...]]:
    """The graph that solves, and its operands."""
    *consts, b = parted(operands, const_lengths)
    assert jaxprs[2] is not None
    return jaxprs[2], (*consts[2], *b)


def _impl(*operands: Any, **params: Any) -> list[Any]:
    graph, inputs = solver(operands, **params)
    return replay(graph, *inputs)


def _eval(*operands: np.ndarray, **params: Any) -> list[np.ndarray]:
    graph, inputs = solver(operands, **params)
    return evaluate(graph, inputs)


def _type(*avals: ArrayType, jaxprs: Graphs, **params: Any) -> tuple[ArrayType, ...]:
    assert jaxprs[2] is not None
    return jaxprs[2].out_avals


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], const_lengths: Lengths, jaxprs: Graphs) -> tuple[Any, Any]:
    """A x = b, so A x' = b' - A' x."""
    params: dict[str, Any] = {"const_lengths": const_lengths, "jaxprs": jaxprs}
    results = linear_solve_p.bind(*primals, **params)
    *consts, b = parted(primals, const_lengths)
    *moving, right = parted(tangents, const_lengths)
    x, matvec = results[: len(b)], jaxprs[0]
    assert matvec is not None
    if not all_zero(moving[0]):
        _, pushed = jvp(lambda *values: replay(matvec, *values, *x), consts[0], moving[0])
        subtract = REGISTRY["sub"].bind
        right = [subtract(instantiate(r), instantiate(p)) for r, p in zip(right, pushed)]
    if all_zero(right):
        return results, [zero_like(r) for r in results]
    flat = [c for group in consts for c in group]
    found = linear_solve_p.bind(*flat, *map(instantiate, right), **params)
    return results, [*found[: len(b)], *(zero_like(r) for r in results[len(b) :])]


def _transpose(cotangents: Sequence[Any], *operands: Any, const_lengths: Lengths, jaxprs: Graphs) -> list[Any]:
    """The transposed system, solved by transpose_solve."""
    *consts, b = parted(operands, const_lengths)
    if jaxprs[3] is None:
        raise TypeError(
            "reverse mode through custom_linear_solve needs transpose_solve; pass it, or symmetric=True where the system "
            f"is symmetric ({current_source().short})"
        )
    if not all(type(c) is Zero for c in cotangents[len(b) :]):
        raise TypeError(f"the auxiliary results of custom_linear_solve have no derivative ({current_source().short})")
    order = (1, 0, 3, 2)
    flat = [c for n in order for c in consts[n]]
    found = linear_solve_p.bind(
        *flat,
        *map(instantiate, cotangents[: len(b)]),
        const_lengths=tuple(const_lengths[n] for n in order),
        jaxprs=tuple(jaxprs[n] for n in order),
    )
    return [*[None] * len(flat), *found[: len(b)]]


def _batch(
    operands: Sequence[Any], dims: Sequence[int | None], const_lengths: Lengths, jaxprs: Graphs, axis: Any = None
) -> tuple[Any, Any]:
    """One system for each element of the batch; vectors are batched, constants where they were."""
    size = size_of(operands, dims) if any(d is not None for d in dims) else axis[1]
    *values, b = parted(operands, const_lengths)
    *places, own = parted(dims, const_lengths)
    graphs: list[Graph | None] = []
    for graph, group in zip(jaxprs, places):
        batched = None
        if graph is not None:
            mask = [*(d is not None for d in group), *(True for _ in b)]
            batched, _ = batch_graph(graph, mask, size, wanted=True, axis=axis)
        graphs.append(batched)
    flat = [moved(v, d, 0) for group, place in zip(values, places) for v, d in zip(group, place)]
    vectors = [moved(v, d, 0, size) for v, d in zip(b, own)]
    results = linear_solve_p.bind(*flat, *vectors, const_lengths=const_lengths, jaxprs=tuple(graphs))
    return results, [0] * len(results)


linear_solve_p: Primitive = register(
    Primitive(
        "custom_linear_solve",
        Fusion.CONTROL,
        multiple_results=True,
        type=_type,
        eval=_eval,
        run=_impl,
        jvp=_jvp,
        transpose=_transpose,
        batch=_batch,
    )
)
