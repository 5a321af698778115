"""Abstract execution of a scan's counters: the integers and truth values of its body that depend on nothing else, in every iteration.

In: a scan equation and what is known of arrays around it. Out: for scalars of its body, their values in all iterations,
in the order of the xs' rows. A test that comes out the same in each iteration is then no test any more.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ops.elementwise import add_p, select_n_p
from fuser.ops.movement import broadcast_in_dim_p, iota_p

MOST = 1 << 14  # iterations that are looked at one by one

Known = dict[Operand, np.ndarray]


class Constants:
    """Small integer arrays of a graph that are known: constants, iotas, and what elementwise work makes of them."""

    def __init__(self, graph: Graph, producers: Mapping[Var, Eqn]) -> None:
        self.producers = producers
        self.known: dict[Var, np.ndarray | None] = {
            v: np.asarray(c) if _countable(v) else None for v, c in zip(graph.constvars, graph.consts)
        }

    def value(self, operand: Operand) -> np.ndarray | None:
        """The array that the operand is; None where that is not known."""
        if isinstance(operand, Literal):
            return np.asarray(operand.val)
        if operand not in self.known:
            self.known[operand] = self._made(operand)
        return self.known[operand]

    def _made(self, var: Var) -> np.ndarray | None:
        eqn = self.producers.get(var)
        plain = eqn is not None and (
            eqn.primitive.fusion is Fusion.ELEMENTWISE or eqn.primitive in (iota_p, broadcast_in_dim_p)
        )
        if eqn is None or not plain or not _countable(var):
            return None
        operands = [self.value(v) for v in eqn.invars]
        return None if any(v is None for v in operands) else _evaluated(eqn, operands)  # type: ignore[arg-type]


def iterations(eqn: Eqn, constants: Constants) -> Known:
    """The scalars of a scan's body that are known, each with its values by row of the xs."""
    params = eqn.params
    body, length = params["jaxpr"], params["length"]
    if length > MOST:
        return {}
    first = params["num_consts"] + params["num_carry"]
    known: Known = {}
    for number, (var, operand) in enumerate(zip(body.invars, eqn.invars)):
        if _countable(var) and not var.aval.shape and (number >= first or number < params["num_consts"]):
            found = constants.value(operand)
            if found is not None:
                known[var] = np.broadcast_to(found, (length,))
    producers = body.producers
    for n in range(params["num_carry"]):
        carry, out = body.invars[params["num_consts"] + n], body.outvars[n]
        step = _step(carry, producers.get(out)) if isinstance(out, Var) else None  # type: ignore[arg-type]
        start = constants.value(eqn.invars[params["num_consts"] + n])
        if step is not None and start is not None:
            order = np.arange(length)[::-1] if params["reverse"] else np.arange(length)
            known[carry] = (start + order.astype(carry.aval.dtype) * step).astype(carry.aval.dtype)
    _forward(body, known, length)
    return known


def _step(carry: Var, eqn: Eqn | None) -> np.generic | None:
    """What each iteration adds to a counter; None where the carry is none."""
    if eqn is None or eqn.primitive is not add_p or not _countable(carry) or carry.aval.shape:
        return None
    others = [v for v in eqn.invars if v is not carry]
    return others[0].val if len(others) == 1 and isinstance(others[0], Literal) else None


def _forward(body: Graph, known: Known, length: int) -> None:
    """Add what elementwise work makes of known scalars."""
    for eqn in body.eqns:
        if (
            eqn.primitive.fusion is not Fusion.ELEMENTWISE
            or eqn.outvars[0].aval.shape
            or not _countable(eqn.outvars[0])
        ):
            continue
        if all(isinstance(v, Literal) or v in known for v in eqn.invars):
            operands = [np.broadcast_to(v.val, (length,)) if isinstance(v, Literal) else known[v] for v in eqn.invars]
            known[eqn.outvars[0]] = _evaluated(eqn, operands)


def _countable(var: Var) -> bool:
    return var.aval.size <= MOST and var.aval.dtype.kind in "iub"


def _evaluated(eqn: Eqn, operands: list[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(eqn.primitive.rule("eval")(*operands, **eqn.params))


def decided(body: Graph, known: Known) -> Graph:
    """The body without choices that come out the same in each iteration."""
    rewriter = Rewriter(body)
    for eqn in body.eqns:
        choice = known.get(eqn.invars[0]) if eqn.primitive is select_n_p else None
        resolved = rewriter.resolve(eqn)
        if choice is not None and choice.size and (choice == choice[0]).all():
            chosen, shape = resolved.invars[1 + int(choice[0])], eqn.outvars[0].aval.shape
            if chosen.aval.shape != shape:  # a literal, which stands for any shape
                chosen = rewriter.add(broadcast_in_dim_p, chosen, shape=shape, broadcast_dimensions=())
            rewriter.replace(eqn.outvars[0], chosen)
        else:
            rewriter.keep(resolved)
    return rewriter.finish()


def progression(operand: Operand, known: Mapping[Operand, np.ndarray]) -> tuple[int, int] | None:
    """The first value and the step of what counts evenly over the iterations; a constant has step 0; else None."""
    if isinstance(operand, Literal):
        return int(operand.val), 0
    values = known.get(operand)
    if values is None or not values.size:
        return None
    steps = np.diff(values.astype(np.int64))
    if steps.size and (steps != steps[0]).any():
        return None
    return int(values[0]), int(steps[0]) if steps.size else 0
