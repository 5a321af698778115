"""Choices that read small windows of an array, and nothing else of it, right after a window of it was written. Graph → Graph.

The choice reads the array as it was, and what was written: each branch begins with the write, through which `forward_updates`
reads. So a loop has no reader between two writes of a carry, and makes them in place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ops.control import cond_p
from fuser.ops.dynamic import dynamic_update_slice_p
from fuser.passes.indexing.forward_updates import LONGEST, reads_window


def reads_windows(eqn: Eqn, array: Operand) -> bool:
    """Whether a choice reads small windows of an array, and nothing else of it."""
    if eqn.primitive is not cond_p or eqn.invars[0] is array:
        return False
    places = [n for n, v in enumerate(eqn.invars[1:]) if v is array]
    return all(_of_input(branch, branch.invars[n]) for branch in eqn.params["branches"] for n in places)


def _of_input(branch: Graph, array: Var) -> bool:
    """Whether a branch reads small windows of an array, also behind updates of its own, and nothing else of it."""
    if array in branch.outvars:
        return False
    for eqn in branch.eqns:
        if array not in eqn.operands() or reads_windows(eqn, array):
            continue
        if eqn.invars[0] is not array or array in eqn.invars[1:]:
            return False
        update = eqn.primitive is dynamic_update_slice_p and _of_input(branch, eqn.outvars[0])
        if not update and not reads_window(eqn):
            return False
    return True


def with_writes_in_branches(body: Graph, writes: Collection[Var]) -> Graph:
    """The body with the updates that make `writes` done in the branches of the choices that read windows of these arrays."""
    made = {v: eqn for v, eqn in body.producers.items() if v in writes and eqn.primitive is dynamic_update_slice_p}
    if not made:
        return body
    return replace(body, eqns=tuple(_choice(e, made) if e.primitive is cond_p else e for e in body.eqns))


def _choice(eqn: Eqn, made: Mapping[Operand, Eqn]) -> Eqn:
    for array in dict.fromkeys(eqn.invars[1:]):
        if array in made and reads_windows(eqn, array):
            eqn = _begun_with(eqn, array, _writes(array, made))
    return eqn


def _writes(array: Operand, made: Mapping[Operand, Eqn]) -> list[Eqn]:
    """The updates, in their order, that make an array of one that none of these does."""
    found: list[Eqn] = []
    while array in made and len(found) < LONGEST:
        found.append(made[array])
        array = found[-1].invars[0]
    return found[::-1]


def _begun_with(eqn: Eqn, array: Operand, writes: Sequence[Eqn]) -> Eqn:
    """A choice whose branches make an array by updates themselves."""
    index, *operands = eqn.invars
    kept = [n for n, v in enumerate(operands) if v is not array]
    within = {v for write in writes for v in write.outvars}
    given = tuple(dict.fromkeys(v for write in writes for v in write.invars if isinstance(v, Var) and v not in within))
    branches = []
    for branch in eqn.params["branches"]:
        first, *others = (v for v, operand in zip(branch.invars, operands) if operand is array)
        inside = {v: Var(v.aval) for v in (*given, *within)} | {array: first}
        updates = [_renamed(write, inside) for write in writes]
        updates += [_renamed(writes[-1], inside | {array: other}) for other in others]
        taken = (*(branch.invars[n] for n in kept), *(inside[v] for v in given))
        branches.append(replace(branch, invars=taken, eqns=(*updates, *branch.eqns)))
    params = {**eqn.params, "branches": tuple(branches)}
    return replace(eqn, invars=(index, *(operands[n] for n in kept), *given), params=params)


def _renamed(eqn: Eqn, names: Mapping[Operand, Var]) -> Eqn:
    return replace(
        eqn, invars=tuple(names.get(v, v) for v in eqn.invars), outvars=tuple(names.get(v, v) for v in eqn.outvars)
    )
