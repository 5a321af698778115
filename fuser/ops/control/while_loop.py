"""`while`: operands `*cond_consts, *body_consts, *carry`; the predicate may have the leading dimensions of every carry."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph, Var
from fuser.ir.primitive import Control, Fusion, Primitive, register
from fuser.ir.source import current_source
from fuser.ir.types import BOOL, ArrayType
from fuser.ops import elementwise as el
from fuser.ops.control import graphs
from fuser.ops.control.avals import Params, Samples, require
from fuser.ops.reduce import reduce_sum_p
from fuser.trace.batch import moved, size_of
from fuser.trace.body import pick
from fuser.trace.core import type_of
from fuser.trace.stage import stage
from fuser.trace.tangent import Zero, instantiate, zero_like


def split_while(
    operands: Sequence[Any], cond_nconsts: int, body_nconsts: int
) -> tuple[list[Any], list[Any], list[Any]]:
    """The constants of the predicate, those of the body, and the initial carry."""
    consts = cond_nconsts + body_nconsts
    return list(operands[:cond_nconsts]), list(operands[cond_nconsts:consts]), list(operands[consts:])


def _while_type(
    *avals: ArrayType, cond_nconsts: int, cond_jaxpr: Graph, body_nconsts: int, body_jaxpr: Graph
) -> tuple[ArrayType, ...]:
    cond_consts, body_consts, carry = split_while(avals, cond_nconsts, body_nconsts)
    require("the predicate of while", [*cond_consts, *carry], cond_jaxpr.in_avals)
    require("the body of while", [*body_consts, *carry], body_jaxpr.in_avals)
    require("the carry of while", body_jaxpr.out_avals, carry)
    [predicate] = cond_jaxpr.out_avals
    rank = len(predicate.shape)
    if predicate.dtype != BOOL or any(c.shape[:rank] != predicate.shape for c in carry):
        raise TypeRuleError(
            f"the predicate of while is a bool over leading dimensions of every carry, got {predicate} "
            f"for ({', '.join(map(str, carry))})"
        )
    return body_jaxpr.out_avals


def lanes(predicate: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """`new` where a lane still runs, `old` where it has ended."""
    return np.where(predicate.reshape(predicate.shape + (1,) * (new.ndim - predicate.ndim)), new, old)


def _while_eval(
    *operands: np.ndarray, cond_nconsts: int, cond_jaxpr: Graph, body_nconsts: int, body_jaxpr: Graph
) -> list[np.ndarray]:
    cond_consts, body_consts, carry = split_while(operands, cond_nconsts, body_nconsts)
    while True:
        [predicate] = evaluate(cond_jaxpr, [*cond_consts, *carry])
        if not predicate.any():
            return carry
        new = evaluate(body_jaxpr, [*body_consts, *carry])
        carry = [lanes(predicate, n, c) for n, c in zip(new, carry)] if predicate.shape else new


def _while_samples() -> Samples:
    scalar, vector = ArrayType((), np.dtype("float64")), ArrayType((5,), np.dtype("float64"))
    below = stage(lambda bound, x: [el.lt_p.bind(x, bound)], [scalar, scalar])
    twice = stage(lambda step, x: [el.add_p.bind(el.add_p.bind(x, x), step)], [scalar, scalar])
    params = {"cond_nconsts": 1, "cond_jaxpr": below, "body_nconsts": 1, "body_jaxpr": twice}
    yield (np.float64(100), np.float64(1), np.float64(0.5)), params
    yield (np.float64(1), np.float64(1), np.float64(3)), params  # no step at all
    total = stage(lambda x, y: [el.lt_p.bind(reduce_sum_p.bind(x, axes=(0,)), np.float64(40))], [vector, scalar])
    grow = stage(lambda x, y: [el.add_p.bind(x, el.mul_p.bind(x, x)), el.add_p.bind(y, y)], [vector, scalar])
    params = {"cond_nconsts": 0, "cond_jaxpr": total, "body_nconsts": 0, "body_jaxpr": grow}
    yield (np.linspace(0.1, 0.8, 5).astype(np.float64), np.float64(1)), params
    below = stage(lambda bound, x: [el.lt_p.bind(x, bound)], [vector, vector])
    twice = stage(lambda step, x: [el.add_p.bind(el.add_p.bind(x, x), step)], [vector, vector])
    params = {"cond_nconsts": 1, "cond_jaxpr": below, "body_nconsts": 1, "body_jaxpr": twice}
    start = np.array([0.5, 20, 300, -0.5, 7], np.float64)
    yield (np.array([9, 99, 9, 2, 1000], np.float64), np.ones(5, np.float64), start), params


while_p = register(
    Primitive(
        "while",
        Fusion.CONTROL,
        multiple_results=True,
        type=_while_type,
        eval=_while_eval,
        samples=_while_samples,
        control=Control.WHILE,
    )
)


# Rules of the transforms.


def _while_jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    cond_nconsts: int,
    cond_jaxpr: Graph,
    body_nconsts: int,
    body_jaxpr: Graph,
) -> tuple[list[Any], list[Any]]:
    """A loop over values and tangents, for as long as the values say."""
    cond_consts, consts, init = split_while(primals, cond_nconsts, body_nconsts)
    _, consts_dot, init_dot = split_while(tangents, cond_nconsts, body_nconsts)
    const_active = tuple(type(t) is not Zero for t in consts_dot)

    def made(mask: graphs.Mask) -> graphs.Made:
        return graphs.jvp(body_jaxpr, (*const_active, *mask), mask)

    moving = graphs.fixpoint([type(t) is not Zero for t in init_dot], lambda mask: made(mask).present)
    body, extra, _ = made(moving)
    e, count = len(extra), len(init)
    first, dots = e + body_nconsts + count, sum(const_active)
    order = [
        *range(e + body_nconsts),
        *range(first, first + dots),
        *range(e + body_nconsts, first),
        *range(first + dots, first + dots + sum(moving)),
    ]
    given = [instantiate(t) for t in graphs.where(moving, init_dot)]
    out = while_p.bind(
        *cond_consts, *extra, *consts, *graphs.where(const_active, consts_dot), *init, *given,
        cond_nconsts=cond_nconsts, cond_jaxpr=_with_unread(cond_jaxpr, tuple(type_of(t) for t in given)),
        body_nconsts=e + body_nconsts + dots, body_jaxpr=pick(body, order),
    )  # fmt: skip
    found = iter(out[count:])
    return list(out[:count]), [next(found) if use else zero_like(v) for v, use in zip(out, moving)]


@functools.lru_cache(maxsize=512)
def _with_unread(graph: Graph, avals: tuple[ArrayType, ...]) -> Graph:
    """The graph with further inputs that it does not read."""
    return replace(graph, invars=(*graph.invars, *(Var(a) for a in avals)))


def _while_batch(
    operands: Sequence[Any],
    dims: Sequence[int | None],
    *,
    cond_nconsts: int,
    cond_jaxpr: Graph,
    body_nconsts: int,
    body_jaxpr: Graph,
    axis: tuple[Any, int] | None = None,
) -> tuple[list[Any], list[int | None]]:
    """One loop for the whole batch. Where the predicate is batched, all carries are, and each lane runs by its own."""
    size = axis[1] if axis else size_of(operands, dims)
    batched = [d is not None for d in dims]
    test_batched, const_batched, init_batched = split_while(batched, cond_nconsts, body_nconsts)

    def made(mask: graphs.Mask) -> graphs.Made:
        return graphs.batch(body_jaxpr, (*const_batched, *mask), size, mask, axis)

    moving = graphs.fixpoint(init_batched, lambda mask: made(mask).present)
    test = graphs.batch(cond_jaxpr, (*test_batched, *moving), size, (False,), axis)
    if test.present[0] or cond_jaxpr.out_avals[0].shape:  # lanes stand in front of every carry
        moving = (True,) * len(moving)
        test = graphs.batch(cond_jaxpr, (*test_batched, *moving), size, (True,), axis)
    body = made(moving)
    tests, consts, init = split_while(list(zip(operands, dims)), cond_nconsts, body_nconsts)
    out = while_p.bind(
        *test.consts,
        *(moved(v, d, 0) for v, d in tests),
        *body.consts,
        *(moved(v, d, 0) for v, d in consts),
        *(moved(v, d, 0, size if use else None) for (v, d), use in zip(init, moving)),
        cond_nconsts=len(test.consts) + cond_nconsts,
        cond_jaxpr=test.graph,
        body_nconsts=len(body.consts) + body_nconsts,
        body_jaxpr=body.graph,
    )
    return out, [0 if use else None for use in moving]


def _while_partial(trace: Any, args: Sequence[Any], params: Params) -> list[Any]:
    """A loop of what is known, and the whole loop once more, recorded, for what is linear.

    Nothing is handed over between the two, since nobody knows how many steps there will be.
    """
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    test_consts, consts = params["cond_nconsts"], params["body_nconsts"]
    follows = [trace.follows(a) for a in args]
    _, const_linear, init_linear = split_while(follows, test_consts, consts)

    def parted(mask: graphs.Mask) -> graphs.Split:
        return graphs.split(body, (*const_linear, *mask), mask)

    moving = graphs.fixpoint(init_linear, lambda mask: parted(mask).is_linear)
    parts = parted(moving)
    still = [not use for use in moving]
    tests, fixed, init = split_while(args, test_consts, consts)
    known: list[Any] = []
    if any(still):
        count = len(parts.known.outvars) - parts.residuals
        known = while_p.bind(
            *tests, *parts.consts, *graphs.where([not use for use in const_linear], fixed), *graphs.where(still, init),
            cond_nconsts=test_consts,
            cond_jaxpr=pick(test, [*range(test_consts), *graphs.places(still, test_consts)]),
            body_nconsts=len(parts.consts) + consts - sum(const_linear),
            body_jaxpr=graphs.unread(pick(parts.known, outputs=range(count))),
        )  # fmt: skip
    recorded = trace.record(while_p, tuple(args), params)
    found = iter(known)
    return [whole if use else next(found) for whole, use in zip(recorded, moving)]


def _while_transpose(cotangents: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    raise ValueError(
        "Reverse-mode differentiation does not work for lax.while_loop, or lax.fori_loop with bounds that are traced "
        f"({current_source().short}): the number of steps to go back is known only when they have run; "
        "use scan, or fori_loop with Python integers as bounds, or differentiate forwards with jvp or jacfwd"
    )


while_p.jvp, while_p.batch, while_p.partial, while_p.transpose = (
    _while_jvp,
    _while_batch,
    _while_partial,
    _while_transpose,
)
