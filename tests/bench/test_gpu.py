"""The script for a GPU, run without one: every part gets through to its rows by the driver's stand-in."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from bench import gpu
from fuser.runtime.core import native

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.xdist_group("triton"),
    pytest.mark.skipif(native is None, reason="the stand-in is a driver of the native core"),
]


def dry_run(folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DRY_RUN": "1", "OUT": str(folder), "PYTHON": sys.executable}
    return subprocess.run(
        ["sh", "bench/gpu.sh"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_every_part_writes_its_rows(tmp_path: pathlib.Path) -> None:
    run = dry_run(tmp_path)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    rows = [json.loads(line) for line in (tmp_path / "gpu.jsonl").read_text().splitlines()]
    assert {row["device"] for row in rows} == {"stand-in"}  # what is no measurement says so
    counts = {part: sum(row["part"] == part for row in rows) for part in gpu.PARTS}
    assert counts["calls"] >= 7 and counts["kernels"] >= 30 and counts["products"] >= 5 and counts["programs"] >= 5
    assert counts["updates"] == 4 and counts["irregular"] >= 15 and counts["pairs"] >= 30
    assert [row for row in rows if "failure" in row or row.get("error", 0) > row.get("tolerance", 0)] == []
    assert all("error" in row for row in rows if row["part"] not in ("calls", "pairs"))
    assert "tests collected" in run.stdout
    (page,) = map(json.loads, (tmp_path / "pages.jsonl").read_text().splitlines())
    assert page["page"] == "docs/errors.md" and page["wrong"] == []
    several = [json.loads(line) for line in (tmp_path / "gpus.jsonl").read_text().splitlines()]
    assert {row["device"] for row in several} == {"stand-in"} and {row["devices"] for row in several} == {2}
    assert len(several) == 2 and all(row["error"] < 1e-5 for row in several)


def test_a_case_that_fails_ends_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def cases(run: gpu.Run) -> gpu.Cases:
        def broken() -> gpu.Row:
            raise ValueError("no such size")

        yield "broken", broken
        yield "whole", lambda: {"seconds": 1.0}

    monkeypatch.setitem(gpu.PARTS, "kernels", (cases, 1.0))
    monkeypatch.setattr(gpu, "_answers", lambda: True)
    first, second = gpu.rows(gpu.Run(True), 100.0, "kernels")
    assert first["failure"] == "ValueError: no such size" and "no such size" in first["where"]
    assert (second["name"], second["number"], second["seconds"]) == ("whole", 1, 1.0)
    monkeypatch.setattr(gpu, "_answers", lambda: False)
    several = gpu.rows(gpu.Run(True), 100.0, "kernels")
    assert next(several)["name"] == "broken"
    with pytest.raises(gpu.DeadDevice):
        next(several)


def test_a_failure_is_a_row_and_the_exit_status(tmp_path: pathlib.Path) -> None:
    code = (
        "import sys; from bench import gpu, static\n"
        "def broken(): raise ValueError('no such kernel'); yield\n"
        "static.cases = broken\n"
        f"sys.exit(gpu.main(['kernels', 'calls', '--dry-run', '--rows', {str(tmp_path / 'rows')!r}]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert run.returncode == 1
    failure = {"name": "rest", "number": -1, "failure": "ValueError: no such kernel"}
    assert rows[0] == {"device": "stand-in", "part": "kernels", **failure}
    assert rows[-1]["part"] == "calls"  # the parts after it run
