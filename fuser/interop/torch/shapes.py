"""torch's reductions, normalisations, movement and products, in the table of `torch_functions`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser import nn
from fuser.interop.numpy.checks import notice_out_of_bounds, notice_out_of_range
from fuser.interop.torch.functions import TABLE, Handler, register, swapped
from fuser.interop.torch.tensors import TracedTensor, lift, refused
from fuser.lax.values import broadcast_to
from fuser.ops import elementwise as E
from fuser.scipy import special
from fuser.trace.core import bind

__all__ = ["PROPERTIES", "TABLE"]
PROPERTIES = ("T", "mT", "real", "imag")
_F32 = np.dtype("float32")

# Reductions.


def _axes(dim: Any) -> Any:
    return (
        None
        if dim is None or (isinstance(dim, (tuple, list)) and not dim)
        else tuple(dim)
        if isinstance(dim, (tuple, list))
        else dim
    )


def _reduction(function: Handler) -> Handler:
    def handler(
        dtype: np.dtype,
        input: Any,
        dim: Any = None,
        keepdim: bool = False,
        *,
        dtype_: Any = None,
        axis: Any = None,
        keepdims: bool = False,
        **more: Any,
    ) -> Any:
        return function(lift(input, dtype), _axes(dim if axis is None else axis), keepdims=keepdim or keepdims)

    def without_dtype(result: np.dtype, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        return handler(result, *args, **kwargs)

    return without_dtype


register(_reduction(fnp.sum), "sum")
register(_reduction(fnp.prod), "prod")
register(_reduction(fnp.mean), "mean")
register(_reduction(fnp.max), "amax")
register(_reduction(fnp.min), "amin")
register(_reduction(fnp.all), "all")
register(_reduction(fnp.any), "any")
register(_reduction(special.logsumexp), "logsumexp")
register(lambda dtype, input, dim=None, keepdim=False: fnp.argmax(lift(input), dim, keepdims=keepdim), "argmax")
register(lambda dtype, input, dim=None, keepdim=False: fnp.argmin(lift(input), dim, keepdims=keepdim), "argmin")


def _extreme(name: str) -> Handler:
    def handler(dtype: np.dtype, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, TracedTensor) or (hasattr(dim, "dtype") and dim is not None):
            return getattr(fnp, f"{name}imum")(lift(input, dtype), lift(dim, dtype))
        x = lift(input)
        if dim is None:
            return getattr(fnp, name)(x)
        return getattr(fnp, name)(x, dim, keepdims=keepdim), getattr(fnp, f"arg{name}")(x, dim, keepdims=keepdim)

    return handler


register(_extreme("max"), "max")
register(_extreme("min"), "min")


def _spread(function: Handler) -> Handler:
    def handler(
        dtype: np.dtype,
        input: Any,
        dim: Any = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: Any = None,
    ) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        ddof = int(unbiased) if correction is None else correction
        return function(lift(input, dtype), _axes(dim), ddof=ddof, keepdims=keepdim)

    return handler


register(_spread(fnp.var), "var")
register(_spread(fnp.std), "std")
register(lambda result, input, dim, dtype=None: fnp.cumsum(lift(input, result), dim), "cumsum")
register(lambda result, input, dim, dtype=None: fnp.cumprod(lift(input, result), dim), "cumprod")


def _norm(
    result: np.dtype, input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    x = lift(input, result)
    if p in ("fro", 2, 2.0, None):
        return fnp.sqrt(fnp.sum(fnp.square(x), _axes(dim), keepdims=keepdim))
    if p == 1:
        return fnp.sum(fnp.abs(x), _axes(dim), keepdims=keepdim)
    if p == math.inf:
        return fnp.max(fnp.abs(x), _axes(dim), keepdims=keepdim)
    return fnp.power(fnp.sum(fnp.power(fnp.abs(x), float(p)), _axes(dim), keepdims=keepdim), 1.0 / p)


register(_norm, "norm")


def _softmax(function: Handler) -> Handler:
    def handler(result: np.dtype, input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        if dim is None:
            raise refused("softmax without dim= cannot be traced", "give dim=")
        wide = np.promote_types(result, _F32) if result.kind == "f" else _F32  # halves are summed in float32
        return function(lift(input, wide), axis=dim)

    return handler


register(_softmax(nn.softmax), "softmax")
register(_softmax(nn.log_softmax), "log_softmax")


def _layer_norm(
    dtype: np.dtype,
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *unused: Any,
) -> Any:
    wide = np.promote_types(dtype, _F32) if dtype.kind == "f" else _F32
    x = lift(input, wide)
    axes = tuple(range(-len(tuple(normalized_shape)), 0))
    centred = fnp.subtract(x, fnp.mean(x, axes, keepdims=True))
    variance = fnp.mean(fnp.square(centred), axes, keepdims=True)
    result = fnp.multiply(centred, bind(E.rsqrt_p, fnp.add(variance, eps)))
    result = result if weight is None else fnp.multiply(result, lift(weight, wide))
    return result if bias is None else fnp.add(result, lift(bias, wide))


def _rms_norm(dtype: np.dtype, input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    wide = np.promote_types(dtype, _F32) if dtype.kind == "f" else _F32
    x = lift(input, wide)
    axes = tuple(range(-len(tuple(normalized_shape)), 0))
    epsilon = float(np.finfo(np.float32 if dtype.kind != "f" else dtype).eps) if eps is None else eps
    result = fnp.multiply(x, bind(E.rsqrt_p, fnp.add(fnp.mean(fnp.square(x), axes, keepdims=True), epsilon)))
    return result if weight is None else fnp.multiply(result, lift(weight, wide))


register(_layer_norm, "layer_norm")
register(_rms_norm, "rms_norm")


def _mse_loss(
    dtype: np.dtype,
    input: Any,
    target: Any,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Any:
    if weight is not None:
        raise refused("mse_loss with weight= cannot be traced")
    squares = fnp.square(fnp.subtract(lift(input, dtype), lift(target, dtype)))
    return squares if reduction == "none" else fnp.sum(squares) if reduction == "sum" else fnp.mean(squares)


register(_mse_loss, "mse_loss")

# Movement. torch gives views; what is traced is never written to, so they need not share memory.


def _extents(shape: Any) -> Any:
    return shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape


def _expanded(dtype: np.dtype, input: Any, *size: Any, **more: Any) -> Any:
    wanted = tuple(_extents(size))
    offset = len(wanted) - len(input.shape)
    return broadcast_to(lift(input), tuple(input.shape[d - offset] if e == -1 else e for d, e in enumerate(wanted)))


def _flatten(dtype: np.dtype, input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    x, rank = lift(input), max(len(input.shape), 1)
    start, end = start_dim % rank, end_dim % rank
    return fnp.reshape(
        x, (*x.shape[:start], -1 if x.size else math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :])
    )


def _chunks(sizes: Handler) -> Handler:
    def handler(dtype: np.dtype, input: Any, how: Any, dim: int = 0) -> Any:
        x = lift(input)
        edges = np.cumsum(sizes(x.shape[dim], how))[:-1]
        return fnp.split(x, [int(e) for e in edges], axis=dim)

    return handler


def _by_size(extent: int, size: Any) -> list[int]:
    return list(size) if isinstance(size, (tuple, list)) else [min(size, extent - at) for at in range(0, extent, size)]


def _by_count(extent: int, count: int) -> list[int]:
    return _by_size(extent, max(-(-extent // count), 1))


def _squeeze(dtype: np.dtype, input: Any, dim: Any = None) -> Any:
    x = lift(input)
    dims = range(x.ndim) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    return fnp.squeeze(x, tuple(d % x.ndim for d in dims if x.shape[d] == 1))


def _repeated(dtype: np.dtype, input: Any, *sizes: Any) -> Any:
    return fnp.tile(lift(input), tuple(_extents(sizes)))


def _join(function: Handler) -> Handler:
    return lambda dtype, tensors, dim=0: function([lift(t, dtype) for t in tensors], axis=dim)


register(lambda dtype, input, *shape: fnp.reshape(lift(input), tuple(_extents(shape))), "reshape")
register(lambda dtype, input, *shape: fnp.reshape(lift(input), tuple(_extents(shape))), "view")
register(_flatten, "flatten")
register(_expanded, "expand", "broadcast_to")
register(lambda dtype, input, other: _expanded(dtype, input, *other.shape), "expand_as")
register(lambda dtype, input, *dims: fnp.transpose(lift(input), tuple(_extents(dims))), "permute")
register(
    lambda dtype, input, first, second: fnp.swapaxes(lift(input), first, second), "transpose", "swapaxes", "swapdims"
)
register(lambda dtype, input: fnp.transpose(lift(input)), "t", "T")
register(lambda dtype, input: fnp.matrix_transpose(lift(input)), "mT")
register(
    lambda dtype, input, source, destination: fnp.moveaxis(lift(input), source, destination), "movedim", "moveaxis"
)
register(_squeeze, "squeeze")
register(lambda dtype, input, dim: fnp.expand_dims(lift(input), dim), "unsqueeze")
register(_repeated, "repeat", "tile")
register(_join(fnp.concatenate), "cat", "concat", "concatenate")
register(_join(fnp.stack), "stack")
register(_chunks(_by_size), "split")
register(_chunks(_by_count), "chunk")
register(lambda dtype, input, dim=0: fnp.unstack(lift(input), axis=dim), "unbind")
register(lambda dtype, input, *dims: fnp.flip(lift(input), tuple(_extents(dims))), "flip")
register(lambda dtype, input, shifts, dims=None: fnp.roll(lift(input), shifts, dims), "roll")
register(lambda dtype, input, diagonal=0: fnp.tril(lift(input), diagonal), "tril")
register(lambda dtype, input, diagonal=0: fnp.triu(lift(input), diagonal), "triu")


def _within(input: Any, dim: int, index: Any) -> Any:
    """Indices along a dimension; torch answers where one is out of range (from the end they may not count)."""
    positions = lift(index)
    notice_out_of_range(positions, lift(input).shape[dim])
    return positions


register(lambda dtype, input, dim, index: fnp.take(lift(input), _within(input, dim, index), axis=dim), "index_select")
register(
    lambda dtype, input, dim, index, **more: fnp.take_along_axis(lift(input), _within(input, dim, index), axis=dim),
    "gather",
)


def _getitem(dtype: np.dtype, input: Any, index: Any) -> Any:
    parts = index if isinstance(index, tuple) else (index,)
    lifted = []
    for part in parts:
        if isinstance(part, list):
            part = np.asarray(part)
        lifted.append(lift(part) if hasattr(part, "dtype") and not isinstance(part, np.ndarray) else part)
    dimension, shape = 0, lift(input).shape
    for number, part in enumerate(lifted):
        if part is Ellipsis:
            dimension = len(shape) - sum(p is not None for p in lifted[number + 1 :])
        elif part is not None:
            if hasattr(part, "aval") and dimension < len(shape):
                notice_out_of_bounds(part, shape[dimension])
            dimension += 1
    return lift(input)[tuple(lifted)]


register(_getitem, "getitem")

# Products.


def _product(function: Handler) -> Handler:
    return lambda dtype, input, other: function(lift(input, dtype), lift(other, dtype))


def _linear(dtype: np.dtype, input: Any, weight: Any, bias: Any = None) -> Any:
    product = fnp.matmul(lift(input, dtype), fnp.transpose(lift(weight, dtype)))
    return product if bias is None else fnp.add(product, lift(bias, dtype))


def _addmm(dtype: np.dtype, input: Any, first: Any, second: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = fnp.matmul(lift(first, dtype), lift(second, dtype))
    scaled = product if alpha == 1 else fnp.multiply(lift(alpha, dtype), product)
    return fnp.add(lift(input, dtype) if beta == 1 else fnp.multiply(lift(beta, dtype), lift(input, dtype)), scaled)


for _name in ("matmul", "mm", "bmm", "mv", "dot"):
    register(_product(fnp.matmul), _name)
register(swapped(fnp.matmul), "rmatmul")
register(_product(fnp.outer), "outer")
register(_linear, "linear")
register(_addmm, "addmm")
register(
    lambda dtype, equation, *operands: fnp.einsum(equation, *(lift(o, dtype) for o in _extents(operands))), "einsum"
)
register(lambda dtype, input: fnp.real(lift(input)), "real")
register(lambda dtype, input: fnp.imag(lift(input)), "imag")
