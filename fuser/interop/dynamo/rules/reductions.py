"""Reductions, scans along a dimension, softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser import lax, nn
from fuser.interop.dynamo.rules.table import Refused, axes_of, operand, rule, wide


def _reduction(function: Callable[..., Any], *names: str) -> None:
    def reduced(dtype: np.dtype, x: Any, dim: Any = None, keepdim: bool = False, **more: Any) -> Any:
        if not x.shape:
            return operand(x, dtype)
        return function(operand(x, wide(dtype)), axis=axes_of(dim, len(x.shape)), keepdims=keepdim)

    rule(*names)(reduced)


_reduction(fnp.sum, "sum.dim_IntList", "sum")
_reduction(fnp.mean, "mean.dim", "mean")
_reduction(fnp.prod, "prod", "prod.dim_int")
_reduction(fnp.max, "amax", "max")
_reduction(fnp.min, "amin", "min")


def _truth(function: Callable[..., Any], *names: str) -> None:
    def reduced(dtype: np.dtype, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        found = function(fnp.not_equal(x, operand(0, x.dtype)), axis=axes_of(dim, len(x.shape)), keepdims=keepdim)
        return found

    rule(*names)(reduced)


_truth(fnp.any, "any", "any.dim", "any.dims")
_truth(fnp.all, "all", "all.dim", "all.dims")


@rule("argmax")
def _argmax(dtype: np.dtype, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return fnp.argmax(x, axis=dim, keepdims=keepdim)


@rule("argmin")
def _argmin(dtype: np.dtype, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return fnp.argmin(x, axis=dim, keepdims=keepdim)


@rule("var.correction")
def _var(dtype: np.dtype, x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    axes = axes_of(dim, len(x.shape))
    return fnp.var(_numbers(x, dtype), axis=axes, ddof=1 if correction is None else correction, keepdims=keepdim)


def _numbers(x: Any, dtype: np.dtype) -> Any:
    """What a variance of this dtype is of: complex numbers stay."""
    return x if x.dtype.kind == "c" else operand(x, wide(dtype))


@rule("var_mean.correction")
def _var_mean(dtype: np.dtype, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    mean = fnp.mean(_numbers(x, dtype), axis=axes_of(dim, len(x.shape)), keepdims=keepdim)
    return _var(dtype, x, dim, correction=correction, keepdim=keepdim), mean


def _extreme(function: Callable[..., Any], position: Callable[..., Any], name: str) -> None:
    def found(dtype: np.dtype, x: Any, dim: int, keepdim: bool = False) -> Any:
        if not x.shape:
            return x, fnp.zeros((), np.int64)
        return function(x, axis=dim, keepdims=keepdim), position(x, axis=dim, keepdims=keepdim)

    rule(f"{name}.dim")(found)


_extreme(fnp.max, fnp.argmax, "max")
_extreme(fnp.min, fnp.argmin, "min")


def _running(function: Callable[..., Any], name: str) -> None:
    """Extremes so far, and where the last of each is; a nan counts as one."""

    def found(dtype: np.dtype, x: Any, dim: int) -> Any:
        if not x.shape:
            return x, fnp.zeros((), np.int64)
        dim %= len(x.shape)
        best = function(x, axis=dim)
        here = fnp.logical_or(fnp.equal(x, best), fnp.not_equal(x, x))
        places = lax.broadcasted_iota(np.int64, x.shape, dim)
        return best, lax.cummax(fnp.where(here, places, 0), axis=dim)

    rule(name)(found)


_running(lax.cummax, "cummax")
_running(lax.cummin, "cummin")


def _scan(function: Callable[..., Any], name: str) -> None:
    rule(name)(
        lambda dtype, x, dim, **more: (
            function(operand(x, wide(dtype)), axis=dim % len(x.shape)) if x.shape else operand(x, dtype)
        )
    )


_scan(lax.cumprod, "cumprod")
_scan(lax.cumlogsumexp, "logcumsumexp")


@rule("cumsum")
def _cumsum(dtype: np.dtype, x: Any, dim: int, **more: Any) -> Any:
    return fnp.cumsum(operand(x, wide(dtype)), axis=dim) if x.shape else operand(x, dtype)


@rule("_softmax")
def _softmax(dtype: np.dtype, x: Any, dim: int, half_to_float: bool) -> Any:
    return _along(nn.softmax, dtype, x, dim)


@rule("_log_softmax")
def _log_softmax(dtype: np.dtype, x: Any, dim: int, half_to_float: bool) -> Any:
    return _along(nn.log_softmax, dtype, x, dim)


def _along(function: Callable[..., Any], dtype: np.dtype, x: Any, dim: int) -> Any:
    if not x.shape or 0 in x.shape:
        raise Refused("softmax of no dimension or of no elements")
    return function(operand(x, wide(dtype)), axis=dim)
