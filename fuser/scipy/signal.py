"""Signals, with jax.scipy.signal's names: convolution and correlation, detrending, spectra by short Fourier transforms."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuser import numpy as fnp
from fuser.ir.dim import Dim
from fuser.ir.types import is_complex
from fuser.lax.ranks import install as _install_ranks
from fuser.lax.values import as_value, axes_of, axis_of, promote_inexact

__all__ = [
    "convolve", "convolve2d", "correlate", "correlate2d", "csd", "detrend", "fftconvolve", "istft", "stft", "welch",
]  # fmt: skip


# Convolution.


def _full(x: Any, kernel: Any) -> Any:
    """The full convolution, as the product of windows of the padded `x` with the kernel turned around."""
    windows = fnp.pad(x, [(k - 1, k - 1) for k in kernel.shape])
    for d, (n, k) in enumerate(zip(x.shape, kernel.shape)):
        count = fnp.arange if Dim in map(type, (n, k)) else np.arange
        positions = count(n + k - 1)[:, None] + count(k)
        windows = fnp.take(windows, fnp.asarray(positions.astype(np.int32)), axis=2 * d)
    inner = tuple(range(1, 2 * x.ndim, 2))
    return fnp.tensordot(windows, fnp.flip(kernel), axes=(inner, tuple(range(x.ndim))))


def _cut(full: Any, mode: str, first: Sequence[int], second: Sequence[int], axes: Sequence[int]) -> Any:
    """The part of a full convolution that `mode` asks for: that of the extents of `first`, or without padding."""
    if mode == "full":
        return full
    parts = [slice(None)] * full.ndim
    for d in axes:
        n, k = first[d], second[d]
        size = n if mode == "same" else max(n, k) - min(n, k) + 1
        start = (full.shape[d] - size) // 2
        parts[d] = slice(start, start + size)
    return full[tuple(parts)]


def _check(function: str, in1: Any, in2: Any, mode: str) -> tuple[Any, Any]:
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of ['full', 'same', 'valid'], got {mode!r} ({function})")
    x, y = promote_inexact(function, in1, in2)
    if x.ndim != y.ndim:
        raise ValueError(f"in1 and in2 must have the same number of dimensions, got {x.ndim} and {y.ndim} ({function})")
    if not x.size or not y.size:
        raise ValueError(f"zero-size arrays not supported in convolutions, got shapes {x.shape} and {y.shape}.")
    bigger = all(a >= b for a, b in zip(x.shape, y.shape)), all(a <= b for a, b in zip(x.shape, y.shape))
    if mode == "valid" and not any(bigger):
        raise ValueError("One input must be smaller than the other in every dimension.")
    return x, y


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Any:
    """The convolution of two arrays of one rank: "full", "same" (the extents of in1) or "valid" (without padding).

    method "direct" sums products, "fft" transforms, "auto" sums small ones. Integers become the default float. ValueError for
    different ranks, another mode or method, and "valid" where neither array is the larger in all dimensions.
    """
    if method not in ("auto", "direct", "fft"):
        raise ValueError(f"Got method={method!r}; expected 'auto', 'fft', or 'direct'.")
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    x, y = _check("convolve", in1, in2, mode)
    if mode == "valid" and any(a < b for a, b in zip(x.shape, y.shape)):
        x, y = y, x
    return _cut(_full(x, y), mode, x.shape, y.shape, range(x.ndim))


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Any:
    """The cross-correlation: `convolve` of in1 with in2 conjugated and turned around; for "valid" with in2 larger also turned."""
    x, y = _check("correlate", in1, in2, mode)
    turned = mode == "valid" and any(a < b for a, b in zip(x.shape, y.shape))
    if turned:
        return (
            fnp.flip(convolve(y, fnp.flip(fnp.conj(x)), mode, method)).conj()
            if is_complex(x.dtype)
            else fnp.flip(convolve(y, fnp.flip(x), mode, method))
        )
    return convolve(x, fnp.flip(fnp.conj(y)), mode, method)


def _flat(function: str, in1: Any, in2: Any, boundary: str, fillvalue: float) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(f"{function}() only supports boundary='fill', fillvalue=0")
    if np.ndim(in1) != 2 or np.ndim(in2) != 2:
        raise ValueError(f"{function}() only supports 2-dimensional inputs.")


def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision: Any = None
) -> Any:
    """`convolve` of matrices. NotImplementedError for a boundary other than zeros, ValueError for other ranks."""
    _flat("convolve2d", in1, in2, boundary, fillvalue)
    return convolve(in1, in2, mode, "direct")


def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision: Any = None
) -> Any:
    """`correlate` of matrices. NotImplementedError for a boundary other than zeros, ValueError for other ranks."""
    _flat("correlate2d", in1, in2, boundary, fillvalue)
    if mode != "same":
        return correlate(in1, in2, mode, "direct")
    x, y = _check("correlate2d", in1, in2, mode)
    whole = correlate(x, y, "full", "direct")
    starts = [k // 2 for k in y.shape]  # SciPy's centre of an even kernel, once it is turned around
    return whole[tuple(slice(start, start + n) for start, n in zip(starts, x.shape))]


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """`convolve` over `axes` (all unless told) by Fourier transforms; extents along the others are equal or 1."""
    x, y = promote_inexact("fftconvolve", in1, in2)
    if x.ndim != y.ndim:
        raise ValueError("in1 and in2 should have the same dimensionality")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"Unrecognized {mode=}")
    dims = axes_of(axes if axes is None or isinstance(axes, int) else tuple(axes), x.ndim, "fftconvolve")
    if not x.size or not y.size:
        raise ValueError(f"zero-size arrays not supported in convolutions, got shapes {x.shape} and {y.shape}.")
    if any(x.shape[d] != y.shape[d] and 1 not in (x.shape[d], y.shape[d]) for d in range(x.ndim) if d not in dims):
        raise ValueError(f"incompatible shapes for in1 and in2: {x.shape} and {y.shape} along axes beside {dims}")
    if mode == "valid":
        if not (all(x.shape[d] >= y.shape[d] for d in dims) or all(x.shape[d] <= y.shape[d] for d in dims)):
            raise ValueError("One input must be smaller than the other in every dimension.")
        if any(x.shape[d] < y.shape[d] for d in dims):
            x, y = y, x
    lengths = [x.shape[d] + y.shape[d] - 1 for d in dims]
    if is_complex(x.dtype):
        full = fnp.fft.ifftn(fnp.fft.fftn(x, lengths, dims) * fnp.fft.fftn(y, lengths, dims), lengths, dims)
    else:
        full = fnp.fft.irfftn(fnp.fft.rfftn(x, lengths, dims) * fnp.fft.rfftn(y, lengths, dims), lengths, dims)
    return _cut(full, mode, x.shape, y.shape, dims)


# Trends.


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: Any = 0, overwrite_data: None = None) -> Any:
    """`data` without its mean ("constant") or its straight line of least squares ("linear") along `axis`, between breaks `bp`."""
    if overwrite_data is not None:
        raise NotImplementedError("overwrite_data argument not implemented.")
    if type not in ("constant", "linear"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    (x,) = promote_inexact("detrend", as_value(data, "detrend"))
    if type == "constant":
        return x - fnp.mean(x, axis, keepdims=True)
    place = axis_of(axis, x.ndim, "detrend")
    count = x.shape[place]
    breaks = np.unique(np.concatenate([[0], np.atleast_1d(np.asarray(bp)), [count]])).astype(int)
    if (breaks > count).any() or (breaks < 0).any():
        raise ValueError("Breakpoints must be non-negative and less than length of data along given axis.")
    moved = fnp.moveaxis(x, place, 0)
    parts = []
    for start, stop in itertools.pairwise(breaks.tolist()):
        piece = moved[start:stop]
        time = np.arange(1, stop - start + 1) / (stop - start)
        centred = (time - time.mean()).reshape(-1, *[1] * (x.ndim - 1)).astype(np.zeros((), x.dtype).real.dtype)
        slope = fnp.sum(piece * centred, 0) / (float((centred**2).sum()) or 1.0)  # of one sample, 0
        parts.append(piece - fnp.mean(piece, 0) - centred * slope)
    return fnp.moveaxis(fnp.concatenate(parts, 0), 0, place)


# Spectra.


def _window(window: Any, size: int, dtype: np.dtype) -> np.ndarray:
    """A window by name or values, periodic, in the real dtype; names are SciPy's."""
    if isinstance(window, (str, tuple)):
        from scipy.signal import get_window

        return get_window(window, size).astype(dtype)
    found = np.asarray(window)
    if found.ndim != 1:
        raise ValueError("window must be 1-D")
    return found.astype(dtype)


