"""Sums over devices that a loop only accumulates are taken once, after the loop, of what each device has accumulated.

`carry + psum(x)` in each of n iterations becomes `carry + x` on each device and one psum at the end: gradients that are
accumulated over micro-batches cross the network once. Terms are added in another order than they were written in.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, Literal, Operand, Var
from fuser.ir.primitive import MOVES, Control
from fuser.ir.rewrite import Rewriter
from fuser.ops.collective import psum_invariant_p, psum_p
from fuser.ops.elementwise import add_any_p, add_p, div_p, mul_p, neg_p
from fuser.ops.movement import broadcast_in_dim_p

_SUMS = (psum_p, psum_invariant_p)
_ADDITIONS = (add_p, add_any_p)


def sink_sums(graph: Graph) -> Graph:
    """The graph of one device with sums that its scans accumulate taken after them."""
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        found = _accumulated(eqn) if eqn.primitive.control is Control.SCAN and eqn.params["length"] > 1 else {}
        if found:
            _after(eqn, found, rewriter)
        else:
            rewriter.keep(eqn)
    return rewriter.finish()


def _accumulated(eqn: Eqn) -> dict[int, Eqn]:
    """For each carry to which an iteration adds a sum over devices, and does nothing else with it, that sum."""
    params = eqn.params
    body: Graph = params["jaxpr"]
    producers = {v: e for e in body.eqns for v in e.outvars}
    uses = Counter(v for e in body.eqns for v in e.operands())
    uses.update(v for v in body.outvars if isinstance(v, Var))
    found = {}
    for n in range(params["num_carry"]):
        carry, out = body.invars[params["num_consts"] + n], body.outvars[n]
        if not isinstance(out, Var) or out not in producers or uses[carry] != 1 or uses[out] != 1:
            continue
        addition = producers[out]
        if addition.primitive not in _ADDITIONS:
            continue
        terms = [v for v in addition.invars if v is not carry]
        total = _sum_behind(terms[0], producers, uses) if len(terms) == 1 else None
        if total is not None:
            found[n] = total
    return found


def _sum_behind(operand: Operand, producers: dict[Var, Eqn], uses: Counter[Any]) -> Eqn | None:
    """The sum over devices of which a value is a multiple or another arrangement, where nothing else reads it."""
    while isinstance(operand, Var) and operand in producers and uses[operand] == 1:
        eqn = producers[operand]
        scaled = eqn.primitive in (mul_p, div_p) and isinstance(eqn.invars[-1], Literal)
        if eqn.primitive in _SUMS:
            return eqn
        if not scaled and eqn.primitive is not neg_p and eqn.primitive.movement not in MOVES:
            return None
        operand = eqn.invars[0]
    return None


def _after(eqn: Eqn, found: dict[int, Eqn], rewriter: Rewriter) -> None:
    """The scan without these sums, its carries from zero on, and one sum each behind it."""
    params = eqn.params
    body: Graph = params["jaxpr"]
    first = params["num_consts"]
    sums = set(found.values())
    own = {e.outvars[0]: e.invars[0] for e in sums}
    current = lambda v: own.get(v, v) if isinstance(v, Var) else v
    eqns = tuple(replace(e, invars=tuple(map(current, e.invars))) for e in body.eqns if e not in sums)
    invars = list(eqn.invars)
    outvars = list(eqn.outvars)
    for n in found:
        aval = eqn.outvars[n].aval
        zero: Operand = Literal(np.zeros((), aval.dtype), aval.update(shape=()))
        if aval.shape:
            zero = rewriter.add(broadcast_in_dim_p, zero, shape=aval.shape, broadcast_dimensions=())
        invars[first + n] = zero
        outvars[n] = Var(aval)
    inner = replace(body, eqns=eqns)
    rewriter.keep(replace(eqn, invars=tuple(invars), outvars=tuple(outvars), params={**params, "jaxpr": inner}))
    for n, total in found.items():
        everywhere = rewriter.add(total.primitive, outvars[n], **total.params)
        result = rewriter.add(add_p, eqn.invars[first + n], everywhere)
        rewriter.replace(eqn.outvars[n], result)
