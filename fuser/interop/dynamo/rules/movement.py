"""Views, copies of them, concatenation, and arrays that are made."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import fuser.numpy as fnp
from fuser import lax
from fuser.interop.dynamo.internals import disable_current_modes
from fuser.interop.dynamo.rules.table import Refused, operand, rule, to_dtype, wide
from fuser.interop.torch.tensors import torch_dtype
from fuser.ir.types import ArrayType
from fuser.lax.values import broadcast_to, literal
from fuser.runtime.array import from_torch
from fuser.transforms.linear import linear_transpose

# Torch makes these without copying; where a tensor of theirs is asked for, torch makes it.
VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        *("view.default", "permute.default", "expand.default", "unsqueeze.default", "squeeze.dim", "squeeze.dims"),
        *("slice.Tensor", "select.int", "alias.default", "detach.default", "split_with_sizes.default"),
        *("t.default", "transpose.int", "diagonal.default", "unfold.default"),
        *("view.dtype", "view_as_real.default", "view_as_complex.default", "_conj.default"),
    )
)
MADE = frozenset(
    f"aten.{name}"
    for name in (
        *("full.default", "scalar_tensor.default", "arange.start_step"),
        *("empty.memory_format", "empty_permuted.default", "empty_strided.default"),
    )
)
MAX_CONSTANT_ELEMENTS = 1 << 16  # of an array whose elements torch computes when the program is traced


@rule("view", "reshape", "_unsafe_view")
def _view(dtype: np.dtype, x: Any, shape: Sequence[int]) -> Any:
    size = math.prod(x.shape)
    known = math.prod(e for e in shape if e != -1)
    return fnp.reshape(x, tuple(size // max(known, 1) if e == -1 else e for e in shape))


@rule("view.dtype")
def _bits(dtype: np.dtype, x: Any, *unused: Any) -> Any:
    """The same memory as elements of another size: the last dimension has more or fewer of them."""
    if "b" in (dtype.kind, x.dtype.kind) or "c" in (dtype.kind, x.dtype.kind):
        raise Refused(f"the bits of {x.dtype.name} as {dtype.name}")
    ratio = dtype.itemsize // x.dtype.itemsize
    if ratio > 1:
        x = fnp.reshape(x, (*x.shape[:-1], x.shape[-1] // ratio, ratio))
    found = lax.bitcast_convert_type(x, dtype)
    return found if dtype.itemsize >= x.dtype.itemsize else fnp.reshape(found, (*x.shape[:-1], -1))


@rule("expand")
def _expand(dtype: np.dtype, x: Any, shape: Sequence[int], implicit: bool = False) -> Any:
    offset = len(shape) - len(x.shape)
    return broadcast_to(x, tuple(x.shape[d - offset] if e == -1 else e for d, e in enumerate(shape)))


rule("permute")(lambda dtype, x, dims: fnp.transpose(x, [d % len(x.shape) for d in dims]) if x.shape else x)
rule("transpose.int")(lambda dtype, x, a, b: fnp.swapaxes(x, a, b))
rule("t")(lambda dtype, x: fnp.transpose(x))
rule("unsqueeze")(lambda dtype, x, dim: fnp.expand_dims(x, dim))


@rule("squeeze.dim", "squeeze.dims")
def _squeeze(dtype: np.dtype, x: Any, dims: Any) -> Any:
    wanted = [d % max(len(x.shape), 1) for d in (dims if isinstance(dims, (list, tuple)) else [dims])]
    return fnp.reshape(x, tuple(e for d, e in enumerate(x.shape) if d not in wanted or e != 1))


@rule("slice.Tensor")
def _slice(dtype: np.dtype, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    low, high, _ = slice(start, end).indices(x.shape[dim])
    return lax.slice_in_dim(x, low, max(low, high), step, axis=dim % len(x.shape))


rule("select.int")(lambda dtype, x, dim, index: lax.index_in_dim(x, index, dim % len(x.shape), keepdims=False))


@rule("split_with_sizes", "split_with_sizes_copy")
def _split(dtype: np.dtype, x: Any, sizes: Sequence[int], dim: int = 0) -> Any:
    ends = np.cumsum(sizes).tolist()
    return [lax.slice_in_dim(x, end - size, end, axis=dim % len(x.shape)) for end, size in zip(ends, sizes)]


@rule("cat")
def _cat(dtype: np.dtype, parts: Sequence[Any], dim: int = 0) -> Any:
    kept = [operand(p, dtype) for p in parts if p.shape != (0,)]  # torch leaves those out, whatever the others' rank
    if not kept:
        raise Refused("a concatenation of nothing")
    return fnp.concatenate(kept, axis=dim)


@rule("slice_scatter")
def _slice_scatter(
    dtype: np.dtype, x: Any, part: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    low, high, _ = slice(start, end).indices(x.shape[dim])
    index = [slice(None)] * len(x.shape)
    index[dim] = slice(low, max(low, high), step)
    return x.at[tuple(index)].set(part)


@rule("select_scatter")
def _select_scatter(dtype: np.dtype, x: Any, part: Any, dim: int, index: int) -> Any:
    where: list[Any] = [slice(None)] * len(x.shape)
    where[dim] = index
    return x.at[tuple(where)].set(part)


@rule("constant_pad_nd")
def _pad(dtype: np.dtype, x: Any, pad: Sequence[int], value: Any = 0) -> Any:
    pairs = [(0, 0)] * (len(x.shape) - len(pad) // 2)
    pairs += [(pad[n], pad[n + 1]) for n in range(len(pad) - 2, -1, -2)]
    return lax.pad(x, literal(value, dtype), [(low, high, 0) for low, high in pairs])


@rule("copy")
def _copy(dtype: np.dtype, x: Any, values: Any, *unused: Any, **more: Any) -> Any:
    return broadcast_to(to_dtype(values, dtype), tuple(x.shape))


rule("diagonal")(lambda dtype, x, offset=0, a=0, b=1: fnp.diagonal(x, offset, a, b))


@rule("diagonal_scatter")
def _diagonal_scatter(dtype: np.dtype, x: Any, part: Any, offset: int = 0, a: int = 0, b: int = 1) -> Any:
    matrices = fnp.moveaxis(x, (a, b), (-2, -1))
    along = fnp.arange(part.shape[-1])
    where = (..., fnp.add(along, max(-offset, 0)), fnp.add(along, max(offset, 0)))
    return fnp.moveaxis(matrices.at[where].set(part), (-2, -1), (a, b))


@rule("unfold")
def _unfold(dtype: np.dtype, x: Any, dim: int, size: int, step: int) -> Any:
    if not x.shape:
        return fnp.reshape(x, (size,))
    dim %= len(x.shape)
    starts = fnp.arange(0, x.shape[dim] - size + 1, step)
    windows = fnp.take(x, fnp.add(fnp.expand_dims(starts, 1), fnp.arange(size)), axis=dim)
    return fnp.moveaxis(windows, dim + 1, -1)


def _edges(space: int, dtype: np.dtype, grad: Any, x: Any, padding: Sequence[int]) -> Any:
    """The gradient of padding with the values at the edges."""
    pairs = [(padding[n], padding[n + 1]) for n in range(2 * space - 2, -1, -2)]
    widths = [(0, 0)] * (len(x.shape) - space) + pairs
    own = wide(dtype)
    if any(w < 0 for pair in pairs for w in pair):
        raise Refused("padding that removes elements")
    [found] = linear_transpose(lambda v: fnp.pad(v, widths, mode="edge"), ArrayType(x.shape, own))(operand(grad, own))
    return found


for _space in (1, 2, 3):
    rule(f"replication_pad{_space}d_backward")(functools.partial(_edges, _space))

rule("flip")(lambda dtype, x, dims: fnp.flip(x, tuple(dims)))
rule("repeat")(lambda dtype, x, counts: fnp.tile(x, tuple(counts)))
rule("full")(lambda dtype, shape, value, **more: broadcast_to(literal(value, dtype), tuple(shape)))
rule("empty.memory_format", "empty_permuted", "empty_strided")(
    lambda dtype, shape, *order, **more: broadcast_to(literal(0, dtype), tuple(shape))
)
rule("scalar_tensor")(lambda dtype, value, **more: literal(value, dtype))
rule("full_like")(lambda dtype, x, value, **more: broadcast_to(literal(value, dtype), tuple(x.shape)))


@rule("arange.start_step")
def _arange(dtype: np.dtype, start: Any, end: Any, step: Any = 1, **more: Any) -> Any:
    if dtype.kind in "iu" or (dtype.itemsize >= 4 and all(float(v).is_integer() for v in (start, step))):
        return fnp.arange(start, end, step, dtype=dtype)
    with disable_current_modes():
        found = torch.arange(start, end, step, dtype=torch_dtype(dtype))
    if found.numel() > MAX_CONSTANT_ELEMENTS:
        raise Refused("a long arange of floats, whose rounding is torch's")
    return from_torch(found)


rule("tril")(lambda dtype, x, diagonal=0: fnp.tril(x, diagonal))
rule("triu")(lambda dtype, x, diagonal=0: fnp.triu(x, diagonal))
