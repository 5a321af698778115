"""`linear_call`: a function that is linear in some of its operands, and a transpose of it that the user wrote.

Operands are the constants of two closed Graphs (the function and its transpose), what they are not linear in (residuals), and
what the function is linear in; `lengths` says how many the first three are. Both Graphs take their constants, the residuals, and
their linear operands.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.primitive import REGISTRY, Fusion, Primitive, register
from fuser.ir.types import ArrayType
from fuser.trace.batch import moved, size_of
from fuser.trace.graphs import batch_graph
from fuser.trace.jvp import jvp
from fuser.trace.replay import replay
from fuser.trace.tangent import all_zero, instantiate

Lengths = tuple[int, int, int]


def parted(operands: Sequence[Any], lengths: Sequence[int]) -> list[list[Any]]:
    """Operands in parts of these lengths, and the rest: here the constants of the function, those of its transpose, the
    residuals, and the linear operands."""
    ends = [0, *itertools.accumulate(lengths), len(operands)]
    return [list(operands[a:b]) for a, b in itertools.pairwise(ends)]


def _inputs(operands: Sequence[Any], lengths: Lengths) -> list[Any]:
    """The operands of the function's graph."""
    consts, _, residuals, linear = parted(operands, lengths)
    return [*consts, *residuals, *linear]


def _run(*operands: Any, callee: Graph, transpose: Graph, lengths: Lengths) -> list[Any]:
    return replay(callee, *_inputs(operands, lengths))


def _eval(*operands: np.ndarray, callee: Graph, transpose: Graph, lengths: Lengths) -> list[np.ndarray]:
    return evaluate(callee, _inputs(operands, lengths))


def _type(*avals: ArrayType, callee: Graph, **params: Any) -> tuple[ArrayType, ...]:
    return callee.out_avals


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """The function of the linear operands' tangents; with tangents of others, its own derivative by those as well."""
    results = linear_call_p.bind(*primals, **params)
    start = sum(params["lengths"])
    moving = None
    if not all_zero(tangents[start:]):
        moving = linear_call_p.bind(*primals[:start], *map(instantiate, tangents[start:]), **params)
    if not all_zero(tangents[:start]):
        held = primals[start:]
        _, more = jvp(lambda *others: _run(*others, *held, **params), primals[:start], tangents[:start])
        add = REGISTRY["add"].bind
        more = [instantiate(m) for m in more]
        moving = more if moving is None else [add(m, n) for m, n in zip(moving, more)]
    return results, moving


def _transpose(
    cotangents: Sequence[Any], *operands: Any, callee: Graph, transpose: Graph, lengths: Lengths
) -> list[Any]:
    """The call of the transpose, whose own transpose is the function."""
    own, others, residuals, _ = parted(operands, lengths)
    found = linear_call_p.bind(
        *others,
        *own,
        *residuals,
        *map(instantiate, cotangents),
        callee=transpose,
        transpose=callee,
        lengths=(len(others), len(own), len(residuals)),
    )
    return [*[None] * sum(lengths), *found]


def _batch(
    operands: Sequence[Any],
    dims: Sequence[int | None],
    callee: Graph,
    transpose: Graph,
    lengths: Lengths,
    axis: Any = None,
) -> tuple[Any, Any]:
    """Linear operands are batched, others where they were."""
    size = size_of(operands, dims) if any(d is not None for d in dims) else axis[1]
    own, others, residuals, linear = ([d is not None for d in part] for part in parted(dims, lengths))
    forward, _ = batch_graph(callee, [*own, *residuals, *(True for _ in linear)], size, wanted=True, axis=axis)
    mask = [*others, *residuals, *(True for _ in callee.outvars)]
    backward, _ = batch_graph(transpose, mask, size, wanted=True, axis=axis)
    start = sum(lengths)
    values = [moved(v, d, 0) for v, d in zip(operands[:start], dims[:start])]
    values += [moved(v, d, 0, size) for v, d in zip(operands[start:], dims[start:])]
    results = linear_call_p.bind(*values, callee=forward, transpose=backward, lengths=lengths)
    return results, [0] * len(results)


linear_call_p: Primitive = register(
    Primitive(
        "linear_call",
        Fusion.CONTROL,
        multiple_results=True,
        type=_type,
        eval=_eval,
        run=_run,
        inline=_run,
        jvp=_jvp,
        transpose=_transpose,
        batch=_batch,
    )
)
