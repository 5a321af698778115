"""Dimensions of a grid as dimensions of arrays: programs that need nothing of each other run at once, and fuse as array operations do.

A grid dimension is *spread* if along it each program writes blocks of its own, and reads blocks that lie evenly: the blocks of
all programs are then views with one axis more in front, and the body is batched over it. The others stay loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fuser.ir.graph import Graph, Literal, Operand, graphs_in
from fuser.ir.primitive import Control, Fusion
from fuser.ops.elementwise import add_p, mul_p
from fuser.ops.movement import iota_p, reshaped, slice_p, transpose_p
from fuser.ops.windows import sliding_windows_p
from fuser.pallas.specs import Extent, Kind
from fuser.trace.batch import batch, moved

MOST_BYTES = 1 << 28  # of values of all programs that are kept at once

Affine = dict[Any, int]  # factors by position of the program id, and of None the constant


class Moves(NamedTuple):
    """How a block moves along one dimension of its array with a grid dimension: from element `first`, `step` a program."""

    dimension: int
    first: int
    step: int


class Spread(NamedTuple):
    """The grid dimensions that are spread; for each input and output how its block moves with them, in their order."""

    axes: tuple[int, ...]
    moves: tuple[dict[int, Moves], ...]


def spread(
    body: Graph,
    ids: int,
    index_maps: Sequence[Graph],
    blocks: Sequence[tuple[Extent, ...]],
    shapes: Sequence[tuple[int, ...]],
    grid: Sequence[int],
    vmapped: int,
    inputs: int,
    scratch: bool,
    declared: Sequence[int],
) -> Spread:
    """The dimensions of the grid to spread. `shapes` are those of the padded arrays; `body` is discharged; its input
    number `ids` is the first program id; with `scratch` it reads what earlier programs left, unless dimensions are `declared` parallel."""
    maps = [[affine(m, v) for v in m.outvars] for m in index_maps]
    axes: list[int] = []
    for axis, count in enumerate(grid):
        own = axis < vmapped or axis in declared
        if count == 1 or (scratch and not own):
            continue
        found = [_moves(m, block, axis) for m, block in zip(maps, blocks)]
        written = zip(found[inputs:], blocks[inputs:], shapes[inputs:])
        if None not in found and all(_tiles(m, b, s, count) for m, b, s in written):
            axes.append(axis)
    ranks = len(grid) - vmapped
    axes = [a for a in axes if _steady(body, range(ids, ids + ranks), a - vmapped, maps, a)]
    if _kept(body) * math.prod(grid[a] for a in axes) > MOST_BYTES:
        axes = []
    moves = tuple({a: m for a in axes if (m := _moves(of, b, a))} for of, b in zip(maps, blocks))
    return Spread(tuple(axes), moves)  # type: ignore[arg-type]


def affine(index_map: Graph, operand: Operand) -> Affine | None:
    """A number of an index map as a sum of program ids times integers; None where it is none."""
    if isinstance(operand, Literal):
        return {None: int(operand.val)}
    if operand in index_map.invars:
        return {index_map.invars.index(operand): 1, None: 0}
    eqn = next((e for e in index_map.eqns if operand in e.outvars), None)
    if eqn is None or eqn.primitive not in (add_p, mul_p):
        return None
    a, b = (affine(index_map, v) for v in eqn.invars)
    if a is None or b is None:
        return None
    if eqn.primitive is add_p:
        return {key: a.get(key, 0) + b.get(key, 0) for key in {*a, *b}}
    a, b = (b, a) if set(a) == {None} else (a, b)
    return {key: factor * b[None] for key, factor in a.items()} if set(b) == {None} else None


def _moves(numbers: Sequence[Affine | None], block: tuple[Extent, ...], axis: int) -> Any:
    """How the block moves with the grid dimension: a Moves, False where it does not, None where that is not even."""
    if any(n is None for n in numbers):
        return None
    found = [(d, n) for d, n in enumerate(numbers) if n is not None and n.get(axis, 0)]
    if not found:
        return False
    if len(found) > 1:
        return None
    ((dimension, number),) = found
    if (
        any(key not in (axis, None) and factor for key, factor in number.items())
        or number[axis] < 0
        or number[None] < 0
    ):
        return None
    unit = block[dimension].size if block[dimension].kind is Kind.BLOCKED else 1
    return Moves(dimension, number[None] * unit, number[axis] * unit)


def _tiles(moves: Any, block: tuple[Extent, ...], shape: tuple[int, ...], count: int) -> bool:
    """Whether the blocks of all programs lie side by side, and are the whole array."""
    if not moves:
        return False
    size = block[moves.dimension].size
    return moves.first == 0 and moves.step == size and count * size == shape[moves.dimension]


def _steady(body: Graph, ids: range, number: int, maps: Sequence[Any], axis: int) -> bool:
    """Whether no branch and no loop of unknown length depends on the program id, or on what is read: lanes would do all."""
    refs = [n for n, of in enumerate(maps) if any(o is not None and o.get(axis, 0) for o in of)]
    moving: set[Operand] = {body.invars[ids[number]]} if number >= 0 else set()
    moving |= {body.invars[ids.stop + n] for n in refs}
    for eqn in body.eqns:
        if not any(v in moving for v in eqn.operands()):
            continue
        if eqn.primitive.control is Control.COND and eqn.invars[0] in moving:
            return False
        if eqn.primitive.control is Control.WHILE or any(map(_chooses, graphs_in(eqn.params))):
            return False
        moving.update(eqn.outvars)
    return True


def _chooses(graph: Graph) -> bool:
    """Whether there is a choice or a loop of unknown length in a graph."""
    return any(
        e.primitive.control in (Control.COND, Control.WHILE) or any(map(_chooses, graphs_in(e.params)))
        for e in graph.eqns
    )


def _kept(body: Graph) -> int:
    """Bytes of one program's values that are seldom fused with what reads them."""
    plain = (Fusion.ELEMENTWISE, Fusion.MOVEMENT)
    return sum(v.aval.nbytes for e in body.eqns if e.primitive.fusion not in plain for v in e.outvars)


