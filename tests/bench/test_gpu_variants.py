"""Variants of kernels that a GPU is to choose between, at small sizes by the driver's stand-in."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fuser
import fuser.numpy as fnp
from bench import gpu_variants
from fuser.backends.triton import bucket_sums

pytestmark = pytest.mark.xdist_group("triton")
SMALL = 13


def test_variants_are_right_and_leave_no_settings(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = bucket_sums.STEPS, bucket_sums.MOVING, bucket_sums.seconds
    assert gpu_variants.main(["--dry-run", "places", "order", "rows"]) == 0
    assert (bucket_sums.STEPS, bucket_sums.MOVING, bucket_sums.seconds) == chosen
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert len({row["name"] for row in rows}) == 9
    assert all(row["right"] and row["us"] > 0 for row in rows)


def test_what_comes_too_late_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_variants.main(["--dry-run", "--seconds", "0", "counts"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert rows and all(row["left_out"] for row in rows)


def test_what_is_wrong_or_fails_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def cases(log: int) -> list[gpu_variants.Case]:
        broken = [(bucket_sums, "no such constant", 1)]
        return [
            gpu_variants.Case(
                "a", fnp.negative, lambda: (np.ones(4, np.float32),), {"b": broken}, lambda x: gpu_variants.same(x)
            )
        ]

    monkeypatch.setattr(gpu_variants, "PARTS", {"some": cases})
    assert gpu_variants.main(["--dry-run"]) == 1
    wrong, failed = (json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{"))
    assert not wrong["right"] and "no such constant" in failed["failure"]


@pytest.mark.parametrize("part", ["rows", "steps", "loops"])
def test_a_variant_launches_other_kernels_than_are_planned(part: str) -> None:
    for case in gpu_variants.PARTS[part](SMALL):
        arrays, seen = case.arrays(), set()
        for patches in ([], *case.variants.values()):
            with gpu_variants.patched(patches):
                lowered = fuser.jit(lambda *given, case=case: case.function(*given), backend="triton").lower(*arrays)
                seen.add(repr([(s.text, s.launch["launches"]) for s in lowered.sources]))
        assert len(seen) == 1 + len(case.variants)


def test_launches_are_timed_on_what_the_last_kernels_read() -> None:
    added = lambda i, v: fnp.zeros(100).at[i].add(v)
    index, values = np.array([3, -1, 100, 7] * 40, np.int32), np.arange(160, dtype=np.float32)
    lowered = fuser.jit(added, backend="triton").lower(index, values)
    read = dict(
        zip(
            (v.aval.dtype.name + str(v.aval.size) for v in lowered.plan.groups[-1].graph.invars),
            gpu_variants.read_last(lowered, (index, values)),
        )
    )
    np.testing.assert_array_equal(
        read["uint32160"], [3, 99, 100, 7] * 40
    )  # of an index out of bounds: beyond the last row
    np.testing.assert_array_equal(read["float32160"], values)
    assert not read["float32100"].any()
