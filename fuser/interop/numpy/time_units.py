"""Units of datetime64 and timedelta64: ticks of one unit as ticks of another, NaT as NaT.

Months and years of dates go through the calendar: days to and from the civil date, as in Hinnant, "chrono-Compatible Low-Level
Date Algorithms" (2013), with years that begin in March.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuser.interop.numpy.checks import exempted
from fuser.interop.numpy.context import untraceable

NAT = np.int64(np.iinfo(np.int64).min)
# Attoseconds in each unit that has a fixed length.
_ATTOSECONDS = {
    "W": 604800 * 10**18, "D": 86400 * 10**18, "h": 3600 * 10**18, "m": 60 * 10**18, "s": 10**18,
    "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1,
}  # fmt: skip
_MONTHS = {"Y": 12, "M": 1}
_DAYS_BEFORE_1970 = 719468  # since the first of March of the year 0
_DAYS_OF_ERA = 146097  # 400 years
_MOST_FACTOR = 1 << 62


def is_nat(ticks: Any) -> Any:
    """Where ticks are NaT."""
    return ticks == NAT


def with_nat(where: Any, ticks: Any) -> Any:
    """NaT where `where` holds, else the ticks; a scalar where they are one."""
    chosen = np.where(where, NAT, ticks)
    return chosen if isinstance(ticks, np.ndarray) else chosen[()]


def convert(ticks: Any, old: np.dtype, new: np.dtype) -> Any:
    """Ticks of the dtype `old` as those of `new`, both of one kind; towards the past where `new` is coarser.

    UnsupportedError for a length in months or years as one in days, and for units that no integer factor relates within 64 bits.
    """
    (unit, step), (wanted, wanted_step) = np.datetime_data(old), np.datetime_data(new)
    if (unit, step) == (wanted, wanted_step) or unit == "generic":
        return ticks
    with exempted(masked=True):
        if (unit in _MONTHS) == (wanted in _MONTHS):
            lengths = _MONTHS if unit in _MONTHS else _ATTOSECONDS
            if wanted == "generic":
                raise _unrelated(old, new)
            found = _scaled(ticks, lengths[unit] * step, lengths[wanted] * wanted_step, (old, new))
        elif old.kind == "m" or wanted == "generic":
            raise _unrelated(old, new)
        elif unit in _MONTHS:
            months = _scaled(ticks, _MONTHS[unit] * step, 1, (old, new))
            found = _scaled(_days(months), _ATTOSECONDS["D"], _ATTOSECONDS[wanted] * wanted_step, (old, new))
        else:
            days = _scaled(ticks, _ATTOSECONDS[unit] * step, _ATTOSECONDS["D"], (old, new))
            found = _scaled(_months(days), 1, _MONTHS[wanted] * wanted_step, (old, new))
        return with_nat(is_nat(ticks), found)


def _unrelated(old: np.dtype, new: np.dtype) -> Exception:
    return untraceable(f"{old} as {new} cannot be traced", "use units of days or shorter")


def _scaled(ticks: Any, length: int, wanted: int, dtypes: tuple[np.dtype, np.dtype]) -> Any:
    """`floor(ticks * length / wanted)`."""
    common = math.gcd(length, wanted)
    factor, divisor = length // common, wanted // common
    if (factor != 1 and divisor != 1) or max(factor, divisor) > _MOST_FACTOR:
        raise _unrelated(*dtypes)
    return ticks // np.int64(divisor) if divisor > 1 else ticks * np.int64(factor) if factor > 1 else ticks


def _days(months: Any) -> Any:
    """Days since 1970 of the first day of months since January 1970."""
    since_march = months + np.int64(1970 * 12 - 2)  # since March of the year 0
    year, month = since_march // np.int64(12), since_march % np.int64(12)
    era = year // np.int64(400)
    of_era = year - era * np.int64(400)
    of_year = (month * np.int64(153) + np.int64(2)) // np.int64(5)
    day = of_era * np.int64(365) + of_era // np.int64(4) - of_era // np.int64(100) + of_year
    return era * np.int64(_DAYS_OF_ERA) + day - np.int64(_DAYS_BEFORE_1970)


def _months(days: Any) -> Any:
    """Months since January 1970 of days since then."""
    since = days + np.int64(_DAYS_BEFORE_1970)
    era = since // np.int64(_DAYS_OF_ERA)
    day = since - era * np.int64(_DAYS_OF_ERA)
    leap = day // np.int64(1460) - day // np.int64(36524) + day // np.int64(146096)
    year = (day - leap) // np.int64(365)
    of_year = day - (year * np.int64(365) + year // np.int64(4) - year // np.int64(100))
    month = (of_year * np.int64(5) + np.int64(2)) // np.int64(153)
    return (year + era * np.int64(400)) * np.int64(12) + month - np.int64(1970 * 12 - 2)
