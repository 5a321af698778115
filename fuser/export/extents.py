"""Extents used as values (`x.sum() / x.shape[0]`) as inputs of a program, so that they are no constants of its kernels.

In: a graph with symbolic extents. Out: the same with one more input for each extent that is used as a value, those in loops
and branches among them, and the extents. What a body of another kind asks for stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fuser.ir.graph import Eqn, Graph, Var
from fuser.ir.primitive import Control
from fuser.ops.dim import dimension_as_value_p


def as_inputs(graph: Graph) -> tuple[Graph, tuple[Any, ...]]:
    """The graph with its extents as last inputs, each a 0-d int32, and the extents."""
    outside = replace(graph, eqns=tuple(new for eqn in graph.eqns for new in _outside(eqn)))
    kept, asked = _apart(outside)
    return replace(kept, invars=(*kept.invars, *(eqn.outvars[0] for eqn in asked))), tuple(map(_extent, asked))


def _extent(eqn: Eqn) -> Any:
    return eqn.params["dim"]


def _apart(graph: Graph) -> tuple[Graph, tuple[Eqn, ...]]:
    """The graph without the equations that ask for extents, and those."""
    asked = tuple(eqn for eqn in graph.eqns if eqn.primitive is dimension_as_value_p)
    return replace(graph, eqns=tuple(eqn for eqn in graph.eqns if eqn not in asked)) if asked else graph, asked


def _outside(eqn: Eqn) -> tuple[Eqn, ...]:
    """What asks for extents in a loop or a branch, and the equation with what comes of it as further constants."""
    rule = _RULES.get(eqn.primitive.control)
    if rule is None:
        return (eqn,)
    before, after = rule(eqn)
    return (*before, after)


def _body(body: Graph, consts: int) -> tuple[Graph, tuple[Eqn, ...]]:
    """A body with the extents that it asks for as inputs behind its first `consts`, and equations that give them outside."""
    inner = replace(body, eqns=tuple(new for eqn in body.eqns for new in _outside(eqn)))
    kept, asked = _apart(inner)
    given = tuple(eqn.outvars[0] for eqn in asked)
    outside = tuple(replace(eqn, outvars=(Var(eqn.outvars[0].aval),)) for eqn in asked)
    return replace(kept, invars=(*kept.invars[:consts], *given, *kept.invars[consts:])), outside


def _values(asked: Sequence[Eqn]) -> tuple[Var, ...]:
    return tuple(eqn.outvars[0] for eqn in asked)


def _scan(eqn: Eqn) -> tuple[tuple[Eqn, ...], Eqn]:
    consts = eqn.params["num_consts"]
    body, asked = _body(eqn.params["jaxpr"], consts)
    params = {**eqn.params, "jaxpr": body, "num_consts": consts + len(asked)}
    return asked, replace(eqn, invars=(*eqn.invars[:consts], *_values(asked), *eqn.invars[consts:]), params=params)


def _while(eqn: Eqn) -> tuple[tuple[Eqn, ...], Eqn]:
    params = eqn.params
    tests, consts = params["cond_nconsts"], params["body_nconsts"]
    test, for_test = _body(params["cond_jaxpr"], tests)
    body, for_body = _body(params["body_jaxpr"], consts)
    of_test, of_body = eqn.invars[:tests], eqn.invars[tests : tests + consts]
    invars = (*of_test, *_values(for_test), *of_body, *_values(for_body), *eqn.invars[tests + consts :])
    lengths = {"cond_nconsts": tests + len(for_test), "body_nconsts": consts + len(for_body)}
    return (*for_test, *for_body), replace(
        eqn, invars=invars, params={**params, **lengths, "cond_jaxpr": test, "body_jaxpr": body}
    )


def _cond(eqn: Eqn) -> tuple[tuple[Eqn, ...], Eqn]:
    """Each branch takes what all of them ask for."""
    found = [_body(branch, 0) for branch in eqn.params["branches"]]
    asked = tuple(one for _, of_branch in found for one in of_branch)
    branches = []
    for n, (branch, own) in enumerate(found):
        before = [Var(one.outvars[0].aval) for _, other in found[:n] for one in other]
        after = [Var(one.outvars[0].aval) for _, other in found[n + 1 :] for one in other]
        mine, rest = branch.invars[: len(own)], branch.invars[len(own) :]
        branches.append(replace(branch, invars=(*before, *mine, *after, *rest)))
    invars = (eqn.invars[0], *_values(asked), *eqn.invars[1:])
    return asked, replace(eqn, invars=invars, params={**eqn.params, "branches": tuple(branches)})


_RULES: dict[Control | None, Any] = {Control.SCAN: _scan, Control.WHILE: _while, Control.COND: _cond}
