"""`cond`: operands `index, *operands`; the index is clamped, and its branch gives the results."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.evaluate import evaluate
from fuser.ir.graph import Graph, Var, graphs_in
from fuser.ir.primitive import Control, Fusion, Primitive, register
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType, is_inexact
from fuser.ops import elementwise as el
from fuser.ops.callback import io_callback_p
from fuser.ops.control import graphs
from fuser.ops.control.avals import Params, Samples, require
from fuser.ops.movement import broadcast_in_dim_p
from fuser.ops.reduce import reduce_sum_p
from fuser.trace.batch import moved, size_of
from fuser.trace.body import with_consts
from fuser.trace.core import type_of
from fuser.trace.replay import replay
from fuser.trace.stage import stage
from fuser.trace.tangent import Undefined, Zero, full, zero_like, zeros


def _cond_type(
    index: ArrayType, *avals: ArrayType, branches: tuple[Graph, ...], **ignored: Any
) -> tuple[ArrayType, ...]:
    if index.shape or index.dtype != np.int32:
        raise TypeRuleError(f"cond chooses by a scalar int32, got {index}")
    for branch in branches:
        require("a branch of cond", avals, branch.in_avals)
        require("a result of cond", branch.out_avals, branches[0].out_avals)
    if not index.vma and not any(a.vma for branch in branches for a in branch.out_avals):
        return branches[0].out_avals
    each = zip(*(branch.out_avals for branch in branches))
    return tuple(types[0].update(vma=index.vma.union(*(a.vma for a in types))) for types in each)


def _cond_eval(
    index: np.ndarray, *operands: np.ndarray, branches: tuple[Graph, ...], **ignored: Any
) -> list[np.ndarray]:
    return evaluate(branches[min(max(int(index), 0), len(branches) - 1)], operands)


def _cond_samples() -> Samples:
    scalar, vector = ArrayType((), np.dtype("float64")), ArrayType((5,), np.dtype("float64"))
    branches = (
        stage(lambda x, y: [el.sin_p.bind(x), y], [vector, scalar]),
        stage(lambda x, y: [x, reduce_sum_p.bind(x, axes=(0,))], [vector, scalar]),
        stage(lambda x, y: [el.mul_p.bind(x, x), np.float64(2)], [vector, scalar]),
    )
    x = np.linspace(-1, 2, 5).astype(np.float64)
    for index in (0, 1, 2, -5, 9):
        yield (np.int32(index), x, np.float64(0.25)), {"branches": branches}


cond_p = register(
    Primitive(
        "cond",
        Fusion.CONTROL,
        multiple_results=True,
        type=_cond_type,
        eval=_cond_eval,
        samples=_cond_samples,
        control=Control.COND,
    )
)


# Rules of the transforms.


def _cond_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, branches: tuple[Graph, ...], **params: Any
) -> tuple[list[Any], list[Any]]:
    """The branches' derivatives; a result has a tangent if any branch gives it one."""
    active = tuple(type(t) is not Zero for t in tangents[1:])
    count = len(branches[0].outvars)
    found = [graphs.jvp(branch, active, (False,) * count).present for branch in branches]
    present = tuple(any(several) for several in zip(*found))
    made = [graphs.jvp(branch, active, present) for branch in branches]
    closed, consts = with_consts([(m.graph, m.consts) for m in made])
    given = graphs.where(active, tangents[1:])
    out = cond_p.bind(primals[0], *consts, *primals[1:], *given, branches=tuple(closed), **params)
    dots = iter(out[count:])
    return list(out[:count]), [next(dots) if use else zero_like(v) for v, use in zip(out, present)]


def _cond_batch(
    operands: Sequence[Any],
    dims: Sequence[int | None],
    *,
    branches: tuple[Graph, ...],
    axis: tuple[Any, int] | None = None,
    **params: Any,
) -> tuple[list[Any], list[int | None]]:
    """A choice between batched branches; where the index is batched, all branches run and each lane takes its own."""
    size = axis[1] if axis else size_of(operands, dims)
    count = len(branches[0].outvars)
    batched = tuple(d is not None for d in dims[1:])
    values = [moved(v, d, 0) for v, d in zip(operands, dims)]
    if dims[0] is not None:
        if any(map(_calls_out, branches)):
            raise NotImplementedError(
                "IO effect not supported in vmap-of-cond. All branches run where the predicate differs from element to element; call "
                f"io_callback outside of the branches ({current_source().short})"
            )
        return _chosen_by_lane(values[0], values[1:], batched, size, branches, axis), [0] * count
    found = [graphs.batch(branch, batched, size, (False,) * count, axis).present for branch in branches]
    present = tuple(any(several) for several in zip(*found))
    made = [graphs.batch(branch, batched, size, present, axis) for branch in branches]
    closed, consts = with_consts([(m.graph, m.consts) for m in made])
    out = cond_p.bind(values[0], *consts, *values[1:], branches=tuple(closed), **params)
    return out, [0 if use else None for use in present]


def _calls_out(graph: Graph) -> bool:
    return any(e.primitive is io_callback_p or any(map(_calls_out, graphs_in(e.params))) for e in graph.eqns)


