"""Control flow: `while`, `scan` and `cond`, which hold Graphs in their params; operands and params are those of JAX.

The Graphs are closed: what a body closes over is an operand. The predicate of a while may have a shape, the leading
dimensions of every carry: each lane then runs until its own predicate is false. A cond's index is clamped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.types import BOOL, ArrayType
from fuser.ops import elementwise as el
from fuser.ops.movement import broadcast_in_dim_p
from fuser.ops.reduce import reduce_sum_p
from fuser.trace.stage import stage

Params = dict[str, Any]
Samples = Iterator[tuple[tuple[Any, ...], Params]]


def _same(found: Sequence[ArrayType], expected: Sequence[ArrayType]) -> bool:
    """Whether shapes and dtypes agree; weak types are nobody's concern once a graph exists."""
    return [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in expected]


def _require(what: str, found: Sequence[ArrayType], expected: Sequence[ArrayType]) -> None:
    if not _same(found, expected):
        raise TypeRuleError(f"{what} takes ({', '.join(map(str, expected))}), got ({', '.join(map(str, found))})")


def row_type(aval: ArrayType) -> ArrayType:
    """The type of one step's part of a stacked array."""
    return aval.update(shape=aval.shape[1:])


def stacked(aval: ArrayType, length: int) -> ArrayType:
    """The type of `length` values of a type, along a new leading dimension."""
    return aval.update(shape=(length, *aval.shape))


# while


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
    _require("the predicate of while", [*cond_consts, *carry], cond_jaxpr.in_avals)
    _require("the body of while", [*body_consts, *carry], body_jaxpr.in_avals)
    _require("the carry of while", body_jaxpr.out_avals, carry)
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
    scalar, vector = ArrayType((), np.dtype("float32")), ArrayType((5,), np.dtype("float32"))
    below = stage(lambda bound, x: [el.lt_p.bind(x, bound)], [scalar, scalar])
    twice = stage(lambda step, x: [el.add_p.bind(el.add_p.bind(x, x), step)], [scalar, scalar])
    params = {"cond_nconsts": 1, "cond_jaxpr": below, "body_nconsts": 1, "body_jaxpr": twice}
    yield (np.float32(100), np.float32(1), np.float32(0.5)), params
    yield (np.float32(1), np.float32(1), np.float32(3)), params  # no step at all
    total = stage(lambda x, y: [el.lt_p.bind(reduce_sum_p.bind(x, axes=(0,)), np.float32(40))], [vector, scalar])
    grow = stage(lambda x, y: [el.add_p.bind(x, el.mul_p.bind(x, x)), el.add_p.bind(y, y)], [vector, scalar])
    params = {"cond_nconsts": 0, "cond_jaxpr": total, "body_nconsts": 0, "body_jaxpr": grow}
    yield (np.linspace(0.1, 0.8, 5).astype(np.float32), np.float32(1)), params
    below = stage(lambda bound, x: [el.lt_p.bind(x, bound)], [vector, vector])
    twice = stage(lambda step, x: [el.add_p.bind(el.add_p.bind(x, x), step)], [vector, vector])
    params = {"cond_nconsts": 1, "cond_jaxpr": below, "body_nconsts": 1, "body_jaxpr": twice}
    start = np.array([0.5, 20, 300, -0.5, 7], np.float32)
    yield (np.array([9, 99, 9, 2, 1000], np.float32), np.ones(5, np.float32), start), params


while_p = register(
    Primitive(
        "while", Fusion.CONTROL, multiple_results=True, type=_while_type, eval=_while_eval, samples=_while_samples
    )
)


# scan


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
    _require("the body of scan", [*consts, *carry, *map(row_type, xs)], jaxpr.in_avals)
    _require("the carry of scan", jaxpr.out_avals[:num_carry], carry)
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
    scalar, vector = ArrayType((), np.dtype("float32")), ArrayType((5,), np.dtype("float32"))

    def body(scale: Any, carry: Any, x: Any) -> list[Any]:
        new = el.add_p.bind(
            el.mul_p.bind(carry, broadcast_in_dim_p.bind(scale, shape=(5,), broadcast_dimensions=())), x
        )
        return [new, el.sin_p.bind(new), reduce_sum_p.bind(new, axes=(0,))]

    graph = stage(body, [scalar, vector, vector])
    rng = np.random.default_rng(0)
    for length, reverse in ((7, False), (7, True), (1, False), (0, False)):
        xs = rng.normal(size=(length, 5)).astype(np.float32)
        start = rng.normal(size=5).astype(np.float32)
        params = {"jaxpr": graph, "num_consts": 1, "num_carry": 1, "length": length, "reverse": reverse, "unroll": 1}
        yield (np.float32(0.5), start, xs), params
    count = stage(lambda n: [el.add_p.bind(n, np.int32(1)), el.mul_p.bind(n, n)], [ArrayType((), np.dtype("int32"))])
    params = {"jaxpr": count, "num_consts": 0, "num_carry": 1, "length": 6, "reverse": False, "unroll": 2}
    yield (np.int32(3),), params


scan_p = register(
    Primitive("scan", Fusion.CONTROL, multiple_results=True, type=_scan_type, eval=_scan_eval, samples=_scan_samples)
)


# cond


def _cond_type(
    index: ArrayType, *avals: ArrayType, branches: tuple[Graph, ...], **ignored: Any
) -> tuple[ArrayType, ...]:
    if index.shape or index.dtype != np.int32:
        raise TypeRuleError(f"cond chooses by a scalar int32, got {index}")
    for branch in branches:
        _require("a branch of cond", avals, branch.in_avals)
        _require("a result of cond", branch.out_avals, branches[0].out_avals)
    return branches[0].out_avals


def _cond_eval(
    index: np.ndarray, *operands: np.ndarray, branches: tuple[Graph, ...], **ignored: Any
) -> list[np.ndarray]:
    return evaluate(branches[min(max(int(index), 0), len(branches) - 1)], operands)


def _cond_samples() -> Samples:
    scalar, vector = ArrayType((), np.dtype("float32")), ArrayType((5,), np.dtype("float32"))
    branches = (
        stage(lambda x, y: [el.sin_p.bind(x), y], [vector, scalar]),
        stage(lambda x, y: [x, reduce_sum_p.bind(x, axes=(0,))], [vector, scalar]),
        stage(lambda x, y: [el.mul_p.bind(x, x), np.float32(2)], [vector, scalar]),
    )
    x = np.linspace(-1, 2, 5).astype(np.float32)
    for index in (0, 1, 2, -5, 9):
        yield (np.int32(index), x, np.float32(0.25)), {"branches": branches}


cond_p = register(
    Primitive("cond", Fusion.CONTROL, multiple_results=True, type=_cond_type, eval=_cond_eval, samples=_cond_samples)
)
