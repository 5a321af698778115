"""Derived figures, units and sentences, against arithmetic that can be done in the head."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fuser.report import Refusal, units
from fuser.report.summary import summary


def test_rates_of_a_kernel(profile):
    kernel = profile.kernels[0]  # 80 MB and 30 MFLOP in 2.5 ms on a machine that copies 40 GB/s
    assert kernel.achieved_bandwidth == pytest.approx(32e9)
    assert kernel.achieved_flops == pytest.approx(12e9)
    assert kernel.arithmetic_intensity == pytest.approx(0.375)
    assert kernel.fraction_of_bandwidth(profile.machine) == pytest.approx(0.8)
    assert kernel.limit(profile.machine) == "memory"
    assert kernel.limit_seconds(profile.machine) == pytest.approx(2e-3)


def test_the_roof_of_a_contraction_is_arithmetic(profile):
    kernel = profile.kernels[1]  # 1.6 GFLOP on a machine of 200 GFLOP/s, 16.7 FLOP per byte
    assert kernel.limit(profile.machine) == "arithmetic"
    assert kernel.limit_seconds(profile.machine) == pytest.approx(8e-3)


def test_the_limit_counts_bytes_that_must_move(profile):
    kernel = profile.kernels[2]  # moves 160 MB where 80 would do
    assert kernel.limit_seconds(profile.machine) == pytest.approx(2e-3)


def test_sums_of_a_program(profile):
    assert profile.operations == 15
    assert profile.compile_seconds == pytest.approx(0.1)
    assert profile.kernel_seconds == pytest.approx(39.5e-3)
    assert profile.between_seconds == pytest.approx(0.5e-3)
    assert profile.fraction_of_bandwidth == pytest.approx(0.26)


def test_nothing_is_divided_by_zero(bare):
    assert bare.between_seconds == 0
    assert bare.achieved_bandwidth == 0
    assert bare.fraction_of_bandwidth == 0
    assert bare.machine.ridge == 0


@pytest.mark.parametrize(
    ("write", "value", "words"),
    [
        (units.seconds, 0, "0 s"),
        (units.seconds, 4.119e-3, "4.12 ms"),
        (units.seconds, 0.99996e-3, "1.00 ms"),
        (units.seconds, 812e-6, "812 µs"),
        (units.seconds, 3e-9, "3.00 ns"),
        (units.seconds, 75.0, "75.0 s"),
        (units.seconds, math.inf, "–"),
        (units.size, 0, "0 B"),
        (units.size, 512, "512 B"),
        (units.size, 999_700, "1.00 MB"),
        (units.size, 134_217_728, "134 MB"),
        (units.bandwidth, 32.5e9, "32.5 GB/s"),
        (units.percent, 0.004, "0.4 %"),
        (units.percent, 0.88, "88 %"),
        (units.percent, 0, "0 %"),
        (units.intensity, 0.375, "0.38 FLOP/B"),
    ],
)
def test_units(write, value, words):
    assert write(value) == words


def test_counts_and_tallies():
    assert [units.count(n, "kernel") for n in (0, 1, 1200)] == ["0 kernels", "1 kernel", "1,200 kernels"]
    assert units.count(2, "launch") == "2 launches"
    assert units.tally(("mul", "exp", "mul", "mul")) == ("mul ×3", "exp")


def test_summary_answers_five_questions(profile):
    words = dict(summary(profile))
    assert len(words) == 5
    assert "15 operations in 5 kernels" in words["What ran"]
    assert "`sort` 50 %, `matmul_gelu` 25 %" in words["Where the time goes"]
    assert "416 MB where 336 MB would do (1.24×)" in words["How near the limit"]
    assert "Most is to be won in `sort`" in words["How near the limit"]
    assert "3 merges were refused, each for a reason of its own" in words["What was not fused"]
    assert "1 of 4 generated kernels" in words["What compiling cost"]


def test_summary_names_the_most_frequent_reason(profile):
    refused = (Refusal("a", "b", "rare"), Refusal("b", "c", "frequent"), Refusal("c", "d", "frequent"))
    assert "most often (2×): frequent" in dict(summary(replace(profile, refused=refused)))["What was not fused"]
    once = replace(profile, refused=refused[:1])
    assert dict(summary(once))["What was not fused"] == "1 merge was refused: rare."


def test_summary_of_a_program_without_kernels(bare):
    words = dict(summary(bare))
    assert "0 operations in 0 kernels" in words["What ran"]
    assert words["What was not fused"] == "Nothing: every merge that was tried was made."
    assert words["What compiling cost"] == "No kernel was generated."


@pytest.mark.parametrize("suffix", [".html", ".json", ".trace.json", ".txt"])
def test_save_by_suffix(profile, tmp_path, suffix):
    path = profile.save(tmp_path / f"report{suffix}")
    forms = {".html": profile.html, ".json": profile.to_json, ".trace.json": profile.chrome_trace, ".txt": profile.text}
    assert path.read_text(encoding="utf-8") == forms[suffix]()


def test_save_refuses_other_suffixes(profile, tmp_path):
    with pytest.raises(ValueError) as caught:
        profile.save(tmp_path / "report.pdf")
    assert str(caught.value) == (
        "a report is saved as .trace.json, .json, .html, .txt, not as 'report.pdf'; choose one of these suffixes"
    )
    assert not list(tmp_path.iterdir())


def test_kernels_stray_from_estimates_by_their_best_run(profile) -> None:
    """On a busy machine the median says nothing: it strays where even the best run is far above, or the median far below."""

    def strays(estimated: float, best: float, median: float) -> float:
        times = {"estimated_seconds": estimated, "min_seconds": best, "median_seconds": median}
        return replace(profile.kernels[0], **times).strays

    assert strays(2e-3, 3e-3, 47e-3) == pytest.approx(1.5)
    assert strays(2e-3, 1e-3, 47e-3) == 1
    assert strays(2e-3, 6e-3, 7e-3) == pytest.approx(3)
    assert strays(8e-3, 1e-3, 2e-3) == pytest.approx(4)
    assert strays(0, 1e-3, 2e-3) == 1
