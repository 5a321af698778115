"""jax.scipy.signal against JAX."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import numbers
from differential import Row, check, check_compiled, check_derivatives, row

X, Y = numbers(np.float32, (24,)), numbers(np.float32, (7,), 1)
A, B = numbers(np.float32, (6, 5), 2), numbers(np.float32, (3, 2), 3)
C = (X + 1j * X[::-1]).astype(np.complex64)
Z = numbers(np.complex64, (5, 4), 4)
MODES = ("full", "same", "valid")

ROWS: list[Row] = [
    *(row(f"scipy.signal.{f}", *args, mode) for f in ("convolve", "correlate") for mode in MODES for args in ((X, Y), (Y, X), (A, B), (C, C[:4]), (C[:4], C), (np.arange(5), np.arange(3)))),
    *(row(f"scipy.signal.{f}", A, B, mode) for f in ("convolve2d", "correlate2d", "fftconvolve") for mode in MODES), row("scipy.signal.correlate2d", B, A, "same"), row("scipy.signal.fftconvolve", A, A[:3], "same", axes=0), row("scipy.signal.convolve", X, Y, method="fft"), row("scipy.signal.convolve", X, Y, grad=(0, 1), tolerance=2), row("scipy.signal.fftconvolve", A, B, grad=(0, 1), tolerance=2),
    *(row(f"scipy.signal.{f}", *args, compiled=False) for f, args in (("convolve", (X, A)), ("convolve", (A, B.T, "valid")), ("convolve", (X, Y, "best")), ("convolve2d", (X, Y)), ("convolve2d", (A, B, "full", "wrap")), ("fftconvolve", (A, X)), ("detrend", (X, -1, "cubic")), ("detrend", (X, -1, "linear", 99)))), row("scipy.signal.convolve", X, Y, method="slow", compiled=False),
    row("scipy.signal.detrend", A, grad=0, tolerance=4), row("scipy.signal.detrend", A, 0, "constant"), row("scipy.signal.detrend", X, bp=[10, 20], tolerance=4),
    *(row("scipy.signal.stft", X, 2.0, tolerance=4, **o) for o in ({"nperseg": 8}, {"nperseg": 8, "noverlap": 2, "nfft": 10}, {"nperseg": 6, "boundary": "even"}, {"nperseg": 10, "boundary": None, "padded": False}, {"nperseg": 8, "detrend": "linear"}, {"nperseg": 8, "window": "boxcar"})), row("scipy.signal.stft", C, nperseg=8, tolerance=4), row("scipy.signal.stft", np.stack([X, X], 1), nperseg=8, axis=0, tolerance=4), row("scipy.signal.stft", X, nperseg=8, noverlap=8, compiled=False), row("scipy.signal.stft", X, nperseg=8, boundary="odd", grad=0, tolerance=8),
    *(row(f"scipy.signal.{f}", X, *more, 2.0, tolerance=4, **o) for f, more in (("welch", ()), ("csd", (X[::-1].copy(),))) for o in ({"nperseg": 16}, {"nperseg": 8, "scaling": "spectrum"}, {"nperseg": 8, "average": "median"}, {"nperseg": 8, "return_onesided": False})), row("scipy.signal.welch", X, nperseg=8, average="mode", compiled=False), row("scipy.signal.welch", X, nperseg=8, grad=0, tolerance=8), row("scipy.signal.csd", X, Y, nperseg=4, tolerance=4),
    *(row("scipy.signal.istft", Z, 2.0, tolerance=4, **o) for o in ({}, {"boundary": False}, {"noverlap": 2}, {"nperseg": 8, "noverlap": 6})), row("scipy.signal.istft", Z, nperseg=40, compiled=False), row("scipy.signal.istft", Z[0], compiled=False), row("scipy.signal.istft", Z, grad=0, tolerance=8),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda n: f"{n}-{ROWS[n]}")
def test_function(number: int) -> None:
    check(ROWS[number])


def test_derivatives_and_compiled() -> None:
    check_derivatives(ROWS)
    check_compiled(ROWS[::4])