# Views and batches.


def viewed(x: Any, moves: dict[int, Moves], block: tuple[Extent, ...], grid: Sequence[int]) -> Any:
    """The array with an axis in front for each grid dimension that its block moves with, in their order."""
    for added, (axis, move) in enumerate(reversed(moves.items())):
        x = _axis_first(x, move.dimension + added, move, block[move.dimension].size, grid[axis])
    return x


def _axis_first(x: Any, d: int, move: Moves, size: int, count: int) -> Any:
    last = move.first + (count - 1) * move.step + size
    if (move.first, last) != (0, x.shape[d]):
        low = tuple(move.first if k == d else 0 for k in range(x.ndim))
        high = tuple(last if k == d else e for k, e in enumerate(x.shape))
        x = slice_p.bind(x, start_indices=low, limit_indices=high, strides=None)
    if move.step == size:
        x = reshaped(x, (*x.shape[:d], count, size, *x.shape[d + 1 :]))
        return _transposed(x, [d, *(k for k in range(x.ndim) if k != d)])
    x = sliding_windows_p.bind(x, dimensions=(d,), window=(size,), strides=(move.step,), dilation=(1,))
    return _transposed(x, [d, *(x.ndim - 1 if k == d else k for k in range(x.ndim - 1))])


def _transposed(x: Any, order: Sequence[int]) -> Any:
    return x if list(order) == list(range(x.ndim)) else transpose_p.bind(x, permutation=tuple(order))


def joined(x: Any, moves: dict[int, Moves], shape: Sequence[int]) -> Any:
    """The array of this shape whose view, with all axes that its blocks move along, is `x`."""
    lead = len(moves)
    of = {move.dimension: n for n, move in enumerate(moves.values())}
    order: list[int] = []
    for d in range(len(shape)):
        order += [of[d], lead + d] if d in of else [lead + d]
    return reshaped(_transposed(x, order), tuple(shape))


def numbers(axes: Sequence[int], grid: Sequence[int]) -> list[Any]:
    """The program ids along spread dimensions, of all programs."""
    return [iota_p.bind(dtype=np.dtype(np.int32), shape=(grid[a],), dimension=0) for a in axes]


def over(
    function: Callable[..., Sequence[Any]],
    values: Sequence[Any],
    leads: Sequence[tuple[int, ...]],
    axes: Sequence[int],
    grid: Sequence[int],
) -> list[Any]:
    """The function's results with an axis in front for each spread dimension; `leads` says which ones each value has."""
    if not axes:
        return list(function(*values))
    axis, *rest = axes
    dims = [0 if axis in lead else None for lead in leads]
    inner = [tuple(a for a in lead if a != axis) for lead in leads]
    found, places = batch(lambda *v: over(function, v, inner, rest, grid), values, dims, grid[axis])
    return [moved(v, d, 0, grid[axis]) for v, d in zip(found, places)]
