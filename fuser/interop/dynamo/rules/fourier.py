"""Complex tensors as pairs of real numbers, and discrete Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import fuser.numpy as fnp
from fuser import lax
from fuser.interop.dynamo.rules.table import operand, rule
from fuser.lax.values import literal

rule("_conj", "conj_physical", "_conj_physical", "resolve_conj")(lambda dtype, x: fnp.conj(x))
rule("view_as_real")(lambda dtype, x: fnp.stack([fnp.real(x), fnp.imag(x)], -1))
rule("view_as_complex")(lambda dtype, x: lax.complex(x[..., 0], x[..., 1]))
rule("real")(lambda dtype, x: fnp.real(x))
rule("imag")(lambda dtype, x: fnp.imag(x))
rule("complex")(lambda dtype, x, y: lax.complex(x, y))
rule("polar")(
    lambda dtype, size, angle: lax.complex(fnp.multiply(size, fnp.cos(angle)), fnp.multiply(size, fnp.sin(angle)))
)


def _scale(dtype: np.dtype, sizes: Sequence[int], normalization: int) -> Any:
    """torch's factor: none, 1/√n or 1/n."""
    count = math.prod(sizes)
    return literal({0: 1.0, 1: 1 / math.sqrt(max(count, 1)), 2: 1 / max(count, 1)}[normalization], dtype)


def _transformed(x: Any, dims: Sequence[int], kind: str, sizes: Sequence[int], scale: Any) -> Any:
    """The transform along `dims`, whose last one is halved where the result or the input is real."""
    last = range(-len(dims), 0)
    found = lax.fft(fnp.moveaxis(x, tuple(dims), tuple(last)), kind, tuple(sizes))
    return fnp.multiply(fnp.moveaxis(found, tuple(last), tuple(dims)), scale)


def _several(x: Any, dims: Sequence[int], forward: bool) -> Any:
    for dim in dims:  # the inverse has torch's factor removed
        count = x.shape[dim]
        scale = literal(1.0 if forward else float(count), x.dtype)
        x = _transformed(x, [dim], "FFT" if forward else "IFFT", [count], scale)
    return x


@rule("_fft_c2c")
def _fft_c2c(dtype: np.dtype, x: Any, dims: Sequence[int], normalization: int, forward: bool) -> Any:
    sizes = [x.shape[d] for d in dims]
    return fnp.multiply(_several(x, dims, forward), _scale(dtype, sizes, normalization))


@rule("_fft_r2c")
def _fft_r2c(dtype: np.dtype, x: Any, dims: Sequence[int], normalization: int, onesided: bool) -> Any:
    sizes = [x.shape[d] for d in dims]
    if not onesided:
        return _fft_c2c(dtype, operand(x, dtype), dims, normalization, True)
    half = _transformed(x, dims[-1:], "RFFT", sizes[-1:], literal(1.0, dtype))
    return fnp.multiply(_several(half, dims[:-1], True), _scale(dtype, sizes, normalization))


@rule("_fft_c2r")
def _fft_c2r(dtype: np.dtype, x: Any, dims: Sequence[int], normalization: int, size: int) -> Any:
    sizes = [*[x.shape[d] for d in dims[:-1]], size]
    whole = _several(x, dims[:-1], False)
    found = _transformed(whole, dims[-1:], "IRFFT", [size], literal(float(size), dtype))
    return fnp.multiply(found, _scale(dtype, sizes, normalization))
