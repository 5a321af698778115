"""Rules of elements that are their own positions: what is gathered of them is the indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Operand
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import BOOL, INTEGERS
from fuser.ops import movement as M
from fuser.ops.conversion import convert_element_type_p
from fuser.ops.elementwise import ne_p
from fuser.ops.indexing import GatherScatterMode, gather_p, take_along
from fuser.passes.algebra.rule import Result, Rule


def counted_dimension(operand: Operand, rewriter: Rewriter) -> int | None:
    """The dimension along which each element of an integer array is its position there; None where it is none."""
    eqn = rewriter.producers.get(operand)  # type: ignore[arg-type]
    if eqn is None or eqn.outvars[0].aval.dtype.kind not in "iu":
        return None
    if eqn.primitive is M.iota_p:
        return eqn.params["dimension"]
    if eqn.primitive not in (M.reshape_p, M.transpose_p):
        return None
    inner = counted_dimension(eqn.invars[0], rewriter)
    if inner is None:
        return None
    if eqn.primitive is M.transpose_p:
        return eqn.params["permutation"].index(inner)
    old, new = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    same = (d for d in range(len(new)) if new[d] == old[inner] and math.prod(new[d:]) == math.prod(old[inner:]))
    return next(same, None) if eqn.params["dimensions"] is None else None


def _gathered_count(eqn: Eqn, rewriter: Rewriter) -> Result:
    """`take_along_axis(iota, i)` as `i`, of indices that are in bounds."""
    operand, indices = eqn.invars
    numbers, out = eqn.params["dimension_numbers"], eqn.outvars[0].aval
    if eqn.params["mode"] is not GatherScatterMode.PROMISE_IN_BOUNDS or len(numbers.start_index_map) != 1:
        return None
    if any(n != 1 for n in eqn.params["slice_sizes"]) or numbers.offset_dims or indices.aval.shape != (*out.shape, 1):
        return None
    if counted_dimension(operand, rewriter) != numbers.start_index_map[0]:
        return None

    if indices.aval.dtype != out.dtype:
        indices = rewriter.add(convert_element_type_p, indices, new_dtype=out.dtype, weak_type=False)
    return rewriter.make(M.reshape_p, indices, new_sizes=out.shape, dimensions=None)


def _sample(x: Any) -> Any:
    rows = M.iota_p.bind(dtype=np.dtype("int32"), shape=(x.shape[1], 1, x.shape[0]), dimension=0)
    counted = M.transpose_p.bind(M.reshaped(rows, (x.shape[1], x.shape[0])), permutation=(1, 0))
    chosen = convert_element_type_p.bind(
        ne_p.bind(x, np.zeros((), x.dtype)), new_dtype=np.dtype("int32"), weak_type=False
    )
    return take_along(counted, chosen, 1)


COUNTING: tuple[Rule, ...] = (
    Rule("gather of a count", (gather_p,), _gathered_count, _sample, (BOOL, *INTEGERS), ((3, 5), (4, 2))),
)