def _segments(x: Any, size: int, step: int) -> Any:
    """Overlapping pieces of the last dimension: (…, pieces, size)."""
    count = (x.shape[-1] - size) // step + 1
    positions = np.arange(count)[:, None] * step + np.arange(size)
    return fnp.take(x, fnp.asarray(positions.astype(np.int32)), axis=-1)


def _lengths(
    window: Any, nperseg: int | None, noverlap: int | None, nfft: int | None, extent: int, default: int = 256
) -> tuple[Any, int, int, int]:
    """(window, elements a piece, elements shared by neighbours, elements transformed)."""
    if nperseg is not None and operator.index(nperseg) < 1:
        raise ValueError("nperseg must be a positive integer")
    if isinstance(window, (str, tuple)):
        size = min(default if nperseg is None else int(nperseg), extent)
    else:
        own = len(window)
        if own > extent:
            raise ValueError("window is longer than input signal")
        if nperseg is not None and nperseg != own:
            raise ValueError("value specified for nperseg is different from length of window")
        size = own
    transformed = size if nfft is None else int(nfft)
    if transformed < size:
        raise ValueError("nfft must be greater than or equal to nperseg.")
    shared = size // 2 if noverlap is None else int(noverlap)
    if shared >= size:
        raise ValueError("noverlap must be less than nperseg.")
    return window, size, shared, transformed