def _chosen_by_lane(
    index: Any, operands: Sequence[Any], batched: graphs.Mask, size: int, branches: tuple[Graph, ...], axis: Any
) -> list[Any]:
    """The results of all branches, selected by the index of each lane.

    A lane that does not take a branch hands it its operands as constants: an infinite derivative there, times the zero
    that comes back, would be nan. For that the floating-point operands are batched.
    """
    last = len(branches) - 1
    floats = [is_inexact(v.aval.dtype) for v in branches[0].invars]
    values = [moved(v, 0 if b else None, 0, size if f else None) for v, b, f in zip(operands, batched, floats)]
    batched = tuple(b or f for b, f in zip(batched, floats))
    bounds = [full(type_of(index), n) for n in (0, last)]
    which = el.max_p.bind(el.min_p.bind(index, bounds[1]), bounds[0])
    whole = (True,) * len(branches[0].outvars)
    outs = []
    for number, branch in enumerate(branches):
        made = graphs.batch(branch, batched, size, whole, axis)
        taken = el.eq_p.bind(which, full(type_of(which), number))
        own = [_constant_unless(taken, v) if f else v for v, f in zip(values, floats)]
        outs.append(replay(made.graph, *made.consts, *own))
    if last == 1:
        which = el.ne_p.bind(which, bounds[0])
    return [el.select_n_p.bind(_spread(which, type_of(several[0]).shape), *several) for several in zip(*outs)]


def _constant_unless(taken: Any, value: Any) -> Any:
    return el.select_n_p.bind(_spread(taken, type_of(value).shape), el.stop_gradient_p.bind(value), value)


def _spread(which: Any, shape: tuple[int, ...]) -> Any:
    if which.shape == shape:
        return which
    return broadcast_in_dim_p.bind(which, shape=shape, broadcast_dimensions=(0,))


def _cond_partial(trace: Any, args: Sequence[Any], params: Params) -> list[Any]:
    """A choice of what is known, which gives the residuals of all branches, and a recorded one that is linear."""
    branches = params["branches"]
    linear = tuple(trace.follows(a) for a in args[1:])
    count = len(branches[0].outvars)
    found = [graphs.split(branch, linear, (False,) * count).is_linear for branch in branches]
    is_linear = tuple(any(several) for several in zip(*found))
    parts = [graphs.split(branch, linear, is_linear) for branch in branches]
    known_args = [a for a, use in zip(args[1:], linear) if not use]
    known = count - sum(is_linear)
    first: list[int] = []  # of each branch's residuals among all
    types: list[ArrayType] = []
    for part in parts:
        first.append(len(types))
        types += part.known.out_avals[known:]
    knowns = [with_all(part.known, known, at, tuple(types)) for part, at in zip(parts, first)]
    linears = [taking_all(part.linear, part.residuals, at, tuple(types)) for part, at in zip(parts, first)]
    closed, consts = with_consts([(graph, part.consts) for graph, part in zip(knowns, parts)])
    rest = {name: value for name, value in params.items() if name != "branches"}
    out: list[Any] = []
    if known or types:
        out = cond_p.bind(args[0], *consts, *known_args, branches=tuple(closed), **rest)
    made: Any = iter(())
    if any(is_linear):
        operands = (args[0], *out[known:], *(a for a, use in zip(args[1:], linear) if use))
        made = iter(trace.record(cond_p, operands, {**rest, "branches": tuple(linears)}))
    values = iter(out[:known])
    return [next(made) if use else next(values) for use in is_linear]


@functools.lru_cache(maxsize=512)
def with_all(graph: Graph, known: int, first: int, types: tuple[ArrayType, ...]) -> Graph:
    """A known branch that gives the residuals of all branches: its own from `first` on, zeros for the others'."""
    own = len(graph.outvars) - known

    def function(*inputs: Any) -> list[Any]:
        out = replay(graph, *inputs)
        around = [zeros(t) if is_inexact(t.dtype) else full(t, 0) for t in types]
        return [*out[:known], *around[:first], *out[known:], *around[first + own :]]

    return stage(function, graph.in_avals, graph.name)


@functools.lru_cache(maxsize=512)
def taking_all(graph: Graph, own: int, first: int, types: tuple[ArrayType, ...]) -> Graph:
    """A linear branch that takes the residuals of all branches; its own stand from `first` on."""
    before, after = types[:first], types[first + own :]
    residuals = (*map(Var, before), *graph.invars[:own], *map(Var, after))
    return replace(graph, invars=(*residuals, *graph.invars[own:]))


def _cond_transpose(
    cotangents: Sequence[Any], index: Any, *operands: Any, branches: tuple[Graph, ...], **params: Any
) -> list[Any]:
    """A choice between the transposed branches."""
    linear = tuple(type(o) is Undefined for o in operands)
    active = tuple(type(ct) is not Zero for ct in cotangents)
    made = [graphs.transpose(branch, linear, active) for branch in branches]
    present = tuple(any(several) for several in zip(*(m.present for m in made)))
    avals = tuple(o.aval.update(weak_type=False) for o in operands if type(o) is Undefined)
    full_graphs = [_with_zeros(m.graph, tuple(m.present), present, avals) for m in made]
    closed, consts = with_consts([(graph, m.consts) for graph, m in zip(full_graphs, made)])
    known = [o for o in operands if type(o) is not Undefined]
    out: list[Any] = []
    if any(present):
        given = graphs.where(active, cotangents)
        out = cond_p.bind(index, *consts, *known, *given, branches=tuple(closed), **params)
    found, given_out = iter(out), iter(present)
    return [None, *((next(found) if next(given_out) else None) if use else None for use in linear)]


@functools.lru_cache(maxsize=512)
def _with_zeros(graph: Graph, present: graphs.Mask, wanted: graphs.Mask, avals: tuple[ArrayType, ...]) -> Graph:
    """The graph with zeros for those results that are wanted and not there."""
    if present == wanted:
        return graph

    def function(*inputs: Any) -> list[Any]:
        out = iter(replay(graph, *inputs))
        found = [next(out) if p else zeros(a) if w else None for p, w, a in zip(present, wanted, avals)]
        return [f for f in found if f is not None]

    return stage(function, graph.in_avals, graph.name)


cond_p.jvp, cond_p.batch, cond_p.partial, cond_p.transpose = _cond_jvp, _cond_batch, _cond_partial, _cond_transpose
