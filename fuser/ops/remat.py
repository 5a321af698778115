"""Rematerialization: `remat`, a Graph whose backward pass computes again what its policy does not save; and its marks.

`optimization_barrier` keeps what is computed again from being merged with the first time; `name` is what policies speak
of; `dce_sink` uses a value, so that it is not eliminated. The first is index arithmetic, the second ends before optimisation.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Eqn, Graph, Operand, Var, effective, graphs_in
from fuser.ir.primitive import Fusion, Movement, Primitive, register
from fuser.ir.types import ALL_DTYPES, ArrayType
from fuser.ops.callback import TOKEN, io_callback_p
from fuser.ops.control.saving import exposed, needed
from fuser.ops.family import elementwise
from fuser.ops.movement import movement
from fuser.trace.batch import moved, size_of
from fuser.trace.body import close
from fuser.trace.core import Trace, using
from fuser.trace.graphs import Split, batch_graph, jvp_graph, split, transpose_graph
from fuser.trace.linear import LinearTrace
from fuser.trace.replay import replay
from fuser.trace.tangent import Undefined, Zero

Policy = Callable[..., Any]
Params = dict[str, Any]

# Barriers of one scope belong together; those of different scopes are never merged.
scopes = itertools.count()

optimization_barrier_p: Primitive = movement(
    "optimization_barrier",
    type=lambda x, scope: x,
    eval=lambda x, scope: x,
    lower=lambda read, index, x, scope: read(0, index),
    transpose=lambda ct, x, scope: (optimization_barrier_p.bind(ct, scope=scope),),
    batch=lambda operands, dims, scope: (optimization_barrier_p.bind(*operands, scope=scope), dims[0]),
    samples=[(((3, 4),), {"scope": -1}), (((1,),), {"scope": -1})],
    form=Movement.BARRIER,
)

name_p = elementwise(
    "name",
    ALL_DTYPES,
    eval=lambda x, name: x,
    lower=lambda x, name: x,
    rounded=False,
    params=({"name": "a"},),
    jvp=(lambda t, x, out, name: t,),
)


def _sink(values: Sequence[Any], params: Params) -> tuple[list[Any], list[Any]]:
    dce_sink_p.bind(*values, **params)
    return [], []


dce_sink_p: Primitive = register(
    Primitive(
        "dce_sink",
        Fusion.LIBRARY,
        multiple_results=True,
        effect=True,
        type=lambda *avals, threaded=False, **params: (TOKEN,) * threaded,
        eval=lambda *arrays, threaded=False, **params: [np.zeros((), TOKEN.dtype)] * threaded,
        jvp=lambda primals, tangents, **params: _sink(primals, params),
        transpose=lambda cotangents, x, **params: [None],
        batch=lambda operands, dims, **params: _sink(operands, params),
    )
)


# remat: params jaxpr (closed), prevent_cse (a bool, or one an operand), differentiated, policy.


def _impl(*values: Any, jaxpr: Graph, **params: Any) -> list[Any]:
    return replay(jaxpr, *values)


def _eval(*arrays: np.ndarray, jaxpr: Graph, **params: Any) -> list[np.ndarray]:
    return evaluate(jaxpr, arrays)


def _type(*avals: ArrayType, jaxpr: Graph, **params: Any) -> tuple[ArrayType, ...]:
    return jaxpr.out_avals


def kept_apart(prevent_cse: bool | tuple[bool, ...], count: int) -> tuple[bool, ...]:
    """For each operand, whether it goes through a barrier."""
    return (prevent_cse,) * count if isinstance(prevent_cse, bool) else prevent_cse


def apply(graph: Graph, operands: Sequence[Any], apart: Sequence[bool], params: Params) -> list[Any]:
    """remat of a graph, whose constants become operands."""
    closed, consts = close(graph)
    params = {**params, "jaxpr": closed, "prevent_cse": ((False,) * len(consts) + tuple(apart))}
    return remat_p.bind(*consts, *operands, **params)  # type: ignore[no-any-return]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], jaxpr: Graph, **params: Any) -> tuple[Any, Any]:
    active = [type(t) is not Zero for t in tangents]
    graph, present = jvp_graph(jaxpr, active)
    linear = [t for t in tangents if type(t) is not Zero]
    apart = kept_apart(params["prevent_cse"], len(primals))
    results = apply(graph, (*primals, *linear), (*apart, *(False for _ in linear)), params)
    rest = iter(results[len(present) :])
    found = [next(rest) if use else Zero(v.aval) for use, v in zip(present, jaxpr.outvars)]
    return results[: len(present)], found


def _batch(
    operands: Sequence[Any], dims: Sequence[int | None], jaxpr: Graph, axis: Any = None, **params: Any
) -> tuple[Any, Any]:
    size = size_of(operands, dims) if any(d is not None for d in dims) else axis[1]
    graph, present = batch_graph(jaxpr, [d is not None for d in dims], size, axis=axis)
    inputs = [moved(v, d, 0) for v, d in zip(operands, dims)]
    results = apply(graph, inputs, kept_apart(params["prevent_cse"], len(inputs)), params)
    return results, [0 if use else None for use in present]


def _partial(trace: Trace, args: Sequence[Any], params: Params) -> list[Any]:
    """What is known now, with what the policy saves; an equation for the rest, which computes again what it needs."""
    assert isinstance(trace, LinearTrace)
    linear = [trace.follows(a) for a in args]
    known = [a for a, use in zip(args, linear) if not use]
    parts = split(params["jaxpr"], linear)
    if params["differentiated"] and all(parts.is_linear):
        return list(trace.record(remat_p, tuple(args), params))  # what it computes again is computed in one place
    plan = _plan(parts, params["policy"])
    with using(trace.parent):
        results = replay(plan.known, *known)
    values, saved = results[: plan.results], results[plan.results :]
    again = [known[n] for n in plan.inputs]
    tangents = [a for a, use in zip(args, linear) if use]
    operands = (*plan.consts, *again, *saved, *tangents)
    wanted = kept_apart(params["prevent_cse"], len(args))
    apart = [w for w, use in zip(wanted, linear) if not use]
    barrier = any(apart)
    prevent = (
        *(False for _ in plan.consts),
        *(apart[n] for n in plan.inputs),
        *(barrier for _ in saved),
        *(False for _ in tangents),
    )
    params = {**params, "jaxpr": plan.linear, "prevent_cse": prevent, "differentiated": True}
    found = iter(trace.record(remat_p, operands, params) if plan.linear.outvars else ())
    rest = iter(values)
    return [next(found) if use else next(rest) for use in plan.is_linear]


class Plan(NamedTuple):
    """A split graph by a policy: `known(known inputs) -> (results, saved)`, `linear(consts, inputs, saved, linear inputs)`."""

    known: Graph
    results: int
    consts: tuple[Any, ...]
    inputs: list[int]  # the known inputs that are needed to compute the rest again
    linear: Graph
    is_linear: list[bool]


def _plan(parts: Split, policy: Policy | None) -> Plan:
    """What only looks (`debug.print`) happens each time that it is computed; what may change something must not be repeated."""
    known, linear = parts.known, parts.linear
    if (found := _once_only(known)) is not None:
        raise NotImplementedError(
            f"Effects not supported in partial-eval of `checkpoint`/`remat`: {found.params['callback'].name} is an io_callback "
            f"({found.source.short}), which would happen again in the backward pass; call it outside of the checkpointed function"
        )
    count = len(known.outvars) - parts.residuals
    residuals = known.outvars[count:]
    known, saveable, takes = _with_saved(known, policy)
    wanted: dict[Var, None] = {v: None for v in residuals if isinstance(v, Var)}
    again: list[Eqn] = []
    for eqn in reversed(known.eqns):
        if effective(eqn) or any(v in wanted and v not in saveable for v in eqn.outvars):
            again.append(takes.get(eqn.outvars[0], eqn) if eqn.outvars else eqn)
            wanted.update((v, None) for v in again[-1].operands())
    again.reverse()
    made = {v for eqn in again for v in eqn.outvars}
    saved = [v for eqn in known.eqns for v in eqn.outvars if v in wanted and v in saveable and v not in made]
    inputs = [n for n, v in enumerate(known.invars) if v in wanted]
    constants = [(v, c) for v, c in zip(known.constvars, known.consts) if v in wanted]
    stands: dict[Var, Operand] = dict(zip(linear.invars, residuals))

    def current(operand: Operand) -> Operand:
        return stands.get(operand, operand) if isinstance(operand, Var) else operand

    rest = [replace(eqn, invars=tuple(map(current, eqn.invars))) for eqn in linear.eqns]
    second = replace(
        linear,
        invars=(
            *(v for v, _ in constants),
            *(known.invars[n] for n in inputs),
            *saved,
            *linear.invars[len(residuals) :],
        ),
        eqns=(*again, *rest),
        outvars=tuple(map(current, linear.outvars)),
    )
    first = replace(known, outvars=(*known.outvars[:count], *saved))
    return Plan(needed(first), count, tuple(c for _, c in constants), inputs, second, parts.is_linear)


def _once_only(graph: Graph) -> Eqn | None:
    """An `io_callback`, here or in a graph inside."""
    for eqn in graph.eqns:
        found = (
            eqn if eqn.primitive is io_callback_p else next(filter(None, map(_once_only, graphs_in(eqn.params))), None)
        )
        if found is not None:
            return found
    return None


def _with_saved(known: Graph, policy: Policy | None) -> tuple[Graph, set[Var], dict[Var, Eqn]]:
    """The known graph with what the policy saves inside of control flow as results, what it saves, and for equations of
    control flow, by their first result, the form that takes what is saved."""
    if policy is None:
        return known, set(), {}
    saves = functools.partial(_saves, policy)
    eqns: list[Eqn] = []
    saveable: set[Var] = set()
    takes: dict[Var, Eqn] = {}
    for eqn in known.eqns:
        if saves(eqn):
            saveable.update(eqn.outvars)
        elif (both := exposed(eqn, saves)) is not None:
            saveable.update(both.saved)
            takes[eqn.outvars[0]] = both.takes
            eqn = both.gives
        eqns.append(eqn)
    return replace(known, eqns=tuple(eqns)), saveable, takes


def _saves(policy: Policy, eqn: Eqn) -> bool:
    return bool(policy(eqn.primitive, *(v.aval for v in eqn.invars), **eqn.params))


def _transpose(cotangents: Sequence[Any], *operands: Any, jaxpr: Graph, **params: Any) -> list[Any]:
    linear = [type(o) is Undefined for o in operands]
    graph, present = transpose_graph(jaxpr, linear, [type(c) is not Zero for c in cotangents])
    known = [o for o, use in zip(operands, linear) if not use]
    given = [c for c in cotangents if type(c) is not Zero]
    wanted = kept_apart(params["prevent_cse"], len(operands))
    apart = [w for w, use in zip(wanted, linear) if not use]
    found = iter(apply(graph, (*known, *given), (*apart, *(False for _ in given)), params))
    rest = iter(present)
    return [next(found) if use and next(rest) else None for use in linear]


remat_p: Primitive = register(
    Primitive(
        "remat",
        Fusion.CONTROL,
        multiple_results=True,
        type=_type,
        eval=_eval,
        run=_impl,
        partial=_partial,
        jvp=_jvp,
        transpose=_transpose,
        batch=_batch,
    )
)