def _pieces(x: Any, window: np.ndarray, size: int, shared: int, nfft: int, detrended: Any, onesided: bool) -> Any:
    """The transforms of the windowed pieces: (…, frequencies, pieces)."""
    pieces = _segments(x, size, size - shared)
    if callable(detrended):
        pieces = detrended(pieces)
    elif detrended:
        pieces = detrend(pieces, type=detrended, axis=-1)
    pieces = pieces * window
    transform = fnp.fft.rfft if onesided else fnp.fft.fft
    return fnp.swapaxes(transform(pieces, nfft), -1, -2)


def _frequencies(nfft: int, fs: Any, onesided: bool) -> Any:
    return (fnp.fft.rfftfreq if onesided else fnp.fft.fftfreq)(nfft, 1 / fs)


def stft(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int = 256, noverlap: int | None = None, nfft: int | None = None, detrend: Any = False,
    return_onesided: bool = True, boundary: str | None = "zeros", padded: bool = True, axis: int = -1,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """(frequencies, times, transforms) of overlapping windowed pieces along `axis`, which becomes frequencies; times come last.

    Scaled so that a sine of amplitude 1 gives 1/2. The signal is extended by half a piece at both ends ("zeros", "even", "odd",
    "constant", or None) and padded to whole pieces. ValueError for lengths that do not fit.
    """
    (value,) = promote_inexact("stft", as_value(x, "stft"))
    place = axis_of(axis, value.ndim, "stft")
    moved = fnp.moveaxis(value, place, -1)
    window, size, shared, transformed = _lengths(window, nperseg, noverlap, nfft, moved.shape[-1])
    real = np.zeros((), value.dtype).real.dtype
    values = _window(window, size, real)
    if boundary is not None:
        moved = _extended(moved, size // 2, boundary)
    if padded:
        missing = (-(moved.shape[-1] - size) % (size - shared)) % size
        moved = fnp.pad(moved, [(0, 0)] * (moved.ndim - 1) + [(0, missing)])
    onesided = return_onesided and not is_complex(value.dtype)
    found = _pieces(moved, values / values.sum(), size, shared, transformed, detrend, onesided)
    count = found.shape[-1]
    time = np.arange(size / 2, moved.shape[-1] - size / 2 + 1, size - shared)[:count] / np.asarray(1)
    times = fnp.asarray(time.astype(real)) / fs - (size / 2) / fs * (boundary is not None)
    spectrum = fnp.moveaxis(found, -2, place if place < value.ndim else -2) if place != value.ndim - 1 else found
    return _frequencies(transformed, fs, onesided).astype(real), times, spectrum


def _extended(x: Any, count: int, boundary: str) -> Any:
    """`x` with `count` elements more at both ends of the last dimension."""
    if boundary not in ("zeros", "even", "odd", "constant"):
        raise ValueError(
            f"Unknown boundary option '{boundary}', must be one of: {['even', 'odd', 'constant', 'zeros', None]}"
        )
    widths = [(0, 0)] * (x.ndim - 1) + [(count, count)]
    if boundary == "zeros":
        return fnp.pad(x, widths)
    if boundary == "constant":
        return fnp.pad(x, widths, mode="edge")
    return fnp.pad(x, widths, mode="reflect", reflect_type=boundary)


def csd(
    x: Any, y: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None,
    detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density", axis: int = -1, average: str = "mean",
) -> tuple[Any, Any]:  # fmt: skip
    """(frequencies, cross power spectrum) of two signals along `axis`, averaged over overlapping windowed pieces.

    scaling "density" or "spectrum", average "mean" or "median" (ValueError otherwise). Welch, "The use of fast Fourier transform
    for the estimation of power spectra" (1967).
    """
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"Unknown scaling: {scaling}")
    if average not in ("mean", "median"):
        raise ValueError(f"average must be 'median' or 'mean', got {average}")
    same = y is None or y is x
    first, second = promote_inexact("csd", as_value(x, "csd"), as_value(x if same else y, "csd"))
    place = axis_of(axis, first.ndim, "csd")
    if not first.size or not second.size:
        shape = list(np.broadcast_shapes(*(v.shape[:place] + (1,) + v.shape[place + 1 :] for v in (first, second))))
        shape[place] = min(first.shape[place], second.shape[place])
        nothing = np.zeros(shape, first.dtype)
        return fnp.asarray(nothing.real), fnp.asarray(nothing.astype(np.result_type(first.dtype, np.complex64)))
    first, second = fnp.moveaxis(first, place, -1), fnp.moveaxis(second, place, -1)
    if not same and first.shape[-1] != second.shape[-1]:
        length = max(first.shape[-1], second.shape[-1])
        widen = lambda v: fnp.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, length - v.shape[-1])])
        first, second = widen(first), widen(second)
    window, size, shared, transformed = _lengths(window, nperseg, noverlap, nfft, first.shape[-1])
    real = np.zeros((), first.dtype).real.dtype
    values = _window(window, size, real)
    onesided = return_onesided and not is_complex(first.dtype)
    spectra = [
        _pieces(v, values, size, shared, transformed, detrend, onesided)
        for v in ((first,) if same else (first, second))
    ]
    power = fnp.conj(spectra[0]) * spectra[-1]
    scale = 1 / (fs * float((values**2).sum())) if scaling == "density" else 1 / float(values.sum()) ** 2
    power = power * scale
    if onesided:
        twice = np.full((power.shape[-2], 1), 2.0)
        twice[0] = 1
        if transformed % 2 == 0:
            twice[-1] = 1
        power = power * fnp.asarray(twice.astype(real))
    found = _averaged(power, average)
    found = fnp.real(found) if same else found
    return _frequencies(transformed, fs, onesided).astype(real), fnp.moveaxis(found, -1, place)


