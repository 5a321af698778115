"""Variants of kernels that a GPU is to choose between, at small sizes by the driver's stand-in."""

from __future__ import annotations

import json

import pytest

from bench import gpu_row_variants, gpu_variants
from fuser.backends.triton import bucket_sums

pytestmark = pytest.mark.xdist_group("triton")


def test_variants_are_right_and_leave_no_settings(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = bucket_sums.STEPS, bucket_sums.seconds
    assert gpu_variants.main(["--dry-run", "places", "embedding"]) == 0
    assert (bucket_sums.STEPS, bucket_sums.seconds) == chosen
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert len({row["name"] for row in rows}) == 4
    assert all(row["right"] and row["us"] > 0 for row in rows)


def test_what_fails_or_comes_too_late_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    gpu_variants.main(["--dry-run", "--seconds", "0", "embedding"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert rows and all(row["left_out"] for row in rows)


def test_forms_of_rows_agree_with_float64(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_row_variants.main(["--dry-run"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert len(rows) > 70 and all(row["us"] > 0 and row["error"] < 1e-2 for row in rows)
