"""Ordinary NumPy functions as people write them, by field; `python -m bench --suite corpus` runs them beside NumPy, numba and numexpr."""

from __future__ import annotations

from bench.corpus import algebra, differences, finance, image, physics, signal, statistics, updates
from bench.corpus.case import Case

FIELDS = {
    "image": image.CASES,
    "signal": signal.CASES,
    "differences": differences.CASES,
    "statistics": statistics.CASES,
    "finance": finance.CASES,
    "physics": physics.CASES,
    "updates": updates.CASES,
    "algebra": algebra.CASES,
}
CASES: list[Case] = [case for cases in FIELDS.values() for case in cases]