def _averaged(power: Any, average: str) -> Any:
    """Over the pieces; a median is divided by its expectation for pieces of noise: Allen et al., "FINDCHIRP" (2012), appendix B."""
    count = power.shape[-1]
    if count < 2:
        return fnp.reshape(power, power.shape[:-1])
    if average == "mean":
        return fnp.mean(power, -1)
    even = 2 * np.arange(1.0, (count - 1) // 2 + 1)
    bias = 1 + float(np.sum(1 / (even + 1) - 1 / even))
    middle = fnp.median(fnp.real(power), -1) + (1j * fnp.median(fnp.imag(power), -1) if is_complex(power.dtype) else 0)
    return middle / bias


def welch(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None,
    detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density", axis: int = -1, average: str = "mean",
) -> tuple[Any, Any]:  # fmt: skip
    """(frequencies, power spectrum) of a signal: `csd` of it with itself."""
    frequencies, power = csd(
        x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average
    )
    return frequencies, fnp.real(power)


def istft(
    Zxx: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None,
    input_onesided: bool = True, boundary: bool = True, time_axis: int = -1, freq_axis: int = -2,
) -> tuple[Any, Any]:  # fmt: skip
    """(times, signal) from `stft`'s transforms, by overlapping pieces added and divided by the sum of squared windows.

    Griffin and Lim, "Signal estimation from modified short-time Fourier transform" (1984). ValueError for lengths and axes that
    do not fit.
    """
    value = as_value(Zxx, "istft")
    if value.ndim < 2:
        raise ValueError("Input stft must be at least 2d!")
    frequency, time = axis_of(freq_axis, value.ndim, "istft"), axis_of(time_axis, value.ndim, "istft")
    if frequency == time:
        raise ValueError("Must specify differing time and frequency axes!")
    value = fnp.moveaxis(value, (frequency, time), (-2, -1))
    count = value.shape[-1]
    default = 2 * (value.shape[-2] - 1) if input_onesided else value.shape[-2]
    size = default if nperseg is None else int(nperseg)
    if size < 1:
        raise ValueError("nperseg must be a positive integer")
    transformed = default + (input_onesided and size == default + 1) if nfft is None else int(nfft)
    if transformed < size:
        raise ValueError(f"FFT length ({transformed}) must be longer than nperseg ({size}).")
    shared = size // 2 if noverlap is None else int(noverlap)
    if shared >= size:
        raise ValueError("noverlap must be less than nperseg.")
    step = size - shared
    real = np.zeros((), value.dtype).real.dtype
    values = _window(window, size, real)
    if len(values) != size:
        raise ValueError(f"window must have length of {size}")
    pieces = fnp.swapaxes(value, -1, -2)
    pieces = (fnp.fft.irfft if input_onesided else fnp.fft.ifft)(pieces, transformed)[..., :size] * (
        values * values.sum()
    )
    length = size + (count - 1) * step
    places = fnp.asarray((np.arange(count)[:, None] * step + np.arange(size)).astype(np.int32))
    signal = fnp.zeros((*pieces.shape[:-2], length), pieces.dtype).at[..., places].add(pieces)
    weight = np.zeros(length)
    for n in range(count):
        weight[n * step : n * step + size] += values.astype(np.float64) ** 2
    if boundary:
        half = size // 2
        signal, weight = signal[..., half : length - half], weight[half : length - half]
    signal = signal / fnp.asarray(np.where(weight > 1e-10, weight, 1).astype(real))
    times = fnp.arange(signal.shape[-1], dtype=real) / fs
    return times, fnp.moveaxis(signal, -1, time - (frequency < time)) if signal.ndim > 1 else signal


_install_ranks(globals(), "fuser.scipy")
