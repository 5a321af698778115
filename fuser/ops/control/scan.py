"""`scan`: operands `*consts, *carry, *xs`; results `*carry, *ys`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph, Var
from fuser.ir.primitive import Control, Fusion, Primitive, register
from fuser.ir.types import ArrayType
from fuser.ops import elementwise as el
from fuser.ops.control import graphs
from fuser.ops.control.avals import Params, Samples, require, row_type, stacked
from fuser.ops.movement import broadcast_in_dim_p
from fuser.ops.reduce import reduce_sum_p
from fuser.trace.batch import moved, size_of
from fuser.trace.body import close, pick
from fuser.trace.core import type_of
from fuser.trace.replay import replay
from fuser.trace.stage import stage
from fuser.trace.tangent import Undefined, Zero, instantiate, zero_like, zeros


def split_scan(operands: Sequence[Any], num_consts: int, num_carry: int) -> tuple[list[Any], list[Any], list[Any]]:
    """The constants, the initial carry, and the arrays that are walked along."""
    first = num_consts + num_carry
    return list(operands[:num_consts]), list(operands[num_consts:first]), list(operands[first:])


def _scan_type(
    *avals: ArrayType,
    jaxpr: Graph,
    num_consts: int,
    num_carry: int,
    length: int,
    reverse: bool = False,
    unroll: int = 1,
    **ignored: Any,
) -> tuple[ArrayType, ...]:
    consts, carry, xs = split_scan(avals, num_consts, num_carry)
    if any(not x.shape or x.shape[0] != length for x in xs):
        raise TypeRuleError(f"scan over {length} steps needs xs of that length, got {', '.join(map(str, xs))}")
    require("the body of scan", [*consts, *carry, *map(row_type, xs)], jaxpr.in_avals)
    require("the carry of scan", jaxpr.out_avals[:num_carry], carry)
    return (*jaxpr.out_avals[:num_carry], *(stacked(y, length) for y in jaxpr.out_avals[num_carry:]))


def _scan_eval(
    *operands: np.ndarray,
    jaxpr: Graph,
    num_consts: int,
    num_carry: int,
    length: int,
    reverse: bool = False,
    unroll: int = 1,
    **ignored: Any,
) -> list[np.ndarray]:
    consts, carry, xs = split_scan(operands, num_consts, num_carry)
    ys = [np.zeros((length, *y.shape), y.dtype) for y in jaxpr.out_avals[num_carry:]]
    for step in reversed(range(length)) if reverse else range(length):
        results = evaluate(jaxpr, [*consts, *carry, *(x[step] for x in xs)])
        carry = results[:num_carry]
        for y, value in zip(ys, results[num_carry:]):
            y[step] = value
    return [*carry, *ys]


def _scan_samples() -> Samples:
    scalar, vector = ArrayType((), np.dtype("float64")), ArrayType((5,), np.dtype("float64"))

    def body(scale: Any, carry: Any, x: Any) -> list[Any]:
        new = el.add_p.bind(
            el.mul_p.bind(carry, broadcast_in_dim_p.bind(scale, shape=(5,), broadcast_dimensions=())), x
        )
        return [new, el.sin_p.bind(new), reduce_sum_p.bind(new, axes=(0,))]

    graph = stage(body, [scalar, vector, vector])
    rng = np.random.default_rng(0)
    for length, reverse in ((7, False), (7, True), (1, False), (0, False)):
        xs = rng.normal(size=(length, 5)).astype(np.float64)
        start = rng.normal(size=5).astype(np.float64)
        params = {"jaxpr": graph, "num_consts": 1, "num_carry": 1, "length": length, "reverse": reverse, "unroll": 1}
        yield (np.float64(0.5), start, xs), params
    count = stage(lambda n: [el.add_p.bind(n, np.int32(1)), el.mul_p.bind(n, n)], [ArrayType((), np.dtype("int32"))])
    params = {"jaxpr": count, "num_consts": 0, "num_carry": 1, "length": 6, "reverse": False, "unroll": 2}
    yield (np.int32(3),), params


scan_p = register(
    Primitive(
        "scan",
        Fusion.CONTROL,
        multiple_results=True,
        type=_scan_type,
        eval=_scan_eval,
        samples=_scan_samples,
        control=Control.SCAN,
    )
)


# Rules of the transforms.


def _counts(operands: Sequence[Any], num_consts: int, num_carry: int) -> tuple[int, int, int]:
    return num_consts, num_carry, len(operands) - num_consts - num_carry


def _scan_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Graph, num_consts: int, num_carry: int, **params: Any
) -> tuple[list[Any], list[Any]]:
    """A scan over values and tangents; a carry has a tangent if its start or any step gives it one."""
    consts, carry, walked = _counts(primals, num_consts, num_carry)
    active = [type(t) is not Zero for t in tangents]
    const_active, init_active, xs_active = split_scan(active, consts, carry)
    ys = (False,) * (len(jaxpr.outvars) - carry)

    def step(mask: graphs.Mask) -> list[bool]:
        return graphs.jvp(jaxpr, (*const_active, *mask, *xs_active), (*mask, *ys)).present[:carry]

    moving = graphs.fixpoint(init_active, step)
    whole = (*const_active, *moving, *xs_active)
    body, extra, present = graphs.jvp(jaxpr, whole, (*moving, *ys))
    e, inputs = len(extra), consts + carry + walked
    first = e + inputs
    dots = [sum(const_active), sum(moving), sum(xs_active)]
    order = [
        *range(e + consts),
        *range(first, first + dots[0]),
        *range(e + consts, e + consts + carry),
        *range(first + dots[0], first + dots[0] + dots[1]),
        *range(e + consts + carry, first),
        *range(first + dots[0] + dots[1], first + sum(dots)),
    ]
    count = len(jaxpr.outvars)
    results = [
        *range(carry),
        *range(count, count + dots[1]),
        *range(carry, count),
        *range(count + dots[1], len(body.outvars)),
    ]
    given = [instantiate(t) if use else t for t, use in zip(tangents, whole)]
    parts = [
        graphs.where(mask, some)
        for mask, some in zip((const_active, moving, xs_active), split_scan(given, consts, carry))
    ]
    c, i, x = split_scan(primals, consts, carry)
    out = scan_p.bind(
        *extra, *c, *parts[0], *i, *parts[1], *x, *parts[2],
        jaxpr=pick(body, order, results), num_consts=e + consts + dots[0], num_carry=carry + dots[1], **params,
    )  # fmt: skip
    values = [*out[:carry], *out[carry + dots[1] : dots[1] + count]]
    found = iter([*out[carry : carry + dots[1]], *out[dots[1] + count :]])
    return values, [next(found) if use else zero_like(v) for v, use in zip(values, present)]


def _scan_batch(
    operands: Sequence[Any],
    dims: Sequence[int | None],
    *,
    jaxpr: Graph,
    num_consts: int,
    num_carry: int,
    axis: tuple[Any, int] | None = None,
    **params: Any,
) -> tuple[list[Any], list[int | None]]:
    """The scan of a batched body; a carry is batched if its start or any step batches it."""
    size = axis[1] if axis else size_of(operands, dims)
    batched = [d is not None for d in dims]
    const_batched, init_batched, xs_batched = split_scan(batched, num_consts, num_carry)
    ys = (False,) * (len(jaxpr.outvars) - num_carry)

    def made(mask: graphs.Mask) -> graphs.Made:
        return graphs.batch(jaxpr, (*const_batched, *mask, *xs_batched), size, (*mask, *ys), axis)

    moving = graphs.fixpoint(init_batched, lambda mask: made(mask).present[:num_carry])
    body, extra, present = made(moving)
    consts, init, xs = split_scan(list(zip(operands, dims)), num_consts, num_carry)
    out = scan_p.bind(
        *extra,
        *(moved(v, d, 0) for v, d in consts),
        *(moved(v, d, 0, size if use else None) for (v, d), use in zip(init, moving)),
        *(moved(v, d, 1) for v, d in xs),
        jaxpr=body,
        num_consts=len(extra) + num_consts,
        num_carry=num_carry,
        **params,
    )
    places: list[int | None] = [0 if use else None for use in moving]
    return out, [*places, *(1 if use else None for use in present[num_carry:])]


def _scan_partial(trace: Any, args: Sequence[Any], params: Params) -> list[Any]:
    """A scan of what is known, which leaves residuals as ys, and a recorded scan that is linear in the rest.

    Residuals that are the same in each step are computed once and stay constants; those that are xs are not stacked.
    """
    body, consts, carry = params["jaxpr"], params["num_consts"], params["num_carry"]
    rest = {name: value for name, value in params.items() if name not in ("jaxpr", "num_consts", "num_carry")}
    follows = [trace.follows(a) for a in args]
    const_linear, init_linear, xs_linear = split_scan(follows, consts, carry)
    ys = (False,) * (len(body.outvars) - carry)

    def parted(mask: graphs.Mask) -> graphs.Split:
        return graphs.split(body, (*const_linear, *mask, *xs_linear), (*mask, *ys))

    moving = graphs.fixpoint(init_linear, lambda mask: parted(mask).is_linear[:carry])
    parts = parted(moving)
    linear = [*const_linear, *moving, *xs_linear]
    known_args = [a for a, use in zip(args, linear) if not use]
    known_consts = [*parts.consts, *(a for a, use in zip(args, const_linear) if not use)]
    known_init = [a for a, use in zip(args[consts : consts + carry], moving) if not use]
    known_xs = known_args[len(known_consts) - len(parts.consts) + len(known_init) :]
    results, residuals, stacked_now = _known_scan(parts, known_consts, known_init, known_xs, rest)
    # The linear scan: residuals that do not change, and linear operands.
    steady = [not s for s in stacked_now]
    c, i, x = (
        graphs.where(mask, some)
        for mask, some in zip((const_linear, moving, xs_linear), split_scan(args, consts, carry))
    )
    r = parts.residuals
    order = [
        *graphs.places(steady),
        *range(r, r + len(c) + len(i) + len(x)),
        *graphs.places(stacked_now),
    ]
    operands = (*graphs.where(steady, residuals), *c, *i, *x, *graphs.where(stacked_now, residuals))
    new = {**rest, "jaxpr": pick(parts.linear, order), "num_consts": sum(steady) + len(c), "num_carry": len(i)}
    if any(moving) or any(parts.is_linear):
        made = iter(trace.record(scan_p, operands, new))
    known = iter(results)
    return [next(made) if use else next(known) for use in parts.is_linear]


def _known_scan(
    parts: graphs.Split, consts: list[Any], init: list[Any], xs: list[Any], params: Params
) -> tuple[list[Any], list[Any], list[bool]]:
    """Results of the known scan, the residuals, and which of those have one part a step."""
    graph = parts.known
    count = len(graph.outvars) - parts.residuals
    outputs = tuple(range(count, len(graph.outvars)))
    place = {v: n for n, v in enumerate(graph.invars)}
    hoisted, found = graphs.invariant(graph, outputs, len(consts))
    values: dict[int, Any] = dict(zip(found, replay(hoisted, *consts)))
    stacked_now = [n not in values for n in outputs]
    first_x = len(consts) + len(init)
    for n in outputs:
        at = place.get(graph.outvars[n]) if isinstance(graph.outvars[n], Var) else None  # type: ignore[arg-type]
        if n not in values and at is not None and at >= first_x:
            values[n] = xs[at - first_x]
    kept = [n for n in range(len(graph.outvars)) if n not in values]
    out: list[Any] = []
    if kept:
        out = scan_p.bind(
            *consts, *init, *xs,
            jaxpr=graphs.unread(pick(graph, outputs=kept)), num_consts=len(consts), num_carry=len(init), **params,
        )  # fmt: skip
    values.update(zip(kept, out))
    return [values[n] for n in range(count)], [values[n] for n in outputs], stacked_now


def _scan_transpose(
    cotangents: Sequence[Any],
    *operands: Any,
    jaxpr: Graph,
    num_consts: int,
    num_carry: int,
    reverse: bool,
    **params: Any,
) -> list[Any]:
    """A scan backwards: its carry is the cotangent of the carry and, summed up, those of the constants."""
    undefined = [type(o) is Undefined for o in operands]
    const_linear, _, xs_linear = split_scan(undefined, num_consts, num_carry)
    consts, _, xs = split_scan(operands, num_consts, num_carry)
    ct_carry = [instantiate(ct) for ct in cotangents[:num_carry]]
    active = [type(ct) is not Zero for ct in cotangents[num_carry:]]
    ct_ys = graphs.where(active, cotangents[num_carry:])
    fixed, walked = graphs.where([not u for u in const_linear], consts), graphs.where([not u for u in xs_linear], xs)
    totals = [zeros(o.aval.update(weak_type=False)) for o in graphs.where(const_linear, consts)]
    body, extra, found = _backward_body(jaxpr, tuple(const_linear), num_carry, tuple(xs_linear), tuple(active))
    out = scan_p.bind(
        *extra, *fixed, *totals, *ct_carry, *ct_ys, *walked,
        jaxpr=body, num_consts=len(extra) + len(fixed), num_carry=len(totals) + num_carry, reverse=not reverse, **params,
    )  # fmt: skip
    of_consts, of_carry = iter(out[: len(totals)]), iter(out[len(totals) : len(totals) + num_carry])
    of_xs = iter(out[len(totals) + num_carry :])
    given = iter(found)
    result: list[Any] = [next(of_consts) if use else None for use in const_linear]
    result += [next(of_carry) for _ in range(num_carry)]
    result += [(next(of_xs) if next(given) else None) if use else None for use in xs_linear]
    return result


@functools.lru_cache(maxsize=512)
def _backward_body(
    graph: Graph, consts: graphs.Mask, carry: int, xs: graphs.Mask, active: graphs.Mask
) -> tuple[Graph, tuple[Any, ...], list[bool]]:
    """`(fixed, totals, carry's cotangents, ys' cotangents, walked) -> (totals, carry's cotangents, xs' cotangents)`."""
    linear = (*consts, *(True,) * carry, *xs)
    made = graphs.transpose(graph, linear, (*(True,) * carry, *active))
    n_fixed, n_totals, n_ys = len(consts) - sum(consts), sum(consts), sum(active)
    avals = [v.aval.update(weak_type=False) for v in graphs.where(linear, graph.invars)]

    def function(*inputs: Any) -> list[Any]:
        given = iter(inputs)
        extra = [next(given) for _ in made.consts]
        fixed = [next(given) for _ in range(n_fixed)]
        totals = [next(given) for _ in range(n_totals)]
        cts = [next(given) for _ in range(carry + n_ys)]
        walked = list(given)
        found = iter(replay(made.graph, *extra, *fixed, *walked, *cts))
        out = [next(found) if p else Zero(a) for p, a in zip(made.present, avals)]
        new_totals = [t if type(c) is Zero else el.add_any_p.bind(t, c) for t, c in zip(totals, out)]
        of_carry = [instantiate(c) for c in out[n_totals : n_totals + carry]]
        return [*new_totals, *of_carry, *(c for c in out[n_totals + carry :] if type(c) is not Zero)]

    known = [v.aval for v, use in zip(graph.invars, linear) if not use]
    ct_avals = [v.aval.update(weak_type=False) for v in graph.outvars]
    types = [
        *(type_of(c) for c in made.consts),
        *known[:n_fixed],
        *avals[:n_totals],
        *ct_avals[:carry],
        *graphs.where(active, ct_avals[carry:]),
        *known[n_fixed:],
    ]
    body, consts_of_body = close(stage(function, types, graph.name))
    return body, (*consts_of_body, *made.consts), made.present[n_totals + carry :]


scan_p.jvp, scan_p.batch, scan_p.partial, scan_p.transpose = _scan_jvp, _scan_batch, _scan_partial, _scan_transpose
