"""What moves elements without computing: on integers of their width, since torch moves any integer and not every dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuser.ir.graph import Eqn
from fuser.ir.types import bits_of
from fuser.ops.conversion import bitcast_convert_type_p, copy_p
from fuser.ops.dynamic import dynamic_slice_p, dynamic_update_slice_p
from fuser.ops.elementwise import select_n_p
from fuser.ops.movement import (
    broadcast_in_dim_p,
    concatenate_p,
    iota_p,
    pad_p,
    reshape_p,
    rev_p,
    slice_p,
    split_p,
    squeeze_p,
    transpose_p,
)
from fuser.ops.remat import optimization_barrier_p
from fuser.ops.windows import sliding_windows_p
from fuser.runtime.array import torch_dtype

_WIDTHS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def bits(x: Any) -> Any:
    """The tensor's elements as integers of their width; complex numbers, of which torch moves both widths, and bools as they are."""
    import torch

    if x.dtype == torch.bool or x.dtype.is_complex:
        return x
    return x.view(getattr(torch, _WIDTHS[x.dtype.itemsize]))


def moving(move: Callable[..., Any]) -> Callable[..., Any]:
    """The rule that moves by `move(eqn, *operands)`, whose operands and result are bits."""

    def rule(eqn: Eqn, *operands: Any) -> Any:
        results = move(eqn, *map(bits, operands))
        if not eqn.primitive.multiple_results:
            return results.view(torch_dtype(eqn.outvars[0].aval.dtype))
        return [r.view(torch_dtype(v.aval.dtype)) for r, v in zip(results, eqn.outvars, strict=True)]

    return rule


def _placed(move: Callable[..., Any], moved: int) -> Callable[..., Any]:
    """The same of the first `moved` operands, before numbers that say where."""

    def rule(eqn: Eqn, *operands: Any) -> Any:
        results = move(eqn, *map(bits, operands[:moved]), *operands[moved:])
        return results.view(torch_dtype(eqn.outvars[0].aval.dtype))

    return rule


def _broadcast(eqn: Eqn, x: Any) -> Any:
    shape = eqn.params["shape"]
    aligned = [1] * len(shape)
    for extent, d in zip(x.shape, eqn.params["broadcast_dimensions"]):
        aligned[d] = extent
    return x.reshape(aligned).expand(shape)


def _slice(eqn: Eqn, x: Any) -> Any:
    starts, limits, strides = (eqn.params[n] for n in ("start_indices", "limit_indices", "strides"))
    return x[tuple(slice(a, b, s) for a, b, s in zip(starts, limits, strides or (1,) * x.ndim))]


