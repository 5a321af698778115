"""What runs every case on a GPU, with processes of a test's own: one that ends or hangs in a case is begun again behind it."""

from __future__ import annotations

import sys

import pytest

from tests.gpu import every_case

CASES = """
import json, sys, time
first, ends, hangs, dead = map(int, sys.argv[1:])
for place in range(first, 6):
    print(json.dumps({"begin": place, "suite": "s", "case": f"case {place}"}), flush=True)
    if place == ends:
        print("no such address", file=sys.stderr)
        sys.exit(7)
    if place == hangs:
        time.sleep(600)
    error = "it is wrong" if place == dead else ""
    print(json.dumps({"place": place, "suite": "s", "case": f"case {place}", "error": error, "seconds": 0.1}), flush=True)
    if place == dead:
        sys.exit(3)
"""


def rows_of(monkeypatch: pytest.MonkeyPatch, ends: int = -1, hangs: int = -1, dead: int = -1) -> dict[str, str]:
    asked = lambda self, first: [sys.executable, "-c", CASES, *map(str, (first, ends, hangs, dead))]
    monkeypatch.setattr(every_case.Worker, "command", asked)
    rows = list(every_case.run(1, 60.0, 5.0, ("s",)))
    assert [row["case"] for row in rows] == [f"case {n}" for n in range(6)]
    return {row["case"]: row["error"] for row in rows if row["error"]}


def test_a_process_that_ends_is_begun_again_behind_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rows_of(monkeypatch, ends=2)
    assert list(found) == ["case 2"] and "7" in found["case 2"] and "no such address" in found["case 2"]


def test_a_case_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(rows_of(monkeypatch, hangs=4)) == ["case 4"]


def test_a_process_whose_gpu_is_dead_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows_of(monkeypatch, dead=1) == {"case 1": "it is wrong"}
