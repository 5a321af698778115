"""Rules of movement and of reductions over few elements: what moves nothing goes, and moves in a row become one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.ir.graph import Eqn, Literal, Operand
from fuser.ir.rewrite import Rewriter
from fuser.ir.types import BOOL, FLOATS, INTEGERS
from fuser.ops import cumulative as C
from fuser.ops import movement as M
from fuser.ops import reduce as R
from fuser.ops.dynamic import dynamic_slice_p
from fuser.passes.algebra.rule import REALS, Result, Rule, filled, is_exact


def _transpose(eqn: Eqn, rewriter: Rewriter) -> Result:
    x, order = eqn.invars[0], tuple(eqn.params["permutation"])
    if order == tuple(range(len(order))):
        return x
    inner = rewriter.producer(x, M.transpose_p)
    if inner is None:
        return None
    return rewriter.make(
        M.transpose_p, inner.invars[0], permutation=tuple(inner.params["permutation"][d] for d in order)
    )


MOST_PARTS = 16  # of concatenations within each other that are written as one


def _reshape(eqn: Eqn, rewriter: Rewriter) -> Result:
    """A reshape of what only has another shape itself; and one that changes nothing."""
    x, shape = eqn.invars[0], eqn.outvars[0].aval.shape
    if x.aval.shape == shape:
        return x
    for primitive in (M.reshape_p, M.squeeze_p, M.broadcast_in_dim_p):
        inner = rewriter.producer(x, primitive)
        if inner is not None and inner.invars[0].aval.size == x.aval.size and x.aval.size:
            source = inner.invars[0]
            return (
                source
                if source.aval.shape == shape
                else rewriter.make(M.reshape_p, source, new_sizes=shape, dimensions=None)
            )
    joined = rewriter.producer(x, M.concatenate_p)
    return None if joined is None else _reshape_parts(joined, shape, rewriter)


def _reshape_parts(joined: Eqn, shape: tuple[int, ...], rewriter: Rewriter) -> Result:
    """The reshape of parts that lie one after the other in memory, as the same of reshaped parts."""
    along = joined.params["dimension"]
    if not shape or any(e != 1 for e in joined.outvars[0].aval.shape[:along]):
        return None
    outer = next((d for d, e in enumerate(shape) if e != 1), 0)
    row = math.prod(shape[outer + 1 :])
    if not row or any(v.aval.size % row for v in joined.invars):
        return None
    shapes = [(*shape[:outer], v.aval.size // row, *shape[outer + 1 :]) for v in joined.invars]
    parts = [rewriter.add(M.reshape_p, v, new_sizes=s, dimensions=None) for v, s in zip(joined.invars, shapes)]
    return rewriter.make(M.concatenate_p, *parts, dimension=outer)


def _rev(eqn: Eqn, rewriter: Rewriter) -> Result:
    x, dimensions = eqn.invars[0], tuple(eqn.params["dimensions"])
    turned = tuple(d for d in dimensions if x.aval.shape[d] > 1)
    if not turned:
        return x
    inner = rewriter.producer(x, M.rev_p)
    if inner is not None:
        left = tuple(sorted(set(turned) ^ set(inner.params["dimensions"])))
        return rewriter.make(M.rev_p, inner.invars[0], dimensions=left)
    return rewriter.make(M.rev_p, x, dimensions=turned) if turned != dimensions else None


def _slice(eqn: Eqn, rewriter: Rewriter) -> Result:
    x, (low, _, step) = eqn.invars[0], _bounds(eqn)
    if x.aval.shape == eqn.outvars[0].aval.shape:
        return x
    if (joined := rewriter.producer(x, M.concatenate_p)) is not None:
        return _slice_of_part(eqn, joined, rewriter)
    inner = rewriter.producer(x, M.slice_p)
    if inner is None:
        return None
    inner_low, _, inner_step = _bounds(inner)
    starts = tuple(a + b * s for a, b, s in zip(inner_low, low, inner_step))
    steps = tuple(a * b for a, b in zip(inner_step, step))
    extents = eqn.outvars[0].aval.shape
    limits = tuple(
        min(a + (max(e, 1) - 1) * s + 1, n) if e else a
        for a, e, s, n in zip(starts, extents, steps, inner.invars[0].aval.shape)
    )
    if any(a > n for a, n in zip(starts, inner.invars[0].aval.shape)):
        return None
    return rewriter.make(M.slice_p, inner.invars[0], start_indices=starts, limit_indices=limits, strides=steps)


def _dynamic_slice(eqn: Eqn, rewriter: Rewriter) -> Result:
    """A block at computed places of a static slice, as a block of what that is a slice of: along each dimension one of both is whole."""
    inner = rewriter.producer(eqn.invars[0], M.slice_p)
    if inner is None or set(_bounds(inner)[2]) != {1}:
        return None
    x, sizes = inner.invars[0], eqn.params["slice_sizes"]
    starts: list[Operand] = []
    for d, start in enumerate(eqn.invars[1:]):
        first, extent = inner.params["start_indices"][d], eqn.invars[0].aval.shape[d]
        if extent == x.aval.shape[d]:
            starts.append(start)
        elif extent == sizes[d] and first <= np.iinfo(start.aval.dtype).max:
            starts.append(Literal(start.aval.dtype.type(first), start.aval))
        else:
            return None
    return rewriter.make(dynamic_slice_p, x, *starts, slice_sizes=sizes)


def _slice_of_part(eqn: Eqn, joined: Eqn, rewriter: Rewriter) -> Result:
    """A slice of arrays put together that lies in one of them, as a slice of that one."""
    (low, high, step), along = _bounds(eqn), joined.params["dimension"]
    first = 0
    for part in joined.invars:
        after = first + part.aval.shape[along]
        if first <= low[along] and high[along] <= after and low[along] < high[along]:
            move = lambda at, first=first: tuple(n - first if d == along else n for d, n in enumerate(at))
            bounds = {"start_indices": move(low), "limit_indices": move(high), "strides": tuple(step)}
            return part if part.aval.shape == eqn.outvars[0].aval.shape else rewriter.make(M.slice_p, part, **bounds)
        first = after
    return None


def _bounds(eqn: Eqn) -> tuple[Any, Any, Any]:
    strides = eqn.params["strides"] or (1,) * eqn.invars[0].aval.ndim
    return eqn.params["start_indices"], eqn.params["limit_indices"], strides


def _pad(eqn: Eqn, rewriter: Rewriter) -> Result:
    return eqn.invars[0] if all(tuple(p) == (0, 0, 0) for p in eqn.params["padding_config"]) else None


def _concatenate(eqn: Eqn, rewriter: Rewriter) -> Result:
    parts = tuple(v for v in eqn.invars if v.aval.shape[eqn.params["dimension"]])
    if len(parts) == 1:
        return parts[0]
    flat: list[Operand] = []
    for part in parts:
        inner = rewriter.producer(part, M.concatenate_p)
        same = inner is not None and inner.params["dimension"] == eqn.params["dimension"]
        flat += inner.invars if same and len(parts) <= MOST_PARTS else (part,)  # type: ignore[union-attr]
    changed = len(parts) < len(eqn.invars) or (len(parts) < len(flat) <= MOST_PARTS)
    if not parts or not changed:
        return None
    return rewriter.make(M.concatenate_p, *(flat if len(flat) <= MOST_PARTS else parts), **eqn.params)


def _broadcast(eqn: Eqn, rewriter: Rewriter) -> Result:
    x, dimensions = eqn.invars[0], tuple(eqn.params["broadcast_dimensions"])
    if x.aval.shape == eqn.outvars[0].aval.shape:
        return x
    inner = rewriter.producer(x, M.broadcast_in_dim_p)
    if inner is None:
        return None
    through = tuple(dimensions[d] for d in inner.params["broadcast_dimensions"])
    return rewriter.make(
        M.broadcast_in_dim_p, inner.invars[0], shape=eqn.outvars[0].aval.shape, broadcast_dimensions=through
    )


def _reduce(eqn: Eqn, rewriter: Rewriter) -> Result:
    """A reduction over one element is that element; a reduction of a reduction is one where its order cannot be told."""
    x, axes = eqn.invars[0], tuple(eqn.params["axes"])
    if all(x.aval.shape[a] == 1 for a in axes):
        return x if not axes else rewriter.make(M.reshape_p, x, new_sizes=eqn.outvars[0].aval.shape, dimensions=None)
    inner = rewriter.producer(x, eqn.primitive)
    ordered = eqn.primitive in (R.reduce_sum_p, R.reduce_prod_p) and not is_exact(eqn)
    if inner is None or ordered:
        return None
    first = tuple(inner.params["axes"])
    left = [d for d in range(inner.invars[0].aval.ndim) if d not in first]
    return rewriter.make(eqn.primitive, inner.invars[0], axes=tuple(sorted((*first, *(left[a] for a in axes)))))


def _reduce_repeated(eqn: Eqn, rewriter: Rewriter) -> Result:
    """The extreme of one value repeated is that value."""
    x = eqn.invars[0]
    inner = rewriter.producer(x, M.broadcast_in_dim_p)
    if inner is None or inner.invars[0].aval.size != 1 or not x.aval.size:
        return None
    one: Any = inner.invars[0]
    shape = eqn.outvars[0].aval.shape
    if one.aval.shape:
        one = rewriter.make(M.reshape_p, one, new_sizes=(), dimensions=None)
    return rewriter.make(M.broadcast_in_dim_p, one, shape=shape, broadcast_dimensions=()) if shape else one


def _position(eqn: Eqn, rewriter: Rewriter) -> Result:
    return filled(eqn, rewriter, 0) if eqn.invars[0].aval.shape[eqn.params["axes"][0]] == 1 else None


def _running(eqn: Eqn, rewriter: Rewriter) -> Result:
    return eqn.invars[0] if eqn.invars[0].aval.shape[eqn.params["axis"]] <= 1 else None


_ANY = (BOOL, *REALS)
_CUBE = ((2, 3, 4),)
_THIN = ((3, 1, 4),)
MOVEMENT: tuple[Rule, ...] = (
    Rule(
        "transpose[identity]",
        (M.transpose_p,),
        _transpose,
        lambda x: M.transpose_p.bind(x, permutation=(0, 1, 2)),
        _ANY,
        _CUBE,
    ),
    Rule(
        "transpose of transpose",
        (M.transpose_p,),
        _transpose,
        lambda x: M.transpose_p.bind(M.transpose_p.bind(x, permutation=(2, 0, 1)), permutation=(0, 2, 1)),
        _ANY,
        (*_CUBE, (4, 4, 4)),
    ),
    Rule(
        "reshape[own shape]",
        (M.reshape_p,),
        _reshape,
        lambda x: M.reshape_p.bind(x, new_sizes=(2, 3, 4), dimensions=None),
        _ANY,
        _CUBE,
    ),
    Rule(
        "reshape of reshape",
        (M.reshape_p,),
        _reshape,
        lambda x: M.reshape_p.bind(
            M.reshape_p.bind(x, new_sizes=(4, 6), dimensions=None), new_sizes=(3, 8), dimensions=None
        ),
        _ANY,
        _CUBE,
    ),
    Rule("squeeze[]", (M.squeeze_p,), _reshape, lambda x: M.squeeze_p.bind(x, dimensions=()), _ANY, _CUBE),
    Rule(
        "squeeze of broadcast",
        (M.squeeze_p,),
        _reshape,
        lambda x: M.squeeze_p.bind(
            M.broadcast_in_dim_p.bind(x, shape=(2, 3, 1, 4), broadcast_dimensions=(0, 1, 3)), dimensions=(2,)
        ),
        _ANY,
        _CUBE,
    ),
    Rule("rev[extents of 1]", (M.rev_p,), _rev, lambda x: M.rev_p.bind(x, dimensions=(1,)), _ANY, _THIN),
    Rule(
        "rev of rev",
        (M.rev_p,),
        _rev,
        lambda x: M.rev_p.bind(M.rev_p.bind(x, dimensions=(0, 2)), dimensions=(2, 1)),
        _ANY,
        _CUBE,
    ),
    Rule(
        "slice[all]",
        (M.slice_p,),
        _slice,
        lambda x: M.slice_p.bind(x, start_indices=(0, 0, 0), limit_indices=x.shape, strides=(1, 1, 1)),
        _ANY,
        _CUBE,
    ),
    Rule(
        "slice of slice",
        (M.slice_p,),
        _slice,
        lambda x: M.slice_p.bind(
            M.slice_p.bind(x, start_indices=(2,), limit_indices=(21,), strides=(3,)),
            start_indices=(1,),
            limit_indices=(6,),
            strides=(2,),
        ),
        _ANY,
        ((23,), (22,), (21,)),
    ),
    Rule(
        "slice of a part",
        (M.slice_p,),
        _slice,
        lambda x: M.slice_p.bind(
            M.concatenate_p.bind(x, x[::-1], x, dimension=0),
            start_indices=(25,),
            limit_indices=(41,),
            strides=(3,),
        ),
        _ANY,
        ((23,), (22,), (21,)),
    ),
    Rule(
        "block of a slice",
        (dynamic_slice_p,),
        _dynamic_slice,
        lambda x: dynamic_slice_p.bind(
            M.slice_p.bind(x, start_indices=(0, 1, 0), limit_indices=(2, 3, 4), strides=None),
            np.int8(1),
            np.int8(7),
            np.int8(2),
            slice_sizes=(1, 2, 2),
        ),
        _ANY,
        _CUBE,
    ),
    Rule(
        "pad[nothing]",
        (M.pad_p,),
        _pad,
        lambda x: M.pad_p.bind(x, np.zeros((), x.dtype), padding_config=((0, 0, 0),)),
        _ANY,
        ((5,),),
    ),
    Rule(
        "concatenate[one]",
        (M.concatenate_p,),
        _concatenate,
        lambda x: M.concatenate_p.bind(x, dimension=1),
        _ANY,
        _CUBE,
    ),
    Rule(
        "concatenate[with nothing]",
        (M.concatenate_p,),
        _concatenate,
        lambda x: M.concatenate_p.bind(x, np.zeros((2, 0, 4), x.dtype), x, dimension=1),
        _ANY,
        _CUBE,
    ),
    Rule(
        "broadcast[own shape]",
        (M.broadcast_in_dim_p,),
        _broadcast,
        lambda x: M.broadcast_in_dim_p.bind(x, shape=x.shape, broadcast_dimensions=(0, 1, 2)),
        _ANY,
        _CUBE,
    ),
    Rule(
        "broadcast of broadcast",
        (M.broadcast_in_dim_p,),
        _broadcast,
        lambda x: M.broadcast_in_dim_p.bind(
            M.broadcast_in_dim_p.bind(x, shape=(3, 1, 4), broadcast_dimensions=(0, 2)),
            shape=(5, 3, 2, 4),
            broadcast_dimensions=(1, 2, 3),
        ),
        _ANY,
        ((3, 4),),
    ),
    Rule(
        "sum over no axes",
        (R.reduce_sum_p, R.reduce_prod_p),
        _reduce,
        lambda x: R.reduce_sum_p.bind(x, axes=()),
        REALS,
        _CUBE,
    ),
    Rule(
        "sum over one element",
        (R.reduce_sum_p, R.reduce_prod_p),
        _reduce,
        lambda x: R.reduce_sum_p.bind(x, axes=(1,)),
        REALS,
        _THIN,
    ),
    Rule(
        "sum of sum",
        (R.reduce_sum_p, R.reduce_prod_p),
        _reduce,
        lambda x: R.reduce_sum_p.bind(R.reduce_sum_p.bind(x, axes=(1,)), axes=(1,)),
        INTEGERS,
        _CUBE,
    ),
    Rule(
        "max of max",
        (R.reduce_max_p, R.reduce_min_p, R.reduce_and_p, R.reduce_or_p, R.reduce_xor_p),
        _reduce,
        lambda x: R.reduce_max_p.bind(R.reduce_max_p.bind(x, axes=(0,)), axes=(1,)),
        _ANY,
        _CUBE,
    ),
    Rule(
        "max of one value repeated",
        (R.reduce_max_p, R.reduce_min_p, R.reduce_and_p, R.reduce_or_p),
        _reduce_repeated,
        lambda x: R.reduce_max_p.bind(
            M.broadcast_in_dim_p.bind(R.reduce_max_p.bind(x, axes=(0, 1, 2)), shape=(3, 4), broadcast_dimensions=()),
            axes=(0,),
        ),
        _ANY,
        _CUBE,
    ),
    Rule(
        "argmax of one element",
        (R.argmax_p, R.argmin_p),
        _position,
        lambda x: R.argmax_p.bind(x, axes=(1,), index_dtype=np.dtype("int32")),
        _ANY,
        _THIN,
    ),
    Rule(
        "running sum of one element",
        (C.cumsum_p, C.cumprod_p, C.cummax_p, C.cummin_p, C.cumlogsumexp_p),
        _running,
        lambda x: C.cumsum_p.bind(x, axis=1, reverse=False),
        (*INTEGERS, *FLOATS),
        _THIN,
    ),
    Rule(
        "reshape(concatenate)",
        (M.reshape_p,),
        _reshape,
        lambda x, y: M.reshape_p.bind(M.concatenate_p.bind(x, y, dimension=0), new_sizes=(48,), dimensions=None),
        _ANY,
        _CUBE,
    ),
    Rule(
        "concatenate(concatenate)",
        (M.concatenate_p,),
        _concatenate,
        lambda x, y: M.concatenate_p.bind(M.concatenate_p.bind(x, y, dimension=1), x, dimension=1),
        _ANY,
        _CUBE,
    ),
)
