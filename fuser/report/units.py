"""Quantities in words that people read: `4.12 ms`, `134 MB`, `32.5 GB/s`, `88 %`, `2 kernels`.

In: seconds, bytes, FLOP and fractions. Out: three significant digits with the prefix that fits (decimal, as GB/s is).
"""

from __future__ import annotations

import math

_LARGE = ("", "k", "M", "G", "T", "P", "E")


def _digits(value: float) -> str:
    """Three significant digits of a number below 1000, as plain decimals."""
    places = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{places}f}"


def _large(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return "–"
    index = 0
    while value >= 999.5 and index < len(_LARGE) - 1:
        value, index = value / 1000, index + 1
    number = str(int(value)) if index == 0 and value == int(value) else _digits(value)
    return f"{number} {_LARGE[index]}{unit}"


def seconds(value: float) -> str:
    """`1.20 s`, `4.12 ms`, `812 µs`, `95.0 ns`."""
    if not math.isfinite(value):
        return "–"
    if value <= 0:
        return "0 s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= 0.9995 * scale:
            return f"{_digits(value / scale)} {unit}"
    return f"{_digits(value / 1e-9)} ns"


def compiled(generated: bool, cache_hit: bool, time: float) -> str:
    """What compiling a kernel took: a time, `cached`, or – for a library call."""
    return "–" if not generated else "cached" if cache_hit else seconds(time)


def size(value: float) -> str:
    """Bytes: `134 MB`, `512 B`."""
    return _large(value, "B")


def bandwidth(value: float) -> str:
    """Bytes per second: `32.5 GB/s`."""
    return _large(value, "B/s")


def flops(value: float) -> str:
    """Operations: `1.20 GFLOP`."""
    return _large(value, "FLOP")


def flop_rate(value: float) -> str:
    """Operations per second: `85.0 GFLOP/s`."""
    return _large(value, "FLOP/s")


def intensity(value: float) -> str:
    """FLOP per byte: `0.38 FLOP/B`."""
    return f"{_digits(value)} FLOP/B" if value < 999.5 else _large(value, "FLOP/B")


def percent(fraction: float) -> str:
    """`88 %`, `0.4 %`, `112 %`."""
    if not math.isfinite(fraction):
        return "–"
    value = 100 * fraction
    return f"{value:.1f} %" if 0 < value < 0.95 else f"{value:.0f} %"


def count(number: int, noun: str) -> str:
    """`1 kernel`, `3 kernels`, `2 passes`."""
    plural = noun + ("es" if noun.endswith(("s", "sh", "ch")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def tally(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names in order of first appearance, repeated ones counted: `("mul ×3", "exp")`."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return tuple(f"{name} ×{number}" if number > 1 else name for name, number in counts.items())
