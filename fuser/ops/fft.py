"""fft: discrete Fourier transforms over the last dimensions, by SciPy here, in C in native code; a library call, linear.

The kinds are those of jax.lax: complex to complex and back, real to the half of a Hermitian spectrum and back. The inverse
ones divide by the number of elements.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fuser.errors import TypeRuleError
from fuser.ir.primitive import Fusion, Primitive, register
from fuser.ir.text import param_type
from fuser.ir.types import COMPLEX, FLOATS, ArrayType
from fuser.ops.elementwise import complex_p, conj_p, eq_p, mul_p, real_p, select_n_p
from fuser.ops.family import allow, constant, real_part, sample
from fuser.ops.movement import broadcast_in_dim_p, iota_p, pad_p, transpose_p
from fuser.runtime.array import Array
from fuser.trace.batch import moved
from fuser.trace.core import type_of


@param_type
class FftType(enum.IntEnum):
    """Which transform: complex (FFT), its inverse (IFFT), of real numbers (RFFT), and its inverse (IRFFT)."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


_REAL = FLOATS[2:]


def _type(x: ArrayType, fft_type: FftType, fft_lengths: tuple[int, ...]) -> ArrayType:
    count = len(fft_lengths)
    allow(f"{fft_type.name} of fft", x, _REAL if fft_type is FftType.RFFT else COMPLEX)
    if count > x.ndim:
        raise TypeRuleError(
            f"FFT input shape {x.shape} must have at least as many input dimensions as fft_lengths {tuple(fft_lengths)}"
        )
    if not count >= 1:
        raise TypeRuleError(f"fft takes 1 to {x.ndim} lengths for {x}, got {fft_lengths}")
    halved = (*fft_lengths[:-1], fft_lengths[-1] // 2 + 1 if fft_lengths[-1] else 0)
    wanted = halved if fft_type is FftType.IRFFT else fft_lengths
    if x.shape[x.ndim - count :] != wanted:
        rule = (
            f"all except the last fft_length, got fft_lengths={tuple(fft_lengths)}"
            if fft_type is FftType.IRFFT
            else f"fft_lengths {tuple(fft_lengths)}"
        )
        raise TypeRuleError(
            f"{fft_type.name} input shape {x.shape} minor dimensions must be equal to {rule}: it needs last dimensions {wanted}, got {x}"
        )
    lead = x.shape[: x.ndim - count]
    if fft_type is FftType.RFFT:
        return ArrayType((*lead, *halved), COMPLEX[_REAL.index(x.dtype)])
    if fft_type is FftType.IRFFT:
        return ArrayType((*lead, *fft_lengths), real_part(x.dtype))
    return x.update(weak_type=False)


def _eval(x: np.ndarray, fft_type: FftType, fft_lengths: tuple[int, ...]) -> np.ndarray:
    if not x.size or not math.prod(fft_lengths):
        result = _type(ArrayType(x.shape, x.dtype), fft_type, fft_lengths)
        return np.zeros(result.shape, result.dtype)
    from scipy import fft  # when the first transform runs: the import takes tens of milliseconds

    axes = tuple(range(x.ndim - len(fft_lengths), x.ndim))
    transform = (fft.fftn, fft.ifftn, fft.rfftn, fft.irfftn)[fft_type]
    return transform(x, fft_lengths, axes)  # in the precision of its operand


def _unscaled(x: np.ndarray, fft_type: FftType, fft_lengths: tuple[int, ...]) -> np.ndarray:
    """As `_eval`, without a division by the number of elements."""
    if fft_type in (FftType.FFT, FftType.RFFT) or not x.size or not math.prod(fft_lengths):
        return _eval(x, fft_type, fft_lengths)
    from scipy import fft

    axes = tuple(range(x.ndim - len(fft_lengths), x.ndim))
    return (fft.ifftn if fft_type is FftType.IFFT else fft.irfftn)(x, fft_lengths, axes, norm="forward")


def _expand(x: Any, fft_type: FftType, fft_lengths: tuple[int, ...]) -> Any:
    """By transforms that divide by nothing. A spectrum of real numbers is transformed along all dimensions but its last one first,
    which then is a line of its own; what such a line's first and middle elements have of an imaginary part counts for nothing."""
    if not type_of(x).size or not math.prod(fft_lengths):
        out = _type(type_of(x), fft_type, fft_lengths)
        return broadcast_in_dim_p.bind(constant(0, out), shape=out.shape, broadcast_dimensions=())
    if fft_type in (FftType.FFT, FftType.RFFT):
        return dft_p.bind(x, fft_type=fft_type, fft_lengths=fft_lengths)
    if fft_type is FftType.IFFT:
        found = dft_p.bind(x, fft_type=fft_type, fft_lengths=fft_lengths)
        scale = constant(1 / math.prod(fft_lengths), found.real)
        return complex_p.bind(found.real * scale, found.imag * scale)
    *others, last = fft_lengths
    if others:
        dims = tuple(range(x.ndim))
        first = len(dims) - len(fft_lengths)
        x = transpose_p.bind(x, permutation=(*dims[:first], dims[-1], *dims[first:-1]))
        x = dft_p.bind(x, fft_type=FftType.IFFT, fft_lengths=tuple(others))
        x = transpose_p.bind(x, permutation=(*dims[:first], *dims[first + 1 :], first))
    at = iota_p.bind(dtype=np.dtype("int32"), shape=x.shape, dimension=x.ndim - 1)
    edge = eq_p.bind(at, constant(0, at))
    if last % 2 == 0:
        edge = edge | eq_p.bind(at, constant(last // 2, at))
    x = complex_p.bind(x.real, select_n_p.bind(edge, x.imag, constant(0, x.imag)))
    found = dft_p.bind(x, fft_type=fft_type, fft_lengths=(last,))
    return found * constant(1 / math.prod(fft_lengths), found)


def _transpose(ct: Any, x: Any, fft_type: FftType, fft_lengths: tuple[int, ...]) -> tuple[Any]:
    """The matrices of FFT and IFFT are symmetric. RFFT is FFT cut to half of its results, so its transpose pads with zeros.

    IRFFT counts each spectral value that has a mirror image twice: the transpose weighs them so.
    """
    size, last = math.prod(fft_lengths), fft_lengths[-1]
    if fft_type in (FftType.FFT, FftType.IFFT):
        return (fft_p.bind(ct, fft_type=fft_type, fft_lengths=fft_lengths),)
    if fft_type is FftType.RFFT:
        config = ((0, 0, 0),) * (ct.ndim - 1) + ((0, last - ct.shape[-1], 0),)
        whole = pad_p.bind(ct, constant(0, ct), padding_config=config)
        return (real_p.bind(fft_p.bind(whole, fft_type=FftType.FFT, fft_lengths=fft_lengths)),)
    spectrum = conj_p.bind(fft_p.bind(ct, fft_type=FftType.RFFT, fft_lengths=fft_lengths))
    twice = np.full(last // 2 + 1, 2.0)
    twice[0] = 1
    if last % 2 == 0:
        twice[-1] = 1
    weights = np.broadcast_to(twice / size, spectrum.shape).astype(spectrum.dtype)
    return (mul_p.bind(spectrum, Array(np.ascontiguousarray(weights))),)


def _batch(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, int]:
    return fft_p.bind(moved(operands[0], dims[0], 0), **params), 0


def _samples() -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    pairs: list[tuple[Any, Any]] = list(zip(_REAL, COMPLEX))
    for real, complex_ in pairs:
        for shape, lengths in (((3, 5), (5,)), ((2, 3, 4), (3, 4)), ((6,), (6,))):
            halved = (*shape[:-1], lengths[-1] // 2 + 1)
            yield (sample(rng, shape, complex_),), {"fft_type": FftType.FFT, "fft_lengths": lengths}
            yield (sample(rng, shape, complex_),), {"fft_type": FftType.IFFT, "fft_lengths": lengths}
            yield (sample(rng, shape, real),), {"fft_type": FftType.RFFT, "fft_lengths": lengths}
            yield (sample(rng, halved, complex_),), {"fft_type": FftType.IRFFT, "fft_lengths": lengths}


fft_p: Primitive = register(
    Primitive(
        "fft",
        Fusion.LIBRARY,
        linear=True,
        type=_type,
        eval=_eval,
        transpose=_transpose,
        batch=_batch,
        expand=_expand,
        samples=_samples,
    )
)

# The same transforms, none of which divides: what GPUs' libraries have.
dft_p: Primitive = register(
    Primitive(
        "dft",
        Fusion.LIBRARY,
        type=_type,
        eval=_unscaled,
        batch=lambda operands, dims, **params: (dft_p.bind(moved(operands[0], dims[0], 0), **params), 0),
        samples=_samples,
    )
)
