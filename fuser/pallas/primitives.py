"""`pallas_call`, a kernel over a grid of blocks, and masked reads and writes of Refs; with every rule.

Operands of `pallas_call` are the inputs, results the outputs. Its params: `jaxpr`, a graph from the program ids, of `grid`
without its first `vmapped` dimensions, and Refs to the blocks of inputs and outputs and to scratch buffers, which gives nothing;
for each input and output `blocks`, an Extent a dimension, and `index_maps`, a graph from all program ids to a number a dimension;
`aliases`, pairs of an input and an output that begins with what the input holds.

Programs of the grid run in order, the last dimension fastest. Compiled, the grid is loops over the body's discharged form.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuser.ir.graph import Graph, Literal, Var
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.references import Index, Window
from fuser.ir.types import ArrayType
from fuser.lax.control import fori_loop
from fuser.lax.movement import pad
from fuser.lax.slicing import slice as static_slice
from fuser.numpy.maths import where
from fuser.ops.discharge import discharged
from fuser.ops.movement import reshaped
from fuser.ops.state import indexed_type
from fuser.pallas import interpreter
from fuser.pallas.specs import Extent, Kind
from fuser.ref.access import dynamic_slice, dynamic_update_slice, elements, replaced
from fuser.trace.batch import moved, size_of
from fuser.trace.jvp import jvp
from fuser.trace.replay import replay
from fuser.trace.tangent import full

Blocks = tuple[tuple[Extent, ...], ...]


def _type(*avals: ArrayType, out_avals: tuple[ArrayType, ...], **params: Any) -> tuple[ArrayType, ...]:
    return out_avals


# The grid as loops.


def loops(
    *operands: Any,
    jaxpr: Graph,
    index_maps: tuple[Graph, ...],
    blocks: Blocks,
    grid: tuple[int, ...],
    vmapped: int,
    aliases: tuple[tuple[int, int], ...],
    out_avals: tuple[ArrayType, ...],
    **params: Any,
) -> list[Any]:
    """The outputs, by a loop a dimension of the grid over slices, the body on them, and updates."""
    made, ids = discharged(jaxpr), len(grid) - vmapped
    started = {o: operands[i] for i, o in aliases}
    outputs = [started[n] if n in started else full(a.update(weak_type=False), 0) for n, a in enumerate(out_avals)]
    arrays = [padded(a, block) for a, block in zip((*operands, *outputs), blocks)]
    arrays += [full(a.inner_aval, 0) for a in jaxpr.in_avals[ids + len(arrays) :]]  # type: ignore[attr-defined]
    carried = [n - ids for n in made.written]

    def program(number: tuple[Any, ...], carry: Sequence[Any]) -> list[Any]:
        held = {**dict(enumerate(arrays)), **dict(zip(carried, carry))}
        starts = [_starts(m, block, number) for m, block in zip(index_maps, blocks)]
        refs = [_block(held[n], b, s) for n, (b, s) in enumerate(zip(blocks, starts))]
        refs += [held[n] for n in range(len(blocks), len(arrays))]
        last = replay(made.graph, *made.consts, *number[vmapped:], *refs)
        return [
            _put(held[n], value, blocks[n], starts[n]) if n < len(blocks) else value for n, value in zip(carried, last)
        ]

    def nest(number: tuple[Any, ...], carry: Any) -> Any:
        if len(number) == len(grid):
            return tuple(program(number, carry))
        if grid[len(number)] == 1:
            return nest((*number, np.int32(0)), carry)
        return fori_loop(np.int32(0), np.int32(grid[len(number)]), lambda n, c: nest((*number, n), c), carry)

    found = dict(zip(carried, nest((), tuple(arrays[n] for n in carried))))
    first = len(operands)
    return [
        cropped(found.get(first + n, arrays[first + n]), blocks[first + n], aval.shape)
        for n, aval in enumerate(out_avals)
    ]


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
    found = [
        int(v.val) if type(v) is Literal else value for v, value in zip(index_map.outvars, replay(index_map, *number))
    ]
    found = [int(np.asarray(f)) if isinstance(f, (np.generic, np.ndarray)) else f for f in found]
    return [f * e.size if e.kind is Kind.BLOCKED else f for f, e in zip(found, block)]


def _sizes(block: tuple[Extent, ...]) -> tuple[int, ...]:
    return tuple(e.size for e in block)


def seen(block: tuple[Extent, ...]) -> tuple[int, ...]:
    """The shape of a block that the kernel sees."""
    return tuple(e.size for e in block if e.kind is not Kind.SQUEEZED)


def _block(x: Any, block: tuple[Extent, ...], starts: Sequence[Any]) -> Any:
    sizes = _sizes(block)
    if sizes != tuple(x.shape):
        x = dynamic_slice(x, starts, sizes)
    return reshaped(x, seen(block))


def _put(x: Any, value: Any, block: tuple[Extent, ...], starts: Sequence[Any]) -> Any:
    value = reshaped(value, _sizes(block))
    return value if tuple(value.shape) == tuple(x.shape) else dynamic_update_slice(x, value, starts)


# Transforms.


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    """The derivative of the loops: it can be transposed as theirs can."""
    return jvp(functools.partial(loops, **params), primals, tangents)


def _batch(
    operands: Sequence[Any],
    dims: Sequence[int | None],
    *,
    jaxpr: Graph,
    index_maps: tuple[Graph, ...],
    blocks: Blocks,
    grid: tuple[int, ...],
    vmapped: int,
    aliases: tuple[tuple[int, int], ...],
    out_avals: tuple[ArrayType, ...],
    primitive: Primitive | None = None,
    **params: Any,
) -> tuple[list[Any], list[int]]:
    """One more dimension of the grid, in front: each of its programs sees an element of what is batched."""
    size, aliased = size_of(operands, dims), {i for i, _ in aliases}
    batched = [d is not None or n in aliased for n, d in enumerate(dims)]
    values = [moved(v, d, 0, size if n in aliased else None) for n, (v, d) in enumerate(zip(operands, dims))]
    batched += [True] * len(out_avals)
    one = Extent(1, Kind.SQUEEZED)
    out = (primitive or pallas_call_p).bind(
        *values,
        jaxpr=jaxpr,
        index_maps=tuple(_for_batch(m, use) for m, use in zip(index_maps, batched)),
        blocks=tuple((one, *block) if use else block for block, use in zip(blocks, batched)),
        grid=(size, *grid),
        vmapped=vmapped + 1,
        aliases=aliases,
        out_avals=tuple(a.along(0, size) for a in out_avals),
        **params,
    )
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
        discharge=loops,
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
        type=_type,
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


def _room(x: Any, index: Index) -> Any:
    """The array with room behind it for windows that begin inside and end outside."""
    parts = [p for p in index if p is not None]
    spans = [(p.size - 1) * p.stride if isinstance(p, Window) and p.start is None else 0 for p in parts]
    if not any(spans):
        return x
    return pad(x, np.zeros((), x.dtype), [(0, s, 0) for s in spans])


def _masked_load(cell: Any, mask: Any, other: Any, *indices: Any, index: Index) -> Any:
    return where(mask, elements(_room(cell.value, index), index, indices), other)


def _masked_swap(cell: Any, value: Any, mask: Any, *indices: Any, index: Index) -> Any:
    before = cell.value
    roomy = _room(before, index)
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
