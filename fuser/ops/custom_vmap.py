"""`custom_vmap_call`: a call whose function on a batch is given by the user; see ops/calls for the form of such calls.

`rule(size, batched, *args) -> (results, which are batched)`; what is batched has the batch in front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuser.ops.calls import Batching, Flat, call_primitive, callee
from fuser.trace.batch import BatchTrace, batch, moved
from fuser.trace.core import type_of
from fuser.trace.jvp import jvp
from fuser.trace.tangent import Zero, differentiable, instantiate, zero_like

Rule = Callable[..., tuple[Sequence[Any], Sequence[bool]]]


def _batch(operands: Sequence[Any], dims: Sequence[int | None], trace: BatchTrace, **params: Any) -> tuple[Any, Any]:
    own = dims[params["num_consts"] :]
    if all(d is None for d in own):  # nothing that the rule speaks of is batched, though what it closes over may be
        batching = Batching(trace, dims)
        function = batching.function(callee(params["call_jaxpr"]))
        return custom_vmap_call_p.bind(*operands, **{**params, "call_jaxpr": function}), batching.results
    args = [moved(v, d, 0) for v, d in zip(operands[params["num_consts"] :], own)]
    results, batched = params["rule"](trace.size, [d is not None for d in own], *args)
    return list(results), [0 if b else None for b in batched]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """The call that computes results and tangents; its rule is the derivative of the rule."""
    consts = params["num_consts"]
    function, rule = callee(params["call_jaxpr"]), params["rule"]
    active = [type(t) is not Zero for t in tangents]
    kinds: list[bool] = []

    def both(*inputs: Any) -> list[Any]:
        outs, found = _pushed(function, inputs, active)
        kinds[:] = [differentiable(type_of(o)) for o in outs]
        return [*outs, *(instantiate(t) for t, use in zip(found, kinds) if use)]

    def tangent_rule(size: int, batched: Sequence[bool], values: Sequence[Any]) -> tuple[list[Any], list[bool]]:
        marks: list[bool] = []

        def ruled(*args: Any) -> Sequence[Any]:
            outs, which = rule(size, batched, *args)
            marks[:] = which
            return outs

        outs, found = _pushed(ruled, values, active[consts:])
        kinds[:] = [differentiable(type_of(o)) for o in outs]
        result = [*outs, *(instantiate(t) for t, use in zip(found, kinds) if use)]
        return result, [*marks, *(m for m, use in zip(marks, kinds) if use)]

    def derived(size: int, batched: Sequence[bool], *inputs: Any) -> tuple[list[Any], list[bool]]:
        rest = iter(batched[len(active) - consts :])
        pairs = [(b, next(rest) if use else b) for b, use in zip(batched, active[consts:])]
        if not any(a and b for a, b in pairs):  # as in JAX: the rule sees nothing batched, and is batched itself
            one = lambda *values: tangent_rule(size, [False] * len(pairs), values)[0]
            outs, dims = batch(one, inputs, [0 if b else None for b in batched], size)
            return [moved(o, d, 0) for o, d in zip(outs, dims)], [d is not None for d in dims]
        mutual = [a or b for a, b in pairs]
        spread = [*mutual, *(m for m, use in zip(mutual, active[consts:]) if use)]
        values = [moved(v, 0 if b else None, 0, size if m else None) for v, b, m in zip(inputs, batched, spread)]
        return tangent_rule(size, mutual, values)

    linear = [t for t in tangents if type(t) is not Zero]
    if any(active[:consts]):  # the rule does not speak of what the function closes over
        results = both(*primals, *linear)
    else:
        results = custom_vmap_call_p.bind(*primals, *linear, **{**params, "call_jaxpr": both, "rule": derived})
    count = len(kinds)
    rest = iter(results[count:])
    return results[:count], [next(rest) if use else zero_like(o) for o, use in zip(results, kinds)]


def _pushed(function: Flat, inputs: Sequence[Any], active: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """Results and tangents of a function, the tangents of the active inputs standing behind the inputs."""
    count, rest = len(active), iter(inputs[len(active) :])
    tangents = [next(rest) if use else zero_like(p) for p, use in zip(inputs, active)]
    return jvp(function, inputs[:count], tangents)


custom_vmap_call_p = call_primitive("custom_vmap_call", jvp=_jvp, batch=_batch)
