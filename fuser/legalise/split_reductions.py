"""Reductions over axes on both sides of one that stays, in two steps: along memory first or across it, then over the sums.

A kernel of the whole would read a short run of memory for each of its results and begin anew far away. The first step
reads the operand in the order in which it lies. Along memory it leaves one number a run; across memory it adds whole blocks of
runs to each other, element by element, and no vector is reduced to a number before the second step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from fuser.ir.graph import Eqn, Graph, Operand, Var
from fuser.ir.primitive import Fusion
from fuser.ir.rewrite import Rewriter
from fuser.ir.target import Target
from fuser.ir.types import is_inexact

VECTORS = 8  # of a block of runs that others read as well
ROWS_AT_ONCE = 8  # blocks that are added while sums are in registers


def with_split_reductions(graph: Graph, target: Target) -> Graph:
    """The graph with each such reduction as two, where that is quicker on the target."""
    uses = Counter(v for eqn in graph.eqns for v in eqn.operands())
    uses.update(v for v in graph.outvars if isinstance(v, Var))
    producers = graph.producers
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        first = _first(eqn, target, lambda operand: _alone(operand, uses, producers))
        if not first:
            rewriter.keep(rewriter.resolve(eqn))
            continue
        eqn = rewriter.resolve(eqn)
        sums = rewriter.add(eqn.primitive, eqn.invars[0], **{**eqn.params, "axes": first})
        kept = [d for d in range(eqn.invars[0].aval.ndim) if d not in first]
        rest = tuple(n for n, d in enumerate(kept) if d in eqn.params["axes"])
        rewriter.keep(Eqn(eqn.primitive, (sums,), {**eqn.params, "axes": rest}, eqn.outvars, eqn.source))
    return rewriter.finish()


def _first(eqn: Eqn, target: Target, alone: Callable[[Operand], bool]) -> tuple[int, ...]:
    """The axes of a reduction over which it pays to reduce first; none where it does not. A kernel that also did something else
    with the operand would have it in its cache, and so it may have to be read once more."""
    if eqn.primitive.fusion is not Fusion.REDUCE or not _exact_between(eqn):
        return ()
    shape, axes = eqn.invars[0].aval.shape, set(eqn.params["axes"])
    inner = tuple(d for d in range(len(shape)) if all(k in axes or shape[k] == 1 for k in range(d, len(shape))))
    inner = tuple(d for d in inner if d in axes)
    between = math.prod(e for d, e in enumerate(shape) if d not in axes)
    run = math.prod(shape[d] for d in inner)
    runs = math.prod(shape) // max(run, 1)
    outer = tuple(d for d in eqn.params["axes"] if d not in inner)
    rows = math.prod(shape[d] for d in outer)
    if run < 2 or between == 1 or runs == between or run * rows <= target.unrolled:
        return ()
    itemsize = eqn.outvars[0].aval.dtype.itemsize
    single = alone(eqn.invars[0])
    again = 0.0 if single else target.move(eqn.invars[0].aval.nbytes)
    stored = target.launch + target.move(2 * runs * itemsize)
    along = stored + again if run >= target.lanes or single else math.inf
    columns = math.prod(shape[max(outer) + 1 :])
    across = math.inf
    if columns >= (target.lanes // 2 if single else VECTORS * target.lanes):
        across = _across(math.prod(shape), run, rows, columns, itemsize, target)
    ended = runs * (target.loop + target.combine)
    if target.margin * across + again < ended:
        return outer
    apart = runs * target.jump if run >= target.lanes else ended  # short runs lie within a few lines of the cache
    return inner if along < apart else ()


def _across(size: int, run: int, rows: int, columns: int, itemsize: int, target: Target) -> float:
    """Seconds of what adding blocks of runs to each other takes besides reading them: sums that are read and written in the nearest
    level, and a second step, which alone reduces vectors to numbers."""
    near = target.levels[0]
    if 2 * columns * itemsize > near.capacity:
        return math.inf
    sums = 2 * itemsize * size / min(rows, ROWS_AT_ONCE) / near.bandwidth
    held = size // rows
    return sums + target.launch + target.move(2 * held * itemsize) + held // run * target.combine


def _exact_between(eqn: Eqn) -> bool:
    """Whether what is stored between two steps is what one would carry: sums of half precision are carried in single."""
    reduction = eqn.primitive.rule("lower")(**eqn.params)[0]
    half = is_inexact(eqn.outvars[0].aval.dtype) and eqn.outvars[0].aval.dtype.itemsize < 4
    return reduction in ("max", "min", "and", "or", "xor") or (reduction in ("sum", "prod") and not half)


def _alone(operand: Operand, uses: Counter[Var], producers: dict[Var, Eqn]) -> bool:
    """Whether nothing else reads the operand or what it is computed of element by element: no kernel reads it anew."""
    stack, seen = [operand], set[Operand]()
    size = operand.aval.size
    while stack:
        var = stack.pop()
        if not isinstance(var, Var) or var in seen or var.aval.size < size:
            continue
        seen.add(var)
        eqn = producers.get(var)
        inside = eqn is not None and eqn.primitive.fusion is Fusion.ELEMENTWISE
        if inside:
            assert eqn is not None
            stack += eqn.invars
        readers = uses[var]
        if readers > 1 and not (readers == 2 and _twice(var, seen, producers)):
            return False
    return True


def _twice(var: Var, seen: set[Operand], producers: dict[Var, Eqn]) -> bool:
    """Whether both uses of a value are one equation's that is looked at (`x * x`)."""
    return any(
        eqn.invars.count(var) == 2 for eqn in (producers.get(v) for v in seen if isinstance(v, Var)) if eqn is not None
    )
