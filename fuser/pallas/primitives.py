"""`pallas_call`, a kernel over a grid of blocks, and masked reads and writes of Refs; with every rule.

Operands of `pallas_call` are the inputs, results the outputs. Its params: `jaxpr`, a graph from the program ids, of `grid`
without its first `vmapped` dimensions, and Refs to the blocks of inputs and outputs and to scratch buffers, which gives nothing;
for each input and output `blocks`, an Extent a dimension, and `index_maps`, a graph from all program ids to a number a dimension;
`aliases`, pairs of an input and an output that begins with what the input holds.

Programs of the grid run in order, the last dimension fastest. Compiled, the grid is loops over the body's discharged form.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.graph import Eqn, Graph, Literal, Var
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.references import AbstractRef, Index, Window
from fuser.ir.source import current_source
from fuser.ir.types import ArrayType
from fuser.lax.control import fori_loop
from fuser.lax.movement import pad
from fuser.lax.slicing import slice as static_slice
from fuser.numpy.maths import where
from fuser.ops import discharge
from fuser.ops.block_kernel import BlockKernel, Dimension, block_kernel_p
from fuser.ops.discharge import Discharged, discharged
from fuser.ops.movement import reshaped
from fuser.ops.state import indexed_type
from fuser.pallas import grid_axes, index_set_splitting, interpreter
from fuser.pallas.specs import Extent, Kind, launch_fits
from fuser.ref.access import dynamic_slice, dynamic_update_slice, elements, replaced
from fuser.trace.batch import moved, size_of
from fuser.trace.body import reads
from fuser.trace.core import type_of
from fuser.trace.jvp import jvp
from fuser.trace.replay import replay
from fuser.trace.tangent import full

Blocks = tuple[tuple[Extent, ...], ...]


def _type(
    *avals: ArrayType,
    jaxpr: Graph,
    index_maps: tuple[Graph, ...],
    blocks: Blocks,
    grid: tuple[int, ...],
    vmapped: int,
    aliases: tuple[tuple[int, int], ...],
    out_avals: tuple[ArrayType, ...],
    asked: tuple[tuple[str, int], ...] = (),
    **params: Any,
) -> tuple[ArrayType, ...]:
    arrays, ids = (*avals, *out_avals), len(grid) - vmapped
    kinds = jaxpr.in_avals
    fits = len(arrays) == len(blocks) == len(index_maps) and ids >= 0 and all(extent >= 0 for extent in grid)
    fits = fits and len(kinds) >= ids + len(arrays) and all(type(kind) is AbstractRef for kind in kinds[ids:])
    for n, (aval, block, index_map) in enumerate(zip(arrays, blocks, index_maps)) if fits else ():
        fits = fits and len(block) == aval.ndim == len(index_map.outvars) and len(index_map.invars) == len(grid)
        fits = fits and all(extent.size >= 0 for extent in block)
        fits = fits and (kinds[ids + n].shape, kinds[ids + n].dtype) == (seen(block), aval.dtype)
    for i, o in aliases if fits else ():
        fits = fits and 0 <= i < len(avals) and 0 <= o < len(out_avals)
        fits = fits and (avals[i].shape, avals[i].dtype) == (out_avals[o].shape, out_avals[o].dtype)
    if not (fits and launch_fits(asked)):
        raise TypeRuleError(
            f"pallas_call of {', '.join(map(str, avals))} has blocks, index maps or Refs of other arrays"
        )
    return out_avals


def _interpreted_type(*avals: ArrayType, out_avals: tuple[ArrayType, ...], **params: Any) -> tuple[ArrayType, ...]:
    return out_avals


# The grid as loops, and as axes.


def loops(
    *operands: Any,
    jaxpr: Graph,
    index_maps: tuple[Graph, ...],
    blocks: Blocks,
    grid: tuple[int, ...],
    vmapped: int,
    aliases: tuple[tuple[int, int], ...],
    out_avals: tuple[ArrayType, ...],
    parallel: tuple[int, ...] = (),
    **params: Any,
) -> list[Any]:
    """The outputs, by a loop a dimension of the grid over slices, the body on them, and updates; or by one axis more."""
    made, ids = discharged(jaxpr), len(grid) - vmapped
    started = {o: operands[i] for i, o in aliases}
    outputs = [started[n] if n in started else full(a.update(weak_type=False), 0) for n, a in enumerate(out_avals)]
    arrays = [padded(a, block) for a, block in zip((*operands, *outputs), blocks)]
    scratch = [a.inner_aval for a in jaxpr.in_avals[ids + len(arrays) :]]  # type: ignore[attr-defined]
    carried = [n - ids for n in made.written]
    used = reads(made.graph)
    left = any(v in used for v in made.graph.invars[len(made.consts) + ids + len(arrays) :])
    shapes = [tuple(a.shape) for a in arrays]
    axes, moves = grid_axes.spread(
        made.graph, len(made.consts), index_maps, blocks, shapes, grid, vmapped, len(operands), left,
        [vmapped + p for p in parallel],
    ) if not any(n < len(operands) for n in carried) else grid_axes.Spread((), ({},) * len(blocks))  # fmt: skip
    arrays = [grid_axes.viewed(a, m, b, grid) for a, m, b in zip(arrays, moves, blocks)]
    arrays += [full(a.update(shape=(*(grid[x] for x in axes), *a.shape)), 0) for a in scratch]
    program = _Program(made, index_maps, blocks, grid, vmapped, axes, moves, carried)
    found = dict(zip(carried, program.nest((), tuple(arrays), tuple(arrays[n] for n in carried))))
    first = len(operands)
    ends = [grid_axes.joined(found.get(n, arrays[n]), moves[n], shapes[n]) for n in range(first, len(blocks))]
    return [cropped(end, blocks[first + n], aval.shape) for n, (end, aval) in enumerate(zip(ends, out_avals))]


class _Program(NamedTuple):
    """What is done for each number along the grid's dimensions that are loops, for all along `axes` at once."""

    made: Discharged
    index_maps: tuple[Graph, ...]
    blocks: Blocks
    grid: tuple[int, ...]
    vmapped: int
    axes: tuple[int, ...]
    moves: tuple[dict[int, grid_axes.Moves], ...]
    carried: list[int]

    def nest(self, number: tuple[Any, ...], arrays: tuple[Any, ...], carry: Any) -> Any:
        """The carry after the loops over the dimensions that `number` lacks."""
        axis = len(number)
        if axis == len(self.grid):
            return tuple(self.run(number, {**dict(enumerate(arrays)), **dict(zip(self.carried, carry))}))
        if self.grid[axis] == 1 or axis in self.axes:
            return self.nest((*number, np.int32(0)), arrays, carry)
        place = len(self.made.consts) + axis - self.vmapped
        if axis < self.vmapped:
            return self._along(number, arrays, carry, 0, self.grid[axis])
        for start, end in index_set_splitting.parts(self.made.graph, place, self.grid[axis]):
            graph = index_set_splitting.specialised(self.made.graph, place, start, end)
            part = self._replace(made=self.made._replace(graph=graph))
            carry = part._along(number, arrays, carry, start, end)
        return carry

    def _along(self, number: tuple[Any, ...], arrays: tuple[Any, ...], carry: Any, start: int, end: int) -> Any:
        """The carry after the programs from `start` to `end` along the next dimension."""
        if end - start == 1:
            return self.nest((*number, np.int32(start)), arrays, carry)
        step = lambda n, c: self.nest((*number, n), arrays, c)
        return fori_loop(np.int32(start), np.int32(end), step, carry)

    def run(self, number: tuple[Any, ...], held: dict[int, Any]) -> list[Any]:
        """What the written Refs hold after these programs."""
        starts = [self._starts(n, number) for n in range(len(self.blocks))]
        refs = [self._block(held[n], n, starts[n]) for n in range(len(self.blocks))]
        refs += [held[n] for n in range(len(self.blocks), len(held))]
        leads = [tuple(m) for m in self.moves] + [self.axes] * (len(held) - len(self.blocks))
        all_ids = dict(zip(self.axes, grid_axes.numbers(self.axes, self.grid)))
        ids = [all_ids.get(a, number[a]) for a in range(self.vmapped, len(self.grid))]
        of_ids = [(a,) if a in all_ids else () for a in range(self.vmapped, len(self.grid))]
        last = grid_axes.over(
            lambda *v: replay(self.made.graph, *self.made.consts, *v),
            [*ids, *refs],
            [*of_ids, *leads],
            self.axes,
            self.grid,
        )
        return [
            self._put(held[n], value, n, starts[n]) if n < len(self.blocks) else value
            for n, value in zip(self.carried, last)
        ]

    def _starts(self, n: int, number: tuple[Any, ...]) -> list[Any]:
        """Where the block begins in the view: where it moves along an axis, at the front."""
        found = _starts(self.index_maps[n], self.blocks[n], number)
        for move in self.moves[n].values():
            found[move.dimension] = 0
        return [*[0] * len(self.moves[n]), *found]

    def _lead(self, n: int) -> tuple[int, ...]:
        return tuple(self.grid[a] for a in self.moves[n])

    def _block(self, x: Any, n: int, starts: Sequence[Any]) -> Any:
        sizes = (*self._lead(n), *_sizes(self.blocks[n]))
        if sizes != tuple(x.shape) and all(isinstance(s, int) for s in starts):
            x = static_slice(x, starts, [s + e for s, e in zip(starts, sizes)])
        elif sizes != tuple(x.shape):
            x = dynamic_slice(x, starts, sizes)
        return reshaped(x, (*self._lead(n), *seen(self.blocks[n])))

    def _put(self, x: Any, value: Any, n: int, starts: Sequence[Any]) -> Any:
        value = reshaped(value, (*self._lead(n), *_sizes(self.blocks[n])))
        return value if tuple(value.shape) == tuple(x.shape) else dynamic_update_slice(x, value, starts)


