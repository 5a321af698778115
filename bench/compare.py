"""Verdicts: is one run faster than another beyond the noise, and does fuser reach what it must against JAX?

A difference counts when medians and best times both differ by more than the noise: half the two interquartile
ranges, relative to their medians, and never less than 3 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]
KEY = ("workload", "size", "dtype", "device", "system")
LEAST_NOISE = 0.03

# (workload, how many times faster than JAX); at "full" size, float32, on a CPU
MUST_REACH = (
    ("polynomial", 4.0),
    ("chain", 6.0),
    ("softmax", 4.0),
    ("layer_norm", 3.0),
    ("column_sum", 1.0),
    ("full_sum", 1.0),
    ("cross_entropy_gradient", 3.0),
    ("mlp_train_step", 1.0),
    ("monte_carlo_paths", 5.0),
    ("mandelbrot_loop", 5.0),
    ("lotka_volterra", 5.0),
    ("newton_roots", 1.0),
    ("scan_of_eight", 1.0),
    ("scalar_while", 1.0),
)


def noise(old: Row, new: Row) -> float:
    """The relative difference that the spread of both rows explains."""
    spreads = [(row["q3_s"] - row["q1_s"]) / row["median_s"] for row in (old, new)]
    return max(LEAST_NOISE, sum(spreads) / 2)


def verdict(old: Row, new: Row) -> str:
    """FASTER, SLOWER or SAME: how the row `new` stands to the row `old`."""
    threshold = 1.0 + noise(old, new)
    ratios = [old[figure] / new[figure] for figure in ("median_s", "min_s")]
    if min(ratios) > threshold:
        return "FASTER"
    return "SLOWER" if max(ratios) < 1.0 / threshold else "SAME"


def compare(old: list[Row], new: list[Row]) -> list[Row]:
    """One entry per row that both runs measured: KEY, both medians, the ratio old / new, the noise and the verdict."""
    before = {_key(row): row for row in old if "median_s" in row}
    found = []
    for row in new:
        if "median_s" in row and (past := before.get(_key(row))) is not None:
            entry = {field: row[field] for field in KEY}
            entry |= {"old_s": past["median_s"], "new_s": row["median_s"], "ratio": past["median_s"] / row["median_s"]}
            found.append(entry | {"noise": noise(past, row), "verdict": verdict(past, row)})
    return found


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[field] for field in KEY)


def must_reach(rows: list[Row], system: str = "fuser") -> list[Row]:
    """One check per target: `ratio` of medians and `best_ratio` of best times JAX / fuser, PASS, MISS or NOT MEASURED.

    "No slower" (1×) passes unless fuser is slower beyond the noise; a wrong result never passes.
    """
    full = {
        (row["workload"], row["system"]): row
        for row in rows
        if row["size"] == "full" and row["dtype"] == "float32" and row["device"] == "cpu" and "median_s" in row
    }
    checks = []
    for workload, required in MUST_REACH:
        ours, peer = full.get((workload, system)), full.get((workload, "jax"))
        check: Row = {"workload": workload, "required": required, "ratio": None, "best_ratio": None}
        if ours is None or peer is None:
            checks.append(check | {"verdict": "NOT MEASURED"})
            continue
        check["ratio"] = peer["median_s"] / ours["median_s"]
        check["best_ratio"] = peer["min_s"] / ours["min_s"]
        reached = verdict(peer, ours) != "SLOWER" if required == 1.0 else check["ratio"] >= required
        checks.append(check | {"verdict": "PASS" if reached and ours["correct"] else "MISS"})
    return checks


def means(rows: list[Row], suites: Mapping[str, Sequence[str]], system: str = "fuser") -> list[Row]:
    """One entry per suite, size, dtype, device and peer: the geometric `mean` of the ratios of medians peer / fuser
    over the `count` workloads that both measured, the `best_mean` of those of best times, and the `lowest` ratio with
    its workload `where`. Where fuser's result is wrong its ratio is 0.
    """
    found = []
    measured = {_key(row): row for row in rows if "median_s" in row}
    cells = dict.fromkeys((row["size"], row["dtype"], row["device"]) for row in measured.values())
    peers = [name for name in dict.fromkeys(row["system"] for row in measured.values()) if name != system]
    for suite, names in suites.items():
        for cell in cells:
            for peer in peers:
                pairs = [
                    (name, measured.get((name, *cell, peer)), measured.get((name, *cell, system))) for name in names
                ]
                both = [(name, theirs, ours) for name, theirs, ours in pairs if theirs and ours]
                if both:
                    entry = dict(zip(("suite", *KEY[1:-1], "peer"), (suite, *cell, peer), strict=True))
                    found.append(entry | _mean(both))
    return found


def _mean(pairs: Sequence[tuple[str, Row, Row]]) -> Row:
    ratios = {name: theirs["median_s"] / ours["median_s"] * ours["correct"] for name, theirs, ours in pairs}
    best = [theirs["min_s"] / ours["min_s"] * ours["correct"] for _, theirs, ours in pairs]
    where = min(ratios, key=lambda name: ratios[name])
    figures = {"mean": _geometric(list(ratios.values())), "best_mean": _geometric(best)}
    return {"count": len(pairs), **figures, "lowest": ratios[where], "where": where}


def _geometric(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if min(ratios) > 0.0 else 0.0
