"""datetime64 and timedelta64 as arguments: their ticks are traced; NaT, units and dtypes are NumPy's."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest

from fuser.interop import accelerate
from tests.interop.oracle import agree, same

UNITS = ("W", "D", "h", "m", "s", "ms", "us", "ns", "15m")
MOMENT = np.datetime64("2021-03-04T05:06:07")


def dates(unit: str = "s", count: int = 40, nat: bool = True) -> np.ndarray:
    seconds = np.random.default_rng(3).integers(-(10**9), 3 * 10**9, count)
    made = seconds.astype("M8[s]").astype(f"M8[{unit}]")
    if nat:
        made[::7] = "NaT"
    return made


def lengths(unit: str = "s", count: int = 40, nat: bool = True) -> np.ndarray:
    made = np.random.default_rng(4).integers(-(10**6), 10**6, count).astype(f"m8[{unit}]")
    if nat:
        made[3::5] = "NaT"
    return made


def whole(function: Any, *args: Any, tolerance: float | None = None) -> None:
    """The function agrees with NumPy, and is one program."""
    for backend in ("c", "reference"):
        agree(function, *args, backend=backend, tolerance=tolerance)
        compiled = accelerate(function, fallback="error", backend=backend, measure=False)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for _ in range(2):
                same(function(*copy.deepcopy(args)), compiled(*copy.deepcopy(args)), tolerance)
        assert "compiled whole" in compiled.explain()


ARITHMETIC = {
    "difference": lambda t, d: (t - MOMENT, MOMENT - t, t - t[::-1]),
    "shifted": lambda t, d: (t + d, d + t, t - d, t + np.timedelta64(5, "D"), np.timedelta64(1, "h") + t),
    "lengths": lambda t, d: (d + d[::-1], d - np.timedelta64(90, "m"), -d, abs(d), np.sign(d), +d),
    "ratios": lambda t, d: (d / np.timedelta64(1, "h"), np.timedelta64(1, "D") / (d * 0 + np.timedelta64(7, "s")), d / d),
    "products": lambda t, d: (d * 3, 2 * d, d * 1.7, 0.3 * d, d * np.arange(len(d)), d * np.nan),
    "quotients": lambda t, d: (d / 7, d // 7, d / -2, d // 2.5, d / 2.5, d // (np.arange(len(d)) + 1)),
    "remainder": lambda t, d: (d % np.timedelta64(7, "m"), d % np.timedelta64(-7, "m")),
    "compared": lambda t, d: (t < MOMENT, t <= t[::-1], t > MOMENT, t >= t, t == t, t != t, d > d[::-1], d != d),
    "extremes": lambda t, d: (np.maximum(t, MOMENT), np.minimum(t, t[::-1]), np.fmax(t, t[::-1]), np.fmin(d, d[::-1])),
    "nat": lambda t, d: (np.isnat(t), np.isnat(d), np.isfinite(t), np.isinf(d)),
    "clipped": lambda t, d: (t.clip(MOMENT, MOMENT + np.timedelta64(900, "D")), np.clip(d, np.timedelta64(0, "s"), None)),
    "chosen": lambda t, d: (np.where(t > MOMENT, t, MOMENT), np.where(np.isnat(d), np.timedelta64(0, "s"), d)),
    "ticks": lambda t, d: (t.astype(int), d.astype(float), t.view("i8"), d.astype("i4"), t.view("i8").astype("M8[s]")),
    "integers": lambda t, d: ((t.view("i8") % 1000).astype("m8[s]"), (t.view("i8") % 1000 / 7).astype("m8[ms]")),
}  # fmt: skip
FUNCTIONS = {
    "ends": lambda t, d: (t.max(), t.min(), d.max(), np.min(d), t.argmax(), t.argmin(), d.argmax(), np.ptp(t)),
    "sums": lambda t, d: (d.sum(), np.cumsum(d), d[4:8].sum(), d[4:8].mean(), d[4:8].cumsum()),
    "ordered": lambda t, d: (np.sort(t), np.argsort(t, kind="stable"), np.searchsorted(np.sort(t), t), np.sort(d)[::-1]),
    "differences": lambda t, d: (np.diff(t), np.diff(t, 2), np.diff(d)),
    "moved": lambda t, d: (t[::2], t[3], t[[1, 5, 2]], t.reshape(4, 10).T.copy(), np.concatenate([t, t]), np.roll(d, 3)),
    "repeated": lambda t, d: (np.repeat(t, 2), np.tile(d, 2), np.flip(t), np.stack([t, t + d]), t[:, None] - t[None, :3]),
    "made": lambda t, d: (np.zeros_like(d), np.full_like(t, MOMENT), len(t), t.shape, t.dtype, isinstance(t, np.ndarray)),
    "rows": lambda t, d: (t.reshape(4, 10).max(1), d.reshape(4, 10).sum(0), d.reshape(4, 10).cumsum(1), d[:0].sum()),
    "picked": lambda t, d: (d[t > MOMENT].sum(), (t > MOMENT).sum(), np.count_nonzero(d)),
}  # fmt: skip


@pytest.mark.parametrize("nat", [True, False])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name: str, nat: bool) -> None:
    whole(ARITHMETIC[name], dates(nat=nat), lengths(nat=nat))


@pytest.mark.parametrize("nat", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, nat: bool) -> None:
    whole(FUNCTIONS[name], dates(nat=nat), lengths(nat=nat))


@pytest.mark.parametrize("unit", UNITS)
def test_units(unit: str) -> None:
    def units(t: Any, d: Any, other: Any) -> Any:
        dates = [t.astype(f"M8[{u}]") for u in ("D", "h", "s", "M", "Y", "ns")]
        return (
            *dates,
            t - other,
            t > other,
            other + d,
            d.astype("m8[D]"),
            d.astype("m8[ms]"),
            d // np.timedelta64(1, "D"),
        )

    function = units if unit != "15m" else lambda t, d, other: (t - other, t.astype("M8[s]"), t.astype("M8[D]"))
    whole(function, dates(unit), lengths(unit, nat=False), dates("s")[::-1])


def test_months_and_years() -> None:
    months = np.arange("1850-01", "2250-01", dtype="M8[M]")
    days = np.arange("1899-12-20", "1905-01-05", dtype="M8[D]")
    whole(lambda m, d: (m.astype("M8[D]"), m.astype("M8[Y]"), m.astype("M8[Y]").astype("M8[s]"), m + 5), months, days)
    whole(
        lambda m, d: (d.astype("M8[M]"), d.astype("M8[Y]"), d - d.astype("M8[Y]"), d.astype("M8[M]") - m[0]),
        months,
        days,
    )


def test_writes_are_seen_by_the_caller() -> None:
    def moved(t: Any, d: Any) -> None:
        t[::2] += np.timedelta64(1, "h")
        t[1] = MOMENT
        t[5] = "1999-01-01"
        d[d < np.timedelta64(0, "s")] = np.timedelta64("NaT")
        d *= 2
        t.sort()

    whole(moved, dates(), lengths())


def test_loops_carry_times() -> None:
    def events(t: Any) -> Any:
        last, count = t[0], 0
        for i in range(1, len(t)):
            if t[i] - last > np.timedelta64(400, "D"):
                last, count = t[i], count + 1
        return last, count

    whole(events, np.sort(dates(nat=False)))


def test_division_by_zero_is_numpys() -> None:
    function = lambda d, n: (d / n, d // np.timedelta64(0, "s"))
    compiled = accelerate(function, measure=False)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="divide by zero"):
            found = compiled(lengths(nat=False), np.zeros(40, int))
    with np.errstate(all="ignore"):
        same(function(lengths(nat=False), np.zeros(40, int)), found)


def test_times_in_structured_arrays_and_scalars() -> None:
    table = np.zeros(40, [("when", "M8[s]"), ("value", "f8")])
    table["when"], table["value"] = dates(), np.arange(40.0)

    def rates(table: Any, now: Any) -> Any:
        age = (now - table["when"]) / np.timedelta64(1, "D")
        table["when"][table["value"] > 30] = now
        return np.where(np.isnat(table["when"]), 0.0, table["value"] * np.exp(-abs(age) / 1e4))

    whole(rates, table, MOMENT)


def test_an_argument_that_is_returned_is_the_argument() -> None:
    compiled, t = accelerate(lambda t: t), dates()
    for _ in range(3):
        assert compiled(t) is t