def _borders(shape: Sequence[int], block: tuple[Extent, ...]) -> list[tuple[int, int]]:
    """What an array is padded by, so that every block lies inside."""
    return [
        e.padding if e.kind is Kind.ELEMENT else (0, -extent % e.size if e.size else 0)
        for extent, e in zip(shape, block)
    ]


def padded(x: Any, block: tuple[Extent, ...]) -> Any:
    """The array with borders, so that every block lies inside."""
    borders = _borders(x.shape, block)
    if not any(map(any, borders)):
        return x
    return pad(x, np.zeros((), x.dtype), [(low, high, 0) for low, high in borders])


def cropped(x: Any, block: tuple[Extent, ...], shape: Sequence[int]) -> Any:
    """The array without its borders."""
    if tuple(x.shape) == tuple(shape):
        return x
    low = [a for a, _ in _borders(shape, block)]
    return static_slice(x, low, [a + e for a, e in zip(low, shape)])


def _starts(index_map: Graph, block: tuple[Extent, ...], number: tuple[Any, ...]) -> list[Any]:
    """Where the block of a program begins: Python integers where that is known."""
    known = dict(zip(index_map.invars, number))
    found: list[Any] = [
        int(v.val) if type(v) is Literal else known.get(v, value)  # type: ignore[arg-type]
        for v, value in zip(index_map.outvars, replay(index_map, *number))
    ]
    found = [int(f) if isinstance(f, (np.generic, np.ndarray)) else f for f in found]
    return [f * e.size if e.kind is Kind.BLOCKED else f for f, e in zip(found, block)]


