"""Effects as data: a token runs through every equation that has one, so that each happens once, and in the order of the program.

With it they are ordinary equations, which no pass leaves out, merges, moves or takes out of a loop: each reads the token of
the one before and gives the next one's. Loops carry it, branches hand it on, and the program's last result is the last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Graph, effective, has_effects
from fuser.ir.primitive import Control
from fuser.ops.callback import TOKEN
from fuser.ops.movement import broadcast_in_dim_p
from fuser.ops.reduce import reduce_max_p
from fuser.ops.shard_map import on_devices, shard_map_p, whole
from fuser.passes.inline import CALLS
from fuser.trace.replay import bound, replay
from fuser.trace.stage import stage


def with_tokens(graph: Graph) -> Graph:
    """The graph with the last token as a further result; itself where nothing has an effect."""
    if not has_effects(graph):
        return graph

    def function(*inputs: Any) -> list[Any]:
        results, token = _run(graph, inputs, np.zeros((), TOKEN.dtype))
        return [*results, token]

    return replace(stage(function, graph.in_avals, graph.name), history=graph.history)


def _run(graph: Graph, args: Sequence[Any], token: Any) -> tuple[list[Any], Any]:
    """The graph's results once the token has run through its effects, and the last token."""
    order = _Order(token)
    return replay(graph, *args, binding=order), order.token


class _Order:
    """A binding of equations that hands the token from each one with an effect to the next."""

    def __init__(self, token: Any) -> None:
        self.token = token

    def __call__(self, eqn: Eqn, operands: list[Any]) -> Any:
        if not effective(eqn):
            return bound(eqn, operands)
        results, self.token = _threaded(eqn, operands, self.token)
        return results if eqn.primitive.multiple_results else results[0]


def _threaded(eqn: Eqn, operands: list[Any], token: Any) -> tuple[list[Any], Any]:
    primitive, params = eqn.primitive, eqn.params
    if primitive.effect:
        *results, token = primitive.bind(*operands, token, **params, threaded=True)
    elif primitive in CALLS:
        return _run(params[CALLS[primitive]], operands, token)
    elif primitive.control is Control.COND:
        branches = tuple(_body(branch, len(branch.invars), len(branch.outvars)) for branch in params["branches"])
        *results, token = primitive.bind(*operands, token, **{**params, "branches": branches})
    elif primitive.control is Control.SCAN:
        consts, carry = params["num_consts"], params["num_carry"]
        body = _body(params["jaxpr"], consts + carry, carry)
        place = consts + carry
        found = primitive.bind(
            *operands[:place], token, *operands[place:], **{**params, "jaxpr": body, "num_carry": carry + 1}
        )
        results, token = [*found[:carry], *found[carry + 1 :]], found[carry]
    elif primitive.control is Control.WHILE:
        results, token = _while(eqn, operands, token)
    elif primitive is shard_map_p:  # each device has its effects in order
        body, alike = on_devices(_body, params, len(eqn.invars), len(eqn.outvars)), whole(0)
        specs = {"in_specs": (*params["in_specs"], alike), "out_specs": (*params["out_specs"], alike)}
        *results, token = primitive.bind(*operands, token, **{**params, "jaxpr": body, **specs})
    else:
        raise NotImplementedError(
            f"{primitive.name} holds a callback with an effect ({eqn.source.short}); call it outside of it"
        )
    return list(results), token


def _body(graph: Graph, place: int, result: int) -> Graph:
    """A body that takes the token as its input number `place`, and gives it as result number `result`."""

    def function(*inputs: Any) -> list[Any]:
        found, token = _run(graph, [*inputs[:place], *inputs[place + 1 :]], inputs[place])
        return [*found[:result], token, *found[result:]]

    avals = list(graph.in_avals)
    return stage(function, [*avals[:place], TOKEN, *avals[place:]], graph.name)


def _while(eqn: Eqn, operands: list[Any], token: Any) -> tuple[list[Any], Any]:
    """The loop with the predicate and the token among what it carries: effects of the predicate become the body's.

    Where the predicate has a shape, the token has it too: what a loop carries has a part for each lane.
    """
    params = eqn.params
    of_test, test, of_body, body = (params[k] for k in ("cond_nconsts", "cond_jaxpr", "body_nconsts", "body_jaxpr"))
    consts = of_test + of_body
    [lanes] = test.out_avals
    spread = TOKEN.update(shape=lanes.shape)

    def going(test_consts: Sequence[Any], carry: Sequence[Any], token: Any) -> tuple[Any, Any]:
        [predicate], token = _run(test, [*test_consts, *carry], token)
        return predicate, _spread(token, lanes.shape)

    def function(*inputs: Any) -> list[Any]:
        _, token, *carry = inputs[consts:]
        carry, token = _run(body, [*inputs[of_test:consts], *carry], _single(token))
        return [*going(inputs[:of_test], carry, token), *carry]

    carried = [lanes, spread, *body.out_avals]
    avals = [*test.in_avals[:of_test], *body.in_avals[:of_body], *carried]
    first = going(operands[:of_test], operands[consts:], token)
    _, token, *results = eqn.primitive.bind(
        *operands[:consts], *first, *operands[consts:],
        cond_nconsts=0, cond_jaxpr=stage(lambda predicate, *rest: [predicate], carried, test.name),
        body_nconsts=consts, body_jaxpr=stage(function, avals, body.name),
    )  # fmt: skip
    return results, _single(token)


def _spread(token: Any, shape: tuple[int, ...]) -> Any:
    return broadcast_in_dim_p.bind(token, shape=shape, broadcast_dimensions=()) if shape else token


def _single(token: Any) -> Any:
    return reduce_max_p.bind(token, axes=tuple(range(token.ndim))) if token.ndim else token