def _pad(eqn: Eqn, x: Any, value: Any) -> Any:
    """The operand, spread and cut, laid into an array of the padding value."""
    config, out = eqn.params["padding_config"], value.expand(eqn.outvars[0].aval.shape).clone()
    into, of = [], []
    for extent, size, (low, _, interior) in zip(x.shape, out.shape, config):
        step = interior + 1
        first = -(min(low, 0) // step)  # the first element that is not cut off
        last = min(extent, -(-(size - low) // step))
        into.append(
            slice(low + first * step, max(low + (last - 1) * step + 1, 0), step) if last > first else slice(0, 0)
        )
        of.append(slice(first, max(last, first)))
    out[tuple(into)] = x[tuple(of)]
    return out


def _iota(eqn: Eqn) -> Any:
    import torch

    from fuser.backends.triton.library.small_dtypes import encoded

    shape, dimension = eqn.params["shape"], eqn.params["dimension"]
    line = encoded(torch.arange(shape[dimension]), eqn.outvars[0].aval.dtype)
    return line.reshape([-1 if d == dimension else 1 for d in range(len(shape))]).expand(shape)


def _windows(eqn: Eqn, x: Any) -> Any:
    """Overlapping windows of the operand's memory."""
    params, out = eqn.params, eqn.outvars[0].aval
    if not out.size:
        return x.new_empty(out.shape)
    strides, inner = list(x.stride()), []
    for d, step, apart in zip(params["dimensions"], params["strides"], params["dilation"]):
        inner.append(x.stride(d) * apart)
        strides[d] = x.stride(d) * step
    return x.as_strided(out.shape, (*strides, *inner), x.storage_offset())


def _dynamic_slice(eqn: Eqn, x: Any, *starts: Any) -> Any:
    for d, size, line in zip(range(x.ndim), eqn.params["slice_sizes"], _lines(x, eqn.params["slice_sizes"], starts)):
        x = x.index_select(d, line) if size != x.shape[d] else x
    return x


def _dynamic_update_slice(eqn: Eqn, x: Any, update: Any, *starts: Any) -> Any:
    if not update.numel():
        return x.clone()
    places = [
        line.reshape([-1 if d == n else 1 for n in range(x.ndim)])
        for d, line in enumerate(_lines(x, update.shape, starts))
    ]
    return x.index_put(tuple(places), update)


def _lines(x: Any, sizes: Any, starts: Any) -> list[Any]:
    """The positions of a slice along each dimension, its start held inside."""
    import torch

    lines = []
    for extent, size, start in zip(x.shape, sizes, starts):
        lines.append(start.long().clamp(0, extent - size) + torch.arange(size, device=x.device))
    return lines


def _select(eqn: Eqn, which: Any, *cases: Any) -> Any:
    import torch

    result = cases[0]
    for number, case in enumerate(cases[1:], 1):
        result = torch.where(which if which.dtype == torch.bool else which == number, case, result)
    return result


def _bitcast(eqn: Eqn, x: Any) -> Any:
    """The bits as another dtype; where that is narrower or wider, along a last dimension that appears or vanishes."""
    out = eqn.outvars[0].aval
    dtype, old, new = torch_dtype(out.dtype), bits_of(eqn.invars[0].aval.dtype), bits_of(out.dtype)
    if old % 8 or new % 8:
        return _bits_as(x, old, new).view(dtype)
    if x.dtype.itemsize > dtype.itemsize:
        x = x.unsqueeze(-1)
    return x.contiguous().view(dtype).reshape(out.shape)


def _bits_as(x: Any, old: int, new: int) -> Any:
    """The `old` bits of each element as elements of `new` bits, low ones first, where either has fewer than a byte."""
    import torch

    x = bits(x).long() & ((1 << old) - 1) if old < 64 else bits(x).long()
    if old >= new:
        parts = [(x >> (new * k)) & ((1 << new) - 1) for k in range(old // new)]
        found = torch.stack(parts, -1) if old > new else parts[0]
    else:
        found = sum(x[..., k] << (old * k) for k in range(new // old))
    return found.to(getattr(torch, _WIDTHS[max(new // 8, 1)]))


RULES: dict[Any, Any] = {
    broadcast_in_dim_p: moving(_broadcast),
    reshape_p: moving(lambda eqn, x: x.reshape(eqn.outvars[0].aval.shape)),
    transpose_p: moving(lambda eqn, x: x.permute(*eqn.params["permutation"])),
    squeeze_p: moving(lambda eqn, x: x.reshape(eqn.outvars[0].aval.shape)),
    rev_p: moving(lambda eqn, x: x.flip(tuple(eqn.params["dimensions"]))),
    slice_p: moving(_slice),
    pad_p: moving(_pad),
    concatenate_p: moving(lambda eqn, *operands: _concatenated(operands, eqn.params["dimension"])),
    split_p: moving(lambda eqn, x: x.split(list(eqn.params["sizes"]), eqn.params["axis"])),
    select_n_p: moving(_select),
    copy_p: moving(lambda eqn, x: x.clone()),
    optimization_barrier_p: moving(lambda eqn, x: x),
    sliding_windows_p: moving(_windows),
    dynamic_slice_p: _placed(_dynamic_slice, 1),
    dynamic_update_slice_p: _placed(_dynamic_update_slice, 2),
    iota_p: _iota,
    bitcast_convert_type_p: _bitcast,
}


def _concatenated(operands: Any, dimension: int) -> Any:
    import torch

    return torch.cat(operands, dimension)
