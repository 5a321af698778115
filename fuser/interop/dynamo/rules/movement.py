"""Views, copies of them, concatenation, and arrays that are made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser import lax
from fuser.interop.dynamo.rules.table import Refused, operand, rule
from fuser.lax.values import broadcast_to, literal

# Torch makes these without copying; where a tensor of theirs is asked for, torch makes it.
VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        *("view.default", "permute.default", "expand.default", "unsqueeze.default", "squeeze.dim", "squeeze.dims"),
        *("slice.Tensor", "select.int", "alias.default", "detach.default", "split_with_sizes.default"),
        *("t.default", "transpose.int"),
    )
)
MADE = frozenset(["aten.full.default", "aten.scalar_tensor.default", "aten.arange.start_step"])


@rule("view", "reshape", "_unsafe_view")
def _view(dtype: np.dtype, x: Any, shape: Sequence[int]) -> Any:
    size = math.prod(x.shape)
    known = math.prod(e for e in shape if e != -1)
    return fnp.reshape(x, tuple(size // max(known, 1) if e == -1 else e for e in shape))


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


rule("flip")(lambda dtype, x, dims: fnp.flip(x, tuple(dims)))
rule("repeat")(lambda dtype, x, counts: fnp.tile(x, tuple(counts)))
rule("full")(lambda dtype, shape, value, **more: broadcast_to(literal(value, dtype), tuple(shape)))
rule("scalar_tensor")(lambda dtype, value, **more: literal(value, dtype))
rule("full_like")(lambda dtype, x, value, **more: broadcast_to(literal(value, dtype), tuple(x.shape)))


@rule("arange.start_step")
def _arange(dtype: np.dtype, start: Any, end: Any, step: Any = 1, **more: Any) -> Any:
    if dtype.kind not in "iu":
        raise Refused("arange of floats, whose rounding is torch's")
    return fnp.arange(start, end, step, dtype=dtype)


rule("tril")(lambda dtype, x, diagonal=0: fnp.tril(x, diagonal))
rule("triu")(lambda dtype, x, diagonal=0: fnp.triu(x, diagonal))
