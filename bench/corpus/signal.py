"""Signals: filters, spectra, samples."""

from __future__ import annotations

import numpy as np
import scipy.signal

from bench.corpus.case import Case


def moving_average(x, width):
    total = np.cumsum(np.insert(x, 0, 0.0))
    return (total[width:] - total[:-width]) / width


def smooth(x, taps):
    return np.convolve(x, taps, mode="same")


def band_pass(x, rate, low, high):
    spectrum = np.fft.rfft(x)
    frequencies = np.fft.rfftfreq(len(x), 1 / rate)
    spectrum[(frequencies < low) | (frequencies > high)] = 0
    return np.fft.irfft(spectrum, len(x))


def welch(x, length):
    frames = np.lib.stride_tricks.sliding_window_view(x, length)[:: length // 2]
    window = np.hanning(length)
    spectra = np.abs(np.fft.rfft((frames - frames.mean(axis=1, keepdims=True)) * window, axis=1)) ** 2
    return spectra.mean(axis=0) / (window**2).sum()


def envelope(x):
    n = len(x)
    spectrum = np.fft.fft(x)
    gain = np.zeros(n)
    gain[0] = gain[n // 2] = 1
    gain[1 : n // 2] = 2
    return np.abs(np.fft.ifft(spectrum * gain))


def zero_crossings(x):
    return np.where(np.diff(np.signbit(x)))[0]


def low_pass(x, alpha):
    return scipy.signal.lfilter([alpha], [1.0, alpha - 1.0], x)


def detrend(x, degree):
    t = np.linspace(-1, 1, len(x))
    return x - np.polyval(np.polyfit(t, x, degree), t)


def savitzky_golay(x):
    return scipy.signal.savgol_filter(x, 31, 3)


def standardise(x):
    x -= x.mean()
    x /= x.std()


def find_peaks(x, height):
    inner = x[1:-1]
    return np.flatnonzero((inner > x[:-2]) & (inner > x[2:]) & (inner > height)) + 1


def mix_to_int16(left, right, gain):
    mixed = 0.5 * gain * (left + right)
    return np.clip(np.round(mixed * 32767), -32768, 32767).astype(np.int16)


def peak_hold(x, decay):
    n = np.arange(len(x))
    return np.maximum.accumulate(np.log(np.abs(x) + 1e-9) + decay * n) - decay * n


def autocorrelation(x, lags):
    centred = x - x.mean()
    spectrum = np.fft.rfft(centred, 2 * len(x))
    found = np.fft.irfft(spectrum * spectrum.conj())[:lags]
    return found / found[0]


def spectrogram(x, length, hop):
    starts = np.arange(0, len(x) - length + 1, hop)
    frames = x[starts[:, None] + np.arange(length)]
    return 20 * np.log10(np.abs(np.fft.rfft(frames * np.hamming(length), axis=1)) + 1e-10)


def remove_outliers(x, limit):
    middle = np.median(x)
    spread = np.median(np.abs(x - middle))
    x[np.abs(x - middle) > limit * spread] = middle


def resample(t, x, times):
    return np.interp(times, t, x)


def chirp(n, rate, start, end):
    t = np.arange(n) / rate
    frequency = np.linspace(start, end, n)
    return np.sin(2 * np.pi * np.cumsum(frequency) / rate) * np.exp(-t)


def overlap_add(frames, hop):
    count, length = frames.shape
    out = np.zeros((count - 1) * hop + length)
    for k in range(count):
        out[k * hop : k * hop + length] += frames[k]
    return out


def _wave(random, size):
    t = np.arange(size) / 1000
    return np.sin(2 * np.pi * 5 * t) + 0.4 * np.sin(2 * np.pi * 60 * t) + 0.2 * random.standard_normal(size)


def _times(random, size):
    t = np.sort(random.random(size))
    return t, np.sin(9 * t), random.random(size // 2)


CASES = [
    Case(moving_average, lambda random, size: (_wave(random, size), 25), 1_000_000),
    Case(smooth, lambda random, size: (_wave(random, size), np.hanning(31) / 15), 200_000),
    Case(band_pass, lambda random, size: (_wave(random, size), 1000.0, 2.0, 10.0), 262_144),
    Case(welch, lambda random, size: (_wave(random, size), 256), 200_000),
    Case(envelope, lambda random, size: (_wave(random, size),), 131_072),
    Case(zero_crossings, lambda random, size: (_wave(random, size),), 1_000_000),
    Case(low_pass, lambda random, size: (_wave(random, size), 0.1), 500_000),
    Case(detrend, lambda random, size: (_wave(random, size), 3), 100_000),
    Case(savitzky_golay, lambda random, size: (_wave(random, size),), 100_000),
    Case(standardise, lambda random, size: (_wave(random, size),), 1_000_000),
    Case(find_peaks, lambda random, size: (_wave(random, size), 0.5), 1_000_000),
    Case(
        mix_to_int16,
        lambda random, size: (_wave(random, size) / 2, _wave(random, size) / 2, 0.9),
        2_000_000,
    ),
    Case(peak_hold, lambda random, size: (_wave(random, size), 1e-4), 300_000),
    Case(autocorrelation, lambda random, size: (_wave(random, size), 100), 65_536),
    Case(spectrogram, lambda random, size: (_wave(random, size), 256, 64), 100_000),
    Case(remove_outliers, lambda random, size: (_wave(random, size), 3.0), 300_000),
    Case(resample, _times, 200_000),
    Case(chirp, lambda random, size: (size, 8000.0, 100.0, 2000.0), 300_000),
    Case(overlap_add, lambda random, size: (random.standard_normal((size // 128, 128)), 32), 6_400),
]
