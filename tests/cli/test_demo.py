"""The demo on small inputs: what it says, what it writes, and that the user's changes to its programs count."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest

NAMES = ("develop", "black_scholes", "softmax")


def test_demo_shows_programs_and_results(command: Any, tmp_path: pathlib.Path) -> None:
    result = command("demo", "--small", "--output", tmp_path / "out")
    assert (result.status, result.errors) == (0, "")
    for line in ("@fuser.accelerate", "@fuser.jit", "def black_scholes(spot, strike, years"):
        assert line in result.text
    assert result.text.count("the same results") == 3
    written = {path.name for path in (tmp_path / "out").iterdir()} - {"__pycache__"}
    assert written == {"programs.py", "photograph.png", "developed.png", *(f"{name}.html" for name in NAMES)}
    assert "programs.py:" in (tmp_path / "out" / "develop.html").read_text(), "the report names the user's lines"


def test_demo_as_json(command: Any, tmp_path: pathlib.Path) -> None:
    document = command("demo", "--small", "--json", "--output", tmp_path).document
    assert document["ok"] is True and document["copy_bandwidth"] > 1e8
    assert [program["name"] for program in document["programs"]] == list(NAMES)
    for program in document["programs"]:
        assert program["agrees"] and program["kernels"] < program["operations"] / 3
        assert program["bytes"] < program["unfused_bytes"]
        assert program["speedup"] == pytest.approx(program["numpy_seconds"] / program["fuser_seconds"])
    assert [program["kernels"] for program in document["programs"]][1:] == [1, 1]
    assert all(pathlib.Path(path).is_file() for path in document["files"])


def test_changed_programs_run_and_wrong_results_are_a_problem(command: Any, tmp_path: pathlib.Path) -> None:
    command("demo", "--small", "--output", tmp_path)
    file = tmp_path / "programs.py"
    text = file.read_text()
    file.write_text(text.replace("e = fnp.exp(x - x.max(", "e = 1.01 + fnp.exp(x - x.max("))
    result = command("demo", "--small", "--output", tmp_path)
    assert result.status == 1
    assert result.text.count("the same results") == 2 and result.text.count("other results than NumPy") == 1


def test_the_report_command_reads_the_programs(command: Any, tmp_path: pathlib.Path) -> None:
    command("demo", "--small", "--output", tmp_path)
    document = command("explain", f"{tmp_path / 'programs.py'}:softmax", "--json").document
    assert document["arguments"] == ["f32[4096,4096]"]


def test_without_scikit_image(command: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage", None)
    result = command("demo", "--small", "--output", tmp_path)
    assert result.status == 2
    assert result.errors == (
        'error: the demo needs scikit-image for its photograph; install it with: python -m pip install ".[demo]"\n'
    )


def test_into_a_place_that_cannot_be_written(command: Any, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    result = command("demo", "--small", "--output", tmp_path / "file" / "out")
    assert (result.status, result.text) == (2, "")
    assert result.errors == (
        f"error: {tmp_path / 'file' / 'out'} cannot be written: Not a directory; name another directory with --output\n"
    )
