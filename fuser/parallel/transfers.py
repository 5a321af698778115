"""Collectives as transfers and ordinary operations, for devices whose links only move bytes.

A sum becomes: the n-th share of each device's value to the n-th device, which adds the shares in the order of the
devices, and a gather of the sums; a short one a gather of all values, which every device adds. So the bits are those that devices
of the CPU get, the bytes those of a ring (Rabenseifner's all-reduce), and the additions part of the program's own kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fuser import lax
from fuser.ir.graph import Eqn, Graph
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import is_float
from fuser.ops.collective import asked, collective_group_p, is_meeting
from fuser.ops.elementwise import add_p, convert_element_type_p, max_p, min_p, or_p
from fuser.ops.movement import reshape_p, transpose_p
from fuser.ops.shard_map import Layout
from fuser.ops.transfers import gather, swap, transfers
from fuser.parallel.exchange import SHORT_BYTES
from fuser.passes.loops.carries import in_bodies
from fuser.trace.stage import stage

MOST_UNROLLED = 32  # devices whose shares are added by one expression; more by a loop
_REDUCTIONS = {"psum": add_p, "psum_invariant": add_p, "psum_scatter": add_p, "pmax": max_p, "pmin": min_p}


def in_transfers(graph: Graph, mesh: Any) -> Graph:
    """The graph of one device of a mesh whose collectives are all groups of `transfers`."""
    with Layout(mesh, mesh.axis_names, False).scope():
        return _written(graph, dict(mesh.shape))


def _written(graph: Graph, sizes: Mapping[Any, int]) -> Graph:
    graph = in_bodies(graph, lambda body: _written(body, sizes))
    rewriter = Rewriter(graph)
    for eqn in graph.eqns:
        eqn = rewriter.resolve(eqn)
        if not is_meeting(eqn) or transfers(eqn) is not None:
            rewriter.keep(eqn)
            continue
        inner = stage(lambda *values, eqn=eqn: _group(eqn, sizes, values), [v.aval for v in eqn.invars], "transfers")
        for var, result in zip(eqn.outvars, rewriter.splice(inner, eqn.invars, eqn.source)):
            rewriter.replace(var, result)
    return rewriter.finish()


def _group(eqn: Eqn, sizes: Mapping[Any, int], values: Sequence[Any]) -> list[Any]:
    """The results of the collectives of one equation, in at most two meetings."""
    names, groups, _, kinds = asked(eqn)
    count = len(groups[0]) if groups else math.prod(sizes[n] for n in names)
    meet = lambda some: _meet(names, groups, some)
    begun = [_begin(name, dict(params), x, count) for (name, params), x in zip(kinds, values)]
    results = [finish(got) for (_, _, finish), got in zip(begun, meet([(kind, x) for kind, x, _ in begun]))]
    shared = [n for n, ((name, _), x) in enumerate(zip(kinds, values)) if _is_shared(name, x)]
    for n, got in zip(shared, meet([(gather(count), results[n]) for n in shared])):
        flat = reshape_p.bind(got, new_sizes=(got.size,), dimensions=None)
        results[n] = _reshaped(lax.slice(flat, (0,), (values[n].size,)), values[n].shape)
    return results


def _meet(names: tuple[Any, ...], groups: Any, some: Sequence[tuple[Any, Any]]) -> list[Any]:
    if not some:
        return []
    kinds = tuple(kind for kind, _ in some)
    operands = [x for _, x in some]
    return list(collective_group_p.bind(*operands, axis_name=names, axis_index_groups=groups, kinds=kinds))


def _is_shared(name: str, x: Any) -> bool:
    """Whether each device reduces a share of it: as between processes."""
    return name in _REDUCTIONS and name != "psum_scatter" and x.size * x.dtype.itemsize > SHORT_BYTES


def _begin(name: str, params: dict[str, Any], x: Any, count: int) -> tuple[Any, Any, Callable[[Any], Any]]:
    """Of a collective the transfer, its operand, and what is made of what comes."""
    if name in _REDUCTIONS:
        add = lambda got: _reduced(_REDUCTIONS[name], got, count)
        if name == "psum_scatter":
            return swap(count), _moved(x, params["axis"], 0), add
        return (swap(count), _shares(x, count), add) if _is_shared(name, x) else (gather(count), x, add)
    if name == "all_gather":
        return gather(count), x, lambda got: _moved(got, 0, params["axis"])
    if name == "all_to_all":
        return swap(count), _moved(x, params["split_axis"], 0), lambda got: _moved(got, 0, params["concat_axis"])
    return (name, tuple(sorted(params.items()))), x, lambda got: got


def _shares(x: Any, count: int) -> Any:
    """The elements in equal shares, one a row, the last ones padded."""
    flat, share = _reshaped(x, (x.size,)), -(-x.size // count)
    if share * count != x.size:
        flat = lax.pad(flat, np.zeros((), x.dtype), ((0, share * count - x.size, 0),))
    return _reshaped(flat, (count, share))


def _reduced(step: Any, got: Any, count: int) -> Any:
    """The rows of `got` one after the other, as `collectives.reduced` takes them: short floats are added in float32."""
    dtype = got.dtype
    wide = np.dtype(np.float32) if step is add_p and is_float(dtype) and dtype.itemsize < 4 else dtype
    step = or_p if step is add_p and dtype == np.bool_ else step
    row = lambda n: _converted(_reshaped(lax.slice_in_dim(got, n, n + 1), got.shape[1:]), wide)
    total = row(0)
    for n in range(1, min(count, MOST_UNROLLED)):
        total = step.bind(total, row(n))
    if count > MOST_UNROLLED:
        next_row = lambda n: _converted(lax.dynamic_index_in_dim(got, n, keepdims=False), wide)
        total = lax.fori_loop(MOST_UNROLLED, count, lambda n, sofar: step.bind(sofar, next_row(n)), total)
    return _converted(total, dtype)


def _converted(x: Any, dtype: np.dtype) -> Any:
    return x if x.dtype == dtype else convert_element_type_p.bind(x, new_dtype=dtype, weak_type=False)


def _reshaped(x: Any, shape: Sequence[int]) -> Any:
    return x if tuple(x.shape) == tuple(shape) else reshape_p.bind(x, new_sizes=tuple(shape), dimensions=None)


def _moved(x: Any, source: int, target: int) -> Any:
    if source == target:
        return x
    order = [d for d in range(x.ndim) if d != source]
    order.insert(target, source)
    return transpose_p.bind(x, permutation=tuple(order))