def _sizes(block: tuple[Extent, ...]) -> tuple[int, ...]:
    return tuple(e.size for e in block)


def seen(block: tuple[Extent, ...]) -> tuple[int, ...]:
    """The shape of a block that the kernel sees."""
    return tuple(e.size for e in block if e.kind is not Kind.SQUEEZED)


def _as_one_kernel(
    operands: Sequence[Any],
    jaxpr: Graph,
    index_maps: tuple[Graph, ...],
    blocks: Blocks,
    grid: tuple[int, ...],
    vmapped: int,
    aliases: tuple[tuple[int, int], ...],
    out_avals: tuple[ArrayType, ...],
    parallel: tuple[int, ...] = (),
    **params: Any,
) -> list[Any] | None:
    """The outputs by one kernel of the target's own; None where it has none, or where arrays fuse better: kernels without loops
    and products become axes of arrays."""
    backend, ids = discharge.target.get(), len(grid) - vmapped
    if backend is None or block_kernel_p not in backend.limits.calls:
        return None
    made, count = discharged(jaxpr), len(operands)
    shapes = [tuple(type_of(v).shape) for v in operands] + [a.shape for a in out_avals]
    rounded = [tuple(-(-e // d.size) * d.size for e, d in zip(s, b)) for s, b in zip(shapes, blocks)]
    used = reads(made.graph)
    left = any(v in used for v in made.graph.invars[len(made.consts) + ids + len(shapes) :])
    axes, _ = grid_axes.spread(
        made.graph, len(made.consts), index_maps, blocks, rounded, grid, vmapped, count, left,
        [vmapped + p for p in parallel],
    )  # fmt: skip
    walks = any(extent > 1 and a not in axes for a, extent in enumerate(grid))
    plain = not walks and not any(e.primitive.fusion in (Fusion.DOT, Fusion.CONTROL) for e in made.graph.eqns)
    padded = any(any(e.padding) for block in blocks for e in block)
    if plain or padded or made.consts or any(n < ids + count for n in made.written):
        return None
    kernel = BlockKernel(
        f"{re.sub(r'[^0-9a-zA-Z]', '_', str(params['name']))}_kernel", made.graph, index_maps,
        tuple(tuple(Dimension(e.size, e.size if e.kind is Kind.BLOCKED else 1, e.kind is Kind.SQUEEZED) for e in b) for b in blocks),
        grid, axes, vmapped, aliases, tuple(n - ids - count for n in made.written),
        functools.partial(
            interpreter.interpreted, jaxpr=jaxpr, index_maps=index_maps, blocks=blocks, grid=grid, vmapped=vmapped,
            aliases=aliases, out_avals=out_avals, parallel=parallel, **params,
        ),
        asked=params.get("asked", ()),
    )  # fmt: skip
    own = {"kernel": kernel, "out_avals": out_avals}
    eqn = Eqn(
        block_kernel_p, tuple(Var(type_of(v)) for v in operands), own, tuple(map(Var, out_avals)), current_source()
    )
    return None if backend.supports(eqn) is not None else list(block_kernel_p.bind(*operands, **own))


def _discharge(*operands: Any, **params: Any) -> list[Any]:
    found = _as_one_kernel(operands, **params)
    return loops(*operands, **params) if found is None else found


# Transforms.


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    """The derivative of the loops: it can be transposed as theirs can."""
    return jvp(functools.partial(loops, **params), primals, tangents)


def _batch(
    operands: Sequence[Any],
    dims: Sequence[int | None],
    primitive: Primitive | None = None,
    **params: Any,
) -> tuple[list[Any], list[int]]:
    """One more dimension of the grid, in front: each of its programs sees an element of what is batched."""
    out_avals = params["out_avals"]
    size, aliased = size_of(operands, dims), {i for i, _ in params["aliases"]}
    batched = [d is not None or n in aliased for n, d in enumerate(dims)]
    values = [moved(v, d, 0, size if n in aliased else None) for n, (v, d) in enumerate(zip(operands, dims))]
    batched += [True] * len(out_avals)
    one = Extent(1, Kind.SQUEEZED)
    wider = {
        "index_maps": tuple(_for_batch(m, use) for m, use in zip(params["index_maps"], batched)),
        "blocks": tuple((one, *block) if use else block for block, use in zip(params["blocks"], batched)),
        "grid": (size, *params["grid"]),
        "vmapped": params["vmapped"] + 1,
        "out_avals": tuple(a.along(0, size) for a in out_avals),
    }
    out = (primitive or pallas_call_p).bind(*values, **{**params, **wider})
    return out, [0] * len(out)


@functools.lru_cache(maxsize=256)
def _for_batch(index_map: Graph, batched: bool) -> Graph:
    number = Var(ArrayType((), np.dtype(np.int32)))
    outvars = (number, *index_map.outvars) if batched else index_map.outvars
    return replace(index_map, invars=(number, *index_map.invars), outvars=outvars)


pallas_call_p: Primitive = register(
    Primitive(
        "pallas_call",
        Fusion.CONTROL,
        multiple_results=True,
        type=_type,
        eval=lambda *arrays, **params: interpreter.interpreted(arrays, **params),
        discharge=_discharge,
        jvp=_jvp,
        batch=_batch,
    )
)


def _interpreted(*arrays: Any, kernel: Any, **params: Any) -> list[np.ndarray]:
    return interpreter.interpreted(arrays, **kernel.params, **params)


def _interpreted_jvp(primals: Any, tangents: Any, kernel: Any, out_avals: Any, **params: Any) -> Any:
    return _jvp(primals, tangents, out_avals=out_avals, **kernel.params)


def _interpreted_batch(operands: Any, dims: Any, kernel: Any, out_avals: Any, **params: Any) -> Any:
    class Again:
        """Binds the interpreted call with the params that batching has made."""

        @staticmethod
        def bind(*values: Any, out_avals: Any, **made: Any) -> Any:
            return pallas_interpret_p.bind(*values, kernel=Interpreted(made), out_avals=out_avals, **params)

    return _batch(operands, dims, out_avals=out_avals, primitive=Again, **kernel.params)  # type: ignore[arg-type]


class Interpreted:
    """The params of a kernel that is interpreted, where no stage looks at them."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params

    def __repr__(self) -> str:
        return f"<kernel {self.params['jaxpr'].name}>"


pallas_interpret_p: Primitive = register(
    Primitive(
        "pallas_interpret",
        Fusion.LIBRARY,
        multiple_results=True,
        type=_interpreted_type,
        eval=_interpreted,
        jvp=_interpreted_jvp,
        batch=_interpreted_batch,
    )
)


# Masked reads and writes: where the mask is false nothing is read or written, in bounds or not.


def _masked_load_type(ref: Any, mask: ArrayType, other: ArrayType, *indices: ArrayType, index: Index) -> ArrayType:
    return indexed_type(ref.inner_aval, index, indices, masked=True)


def _masked_swap_type(ref: Any, value: ArrayType, mask: ArrayType, *indices: ArrayType, index: Index) -> ArrayType:
    return indexed_type(ref.inner_aval, index, indices, masked=True)


def room(x: Any, index: Index) -> Any:
    """The array with room behind it for windows that begin inside and end outside."""
    parts = [p for p in index if p is not None]
    spans = [(p.size - 1) * p.stride if isinstance(p, Window) and p.start is None else 0 for p in parts]
    if not any(spans):
        return x
    return pad(x, np.zeros((), x.dtype), [(0, s, 0) for s in spans])


def _masked_load(cell: Any, mask: Any, other: Any, *indices: Any, index: Index) -> Any:
    return where(mask, elements(room(cell.value, index), index, indices), other)


def _masked_swap(cell: Any, value: Any, mask: Any, *indices: Any, index: Index) -> Any:
    before = cell.value
    roomy = room(before, index)
    old = elements(roomy, index, indices)
    after = replaced(roomy, where(mask, value, old), index, indices)
    cell.value = static_slice(after, [0] * before.ndim, before.shape) if roomy is not before else after
    return old


masked_load_p: Primitive = register(
    Primitive("masked_load", Fusion.CONTROL, type=_masked_load_type, discharge=_masked_load)
)
masked_swap_p: Primitive = register(
    Primitive("masked_swap", Fusion.CONTROL, effect=True, type=_masked_swap_type, discharge=_masked_swap)
)
